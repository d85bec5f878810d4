// What of a chunk needs no state: A, the inverse from its diagonal blocks, and how u reads the state.
#pragma once

#include "matrices.h"

namespace ascend_k3 {

template <class T, uint32_t W>
class KdaSolve {
    using X = KdaMatrices<T, W>;
    using M = typename X::M;
    using L1 = typename X::L1;
    using Ub = KdaUb<T, W>;
    static constexpr bool is_float = X::is_float;
    static constexpr uint32_t SQUARE = L1::SQUARE, HALF = L1::HALF;
    // Events MTE2_MTE1: a sub-chunk's operands of the scores; the blocks of the vector cores, behind them what else a chunk has.
    // MTE1_MTE2: the inverse has been used. FIX_MTE1: what the next step takes, and the last step's result.
    static constexpr int32_t SUB_IN = 0, BLOCKS_IN = SUBS, INVERSE_USED = 0, STORED = 0;

   public:
    static constexpr int32_t READS = 1, OTHERS_IN = BLOCKS_IN + 1, OTHERS_USED = INVERSE_USED + 1;

    __aicore__ inline explicit KdaSolve(X& matrices) : x_(matrices) {}

    __aicore__ inline void Begin() {
        Zero<T>(L1::PA, (L1::SLOTS + 1) * L1::PARTS * SQUARE);
        Zero<M>(L1::PHALVES, L1::PARTS * 2 * HALF * HALF);
        Order<HardEvent::MTE2_FIX>();
    }

    /// Rows and keys, where the vector cores have not written them to L1.
    __aicore__ inline void Bring(uint32_t n) {
        if constexpr (!L1::FROM_VECTOR) {
            CrossCoreWaitFlag(flag::OPERANDS);
            if (n == 0) BringMinus();
            if constexpr (!is_float) Order<HardEvent::MTE1_MTE2>();
            for (uint32_t i = 0; i < SUBS; ++i) {
                if (i == SUBS - 1) CrossCoreWaitFlag(flag::OPERANDS);
                BringSub(n, i);
            }
        }
    }
    /// Rows q and -k times the keys up to them, to the vector cores and L1.
    __aicore__ inline void Scores(uint32_t n) {
        if constexpr (is_float) Order<HardEvent::MTE2_FIX>();
        x_.products.Open(X::SOLVE_PART);
        for (uint32_t i = 0; i < SUBS; ++i) {
            if constexpr (L1::FROM_VECTOR) {
                if (i == 0 || i == SUBS - 1) CrossCoreWaitFlag(flag::OPERANDS);
                if (i == 0 && n == 0) BringMinus();
            }
            Scores(n, i);
        }
        if constexpr (is_float) Order<HardEvent::FIX_MTE2>();
        Stored();
        CrossCoreSetFlag<2, PIPE_FIX>(flag::SCORES);
        BringWide(n);
    }
    /// What of A was lost in its number.
    __aicore__ inline void RestOfA(uint32_t n) {
        if constexpr (!is_float) {
            const Pair<T> a = X::A(n);
            X::Need(STORED);
            x_.products.Reopen(X::SOLVE_PART);
            for (uint32_t i = 1; i < SUBS; ++i) x_.TakeAway(Part(i), X::At(a.number, 0, i * SUB), i * SUB, SUB);
            x_.products.Close();
            for (uint32_t i = 1; i < SUBS; ++i) StoreNz(X::At(a.rest, 0, i * SUB), Part(i), i * SUB, SUB, (i + 1) * SUB);
            Stored();
        }
    }

    // ---- from the inverses of the diagonal blocks to X (-k exp(G)), step by step ----
    static constexpr uint32_t STEPS = 9;
    /// Each step takes what fixpipe has stored of the one before. 16 bits: other products go in between.
    __aicore__ inline void Step(uint32_t step, uint32_t n) {
        if (step == 0) Blocks(n), Beside();
        if (step == 1) RestOfBeside();
        if (step == 2) Complete();
        if (step == 3) RestOfComplete();
        if (step == 4) Below();
        if (step == 5) RestOfBelow();
        if (step == 6) Inverse();
        if (step == 7) RestOfInverse();
        if (step == 8) Reads(n);
    }
    /// The inverse may be replaced.
    __aicore__ inline static void InverseUsed() {
        if constexpr (L1::FROM_VECTOR)
            CrossCoreSetFlag<2, PIPE_MTE1>(flag::INVERSE_USED);
        else
            SetFlag<HardEvent::MTE1_MTE2>(INVERSE_USED);
    }

   private:
    __aicore__ inline void Blocks(uint32_t n) {
        CrossCoreWaitFlag(flag::BLOCKS);
        BringKept(n);
        if constexpr (!L1::FROM_VECTOR) BringBlocks(n);
    }

    // The inverse of [[A, 0], [E, B]] is [[A', 0], [-B' E A', B']]: for blocks of 16 in each half, then for the halves.

    /// -E A' of both halves.
    __aicore__ inline void Beside() {
        if constexpr (!L1::FROM_VECTOR) WaitFlag<HardEvent::MTE2_MTE1>(BLOCKS_IN);
        X::Need(STORED);
        LocalTensor<float> c = x_.products.Open(X::SOLVE_PART);
        for (uint32_t half = 0; half < 2; ++half) {
            x_.products.Next();
            x_.products.template Add<Lies::Transposed, Lies::AsIs>(c[half * SUB * SUB], Of(Matrix<M>(L1::BESIDE, 2 * SUB, SUB), half, SUB), Halves(half), SUB, SUB, SUB);
        }
        x_.products.Close();
        for (uint32_t half = 0; half < 2; ++half) x_.Put(X::Number(Product(half)), c[half * SUB * SUB], SUB, SUB, SUB);
        Stored();
    }
    __aicore__ inline void RestOfBeside() {
        if constexpr (!is_float) {
            X::Need(STORED);
            LocalTensor<float> c = x_.products.Reopen(X::SOLVE_PART);
            for (uint32_t half = 0; half < 2; ++half) x_.TakeAway(c[half * SUB * SUB], Product(half).number, SUB, SUB);
            x_.products.Close();
            for (uint32_t half = 0; half < 2; ++half) x_.Put(Product(half).rest, c[half * SUB * SUB], SUB, SUB, SUB);
            Stored();
        }
    }
    /// B' (-E A'), which completes the inverses of both halves.
    __aicore__ inline void Complete() {
        X::Need(STORED);
        LocalTensor<float> c = x_.products.Open(X::SOLVE_PART);
        AddHalves(c);
        x_.products.Close();
        for (uint32_t half = 0; half < 2; ++half) x_.Put(X::At(X::Number(Halves(half)), SUB, 0), c[half * SUB * SUB], SUB, SUB, SUB);
        Stored();
    }
    __aicore__ inline void RestOfComplete() {
        if constexpr (!is_float) {
            X::Need(STORED);
            LocalTensor<float> c = x_.products.Reopen(X::SOLVE_PART);
            for (uint32_t half = 0; half < 2; ++half) x_.TakeAway(c[half * SUB * SUB], X::At(Halves(half).number, SUB, 0), SUB, SUB);
            x_.products.Close();
            for (uint32_t half = 0; half < 2; ++half) x_.Put(X::At(Halves(half).rest, SUB, 0), c[half * SUB * SUB], SUB, SUB, SUB);
            Stored();
        }
    }
    /// -E A' of the halves.
    __aicore__ inline void Below() {
        X::Need(STORED);
        LocalTensor<float> c = x_.products.Open(X::SOLVE_PART);
        x_.products.template Add<Lies::Transposed, Lies::AsIs>(c, Matrix<M>(L1::BELOW, HALF, HALF), Halves(0), HALF, HALF, HALF);
        x_.PutNumber(X::Number(ProductBelow()), c, HALF, HALF, STORED);
    }
    __aicore__ inline void RestOfBelow() {
        if constexpr (!is_float) {
            X::Need(STORED);
            x_.PutRest(X::SOLVE_PART, ProductBelow(), HALF, HALF, STORED);
        }
    }
    /// The blocks below the diagonal of the chunk's inverse, as operands.
    __aicore__ inline void Inverse() {
        X::Need(STORED);
        LocalTensor<float> c = x_.products.Open(X::SOLVE_PART);
        x_.products.template Add<Lies::AsIs, Lies::AsIs>(c, Halves(1), ProductBelow(), HALF, HALF, HALF);
        AddHalves(c[HALF * HALF]);
        PutInverse(X::Number(X::Inverse()), c);
    }
    __aicore__ inline void RestOfInverse() {
        if constexpr (!is_float) {
            X::Need(STORED);
            LocalTensor<float> c = x_.products.Reopen(X::SOLVE_PART);
            const Nz<T> number = X::Inverse().number;
            x_.TakeAway(c, X::At(number, HALF, 0), HALF, HALF);
            for (uint32_t half = 0; half < 2; ++half) x_.TakeAway(c[HALF * HALF + half * SUB * SUB], X::At(number, half * HALF + SUB, half * HALF), SUB, SUB);
            PutInverse(X::Inverse().rest, c);
        }
    }
    /// X (-k exp(G)).
    __aicore__ inline void Reads(uint32_t n) {
        X::Need(STORED);
        LocalTensor<float> c = x_.products.Open(X::READS_PART);
        x_.products.template Add<Lies::AsIs, Lies::AsIs>(c, X::Inverse(), X::Keys(n), CHUNK, W, CHUNK);
        x_.PutNumber(X::Reads(), c, CHUNK, W, READS);
    }

    template <class Y>
    __aicore__ inline static Nz<Y> Matrix(uint32_t bytes, uint16_t rows, uint32_t columns) {
        return X::template Matrix<Y>(bytes, rows, columns);
    }
    template <class Y>
    __aicore__ inline static auto Of(const Y& all, uint32_t i, uint16_t rows) {
        return X::Of(all, i, rows);
    }
    __aicore__ inline static auto Halves(uint32_t half) { return Of(X::template Parts<M>(L1::PHALVES, 2 * HALF, HALF), half, HALF); }
    __aicore__ inline static auto Product(uint32_t half) { return Of(X::template Parts<M>(L1::PBESIDE, 2 * SUB, SUB), half, SUB); }
    __aicore__ inline static auto ProductBelow() { return X::template Parts<M>(L1::PBELOW, HALF, HALF); }

    __aicore__ inline void Stored() {
        x_.products.Stored();
        X::Done(STORED);
    }
    __aicore__ inline void AddHalves(const LocalTensor<float>& c) {
        for (uint32_t half = 0; half < 2; ++half) {
            x_.products.Next();
            x_.products.template Add<Lies::AsIs, Lies::AsIs>(c[half * SUB * SUB], X::At(Halves(half), SUB, SUB), Product(half), SUB, SUB, SUB);
        }
    }
    __aicore__ inline void PutInverse(const Nz<T>& to, const LocalTensor<float>& c) {
        x_.products.Close();
        x_.Put(X::At(to, HALF, 0), c, HALF, HALF, HALF);
        for (uint32_t half = 0; half < 2; ++half) x_.Put(X::At(to, half * HALF + SUB, half * HALF), c[HALF * HALF + half * SUB * SUB], SUB, SUB, SUB);
        Stored();
    }

    /// Matrices that are zero outside of certain blocks, which alone are written from here on.
    template <class Y>
    __aicore__ inline static void Zero(uint32_t bytes, uint32_t count) {
        Fill(LocalTensor<Y>(TPosition::A1, bytes, count), InitConstValueParams<Y>(1, count * sizeof(Y) / 32, 0, Y(0)));
    }
    /// -1 on the diagonal, when the vector cores have written it.
    __aicore__ inline void BringMinus() {
        const uint32_t at = X::Sizes().minus;
        DataCopy(X::template Minus<T>().whole, x_.template Room<T>(at, SUB * SUB), SUB * SUB);
        if constexpr (!is_float) DataCopy(X::template Minus<M>().whole, x_.template Room<M>(at + SUB * SUB * sizeof(T), SUB * SUB), SUB * SUB);
        Order<HardEvent::MTE2_MTE1>();
    }

    // ---- scores ----
    __aicore__ inline void Scores(uint32_t n, uint32_t i) {
        const uint16_t rows = (i + 1) * SUB;
        const LocalTensor<float> c = Part(i);
        if constexpr (!L1::FROM_VECTOR) WaitFlag<HardEvent::MTE2_MTE1>(SUB_IN + i);
        x_.products.Next();
        x_.products.template Add<Lies::AsIs, Lies::Transposed>(c, X::Columns(n, i), X::At(X::Rows(), 2 * i * SUB, 0), rows, 2 * SUB, W);
        x_.products.Close();
        const LocalTensor<float> l = c[rows * FRACTAL];
        ToVector(i, 0, c[i * SUB * FRACTAL], rows);
        ToVector(i, 1, l[i * SUB * FRACTAL], rows);
        if (i > 0) Keep(KEPT_A, X::At(X::Number(X::A(n)), 0, i * SUB), c, i * SUB, rows);
        if (i % 2) Keep(KEPT_BESIDE + i / 2 * SUB * SUB, Of(Matrix<M>(L1::BESIDE, 2 * SUB, SUB), i / 2, SUB), l[(i - 1) * SUB * FRACTAL], SUB, rows);
        if (i >= 2) Keep(KEPT_BELOW, X::At(Matrix<M>(L1::BELOW, HALF, HALF), 0, (i - 2) * SUB), l, 2 * SUB, rows);
    }
    /// Of a sub-chunk in L0C: its columns of A, then of -M, transposed.
    __aicore__ inline LocalTensor<float> Part(uint32_t i) const { return x_.products.In(X::SOLVE_PART)[i * 2 * SUB * CHUNK]; }
    /// A diagonal block of A or -M to the vector core that has it: to its UB, or to the workspace.
    __aicore__ inline void ToVector(uint32_t i, uint32_t which, const LocalTensor<float>& c, uint16_t rows) {
        constexpr uint32_t COUNT = Ub::BLOCKS;
        const uint32_t core = i / 2, element = which * COUNT + i % 2 * SUB;
#if __NPU_ARCH__ == 3510
        StoreRows(LocalTensor<float>(TPosition::VECCALC, Ub::SCORES + element * sizeof(float), COUNT), core, c, SUB, SUB, rows, 2 * SUB);
#else
        StoreRows(x_.template Room<float>(X::Sizes().scores + core * 2 * COUNT * sizeof(float), 2 * COUNT)[element], c, SUB, SUB, rows, 2 * SUB);
#endif
    }
    /// A block of -M or A out of L0C to L1; float32 waits in the workspace until its turn.
    static constexpr uint32_t KEPT_A = 0, KEPT_BESIDE = SQUARE, KEPT_BELOW = KEPT_BESIDE + 2 * SUB * SUB;  // elements
    template <class Y>
    __aicore__ inline void Keep(uint32_t kept, const Nz<Y>& to, const LocalTensor<float>& c, uint16_t m, uint16_t rows) {
        if constexpr (is_float)
            StoreNz(Kept(kept), to.rows, to.row, to.column, c, m, SUB, rows);
        else
            StoreNz(to, c, m, SUB, rows);
    }
    __aicore__ inline GlobalTensor<float> Kept(uint32_t element) const { return x_.template Room<float>(X::Sizes().kept + element * 4, SQUARE); }
    __aicore__ inline void BringKept(uint32_t n) {
        if constexpr (is_float) {
            const LocalTensor<float> a = X::A(n).whole;
            for (uint32_t i = 1; i < SUBS; ++i)
                DataCopy(a[i * SUB * CHUNK], Kept(KEPT_A)[i * SUB * CHUNK], DataCopyParams(SUB / C0<float>, i * SUB, CHUNK - i * SUB, CHUNK - i * SUB));
            DataCopy(Matrix<M>(L1::BESIDE, 2 * SUB, SUB).whole, Kept(KEPT_BESIDE), 2 * SUB * SUB);
            DataCopy(Matrix<M>(L1::BELOW, HALF, HALF).whole, Kept(KEPT_BELOW), HALF * HALF);
        }
    }

    // ---- out of the workspace ----
    __aicore__ inline GlobalTensor<T> Operands(uint32_t n) const { return x_.template Room<T>(n % ROOM_SLOTS * X::Sizes().operands, X::Sizes().operands / sizeof(T)); }

    __aicore__ inline void BringSub(uint32_t n, uint32_t i) {
        constexpr KdaRoom sizes = X::Sizes();
        GlobalTensor<T> operands = Operands(n);
        const uint32_t first = FirstColumnRow(i) * W, count = (i + 1) * SUB * W;
        DataCopy(X::Rows().whole[2 * i * SUB * C0<T>], operands[sizes.rows / sizeof(T) + 2 * i * SUB * C0<T>],
                 DataCopyParams(W / C0<T>, 2 * SUB, 2 * (CHUNK - SUB), 2 * (CHUNK - SUB)));
        const auto columns = X::Columns(n, i);
        DataCopy(X::Number(columns).whole, operands[sizes.columns / sizeof(T) + first], count);
        if constexpr (!is_float) DataCopy(columns.rest.whole, operands[sizes.columns_low / sizeof(T) + first], count);
        SetFlag<HardEvent::MTE2_MTE1>(SUB_IN + i);
    }
    /// q exp(G), -k exp(G) and the decay of the state.
    __aicore__ inline void BringWide(uint32_t n) {
        if constexpr (!L1::FROM_VECTOR) {
            constexpr KdaRoom sizes = X::Sizes();
            GlobalTensor<T> operands = Operands(n);
            DataCopy(X::Keys(n).whole, operands[sizes.k / sizeof(T)], L1::WIDE);
            DataCopy(X::Queries(n).whole, operands[sizes.q / sizeof(T)], L1::WIDE);
            DataCopy(X::template Whole<T>(L1::Operand(n, L1::PDECAY), SUB, W), operands[sizes.decay / sizeof(T)], L1::PARTS * SUB * W);
        }
    }
    __aicore__ inline void BringBlocks(uint32_t n) {
        constexpr uint32_t COUNT = SUB * CHUNK, BYTES = 2 * COUNT * sizeof(T);
        const uint32_t at = X::Sizes().blocks;
        if constexpr (!is_float)
            if (n > 0) WaitFlag<HardEvent::MTE1_MTE2>(INVERSE_USED);
        for (uint32_t part = 0; part < L1::PARTS; ++part) {
            BringHalves<M>(LocalTensor<M>(TPosition::A1, L1::PHALVES + part * 2 * HALF * HALF * sizeof(M), 2 * HALF * HALF), x_.template Room<M>(at + part * COUNT * sizeof(M), COUNT), 2);
            BringDiagonal<T>(Matrix<T>(L1::PINVERSE + part * SQUARE * sizeof(T), CHUNK, CHUNK).whole, x_.template Room<T>(at + BYTES + part * COUNT * sizeof(T), COUNT), 0, SUBS);
            BringDiagonal<T>(Matrix<T>(L1::A(n) + part * SQUARE * sizeof(T), CHUNK, CHUNK).whole, x_.template Room<T>(at + 2 * BYTES + part * COUNT * sizeof(T), COUNT), 0, SUBS);
        }
        SetFlag<HardEvent::MTE2_MTE1>(BLOCKS_IN);
    }

    X& x_;
};

}  // namespace ascend_k3
