// x = element * 2^(scale - 127) in blocks of 32, shared among vector cores. DTYPE: of x.
#include "ascend_k3/infinities.h"
#include "dequantize.h"
#include "tiling.h"

using namespace ascend_k3;

template <class T>
class MxDequantize {
   public:
    __aicore__ inline MxDequantize(TPipe& pipe, GM_ADDR codes, GM_ADDR scales, GM_ADDR x, const MxTiling& tiling) : tiling_(tiling) {
        const MxFormat format = mx_format(tiling.format);
        block_bytes_ = format.BlockBytes();
        first_ = GetBlockIdx() * tiling.blocks_a_core;
        last_ = first_ + tiling.blocks_a_core < tiling.blocks ? first_ + tiling.blocks_a_core : tiling.blocks;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
        codes_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(codes));
        scales_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(scales));
        const uint32_t tile = tiling.blocks_a_tile;
        pipe.InitBuffer(in_, 2, tile * (block_bytes_ + 1));
        pipe.InitBuffer(out_, 2, tile * MX_BLOCK * sizeof(T));
        if constexpr (!is_float) pipe.InitBuffer(work_, tile * MX_BLOCK * sizeof(float));
        dequantizer_.Init(pipe, format, tile);
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

    /// Codes, and the scales behind those of a whole tile.
    __aicore__ inline void CopyIn(int64_t block, uint32_t blocks) {
        LocalTensor<uint8_t> in = in_.AllocTensor<uint8_t>();
        DataCopyPad(in, codes_[block * block_bytes_], Bytes(blocks * block_bytes_), DataCopyPadExtParams<uint8_t>{});
        DataCopyPad(in[tiling_.blocks_a_tile * block_bytes_], scales_[block], Bytes(blocks), DataCopyPadExtParams<uint8_t>{});
        in_.EnQue(in);
    }

    __aicore__ inline void Compute(uint32_t blocks) {
        LocalTensor<uint8_t> in = in_.DeQue<uint8_t>();
        LocalTensor<T> x = out_.AllocTensor<T>();
        LocalTensor<float> work;
        if constexpr (is_float)
            work = x;
        else
            work = work_.Get<float>();
        dequantizer_.Run(work, in, in[tiling_.blocks_a_tile * block_bytes_], blocks);
        in_.FreeTensor(in);
        if constexpr (!is_float) {
            PipeBarrier<PIPE_V>();
            Cast(x, work, RoundMode::CAST_RINT, blocks * MX_BLOCK);
        }
        out_.EnQue(x);
    }

    __aicore__ inline void CopyOut(int64_t block, uint32_t blocks) {
        LocalTensor<T> x = out_.DeQue<T>();
        DataCopyPad(x_[block * MX_BLOCK], x, Bytes(blocks * MX_BLOCK * sizeof(T)));
        out_.FreeTensor(x);
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
    MxDequantizer dequantizer_;
};

extern "C" __global__ __aicore__ void mx_dequantize(GM_ADDR codes, GM_ADDR scales, GM_ADDR x, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(MxTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    MxDequantize<DTYPE>(pipe, codes, scales, x, data).Process();
}
