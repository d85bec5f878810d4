// The gradient, the vector cores' part: operands again, masks and the inverse, and what the products' gradients become.
#pragma once

#include "backward_block.h"
#include "gates.h"

namespace ascend_k3 {

/// What the vector cores read and write of global memory, beside what KdaGates reads.
struct KdaGradients {
    GM_ADDR v;
    GM_ADDR g;
    GM_ADDR initial;
    GM_ADDR do_;
    GM_ADDR dfinal;
    GM_ADDR dq;
    GM_ADDR dk;
    GM_ADDR dv;
    GM_ADDR dg;
    GM_ADDR dbeta;
    GM_ADDR dA_log;
    GM_ADDR ddt_bias;
    GM_ADDR dinitial;
};

/// T of q, k, v and g, B of beta, W key and value channels.
template <class T, class B, uint32_t W>
class KdaGradientVector : KdaGates<T, B, W, KdaGradientUb<T, W>> {
    using Ub = KdaGradientUb<T, W>;
    using Base = KdaGates<T, B, W, Ub>;
    using Base::C, Base::LINE, Base::TILE, Base::BETA_GROUP, Base::is_float, Base::Q, Base::K, Base::G, Base::BIAS, Base::ANCHOR, Base::MIDDLE, Base::FROM_STATE, Base::STEP;
    using Base::Work, Base::Keys, Base::Decay, Base::Row, Base::Strength, Base::Sums, Base::OfNorms, Base::Bound, Base::Input, Base::ScaleRows;
    using Base::tiling_, Base::offsets_, Base::core_, Base::slope_;
    using Do = typename Base::Do;
    static constexpr KdaGradientRoom ROOM{W};
    static constexpr uint32_t SQUARE = Ub::SQUARE, PIECE = CHUNK;  // PIECE: rows of a state at a time
    enum : uint32_t { END = STEP + SUBS - 1, DEND, DBIAS, DA, SCRATCH };

   public:
    __aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets, const KdaGradients& memory,
                               GM_ADDR workspace, const KdaTiling& tiling) {
        Base::Begin(q, k, g, beta, A_log, dt_bias, offsets, workspace, ROOM.sums, tiling);
        memory_ = memory;
        Constants();
        Empty();
        const KdaHeads heads(tiling_, offsets_);
        for (KdaStep step = heads.First(); step.exists; step = heads.Next(step)) Head(step);
        Base::End();
    }

   private:
    template <class U>
    __aicore__ inline static LocalTensor<U> At(uint32_t bytes, uint32_t count) {
        return Base::template At<U>(bytes, count);
    }
    template <HardEvent event>
    __aicore__ inline static void Wait() {
        Order<event>();
    }
    template <Do op>
    __aicore__ inline static void WithRow(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& row, uint32_t rows) {
        Base::template WithRow<op>(to, a, row, rows);
    }
    /// One of three tiles, each as large as a square.
    __aicore__ inline static LocalTensor<float> Spare(uint32_t i) { return At<float>(Ub::SPARE + i * SQUARE * 4, SQUARE); }
    /// [CHUNK, CHUNK] bits i >= s and i > s; [2 SUB, 2 SUB] i == s.
    __aicore__ inline static LocalTensor<uint16_t> Mask(uint32_t i) { return At<uint16_t>(Ub::MASKS + i * CHUNK * 8, CHUNK * 4); }
    __aicore__ inline static LocalTensor<float> Factors(uint32_t i) { return At<float>(Ub::FACTORS + i * CHUNK * 32, CHUNK * 8); }
    /// Sums over channels of a chunk's tokens: q dq, k dk, and of beta; of this core, then of the other.
    __aicore__ inline static LocalTensor<float> Dots(uint32_t i, uint32_t count = 1) { return At<float>(Ub::DOTS + i * CHUNK * 4, count * CHUNK); }
    static constexpr uint32_t OF_BETA = 2, DOTS = 4;

    // ---- global memory ----
    template <class U>
    __aicore__ inline static GlobalTensor<U> Memory(GM_ADDR from, uint64_t element, uint32_t count) {
        GlobalTensor<U> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ U*>(from) + element, count);
        return out;
    }
    __aicore__ inline GlobalTensor<float> Room(uint64_t bytes, uint32_t count) const { return Base::template Room<float>(bytes, count); }

    /// This core's channels of rows of W floats.
    __aicore__ inline void Load(const LocalTensor<float>& to, const GlobalTensor<float>& from, uint32_t rows = CHUNK) const {
        Wait<HardEvent::V_MTE2>();
        DataCopyPad(to, from[core_ * C], DataCopyExtParams(rows, C * sizeof(float), (W - C) * sizeof(float), 0, 0), DataCopyPadExtParams<float>{});
        Wait<HardEvent::MTE2_V>();
    }
    __aicore__ inline void Load(const LocalTensor<float>& to, uint64_t bytes, uint32_t rows = CHUNK) const { Load(to, Room(bytes, rows * W), rows); }
    __aicore__ inline void Store(const GlobalTensor<float>& to, const LocalTensor<float>& from, uint32_t rows = CHUNK) const {
        Wait<HardEvent::V_MTE3>();
        DataCopyPad(to[core_ * C], from, DataCopyExtParams(rows, C * sizeof(float), 0, (W - C) * sizeof(float), 0));
        Wait<HardEvent::MTE3_V>();
    }
    __aicore__ inline void Store(uint64_t bytes, const LocalTensor<float>& from, uint32_t rows = CHUNK) const { Store(Room(bytes, rows * W), from, rows); }

    /// This core's channels of the tokens of a chunk, of T; rows without a token are zero.
    __aicore__ inline void LoadTokens(const LocalTensor<float>& to, GM_ADDR from, const KdaStep& step) const {
        const uint32_t filled = step.Filled();
        LocalTensor<T> in;
        if constexpr (is_float)
            in = to;
        else
            in = Input(Q);
        if (filled < CHUNK) Duplicate(in.template ReinterpretCast<uint16_t>(), uint16_t(0), TILE * sizeof(T) / 2);
        Wait<HardEvent::V_MTE2>();
        DataCopyPad(in, Memory<T>(from, Element(step), filled * tiling_.heads * W), DataCopyExtParams(filled, C * sizeof(T), (tiling_.heads * W - C) * sizeof(T), 0, 0), DataCopyPadExtParams<T>{});
        Wait<HardEvent::MTE2_V>();
        if constexpr (!is_float) {
            Cast(to, in, RoundMode::CAST_NONE, TILE);
            PipeBarrier<PIPE_V>();
        }
    }
    __aicore__ inline void StoreTokens(GM_ADDR to, const LocalTensor<float>& from, const KdaStep& step) const {
        const uint32_t filled = step.Filled();
        LocalTensor<T> out;
        if constexpr (is_float) {
            out = from;
        } else {
            out = Input(Q);
            PipeBarrier<PIPE_V>();
            Cast(out, from, RoundMode::CAST_RINT, TILE);
        }
        Wait<HardEvent::V_MTE3>();
        DataCopyPad(Memory<T>(to, Element(step), filled * tiling_.heads * W), out, DataCopyExtParams(filled, C * sizeof(T), 0, (tiling_.heads * W - C) * sizeof(T), 0));
        Wait<HardEvent::MTE3_V>();
    }
    __aicore__ inline uint64_t Element(const KdaStep& step) const { return (static_cast<uint64_t>(step.Token()) * tiling_.heads + step.head) * W + core_ * C; }

    /// A square; of one whose blocks below the diagonal nobody wrote, those are left zero.
    template <bool upper>
    __aicore__ inline void LoadSquare(const LocalTensor<float>& to, uint64_t bytes) const {
        const GlobalTensor<float> from = Room(bytes, SQUARE);
        if constexpr (upper) Duplicate(to, 0.0f, SQUARE);
        Wait<HardEvent::V_MTE2>();
        if constexpr (upper)
            for (uint32_t i = 0; i < SUBS; ++i) {
                const uint32_t first = i * SUB * (CHUNK + 1), left = i * SUB * sizeof(float);
                DataCopyPad(to[first], from[first], DataCopyExtParams(SUB, CHUNK * sizeof(float) - left, left, left / 32, 0), DataCopyPadExtParams<float>{});
            }
        else
            DataCopy(to, from, SQUARE);
        Wait<HardEvent::MTE2_V>();
    }
    __aicore__ inline void Masked(const LocalTensor<float>& square, uint32_t mask) const {
        Select(square, Mask(mask).ReinterpretCast<uint8_t>(), square, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, SQUARE);
    }
    __aicore__ inline void StoreSquare(uint64_t bytes, const LocalTensor<float>& from) const {
        Wait<HardEvent::V_MTE3>();
        DataCopy(Room(bytes, SQUARE), from, SQUARE);
        Wait<HardEvent::MTE3_V>();
    }

    /// The stage is done; the cube core's follows, and is waited for.
    __aicore__ inline static void Hand() {
        CrossCoreSetFlag<2, PIPE_MTE3>(gradient_flag::VECTOR);
        CrossCoreWaitFlag(gradient_flag::CUBE);
    }

    // ---- what is made once ----
    __aicore__ inline void Constants() {
        for (uint32_t s = 0; s < CHUNK; ++s)
            for (uint32_t word = 0; word < CHUNK / 16; ++word) {
                const uint32_t from = s < word * 16 ? 0 : s - word * 16;  // the first of its 16 columns that is not before s
                Mask(0).SetValue(s * CHUNK / 16 + word, from < 16 ? static_cast<uint16_t>(0xffffu << from) : uint16_t(0));
                Mask(1).SetValue(s * CHUNK / 16 + word, s < word * 16 ? uint16_t(0xffff) : from < 16 ? static_cast<uint16_t>(0xfffeu << from) : uint16_t(0));
            }
        for (uint32_t s = 0; s < 2 * SUB; ++s)
            for (uint32_t word = 0; word < 2; ++word) Mask(2).SetValue(s * 2 + word, s / 16 == word ? static_cast<uint16_t>(1u << s % 16) : uint16_t(0));
        Wait<HardEvent::S_V>();
    }

    /// Sequences without tokens: the gradient of their initial state is that of their final one.
    __aicore__ inline void Empty() {
        Duplicate(Row(DBIAS), 0.0f, C);
        for (int64_t unit = KdaBlock(); unit < tiling_.sequences * tiling_.heads; unit += GetBlockNum()) {
            const int64_t sequence = unit / tiling_.heads;
            if (offsets_.GetValue(sequence) != offsets_.GetValue(sequence + 1)) continue;
            for (uint32_t piece = 0; piece < W; piece += PIECE) {
                Load(Spare(0), StateOf(memory_.dfinal, unit, piece));
                Store(StateOf(memory_.dinitial, unit, piece), Spare(0));
            }
            Store(RowOf(memory_.dA_log, unit), Row(DBIAS), 1);
            Store(RowOf(memory_.ddt_bias, unit), Row(DBIAS), 1);
        }
    }
    __aicore__ inline static GlobalTensor<float> StateOf(GM_ADDR states, int64_t unit, uint32_t row) { return Memory<float>(states, static_cast<uint64_t>(unit) * W * W + row * W, PIECE * W); }
    __aicore__ inline static GlobalTensor<float> RowOf(GM_ADDR rows, int64_t unit) { return Memory<float>(rows, static_cast<uint64_t>(unit) * W, W); }

    // ---- a head of a sequence ----
    __aicore__ inline void Head(KdaStep step) {
        Base::Parameters(step.head);
        for (uint32_t piece = 0; piece < W; piece += PIECE) {
            if (tiling_.has_initial)
                Load(Spare(0), StateOf(memory_.initial, step.unit, piece));
            else
                Duplicate(Spare(0), 0.0f, TILE);
            Store(ROOM.states + piece * W * 4, Spare(0));
            Load(Spare(0), StateOf(memory_.dfinal, step.unit, piece));
            Store(ROOM.dstate + piece * W * 4, Spare(0));
        }
        Duplicate(Row(DBIAS), 0.0f, C);
        Duplicate(Row(DA), 0.0f, C);
        for (step.chunk = 0; step.chunk + 1 < step.chunks; ++step.chunk) {
            Prepare(step);
            Hand();
            Solve(step, false);
            Hand();
            NextState(step.chunk);
        }
        for (uint32_t left = step.chunks; left > 0; --left) {
            step.chunk = left - 1;
            Prepare(step);
            LoadTokens(Spare(0), memory_.do_, step);
            Store(ROOM.do_, Spare(0));
            Hand();
            Solve(step, true);
            Hand();
            OfValues(step);
            Hand();
            if (core_ == 1) {
                LoadSquare<false>(Spare(0), ROOM.dm);
                Masked(Spare(0), 1);
                StoreSquare(ROOM.dm, Spare(0));
            }
            Hand();
            OfOperands();
            OfState(step);
            OfGates(step);
            OfNorms(step);
        }
        Store(RowOf(memory_.dA_log, step.unit), Row(DA), 1);
        Store(RowOf(memory_.ddt_bias, step.unit), Row(DBIAS), 1);
    }

    /// The operands of a chunk's products, in float32; the state stands at its start. The decays from the middles stay.
    __aicore__ inline void Prepare(const KdaStep& step) {
        Duplicate(Row(ANCHOR), 0.0f, C);
        if constexpr (!is_float) Base::Request(step);
        KdaStep turn = step;
        turn.n = turn_;
        ++turn_;
        Base::Gates(turn, KdaStep{});
        LocalTensor<float> g = Work(G), decay = Decay(), keys = Keys(), q = Spare(0), k = Spare(1);
        for (uint32_t i = 0; i < SUBS; ++i) WithRow<Do::Sub>(decay[i * SUB * C], g[i * SUB * C], g[(i * SUB + SUB / 2 - 1) * C], SUB);
        Add(Row(END), Row(ANCHOR), Row(MIDDLE + SUBS - 1), C);
        Exp(Row(SCRATCH), Row(ANCHOR), C);
        PipeBarrier<PIPE_V>();
        Exp(decay, decay, TILE);
        Exp(Row(END), Row(END), C);
        PipeBarrier<PIPE_V>();
        Mul(q, Work(Q), decay, TILE);
        Mul(k, Work(K), decay, TILE);
        Div(keys, Work(K), decay, TILE);
        Store(ROOM.rows_q, q);
        Store(ROOM.rows_k, k);
        FromState(q);
        FromState(k);
        Store(ROOM.q, q);
        Store(ROOM.k, k);
        for (uint32_t i = 0; i < SUBS; ++i) {
            if (i > 0) WithRow<Do::Mul>(keys, keys, Row(STEP + i - 1), i * SUB);
            Store(ROOM.columns + FirstColumnRow(i) * W * 4, keys, (i + 1) * SUB);
        }
        WithRow<Do::Mul>(keys, keys, Row(SCRATCH), CHUNK);
        Store(ROOM.k_end, keys);
    }
    /// From the middles to the state.
    __aicore__ inline static void FromState(const LocalTensor<float>& tile) {
        for (uint32_t i = 0; i < SUBS; ++i) WithRow<Do::Mul>(tile[i * SUB * C], tile[i * SUB * C], Row(FROM_STATE + i), SUB);
    }

    /// M and A masked, X = (I + b M)^-1 by forward substitution, each core half of its columns; b (v - (k e^G) S).
    __aicore__ inline void Solve(const KdaStep& step, bool with_a) {
        LocalTensor<float> m = Spare(0), x = Spare(1), b = Strength(turn_ - 1);
        if (with_a && core_ == 0) {
            LoadSquare<true>(x, ROOM.a);
            Masked(x, 0);
            StoreSquare(ROOM.a, x);
        }
        LoadSquare<true>(m, ROOM.m);
        Masked(m, 1);
        if (core_ == 1) StoreSquare(ROOM.masked, m);
        Muls(Spare(2), b, -1.0f, CHUNK);
        Duplicate(x, 0.0f, CHUNK * CHUNK / 2);
        PipeBarrier<PIPE_V>();
        Mul(m, m, Spare(2), CHUNK, CHUNK, BinaryRepeatParams(1, 1, 1, CHUNK / 8, CHUNK / 8, 0));
        LocalTensor<float> own = x[core_ * CHUNK / 2 * CHUNK / 2];
        Duplicate(own, 1.0f, CHUNK * CHUNK / 4);
        PipeBarrier<PIPE_V>();
        Select(own, Mask(2).ReinterpretCast<uint8_t>(), own, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, CHUNK * CHUNK / 4);
        for (uint32_t s = 0; s + 1 < CHUNK; ++s) {
            LocalTensor<float> factors = Factors(s % 2);
            Brcb(factors, m[s * CHUNK], CHUNK / 8, BrcbRepeatParams(1, 8));
            PipeBarrier<PIPE_V>();
            MulAddDst(x[(s + 1) * CHUNK / 2], factors[(s + 1) * 8], x[s * CHUNK / 2], CHUNK / 2, CHUNK - 1 - s, BinaryRepeatParams(1, 0, 1, 4, 1, 0));
        }
        Wait<HardEvent::V_MTE3>();
        DataCopyPad(Room(ROOM.inverse, SQUARE)[core_ * CHUNK / 2], x, DataCopyExtParams(CHUNK, CHUNK / 2 * sizeof(float), 0, CHUNK / 2 * sizeof(float), 0));
        Brcb(Factors(0), b, CHUNK / 8, BrcbRepeatParams(1, 8));
        LoadTokens(Spare(2), memory_.v, step);
        Load(m, ROOM.of_state);
        Sub(m, Spare(2), m, TILE);
        PipeBarrier<PIPE_V>();
        ScaleRows(m, m, Factors(0), CHUNK);
        Store(ROOM.values, m);
    }

    /// The state before the next chunk.
    __aicore__ inline void NextState(uint32_t chunk) {
        for (uint32_t piece = 0; piece < W; piece += PIECE) {
            Load(Spare(0), ROOM.states + chunk * ROOM.state + piece * W * 4);
            Load(Spare(1), ROOM.change + piece * W * 4);
            WithRow<Do::Mul>(Spare(0), Spare(0), Row(END), PIECE);
            PipeBarrier<PIPE_V>();
            Add(Spare(0), Spare(0), Spare(1), TILE);
            Store(ROOM.states + (chunk + 1) * ROOM.state + piece * W * 4, Spare(0));
        }
    }

    /// With r = X^T du: -b r, the gradient of v, of b, and A's masked.
    __aicore__ inline void OfValues(const KdaStep& step) {
        if (core_ == 0) {
            LoadSquare<false>(Spare(0), ROOM.da);
            Masked(Spare(0), 0);
            StoreSquare(ROOM.da, Spare(0));
        }
        LocalTensor<float> r = Spare(0), z = Spare(1);
        LoadTokens(z, memory_.v, step);
        Load(r, ROOM.of_state);
        Sub(z, z, r, TILE);
        Load(r, ROOM.of_u);
        Sub(z, z, r, TILE);
        Load(r, ROOM.r);
        Mul(z, z, r, TILE);
        PipeBarrier<PIPE_V>();
        WholeReduceSum(Dots(OF_BETA), z, C, CHUNK, 1, 1, LINE);
        ScaleRows(r, r, Factors(0), CHUNK);
        StoreTokens(memory_.dv, r, step);
        Muls(r, r, -1.0f, TILE);
        Store(ROOM.dw, r);
    }

    /// Keys <- the gradient of G, but for what stands at the end; those of q and k, normalized, go back to the workspace.
    __aicore__ inline void OfOperands() {
        LocalTensor<float> dg = Keys(), decay = Decay(), a = Spare(0), b = Spare(1), c = Spare(2);
        Rows(a, b, ROOM.drows_q, ROOM.dq);
        Mul(dg, a, Work(Q), TILE);
        Store(ROOM.drows_q, a);
        WholeReduceSum(Dots(Q), dg, C, CHUNK, 1, 1, LINE);
        // of k: what its rows give, a, and what its columns give, b
        Rows(a, b, ROOM.drows_k, ROOM.dk);
        Load(b, ROOM.dk_end);
        Load(c, ROOM.k_end);
        Mul(c, c, b, TILE);
        WithRow<Do::Mul>(b, b, Row(SCRATCH), CHUNK);
        PipeBarrier<PIPE_V>();
        Fold(c);
        Adds(Row(DEND), c, 0.0f, C);
        for (uint32_t i = SUBS; i-- > 0;) {
            Load(c, ROOM.dcolumns + FirstColumnRow(i) * W * 4, (i + 1) * SUB);
            Add(b, b, c, (i + 1) * SUB * C);
            PipeBarrier<PIPE_V>();
            if (i > 0) WithRow<Do::Mul>(b, b, Row(STEP + i - 1), i * SUB);
        }
        Div(b, b, decay, TILE);
        PipeBarrier<PIPE_V>();
        Sub(c, a, b, TILE);
        Add(a, a, b, TILE);
        PipeBarrier<PIPE_V>();
        Mul(c, c, Work(K), TILE);
        Mul(b, a, Work(K), TILE);
        PipeBarrier<PIPE_V>();
        Add(dg, dg, c, TILE);
        WholeReduceSum(Dots(K), b, C, CHUNK, 1, 1, LINE);
        Store(ROOM.drows_k, a);
    }
    /// to <- what rows from the middles and from the state give.
    __aicore__ inline void Rows(const LocalTensor<float>& to, const LocalTensor<float>& scratch, uint64_t middles, uint64_t state) {
        Load(to, middles);
        Load(scratch, state);
        FromState(scratch);
        PipeBarrier<PIPE_V>();
        Add(to, to, scratch, TILE);
        PipeBarrier<PIPE_V>();
        Mul(to, to, Decay(), TILE);
        PipeBarrier<PIPE_V>();
    }
    /// The first row <- the sum of all rows.
    __aicore__ inline static void Fold(const LocalTensor<float>& tile) {
        for (uint32_t rows = CHUNK / 2; rows > 0; rows /= 2) {
            Add(tile, tile, tile[rows * C], rows * C);
            PipeBarrier<PIPE_V>();
        }
    }

    /// The gradient of the state before the chunk, and of its decay.
    __aicore__ inline void OfState(const KdaStep& step) {
        LocalTensor<float> a = Spare(0), b = Spare(1), c = Spare(2);
        for (uint32_t piece = 0; piece < W; piece += PIECE) {
            Load(a, ROOM.dstate + piece * W * 4);
            Load(b, ROOM.states + step.chunk * ROOM.state + piece * W * 4);
            Mul(c, a, b, TILE);
            WithRow<Do::Mul>(a, a, Row(END), PIECE);
            Load(b, ROOM.change + piece * W * 4);
            Add(a, a, b, TILE);
            Fold(c);
            Mul(c, c, Row(END), C);
            PipeBarrier<PIPE_V>();
            Add(Row(DEND), Row(DEND), c, C);
            if (step.chunk == 0)
                Store(StateOf(memory_.dinitial, step.unit, piece), a);
            else
                Store(ROOM.dstate + piece * W * 4, a);
        }
    }

    /// The gradient of the raw gate, from that of G: a sum from the end, then through the sigmoid.
    __aicore__ inline void OfGates(const KdaStep& step) {
        LocalTensor<float> dg = Keys(), x = Spare(0), bounded = Spare(1), rest = Spare(2);
        Add(dg[(CHUNK - 1) * C], dg[(CHUNK - 1) * C], Row(DEND), C);
        PipeBarrier<PIPE_V>();
        for (uint32_t half = 1; half < SUB; half *= 2) {
            const uint8_t stride = 2 * half * LINE;
            for (uint32_t r = 0; r < half; ++r) Add(dg[r * C], dg[r * C], dg[half * C], C, CHUNK / (2 * half), BinaryRepeatParams(1, 1, 1, stride, stride, stride));
            PipeBarrier<PIPE_V>();
        }
        for (uint32_t i = SUBS - 1; i-- > 0;) {
            WithRow<Do::Add>(dg[i * SUB * C], dg[i * SUB * C], dg[(i + 1) * SUB * C], SUB);
            PipeBarrier<PIPE_V>();
        }
        if (step.Filled() < CHUNK) Duplicate(dg[step.Filled() * C], 0.0f, (CHUNK - step.Filled()) * C);
        LoadTokens(x, memory_.g, step);
        WithRow<Do::Add>(x, x, Row(BIAS), CHUNK);
        PipeBarrier<PIPE_V>();
        Muls(bounded, x, slope_, TILE);
        PipeBarrier<PIPE_V>();
        // 1 - sigmoid(y) is e^-y / (1 + e^-y), without a difference; beyond the limit it is 1
        Mins(rest, bounded, 80.0f, TILE);
        PipeBarrier<PIPE_V>();
        Exp(rest, rest, TILE);
        PipeBarrier<PIPE_V>();
        Adds(bounded, rest, 1.0f, TILE);
        Muls(dg, dg, -slope_, TILE);
        PipeBarrier<PIPE_V>();
        Div(rest, rest, bounded, TILE);
        Div(bounded, Bound(), bounded, 64, TILE / 64, BinaryRepeatParams(1, 1, 1, 8, 0, 8));
        PipeBarrier<PIPE_V>();
        Mul(dg, dg, rest, TILE);
        PipeBarrier<PIPE_V>();
        Mul(dg, dg, bounded, TILE);
        StoreTokens(memory_.dg, dg, step);
        Mul(x, x, dg, TILE);
        PipeBarrier<PIPE_V>();
        Fold(x);
        Fold(dg);
        Add(Row(DA), Row(DA), x, C);
        Add(Row(DBIAS), Row(DBIAS), dg, C);
    }

    /// Through the norms: dq = c dq' - q' c (q' dq') / scale^2 with q' = c q, and k likewise; and beta.
    __aicore__ inline void OfNorms(const KdaStep& step) {
        Wait<HardEvent::V_MTE3>();
        const uint64_t at = ROOM.sums + 2 * 2 * 2 * CHUNK * 4;
        DataCopy(Room(at + core_ * DOTS * CHUNK * 4, DOTS * CHUNK), Dots(0, 3), 3 * CHUNK);
        CrossCoreSetFlag<1, PIPE_MTE3>(gradient_flag::DOTS);
        CrossCoreWaitFlag(gradient_flag::DOTS);
        Wait<HardEvent::V_MTE2>();
        DataCopy(Dots(DOTS, 3), Room(at + (1 - core_) * DOTS * CHUNK * 4, DOTS * CHUNK), 3 * CHUNK);
        Wait<HardEvent::MTE2_V>();
        Add(Dots(0, 3), Dots(0, 3), Dots(DOTS, 3), 3 * CHUNK);
        PipeBarrier<PIPE_V>();
        Mul(Dots(Q, 2), Dots(Q, 2), Sums(), 2 * CHUNK);
        PipeBarrier<PIPE_V>();
        Muls(Dots(Q), Dots(Q), 1.0f / (tiling_.scale * tiling_.scale), CHUNK);
        PipeBarrier<PIPE_V>();
        OfNorm(memory_.dq, Q, ROOM.drows_q, step);
        OfNorm(memory_.dk, K, ROOM.drows_k, step);
        if (core_ == 0) OfStrength(step);
    }
    __aicore__ inline void OfNorm(GM_ADDR to, uint32_t which, uint64_t gradient, const KdaStep& step) {
        Brcb(Factors(0), Dots(which), CHUNK / 8, BrcbRepeatParams(1, 8));
        PipeBarrier<PIPE_V>();
        ScaleRows(Spare(1), Work(which), Factors(0), CHUNK);
        Load(Spare(0), gradient);
        ScaleRows(Spare(0), Spare(0), OfNorms()[which * CHUNK * 8], CHUNK);
        PipeBarrier<PIPE_V>();
        Sub(Spare(0), Spare(0), Spare(1), TILE);
        StoreTokens(to, Spare(0), step);
    }
    __aicore__ inline void OfStrength(const KdaStep& step) {
        LocalTensor<float> b = Strength(turn_ - 1), d = Dots(OF_BETA), left = Dots(DOTS);
        Muls(left, b, -1.0f, CHUNK);
        Mul(d, d, b, CHUNK);
        PipeBarrier<PIPE_V>();
        Adds(left, left, 1.0f, CHUNK);
        PipeBarrier<PIPE_V>();
        Mul(d, d, left, CHUNK);
        PipeBarrier<PIPE_V>();
        LocalTensor<B> each = At<B>(Ub::SPARE, CHUNK * BETA_GROUP);  // a block of 32 bytes each
        if constexpr (std::is_same_v<B, float>) {
            Brcb(each, d, CHUNK / 8, BrcbRepeatParams(1, 8));
        } else {
            LocalTensor<B> rounded = At<B>(Ub::SPARE + SQUARE * 4, CHUNK);
            Cast(rounded, d, RoundMode::CAST_RINT, CHUNK);
            PipeBarrier<PIPE_V>();
            Brcb(each.template ReinterpretCast<uint16_t>(), rounded.template ReinterpretCast<uint16_t>(), CHUNK / 8, BrcbRepeatParams(1, 8));
        }
        Wait<HardEvent::V_MTE3>();
        const uint32_t filled = step.Filled();
        DataCopyPad(Memory<B>(memory_.dbeta, static_cast<uint64_t>(step.Token()) * tiling_.heads + step.head, filled * tiling_.heads), each,
                    DataCopyExtParams(filled, sizeof(B), 0, (tiling_.heads - 1) * sizeof(B), 0));
        Wait<HardEvent::MTE3_V>();
    }

    KdaGradients memory_;
    uint32_t turn_ = 0;
};

}  // namespace ascend_k3
