// The vector cores' part of a chunk: operands of the products, the inverse of the diagonal blocks, the state.
#pragma once

#include "block.h"

namespace ascend_k3 {

/// T of q, k, v and g, B of beta, W key and value channels.
template <class T, class B, uint32_t W>
class KdaVector {
    static constexpr bool is_float = std::is_same_v<T, float>;
    static constexpr uint32_t LANES = 64, HALVES = W / LANES;             // float lanes of an instruction
    static constexpr uint32_t LINE = W * sizeof(float) / 32;              // blocks of a row of floats
    static constexpr uint32_t TILE = SUB * W;                             // elements of a sub-chunk
    static constexpr uint32_t GROUP = 32 / sizeof(T), GROUPS = W / GROUP; // columns of an NZ group, groups
    static constexpr uint32_t BETA_GROUP = 32 / sizeof(B);
    static constexpr uint32_t SLOTS = KdaUb<T, W>::SLOTS, PIECE = 32;     // buffers on their way out; rows of the state at a time
    static constexpr int32_t INPUTS_IN = 2;                               // event MTE2_V; 0 and 1 are of Update
    using M = Merged<T>;

    using Ub = KdaUb<T, W>;
    using L1 = KdaL1<T, W>;
    // the inverse works where keys and work are between two chunks
    static constexpr uint32_t SCORES = DIRECT ? Ub::SCORES : Ub::KEYS, INVERSE = Ub::KEYS + 8192, DONE = Ub::KEYS + 12288;

   public:
    __aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets, GM_ADDR initial,
                               GM_ADDR final, GM_ADDR workspace, const KdaTiling& tiling) {
        tiling_ = tiling;
        const uint64_t elements = static_cast<uint64_t>(tiling.tokens) * tiling.heads * W;
        const uint64_t states = static_cast<uint64_t>(tiling.sequences) * tiling.heads * W * W;
        q_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(q), elements);
        k_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(k), elements);
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(v), elements);
        g_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(g), elements);
        beta_.SetGlobalBuffer(reinterpret_cast<__gm__ B*>(beta), elements / W);
        A_log_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(A_log), tiling.heads);
        dt_bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(dt_bias), static_cast<uint64_t>(tiling.heads) * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        initial_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(initial), tiling.has_initial ? states : 0);
        final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(final), states);
        room_ = workspace + (GetBlockIdx()) * tiling.room;  // two vector cores a block
        Constants();
        for (uint32_t slot = 0; slot < SLOTS; ++slot) SetFlag<HardEvent::MTE3_V>(slot);
        for (int64_t index = GetBlockIdx() / 2; index < tiling.pairs; index += GetBlockNum()) {
            const KdaPair pair(tiling, offsets_, index);
            if (GetSubBlockIdx() < pair.heads)
                Head(pair, pair.head + GetSubBlockIdx());
            else
                Idle(pair.chunks);
        }
        for (uint32_t slot = 0; slot < SLOTS; ++slot) WaitFlag<HardEvent::MTE3_V>(slot);
    }

   private:
    // ---- UB ----
    template <class U>
    __aicore__ inline static LocalTensor<U> At(uint32_t bytes, uint32_t count) {
        return LocalTensor<U>(TPosition::VECCALC, bytes, count);
    }
    __aicore__ inline static LocalTensor<float> Work(uint32_t i) { return At<float>(Ub::WORK + i * TILE * 4, TILE); }
    __aicore__ inline static LocalTensor<T> Input(uint32_t i) {
        if constexpr (is_float)
            return Work(i);
        else
            return At<T>(Ub::IN + i * TILE * 2, TILE);
    }
    __aicore__ inline static LocalTensor<float> Row(uint32_t i) { return At<float>(Ub::ROWS + i * W * 4, W); }
    enum : uint32_t { BIAS, ANCHOR, MIDDLE, LAST_MIDDLE, FROM_START, STEP, DECAY, CHANGED = DECAY + 2 };  // rows; DECAY and CHANGED of two chunks
    // small things, in bytes from SMALL on
    __aicore__ inline static LocalTensor<float> Bound() { return At<float>(Ub::SMALL, 64); }                 // lower_bound
    __aicore__ inline static LocalTensor<float> Numerator() { return At<float>(Ub::SMALL + 256, 32); }       // scale, then ones
    __aicore__ inline static LocalTensor<float> Sums() { return At<float>(Ub::SMALL + 384, 32); }
    __aicore__ inline static LocalTensor<float> Strength() { return At<float>(Ub::SMALL + 512, 32); }        // b, then -b
    __aicore__ inline static LocalTensor<float> OfNorms() { return At<float>(Ub::SMALL + 640, 256); }        // [32][8]
    __aicore__ inline static LocalTensor<float> OfStrength() { return At<float>(Ub::SMALL + 1664, 256); }    // [32][8]
    __aicore__ inline static LocalTensor<B> Beta() { return At<B>(Ub::SMALL + 2688, SUB * BETA_GROUP); }
    __aicore__ inline static LocalTensor<float> BetaFloat() { return At<float>(Ub::SMALL + 3200, SUB * BETA_GROUP); }
    __aicore__ inline static LocalTensor<uint16_t> Mask(uint32_t i) { return At<uint16_t>(Ub::SMALL + 4224 + i * 128, 64); }  // i <= t, i < t, i == t
    __aicore__ inline static LocalTensor<float> Gate() { return At<float>(Ub::SMALL + 4608, 8); }

    template <HardEvent event>
    __aicore__ inline static void Wait() { Order<event>(); }

    // ---- instructions on tiles [rows, W] of floats ----
    enum class Do { Add, Sub, Mul, MulAdd };
    /// to = a op row, the same row for all; MulAdd: to = to + a row.
    template <Do op>
    __aicore__ inline static void WithRow(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& row, uint32_t rows) {
        const BinaryRepeatParams strides(1, 1, 1, LINE, LINE, 0);
        for (uint32_t h = 0; h < W; h += LANES) {
            if constexpr (op == Do::Add) Add(to[h], a[h], row[h], LANES, rows, strides);
            if constexpr (op == Do::Sub) Sub(to[h], a[h], row[h], LANES, rows, strides);
            if constexpr (op == Do::Mul) Mul(to[h], a[h], row[h], LANES, rows, strides);
            if constexpr (op == Do::MulAdd) MulAddDst(to[h], a[h], row[h], LANES, rows, strides);
        }
    }
    /// to = a times one number a row, given as blocks of eight of it.
    __aicore__ inline static void ScaleRows(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& numbers, uint32_t rows) {
        for (uint32_t h = 0; h < W; h += LANES) Mul(to[h], a[h], numbers, LANES, rows, BinaryRepeatParams(1, 1, 0, LINE, LINE, 1));
    }
    /// NZ [rows, W] of U = a.
    template <class U>
    __aicore__ inline static void ToNz(const LocalTensor<U>& to, const LocalTensor<float>& a, uint32_t rows) {
        for (uint32_t h = 0; h < W; h += LANES) {
            if constexpr (std::is_same_v<U, float>)
                Copy(to[h * rows], a[h], LANES, rows, CopyRepeatParams(rows, 1, 1, LINE));
            else
                Cast(to[h * rows], a[h], RoundMode::CAST_RINT, LANES, rows, UnaryRepeatParams(rows, 1, 1, LINE));
        }
    }

    // ---- constants ----
    __aicore__ inline void Constants() {
        Duplicate(Bound(), tiling_.lower_bound, 64);
        Duplicate(Numerator(), tiling_.scale, 16);
        Duplicate(Numerator()[16], 1.0f, 16);
        for (uint32_t t = 0; t < SUB; ++t)
            for (uint32_t block = 0; block < SUBS; ++block) {
                Mask(0).SetValue(t * SUBS + block, static_cast<uint16_t>((2u << t) - 1));
                Mask(1).SetValue(t * SUBS + block, static_cast<uint16_t>((1u << t) - 1));
                Mask(2).SetValue(t * SUBS + block, static_cast<uint16_t>(1u << t));
            }
        Wait<HardEvent::S_V>();
        constexpr uint32_t COUNT = SUB * CHUNK;
        LocalTensor<float> one = At<float>(INVERSE, COUNT);
        LocalTensor<M> minus_merged = At<M>(DONE, COUNT);
        LocalTensor<T> minus = At<T>(DONE + COUNT * sizeof(M), COUNT);
        Identity(one);
        Muls(one, one, -1.0f, COUNT);
        PipeBarrier<PIPE_V>();
        Blocks<M>(minus_merged, one);
        Blocks<T>(minus, one);
        Wait<HardEvent::V_MTE3>();
        DataCopy(Room<M>(Sizes().minus, COUNT), minus_merged, COUNT);
        DataCopy(Room<T>(Sizes().minus + COUNT * sizeof(M), COUNT), minus, COUNT);
        Wait<HardEvent::MTE3_V>();
    }

    __aicore__ inline void Identity(const LocalTensor<float>& to) {
        Duplicate(to, 1.0f, SUB * CHUNK);
        PipeBarrier<PIPE_V>();
        Select(to, Mask(2).ReinterpretCast<uint8_t>(), to, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, SUB * CHUNK);
        PipeBarrier<PIPE_V>();
    }

    /// What a head has once: its bias and exp(A_log).
    __aicore__ inline void Parameters(uint32_t head) {
        Wait<HardEvent::V_MTE2>();
        DataCopy(Row(BIAS), dt_bias_[static_cast<uint64_t>(head) * W], W);
        DataCopyPad(Gate(), A_log_[head], DataCopyExtParams{1, sizeof(float), 0, 0, 0}, DataCopyPadExtParams<float>{});
        Wait<HardEvent::MTE2_V>();
        Exp(Gate(), Gate(), 1);
        Wait<HardEvent::V_S>();
        slope_ = -Gate().GetValue(0);
        Wait<HardEvent::S_V>();
    }

    // ---- a head of a sequence ----
    __aicore__ inline void Head(const KdaPair& pair, uint32_t head) {
        Parameters(head);
        const uint64_t state = (static_cast<uint64_t>(pair.sequence) * tiling_.heads + head) * W * W;
        Begin(state);
        if (pair.chunks) SendState();
        if constexpr (!is_float)
            if (pair.chunks) Request(pair, head, 0);
        for (uint32_t chunk = 0; chunk < pair.chunks; ++chunk) {
            if (chunk == 0) Prepare(pair, head, 0);
            Invert(chunk % 2);
            if (chunk + 1 < pair.chunks) Prepare(pair, head, chunk + 1);
            Update(chunk % 2, chunk + 1 < pair.chunks);
        }
        Wait<HardEvent::V_MTE3>();
        DataCopy(final_[state], At<float>(Ub::STATE, W * W), W * W);
        Wait<HardEvent::MTE3_V>();
    }

    /// The other vector core has the last head of an odd number: only the flags.
    __aicore__ inline void Idle(uint32_t chunks) {
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
            CrossCoreSetFlag<2, PIPE_MTE3>(flag::STATE);
            for (uint32_t part = 0; part < 2; ++part) CrossCoreSetFlag<2, PIPE_MTE3>(flag::OPERANDS);
            CrossCoreWaitFlag(flag::SCORES);
            CrossCoreSetFlag<2, PIPE_MTE3>(flag::DIAGONAL);
            CrossCoreWaitFlag(flag::CHANGE);
        }
    }

    __aicore__ inline void Begin(uint64_t state) {
        LocalTensor<float> s = At<float>(Ub::STATE, W * W);
        if (tiling_.has_initial) {
            DataCopy(s, initial_[state], W * W);
            Wait<HardEvent::MTE2_V>();
        } else {
            Duplicate(s, 0.0f, W * W);
            PipeBarrier<PIPE_V>();
        }
    }

    /// The operands of a chunk's products, sub-chunk by sub-chunk, to global memory.
    __aicore__ inline void Prepare(const KdaPair& pair, uint32_t head, uint32_t chunk) {
        GlobalTensor<T> slot = Room<T>((chunk % 2) * Sizes().operands, Sizes().operands / sizeof(T));
        Duplicate(Row(ANCHOR), 0.0f, W);
        for (uint32_t i = 0; i < SUBS; ++i) {
            Receive(pair, head, chunk * SUBS + i);
            Norms();
            Decays(FilledOf(pair, chunk * SUBS + i));
            Operands(slot, i);
            if (i == SUBS - 2) CrossCoreSetFlag<2, PIPE_MTE3>(flag::OPERANDS);
        }
        // exp(G_end) decays the state; exp(G_end - middle) what comes out of the last middle
        Exp(Row(DECAY + chunk % 2), Row(ANCHOR), W);
        Sub(Row(CHANGED + chunk % 2), Row(ANCHOR), Row(LAST_MIDDLE), W);
        PipeBarrier<PIPE_V>();
        Exp(Row(CHANGED + chunk % 2), Row(CHANGED + chunk % 2), W);
        CrossCoreSetFlag<2, PIPE_MTE3>(flag::OPERANDS);
    }

    enum : uint32_t { Q, K, G, V };

    /// Asks for q, k, g, v and beta of a sub-chunk; rows without a token are zero.
    __aicore__ inline void Request(const KdaPair& pair, uint32_t head, uint32_t sub) {
        const uint32_t filled = FilledOf(pair, sub);
        if (filled < SUB) {
            for (uint32_t i = 0; i < 4; ++i) Duplicate(Input(i).template ReinterpretCast<uint16_t>(), uint16_t(0), TILE * sizeof(T) / 2);
            Duplicate(Beta().template ReinterpretCast<uint16_t>(), uint16_t(0), SUB * 16);
        }
        Wait<HardEvent::V_MTE2>();
        if (filled > 0) {
            const DataCopyExtParams rows(filled, W * sizeof(T), (tiling_.heads - 1) * W * sizeof(T), 0, 0);
            const uint64_t row = (static_cast<uint64_t>(pair.first_token) + sub * SUB) * tiling_.heads + head;
            DataCopyPad(Input(Q), q_[row * W], rows, DataCopyPadExtParams<T>{});
            DataCopyPad(Input(K), k_[row * W], rows, DataCopyPadExtParams<T>{});
            DataCopyPad(Input(G), g_[row * W], rows, DataCopyPadExtParams<T>{});
            DataCopyPad(Input(V), v_[row * W], rows, DataCopyPadExtParams<T>{});
            DataCopyPad(Beta(), beta_[row], DataCopyExtParams(filled, sizeof(B), (tiling_.heads - 1) * sizeof(B), 0, 0), DataCopyPadExtParams<B>{true, 0, BETA_GROUP - 1, B(0)});
        }
        SetFlag<HardEvent::MTE2_V>(INPUTS_IN);
    }

    /// Takes them as floats into work 0 to 3. Inputs of 16 bits have room of their own, which the next ones then fill.
    __aicore__ inline void Receive(const KdaPair& pair, uint32_t head, uint32_t sub) {
        if constexpr (is_float) Request(pair, head, sub);
        WaitFlag<HardEvent::MTE2_V>(INPUTS_IN);
        if constexpr (!is_float)
            for (uint32_t i = 0; i < 4; ++i) Cast(Work(i), Input(i), RoundMode::CAST_NONE, TILE);
        if constexpr (std::is_same_v<B, float>)
            Adds(BetaFloat(), Beta(), 0.0f, SUB * BETA_GROUP);
        else
            Cast(BetaFloat(), Beta(), RoundMode::CAST_NONE, SUB * BETA_GROUP);
        PipeBarrier<PIPE_V>();
        if constexpr (!is_float)
            if (sub + 1 < pair.chunks * SUBS) Request(pair, head, sub + 1);
    }

    __aicore__ inline static uint32_t FilledOf(const KdaPair& pair, uint32_t sub) {
        const uint32_t before = sub * SUB;
        return pair.tokens <= before ? 0 : pair.tokens - before < SUB ? pair.tokens - before : SUB;
    }

    /// q <- scale q / |q|, k <- k / |k|, and b = sigmoid(beta). Work 2 (g) and 3 (v) stay; the out slots are scratch.
    __aicore__ inline void Norms() {
        LocalTensor<float> squares = At<float>(Ub::SCRATCH, TILE);
        for (uint32_t i = Q; i <= K; ++i) {
            Mul(squares, Work(i), Work(i), TILE);
            PipeBarrier<PIPE_V>();
            if constexpr (HALVES == 2) {
                Add(squares, squares, squares[LANES], LANES, SUB, BinaryRepeatParams(1, 1, 1, LINE, LINE, LINE));
                PipeBarrier<PIPE_V>();
            }
            WholeReduceSum(Sums()[i * SUB], squares, LANES, SUB, 1, 1, LINE);
            PipeBarrier<PIPE_V>();
        }
        Adds(Sums(), Sums(), 1e-6f, 2 * SUB);
        WholeReduceSum(Strength(), BetaFloat(), BETA_GROUP, SUB, 1, 1, BETA_GROUP * sizeof(float) / 32);
        PipeBarrier<PIPE_V>();
        Sqrt(Sums(), Sums(), 2 * SUB);
        Muls(Strength(), Strength(), -1.0f, SUB);
        PipeBarrier<PIPE_V>();
        Div(Sums(), Numerator(), Sums(), 2 * SUB);
        Exp(Strength(), Strength(), SUB);
        PipeBarrier<PIPE_V>();
        Brcb(OfNorms(), Sums(), 4, BrcbRepeatParams(1, 8));
        Adds(Strength(), Strength(), 1.0f, SUB);
        PipeBarrier<PIPE_V>();
        Div(Strength(), Numerator()[16], Strength(), SUB);
        ScaleRows(Work(Q), Work(Q), OfNorms(), SUB);
        ScaleRows(Work(K), Work(K), OfNorms()[SUB * 8], SUB);
        PipeBarrier<PIPE_V>();
        Muls(Strength()[SUB], Strength(), -1.0f, SUB);
        PipeBarrier<PIPE_V>();
        Brcb(OfStrength(), Strength(), 4, BrcbRepeatParams(1, 8));
    }

    /// Work 2 <- the sum of the log decays since the start of the sub-chunk; the rows of exponents that follow from it.
    __aicore__ inline void Decays(uint32_t filled) {
        LocalTensor<float> g = Work(G);
        WithRow<Do::Add>(g, g, Row(BIAS), SUB);
        PipeBarrier<PIPE_V>();
        Muls(g, g, slope_, TILE);
        PipeBarrier<PIPE_V>();
        Exp(g, g, TILE);
        PipeBarrier<PIPE_V>();
        Adds(g, g, 1.0f, TILE);
        PipeBarrier<PIPE_V>();
        Div(g, Bound(), g, LANES, TILE / LANES, BinaryRepeatParams(1, 1, 1, 8, 0, 8));
        PipeBarrier<PIPE_V>();
        if (filled < SUB) {
            Duplicate(g[filled * W], 0.0f, (SUB - filled) * W);
            PipeBarrier<PIPE_V>();
        }
        // the second half of every 2, 4, 8 and 16 rows gets the last row of the first
        for (uint32_t half = 1; half < SUB; half *= 2) {
            const uint8_t stride = 2 * half * LINE;
            for (uint32_t r = 0; r < (half < SUB / 2 ? half : 1); ++r)
                for (uint32_t h = 0; h < W; h += LANES) {
                    LocalTensor<float> rows = g[(half + r) * W + h], last = g[(half - 1) * W + h];
                    if (half < SUB / 2)
                        Add(rows, rows, last, LANES, SUB / (2 * half), BinaryRepeatParams(1, 1, 1, stride, stride, stride));
                    else
                        Add(rows, rows, last, LANES, half, BinaryRepeatParams(1, 1, 1, LINE, LINE, 0));
                }
            PipeBarrier<PIPE_V>();
        }
    }

    /// What the products need of a sub-chunk. Exponents are taken from its middle token on: none exceeds 8 tokens' decay.
    __aicore__ inline void Operands(const GlobalTensor<T>& slot, uint32_t i) {
        const KdaRoom sizes = Sizes();
        LocalTensor<float> q = Work(Q), k = Work(K), v = Work(V), decay = At<float>(Ub::SCRATCH, TILE), keys = At<float>(Ub::KEYS, CHUNK * W);
        LocalTensor<float> middle = Work(G)[(SUB / 2 - 1) * W];
        WithRow<Do::Sub>(decay, Work(G), middle, SUB);
        Add(Row(MIDDLE), Row(ANCHOR), middle, W);
        PipeBarrier<PIPE_V>();
        Exp(decay, decay, TILE);
        Exp(Row(FROM_START), Row(MIDDLE), W);
        if (i > 0) Sub(Row(STEP), Row(MIDDLE), Row(LAST_MIDDLE), W);
        Add(Row(ANCHOR), Row(ANCHOR), Work(G)[(SUB - 1) * W], W);
        PipeBarrier<PIPE_V>();
        if (i > 0) Exp(Row(STEP), Row(STEP), W);
        Adds(Row(LAST_MIDDLE), Row(MIDDLE), 0.0f, W);
        Div(keys[i * TILE], k, decay, TILE);
        Mul(q, q, decay, TILE);
        ScaleRows(k, k, OfStrength()[SUB * 8], SUB);
        ScaleRows(v, v, OfStrength(), SUB);
        PipeBarrier<PIPE_V>();
        Mul(k, k, decay, TILE);
        if (i > 0) WithRow<Do::Mul>(keys, keys, Row(STEP), i * SUB);
        PipeBarrier<PIPE_V>();
        Send(slot, sizes.rows, 2 * CHUNK, 2 * i * SUB, q);
        Send(slot, sizes.rows, 2 * CHUNK, (2 * i + 1) * SUB, k);
        Send(slot, sizes.v, CHUNK, i * SUB, v);
        for (uint32_t j = 0; j <= i; ++j) {
            Send(slot, sizes.columns + FirstColumnRow(i) * W * sizeof(T), (i + 1) * SUB, j * SUB, keys[j * TILE]);
            if constexpr (!is_float) {
                PipeBarrier<PIPE_V>();
                Rest(decay, keys[j * TILE]);
                Send(slot, sizes.columns_low + FirstColumnRow(i) * W * sizeof(T), (i + 1) * SUB, j * SUB, decay);
            }
        }
        WithRow<Do::Mul>(q, q, Row(FROM_START), SUB);
        WithRow<Do::Mul>(k, k, Row(FROM_START), SUB);
        PipeBarrier<PIPE_V>();
        Send(slot, sizes.q_decayed, CHUNK, i * SUB, q);
        Send(slot, sizes.k_decayed, CHUNK, i * SUB, k);
    }

    /// A tile to rows `row` and following of an NZ matrix of `rows` rows that begins `bytes` into the slot.
    __aicore__ inline void Send(const GlobalTensor<T>& slot, uint32_t bytes, uint32_t rows, uint32_t row, const LocalTensor<float>& tile) {
        slot_ = (slot_ + 1) % SLOTS;
        LocalTensor<T> out = At<T>(Ub::OUT + slot_ * TILE * sizeof(T), TILE);
        WaitFlag<HardEvent::MTE3_V>(slot_);
        ToNz<T>(out, tile, SUB);
        SetFlag<HardEvent::V_MTE3>(slot_);
        WaitFlag<HardEvent::V_MTE3>(slot_);
        DataCopy(slot[bytes / sizeof(T) + row * GROUP], out, DataCopyParams(GROUPS, SUB, 0, rows - SUB));
        SetFlag<HardEvent::MTE3_V>(slot_);
    }

    /// What the tile that Send has just cast has lost.
    __aicore__ inline void Rest(const LocalTensor<float>& to, const LocalTensor<float>& tile) {
        LocalTensor<T> sent = At<T>(Ub::OUT + slot_ * TILE * sizeof(T), TILE);
        for (uint32_t h = 0; h < W; h += LANES) Cast(to[h], sent[h * SUB], RoundMode::CAST_NONE, LANES, SUB, UnaryRepeatParams(1, SUB, LINE, 1));
        PipeBarrier<PIPE_V>();
        Sub(to, tile, to, TILE);
        PipeBarrier<PIPE_V>();
    }

    /// Diagonal blocks, side by side [SUB, CHUNK]: A's lower triangle; and (I + L)^-1 of L's, by forward substitution on
    /// all four at once. The cube gives -L.
    __aicore__ inline void Invert(uint32_t parity) {
        CrossCoreWaitFlag(flag::SCORES);
        constexpr uint32_t COUNT = SUB * CHUNK;
        LocalTensor<float> a = At<float>(SCORES, COUNT), l = At<float>(SCORES + COUNT * 4, COUNT), inverse = At<float>(INVERSE, COUNT);
        LocalTensor<float> factors = At<float>(Ub::WORK, COUNT * 8);
        GlobalTensor<float> scores = Room<float>(Sizes().scores, 2 * COUNT);
        if constexpr (!DIRECT) {
            Wait<HardEvent::V_MTE2>();
            DataCopy(a, scores, COUNT);
            DataCopy(l, scores[COUNT], COUNT);
        }
        Identity(inverse);
        if constexpr (!DIRECT) Wait<HardEvent::MTE2_V>();
        Select(a, Mask(0).ReinterpretCast<uint8_t>(), a, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, COUNT);
        Select(l, Mask(1).ReinterpretCast<uint8_t>(), l, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, COUNT);
        PipeBarrier<PIPE_V>();
        Brcb(factors, l, COUNT / 8, BrcbRepeatParams(1, 8));
        PipeBarrier<PIPE_V>();
        for (uint32_t s = 0; s + 1 < SUB; ++s) {
            // rows t > s: row t -= L[t, s] row s; two instructions, since a block's 16 columns are two blocks of 8
            for (uint32_t h = 0; h < 2; ++h)
                MulAddDst(inverse[(s + 1) * CHUNK + h * 8], factors[((s + 1) * CHUNK + s) * 8], inverse[s * CHUNK + h * 8], CHUNK / 2, SUB - 1 - s,
                          BinaryRepeatParams(2, SUB, 2, CHUNK / 8, CHUNK, 0));
            PipeBarrier<PIPE_V>();
        }
        constexpr uint32_t MERGED = 2 * COUNT * sizeof(M), OPERAND = 2 * COUNT * sizeof(T);
        MakeBlocks<M>(inverse, l, DONE);
        MakeBlocks<T>(inverse, l, DONE + MERGED);
        MakeBlocks<T>(a, l, DONE + MERGED + OPERAND);
        Wait<HardEvent::V_MTE3>();
        if constexpr (L1::FROM_VECTOR) {
            for (uint32_t part = 0; part < 2; ++part) {
                BringHalf<M>(InL1<M>(L1::PMERGED + part * MERGED, 2 * COUNT), At<M>(DONE + part * COUNT * sizeof(M), COUNT), 2);
                BringDiagonal<T>(InL1<T>(L1::PSOLUTION + part * CHUNK * CHUNK * sizeof(T), CHUNK * CHUNK), At<T>(DONE + MERGED + part * COUNT * sizeof(T), COUNT));
                BringDiagonal<T>(InL1<T>(L1::PA + (parity * 2 + part) * CHUNK * CHUNK * sizeof(T), CHUNK * CHUNK),
                                 At<T>(DONE + MERGED + OPERAND + part * COUNT * sizeof(T), COUNT));
            }
        } else {
            static_assert(sizeof(M) == sizeof(T), "three matrices, and in 16 bits their rests, in a row");
            GlobalTensor<T> to = Room<T>(Sizes().diagonal, 6 * COUNT);
            for (uint32_t i = 0; i < 3; ++i) DataCopy(to[i * 2 * COUNT], At<T>(DONE + i * OPERAND, 2 * COUNT), is_float ? COUNT : 2 * COUNT);
        }
        Wait<HardEvent::MTE3_V>();
        CrossCoreSetFlag<2, PIPE_MTE3>(flag::DIAGONAL);
    }

    /// [SUB, CHUNK] of floats to NZ of U.
    template <class U>
    __aicore__ inline static void Blocks(const LocalTensor<U>& to, const LocalTensor<float>& a) {
        if constexpr (std::is_same_v<U, float>)
            Copy(to, a, LANES, SUB, CopyRepeatParams(SUB, 1, 1, CHUNK / 8));
        else
            Cast(to, a, RoundMode::CAST_RINT, LANES, SUB, UnaryRepeatParams(SUB, 1, 1, CHUNK / 8));
    }

    /// [SUB, CHUNK] of floats as NZ of U and, behind it, what 16 bits leave of them.
    template <class U>
    __aicore__ inline static void MakeBlocks(const LocalTensor<float>& a, const LocalTensor<float>& scratch, uint32_t ub) {
        constexpr uint32_t COUNT = SUB * CHUNK;
        LocalTensor<U> done = At<U>(ub, 2 * COUNT);
        Blocks<U>(done, a);
        if constexpr (sizeof(U) == 2) {
            PipeBarrier<PIPE_V>();
            Cast(scratch, done, RoundMode::CAST_NONE, LANES, SUB, UnaryRepeatParams(1, SUB, CHUNK / 8, 1));
            PipeBarrier<PIPE_V>();
            Sub(scratch, a, scratch, COUNT);
            PipeBarrier<PIPE_V>();
            Blocks<U>(done[COUNT], scratch);
        }
    }
    /// A matrix of this core's head in L1.
    template <class U>
    __aicore__ inline static LocalTensor<U> InL1(uint32_t bytes, uint32_t count) {
        return LocalTensor<U>(TPosition::A1, L1::Of(GetSubBlockIdx(), bytes), count);
    }

    /// S <- exp(G_end) S + what the chunk adds; and S to the cube, if another chunk follows.
    __aicore__ inline void Update(uint32_t parity, bool more) {
        WithRow<Do::Mul>(At<float>(Ub::STATE, W * W), At<float>(Ub::STATE, W * W), Row(DECAY + parity), W);
        CrossCoreWaitFlag(flag::CHANGE);
        if constexpr (DIRECT)
            WithRow<Do::MulAdd>(At<float>(Ub::STATE, W * W), At<float>(Ub::CHANGE, W * W), Row(CHANGED + parity), W);
        else
            AddFromRoom(parity);
        PipeBarrier<PIPE_V>();
        if (more) SendState();
    }

    /// The change comes through the workspace, in pieces.
    __aicore__ inline void AddFromRoom(uint32_t parity) {
        GlobalTensor<float> change = Room<float>(Sizes().change, W * W);
        Wait<HardEvent::V_MTE2>();
        for (uint32_t piece = 0; piece < W / PIECE; ++piece) {
            const uint32_t half = piece % 2;
            LocalTensor<float> s = At<float>(Ub::STATE + piece * PIECE * W * 4, PIECE * W), added = At<float>(Ub::KEYS + half * PIECE * W * 4, PIECE * W);
            if (piece >= 2) WaitFlag<HardEvent::V_MTE2>(half);
            DataCopy(added, change[piece * PIECE * W], PIECE * W);
            SetFlag<HardEvent::MTE2_V>(half);
            WaitFlag<HardEvent::MTE2_V>(half);
            WithRow<Do::MulAdd>(s, added, Row(CHANGED + parity), PIECE);
            if (piece + 2 < W / PIECE) SetFlag<HardEvent::V_MTE2>(half);
        }
    }

    __aicore__ inline void SendState() {
        GlobalTensor<T> to = Room<T>(Sizes().state, W * W);
        for (uint32_t piece = 0; piece < W / PIECE; ++piece) {
            const uint32_t half = piece % 2, id = SLOTS + half;
            LocalTensor<T> out = At<T>(Ub::WORK + half * 16 * 1024, PIECE * W);
            if (piece >= 2) WaitFlag<HardEvent::MTE3_V>(id);
            ToNz<T>(out, At<float>(Ub::STATE + piece * PIECE * W * 4, PIECE * W), PIECE);
            SetFlag<HardEvent::V_MTE3>(id);
            WaitFlag<HardEvent::V_MTE3>(id);
            const DataCopyParams strides(GROUPS, PIECE, 0, W - PIECE);
            if constexpr (L1::FROM_VECTOR)
                DataCopy(InL1<T>(L1::STATE, W * W)[piece * PIECE * GROUP], out, strides);
            else
                DataCopy(to[piece * PIECE * GROUP], out, strides);
            if (piece + 2 < W / PIECE) SetFlag<HardEvent::MTE3_V>(id);
        }
        Wait<HardEvent::MTE3_V>();
        CrossCoreSetFlag<2, PIPE_MTE3>(flag::STATE);
    }

    __aicore__ inline static constexpr KdaRoom Sizes() { return KdaRoom(W, sizeof(T), sizeof(M)); }

    /// `count` elements of this head's workspace from a byte on.
    template <class U>
    __aicore__ inline GlobalTensor<U> Room(uint32_t bytes, uint32_t count) const {
        GlobalTensor<U> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ U*>(room_ + bytes), count);
        return out;
    }

    KdaTiling tiling_;
    GlobalTensor<T> q_, k_, v_, g_;
    GlobalTensor<B> beta_;
    GlobalTensor<float> A_log_, dt_bias_, initial_, final_;
    GlobalTensor<int64_t> offsets_;
    GM_ADDR room_;
    float slope_ = 0;
    uint32_t slot_ = 0;
};

}  // namespace ascend_k3
