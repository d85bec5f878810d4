// y_n = silu(sum_j weight[c, j] input_j) for one token a sequence, the inputs being those of its slot's window and x_n; the
// window moves on by x_n in place. DTYPE: of x, the windows and y. WEIGHT: of the weight.
//
// A tile has several sequences: their inputs before x as rows of channels, input by input, then x. A row of slot -1 counts as
// zeros before it and gives zeros.
#include "convolution.h"

using namespace ascend_k3;

constexpr uint32_t MOST_ROWS = 32;  // of a tile

template <class T, class Weight>
class CausalConv1dUpdate {
   public:
    __aicore__ inline CausalConv1dUpdate(TPipe& pipe, GM_ADDR x, GM_ADDR weight, GM_ADDR slots, GM_ADDR windows, GM_ADDR y, const ConvTiling& tiling)
        : tiling_(tiling) {
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
        slots_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(slots));
        windows_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(windows));
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y));
        convolution_.Init(pipe, weight, tiling, tiling.rows_a_tile);
        history_ = convolution_.History();
        const uint32_t row = tiling.rows_a_tile * convolution_.Widest(tiling);
        pipe.InitBuffer(in_, 2, (tiling.taps + history_) * row * sizeof(T));
        pipe.InitBuffer(out_, 2, tiling.taps * row * sizeof(T));
        if constexpr (!is_float) {
            pipe.InitBuffer(x_float_, tiling.taps * row * sizeof(float));
            pipe.InitBuffer(y_float_, row * sizeof(float));
        }
    }

    __aicore__ inline void Process() {
        for (uint32_t job = GetBlockIdx(); job < tiling_.jobs; job += GetBlockNum()) {
            channel_ = static_cast<int64_t>(job / tiling_.parts) * tiling_.block;
            const int64_t left = tiling_.channels - channel_;
            convolution_.Begin(channel_, left < tiling_.block ? static_cast<uint32_t>(left) : tiling_.block);
            const int64_t first = static_cast<int64_t>(job % tiling_.parts) * tiling_.rows_a_part;
            const int64_t last = first + tiling_.rows_a_part < tiling_.rows ? first + tiling_.rows_a_part : tiling_.rows;
            for (int64_t row = first; row < last; row += tiling_.rows_a_tile) {
                const uint32_t rows = last - row < tiling_.rows_a_tile ? static_cast<uint32_t>(last - row) : tiling_.rows_a_tile;
                padded_ = false;
                for (uint32_t i = 0; i < rows; ++i) {
                    slot_[i] = slots_.GetValue(row + i);
                    padded_ = padded_ || slot_[i] < 0;
                }
                CopyIn(row, rows);
                Compute(rows);
                CopyOut(row, rows);
            }
        }
    }

   private:
    __aicore__ inline uint32_t Pitch() const { return convolution_.Pitch(); }
    __aicore__ inline uint32_t Step() const { return tiling_.rows_a_tile * Pitch(); }
    __aicore__ inline DataCopyExtParams Window() const { return DataCopyExtParams{1, static_cast<uint32_t>(convolution_.Width() * history_ * sizeof(T)), 0, 0, 0}; }
    __aicore__ inline int64_t WindowAt(uint32_t row) const { return (slot_[row] * tiling_.channels + channel_) * history_; }
    __aicore__ inline LocalTensor<T> WindowIn(const LocalTensor<T>& in, uint32_t row) const { return in[tiling_.taps * Step() + row * history_ * Pitch()]; }
    __aicore__ inline LocalTensor<T> WindowOut(const LocalTensor<T>& out, uint32_t row) const { return out[Step() + row * history_ * Pitch()]; }

    __aicore__ inline void CopyIn(int64_t first, uint32_t rows) {
        LocalTensor<T> in = in_.template AllocTensor<T>();
        const uint32_t bytes = convolution_.Width() * sizeof(T);
        DataCopyPad(in[history_ * Step()], x_[first * tiling_.channels + channel_],
                    DataCopyExtParams{static_cast<uint16_t>(rows), bytes, static_cast<int64_t>(tiling_.channels * sizeof(T) - bytes), 0, 0}, DataCopyPadExtParams<T>{});
        for (uint32_t row = 0; row < rows; ++row)
            if (slot_[row] >= 0) DataCopyPad(WindowIn(in, row), windows_[WindowAt(row)], Window(), DataCopyPadExtParams<T>{});
        in_.EnQue(in);
    }

    __aicore__ inline void Compute(uint32_t rows) {
        LocalTensor<T> in = in_.template DeQue<T>();
        LocalTensor<T> out = out_.template AllocTensor<T>();
        for (uint32_t row = 0; row < rows; ++row)
            for (uint32_t column = 0; column < history_; ++column) {
                LocalTensor<T> to = in[column * Step() + row * Pitch()];
                if (slot_[row] >= 0)
                    convolution_.WindowToRow(to, WindowIn(in, row), column);
                else
                    Duplicate(to, T(0.0f), Pitch());
            }
        PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < rows; ++row)
            if (slot_[row] >= 0) convolution_.RowsToWindow(WindowOut(out, row), in[Step() + row * Pitch()]);
        LocalTensor<float> y;
        if constexpr (is_float) {
            y = out;
            convolution_.Convolve(y, in, in, rows);
        } else {
            LocalTensor<float> x = x_float_.template Get<float>();
            y = y_float_.template Get<float>();
            for (uint32_t tap = 0; tap < tiling_.taps; ++tap) Cast(x[tap * Step()], in[tap * Step()], RoundMode::CAST_NONE, rows * Pitch());
            PipeBarrier<PIPE_V>();
            convolution_.Convolve(y, x, x, rows);
        }
        in_.FreeTensor(in);
        if (padded_) {
            PipeBarrier<PIPE_V>();
            for (uint32_t row = 0; row < rows; ++row)
                if (slot_[row] < 0) Duplicate(y[row * Pitch()], 0.0f, Pitch());
        }
        if constexpr (!is_float) {
            PipeBarrier<PIPE_V>();
            Cast(out, y, RoundMode::CAST_RINT, rows * Pitch());
        }
        out_.EnQue(out);
    }

    __aicore__ inline void CopyOut(int64_t first, uint32_t rows) {
        LocalTensor<T> out = out_.template DeQue<T>();
        const uint32_t bytes = convolution_.Width() * sizeof(T);
        DataCopyPad(y_[first * tiling_.channels + channel_], out,
                    DataCopyExtParams{static_cast<uint16_t>(rows), bytes, 0, static_cast<int64_t>(tiling_.channels * sizeof(T) - bytes), 0});
        for (uint32_t row = 0; row < rows; ++row)
            if (slot_[row] >= 0) DataCopyPad(windows_[WindowAt(row)], WindowOut(out, row), Window());
        out_.FreeTensor(out);
    }

    static constexpr bool is_float = std::is_same_v<T, float>;
    ConvTiling tiling_;
    uint32_t history_ = 0;
    int64_t channel_ = 0;
    int64_t slot_[MOST_ROWS] = {};
    bool padded_ = false;
    GlobalTensor<T> x_, windows_, y_;
    GlobalTensor<int64_t> slots_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> x_float_, y_float_;
    Convolution<T, Weight> convolution_;
};

extern "C" __global__ __aicore__ void causal_conv1d_update(GM_ADDR x, GM_ADDR weight, GM_ADDR slots, GM_ADDR windows, GM_ADDR y, GM_ADDR workspace,
                                                           GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(ConvTiling, data, tiling);
    TPipe pipe;
    CausalConv1dUpdate<DTYPE, WEIGHT>(pipe, x, weight, slots, windows, y, data).Process();
}
