// What the vector cores make of q, k, g and beta of a chunk, each of its half of the channels: norms, strength, log decays.
#pragma once

#include "block.h"

namespace ascend_k3 {

/// T of q, k and g, B of beta, W key and value channels; Ub: where things are in UB.
template <class T, class B, uint32_t W, class Ub>
class KdaGates {
   protected:
    static constexpr bool is_float = std::is_same_v<T, float>;
    static constexpr uint32_t C = W / 2, LINE = C * sizeof(float) / 32;  // channels, also lanes of an instruction on rows; blocks of a row
    static constexpr uint32_t TILE = CHUNK * C, BETA_GROUP = 32 / sizeof(B);
    static constexpr int32_t INPUTS_IN = 0, SUMS_IN = 1;                 // events of MTE2 and V

    /// sums: where the workspace has room for the squares of both cores.
    __aicore__ inline void Begin(GM_ADDR q, GM_ADDR k, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets, GM_ADDR workspace, uint64_t sums, const KdaTiling& tiling) {
        tiling_ = tiling;
        const uint64_t rows = static_cast<uint64_t>(tiling.tokens) * tiling.heads;
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(q), rows * W);
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(k), rows * W);
        g_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(g), rows * W);
        beta_.SetGlobalBuffer(reinterpret_cast<__gm__ B*>(beta), rows);
        A_log_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(A_log), tiling.heads);
        dt_bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(dt_bias), static_cast<uint64_t>(tiling.heads) * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        room_ = workspace + KdaBlock() * tiling.room;
        core_ = GetSubBlockIdx();
        sums_ = sums;
        Duplicate(Bound(), tiling.lower_bound, 64);
        Duplicate(Numerators(), tiling.scale, CHUNK);
        Duplicate(Numerators()[CHUNK], 1.0f, CHUNK);
        SetFlag<HardEvent::V_MTE2>(SUMS_IN);
    }
    __aicore__ inline void End() { WaitFlag<HardEvent::V_MTE2>(SUMS_IN); }

    // ---- UB ----
    template <class U>
    __aicore__ inline static LocalTensor<U> At(uint32_t bytes, uint32_t count) {
        return LocalTensor<U>(TPosition::VECCALC, bytes, count);
    }
    enum : uint32_t { Q, K, G };
    __aicore__ inline static LocalTensor<float> Work(uint32_t i) { return At<float>(Ub::WORK + i * TILE * 4, TILE); }
    __aicore__ inline static LocalTensor<T> Input(uint32_t i) {
        if constexpr (is_float)
            return Work(i);
        else
            return At<T>(Ub::IN + i * TILE * 2, TILE);
    }
    __aicore__ inline static LocalTensor<float> Keys() { return At<float>(Ub::KEYS, TILE); }
    __aicore__ inline static LocalTensor<float> Decay() { return At<float>(Ub::DECAY, TILE); }
    // Rows of C numbers. Of a sub-chunk: exponent of its middle since the state, factor from there, factor from the middle before.
    __aicore__ inline static LocalTensor<float> Row(uint32_t i, uint32_t rows = 1) { return At<float>(Ub::ROWS + i * C * 4, rows * C); }
    enum : uint32_t { BIAS, ANCHOR, MIDDLE, FROM_STATE = MIDDLE + SUBS, STEP = FROM_STATE + SUBS };
    // small things, in bytes from SMALL on
    __aicore__ inline static LocalTensor<float> Bound() { return At<float>(Ub::SMALL, 64); }                                // lower_bound
    __aicore__ inline static LocalTensor<float> Numerators() { return At<float>(Ub::SMALL + 256, 2 * CHUNK); }              // scale, then ones
    __aicore__ inline static LocalTensor<float> Sums() { return At<float>(Ub::SMALL + 768, 2 * CHUNK); }
    __aicore__ inline static LocalTensor<float> OtherSums() { return At<float>(Ub::SMALL + 1280, 2 * CHUNK); }
    __aicore__ inline static LocalTensor<float> Strength(uint32_t n) { return At<float>(Ub::SMALL + 1792 + n % 2 * 256, CHUNK); }
    __aicore__ inline static LocalTensor<float> OfNorms() { return At<float>(Ub::SMALL + 3328, 2 * CHUNK * 8); }             // [2 CHUNK][8]
    __aicore__ inline static LocalTensor<B> Beta() { return At<B>(Ub::SMALL + 7424, CHUNK * BETA_GROUP); }
    __aicore__ inline static LocalTensor<float> BetaFloat() { return At<float>(Ub::SMALL + 9472, CHUNK * BETA_GROUP); }
    __aicore__ inline static LocalTensor<float> Gate() { return At<float>(Ub::SMALL + 13824, 8); }

    template <HardEvent event>
    __aicore__ inline static void Wait() { Order<event>(); }

    // ---- instructions on tiles [rows, C] of floats ----
    enum class Do { Add, Sub, Mul };
    /// to = a op row, the same row for all.
    template <Do op>
    __aicore__ inline static void WithRow(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& row, uint32_t rows) {
        const BinaryRepeatParams strides(1, 1, 1, LINE, LINE, 0);
        if constexpr (op == Do::Add) Add(to, a, row, C, rows, strides);
        if constexpr (op == Do::Sub) Sub(to, a, row, C, rows, strides);
        if constexpr (op == Do::Mul) Mul(to, a, row, C, rows, strides);
    }
    /// to = a times one number a row, given as blocks of eight of it.
    __aicore__ inline static void ScaleRows(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& numbers, uint32_t rows) {
        Mul(to, a, numbers, C, rows, BinaryRepeatParams(1, 1, 0, LINE, LINE, 1));
    }
    /// What a head has once: its bias and exp(A_log). The state stands at the first token.
    __aicore__ inline void Parameters(uint32_t head) {
        Wait<HardEvent::V_MTE2>();
        DataCopy(Row(BIAS), dt_bias_[static_cast<uint64_t>(head) * W + core_ * C], C);
        DataCopyPad(Gate(), A_log_[head], DataCopyExtParams{1, sizeof(float), 0, 0, 0}, DataCopyPadExtParams<float>{});
        Wait<HardEvent::MTE2_V>();
        Exp(Gate(), Gate(), 1);
        Duplicate(Row(ANCHOR), 0.0f, C);
        Wait<HardEvent::V_S>();
        slope_ = -Gate().GetValue(0);
        Wait<HardEvent::S_V>();
    }

    // ---- a chunk ----
    /// q and k normalized, the strength, and the sums of the log decays, all in UB. 16 bits: of a chunk that was asked for, and
    /// `next` is asked for.
    __aicore__ inline void Gates(const KdaStep& step, const KdaStep& next) {
        Receive(step, next);
        Squares(step.n);
        Decays(step.Filled());
        Strengths(step.n);
        Norms(step.n);
    }

    /// Asks for q, k, g and beta of a chunk; rows without a token are zero.
    __aicore__ inline void Request(const KdaStep& step) {
        const uint32_t filled = step.Filled();
        if (filled < CHUNK) {
            for (uint32_t i = Q; i <= G; ++i) Duplicate(Input(i).template ReinterpretCast<uint16_t>(), uint16_t(0), TILE * sizeof(T) / 2);
            Duplicate(Beta().template ReinterpretCast<uint16_t>(), uint16_t(0), CHUNK * 16);
        }
        Wait<HardEvent::V_MTE2>();
        const DataCopyExtParams rows(filled, C * sizeof(T), (tiling_.heads * W - C) * sizeof(T), 0, 0);
        const uint64_t row = static_cast<uint64_t>(step.Token()) * tiling_.heads + step.head;
        DataCopyPad(Input(Q), q_[row * W + core_ * C], rows, DataCopyPadExtParams<T>{});
        DataCopyPad(Input(K), k_[row * W + core_ * C], rows, DataCopyPadExtParams<T>{});
        DataCopyPad(Input(G), g_[row * W + core_ * C], rows, DataCopyPadExtParams<T>{});
        DataCopyPad(Beta(), beta_[row], DataCopyExtParams(filled, sizeof(B), (tiling_.heads - 1) * sizeof(B), 0, 0), DataCopyPadExtParams<B>{true, 0, BETA_GROUP - 1, B(0)});
        SetFlag<HardEvent::MTE2_V>(INPUTS_IN);
    }

    /// Takes them as floats. Inputs of 16 bits have room of their own, which the next ones then fill.
    __aicore__ inline void Receive(const KdaStep& step, const KdaStep& next) {
        if constexpr (is_float) Request(step);
        WaitFlag<HardEvent::MTE2_V>(INPUTS_IN);
        if constexpr (!is_float)
            for (uint32_t i = Q; i <= G; ++i) Cast(Work(i), Input(i), RoundMode::CAST_NONE, TILE);
        if constexpr (std::is_same_v<B, float>)
            Adds(BetaFloat(), Beta(), 0.0f, CHUNK * BETA_GROUP);
        else
            Cast(BetaFloat(), Beta(), RoundMode::CAST_NONE, CHUNK * BETA_GROUP);
        PipeBarrier<PIPE_V>();
        if constexpr (!is_float)
            if (next.exists) Request(next);
    }

    /// Sums of the squares of this core's channels of q and k, to the other core.
    __aicore__ inline void Squares(uint32_t n) {
        for (uint32_t i = Q; i <= K; ++i) {
            Mul(Decay(), Work(i), Work(i), TILE);
            PipeBarrier<PIPE_V>();
            WholeReduceSum(Sums()[i * CHUNK], Decay(), C, CHUNK, 1, 1, LINE);
        }
        Wait<HardEvent::V_MTE3>();
        DataCopy(OfSums(n, core_), Sums(), 2 * CHUNK);
        CrossCoreSetFlag<1, PIPE_MTE3>(flag::SUMS);
    }
    __aicore__ inline GlobalTensor<float> OfSums(uint32_t n, uint32_t core) const { return Room<float>(sums_ + (n % 2 * 2 + core) * 2 * CHUNK * 4, 2 * CHUNK); }

    /// q <- scale q / |q|, k <- k / |k|.
    __aicore__ inline void Norms(uint32_t n) {
        CrossCoreWaitFlag(flag::SUMS);
        WaitFlag<HardEvent::V_MTE2>(SUMS_IN);
        DataCopy(OtherSums(), OfSums(n, 1 - core_), 2 * CHUNK);
        SetFlag<HardEvent::MTE2_V>(SUMS_IN);
        WaitFlag<HardEvent::MTE2_V>(SUMS_IN);
        Add(Sums(), Sums(), OtherSums(), 2 * CHUNK);
        SetFlag<HardEvent::V_MTE2>(SUMS_IN);
        PipeBarrier<PIPE_V>();
        Adds(Sums(), Sums(), 1e-6f, 2 * CHUNK);
        PipeBarrier<PIPE_V>();
        Sqrt(Sums(), Sums(), 2 * CHUNK);
        PipeBarrier<PIPE_V>();
        Div(Sums(), Numerators(), Sums(), 2 * CHUNK);
        PipeBarrier<PIPE_V>();
        Brcb(OfNorms(), Sums(), 2 * CHUNK / 8, BrcbRepeatParams(1, 8));
        PipeBarrier<PIPE_V>();
        ScaleRows(Work(Q), Work(Q), OfNorms(), CHUNK);
        ScaleRows(Work(K), Work(K), OfNorms()[CHUNK * 8], CHUNK);
    }

    /// b = sigmoid(beta).
    __aicore__ inline void Strengths(uint32_t n) {
        LocalTensor<float> b = Strength(n);
        WholeReduceSum(b, BetaFloat(), BETA_GROUP, CHUNK, 1, 1, BETA_GROUP * sizeof(float) / 32);
        PipeBarrier<PIPE_V>();
        Muls(b, b, -1.0f, CHUNK);
        PipeBarrier<PIPE_V>();
        Exp(b, b, CHUNK);
        PipeBarrier<PIPE_V>();
        Adds(b, b, 1.0f, CHUNK);
        PipeBarrier<PIPE_V>();
        Div(b, Numerators()[CHUNK], b, CHUNK);
    }

    /// g <- the sum of the log decays since the start of each sub-chunk; the rows that follow from it.
    __aicore__ inline void Decays(uint32_t filled) {
        LocalTensor<float> g = Work(G);
        WithRow<Do::Add>(g, g, Row(BIAS), CHUNK);
        PipeBarrier<PIPE_V>();
        Muls(g, g, slope_, TILE);
        PipeBarrier<PIPE_V>();
        Exp(g, g, TILE);
        PipeBarrier<PIPE_V>();
        Adds(g, g, 1.0f, TILE);
        PipeBarrier<PIPE_V>();
        Div(g, Bound(), g, 64, TILE / 64, BinaryRepeatParams(1, 1, 1, 8, 0, 8));
        PipeBarrier<PIPE_V>();
        if (filled < CHUNK) {
            Duplicate(g[filled * C], 0.0f, (CHUNK - filled) * C);
            PipeBarrier<PIPE_V>();
        }
        // the second half of every 2, 4, 8 and 16 rows gets the last row of the first
        for (uint32_t half = 1; half < SUB; half *= 2) {
            const uint8_t stride = 2 * half * LINE;
            for (uint32_t r = 0; r < half; ++r) {
                LocalTensor<float> rows = g[(half + r) * C];
                Add(rows, rows, g[(half - 1) * C], C, CHUNK / (2 * half), BinaryRepeatParams(1, 1, 1, stride, stride, stride));
            }
            PipeBarrier<PIPE_V>();
        }
        for (uint32_t i = 0; i < SUBS; ++i) {
            Add(Row(MIDDLE + i), Row(ANCHOR), g[(i * SUB + SUB / 2 - 1) * C], C);
            Add(Row(ANCHOR), Row(ANCHOR), g[(i * SUB + SUB - 1) * C], C);
            PipeBarrier<PIPE_V>();
        }
        LocalTensor<float> middles = Row(MIDDLE, SUBS), steps = Row(STEP, SUBS - 1);
        Sub(steps, middles[C], middles, (SUBS - 1) * C);
        Exp(Row(FROM_STATE, SUBS), middles, SUBS * C);
        // the state will stand at the last middle
        Sub(Row(ANCHOR), Row(ANCHOR), Row(MIDDLE + SUBS - 1), C);
        PipeBarrier<PIPE_V>();
        Exp(steps, steps, (SUBS - 1) * C);
    }

    /// `count` elements of the workspace from a byte on.
    template <class U>
    __aicore__ inline GlobalTensor<U> Room(uint64_t bytes, uint32_t count) const {
        GlobalTensor<U> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ U*>(room_ + bytes), count);
        return out;
    }

    KdaTiling tiling_;
    GlobalTensor<T> q_, k_, g_;
    GlobalTensor<B> beta_;
    GlobalTensor<float> A_log_, dt_bias_;
    GlobalTensor<int64_t> offsets_;
    GM_ADDR room_;
    float slope_ = 0;
    uint32_t core_ = 0;
    uint64_t sums_ = 0;
};

}  // namespace ascend_k3
