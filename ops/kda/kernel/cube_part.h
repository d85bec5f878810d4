// The cube core's part of a chunk: scores, the merges of the inverse, outputs, what the state gains.
#pragma once

#include "ascend_k3/cube.h"
#include "flags.h"

namespace ascend_k3 {

template <class T, uint32_t W>
class KdaCube {
    using M = Merged<T>;
    static constexpr bool is_float = std::is_same_v<T, float>;
    static constexpr uint32_t SQUARE = CHUNK * CHUNK, WIDE = CHUNK * W;
    static constexpr uint32_t HEADS = is_float ? 1 : 2;  // whose scores are in L1 at a time; float32 keeps them in the workspace

    // L1, in bytes: of a head at a time but for the scores
    // `REST_...`: what 16 bits leave of a float32
    static constexpr uint32_t LOW = is_float ? 0 : 1;
    static constexpr uint32_t ROWS = 0, COLUMNS = ROWS + 2 * WIDE * sizeof(T), REST_COLUMNS = COLUMNS + FirstColumnRow(SUBS) * W * sizeof(T);
    static constexpr uint32_t Q = REST_COLUMNS + LOW * FirstColumnRow(SUBS) * W * sizeof(T);
    static constexpr uint32_t K = Q + WIDE * sizeof(T), V = K + WIDE * sizeof(T), STATE = V + WIDE * sizeof(T), A = STATE + W * W * sizeof(T);
    static constexpr uint32_t WRITES = A + HEADS * SQUARE * sizeof(T), U = WRITES + WIDE * sizeof(T), SOLUTION = U + WIDE * sizeof(T);
    static constexpr uint32_t BELOW = SOLUTION + SQUARE * sizeof(T);  // two a head: -L below the diagonal in pairs, and in halves
    static constexpr uint32_t INVERSE = BELOW + 2 * HEADS * SQUARE * sizeof(M), ONE = INVERSE + SQUARE * sizeof(M);
    static constexpr uint32_t PART = ONE + SQUARE * sizeof(M), HALF = PART + SQUARE * sizeof(M);
    static constexpr uint32_t MINUS = HALF + SQUARE * sizeof(M), REST_A = MINUS + LOW * SQUARE * sizeof(T);
    static constexpr uint32_t REST_U = REST_A + LOW * HEADS * SQUARE * sizeof(T), REST_SOLUTION = REST_U + LOW * WIDE * sizeof(T);
    static constexpr uint32_t MINUS_MERGED = REST_SOLUTION + LOW * SQUARE * sizeof(T), REST_INVERSE = MINUS_MERGED + LOW * SQUARE * sizeof(M);
    static constexpr uint32_t REST_PART = REST_INVERSE + LOW * SQUARE * sizeof(M), REST_HALF = REST_PART + LOW * SQUARE * sizeof(M);

   public:
    __aicore__ inline void Run(GM_ADDR offsets, GM_ADDR o, GM_ADDR workspace, const KdaTiling& tiling) {
        tiling_ = tiling;
        o_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(o), static_cast<uint64_t>(tiling.tokens) * tiling.heads * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        room_ = workspace + GetBlockIdx() * 2 * tiling.room;
        Constants();
        products_.Begin();
        for (int64_t index = GetBlockIdx(); index < tiling.pairs; index += GetBlockNum()) {
            const KdaPair pair(tiling, offsets_, index);
            for (uint32_t chunk = 0; chunk < pair.chunks; ++chunk) {
                CrossCoreWaitFlag(flag::OPERANDS);
                if (!ones_) Ones();
                for (uint32_t s = 0; s < pair.heads; ++s) Scores(s, chunk % 2);
                CrossCoreSetFlag<2, PIPE_FIX>(flag::SCORES);
                CrossCoreWaitFlag(flag::DIAGONAL);
                CrossCoreWaitFlag(flag::STATE);
                for (uint32_t s = 0; s < pair.heads; ++s) {
                    Solve(s, chunk % 2);
                    Output(s, pair, chunk);
                }
                CrossCoreSetFlag<2, PIPE_FIX>(flag::CHANGE);
            }
        }
        products_.End();
    }

   private:
    template <class X>
    __aicore__ inline static Nz<X> At(uint32_t bytes, uint16_t rows, uint16_t columns) {
        return {LocalTensor<X>(TPosition::A1, bytes, rows * columns), rows, 0, 0};
    }
    /// A matrix as two of 16 bits whose sum it is; of 32 bits as `number` alone.
    template <class X>
    struct Pair {
        Nz<X> number, rest;
    };
    template <class X>
    __aicore__ inline static Pair<X> Both(uint32_t number, uint32_t rest, uint16_t columns) {
        return {At<X>(number, CHUNK, columns), At<X>(rest, CHUNK, columns)};
    }
    template <class X>
    __aicore__ inline static Nz<X> Part(Nz<X> whole, uint16_t row, uint16_t column) {
        whole.row = row, whole.column = column;
        return whole;
    }
    __aicore__ inline static Nz<T> OfA(uint32_t s) { return At<T>(A + s % HEADS * SQUARE * sizeof(T), CHUNK, CHUNK); }
    /// -L: 0, blocks (1, 0) and (3, 2); 1, the lower left half.
    __aicore__ inline static Nz<M> Below(uint32_t s, uint32_t which) { return At<M>(BELOW + (s % HEADS * 2 + which) * SQUARE * sizeof(M), CHUNK, CHUNK); }

    __aicore__ inline static Nz<T> RestOfA(uint32_t s) { return At<T>(REST_A + s % HEADS * SQUARE * sizeof(T), CHUNK, CHUNK); }

    /// Matrices that are zero outside of certain blocks, which alone are written from here on.
    __aicore__ inline void Constants() {
        for (uint32_t s = 0; s < HEADS; ++s) {
            Zero(OfA(s));
            if constexpr (!is_float) Zero(RestOfA(s));
            for (uint32_t which = 0; which < 2; ++which) Zero(Below(s, which));
        }
        Zero(At<M>(INVERSE, CHUNK, CHUNK));
        Zero(At<M>(ONE, CHUNK, CHUNK));
        if constexpr (!is_float) {
            Zero(At<T>(MINUS, CHUNK, CHUNK));
            Zero(At<M>(MINUS_MERGED, CHUNK, CHUNK));
            Zero(At<M>(REST_INVERSE, CHUNK, CHUNK));
        }
        PipeBarrier<PIPE_MTE2>();
        Order<HardEvent::MTE2_FIX>();
    }
    template <class X>
    __aicore__ inline static void Zero(const Nz<X>& matrix) {
        Fill(matrix.whole, InitConstValueParams<X>(1, SQUARE * sizeof(X) / 32, 0, X(0)));
    }
    /// 1 and -1 on the diagonal, when the vector cores have written them.
    __aicore__ inline void Ones() {
        constexpr uint32_t COUNT = SUB * CHUNK;
        BringDiagonal(At<M>(ONE, CHUNK, CHUNK), Room<M>(0, Sizes().ones, COUNT));
        if constexpr (!is_float) {
            BringDiagonal(At<M>(MINUS_MERGED, CHUNK, CHUNK), Room<M>(0, Sizes().ones + COUNT * sizeof(M), COUNT));
            BringDiagonal(At<T>(MINUS, CHUNK, CHUNK), Room<T>(0, Sizes().ones + 2 * COUNT * sizeof(M), COUNT));
        }
        ones_ = true;
    }

    /// Rows q, -b k of each sub-chunk times the keys up to it. Diagonal blocks go to the vector cores; A below them to L1
    /// as it is, -L where the merges of the inverse take it.
    __aicore__ inline void Scores(uint32_t s, uint32_t slot) {
        const KdaRoom sizes = Sizes();
        GlobalTensor<T> operands = Room<T>(s, slot * sizes.operands, sizes.operands / sizeof(T));
        GlobalTensor<float> scores = Room<float>(s, sizes.scores, 2 * SUB * CHUNK);
        Nz<T> rows = At<T>(ROWS, 2 * CHUNK, W);
        Order<HardEvent::MTE1_MTE2>();
        DataCopy(rows.whole, operands[sizes.rows / sizeof(T)], 2 * WIDE);
        DataCopy(At<T>(COLUMNS, FirstColumnRow(SUBS), W).whole, operands[sizes.columns / sizeof(T)], FirstColumnRow(SUBS) * W);
        if constexpr (!is_float) DataCopy(At<T>(REST_COLUMNS, FirstColumnRow(SUBS), W).whole, operands[sizes.columns_low / sizeof(T)], FirstColumnRow(SUBS) * W);
        Order<HardEvent::MTE2_MTE1>();
        Order<HardEvent::MTE1_FIX>();
        if constexpr (is_float) Order<HardEvent::MTE2_FIX>();
        for (uint32_t i = 0; i < SUBS; ++i) {
            constexpr uint16_t M_ROWS = 2 * SUB;
            constexpr uint32_t LOWER = SUB * FRACTAL, BLOCK = M_ROWS * FRACTAL;  // in L0C: from q's rows to k's, to the next 16 columns
            LocalTensor<float> c = products_.Open();
            products_.template Add<Lies::AsIs, Lies::Transposed>(c, Part(rows, 2 * i * SUB, 0), ColumnsOf(i), M_ROWS, (i + 1) * SUB, W);
            if constexpr (!is_float)
                products_.template Add<Lies::AsIs, Lies::Transposed>(c, Part(rows, 2 * i * SUB, 0), RestOfColumns(i), M_ROWS, (i + 1) * SUB, W);
            products_.Close();
            StoreRows(scores[i * SUB], c[i * BLOCK], SUB, SUB, M_ROWS, CHUNK);
            StoreRows(scores[SUB * CHUNK + i * SUB], c[i * BLOCK + LOWER], SUB, SUB, M_ROWS, CHUNK);
            if (i > 0) Keep(s, 0, Part(OfA(s), i * SUB, 0), c, SUB, i * SUB, M_ROWS);
            if (i % 2) Keep(s, 1, Part(Below(s, 0), i * SUB, (i - 1) * SUB), c[(i - 1) * BLOCK + LOWER], SUB, SUB, M_ROWS);
            if (i >= 2) Keep(s, 2, Part(Below(s, 1), i * SUB, 0), c[LOWER], SUB, 2 * SUB, M_ROWS);
            if constexpr (!is_float) {
                if (i > 0) {
                    // [-1; 0] times the rounded A leaves, in q's rows, what was lost
                    TakeAway(Part(OfA(s), i * SUB, 0), c, M_ROWS, i * SUB, SUB);
                    StoreNz(Part(RestOfA(s), i * SUB, 0), c, SUB, i * SUB, M_ROWS);
                }
            }
            products_.Stored();
        }
        Order<HardEvent::FIX_MTE1>();
        if constexpr (is_float) Order<HardEvent::FIX_MTE2>();
    }

    /// A block of a [CHUNK, CHUNK] matrix out of L0C to L1; float32 waits in the workspace until Solve.
    template <class X>
    __aicore__ inline void Keep(uint32_t s, uint32_t which, const Nz<X>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows) {
        if constexpr (is_float)
            StoreNz(Room<float>(s, Sizes().kept + which * SQUARE * 4, SQUARE), CHUNK, to.row, to.column, c, m, n, rows);
        else
            StoreNz(to, c, m, n, rows);
    }
    /// float32: what Keep kept, blocks of rows x columns.
    __aicore__ inline void Bring(uint32_t s, uint32_t which, const Nz<float>& to, uint16_t rows, uint16_t columns) {
        const uint32_t at = (to.column / C0<float> * CHUNK + to.row) * C0<float>;
        const uint16_t gap = CHUNK - rows;
        DataCopy(to.whole[at], Room<float>(s, Sizes().kept + which * SQUARE * 4, SQUARE)[at], DataCopyParams(columns / C0<float>, rows, gap, gap));
    }

    /// 16 bits: from a product in L0C that has been stored, take what was stored.
    template <class X>
    __aicore__ inline void TakeAway(const Nz<X>& stored, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t k) {
        Order<HardEvent::FIX_MTE1>();
        products_.Reopen();
        const Nz<X> minus = At<X>(std::is_same_v<X, T> ? MINUS : MINUS_MERGED, CHUNK, CHUNK);
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, minus, stored, m, n, k);
        products_.Close();
    }

    /// A product [CHUNK, columns] to L1: of 16 bits in two parts, of 32 bits through the workspace.
    template <class X>
    __aicore__ inline void ToL1(uint32_t s, const Pair<X>& to, const LocalTensor<float>& c, uint16_t columns) {
        if constexpr (is_float) {
            ToL1(s, to.number, c, columns);
        } else {
            products_.Close();
            Order<HardEvent::MTE1_FIX>();
            StoreNz(to.number, c, CHUNK, columns, CHUNK);
            TakeAway(to.number, c, CHUNK, columns, CHUNK);
            StoreNz(to.rest, c, CHUNK, columns, CHUNK);
            products_.Stored();
            Order<HardEvent::FIX_MTE1>();
        }
    }
    /// The same without the rest.
    template <class X>
    __aicore__ inline void ToL1(uint32_t s, const Nz<X>& to, const LocalTensor<float>& c, uint16_t columns) {
        products_.Close();
        if constexpr (is_float) {
            GlobalTensor<float> through = Room<float>(s, Sizes().kept + 3 * SQUARE * 4, WIDE);
            Order<HardEvent::MTE2_FIX>();
            StoreNz(through, CHUNK, 0, 0, c, CHUNK, columns, CHUNK);
            products_.Stored();
            Order<HardEvent::FIX_MTE2>();
            Order<HardEvent::MTE1_MTE2>();
            DataCopy(to.whole, through, CHUNK * columns);
            Order<HardEvent::MTE2_MTE1>();
        } else {
            Order<HardEvent::MTE1_FIX>();
            StoreNz(to, c, CHUNK, columns, CHUNK);
            products_.Stored();
            Order<HardEvent::FIX_MTE1>();
        }
    }

    /// (I + L)^-1 of a chunk from the inverses D of its diagonal blocks: with E the blocks below them in pairs,
    /// D2 = D (1 - E D); with F the lower left half, D2 (1 - F D2).
    __aicore__ inline void Solve(uint32_t s, uint32_t slot) {
        const KdaRoom sizes = Sizes();
        constexpr uint32_t COUNT = SUB * CHUNK;
        const Nz<M> one = At<M>(ONE, CHUNK, CHUNK);
        const Pair<M> inverse = Both<M>(INVERSE, REST_INVERSE, CHUNK), part = Both<M>(PART, REST_PART, CHUNK), half = Both<M>(HALF, REST_HALF, CHUNK);
        GlobalTensor<T> operands = Room<T>(s, slot * sizes.operands, sizes.operands / sizeof(T));
        Order<HardEvent::MTE1_MTE2>();
        if constexpr (is_float) {
            for (uint32_t i = 1; i < SUBS; ++i) Bring(s, 0, Part(OfA(s), i * SUB, 0), SUB, i * SUB);
            Bring(s, 1, Part(Below(s, 0), SUB, 0), SUB, SUB);
            Bring(s, 1, Part(Below(s, 0), 3 * SUB, 2 * SUB), SUB, SUB);
            Bring(s, 2, Part(Below(s, 1), 2 * SUB, 0), 2 * SUB, 2 * SUB);
        }
        BringDiagonal(inverse.number, Room<M>(s, sizes.diagonal, COUNT));
        BringDiagonal(OfA(s), Room<T>(s, sizes.diagonal + 2 * COUNT * sizeof(M), COUNT));
        if constexpr (!is_float) {
            BringDiagonal(inverse.rest, Room<M>(s, sizes.diagonal + COUNT * sizeof(M), COUNT));
            BringDiagonal(RestOfA(s), Room<T>(s, sizes.diagonal + COUNT * (2 * sizeof(M) + sizeof(T)), COUNT));
        }
        DataCopy(At<T>(Q, CHUNK, W).whole, operands[sizes.q_decayed / sizeof(T)], WIDE);
        DataCopy(At<T>(K, CHUNK, W).whole, operands[sizes.k_decayed / sizeof(T)], WIDE);
        DataCopy(At<T>(V, CHUNK, W).whole, operands[sizes.v / sizeof(T)], WIDE);
        DataCopy(ColumnsOf(SUBS - 1).whole, operands[sizes.columns / sizeof(T) + FirstColumnRow(SUBS - 1) * W], WIDE);
        if constexpr (!is_float) DataCopy(RestOfColumns(SUBS - 1).whole, operands[sizes.columns_low / sizeof(T) + FirstColumnRow(SUBS - 1) * W], WIDE);
        DataCopy(At<T>(STATE, W, W).whole, Room<T>(s, sizes.state, W * W), W * W);
        Order<HardEvent::MTE2_MTE1>();

        LocalTensor<float> c = products_.Open();
        Square(c, one, one);
        Square(c, Below(s, 0), inverse);
        ToL1(s, part, c, CHUNK);
        c = products_.Open();
        Square(c, inverse, part);
        ToL1(s, half, c, CHUNK);
        c = products_.Open();
        Square(c, one, one);
        Square(c, Below(s, 1), half);
        ToL1(s, part, c, CHUNK);
        c = products_.Open();
        Square(c, half, part);
        ToL1(s, Both<T>(SOLUTION, REST_SOLUTION, CHUNK), c, CHUNK);
    }

    __aicore__ inline void Square(const LocalTensor<float>& c, const Nz<M>& a, const Nz<M>& b) {
        products_.template Add<Lies::AsIs, Lies::AsIs>(c, a, b, CHUNK, CHUNK, CHUNK);
    }
    __aicore__ inline void Square(const LocalTensor<float>& c, const Nz<M>& a, const Pair<M>& b) {
        Square(c, a, b.number);
        if constexpr (!is_float) Square(c, a, b.rest);
    }
    __aicore__ inline void Square(const LocalTensor<float>& c, const Pair<M>& a, const Pair<M>& b) {
        Square(c, a.number, b);
        if constexpr (!is_float) Square(c, a.rest, b.number);
    }

    /// Four blocks [SUB, SUB], side by side in global memory as NZ of [SUB, CHUNK], to the diagonal of a matrix.
    template <class X>
    __aicore__ inline void BringDiagonal(const Nz<X>& to, const GlobalTensor<X>& from) {
        constexpr uint16_t GROUPS = SUB / C0<X>;  // of a block
        for (uint16_t g = 0; g < GROUPS; ++g)
            DataCopy(to.whole[g * CHUNK * C0<X>], from[g * SUB * C0<X>], DataCopyParams(SUBS, SUB, (GROUPS - 1) * SUB, GROUPS * CHUNK));
    }

    /// With X = (I + L)^-1: u = X b v - X (b k exp(G)) S; o = q exp(G) S + A u; and k^T u for the state.
    __aicore__ inline void Output(uint32_t s, const KdaPair& pair, uint32_t chunk) {
        Nz<T> solution = At<T>(SOLUTION, CHUNK, CHUNK), writes = At<T>(WRITES, CHUNK, W), u = At<T>(U, CHUNK, W), rest_u = At<T>(REST_U, CHUNK, W), state = At<T>(STATE, W, W);
        LocalTensor<float> c = products_.Open();
        Times<Lies::AsIs>(c, solution, At<T>(K, CHUNK, W), CHUNK);
        if constexpr (!is_float) Times<Lies::AsIs>(c, At<T>(REST_SOLUTION, CHUNK, CHUNK), At<T>(K, CHUNK, W), CHUNK);
        ToL1(s, writes, c, W);
        c = products_.Open();
        Times<Lies::AsIs>(c, solution, At<T>(V, CHUNK, W), CHUNK);
        if constexpr (!is_float) Times<Lies::AsIs>(c, At<T>(REST_SOLUTION, CHUNK, CHUNK), At<T>(V, CHUNK, W), CHUNK);
        Times<Lies::AsIs, Lies::Transposed>(c, writes, state, CHUNK);
        ToL1(s, Both<T>(U, REST_U, W), c, W);
        c = products_.Open();
        Times<Lies::AsIs, Lies::Transposed>(c, At<T>(Q, CHUNK, W), state, CHUNK);
        Times<Lies::AsIs>(c, OfA(s), u, CHUNK);
        if constexpr (!is_float) {
            Times<Lies::AsIs>(c, RestOfA(s), u, CHUNK);
            Times<Lies::AsIs>(c, OfA(s), rest_u, CHUNK);
        }
        products_.Close();
        const int64_t token = pair.first_token + chunk * CHUNK;
        StoreRows(o_[(token * tiling_.heads + pair.head + s) * W], c, pair.TokensOf(chunk), W, CHUNK, tiling_.heads * W);
        products_.Stored();
        c = products_.Open();
        Times<Lies::Transposed>(c, u, ColumnsOf(SUBS - 1), W);
        if constexpr (!is_float) {
            Times<Lies::Transposed>(c, rest_u, ColumnsOf(SUBS - 1), W);
            Times<Lies::Transposed>(c, u, RestOfColumns(SUBS - 1), W);
        }
        products_.Close();
        StoreRows(Room<float>(s, Sizes().change, W * W), c, W, W, W, W);
        products_.Stored();
    }

    /// c += A B for B of W columns.
    template <Lies left, Lies right = Lies::AsIs>
    __aicore__ inline void Times(const LocalTensor<float>& c, const Nz<T>& a, const Nz<T>& b, uint16_t m) {
        products_.template Add<left, right>(c, a, b, m, W, right == Lies::Transposed ? W : CHUNK);
    }

    /// Keys of sub-chunks 0 to i, decayed to or from the middle of sub-chunk i.
    __aicore__ inline static Nz<T> ColumnsOf(uint32_t i) { return At<T>(COLUMNS + FirstColumnRow(i) * W * sizeof(T), (i + 1) * SUB, W); }

    __aicore__ inline static Nz<T> RestOfColumns(uint32_t i) { return At<T>(REST_COLUMNS + FirstColumnRow(i) * W * sizeof(T), (i + 1) * SUB, W); }

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
    bool ones_ = false;
};

}  // namespace ascend_k3
