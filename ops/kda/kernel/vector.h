// The vector cores' part of a chunk: operands of the products, the inverse of the diagonal blocks. Each core has half of the
// channels of the block's head, and two of the four diagonal blocks.
#pragma once

#include "block.h"

namespace ascend_k3 {

/// T of q, k, v and g, B of beta, W key and value channels.
template <class T, class B, uint32_t W>
class KdaVector {
    using M = Merged<T>;
    using Ub = KdaUb<T, W>;
    using L1 = KdaL1<T, W>;
    static constexpr bool is_float = std::is_same_v<T, float>;
    static constexpr uint32_t C = Ub::CHANNELS, LINE = C * sizeof(float) / 32;  // channels, also lanes of an instruction on rows; blocks of a row
    static constexpr uint32_t TILE = Ub::TILE, BLOCKS = Ub::BLOCKS;
    static constexpr uint32_t GROUP = 32 / sizeof(T), GROUPS = C / GROUP;       // columns of an NZ group, groups
    static constexpr uint32_t BETA_GROUP = 32 / sizeof(B);
    static constexpr int32_t INPUTS_IN = 0, SUMS_IN = 1;                        // events of MTE2 and V
    static constexpr uint32_t AHEAD = L1::FROM_VECTOR ? L1::OPERAND_SLOTS : ROOM_SLOTS;  // chunks before one whose operands are used up
    static_assert(sizeof(M) == sizeof(T), "three matrices, and in 16 bits their rests, in a row");

   public:
    __aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets, GM_ADDR initial,
                               GM_ADDR final, GM_ADDR workspace, const KdaTiling& tiling) {
        tiling_ = tiling;
        const uint64_t rows = static_cast<uint64_t>(tiling.tokens) * tiling.heads;
        const uint64_t states = static_cast<uint64_t>(tiling.sequences) * tiling.heads * W * W;
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(q), rows * W);
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(k), rows * W);
        g_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(g), rows * W);
        beta_.SetGlobalBuffer(reinterpret_cast<__gm__ B*>(beta), rows);
        A_log_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(A_log), tiling.heads);
        dt_bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(dt_bias), static_cast<uint64_t>(tiling.heads) * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        initial_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(initial), tiling.has_initial ? states : 0);
        final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(final), states);
        room_ = workspace + KdaStep::Block() * tiling.room;
        core_ = GetSubBlockIdx();
        EmptySequences();
        Constants();
        for (uint32_t slot = 0; slot < Ub::OUT_SLOTS; ++slot) SetFlag<HardEvent::MTE3_V>(slot);
        SetFlag<HardEvent::V_MTE2>(SUMS_IN);
        KdaStep step = KdaStep::First(tiling_, offsets_);
        if constexpr (!is_float)
            if (step.exists) Request(step);
        KdaStep before{};
        for (; step.exists; before = step, step = step.Next(tiling_, offsets_)) {
            Gates(step);
            // in L1 the operands have the room of the chunk before until its scores are there
            if (L1::FROM_VECTOR && before.exists) Invert(before);
            if (step.n >= AHEAD) CrossCoreWaitFlag(flag::FREE);
            Operands(step);
            if (!L1::FROM_VECTOR && before.exists) Invert(before);
        }
        if (before.exists) Invert(before);
        for (uint32_t n = 0; n < step.n && n < AHEAD; ++n) CrossCoreWaitFlag(flag::FREE);
        WaitFlag<HardEvent::V_MTE2>(SUMS_IN);
        for (uint32_t slot = 0; slot < Ub::OUT_SLOTS; ++slot) WaitFlag<HardEvent::MTE3_V>(slot);
    }

   private:
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
    __aicore__ inline static LocalTensor<float> One() { return At<float>(Ub::ONE, SUB * C); }  // diagonal blocks [SUB, C]
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
    __aicore__ inline static LocalTensor<uint16_t> Mask(uint32_t i) { return At<uint16_t>(Ub::SMALL + 13568 + i * 64, 32); }  // i >= t, i > t, i == t
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
    /// NZ [rows, columns] of U = a; a's rows have no gaps.
    template <class U>
    __aicore__ inline static void ToNz(const LocalTensor<U>& to, const LocalTensor<float>& a, uint32_t rows, uint32_t columns = C) {
        if constexpr (std::is_same_v<U, float>)
            Copy(to, a, columns, rows, CopyRepeatParams(rows, 1, 1, columns / 8));
        else
            Cast(to, a, RoundMode::CAST_RINT, columns, rows, UnaryRepeatParams(rows, 1, 1, columns / 8));
    }
    /// What `a` has lost in the NZ matrix that was made of it.
    template <class U>
    __aicore__ inline static void Rest(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<U>& made, uint32_t rows, uint32_t columns = C) {
        PipeBarrier<PIPE_V>();
        Cast(to, made, RoundMode::CAST_NONE, columns, rows, UnaryRepeatParams(1, rows, columns / 8, 1));
        PipeBarrier<PIPE_V>();
        Sub(to, a, to, rows * columns);
        PipeBarrier<PIPE_V>();
    }

    // ---- what is made once ----
    /// Their final states are their initial ones.
    __aicore__ inline void EmptySequences() {
        LocalTensor<float> half = At<float>(0, W / 2 * W);
        if (!tiling_.has_initial) {
            Duplicate(half, 0.0f, W / 2 * W);
            Wait<HardEvent::V_MTE3>();
        }
        for (int64_t unit = KdaStep::Block(); unit < tiling_.sequences * tiling_.heads; unit += GetBlockNum()) {
            const int64_t sequence = unit / tiling_.heads;
            if (offsets_.GetValue(sequence) != offsets_.GetValue(sequence + 1)) continue;
            const uint64_t state = (static_cast<uint64_t>(unit) * 2 + core_) * W / 2 * W;
            if (tiling_.has_initial) {
                Wait<HardEvent::MTE3_MTE2>();
                DataCopy(half, initial_[state], W / 2 * W);
                Wait<HardEvent::MTE2_MTE3>();
            }
            DataCopy(final_[state], half, W / 2 * W);
        }
        Wait<HardEvent::MTE3_MTE2>();
    }

    __aicore__ inline void Constants() {
        Duplicate(Bound(), tiling_.lower_bound, 64);
        Duplicate(Numerators(), tiling_.scale, CHUNK);
        Duplicate(Numerators()[CHUNK], 1.0f, CHUNK);
        for (uint32_t t = 0; t < SUB; ++t)
            for (uint32_t block = 0; block < 2; ++block) {
                Mask(0).SetValue(t * 2 + block, static_cast<uint16_t>(0xffffu << t));
                Mask(1).SetValue(t * 2 + block, static_cast<uint16_t>(0xfffeu << t));
                Mask(2).SetValue(t * 2 + block, static_cast<uint16_t>(1u << t));
            }
        Wait<HardEvent::S_V>();
        LocalTensor<float> two = At<float>(Ub::INVERSE, BLOCKS);
        Identity(two);
        for (uint32_t h = 0; h < C; h += 2 * SUB) Adds(One()[h], two, 0.0f, 2 * SUB, SUB, UnaryRepeatParams(1, 1, LINE, 4));
        if (core_ == 0) {
            LocalTensor<T> minus = At<T>(Ub::DONE, BLOCKS);
            LocalTensor<M> minus_merged = At<M>(Ub::DONE + BLOCKS * sizeof(T), BLOCKS);
            Muls(two, two, -1.0f, BLOCKS);
            PipeBarrier<PIPE_V>();
            ToNz<T>(minus, two, SUB, 2 * SUB);
            ToNz<M>(minus_merged, two, SUB, 2 * SUB);
            Wait<HardEvent::V_MTE3>();
            DataCopy(Room<T>(Sizes().minus, SUB * SUB), minus, SUB * SUB);
            DataCopy(Room<M>(Sizes().minus + SUB * SUB * sizeof(T), SUB * SUB), minus_merged, SUB * SUB);
        }
    }

    /// 1 on the diagonals of two blocks [SUB, 2 SUB].
    __aicore__ inline void Identity(const LocalTensor<float>& to) {
        Duplicate(to, 1.0f, BLOCKS);
        PipeBarrier<PIPE_V>();
        Select(to, Mask(2).ReinterpretCast<uint8_t>(), to, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, BLOCKS);
        PipeBarrier<PIPE_V>();
    }

    /// What a head has once: its bias and exp(A_log). The state stands at its first token.
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
    /// q and k normalized, the strength, and the sums of the log decays, all in UB.
    __aicore__ inline void Gates(const KdaStep& step) {
        if (step.chunk == 0) Parameters(step.head);
        Receive(step);
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
    __aicore__ inline void Receive(const KdaStep& step) {
        if constexpr (is_float) Request(step);
        WaitFlag<HardEvent::MTE2_V>(INPUTS_IN);
        if constexpr (!is_float)
            for (uint32_t i = Q; i <= G; ++i) Cast(Work(i), Input(i), RoundMode::CAST_NONE, TILE);
        if constexpr (std::is_same_v<B, float>)
            Adds(BetaFloat(), Beta(), 0.0f, CHUNK * BETA_GROUP);
        else
            Cast(BetaFloat(), Beta(), RoundMode::CAST_NONE, CHUNK * BETA_GROUP);
        PipeBarrier<PIPE_V>();
        if constexpr (!is_float) {
            const KdaStep next = step.Next(tiling_, offsets_);
            if (next.exists) Request(next);
        }
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
    __aicore__ inline GlobalTensor<float> OfSums(uint32_t n, uint32_t core) const { return Room<float>(Sizes().sums + (n % 2 * 2 + core) * 2 * CHUNK * 4, 2 * CHUNK); }

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

    /// What the products need. Exponents of a sub-chunk are taken from its middle token on: none exceeds 8 tokens' decay.
    __aicore__ inline void Operands(const KdaStep& step) {
        LocalTensor<float> q = Work(Q), k = Work(K), g = Work(G), decay = Decay(), keys = Keys();
        if (step.chunk == 0 && tiling_.has_initial) SendInitial(step);
        for (uint32_t i = 0; i < SUBS; ++i) WithRow<Do::Sub>(decay[i * SUB * C], g[i * SUB * C], g[(i * SUB + SUB / 2 - 1) * C], SUB);
        PipeBarrier<PIPE_V>();
        Exp(decay, decay, TILE);
        PipeBarrier<PIPE_V>();
        Div(keys, k, decay, TILE);
        Mul(q, q, decay, TILE);
        Mul(k, k, decay, TILE);
        PipeBarrier<PIPE_V>();
        Muls(k, k, -1.0f, TILE);
        PipeBarrier<PIPE_V>();
        SendRows(step.n, q, 0);
        SendRows(step.n, k, 1);
        for (uint32_t i = 0; i < SUBS; ++i) {
            if (i > 0) {
                WithRow<Do::Mul>(keys, keys, Row(STEP + i - 1), i * SUB);
                PipeBarrier<PIPE_V>();
            }
            SendColumns(step.n, keys, i, 0);
            if constexpr (!is_float) {
                Rest(decay, keys, Sent(), (i + 1) * SUB);
                SendColumns(step.n, decay, i, 1);
            }
            if (i == SUBS - 2) CrossCoreSetFlag<2, PIPE_MTE3>(flag::OPERANDS);
        }
        for (uint32_t i = 0; i < SUBS; ++i) {
            WithRow<Do::Mul>(q[i * SUB * C], q[i * SUB * C], Row(FROM_STATE + i), SUB);
            WithRow<Do::Mul>(k[i * SUB * C], k[i * SUB * C], Row(FROM_STATE + i), SUB);
        }
        PipeBarrier<PIPE_V>();
        SendWhole(Place(L1::Operand(step.n, L1::Q), step.n, Sizes().q), q, CHUNK);
        SendWhole(Place(L1::Keys(step.n), step.n, Sizes().k), k, CHUNK);
        SendDecay(Place(L1::Operand(step.n, L1::PDECAY), step.n, Sizes().decay), Row(FROM_STATE + SUBS - 1));
        if (step.IsLast()) {
            Exp(Row(STEP), Row(ANCHOR), C);
            PipeBarrier<PIPE_V>();
            SendDecay(InRoom(step.n, Sizes().final_decay), Row(STEP));
        }
        CrossCoreSetFlag<2, PIPE_MTE3>(flag::OPERANDS);
    }

    // ---- tiles on their way out ----
    struct Where {
        uint32_t bytes;
        bool in_l1;
    };
    __aicore__ inline static Where InRoom(uint32_t n, uint32_t bytes) { return {n % ROOM_SLOTS * Sizes().operands + bytes, false}; }
    /// L1 where the cores can write to it, else the workspace.
    __aicore__ inline static Where Place(uint32_t l1, uint32_t n, uint32_t room) { return L1::FROM_VECTOR ? Where{l1, true} : InRoom(n, room); }

    __aicore__ inline LocalTensor<T> Sent() const { return At<T>(Ub::OUT + slot_ * TILE * sizeof(T), TILE); }

    /// `tile` [rows, C] as NZ to an NZ matrix, from an element on.
    __aicore__ inline void Send(const Where& where, uint32_t element, const LocalTensor<float>& tile, uint32_t rows, const DataCopyParams& strides) {
        slot_ = (slot_ + 1) % Ub::OUT_SLOTS;
        LocalTensor<T> out = Sent();
        WaitFlag<HardEvent::MTE3_V>(slot_);
        ToNz<T>(out, tile, rows);
        SetFlag<HardEvent::V_MTE3>(slot_);
        WaitFlag<HardEvent::V_MTE3>(slot_);
        const uint32_t at = where.bytes + element * sizeof(T), count = strides.blockCount * (strides.blockLen + strides.dstStride) * GROUP;
        if constexpr (DIRECT)
            if (where.in_l1) DataCopy(LocalTensor<T>(TPosition::A1, at, count), out, strides);
        if (!where.in_l1) DataCopy(Room<T>(at, count), out, strides);
        SetFlag<HardEvent::MTE3_V>(slot_);
    }
    /// To this core's channels of a matrix of `rows` rows.
    __aicore__ inline void SendWhole(const Where& where, const LocalTensor<float>& tile, uint32_t rows) {
        Send(where, core_ * C * rows, tile, rows, DataCopyParams(1, C * rows / GROUP, 0, 0));
    }
    /// q's, or k's, to every other 16 rows.
    __aicore__ inline void SendRows(uint32_t n, const LocalTensor<float>& tile, uint32_t odd) {
        Send(Place(L1::ROWS, n, Sizes().rows), core_ * C * 2 * CHUNK + odd * SUB * GROUP, tile, CHUNK, DataCopyParams(GROUPS * SUBS, SUB, 0, SUB));
    }
    __aicore__ inline void SendColumns(uint32_t n, const LocalTensor<float>& tile, uint32_t i, uint32_t part) {
        SendWhole(Place(L1::Columns(n, i, part), n, (part ? Sizes().columns_low : Sizes().columns) + FirstColumnRow(i) * W * sizeof(T)), tile, (i + 1) * SUB);
    }
    /// A row as diagonal blocks, and their rests.
    __aicore__ inline void SendDecay(Where where, const LocalTensor<float>& row) {
        LocalTensor<float> blocks = Decay(), rest = Keys();
        WithRow<Do::Mul>(blocks, One(), row, SUB);
        PipeBarrier<PIPE_V>();
        SendWhole(where, blocks, SUB);
        if constexpr (!is_float) {
            Rest(rest, blocks, Sent(), SUB);
            where.bytes += SUB * W * sizeof(T);
            SendWhole(where, rest, SUB);
        }
    }
    /// The initial state to the workspace.
    __aicore__ inline void SendInitial(const KdaStep& step) {
        Where where = InRoom(step.n, Sizes().initial);
        const DataCopyParams strides(GROUPS, CHUNK, 0, W - CHUNK);
        for (uint32_t piece = 0; piece < W; piece += CHUNK) {
            Wait<HardEvent::V_MTE2>();
            DataCopyPad(Keys(), initial_[step.State() * W * W + piece * W + core_ * C], DataCopyExtParams(CHUNK, C * sizeof(float), (W - C) * sizeof(float), 0, 0), DataCopyPadExtParams<float>{});
            Wait<HardEvent::MTE2_V>();
            Send(where, core_ * C * W + piece * GROUP, Keys(), CHUNK, strides);
            if constexpr (!is_float) {
                Rest(Decay(), Keys(), Sent(), CHUNK);
                Send(where, W * W + core_ * C * W + piece * GROUP, Decay(), CHUNK, strides);
            }
        }
    }

    // ---- the inverse ----
    /// Of this core's diagonal blocks, side by side [SUB, 2 SUB]: A's triangles; and (I + b L)^-1 b of L's, by forward
    /// substitution on both at once. The cube gives -L, and both transposed.
    __aicore__ inline void Invert(const KdaStep& step) {
        CrossCoreWaitFlag(flag::SCORES);
        LocalTensor<float> a = At<float>(Ub::SCORES, BLOCKS), l = At<float>(Ub::SCORES + BLOCKS * 4, BLOCKS), inverse = At<float>(Ub::INVERSE, BLOCKS);
        LocalTensor<float> factors = At<float>(Ub::FACTORS, BLOCKS * 8), b = Strength(step.n)[core_ * 2 * SUB];
        if constexpr (!DIRECT) {
            Wait<HardEvent::V_MTE2>();
            DataCopy(At<float>(Ub::SCORES, 2 * BLOCKS), Room<float>(Sizes().scores + core_ * 2 * BLOCKS * 4, 2 * BLOCKS), 2 * BLOCKS);
        }
        Identity(inverse);
        if constexpr (!DIRECT) Wait<HardEvent::MTE2_V>();
        Select(a, Mask(0).ReinterpretCast<uint8_t>(), a, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, BLOCKS);
        Select(l, Mask(1).ReinterpretCast<uint8_t>(), l, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, BLOCKS);
        PipeBarrier<PIPE_V>();
        Mul(l, l, b, 2 * SUB, SUB, BinaryRepeatParams(1, 1, 1, 4, 4, 0));
        PipeBarrier<PIPE_V>();
        Brcb(factors, l, BLOCKS / 8, BrcbRepeatParams(1, 8));
        PipeBarrier<PIPE_V>();
        for (uint32_t s = 0; s + 1 < SUB; ++s) {
            // rows t > s: row t -= L[t, s] row s; two instructions, since a block's 16 columns are two blocks of 8
            for (uint32_t h = 0; h < 2; ++h)
                MulAddDst(inverse[(s + 1) * 2 * SUB + h * 8], factors[(s * 2 * SUB + s + 1) * 8], inverse[s * 2 * SUB + h * 8], SUB, SUB - 1 - s,
                          BinaryRepeatParams(2, SUB, 2, 4, 1, 0));
            PipeBarrier<PIPE_V>();
        }
        Mul(inverse, inverse, b, 2 * SUB, SUB, BinaryRepeatParams(1, 1, 1, 4, 4, 0));
        PipeBarrier<PIPE_V>();
        constexpr uint32_t BYTES = 2 * BLOCKS * sizeof(T);
        MakeBlocks<M>(inverse, Ub::DONE);
        MakeBlocks<T>(inverse, Ub::DONE + BYTES);
        MakeBlocks<T>(a, Ub::DONE + 2 * BYTES);
        Wait<HardEvent::V_MTE3>();
        if constexpr (L1::FROM_VECTOR)
            if (step.n > 0) CrossCoreWaitFlag(flag::INVERSE_USED);
        for (uint32_t part = 0; part < L1::PARTS; ++part) {
            const uint32_t at = Ub::DONE + part * BLOCKS * sizeof(T);
            if constexpr (L1::FROM_VECTOR) {
                constexpr uint32_t HALVES = 2 * L1::HALF * L1::HALF * sizeof(M), SQUARE = L1::SQUARE * sizeof(T);
                BringHalves<M>(InL1<M>(L1::PHALVES + part * HALVES)[core_ * L1::HALF * L1::HALF], At<M>(at, BLOCKS), 1);
                BringDiagonal<T>(InL1<T>(L1::PINVERSE + part * SQUARE), At<T>(at + BYTES, BLOCKS), core_ * 2, 2);
                BringDiagonal<T>(InL1<T>(L1::A(step.n) + part * SQUARE), At<T>(at + 2 * BYTES, BLOCKS), core_ * 2, 2);
            } else {
                for (uint32_t i = 0; i < 3; ++i) DataCopy(Room<T>(Sizes().blocks, 12 * BLOCKS)[((i * 2 + part) * 2 + core_) * BLOCKS], At<T>(at + i * BYTES, BLOCKS), BLOCKS);
            }
        }
        CrossCoreSetFlag<2, PIPE_MTE3>(flag::BLOCKS);
    }

    /// [SUB, 2 SUB] of floats as NZ of U and, behind it, what 16 bits leave of them.
    template <class U>
    __aicore__ inline static void MakeBlocks(const LocalTensor<float>& a, uint32_t ub) {
        LocalTensor<U> done = At<U>(ub, 2 * BLOCKS);
        ToNz<U>(done, a, SUB, 2 * SUB);
        if constexpr (sizeof(U) == 2) {
            LocalTensor<float> rest = At<float>(Ub::REST, BLOCKS);
            Rest(rest, a, done, SUB, 2 * SUB);
            ToNz<U>(done[BLOCKS], rest, SUB, 2 * SUB);
        }
    }
    template <class U>
    __aicore__ inline static LocalTensor<U> InL1(uint32_t bytes) {
        return LocalTensor<U>(TPosition::A1, bytes, L1::SQUARE);
    }

    __aicore__ inline static constexpr KdaRoom Sizes() { return KdaRoom(W, sizeof(T), sizeof(M)); }

    /// `count` elements of the workspace from a byte on.
    template <class U>
    __aicore__ inline GlobalTensor<U> Room(uint32_t bytes, uint32_t count) const {
        GlobalTensor<U> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ U*>(room_ + bytes), count);
        return out;
    }

    KdaTiling tiling_;
    GlobalTensor<T> q_, k_, g_;
    GlobalTensor<B> beta_;
    GlobalTensor<float> A_log_, dt_bias_, initial_, final_;
    GlobalTensor<int64_t> offsets_;
    GM_ADDR room_;
    float slope_ = 0;
    uint32_t core_ = 0, slot_ = 0;
};

}  // namespace ascend_k3
