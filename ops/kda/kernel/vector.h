// The vector cores' part of a chunk: operands of the products, the inverse of the diagonal blocks. Each core has half of the
// channels of the block's head, and two of the four diagonal blocks.
#pragma once

#include "gates.h"

namespace ascend_k3 {

/// T of q, k, v and g, B of beta, W key and value channels.
template <class T, class B, uint32_t W>
class KdaVector : KdaGates<T, B, W, KdaUb<T, W>> {
    using M = Merged<T>;
    using Ub = KdaUb<T, W>;
    using L1 = KdaL1<T, W>;
    using Base = KdaGates<T, B, W, Ub>;
    using Base::C, Base::LINE, Base::TILE, Base::is_float, Base::Q, Base::K, Base::G, Base::ANCHOR, Base::MIDDLE, Base::FROM_STATE, Base::STEP;
    using Base::Work, Base::Keys, Base::Decay, Base::Row, Base::Strength, Base::ScaleRows, Base::Request, Base::Gates;
    using Base::tiling_, Base::offsets_, Base::core_, Base::room_;
    using Do = typename Base::Do;
    static constexpr uint32_t BLOCKS = Ub::BLOCKS;
    static constexpr uint32_t GROUP = 32 / sizeof(T), GROUPS = C / GROUP;  // columns of an NZ group, groups
    static constexpr uint32_t AHEAD = L1::FROM_VECTOR ? L1::OPERAND_SLOTS : ROOM_SLOTS;  // chunks before one whose operands are used up
    static_assert(sizeof(M) == sizeof(T), "three matrices, and in 16 bits their rests, in a row");

   public:
    __aicore__ inline void Run(GM_ADDR q, GM_ADDR k, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets, GM_ADDR initial,
                               GM_ADDR final, GM_ADDR workspace, const KdaTiling& tiling) {
        const uint64_t states = static_cast<uint64_t>(tiling.sequences) * tiling.heads * W * W;
        Base::Begin(q, k, g, beta, A_log, dt_bias, offsets, workspace, Sizes().sums, tiling);
        initial_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(initial), tiling.has_initial ? states : 0);
        final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(final), states);
        EmptySequences();
        Constants();
        for (uint32_t slot = 0; slot < Ub::OUT_SLOTS; ++slot) SetFlag<HardEvent::MTE3_V>(slot);
        share_.Begin(tiling_, offsets_);
        KdaStep step = share_.First();
        if constexpr (!is_float)
            if (step.exists) Request(step);
        KdaStep before{};
        while (step.exists) {
            const KdaStep next = share_.Next(step);
            if (step.IsFirst()) Base::Parameters(step.head);
            Gates(step, next);
            // in L1 the operands have the room of the chunk before until its scores are there
            if (L1::FROM_VECTOR && before.exists) Invert(before);
            if (step.n >= AHEAD) CrossCoreWaitFlag(flag::FREE);
            if (step.n + 1 >= share_.Begun() + AHEAD || step.begin > 0) TellBegun();
            if (step.IsFirst() && step.begin > 0) CrossCoreWaitFlag(flag::ALL_BEGUN), waited_ = true;
            Operands(step);
            if (!L1::FROM_VECTOR && before.exists) Invert(before);
            before = step, step = next;
        }
        if (before.exists) Invert(before);
        for (uint32_t n = 0; n < step.n && n < AHEAD; ++n) CrossCoreWaitFlag(flag::FREE);
        TellBegun();
        if (share_.parted && !waited_) CrossCoreWaitFlag(flag::ALL_BEGUN);
        Base::End();
        for (uint32_t slot = 0; slot < Ub::OUT_SLOTS; ++slot) WaitFlag<HardEvent::MTE3_V>(slot);
    }

   private:
    /// To the vector cores of all blocks, once: the head that this block has begun may be ended.
    __aicore__ inline void TellBegun() {
        if (!share_.parted || told_) return;
        told_ = true;
        if (share_.Begun()) CrossCoreWaitFlag(flag::BEGUN);
        CrossCoreSetFlag<0, PIPE_MTE3>(flag::ALL_BEGUN);
    }

    template <class U>
    __aicore__ inline static LocalTensor<U> At(uint32_t bytes, uint32_t count) {
        return Base::template At<U>(bytes, count);
    }
    template <class U>
    __aicore__ inline GlobalTensor<U> Room(uint32_t bytes, uint32_t count) const {
        return Base::template Room<U>(bytes, count);
    }
    template <HardEvent event>
    __aicore__ inline static void Wait() {
        Order<event>();
    }
    template <Do op>
    __aicore__ inline static void WithRow(const LocalTensor<float>& to, const LocalTensor<float>& a, const LocalTensor<float>& row, uint32_t rows) {
        Base::template WithRow<op>(to, a, row, rows);
    }
    __aicore__ inline static LocalTensor<float> One() { return At<float>(Ub::ONE, SUB * C); }  // diagonal blocks [SUB, C]
    __aicore__ inline static LocalTensor<uint16_t> Mask(uint32_t i) { return At<uint16_t>(Ub::MASKS + i * 64, 32); }  // i >= t, i > t, i == t
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
        for (int64_t unit = KdaBlock(); unit < tiling_.sequences * tiling_.heads; unit += GetBlockNum()) {
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

    /// What the products need. Exponents of a sub-chunk are taken from its middle token on: none exceeds 8 tokens' decay.
    __aicore__ inline void Operands(const KdaStep& step) {
        LocalTensor<float> q = Work(Q), k = Work(K), g = Work(G), decay = Decay(), keys = Keys();
        if (step.IsFirst() && (step.begin > 0 || tiling_.has_initial)) SendInitial(step);
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
    /// The initial state, or the one with which another block has begun the head, to the workspace.
    __aicore__ inline void SendInitial(const KdaStep& step) {
        Where where = InRoom(step.n, Sizes().initial);
        const DataCopyParams strides(GROUPS, CHUNK, 0, W - CHUNK);
        const GlobalTensor<float>& states = step.begin > 0 ? final_ : initial_;
        for (uint32_t piece = 0; piece < W; piece += CHUNK) {
            Wait<HardEvent::V_MTE2>();
            DataCopyPad(Keys(), states[static_cast<uint64_t>(step.unit) * W * W + piece * W + core_ * C], DataCopyExtParams(CHUNK, C * sizeof(float), (W - C) * sizeof(float), 0, 0), DataCopyPadExtParams<float>{});
            Wait<HardEvent::MTE2_V>();
            Send(where, core_ * C * W + piece * GROUP, Keys(), CHUNK, strides);
            if constexpr (!is_float) {
                Rest(Decay(), Keys(), Sent(), CHUNK);
                Send(where, W * W + core_ * C * W + piece * GROUP, Decay(), CHUNK, strides);
            }
        }
    }

    // ---- the inverse ----
    /// Of this core's diagonal blocks, side by side [SUB, 2 SUB]: A's triangles; and (I + b M)^-1 b of M's, by forward
    /// substitution on both at once. The cube gives -M, and both transposed.
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
            // rows t > s: row t -= b M[t, s] row s; two instructions, since a block's 16 columns are two blocks of 8
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

    GlobalTensor<float> initial_, final_;
    KdaShare share_;
    uint32_t slot_ = 0;
    bool told_ = false, waited_ = false;
};

}  // namespace ascend_k3
