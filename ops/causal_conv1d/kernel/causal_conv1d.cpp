// y_t = silu(sum_j weight[c, j] x_{t-W+1+j}) over packed sequences, and the last W-1 inputs of each.
// DTYPE: of x, the windows and y. WEIGHT: of the weight.
//
// A job is a block of channels and a part of the tokens. A tile has the W-1 inputs before its tokens in its first rows: from
// x, or at the start of a sequence from its initial window. So the last W-1 rows of a sequence's last tile are its next
// window, also when the tile has no token.
#include "convolution.h"

using namespace ascend_k3;

template <class T, class Weight>
class CausalConv1d {
   public:
    __aicore__ inline CausalConv1d(TPipe& pipe, GM_ADDR x, GM_ADDR weight, GM_ADDR window, GM_ADDR starts, GM_ADDR y, GM_ADDR next_window,
                                   const ConvTiling& tiling)
        : tiling_(tiling) {
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
        window_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(window));
        starts_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(starts));
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y));
        next_window_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(next_window));
        convolution_.Init(pipe, weight, tiling, 1);
        history_ = convolution_.History();
        const uint32_t pitch = convolution_.Widest(tiling), rows = tiling.rows_a_tile;
        pipe.InitBuffer(in_, 2, (rows + 2 * history_) * pitch * sizeof(T));
        pipe.InitBuffer(out_, 2, (rows + history_) * pitch * sizeof(T));
        if constexpr (!is_float) {
            pipe.InitBuffer(x_float_, (rows + history_) * pitch * sizeof(float));
            pipe.InitBuffer(y_float_, rows * pitch * sizeof(float));
        }
    }

    __aicore__ inline void Process() {
        for (uint32_t job = GetBlockIdx(); job < tiling_.jobs; job += GetBlockNum()) {
            channel_ = static_cast<int64_t>(job / tiling_.parts) * tiling_.block;
            const int64_t left = tiling_.channels - channel_;
            convolution_.Begin(channel_, left < tiling_.block ? static_cast<uint32_t>(left) : tiling_.block);
            const int64_t first = static_cast<int64_t>(job % tiling_.parts) * tiling_.rows_a_part;
            const int64_t last = first + tiling_.rows_a_part < tiling_.rows ? first + tiling_.rows_a_part : tiling_.rows;
            Part(first, last);
        }
    }

   private:
    struct Tile {
        int64_t sequence, token;  // the first token
        uint32_t rows;            // tokens
        uint32_t from_window;     // rows before them that come from the initial window
        bool ends;                // the sequence ends behind it
    };

    __aicore__ inline int64_t Start(int64_t sequence) const {
        return tiling_.length > 0 ? sequence * tiling_.length : starts_.GetValue(sequence);
    }

    /// The first sequence that ends behind `token`.
    __aicore__ inline int64_t SequenceOf(int64_t token) const {
        if (tiling_.length > 0) return token / tiling_.length;
        int64_t low = 0, high = tiling_.sequences;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (Start(middle + 1) > token)
                high = middle;
            else
                low = middle + 1;
        }
        return low;
    }

    /// Tokens [first, last), and the windows of the sequences that end in (first, last]; at 0 those of empty ones too.
    __aicore__ inline void Part(int64_t first, int64_t last) {
        int64_t sequence = first == 0 ? 0 : SequenceOf(first);
        if (sequence == tiling_.sequences) return;
        for (int64_t start = Start(sequence); sequence < tiling_.sequences; ++sequence) {
            const int64_t end = Start(sequence + 1);
            if (start >= last && end > last) return;
            int64_t token = start > first ? start : first;
            const int64_t stop = end < last ? end : last;
            do {
                const uint32_t rows = stop - token < tiling_.rows_a_tile ? static_cast<uint32_t>(stop - token) : tiling_.rows_a_tile;
                const int64_t before = token - start;
                const Tile tile{sequence, token, rows, before < history_ ? static_cast<uint32_t>(history_ - before) : 0, token + rows == end};
                CopyIn(tile);
                Compute(tile);
                CopyOut(tile);
                token += rows;
            } while (token < stop);
            start = end;
        }
    }

    __aicore__ inline uint32_t Pitch() const { return convolution_.Pitch(); }
    __aicore__ inline uint32_t RowBytes() const { return convolution_.Width() * sizeof(T); }
    __aicore__ inline int64_t RowGap() const { return (tiling_.channels - convolution_.Width()) * sizeof(T); }
    __aicore__ inline LocalTensor<T> WindowIn(const LocalTensor<T>& in) const { return in[(tiling_.rows_a_tile + history_) * Pitch()]; }
    __aicore__ inline LocalTensor<T> WindowOut(const LocalTensor<T>& out) const { return out[tiling_.rows_a_tile * Pitch()]; }
    __aicore__ inline int64_t WindowAt(int64_t sequence) const { return (sequence * tiling_.channels + channel_) * history_; }

    __aicore__ inline void CopyIn(const Tile& tile) {
        LocalTensor<T> in = in_.template AllocTensor<T>();
        const uint32_t before = history_ - tile.from_window;
        if (before + tile.rows > 0)
            DataCopyPad(in[tile.from_window * Pitch()], x_[(tile.token - before) * tiling_.channels + channel_],
                        DataCopyExtParams{static_cast<uint16_t>(before + tile.rows), RowBytes(), RowGap(), 0, 0}, DataCopyPadExtParams<T>{});
        if (tile.from_window > 0 && tiling_.has_window)
            DataCopyPad(WindowIn(in), window_[WindowAt(tile.sequence)], DataCopyExtParams{1, RowBytes() * history_, 0, 0, 0}, DataCopyPadExtParams<T>{});
        in_.EnQue(in);
    }

    __aicore__ inline void Compute(const Tile& tile) {
        LocalTensor<T> in = in_.template DeQue<T>();
        LocalTensor<T> out = out_.template AllocTensor<T>();
        if (tile.from_window > 0) {
            if (tiling_.has_window)
                for (uint32_t row = 0; row < tile.from_window; ++row)
                    convolution_.WindowToRow(in[row * Pitch()], WindowIn(in), history_ - tile.from_window + row);
            else
                Duplicate(in, T(0.0f), tile.from_window * Pitch());
            PipeBarrier<PIPE_V>();
        }
        if (tile.ends) convolution_.RowsToWindow(WindowOut(out), in[tile.rows * Pitch()]);
        if (tile.rows > 0) {
            if constexpr (is_float) {
                convolution_.Convolve(out, in, in, tile.rows);
            } else {
                LocalTensor<float> x = x_float_.template Get<float>(), y = y_float_.template Get<float>();
                Cast(x, in, RoundMode::CAST_NONE, (tile.rows + history_) * Pitch());
                PipeBarrier<PIPE_V>();
                convolution_.Convolve(y, x, x, tile.rows);
                PipeBarrier<PIPE_V>();
                Cast(out, y, RoundMode::CAST_RINT, tile.rows * Pitch());
            }
        }
        in_.FreeTensor(in);
        out_.EnQue(out);
    }

    __aicore__ inline void CopyOut(const Tile& tile) {
        LocalTensor<T> out = out_.template DeQue<T>();
        if (tile.rows > 0)
            DataCopyPad(y_[tile.token * tiling_.channels + channel_], out, DataCopyExtParams{static_cast<uint16_t>(tile.rows), RowBytes(), 0, RowGap(), 0});
        if (tile.ends) DataCopyPad(next_window_[WindowAt(tile.sequence)], WindowOut(out), DataCopyExtParams{1, RowBytes() * history_, 0, 0, 0});
        out_.FreeTensor(out);
    }

    static constexpr bool is_float = std::is_same_v<T, float>;
    ConvTiling tiling_;
    uint32_t history_ = 0;
    int64_t channel_ = 0;
    GlobalTensor<T> x_, window_, y_, next_window_;
    GlobalTensor<int64_t> starts_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> x_float_, y_float_;
    Convolution<T, Weight> convolution_;
};

extern "C" __global__ __aicore__ void causal_conv1d(GM_ADDR x, GM_ADDR weight, GM_ADDR window, GM_ADDR starts, GM_ADDR y, GM_ADDR next_window,
                                                    GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(ConvTiling, data, tiling);
    TPipe pipe;
    CausalConv1d<DTYPE, WEIGHT>(pipe, x, weight, window, starts, y, next_window, data).Process();
}
