// y = beta tanh(g / beta) sigmoid(g) linear_beta tanh(u / linear_beta), [g | u] = gate_up. DTYPE: of gate_up and y.
#include "ascend_k3/infinities.h"
#include "situ_glu.h"

using namespace ascend_k3;

template <class T>
class SituGlu {
   public:
    __aicore__ inline SituGlu(TPipe& pipe, GM_ADDR gate_up, GM_ADDR y, const SituTiling& tiling) : tiling_(tiling) {
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y));
        const uint32_t most = tiling.rows_a_tile * input_.Pitch(tiling.columns);
        input_.Init(pipe, gate_up, tiling);
        pipe.InitBuffer(out_, 2, most * sizeof(T));
        activation_.Init(pipe, most, tiling);
    }

    __aicore__ inline void Process() {
        const int64_t first = GetBlockIdx() * tiling_.tiles_a_core;
        const int64_t last = first + tiling_.tiles_a_core < tiling_.tiles ? first + tiling_.tiles_a_core : tiling_.tiles;
        for (int64_t number = first; number < last; ++number) {
            const Tile tile = tile_of(tiling_, number);
            input_.Load(tile);
            Compute(tile.rows * input_.Pitch(tile.columns));
            CopyOut(tile);
        }
    }

   private:
    __aicore__ inline void Compute(uint32_t count) {
        LocalTensor<float> pair = input_.Take(count);
        LocalTensor<T> y = out_.template AllocTensor<T>();
        if constexpr (input_.is_float) {
            activation_.Run(y, pair, count);
        } else {
            activation_.Run(pair, pair, count);
            PipeBarrier<PIPE_V>();
            Cast(y, pair, RoundMode::CAST_RINT, count);
        }
        input_.Free(pair);
        out_.EnQue(y);
    }

    __aicore__ inline void CopyOut(const Tile& tile) {
        LocalTensor<T> y = out_.template DeQue<T>();
        const uint32_t bytes = tile.columns * sizeof(T);
        const DataCopyExtParams rows{static_cast<uint16_t>(tile.rows), bytes, 0, static_cast<int64_t>(tiling_.width * sizeof(T) - bytes), 0};
        DataCopyPad(y_[tile.row * tiling_.width + tile.column], y, rows);
        out_.FreeTensor(y);
    }

    SituTiling tiling_;
    GlobalTensor<T> y_;
    SituInput<T> input_;
    TQue<TPosition::VECOUT, 1> out_;
    SituActivation activation_;
};

extern "C" __global__ __aicore__ void situ_glu(GM_ADDR gate_up, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(SituTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    SituGlu<DTYPE>(pipe, gate_up, y, data).Process();
}
