// Scores of rows and their mixture, as they come: what the three kernels share.
//
// A mixing point keeps the largest score so far, the sum of exp(score - largest) and the mixture with these weights. A group
// of rows raises the largest score, what was mixed before is scaled down to it, and the rows are added; so each row is needed
// once and any number of them can follow. Numbers of a point that scale rows are blocks of 8 equal floats, of which the vector
// instructions make a row by a stride of 0.
#pragma once

#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t LANES = 64;  // floats of a repeat
constexpr uint32_t BLOCK = 8;   // floats of 32 bytes
constexpr float LOWEST = -3.4028234663852886e38f;  // below every score, and of finite distance to it

/// dst = x / divisor, `divisor` a block. The tiling sees to it that a row has less than 256 repeats.
__aicore__ inline void Divide(const LocalTensor<float>& dst, const LocalTensor<float>& x, const LocalTensor<float>& divisor, uint32_t width) {
    const uint32_t whole = width / LANES, rest = width % LANES;
    if (whole > 0) Div(dst, x, divisor, LANES, whole, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
    if (rest > 0) Div(dst[whole * LANES], x[whole * LANES], divisor, rest, 1, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
}

/// dst = x * factor, `factor` a block.
__aicore__ inline void Scale(const LocalTensor<float>& dst, const LocalTensor<float>& x, const LocalTensor<float>& factor, uint32_t width) {
    const uint32_t whole = width / LANES, rest = width % LANES;
    if (whole > 0) Mul(dst, x, factor, LANES, whole, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
    if (rest > 0) Mul(dst[whole * LANES], x[whole * LANES], factor, rest, 1, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
}

/// dst = dst + x * factor, `factor` a block.
__aicore__ inline void AddScaled(const LocalTensor<float>& dst, const LocalTensor<float>& x, const LocalTensor<float>& factor, uint32_t width) {
    const uint32_t whole = width / LANES, rest = width % LANES;
    if (whole > 0) MulAddDst(dst, x, factor, LANES, whole, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
    if (rest > 0) MulAddDst(dst[whole * LANES], x[whole * LANES], factor, rest, 1, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, 0});
}

/// A row of `width` elements through a queue whose buffers have room for it.
template <class T>
__aicore__ inline LocalTensor<T> LoadRow(TQue<TPosition::VECIN, 1>& queue, const GlobalTensor<T>& source, uint32_t width) {
    LocalTensor<T> row = queue.AllocTensor<T>();
    DataCopyPad(row, source, DataCopyExtParams{1, static_cast<uint32_t>(width * sizeof(T)), 0, 0, 0}, DataCopyPadExtParams<T>{});
    queue.EnQue(row);
    return queue.DeQue<T>();
}

/// Mixtures of `points` mixing points over the same rows of T.
template <class T>
class Mixture {
   public:
    static constexpr bool is_float = std::is_same_v<T, float>;

    __aicore__ inline void Init(TPipe& pipe, const MixTiling& tiling) {
        width_ = tiling.width;
        pitch_ = (tiling.width + BLOCK - 1) / BLOCK * BLOCK;
        fold_ = tiling.fold;
        group_ = tiling.group;
        points_ = tiling.points;
        eps_ = tiling.eps;
        if (points_ == 0 && tiling.output_norm == 0) return;
        part_ = ((fold_ + LANES - 1) / LANES + BLOCK - 1) / BLOCK * BLOCK;
        if constexpr (!is_float) pipe.InitBuffer(copies_, group_ * pitch_ * sizeof(float));
        pipe.InitBuffer(folds_, (1 + points_) * fold_ * sizeof(float));
        pipe.InitBuffer(parts_, (1 + points_) * group_ * part_ * sizeof(float));
        pipe.InitBuffer(sums_, (1 + points_) * BLOCK * sizeof(float));
        Duplicate(sums_.Get<float>(), 0.0f, (1 + points_) * BLOCK);  // Brcb takes eight of them, however many rows there are
        if (points_ == 0) return;
        pipe.InitBuffer(queries_, points_ * pitch_ * sizeof(float));
        pipe.InitBuffer(levels_, points_ * LEVELS * sizeof(float));
        pipe.InitBuffer(weights_, points_ * (1 + group_) * BLOCK * sizeof(float));
        pipe.InitBuffer(top_, points_ * BLOCK * sizeof(float));
        pipe.InitBuffer(total_, points_ * BLOCK * sizeof(float));
    }

    /// The query of a point, norm weight * query weight, stays in UB. Both come through `queue`.
    __aicore__ inline void LoadQuery(uint32_t point, TQue<TPosition::VECIN, 1>& queue, const GlobalTensor<T>& norm_weight, const GlobalTensor<T>& query_weight) {
        LocalTensor<float> query = queries_.Get<float>()[point * pitch_];
        LocalTensor<T> factor = LoadRow<T>(queue, norm_weight, width_);
        if constexpr (is_float)
            Muls(query, factor, 1.0f, width_);
        else
            Cast(query, factor, RoundMode::CAST_NONE, width_);
        queue.FreeTensor(factor);
        factor = LoadRow<T>(queue, query_weight, width_);
        LocalTensor<float> other = Float(factor, 0);
        PipeBarrier<PIPE_V>();
        Mul(query, query, other, width_);
        queue.FreeTensor(factor);
        if constexpr (is_float) PipeBarrier<PIPE_V>();  // others have one behind the copy of their first row
    }

    /// A row in float: itself, or its copy number `number`; what follows needs a barrier for that one.
    __aicore__ inline LocalTensor<float> Float(const LocalTensor<T>& row, uint32_t number) {
        if constexpr (is_float) {
            return row;
        } else {
            LocalTensor<float> copy = copies_.template Get<float>()[number * pitch_];
            Cast(copy, row, RoundMode::CAST_NONE, width_);
            return copy;
        }
    }

    /// The state of a point in front of its first row, when rows and not statistics are what comes first.
    __aicore__ inline void Start(uint32_t points) {
        for (uint32_t point = 0; point < points; ++point) Duplicate(Levels(point), LOWEST, BLOCK);
    }

    /// Takes `row` as number `number` of its group: sums of its squares, and of its products with the queries. The row has to
    /// stay until the group is mixed.
    __aicore__ inline void Take(const LocalTensor<float>& row, uint32_t number, uint32_t points) {
        rows_[number] = row;
        SumUp(row, number, points);
    }

    /// Scores of the `rows` rows that were taken, and with them the weights: of what was mixed before, and of each row.
    __aicore__ inline void Weigh(uint32_t rows, uint32_t points) {
        LocalTensor<float> sums = sums_.Get<float>();
        Root(rows, points, eps_);
        for (uint32_t point = 0; point < points; ++point) Div(sums[(1 + point) * BLOCK], sums[(1 + point) * BLOCK], sums, rows);
        PipeBarrier<PIPE_V>();
        for (uint32_t point = 0; point < points; ++point) Brcb(Levels(point)[BLOCK], sums[(1 + point) * BLOCK], 1, {1, BLOCK});
        PipeBarrier<PIPE_V>();
        for (uint32_t point = 0; point < points; ++point) Max(Top(point), Levels(point), Levels(point)[BLOCK], BLOCK);
        for (uint32_t row = 1; row < rows; ++row) {
            PipeBarrier<PIPE_V>();
            for (uint32_t point = 0; point < points; ++point) Max(Top(point), Top(point), Levels(point)[(1 + row) * BLOCK], BLOCK);
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t point = 0; point < points; ++point)
            Sub(Weights(point), Levels(point), Top(point), (1 + rows) * BLOCK, 1, BinaryRepeatParams{1, 1, 0, BLOCK, BLOCK, BLOCK});
        PipeBarrier<PIPE_V>();
        for (uint32_t point = 0; point < points; ++point) {
            Exp(Weights(point), Weights(point), (1 + rows) * BLOCK);
            DataCopy(Levels(point), Top(point), BLOCK);
        }
    }

    /// What was mixed before is scaled down to the new largest score; that of point p is in `mixture[p * Pitch()]`.
    __aicore__ inline void Lower(const LocalTensor<float>& mixture, uint32_t points) {
        PipeBarrier<PIPE_V>();
        for (uint32_t point = 0; point < points; ++point) {
            LocalTensor<float> mixed = mixture[point * pitch_];
            Scale(mixed, mixed, Weights(point), width_);
            Mul(Total(point), Total(point), Weights(point), BLOCK);
        }
    }

    /// Adds row `number` as it was weighed; the first of all rows begins the mixture.
    __aicore__ inline void AddRow(const LocalTensor<float>& mixture, uint32_t number, uint32_t points, bool first) {
        PipeBarrier<PIPE_V>();
        for (uint32_t point = 0; point < points; ++point) {
            LocalTensor<float> mixed = mixture[point * pitch_];
            LocalTensor<float> weight = Weights(point)[(1 + number) * BLOCK];
            if (first) {
                Scale(mixed, rows_[number], weight, width_);
                DataCopy(Total(point), weight, BLOCK);
            } else {
                AddScaled(mixed, rows_[number], weight, width_);
                Add(Total(point), Total(point), weight, BLOCK);
            }
        }
    }

    /// scale = sqrt(mean(row^2) + eps) as 8 blocks, of which the first is meant. The row is complete.
    __aicore__ inline void RootMeanSquare(const LocalTensor<float>& scale, const LocalTensor<float>& row, float eps) {
        SumUp(row, 0, 0);
        Root(1, 0, eps);
        Brcb(scale, sums_.Get<float>(), 1, {1, BLOCK});
    }

    /// The largest score so far, after Weigh or from earlier statistics; and the sum of the weights.
    __aicore__ inline LocalTensor<float> Levels(uint32_t point) { return levels_.Get<float>()[point * LEVELS]; }
    __aicore__ inline LocalTensor<float> Total(uint32_t point) { return total_.Get<float>()[point * BLOCK]; }
    __aicore__ inline uint32_t Pitch() const { return pitch_; }

   private:
    static constexpr uint32_t LEVELS = 9 * BLOCK;  // the largest score before the group, and the scores of up to 8 rows

    __aicore__ inline LocalTensor<float> Weights(uint32_t point) { return weights_.Get<float>()[point * (1 + group_) * BLOCK]; }
    __aicore__ inline LocalTensor<float> Top(uint32_t point) { return top_.Get<float>()[point * BLOCK]; }

    /// The products are folded into `fold` floats, whose repeats are added up into parts of row `number`.
    __aicore__ inline void SumUp(const LocalTensor<float>& row, uint32_t number, uint32_t points) {
        LocalTensor<float> folds = folds_.Get<float>();
        LocalTensor<float> queries = queries_.Get<float>();
        const uint32_t count = width_ < fold_ ? width_ : fold_;
        Mul(folds, row, row, count);
        for (uint32_t point = 0; point < points; ++point) Mul(folds[(1 + point) * fold_], row, queries[point * pitch_], count);
        for (uint32_t first = fold_; first < width_; first += fold_) {
            const uint32_t next = width_ - first < fold_ ? width_ - first : fold_;
            PipeBarrier<PIPE_V>();
            MulAddDst(folds, row[first], row[first], next);
            for (uint32_t point = 0; point < points; ++point) MulAddDst(folds[(1 + point) * fold_], row[first], queries[point * pitch_ + first], next);
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t sum = 0; sum <= points; ++sum) AddRepeats(parts_.Get<float>()[(sum * group_ + number) * part_], folds[sum * fold_], count);
    }

    /// Sums of 64 neighbours each.
    __aicore__ inline void AddRepeats(const LocalTensor<float>& out, const LocalTensor<float>& in, uint32_t count) {
        const uint32_t whole = count / LANES, rest = count % LANES;
        if (whole > 0) WholeReduceSum(out, in, LANES, whole, 1, 1, BLOCK);
        if (rest > 0) WholeReduceSum(out[whole], in[whole * LANES], rest, 1, 1, 1, BLOCK);
    }

    /// The sums of the rows from their parts; those of the squares become sqrt(mean + eps).
    __aicore__ inline void Root(uint32_t rows, uint32_t points, float eps) {
        LocalTensor<float> sums = sums_.Get<float>();
        const uint32_t count = width_ < fold_ ? width_ : fold_;
        PipeBarrier<PIPE_V>();
        for (uint32_t sum = 0; sum <= points; ++sum)
            WholeReduceSum(sums[sum * BLOCK], parts_.Get<float>()[sum * group_ * part_], (count + LANES - 1) / LANES, rows, 1, 1, part_ / BLOCK);
        PipeBarrier<PIPE_V>();
        Muls(sums, sums, 1.0f / static_cast<float>(width_), rows);
        PipeBarrier<PIPE_V>();
        Adds(sums, sums, eps, rows);
        PipeBarrier<PIPE_V>();
        Sqrt(sums, sums, rows);
        PipeBarrier<PIPE_V>();
    }

    TBuf<TPosition::VECCALC> copies_, folds_, parts_, sums_, queries_, levels_, weights_, top_, total_;
    LocalTensor<float> rows_[MOST_ROWS];
    uint32_t width_ = 0, pitch_ = 0, fold_ = 0, part_ = 0, group_ = 0, points_ = 0;
    float eps_ = 0;
};

}  // namespace ascend_k3
