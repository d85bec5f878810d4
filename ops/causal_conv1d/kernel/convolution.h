// What both kernels share: the taps of a block of channels, windows to rows and back, the sum over the taps.
//
// In global memory the weights and windows of a channel lie together, [C, W] and [C, W-1]; a tile in UB has rows of channels,
// one for each input. Gather turns the one into the other.
#pragma once

#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t LANES = 64;  // floats of a repeat
constexpr uint32_t BLOCK = 8;   // floats of 32 bytes

template <class T, class Weight>
class Convolution {
   public:
    /// `step`: rows of a tile from the input of one tap to that of the next.
    __aicore__ inline void Init(TPipe& pipe, GM_ADDR weight, const ConvTiling& tiling, uint32_t step) {
        tiling_ = tiling;
        step_ = step;
        weight_.SetGlobalBuffer(reinterpret_cast<__gm__ Weight*>(weight));
        const uint32_t pitch = Widest(tiling);
        pipe.InitBuffer(in_, 1, pitch * tiling.taps * sizeof(Weight));
        pipe.InitBuffer(taps_, pitch * tiling.taps * sizeof(float));
        if constexpr (!weight_is_float) pipe.InitBuffer(rows_, pitch * tiling.taps * sizeof(Weight));
        pipe.InitBuffer(channel_, pitch * sizeof(int32_t));
        pipe.InitBuffer(tap_offsets_, pitch * sizeof(int32_t));
        pipe.InitBuffer(column_offsets_, pitch * sizeof(int32_t));
        pipe.InitBuffer(place_, pitch * History() * sizeof(int32_t));
        pipe.InitBuffer(window_offsets_, pitch * History() * sizeof(int32_t));
    }

    /// Takes channels [first, first + width): loads their taps and builds the tables of offsets.
    __aicore__ inline void Begin(int64_t first, uint32_t width) {
        width_ = width;
        pitch_ = Pitch(width);
        LocalTensor<Weight> weight = in_.template AllocTensor<Weight>();
        DataCopyPad(weight, weight_[first * tiling_.taps], DataCopyExtParams{1, static_cast<uint32_t>(width * tiling_.taps * sizeof(Weight)), 0, 0, 0}, DataCopyPadExtParams<Weight>{});
        in_.EnQue(weight);
        MakeOffsets();
        weight = in_.template DeQue<Weight>();
        LocalTensor<Weight> rows;
        if constexpr (weight_is_float)
            rows = taps_.template Get<float>();
        else
            rows = rows_.template Get<Weight>();
        for (uint32_t tap = 0; tap < tiling_.taps; ++tap)
            Gather(rows[tap * pitch_], weight, tap_offsets_.template Get<uint32_t>(), tap * sizeof(Weight), pitch_);
        in_.FreeTensor(weight);
        if constexpr (!weight_is_float) {
            PipeBarrier<PIPE_V>();
            Cast(taps_.template Get<float>(), rows, RoundMode::CAST_NONE, tiling_.taps * pitch_);
        }
        PipeBarrier<PIPE_V>();
    }

    /// Lanes of the widest row that a job may have.
    __aicore__ inline static uint32_t Widest(const ConvTiling& tiling) {
        return Pitch(tiling.block < tiling.channels ? tiling.block : static_cast<uint32_t>(tiling.channels));
    }
    /// Lanes of a row: channels up to a whole block of 32 bytes.
    __aicore__ inline uint32_t Pitch() const { return pitch_; }
    __aicore__ inline uint32_t Width() const { return width_; }
    __aicore__ inline uint32_t History() const { return tiling_.taps - 1; }

    /// row = input `column` of a window [width, W-1].
    __aicore__ inline void WindowToRow(const LocalTensor<T>& row, const LocalTensor<T>& window, uint32_t column) {
        Gather(row, window, column_offsets_.template Get<uint32_t>(), column * sizeof(T), pitch_);
    }

    /// window [width, W-1] = the W-1 rows that begin at `rows`, `step` rows from one to the next.
    __aicore__ inline void RowsToWindow(const LocalTensor<T>& window, const LocalTensor<T>& rows) {
        Gather(window, rows, window_offsets_.template Get<uint32_t>(), 0u, width_ * History());
    }

    /// y = sum of tap j * x[row + j * step], then SiLU. `work` is overwritten; it may be x.
    __aicore__ inline void Convolve(const LocalTensor<float>& y, const LocalTensor<float>& x, const LocalTensor<float>& work, uint32_t rows) {
        LocalTensor<float> taps = taps_.template Get<float>();
        const uint8_t blocks = static_cast<uint8_t>(pitch_ / BLOCK);
        const BinaryRepeatParams strides{1, 1, 1, blocks, blocks, 0};
        for (uint32_t tap = 0; tap < tiling_.taps; ++tap) {
            if (tap > 0) PipeBarrier<PIPE_V>();
            for (uint32_t lane = 0; lane < pitch_; lane += LANES) {
                const uint64_t count = pitch_ - lane < LANES ? pitch_ - lane : LANES;
                if (tap == 0)
                    Mul(y[lane], x[lane], taps[lane], count, rows, strides);
                else
                    MulAddDst(y[lane], x[tap * step_ * pitch_ + lane], taps[tap * pitch_ + lane], count, rows, strides);
            }
        }
        if (tiling_.silu == 0) return;
        const uint32_t count = rows * pitch_;
        PipeBarrier<PIPE_V>();
        Muls(work, y, -1.0f, count);
        PipeBarrier<PIPE_V>();
        Exp(work, work, count);
        PipeBarrier<PIPE_V>();
        Adds(work, work, 1.0f, count);
        PipeBarrier<PIPE_V>();
        Div(y, y, work, count);
    }

   private:
    __aicore__ inline static uint32_t Pitch(uint32_t width) {
        constexpr uint32_t block = 32 / sizeof(T);
        return (width + block - 1) / block * block;
    }

    /// tap_offsets, column_offsets: of channel i in [C, W] and [C, W-1]; lanes behind the last channel repeat it.
    /// window_offsets: of place i = channel * (W-1) + column in rows of channels.
    __aicore__ inline void MakeOffsets() {
        LocalTensor<int32_t> channel = channel_.template Get<int32_t>();
        LocalTensor<int32_t> place = place_.template Get<int32_t>();
        LocalTensor<int32_t> offsets = window_offsets_.template Get<int32_t>();
        const int32_t history = static_cast<int32_t>(History()), count = static_cast<int32_t>(width_) * history;
        const int32_t row = static_cast<int32_t>(step_ * pitch_ * sizeof(T)), size = sizeof(T);
        CreateVecIndex(channel, 0, pitch_);
        CreateVecIndex(place, 0, count);
        CreateVecIndex(offsets.template ReinterpretCast<float>(), 0.5f, count);
        PipeBarrier<PIPE_V>();
        Mins(channel, channel, static_cast<int32_t>(width_ - 1), pitch_);
        Muls(place, place, row, count);
        Muls(offsets.template ReinterpretCast<float>(), offsets.template ReinterpretCast<float>(), 1.0f / static_cast<float>(history), count);
        PipeBarrier<PIPE_V>();
        Muls(tap_offsets_.template Get<int32_t>(), channel, static_cast<int32_t>(tiling_.taps * sizeof(Weight)), pitch_);
        Muls(column_offsets_.template Get<int32_t>(), channel, history * size, pitch_);
        Cast(offsets, offsets.template ReinterpretCast<float>(), RoundMode::CAST_FLOOR, count);
        PipeBarrier<PIPE_V>();
        Muls(offsets, offsets, size - history * row, count);
        PipeBarrier<PIPE_V>();
        Add(offsets, offsets, place, count);
    }

    static constexpr bool weight_is_float = std::is_same_v<Weight, float>;
    ConvTiling tiling_;
    GlobalTensor<Weight> weight_;
    TQue<TPosition::VECIN, 1> in_;
    TBuf<TPosition::VECCALC> taps_, rows_, channel_, tap_offsets_, column_offsets_, place_, window_offsets_;
    uint32_t width_ = 0, pitch_ = 0, step_ = 1;
};

}  // namespace ascend_k3
