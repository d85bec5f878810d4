// What both kernels share: the tiles of a core, and the activation of a tile in UB.
#pragma once

#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

/// beta tanh(g / beta) sigmoid(g) linear_beta tanh(u / linear_beta) of floats.
///
/// tanh(z) = m / (m + 2) with m = e^(2z) - 1. With E = e^(2z) as it comes out, m = (E - 1) + E (2z - ln E): the second term
/// is what the rounding of E has lost, so that m has its full precision near 0 too (the sign of zero is lost: -0 gives 0).
class SituActivation {
   public:
    __aicore__ inline void Init(TPipe& pipe, uint32_t most, const SituTiling& tiling) {
        to_gate_ = tiling.to_gate, to_up_ = tiling.to_up, product_ = tiling.product, bounded_ = tiling.bounded != 0;
        pipe.InitBuffer(exponential_, 2 * most * sizeof(float));
        pipe.InitBuffer(logarithm_, 2 * most * sizeof(float));
        pipe.InitBuffer(opening_, most * sizeof(float));
    }

    /// y of `count` gates in `pair` and as many ups behind them, which are destroyed; y may begin where pair does. What was
    /// written to pair before is complete; what reads y needs a barrier or a queue.
    __aicore__ inline void Run(const LocalTensor<float>& y, const LocalTensor<float>& pair, uint32_t count) {
        constexpr float one = 20.0f;  // tanh(20 / 2) rounds to 1
        const uint32_t both = bounded_ ? 2 * count : count;  // without linear_beta the ups stay as they are
        LocalTensor<float> up = pair[count];
        LocalTensor<float> opening = opening_.Get<float>(), exponential = exponential_.Get<float>(), logarithm = logarithm_.Get<float>();
        Muls(opening, pair, -1.0f, count);
        Muls(pair, pair, to_gate_, count);
        if (bounded_) Muls(up, up, to_up_, count);
        PipeBarrier<PIPE_V>();
        Exp(opening, opening, count);
        Mins(pair, pair, one, both);
        PipeBarrier<PIPE_V>();
        Adds(opening, opening, 1.0f, count);  // 1 / sigmoid(g)
        Maxs(pair, pair, -one, both);
        PipeBarrier<PIPE_V>();
        Exp(exponential, pair, both);
        PipeBarrier<PIPE_V>();
        Ln(logarithm, exponential, both);
        PipeBarrier<PIPE_V>();
        Sub(pair, pair, logarithm, both);
        PipeBarrier<PIPE_V>();
        Mul(pair, pair, exponential, both);
        Adds(exponential, exponential, -1.0f, both);
        PipeBarrier<PIPE_V>();
        Add(pair, pair, exponential, both);
        PipeBarrier<PIPE_V>();
        Adds(logarithm, pair, 2.0f, both);
        PipeBarrier<PIPE_V>();
        Mul(logarithm, logarithm, opening, count);
        PipeBarrier<PIPE_V>();
        Div(pair, pair, logarithm, both);
        PipeBarrier<PIPE_V>();
        Mul(y, pair, up, count);
        PipeBarrier<PIPE_V>();
        Muls(y, y, product_, count);
    }

   private:
    TBuf<TPosition::VECCALC> exponential_, logarithm_, opening_;
    float to_gate_ = 0, to_up_ = 0, product_ = 0;
    bool bounded_ = false;
};

/// A part of the output: `rows` rows of `columns`, from `row` and `column` on.
struct Tile {
    int64_t row, column;
    uint32_t rows, columns;
};

/// Tile `number` of the output.
__aicore__ inline Tile tile_of(const SituTiling& tiling, int64_t number) {
    Tile tile;
    tile.row = number / tiling.tiles_a_row * tiling.rows_a_tile;
    tile.column = number % tiling.tiles_a_row * tiling.columns;
    const int64_t rows = tiling.rows - tile.row, columns = tiling.width - tile.column;
    tile.rows = rows < tiling.rows_a_tile ? static_cast<uint32_t>(rows) : tiling.rows_a_tile;
    tile.columns = columns < tiling.columns ? static_cast<uint32_t>(columns) : tiling.columns;
    return tile;
}

/// Gates and ups of tiles, from global memory to UB in float. T: their type there.
template <class T>
class SituInput {
   public:
    __aicore__ inline void Init(TPipe& pipe, GM_ADDR gate_up, const SituTiling& tiling) {
        width_ = tiling.width;
        gate_up_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gate_up));
        const uint32_t most = tiling.rows_a_tile * Pitch(tiling.columns);
        pipe.InitBuffer(in_, 2, 2 * most * sizeof(T));
        if constexpr (!is_float) pipe.InitBuffer(work_, 2 * most * sizeof(float));
    }

    /// Elements from row to row of a tile in UB: rows begin at 32 bytes.
    static __aicore__ inline uint32_t Pitch(uint32_t columns) {
        constexpr uint32_t block = 32 / sizeof(T);
        return (columns + block - 1) / block * block;
    }

    __aicore__ inline void Load(const Tile& tile) {
        LocalTensor<T> in = in_.template AllocTensor<T>();
        const uint32_t bytes = tile.columns * sizeof(T);
        const DataCopyExtParams rows{static_cast<uint16_t>(tile.rows), bytes, static_cast<int64_t>(2 * width_ * sizeof(T) - bytes), 0, 0};
        const int64_t gate = tile.row * 2 * width_ + tile.column;
        DataCopyPad(in, gate_up_[gate], rows, DataCopyPadExtParams<T>{});
        DataCopyPad(in[tile.rows * Pitch(tile.columns)], gate_up_[gate + width_], rows, DataCopyPadExtParams<T>{});
        in_.EnQue(in);
    }

    /// `count` gates and as many ups behind them, complete. To be freed.
    __aicore__ inline LocalTensor<float> Take(uint32_t count) {
        LocalTensor<T> in = in_.template DeQue<T>();
        if constexpr (is_float) {
            return in;
        } else {
            LocalTensor<float> pair = work_.Get<float>();
            Cast(pair, in, RoundMode::CAST_NONE, 2 * count);
            in_.FreeTensor(in);
            PipeBarrier<PIPE_V>();
            return pair;
        }
    }

    __aicore__ inline void Free(LocalTensor<float>& pair) {
        if constexpr (is_float) in_.FreeTensor(pair);
    }

    static constexpr bool is_float = std::is_same_v<T, float>;

   private:
    GlobalTensor<T> gate_up_;
    TQue<TPosition::VECIN, 1> in_;
    TBuf<TPosition::VECCALC> work_;
    int64_t width_ = 0;
};

}  // namespace ascend_k3
