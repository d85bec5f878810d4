// What both norms share: x / sqrt(mean(x^2) + eps) for a tile of rows in UB, and the weight.
#pragma once

#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t LANES = 64;  // floats of a repeat
constexpr uint32_t BLOCK = 8;   // floats of 32 bytes

/// Normalizes rows of float in place. `pitch` floats from row to row, `width` of them counted.
class RowNorm {
   public:
    __aicore__ inline void Init(TPipe& pipe, const NormTiling& tiling) {
        width_ = tiling.width;
        pitch_ = tiling.pitch;
        eps_ = tiling.eps;
        short_ = tiling.width <= SHORT_ROW;
        const uint32_t rows = (tiling.rows_a_tile + BLOCK - 1) / BLOCK * BLOCK;
        pipe.InitBuffer(squares_, (short_ ? tiling.rows_a_tile * LANES : tiling.pitch) * sizeof(float));
        if (!short_) pipe.InitBuffer(partial_, (tiling.pitch + LANES - 1) / LANES * sizeof(float));
        pipe.InitBuffer(sums_, rows * sizeof(float));
        pipe.InitBuffer(scales_, rows * BLOCK * sizeof(float));
        Duplicate(sums_.Get<float>(), 0.0f, rows);  // Brcb takes sums by eight, also beyond the last row
    }

    /// x = x / sqrt(mean(x^2) + eps) for `rows` rows. What was written to x before is complete; what follows needs a barrier.
    __aicore__ inline void Normalize(const LocalTensor<float>& x, uint32_t rows) {
        LocalTensor<float> sums = sums_.Get<float>();
        LocalTensor<float> scales = scales_.Get<float>();
        if (short_)
            SumShort(sums, x, rows);
        else
            for (uint32_t row = 0; row < rows; ++row) SumLong(sums, row, x[row * pitch_]);
        PipeBarrier<PIPE_V>();
        Muls(sums, sums, 1.0f / static_cast<float>(width_), rows);
        PipeBarrier<PIPE_V>();
        Adds(sums, sums, eps_, rows);
        PipeBarrier<PIPE_V>();
        Sqrt(sums, sums, rows);
        PipeBarrier<PIPE_V>();
        Brcb(scales, sums, (rows + BLOCK - 1) / BLOCK, {1, BLOCK});
        PipeBarrier<PIPE_V>();
        Divide(x, scales, rows);
    }

    /// y = y * row for `rows` rows, `row` of `width` floats.
    __aicore__ inline void ScaleColumns(const LocalTensor<float>& y, const LocalTensor<float>& row, uint32_t rows) {
        if (short_) {
            const uint8_t step = static_cast<uint8_t>(pitch_ / BLOCK);
            for (uint32_t first = 0; first < width_; first += LANES)
                Mul(y[first], y[first], row[first], Count(first), rows, BinaryRepeatParams{1, 1, 1, step, step, 0});
        } else {
            for (uint32_t i = 0; i < rows; ++i) Mul(y[i * pitch_], y[i * pitch_], row, width_);
        }
    }

   private:
    __aicore__ inline uint64_t Count(uint32_t first) const { return width_ - first < LANES ? width_ - first : LANES; }

    /// Short rows: squares are added up lane by lane, then the 64 lanes of each row.
    __aicore__ inline void SumShort(const LocalTensor<float>& sums, const LocalTensor<float>& x, uint32_t rows) {
        LocalTensor<float> squares = squares_.Get<float>();
        Duplicate(squares, 0.0f, rows * LANES);
        const uint8_t step = static_cast<uint8_t>(pitch_ / BLOCK);
        for (uint32_t first = 0; first < width_; first += LANES) {
            PipeBarrier<PIPE_V>();
            MulAddDst(squares, x[first], x[first], Count(first), rows, BinaryRepeatParams{1, 1, 1, BLOCK, step, step});
        }
        PipeBarrier<PIPE_V>();
        WholeReduceSum(sums, squares, LANES, rows, 1, 1, BLOCK);
    }

    /// One long row: 64 lanes to one, until one is left.
    __aicore__ inline void SumLong(const LocalTensor<float>& sums, uint32_t row, const LocalTensor<float>& x) {
        LocalTensor<float> squares = squares_.Get<float>();
        LocalTensor<float> partial = partial_.Get<float>();
        Mul(squares, x, x, width_);
        PipeBarrier<PIPE_V>();
        const uint32_t left = Reduce(partial, squares, width_);
        PipeBarrier<PIPE_V>();
        const uint32_t last = Reduce(squares, partial, left);
        PipeBarrier<PIPE_V>();
        WholeReduceSum(sums[row], squares, last, 1, 1, 1, BLOCK);
    }

    /// Sums of 64 neighbours each; how many there are.
    __aicore__ inline uint32_t Reduce(const LocalTensor<float>& out, const LocalTensor<float>& in, uint32_t count) {
        const uint32_t whole = count / LANES, rest = count % LANES;
        if (whole > 0) WholeReduceSum(out, in, LANES, whole, 1, 1, BLOCK);
        if (rest > 0) WholeReduceSum(out[whole], in[whole * LANES], rest, 1, 1, 1, BLOCK);
        return whole + (rest > 0 ? 1 : 0);
    }

    /// x = x / scale of its row; `scales` holds each row's scale eight times.
    __aicore__ inline void Divide(const LocalTensor<float>& x, const LocalTensor<float>& scales, uint32_t rows) {
        if (short_) {
            const uint8_t step = static_cast<uint8_t>(pitch_ / BLOCK);
            for (uint32_t first = 0; first < width_; first += LANES)
                Div(x[first], x[first], scales, Count(first), rows, BinaryRepeatParams{1, 1, 0, step, step, 1});
            return;
        }
        const uint32_t whole = width_ / LANES, rest = width_ % LANES;
        for (uint32_t row = 0; row < rows; ++row) {
            LocalTensor<float> y = x[row * pitch_];
            if (whole > 0) Div(y, y, scales[row * BLOCK], LANES, whole, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
            if (rest > 0) Div(y[whole * LANES], y[whole * LANES], scales[row * BLOCK], rest, 1, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
        }
    }

    TBuf<TPosition::VECCALC> squares_, partial_, sums_, scales_;
    uint32_t width_ = 0, pitch_ = 0;
    float eps_ = 0;
    bool short_ = false;
};

/// A row of `width` elements that stays in UB, in float: the weight of a norm.
template <class T>
class WeightRow {
   public:
    __aicore__ inline void Init(TPipe& pipe, const NormTiling& tiling) {
        width_ = tiling.width;
        pipe.InitBuffer(row_, tiling.pitch * sizeof(T));
        if constexpr (!std::is_same_v<T, float>) pipe.InitBuffer(row_float_, tiling.pitch * sizeof(float));
    }

    /// What is on the vector pipe after it needs a barrier before the row.
    __aicore__ inline LocalTensor<float> Load(const GlobalTensor<T>& weight) {
        LocalTensor<T> row = row_.template Get<T>();
        DataCopyPad(row, weight, DataCopyExtParams{1, static_cast<uint32_t>(width_ * sizeof(T)), 0, 0, 0}, DataCopyPadExtParams<T>{});
        const TEventID loaded = GetTPipePtr()->AllocEventID<HardEvent::MTE2_V>();
        SetFlag<HardEvent::MTE2_V>(loaded);
        WaitFlag<HardEvent::MTE2_V>(loaded);
        GetTPipePtr()->ReleaseEventID<HardEvent::MTE2_V>(loaded);
        if constexpr (std::is_same_v<T, float>) {
            return row;
        } else {
            LocalTensor<float> row_float = row_float_.template Get<float>();
            Cast(row_float, row, RoundMode::CAST_NONE, width_);
            return row_float;
        }
    }

   private:
    TBuf<TPosition::VECCALC> row_, row_float_;
    uint32_t width_ = 0;
};

}  // namespace ascend_k3
