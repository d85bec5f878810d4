// situ_glu, rounded to its dtype, and that in blocks of 32: codes and scales only leave the core. DTYPE: of gate_up.
#include "../../mx/kernel/quantize.h"
#include "ascend_k3/infinities.h"
#include "situ_glu.h"

using namespace ascend_k3;

template <class T>
class SituGluMxQuantize {
   public:
    __aicore__ inline SituGluMxQuantize(TPipe& pipe, GM_ADDR gate_up, GM_ADDR codes, GM_ADDR scales, const SituTiling& tiling) : tiling_(tiling) {
        const MxFormat format = mx_format(tiling.format);
        block_bytes_ = format.BlockBytes();
        codes_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(codes));
        scales_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(scales));
        const uint32_t most = tiling.rows_a_tile * tiling.columns;
        blocks_a_tile_ = (most / MX_BLOCK + 7) / 8 * 8;
        input_.Init(pipe, gate_up, tiling);
        pipe.InitBuffer(out_, 2, blocks_a_tile_ * (block_bytes_ + 1));
        activation_.Init(pipe, most, tiling);
        quantizer_.Init(pipe, format, blocks_a_tile_, tiling.carry);
    }

    __aicore__ inline void Process() {
        const int64_t first = GetBlockIdx() * tiling_.tiles_a_core;
        const int64_t last = first + tiling_.tiles_a_core < tiling_.tiles ? first + tiling_.tiles_a_core : tiling_.tiles;
        for (int64_t number = first; number < last; ++number) {
            const Tile tile = tile_of(tiling_, number);
            input_.Load(tile);
            Compute(tile.rows * tile.columns);
            CopyOut(tile);
        }
    }

   private:
    __aicore__ inline void Compute(uint32_t count) {
        LocalTensor<float> pair = input_.Take(count);
        LocalTensor<uint8_t> out = out_.template AllocTensor<uint8_t>();
        activation_.Run(pair, pair, count);
        PipeBarrier<PIPE_V>();
        LocalTensor<float> y = pair;
        if constexpr (!input_.is_float) {  // rounded to the dtype of y; in float again where the ups were
            LocalTensor<T> narrow = pair.template ReinterpretCast<T>();
            Cast(narrow, pair, RoundMode::CAST_RINT, count);
            PipeBarrier<PIPE_V>();
            y = pair[count];
            Cast(y, narrow, RoundMode::CAST_NONE, count);
            PipeBarrier<PIPE_V>();
        }
        quantizer_.Run(y, out, out[blocks_a_tile_ * block_bytes_], count / MX_BLOCK);
        input_.Free(pair);
        out_.EnQue(out);
    }

    /// A tile is whole rows or a part of one, so that its numbers follow one another.
    __aicore__ inline void CopyOut(const Tile& tile) {
        LocalTensor<uint8_t> out = out_.template DeQue<uint8_t>();
        const int64_t block = (tile.row * tiling_.width + tile.column) / MX_BLOCK;
        const uint32_t blocks = tile.rows * tile.columns / MX_BLOCK;
        DataCopyPad(codes_[block * block_bytes_], out, DataCopyExtParams{1, blocks * block_bytes_, 0, 0, 0});
        DataCopyPad(scales_[block], out[blocks_a_tile_ * block_bytes_], DataCopyExtParams{1, blocks, 0, 0, 0});
        out_.FreeTensor(out);
    }

    SituTiling tiling_;
    uint32_t blocks_a_tile_ = 0, block_bytes_ = 0;
    GlobalTensor<uint8_t> codes_, scales_;
    SituInput<T> input_;
    TQue<TPosition::VECOUT, 1> out_;
    SituActivation activation_;
    MxQuantizer quantizer_;
};

extern "C" __global__ __aicore__ void situ_glu_mx_quantize(GM_ADDR gate_up, GM_ADDR codes, GM_ADDR scales, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(SituTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    SituGluMxQuantize<DTYPE>(pipe, gate_up, codes, scales, data).Process();
}
