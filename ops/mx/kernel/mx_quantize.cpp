// codes, scale = x in blocks of 32, shared among vector cores. DTYPE: of x.
#include "quantize.h"
#include "tiling.h"

using namespace ascend_k3;

template <class T>
class MxQuantize {
   public:
    __aicore__ inline MxQuantize(TPipe& pipe, GM_ADDR x, GM_ADDR codes, GM_ADDR scales, const MxTiling& tiling) : tiling_(tiling) {
        const MxFormat format = mx_format(tiling.format);
        block_bytes_ = format.BlockBytes();
        first_ = GetBlockIdx() * tiling.blocks_a_core;
        last_ = first_ + tiling.blocks_a_core < tiling.blocks ? first_ + tiling.blocks_a_core : tiling.blocks;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
        codes_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(codes));
        scales_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(scales));
        const uint32_t tile = tiling.blocks_a_tile;
        pipe.InitBuffer(in_, 2, tile * MX_BLOCK * sizeof(T));
        pipe.InitBuffer(out_, 2, tile * (block_bytes_ + 1));
        if constexpr (!is_float) pipe.InitBuffer(work_, tile * MX_BLOCK * sizeof(float));
        quantizer_.Init(pipe, format, tile, tiling.carry);
    }

    __aicore__ inline void Process() {
        for (int64_t block = first_; block < last_; block += tiling_.blocks_a_tile) {
            const uint32_t blocks = last_ - block < tiling_.blocks_a_tile ? static_cast<uint32_t>(last_ - block) : tiling_.blocks_a_tile;
            CopyIn(block, blocks);
            Compute(blocks);
            CopyOut(block, blocks);
        }
    }

   private:
    __aicore__ inline DataCopyExtParams Bytes(uint32_t bytes) const { return DataCopyExtParams{1, bytes, 0, 0, 0}; }

    __aicore__ inline void CopyIn(int64_t block, uint32_t blocks) {
        LocalTensor<T> x = in_.AllocTensor<T>();
        DataCopyPad(x, x_[block * MX_BLOCK], Bytes(blocks * MX_BLOCK * sizeof(T)), DataCopyPadExtParams<T>{});
        in_.EnQue(x);
    }

    __aicore__ inline void Compute(uint32_t blocks) {
        LocalTensor<T> x = in_.DeQue<T>();
        LocalTensor<uint8_t> out = out_.AllocTensor<uint8_t>();
        LocalTensor<uint8_t> scales = out[tiling_.blocks_a_tile * block_bytes_];
        if constexpr (is_float) {
            quantizer_.Run(x, out, scales, blocks);
            in_.FreeTensor(x);
        } else {
            LocalTensor<float> work = work_.Get<float>();
            Cast(work, x, RoundMode::CAST_NONE, blocks * MX_BLOCK);
            in_.FreeTensor(x);
            PipeBarrier<PIPE_V>();
            quantizer_.Run(work, out, scales, blocks);
        }
        out_.EnQue(out);
    }

    __aicore__ inline void CopyOut(int64_t block, uint32_t blocks) {
        LocalTensor<uint8_t> out = out_.DeQue<uint8_t>();
        DataCopyPad(codes_[block * block_bytes_], out, Bytes(blocks * block_bytes_));
        DataCopyPad(scales_[block], out[tiling_.blocks_a_tile * block_bytes_], Bytes(blocks));
        out_.FreeTensor(out);
    }

    static constexpr bool is_float = std::is_same_v<T, float>;
    MxTiling tiling_;
    uint32_t block_bytes_ = 0;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<T> x_;
    GlobalTensor<uint8_t> codes_, scales_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> work_;
    MxQuantizer quantizer_;
};

extern "C" __global__ __aicore__ void mx_quantize(GM_ADDR x, GM_ADDR codes, GM_ADDR scales, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(MxTiling, data, tiling);
    TPipe pipe;
    MxQuantize<DTYPE>(pipe, x, codes, scales, data).Process();
}
