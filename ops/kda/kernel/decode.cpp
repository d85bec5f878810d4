// Kimi Delta Attention, one to eight tokens a sequence, on a pool of states in place.
//
// With D_t the product of the decays of tokens 0 to t, every token is expressed by the state S before them all:
//
//     u_t = b_t v_t - S (b_t k_t D_t) - sum over s < t of (b_t k_t D_t . k_s / D_s) u_s
//     o_t =           S (q_t D_t)     + sum over s <= t of (q_t D_t . k_s / D_s) u_s
//     S'  = S D_a + sum over s <= a of u_s (k_s D_a / D_s)^T,        a the last accepted token
//
// S [V, K] is read once and written once, and nothing of a token reaches an earlier one. Bounds from -5 on keep 1 / D_t below
// exp(40): no quotient of decays leaves float32, and each is a product, without the rounding of long sums of logs.
// Rows of k and q stand in turn, k_0, q_0, k_1, ..., so those of u and o.
// DTYPE of q, k, v, g and o: bfloat16_t or float; BETA of beta: the same, or float; WIDTH of the heads: 64 or 128.
#include "ascend_k3/infinities.h"
#include "decode_tiling.h"
#include "kernel_operator.h"

namespace ascend_k3 {

using namespace AscendC;

/// T of q, k, v and g, B of beta, W key and value channels.
template <class T, class B, uint32_t W>
class KdaDecode {
    static constexpr bool is_float = std::is_same_v<T, float>, beta_is_float = std::is_same_v<B, float>;
    static constexpr uint32_t LANES = 64, BLOCK = 8;          // floats of a repeat, of a block
    static constexpr uint32_t LINE = W / BLOCK;               // blocks of a row of floats
    static constexpr uint32_t BETA_GROUP = BLOCK_BYTES / sizeof(B);

   public:
    __aicore__ inline KdaDecode(TPipe& pipe, GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR slots,
                                GM_ADDR accepted, GM_ADDR states, GM_ADDR o, const KdaDecodeTiling& tiling)
        : tiling_(tiling), tokens_(tiling.tokens), rows_(tiling.rows), both_(2 * tiling.tokens), room_(tiling.tokens, W, tiling.rows, sizeof(T)) {
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(q));
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(k));
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(v));
        g_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(g));
        beta_.SetGlobalBuffer(reinterpret_cast<__gm__ B*>(beta));
        A_log_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(A_log));
        dt_bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(dt_bias));
        slots_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(slots));
        accepted_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(accepted));
        states_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(states));
        o_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(o));
        pipe.InitBuffer(heads_, 2, room_.head);
        pipe.InitBuffer(slices_, 2, room_.slice);
        pipe.InitBuffer(results_, 2, room_.result);
        pipe.InitBuffer(products_, room_.products);
        pipe.InitBuffer(k_and_q_, room_.vectors);
        pipe.InitBuffer(keys_, room_.vectors / 2);
        pipe.InitBuffer(decay_, room_.vectors / 2);
        pipe.InitBuffer(u_and_o_, room_.reads);
        pipe.InitBuffer(values_, room_.reads / 2);
        pipe.InitBuffer(factors_, room_.factors);
        pipe.InitBuffer(small_, DecodeRoom::SMALL);
    }

    __aicore__ inline void Process() {
        Constants();
        const int64_t first = GetBlockIdx() * tiling_.items_a_core;
        const int64_t last = first + tiling_.items_a_core < tiling_.items ? first + tiling_.items_a_core : tiling_.items;
        const uint32_t a_head = W / rows_;
        for (int64_t item = first; item < last; ++item) {
            if (item == first || item % a_head == 0) {
                sequence_ = item / a_head / tiling_.heads;
                head_ = item / a_head % tiling_.heads;
                slot_ = slots_.GetValue(sequence_);
                if (slot_ >= 0) {
                    kept_ = tiling_.has_accepted ? static_cast<uint32_t>(accepted_.GetValue(sequence_)) : tokens_;
                    LoadHead();
                    PrepareHead();
                }
            }
            row_ = static_cast<uint32_t>(item % a_head) * rows_;
            if (slot_ >= 0) {
                LoadSlice();
                Calculate();
            } else {
                Nothing();
            }
            Store();
        }
    }

   private:
    __aicore__ inline LocalTensor<float> Small(uint32_t first) const { return small_.Get<float>()[first]; }
    __aicore__ inline LocalTensor<float> Bound() const { return Small(0); }        // lower_bound, 64 times
    __aicore__ inline LocalTensor<float> Ones() const { return Small(64); }
    __aicore__ inline LocalTensor<float> Numerator() const { return Small(128); }  // 1 for k, scale for q, in turn
    __aicore__ inline LocalTensor<float> Sums() const { return Small(144); }       // of the squares of k and q
    __aicore__ inline LocalTensor<float> Norms() const { return Small(160); }
    __aicore__ inline LocalTensor<float> Slope() const { return Small(176); }      // -exp(A_log), 8 times
    __aicore__ inline LocalTensor<float> Strength() const { return Small(184); }   // b [tokens, 8]
    __aicore__ inline LocalTensor<float> Minus() const { return Small(248); }      // -b [tokens, 8]
    __aicore__ inline LocalTensor<float> OfNorms() const { return Small(312); }    // [2 tokens, 8]

    __aicore__ inline LocalTensor<float> Decay(uint32_t token) const { return decay_.Get<float>()[token * W]; }  // D_t
    __aicore__ inline LocalTensor<float> Keys() const { return keys_.Get<float>(); }
    /// Products of key s with rows b k D and q D, [tokens, 2 tokens], and behind them each eight times.
    __aicore__ inline LocalTensor<float> Factors() const { return factors_.Get<float>()[(tokens_ * both_ + 7) / 8 * 8]; }

    // ---- instructions on rows of W floats ----
    enum class Do { Add, Mul };
    /// to = a op b. A step is the blocks from row to row; 0 repeats a row.
    template <Do op>
    __aicore__ inline static void OnRows(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& b, uint32_t rows, uint32_t to_step,
                                         uint32_t a_step, uint32_t b_step) {
        const BinaryRepeatParams strides(1, 1, 1, to_step, a_step, b_step);
        for (uint32_t h = 0; h < W; h += LANES) {
            if constexpr (op == Do::Add) Add(to[h], a[h], b[h], LANES, rows, strides);
            if constexpr (op == Do::Mul) Mul(to[h], a[h], b[h], LANES, rows, strides);
        }
    }
    /// to = a times one number a row, given as blocks of eight of it; `step` rows of a and blocks on to the next.
    __aicore__ inline static void ScaleRows(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& numbers, uint32_t rows,
                                            uint32_t step) {
        for (uint32_t h = 0; h < W; h += LANES) Mul(to[h], a[h], numbers, LANES, rows, BinaryRepeatParams(1, 1, 0, LINE, step * LINE, step));
    }
    /// products [sets, 2 tokens, 64] = the first 64 columns of a [2 tokens, W] times those of b, or += the others. A set has one
    /// row of b for all of a's (b_step 0), or a row for each.
    template <uint32_t half>
    __aicore__ inline void Products(const LocalTensor<float>& a, const LocalTensor<float>& b, uint32_t sets, uint32_t b_step) {
        const BinaryRepeatParams strides(1, 1, 1, BLOCK, LINE, b_step);
        for (uint32_t s = 0; s < sets; ++s) {
            LocalTensor<float> to = products_.Get<float>()[s * both_ * LANES];
            if constexpr (half == 0)
                Mul(to, a, b[s * W], LANES, both_, strides);
            else
                MulAddDst(to, a[LANES], b[s * W + LANES], LANES, both_, strides);
        }
    }

    __aicore__ inline void Constants() {
        Duplicate(Bound(), tiling_.lower_bound, LANES);
        Duplicate(Ones(), 1.0f, LANES);
        Duplicate(Numerator(), tiling_.scale, 16);
        Duplicate(Sums(), 0.0f, 16);  // Brcb takes numbers by eight, also beyond the last token's
        Duplicate(factors_.Get<float>(), 0.0f, (tokens_ * both_ + 7) / 8 * 8);
        PipeBarrier<PIPE_V>();
        uint64_t even[2] = {0x5555, 0};
        Duplicate(Numerator(), 1.0f, even, 1, 1, BLOCK);
    }

    // ---- a head of a sequence ----
    /// Of the first token, in rows of heads.
    __aicore__ inline uint64_t Token() const { return static_cast<uint64_t>(sequence_) * tokens_ * tiling_.heads + head_; }

    __aicore__ inline LocalTensor<B> BetaOf(const LocalTensor<T>& in) const { return in[3 * tokens_ * W].template ReinterpretCast<B>(); }
    __aicore__ inline LocalTensor<float> BiasOf(const LocalTensor<T>& in) const {
        return in[3 * tokens_ * W + tokens_ * BLOCK_BYTES / sizeof(T)].template ReinterpretCast<float>();
    }

    /// k and q in turn, g, beta, dt_bias and A_log. DataCopyPad fills up the blocks of beta and A_log with them: eight times each.
    __aicore__ inline void LoadHead() {
        LocalTensor<T> in = heads_.template AllocTensor<T>();
        const uint32_t row = W * sizeof(T), between = tiling_.heads - 1;  // bytes; heads
        const DataCopyExtParams in_turn(tokens_, row, between * row, row / BLOCK_BYTES, 0), rows(tokens_, row, between * row, 0, 0);
        DataCopyPad(in, k_[Token() * W], in_turn, DataCopyPadExtParams<T>{});
        DataCopyPad(in[W], q_[Token() * W], in_turn, DataCopyPadExtParams<T>{});
        DataCopyPad(in[both_ * W], g_[Token() * W], rows, DataCopyPadExtParams<T>{});
        DataCopyPad(BetaOf(in), beta_[Token()], DataCopyExtParams(tokens_, sizeof(B), between * sizeof(B), 0, 0), DataCopyPadExtParams<B>{});
        DataCopy(BiasOf(in), dt_bias_[head_ * W], W);
        DataCopyPad(BiasOf(in)[W], A_log_[head_], DataCopyExtParams(1, sizeof(float), 0, 0, 0), DataCopyPadExtParams<float>{});
        heads_.EnQue(in);
    }

    /// All that does not depend on the state: rows b k D and q D, keys k / D (k D_a / D at last) and their products.
    __aicore__ inline void PrepareHead() {
        LocalTensor<T> in = heads_.template DeQue<T>();
        LocalTensor<float> k_and_q = k_and_q_.Get<float>(), keys = Keys(), decay = decay_.Get<float>(), products = products_.Get<float>();
        LocalTensor<float> raw = k_and_q, gate = decay, beta = Strength();
        if constexpr (is_float) {
            raw = in;
            gate = in[both_ * W];
        } else {
            Cast(raw, in, RoundMode::CAST_NONE, both_ * W);
            Cast(gate, in[both_ * W], RoundMode::CAST_NONE, tokens_ * W);
        }
        if constexpr (beta_is_float)
            beta = BetaOf(in);
        else
            Cast(beta, BetaOf(in), RoundMode::CAST_NONE, BLOCK, tokens_, UnaryRepeatParams(1, 1, 1, 1));
        if constexpr (!is_float) PipeBarrier<PIPE_V>();
        Products<0>(raw, raw, 1, LINE);
        OnRows<Do::Add>(decay, gate, BiasOf(in), tokens_, LINE, LINE, 0);
        Muls(Strength(), beta, -1.0f, tokens_ * BLOCK);
        Exp(Slope(), BiasOf(in)[W], BLOCK);
        PipeBarrier<PIPE_V>();
        if constexpr (W > LANES) Products<1>(raw, raw, 1, LINE);
        Muls(Slope(), Slope(), -1.0f, BLOCK);
        Exp(Strength(), Strength(), tokens_ * BLOCK);
        PipeBarrier<PIPE_V>();
        WholeReduceSum(Sums(), products, LANES, both_, 1, 1, BLOCK);
        Mul(decay, decay, Slope(), LANES, tokens_ * W / LANES, BinaryRepeatParams(1, 1, 0, BLOCK, BLOCK, 0));
        Adds(Strength(), Strength(), 1.0f, tokens_ * BLOCK);
        PipeBarrier<PIPE_V>();
        Adds(Norms(), Sums(), 1e-6f, 16);
        Exp(decay, decay, tokens_ * W);
        Div(Strength(), Ones(), Strength(), tokens_ * BLOCK);
        PipeBarrier<PIPE_V>();
        Sqrt(Norms(), Norms(), 16);
        Adds(decay, decay, 1.0f, tokens_ * W);
        Muls(Minus(), Strength(), -1.0f, tokens_ * BLOCK);
        PipeBarrier<PIPE_V>();
        Div(Norms(), Numerator(), Norms(), 16);
        Div(decay, Bound(), decay, LANES, tokens_ * W / LANES, BinaryRepeatParams(1, 1, 1, BLOCK, 0, BLOCK));
        PipeBarrier<PIPE_V>();
        Brcb(OfNorms(), Norms(), (both_ + 7) / 8, BrcbRepeatParams(1, 8));
        Exp(decay, decay, tokens_ * W);
        PipeBarrier<PIPE_V>();
        ScaleRows(keys, raw, OfNorms(), tokens_, 2);
        Mul(OfNorms(), OfNorms(), Minus(), BLOCK, tokens_, BinaryRepeatParams(1, 1, 1, 2, 2, 1));
        for (uint32_t t = 1; t < tokens_; ++t) {
            PipeBarrier<PIPE_V>();
            Mul(Decay(t), Decay(t), Decay(t - 1), W);
        }
        PipeBarrier<PIPE_V>();
        Div(keys, keys, decay, tokens_ * W);
        ScaleRows(k_and_q, raw, OfNorms(), both_, 1);
        heads_.FreeTensor(in);
        PipeBarrier<PIPE_V>();
        OnRows<Do::Mul>(k_and_q, k_and_q, decay, tokens_, 2 * LINE, 2 * LINE, LINE);
        OnRows<Do::Mul>(k_and_q[W], k_and_q[W], decay, tokens_, 2 * LINE, 2 * LINE, LINE);
        PipeBarrier<PIPE_V>();
        Products<0>(k_and_q, keys, tokens_, 0);
        PipeBarrier<PIPE_V>();
        if constexpr (W > LANES) {
            Products<1>(k_and_q, keys, tokens_, 0);
            PipeBarrier<PIPE_V>();
        }
        WholeReduceSum(factors_.Get<float>(), products, LANES, tokens_ * both_, 1, 1, BLOCK);
        if (kept_ > 0) OnRows<Do::Mul>(keys, keys, Decay(kept_ - 1), kept_, LINE, LINE, 0);
        PipeBarrier<PIPE_V>();
        Brcb(Factors(), factors_.Get<float>(), (tokens_ * both_ + 7) / 8, BrcbRepeatParams(1, 8));
    }

    // ---- rows of its state ----
    __aicore__ inline uint64_t State() const { return ((static_cast<uint64_t>(slot_) * tiling_.heads + head_) * W + row_) * W; }

    __aicore__ inline void LoadSlice() {
        LocalTensor<float> in = slices_.AllocTensor<float>();
        DataCopy(in, states_[State()], DataCopyParams(rows_, LINE, 0, 1));
        DataCopyPad(in[rows_ * room_.pitch].template ReinterpretCast<T>(), v_[Token() * W + row_],
                    DataCopyExtParams(tokens_, rows_ * sizeof(T), (tiling_.heads * W - rows_) * sizeof(T), 0, 0), DataCopyPadExtParams<T>{});
        slices_.EnQue(in);
    }

    __aicore__ inline void Calculate() {
        LocalTensor<float> state = slices_.DeQue<float>(), u_and_o = u_and_o_.Get<float>(), products = products_.Get<float>();
        const uint32_t a_row = rows_ / BLOCK, pitch = room_.pitch / BLOCK;  // blocks of a row of values, of the state
        ReadState(state);
        BlockReduceSum(u_and_o, products, both_ * rows_ / BLOCK, LANES, 1, 1, BLOCK);
        LocalTensor<float> v = values_.Get<float>();
        LocalTensor<T> in = state[rows_ * room_.pitch].template ReinterpretCast<T>();
        if constexpr (is_float)
            v = in;
        else
            Cast(v, in, RoundMode::CAST_NONE, tokens_ * rows_);
        PipeBarrier<PIPE_V>();
        MulAddDst(u_and_o, v, Strength(), rows_, tokens_, BinaryRepeatParams(1, 1, 0, 2 * a_row, a_row, 1));
        for (uint32_t s = 0; s < tokens_; ++s) {
            const uint32_t next = 2 * s + 1;
            PipeBarrier<PIPE_V>();  // row 2 s is u_s now: into all that follow
            MulAddDst(u_and_o[next * rows_], u_and_o[2 * s * rows_], Factors()[(s * both_ + next) * BLOCK], rows_, both_ - next,
                      BinaryRepeatParams(1, 1, 0, a_row, 0, 1));
        }
        LocalTensor<float> result = results_.AllocTensor<float>();
        if (kept_ > 0)
            for (uint32_t h = 0; h < W; h += LANES) Mul(result[h], state[h], Decay(kept_ - 1)[h], LANES, rows_, BinaryRepeatParams(1, 1, 1, LINE, pitch, 0));
        slices_.FreeTensor(state);
        PipeBarrier<PIPE_V>();
        LocalTensor<T> o = OutputOf(result);
        if constexpr (is_float)
            Copy(o, u_and_o[rows_], rows_, tokens_, CopyRepeatParams(1, 1, a_row, 2 * a_row));
        else
            Cast(o, u_and_o[rows_], RoundMode::CAST_RINT, rows_, tokens_, UnaryRepeatParams(1, 1, a_row / 2, 2 * a_row));
        for (uint32_t s = 0; s < kept_; ++s) Brcb(products[s * rows_ * BLOCK], u_and_o[2 * s * rows_], a_row, BrcbRepeatParams(1, 8));
        for (uint32_t s = 0; s < kept_; ++s) {
            PipeBarrier<PIPE_V>();
            for (uint32_t h = 0; h < W; h += LANES)
                MulAddDst(result[h], products[s * rows_ * BLOCK], Keys()[s * W + h], LANES, rows_, BinaryRepeatParams(1, 0, 1, LINE, 1, 0));
        }
        results_.EnQue(result);
    }

    /// products [2 tokens, rows, 8]: of each row of b k D and q D with each row of the state, 8 partial sums. Eight rows of the
    /// state at a time, a column of blocks after the other.
    __aicore__ inline void ReadState(const LocalTensor<float>& state) {
        LocalTensor<float> k_and_q = k_and_q_.Get<float>(), products = products_.Get<float>();
        const BinaryRepeatParams strides(1, room_.pitch / BLOCK, 0, rows_, 0, LINE);
        for (uint32_t column = 0; column < W; column += BLOCK) {
            for (uint32_t row = 0; row < rows_; row += BLOCK) {
                LocalTensor<float> to = products[row * BLOCK], part = state[row * room_.pitch + column], of = k_and_q[column];
                if (column == 0)
                    Mul(to, part, of, LANES, both_, strides);
                else
                    MulAddDst(to, part, of, LANES, both_, strides);
            }
            PipeBarrier<PIPE_V>();
        }
    }

    /// A padding row.
    __aicore__ inline void Nothing() {
        LocalTensor<float> result = results_.AllocTensor<float>();
        Duplicate(OutputOf(result).template ReinterpretCast<float>(), 0.0f, tokens_ * rows_ * sizeof(T) / sizeof(float));
        results_.EnQue(result);
    }

    __aicore__ inline void Store() {
        LocalTensor<float> result = results_.DeQue<float>();
        DataCopyPad(o_[Token() * W + row_], OutputOf(result), DataCopyExtParams(tokens_, rows_ * sizeof(T), 0, (tiling_.heads * W - rows_) * sizeof(T), 0));
        if (slot_ >= 0 && kept_ > 0) DataCopy(states_[State()], result, rows_ * W);
        results_.FreeTensor(result);
    }

    __aicore__ inline LocalTensor<T> OutputOf(const LocalTensor<float>& result) const { return result[rows_ * W].template ReinterpretCast<T>(); }

    const KdaDecodeTiling tiling_;
    const uint32_t tokens_, rows_, both_;  // both: rows of k and q
    const DecodeRoom room_;
    GlobalTensor<T> q_, k_, v_, g_, o_;
    GlobalTensor<B> beta_;
    GlobalTensor<float> A_log_, dt_bias_, states_;
    GlobalTensor<int64_t> slots_, accepted_;
    TQue<TPosition::VECIN, 1> heads_, slices_;
    TQue<TPosition::VECOUT, 1> results_;
    TBuf<TPosition::VECCALC> products_, k_and_q_, keys_, decay_, u_and_o_, values_, factors_, small_;
    // of the item at work
    int64_t sequence_ = 0, slot_ = 0;
    uint32_t head_ = 0, row_ = 0, kept_ = 0;  // row: of the state; kept: tokens
};

}  // namespace ascend_k3

extern "C" __global__ __aicore__ void kda_decode(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR slots,
                                                 GM_ADDR accepted, GM_ADDR states, GM_ADDR o, GM_ADDR workspace, GM_ADDR tiling_data) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(KdaDecodeTiling, tiling, tiling_data);
    AscendC::TPipe pipe;
    const ascend_k3::KeepInfinities keep;
    ascend_k3::KdaDecode<DTYPE, BETA, WIDTH>(pipe, q, k, v, g, beta, A_log, dt_bias, slots, accepted, states, o, tiling).Process();
}
