// The cube core's part of a chunk: scores, the inverse from its diagonal blocks, outputs, what the state gains.
//
// Operands of 16 bits whose rounding would matter when keys are nearly equal come as pairs, a number and its rest. The
// heads of a pair go through each step one after the other, so that one is stored while the other is multiplied; float32
// takes one head at a time, and goes from L0C to L1 through the workspace.
#pragma once

#include "ascend_k3/cube.h"
#include "block.h"

namespace ascend_k3 {

template <class T, uint32_t W>
class KdaCube {
    using M = Merged<T>;
    using Ub = KdaUb<T, W>;
    static constexpr bool is_float = std::is_same_v<T, float>;
    static constexpr uint32_t SQUARE = CHUNK * CHUNK, WIDE = CHUNK * W, HALF = CHUNK / 2;  // elements; tokens
    using L1 = KdaL1<T, W>;
    static constexpr uint32_t PARTS = L1::PARTS, AREAS = L1::AREAS, AREA = L1::AREA, AREA_BYTES = L1::AREA_BYTES;
    static constexpr bool INTO_L1 = L1::FROM_VECTOR;

    // Events MTE2_MTE1: the inverses of the diagonal blocks of a head, a sub-chunk's operands of the scores, and what else
    // a head's outputs take. FIX_MTE1 has one a head, MTE1_MTE2 one for the room of a sub-chunk.
    static constexpr int32_t DIAGONAL_IN = 0, SUB_IN = 2, WIDE_IN = 4;

   public:
    __aicore__ inline void Run(GM_ADDR offsets, GM_ADDR o, GM_ADDR workspace, const KdaTiling& tiling) {
        tiling_ = tiling;
        o_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(o), static_cast<uint64_t>(tiling.tokens) * tiling.heads * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        room_ = workspace + GetBlockIdx() * 2 * tiling.room;
        Zeros();
        products_.Begin();
        for (uint32_t i = 0; i < SUBS; ++i) SetFlag<HardEvent::MTE1_MTE2>(i);
        for (int64_t index = GetBlockIdx(); index < tiling.pairs; index += GetBlockNum()) {
            const KdaPair pair(tiling, offsets_, index);
            for (uint32_t chunk = 0; chunk < pair.chunks; ++chunk) {
                if (chunk == 0) Scores(pair, 0);
                CrossCoreWaitFlag(flag::STATE);
                CrossCoreWaitFlag(flag::DIAGONAL);
                for (uint32_t s = 0; s < pair.heads; s += AREAS) {
                    Chunk(s, pair.heads - s < AREAS ? pair.heads - s : AREAS, chunk);
                    if constexpr (is_float) Output(s, pair, chunk);
                }
                CrossCoreSetFlag<2, PIPE_FIX>(flag::CHANGE);
                if (chunk + 1 < pair.chunks) Scores(pair, chunk + 1);
                if constexpr (!is_float)
                    for (uint32_t s = 0; s < pair.heads; ++s) Output(s, pair, chunk);
            }
        }
        products_.End();
        for (uint32_t i = 0; i < SUBS; ++i) WaitFlag<HardEvent::MTE1_MTE2>(i);
    }

   private:
    // ---- L1 ----
    template <class X>
    __aicore__ inline static Nz<X> Shared(uint32_t bytes, uint16_t rows, uint16_t columns) {
        return {LocalTensor<X>(TPosition::A1, bytes, rows * columns), rows, 0, 0};
    }
    template <class X = T>
    __aicore__ inline static Nz<X> Own(uint32_t s, uint32_t bytes, uint16_t rows, uint16_t columns) {
        return Shared<X>(AREA + s % AREAS * AREA_BYTES + bytes, rows, columns);
    }
    /// float32 has no rest: the type then is that of a matrix alone.
    template <class X>
    using Both = std::conditional_t<is_float, Nz<X>, Pair<X>>;
    template <class X>
    __aicore__ inline static Both<X> Parts(const Nz<X>& number, const Nz<X>& rest) {
        if constexpr (is_float)
            return number;
        else
            return {number, rest};
    }
    template <class X = T>
    __aicore__ inline static Both<X> OwnParts(uint32_t s, uint32_t bytes, uint16_t rows, uint16_t columns) {
        return Parts(Own<X>(s, bytes, rows, columns), Own<X>(s, bytes + (PARTS - 1) * rows * columns * sizeof(X), rows, columns));
    }
    template <class X>
    __aicore__ inline static Nz<X> At(Nz<X> whole, uint16_t row, uint16_t column) {
        whole.row = row, whole.column = column;
        return whole;
    }
    template <class X>
    __aicore__ inline static Pair<X> At(const Pair<X>& whole, uint16_t row, uint16_t column) {
        return {At(whole.number, row, column), At(whole.rest, row, column)};
    }
    template <class X>
    __aicore__ inline static Nz<X> Number(const Nz<X>& x) {
        return x;
    }
    template <class X>
    __aicore__ inline static Nz<X> Number(const Pair<X>& x) {
        return x.number;
    }
    template <class X>
    __aicore__ inline static Nz<X> Rest(const Nz<X>& x) {
        return x;
    }
    template <class X>
    __aicore__ inline static Nz<X> Rest(const Pair<X>& x) {
        return x.rest;
    }

    /// Keys of sub-chunks 0 to i, decayed to or from the middle of sub-chunk i. The last ones are needed again.
    __aicore__ inline static Both<T> ColumnsOf(uint32_t s, uint32_t i) {
        if (i == SUBS - 1) return OwnParts(s, L1::PKEYS, CHUNK, W);
        const uint32_t at = L1::COLUMNS + FirstColumnRow(i) * W * sizeof(T);
        return Parts(Shared<T>(at, (i + 1) * SUB, W), Shared<T>(at + (PARTS - 1) * L1::COLUMNS_BYTES, (i + 1) * SUB, W));
    }
    __aicore__ inline static Both<M> HalfOfInverse(uint32_t s, uint32_t half) { return Of(OwnParts<M>(s, L1::PMERGED, 2 * HALF, HALF), half * HALF * HALF, HALF); }
    __aicore__ inline static Both<M> Product(uint32_t s, uint32_t half) { return Of(OwnParts<M>(s, L1::PBESIDE, 2 * SUB, SUB), half * SUB * SUB, SUB); }
    /// Matrix of `rows` rows from an element on.
    template <class X>
    __aicore__ inline static Nz<X> Of(Nz<X> all, uint32_t element, uint16_t rows) {
        all.whole = all.whole[element], all.rows = rows;
        return all;
    }
    template <class X>
    __aicore__ inline static Pair<X> Of(const Pair<X>& all, uint32_t element, uint16_t rows) {
        return {Of(all.number, element, rows), Of(all.rest, element, rows)};
    }

    // ---- constants ----
    /// Matrices that are zero outside of certain blocks, which alone are written from here on.
    __aicore__ inline void Zeros() {
        for (uint32_t s = 0; s < AREAS; ++s) {
            Zero<T>(AREA + s * AREA_BYTES + L1::PA, (AREAS + 1) * PARTS * SQUARE);
            Zero<M>(AREA + s * AREA_BYTES + L1::PMERGED, PARTS * 2 * HALF * HALF);
        }
        Zero<T>(L1::MINUS, SQUARE);
        Zero<M>(L1::MINUS_MERGED, HALF * HALF);
        PipeBarrier<PIPE_MTE2>();
        Order<HardEvent::MTE2_FIX>();
    }
    template <class X>
    __aicore__ inline static void Zero(uint32_t bytes, uint32_t count) {
        Fill(LocalTensor<X>(TPosition::A1, bytes, count), InitConstValueParams<X>(1, count * sizeof(X) / 32, 0, X(0)));
    }
    /// -1 on the diagonal, when the vector cores have written it.
    __aicore__ inline void BringMinus() {
        constexpr uint32_t COUNT = SUB * CHUNK;
        BringHalf<M>(Shared<M>(L1::MINUS_MERGED, HALF, HALF).whole, Room<M>(0, Sizes().minus, COUNT), 1);
        BringDiagonal<T>(Shared<T>(L1::MINUS, CHUNK, CHUNK).whole, Room<T>(0, Sizes().minus + COUNT * sizeof(M), COUNT));
        minus_ = true;
    }
    // ---- L0C to L1 ----
    /// 16 bits: the next load of head s waits for what has been stored; float32 has waited already.
    __aicore__ inline void Done(uint32_t s) {
        if constexpr (!is_float) SetFlag<HardEvent::FIX_MTE1>(s);
    }
    __aicore__ inline void Need(uint32_t s) {
        if constexpr (!is_float) WaitFlag<HardEvent::FIX_MTE1>(s);
    }

    /// Rows, `pitch` elements apart, to the head's vector core: to its UB, or to the workspace.
    __aicore__ inline void ToVector(uint32_t s, uint32_t ub, uint32_t room, uint32_t element, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows, uint32_t pitch) {
#if __NPU_ARCH__ == 3510
        StoreRows(LocalTensor<float>(TPosition::VECCALC, ub + element * sizeof(float), m * pitch), s, c, m, n, rows, pitch);
#else
        StoreRows(Room<float>(s, room, W * W)[element], c, m, n, rows, pitch);
#endif
    }

    /// m x n of L0C to a part of a matrix in L1.
    template <class X>
    __aicore__ inline void Put(uint32_t s, const Nz<X>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows) {
        if constexpr (is_float) {
            GlobalTensor<float> through = Room<float>(s, Sizes().kept + 2 * SQUARE * 4, WIDE);
            Order<HardEvent::MTE2_FIX>();
            StoreNz(through, m, 0, 0, c, m, n, rows);
            Order<HardEvent::FIX_MTE2>();
            Order<HardEvent::MTE1_MTE2>();
            DataCopy(to.whole[(to.column / C0<X> * to.rows + to.row) * C0<X>], through, DataCopyParams(n / C0<X>, m, 0, to.rows - m));
            Order<HardEvent::MTE2_MTE1>();
        } else {
            StoreNz(to, c, m, n, rows);
        }
    }
    /// The sum [m, n] in L0C's half to L1, as a number; PutRest follows for what that leaves.
    template <class X>
    __aicore__ inline void PutNumber(uint32_t s, const Nz<X>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n) {
        products_.Close();
        Put(s, to, c, m, n, m);
        products_.Stored();
        Done(s);
    }
    template <class X>
    __aicore__ inline void PutRest(uint32_t s, const Pair<X>& to, uint16_t m, uint16_t n) {
        Need(s);
        LocalTensor<float> c = products_.Reopen(s % AREAS);
        TakeAway(c, to.number, m, n);
        PutNumber(s, to.rest, c, m, n);
    }
    template <class X>
    __aicore__ inline void PutRest(uint32_t, const Nz<X>&, uint16_t, uint16_t) {}
    /// c -= stored, [m, n].
    template <class X>
    __aicore__ inline void TakeAway(const LocalTensor<float>& c, const Nz<X>& stored, uint16_t m, uint16_t n) {
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, stored, Minus<X>(), m, n, n);
    }
    template <class X>
    __aicore__ inline static Nz<X> Minus() {
        if constexpr (std::is_same_v<X, T>)
            return Shared<X>(L1::MINUS, CHUNK, CHUNK);
        else
            return Shared<X>(L1::MINUS_MERGED, HALF, HALF);
    }

    // ---- the steps of a chunk ----
    __aicore__ inline void Scores(const KdaPair& pair, uint32_t chunk) {
        CrossCoreWaitFlag(flag::OPERANDS);
        if (!minus_) BringMinus();
        for (uint32_t s = 0; s < pair.heads; ++s) Scores(s, chunk, 0, SUBS - 1);
        CrossCoreWaitFlag(flag::OPERANDS);
        for (uint32_t s = 0; s < pair.heads; ++s) Scores(s, chunk, SUBS - 1, SUBS);
        CrossCoreSetFlag<2, PIPE_FIX>(flag::SCORES);
        for (uint32_t s = 0; s < pair.heads; ++s) RestOfA(s, chunk);
    }

    /// Rows q, -b k of sub-chunks `begin` to `end` times the keys up to them. Diagonal blocks go to the vector cores; A
    /// below them to L1 as it is, -L where the inverse takes it.
    __aicore__ inline void Scores(uint32_t s, uint32_t chunk, uint32_t begin, uint32_t end) {
        constexpr uint16_t M_ROWS = 2 * SUB;
        constexpr uint32_t LOWER = SUB * FRACTAL, BLOCK = M_ROWS * FRACTAL;  // in L0C: from q's rows to k's, to the next 16 columns
        BringSub(s, chunk, begin);
        if constexpr (is_float) Order<HardEvent::MTE2_FIX>();
        const LocalTensor<float> all = begin == 0 ? products_.Open(s) : products_.Reopen(s);
        for (uint32_t i = begin; i < end; ++i) {
            if (i + 1 < end) BringSub(s, chunk, i + 1);
            const LocalTensor<float> c = all[i * M_ROWS * CHUNK];
            WaitFlag<HardEvent::MTE2_MTE1>(SUB_IN + i % 2);
            products_.Next();
            products_.template Add<Lies::AsIs, Lies::Transposed>(c, At(Shared<T>(L1::ROWS, 2 * CHUNK, W), 2 * i * SUB, 0), ColumnsOf(s, i), M_ROWS, (i + 1) * SUB, W);
            SetFlag<HardEvent::MTE1_MTE2>(i);
            products_.Close();
            ToVector(s, Ub::SCORES, Sizes().scores, i * SUB, c[i * BLOCK], SUB, SUB, M_ROWS, CHUNK);
            ToVector(s, Ub::SCORES, Sizes().scores, SUB * CHUNK + i * SUB, c[i * BLOCK + LOWER], SUB, SUB, M_ROWS, CHUNK);
            if (i > 0) Keep(s, KEPT_A, Number(At(OfA(s, chunk), i * SUB, 0)), c, SUB, i * SUB, M_ROWS);
            if (i % 2) Keep(s, KEPT_BESIDE + i / 2 * SUB * SUB, Own<M>(s, L1::BESIDE + i / 2 * SUB * SUB * sizeof(M), SUB, SUB), c[(i - 1) * BLOCK + LOWER], SUB, SUB, M_ROWS);
            if (i >= 2) Keep(s, KEPT_BELOW, At(Own<M>(s, L1::BELOW, HALF, HALF), (i - 2) * SUB, 0), c[LOWER], SUB, 2 * SUB, M_ROWS);
        }
        products_.Stored();
        if (end == SUBS) {
            if constexpr (is_float) Order<HardEvent::FIX_MTE2>();
            Done(s);
        }
    }
    /// [-1; 0] times the rounded A leaves, in q's rows, what was lost.
    __aicore__ inline void RestOfA(uint32_t s, uint32_t chunk) {
        if constexpr (!is_float) {
            constexpr uint32_t TILE = 2 * SUB * CHUNK;  // of a sub-chunk in L0C
            const Pair<T> a = OfA(s, chunk);
            Need(s);
            const LocalTensor<float> all = products_.Reopen(s);
            for (uint32_t i = 1; i < SUBS; ++i)
                products_.template Add<Lies::AsIs, Lies::AsIs>(all[i * TILE], Minus<T>(), At(a.number, i * SUB, 0), 2 * SUB, i * SUB, SUB);
            products_.Close();
            for (uint32_t i = 1; i < SUBS; ++i) StoreNz(At(a.rest, i * SUB, 0), all[i * TILE], SUB, i * SUB, 2 * SUB);
            products_.Stored();
            Done(s);
        }
    }

    /// Rows and keys of a sub-chunk.
    __aicore__ inline void BringSub(uint32_t s, uint32_t chunk, uint32_t i) {
        const KdaRoom sizes = Sizes();
        GlobalTensor<T> operands = Operands(s, chunk);
        const uint32_t first = FirstColumnRow(i) * W, count = (i + 1) * SUB * W;
        WaitFlag<HardEvent::MTE1_MTE2>(i);
        if (i == SUBS - 1 && (s == 0 || is_float)) Order<HardEvent::MTE1_MTE2>();  // the last keys of the chunk before
        DataCopy(Shared<T>(L1::ROWS, 2 * CHUNK, W).whole[2 * i * SUB * C0<T>], operands[sizes.rows / sizeof(T) + 2 * i * SUB * C0<T>],
                 DataCopyParams(W / C0<T>, 2 * SUB, 2 * (CHUNK - SUB), 2 * (CHUNK - SUB)));
        const Both<T> columns = ColumnsOf(s, i);
        DataCopy(Number(columns).whole, operands[sizes.columns / sizeof(T) + first], count);
        if constexpr (!is_float) DataCopy(columns.rest.whole, operands[sizes.columns_low / sizeof(T) + first], count);
        SetFlag<HardEvent::MTE2_MTE1>(SUB_IN + i % 2);
    }
    __aicore__ inline void BringState(uint32_t s) { DataCopy(Own(s, L1::STATE, W, W).whole, Room<T>(s, Sizes().state, W * W), W * W); }
    /// q exp(G), -b k exp(G) and b v.
    __aicore__ inline void BringWide(uint32_t s, uint32_t chunk) {
        const KdaRoom sizes = Sizes();
        GlobalTensor<T> operands = Operands(s, chunk);
        DataCopy(Own(s, L1::Q, CHUNK, W).whole, operands[sizes.q_decayed / sizeof(T)], WIDE);
        DataCopy(Own(s, L1::K, CHUNK, W).whole, operands[sizes.k_decayed / sizeof(T)], WIDE);
        DataCopy(Own(s, L1::V, CHUNK, W).whole, operands[sizes.v / sizeof(T)], WIDE);
    }

    /// A block of -L or A out of L0C to L1; float32 waits in the workspace until its head's turn.
    static constexpr uint32_t KEPT_A = 0, KEPT_BESIDE = SQUARE, KEPT_BELOW = KEPT_BESIDE + 2 * SUB * SUB;  // elements
    template <class X>
    __aicore__ inline void Keep(uint32_t s, uint32_t kept, const Nz<X>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows) {
        if constexpr (is_float)
            StoreNz(Kept(s, kept), to.rows, to.row, to.column, c, m, n, rows);
        else
            StoreNz(to, c, m, n, rows);
    }
    __aicore__ inline GlobalTensor<float> Kept(uint32_t s, uint32_t element) const { return Room<float>(s, Sizes().kept + element * 4, SQUARE); }
    /// float32: all that Scores kept, and what the 16 bits have loaded by then.
    __aicore__ inline void BringKept(uint32_t s, uint32_t chunk) {
        if constexpr (is_float) {
            const LocalTensor<float> a = OfA(s, chunk).whole;
            for (uint32_t i = 1; i < SUBS; ++i)
                DataCopy(a[i * SUB * C0<float>], Kept(s, KEPT_A)[i * SUB * C0<float>], DataCopyParams(i * SUB / C0<float>, SUB, CHUNK - SUB, CHUNK - SUB));
            DataCopy(Own<float>(s, L1::BESIDE, 2 * SUB, SUB).whole, Kept(s, KEPT_BESIDE), 2 * SUB * SUB);
            DataCopy(Own<float>(s, L1::BELOW, HALF, HALF).whole, Kept(s, KEPT_BELOW), HALF * HALF);
            const KdaRoom sizes = Sizes();
            const uint32_t last = sizes.columns / sizeof(T) + FirstColumnRow(SUBS - 1) * W;
            DataCopy(Own(s, L1::PKEYS, CHUNK, W).whole, Operands(s, chunk)[last], WIDE);
        }
    }

    /// From the inverses of the diagonal blocks to the state's change, for `count` heads from `first` on.
    __aicore__ inline void Chunk(uint32_t first, uint32_t count, uint32_t chunk) {
        const uint32_t end = first + count;
        if constexpr (is_float) Order<HardEvent::MTE1_MTE2>();  // the head before used the same room
        for (uint32_t s = first; s < end; ++s) {
            BringKept(s, chunk);
            BringDiagonals(s, chunk);
        }
        Order<HardEvent::MTE1_MTE2>();
        for (uint32_t s = first; s < end; ++s) {
            BringWide(s, chunk);
            if constexpr (!INTO_L1) BringState(s);
            SetFlag<HardEvent::MTE2_MTE1>(WIDE_IN + s);
        }
        for (uint32_t s = first; s < end; ++s) Beside(s);
        for (uint32_t s = first; s < end; ++s) RestOfBeside(s);
        for (uint32_t s = first; s < end; ++s) Halves(s);
        for (uint32_t s = first; s < end; ++s) RestOfHalves(s);
        for (uint32_t s = first; s < end; ++s) Below(s);
        for (uint32_t s = first; s < end; ++s) PutRest(s, OwnParts<M>(s, L1::PBELOW, HALF, HALF), HALF, HALF);
        for (uint32_t s = first; s < end; ++s) Solution(s);
        for (uint32_t s = first; s < end; ++s) RestOfSolution(s);
        for (uint32_t s = first; s < end; ++s) Reads(s);
        for (uint32_t s = first; s < end; ++s) Writes(s);
        if constexpr (INTO_L1)
            for (uint32_t s = first; s < end; ++s) OfState(s);
        for (uint32_t s = first; s < end; ++s) PutRest(s, U(s), W, CHUNK);
        for (uint32_t s = first; s < end; ++s) Change(s);
    }

    __aicore__ inline void BringDiagonals(uint32_t s, uint32_t chunk) {
        if constexpr (!INTO_L1) {
            constexpr uint32_t COUNT = SUB * CHUNK, MERGED = 2 * COUNT * sizeof(M), OPERAND = 2 * COUNT * sizeof(T);
            const uint32_t at = Sizes().diagonal;
            for (uint32_t part = 0; part < PARTS; ++part) {
                BringHalf<M>(Own<M>(s, L1::PMERGED + part * 2 * HALF * HALF * sizeof(M), 2 * HALF, HALF).whole, Room<M>(s, at + part * COUNT * sizeof(M), COUNT), 2);
                BringDiagonal<T>(Own(s, L1::PSOLUTION + part * SQUARE * sizeof(T), CHUNK, CHUNK).whole, Room<T>(s, at + MERGED + part * COUNT * sizeof(T), COUNT));
                BringDiagonal<T>((part ? Rest(OfA(s, chunk)) : Number(OfA(s, chunk))).whole, Room<T>(s, at + MERGED + OPERAND + part * COUNT * sizeof(T), COUNT));
            }
            SetFlag<HardEvent::MTE2_MTE1>(DIAGONAL_IN + s);
        }
    }

    // The inverse of [[A, 0], [E, B]] is [[A', 0], [-B' E A', B']]: for blocks of 16 in each half, then for the halves.

    /// -E A' of both halves.
    __aicore__ inline void Beside(uint32_t s) {
        if constexpr (!INTO_L1) WaitFlag<HardEvent::MTE2_MTE1>(DIAGONAL_IN + s);
        Need(s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        for (uint32_t half = 0; half < 2; ++half) {
            products_.Next();
            products_.template Add<Lies::AsIs, Lies::AsIs>(c[half * SUB * SUB], Own<M>(s, L1::BESIDE + half * SUB * SUB * sizeof(M), SUB, SUB), HalfOfInverse(s, half), SUB, SUB, SUB);
        }
        products_.Close();
        for (uint32_t half = 0; half < 2; ++half) Put(s, Number(Product(s, half)), c[half * SUB * SUB], SUB, SUB, SUB);
        products_.Stored();
        Done(s);
    }
    __aicore__ inline void RestOfBeside(uint32_t s) {
        if constexpr (!is_float) {
            Need(s);
            LocalTensor<float> c = products_.Reopen(s % AREAS);
            for (uint32_t half = 0; half < 2; ++half) TakeAway(c[half * SUB * SUB], Product(s, half).number, SUB, SUB);
            products_.Close();
            for (uint32_t half = 0; half < 2; ++half) Put(s, Product(s, half).rest, c[half * SUB * SUB], SUB, SUB, SUB);
            products_.Stored();
            Done(s);
        }
    }
    /// B' (-E A'), which completes the inverses of both halves.
    __aicore__ inline void Halves(uint32_t s) {
        Need(s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        AddHalves(s, c);
        products_.Close();
        for (uint32_t half = 0; half < 2; ++half) Put(s, At(Number(HalfOfInverse(s, half)), SUB, 0), c[half * SUB * SUB], SUB, SUB, SUB);
        products_.Stored();
        Done(s);
    }
    __aicore__ inline void AddHalves(uint32_t s, const LocalTensor<float>& c) {
        for (uint32_t half = 0; half < 2; ++half) {
            products_.Next();
            products_.template Add<Lies::AsIs, Lies::AsIs>(c[half * SUB * SUB], At(HalfOfInverse(s, half), SUB, SUB), Product(s, half), SUB, SUB, SUB);
        }
    }
    __aicore__ inline void RestOfHalves(uint32_t s) {
        if constexpr (!is_float) {
            Need(s);
            LocalTensor<float> c = products_.Reopen(s % AREAS);
            for (uint32_t half = 0; half < 2; ++half) TakeAway(c[half * SUB * SUB], At(HalfOfInverse(s, half).number, SUB, 0), SUB, SUB);
            products_.Close();
            for (uint32_t half = 0; half < 2; ++half) Put(s, At(HalfOfInverse(s, half).rest, SUB, 0), c[half * SUB * SUB], SUB, SUB, SUB);
            products_.Stored();
            Done(s);
        }
    }
    /// -E A' of the halves.
    __aicore__ inline void Below(uint32_t s) {
        Need(s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, Own<M>(s, L1::BELOW, HALF, HALF), HalfOfInverse(s, 0), HALF, HALF, HALF);
        PutNumber(s, Own<M>(s, L1::PBELOW, HALF, HALF), c, HALF, HALF);
    }
    /// The blocks below the diagonal of the chunk's inverse, as operands.
    __aicore__ inline void Solution(uint32_t s) {
        Need(s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, HalfOfInverse(s, 1), OwnParts<M>(s, L1::PBELOW, HALF, HALF), HALF, HALF, HALF);
        AddHalves(s, c[HALF * HALF]);
        PutSolution(s, Number(Inverse(s)), c);
    }
    __aicore__ inline void RestOfSolution(uint32_t s) {
        if constexpr (!is_float) {
            Need(s);
            LocalTensor<float> c = products_.Reopen(s % AREAS);
            const Nz<T> number = Inverse(s).number;
            TakeAway(c, At(number, HALF, 0), HALF, HALF);
            for (uint32_t half = 0; half < 2; ++half) TakeAway(c[HALF * HALF + half * SUB * SUB], At(number, half * HALF + SUB, half * HALF), SUB, SUB);
            PutSolution(s, Inverse(s).rest, c);
        }
    }
    __aicore__ inline void PutSolution(uint32_t s, const Nz<T>& to, const LocalTensor<float>& c) {
        products_.Close();
        Put(s, At(to, HALF, 0), c, HALF, HALF, HALF);
        for (uint32_t half = 0; half < 2; ++half) Put(s, At(to, half * HALF + SUB, half * HALF), c[HALF * HALF + half * SUB * SUB], SUB, SUB, SUB);
        products_.Stored();
        Done(s);
    }

    // With X that inverse: u = X b v - X (b k exp(G)) S, o = q exp(G) S + A u, and the state gains k^T u.

    /// X (-b k exp(G)): how u reads the state.
    __aicore__ inline void Reads(uint32_t s) {
        Need(s);
        WaitFlag<HardEvent::MTE2_MTE1>(WIDE_IN + s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, Inverse(s), Own(s, L1::K, CHUNK, W), CHUNK, W, CHUNK);
        PutNumber(s, Own(s, L1::READS, CHUNK, W), c, CHUNK, W);
    }
    /// u, transposed. It takes the place of k.
    __aicore__ inline void Writes(uint32_t s) {
        Need(s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        products_.template Add<Lies::Transposed, Lies::Transposed>(c, Own(s, L1::V, CHUNK, W), Inverse(s), W, CHUNK, CHUNK);
        products_.template Add<Lies::AsIs, Lies::Transposed>(c, Own(s, L1::STATE, W, W), Own(s, L1::READS, CHUNK, W), W, CHUNK, W);
        PutNumber(s, Number(U(s)), c, W, CHUNK);
    }
    /// q exp(G) S; L0C of dav-3510 keeps it beside all else, so that the state may be replaced before Output.
    __aicore__ inline LocalTensor<float> OfState(uint32_t s) {
        LocalTensor<float> c = products_.Open(INTO_L1 ? 2 + s : s % AREAS);
        products_.template Add<Lies::AsIs, Lies::Transposed>(c, Own(s, L1::Q, CHUNK, W), Own(s, L1::STATE, W, W), CHUNK, W, W);
        if constexpr (INTO_L1) products_.Stored();
        return c;
    }
    __aicore__ inline void Output(uint32_t s, const KdaPair& pair, uint32_t chunk) {
        LocalTensor<float> c;
        if constexpr (INTO_L1)
            c = products_.Reopen(2 + s);
        else
            c = OfState(s);
        products_.template Add<Lies::AsIs, Lies::Transposed>(c, OfA(s, chunk), U(s), CHUNK, W, CHUNK);
        products_.Close();
        const int64_t token = pair.first_token + chunk * CHUNK;
        StoreRows(o_[(token * tiling_.heads + pair.head + s) * W], c, pair.TokensOf(chunk), W, CHUNK, tiling_.heads * W);
        products_.Stored();
    }
    __aicore__ inline void Change(uint32_t s) {
        Need(s);
        LocalTensor<float> c = products_.Open(s % AREAS);
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, U(s), ColumnsOf(s, SUBS - 1), W, W, CHUNK);
        products_.Close();
        ToVector(s, Ub::CHANGE, Sizes().change, 0, c, W, W, W, W);
        products_.Stored();
    }

    /// A. The next chunk's comes while this one's is still read, so 16 bits have two.
    __aicore__ inline static Both<T> OfA(uint32_t s, uint32_t chunk) { return OwnParts(s, L1::PA + chunk % AREAS * PARTS * SQUARE * sizeof(T), CHUNK, CHUNK); }
    __aicore__ inline GlobalTensor<T> Operands(uint32_t s, uint32_t chunk) const { return Room<T>(s, chunk % 2 * Sizes().operands, Sizes().operands / sizeof(T)); }
    __aicore__ inline static Both<T> U(uint32_t s) { return Parts(Own(s, L1::K, W, CHUNK), Own(s, L1::REST_U, W, CHUNK)); }
    __aicore__ inline static Both<T> Inverse(uint32_t s) { return OwnParts(s, L1::PSOLUTION, CHUNK, CHUNK); }

    __aicore__ inline static constexpr KdaRoom Sizes() { return KdaRoom(W, sizeof(T), sizeof(M)); }

    /// `count` elements of the workspace of the block's head s, from a byte on.
    template <class X>
    __aicore__ inline GlobalTensor<X> Room(uint32_t s, uint32_t bytes, uint32_t count) const {
        GlobalTensor<X> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ X*>(room_ + s * tiling_.room + bytes), count);
        return out;
    }

    KdaTiling tiling_;
    GlobalTensor<T> o_;
    GlobalTensor<int64_t> offsets_;
    GM_ADDR room_;
    Products products_;
    bool minus_ = false;
};

}  // namespace ascend_k3
