// The cube core's matrices in L1, and how products get back there.
//
// Operands of 16 bits whose rounding would matter when keys are nearly equal come as pairs, a number and its rest; float32
// has no rest, and goes from L0C to L1 through the workspace.
#pragma once

#include "ascend_k3/cube.h"
#include "block.h"

namespace ascend_k3 {

template <class T, uint32_t W>
class KdaMatrices {
   public:
    using M = Merged<T>;
    using L1 = KdaL1<T, W>;
    static constexpr bool is_float = L1::is_float;

    // ---- views ----
    template <class X>
    __aicore__ inline static Nz<X> Matrix(uint32_t bytes, uint16_t rows, uint32_t columns) {
        return {LocalTensor<X>(TPosition::A1, bytes, rows * columns), rows, 0, 0};
    }
    /// float32 has no rest: the type then is that of a matrix alone.
    template <class X>
    using Both = std::conditional_t<is_float, Nz<X>, Pair<X>>;
    template <class X>
    __aicore__ inline static Both<X> Parts(uint32_t bytes, uint32_t rest, uint16_t rows, uint32_t columns) {
        if constexpr (is_float)
            return Matrix<X>(bytes, rows, columns);
        else
            return {Matrix<X>(bytes, rows, columns), Matrix<X>(rest, rows, columns)};
    }
    template <class X = T>
    __aicore__ inline static Both<X> Parts(uint32_t bytes, uint16_t rows, uint32_t columns) {
        return Parts<X>(bytes, bytes + rows * columns * sizeof(X), rows, columns);
    }
    /// A number and its rest, one behind the other.
    template <class X>
    __aicore__ inline static LocalTensor<X> Whole(uint32_t bytes, uint32_t rows, uint32_t columns) {
        return LocalTensor<X>(TPosition::A1, bytes, L1::PARTS * rows * columns);
    }
    /// From another place on.
    template <class X>
    __aicore__ inline static Nz<X> At(Nz<X> whole, uint16_t row, uint16_t column) {
        whole.row = row, whole.column = column;
        return whole;
    }
    template <class X>
    __aicore__ inline static Pair<X> At(const Pair<X>& whole, uint16_t row, uint16_t column) {
        return {At(whole.number, row, column), At(whole.rest, row, column)};
    }
    /// The i-th of several square matrices of `rows` rows.
    template <class X>
    __aicore__ inline static Nz<X> Of(Nz<X> all, uint32_t i, uint16_t rows) {
        all.whole = all.whole[i * rows * rows], all.rows = rows;
        return all;
    }
    template <class X>
    __aicore__ inline static Pair<X> Of(const Pair<X>& all, uint32_t i, uint16_t rows) {
        return {Of(all.number, i, rows), Of(all.rest, i, rows)};
    }
    template <class X>
    __aicore__ inline static Nz<X> Number(const Nz<X>& x) {
        return x;
    }
    template <class X>
    __aicore__ inline static Nz<X> Number(const Pair<X>& x) {
        return x.number;
    }

    __aicore__ inline static Nz<T> Rows() { return Matrix<T>(L1::ROWS, 2 * CHUNK, W); }
    /// Keys of sub-chunks 0 to i, decayed to or from the middle of sub-chunk i.
    __aicore__ inline static Both<T> Columns(uint32_t n, uint32_t i) { return Parts<T>(L1::Columns(n, i, 0), L1::Columns(n, i, 1), (i + 1) * SUB, W); }
    __aicore__ inline static Nz<T> Queries(uint32_t n) { return Matrix<T>(L1::Operand(n, L1::Q), CHUNK, W); }
    __aicore__ inline static Nz<T> Keys(uint32_t n) { return Matrix<T>(L1::Keys(n), CHUNK, W); }
    __aicore__ inline static Nz<T> Values(uint32_t n) { return Matrix<T>(L1::V + n % L1::SLOTS * L1::WIDE * sizeof(T), CHUNK, W); }
    /// Diagonal blocks side by side.
    __aicore__ inline static Both<T> Decay(uint32_t n) { return Parts(L1::Operand(n, L1::PDECAY), SUB, W); }
    __aicore__ inline static Both<T> FinalDecay() { return Parts(L1::PFINAL, SUB, W); }
    __aicore__ inline static uint32_t StateAt(uint32_t n) { return L1::PSTATE + n % L1::STATE_SLOTS * L1::PARTS * W * W * sizeof(T); }
    __aicore__ inline static Both<T> State(uint32_t n) { return Parts(StateAt(n), W, W); }
    /// A, transposed.
    __aicore__ inline static Both<T> A(uint32_t n) { return Parts(L1::A(n), CHUNK, CHUNK); }
    __aicore__ inline static Both<T> Inverse() { return Parts(L1::PINVERSE, CHUNK, CHUNK); }
    __aicore__ inline static Nz<T> Reads() { return Matrix<T>(L1::READS, CHUNK, W); }
    __aicore__ inline static Both<T> U() { return Parts(L1::PU, W, CHUNK); }
    template <class X>
    __aicore__ inline static Nz<X> Minus() {
        if constexpr (std::is_same_v<X, T>)
            return Matrix<X>(L1::MINUS, SUB, SUB);
        else
            return Matrix<X>(L1::MINUS_MERGED, SUB, SUB);
    }

    // ---- products ----
    // L0C, in parts of 32 KiB: the state takes two; dav-2201 has no more than four.
    static constexpr int32_t STATE_PART = 0, U_PART = 2, SOLVE_PART = 3, O_PART = DIRECT ? 4 : U_PART, READS_PART = DIRECT ? 5 : SOLVE_PART;
    ProductsIn<32 * 1024, 8> products;

    GM_ADDR room = nullptr;

    __aicore__ inline static constexpr KdaRoom Sizes() { return KdaRoom(W, sizeof(T), sizeof(M)); }
    /// `count` elements of the workspace from a byte on.
    template <class X>
    __aicore__ inline GlobalTensor<X> Room(uint32_t bytes, uint32_t count) const {
        GlobalTensor<X> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ X*>(room + bytes), count);
        return out;
    }

    /// 16 bits: what loads a product from L1 waits until fixpipe has stored it; float32 has waited already.
    __aicore__ inline static void Done(int32_t event) {
        if constexpr (!is_float) SetFlag<HardEvent::FIX_MTE1>(event);
    }
    __aicore__ inline static void Need(int32_t event) {
        if constexpr (!is_float) WaitFlag<HardEvent::FIX_MTE1>(event);
    }

    /// m x n of L0C to a part of a matrix in L1.
    template <class X>
    __aicore__ inline void Put(const Nz<X>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows) {
        if constexpr (is_float) {
            GlobalTensor<float> through = Room<float>(Sizes().kept + 2 * CHUNK * CHUNK * 4, W * W);
            Order<HardEvent::MTE2_FIX>();
            StoreNz(through, m, 0, 0, c, m, n, rows);
            Order<HardEvent::FIX_MTE2>();
            DataCopy(to.whole[(to.column / C0<X> * to.rows + to.row) * C0<X>], through, DataCopyParams(n / C0<X>, m, 0, to.rows - m));
            Order<HardEvent::MTE2_MTE1>();
        } else {
            StoreNz(to, c, m, n, rows);
        }
    }
    /// The sum [m, n] to L1, as a number; PutRest follows for what that leaves.
    template <class X>
    __aicore__ inline void PutNumber(const Nz<X>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, int32_t event) {
        products.Close();
        Put(to, c, m, n, m);
        products.Stored();
        Done(event);
    }
    template <class X>
    __aicore__ inline void PutRest(int32_t part, const Pair<X>& to, uint16_t m, uint16_t n, int32_t event) {
        LocalTensor<float> c = products.Reopen(part);
        TakeAway(c, to.number, m, n);
        PutNumber(to.rest, c, m, n, event);
    }
    template <class X>
    __aicore__ inline void PutRest(int32_t, const Nz<X>&, uint16_t, uint16_t, int32_t) {}
    /// c -= stored, [m, n]: what is left is the rounding.
    template <class X>
    __aicore__ inline void TakeAway(const LocalTensor<float>& c, const Nz<X>& stored, uint16_t m, uint16_t n) {
        for (uint16_t column = 0; column < n; column += SUB)
            products.template Add<Lies::AsIs, Lies::AsIs>(c[column * m], At(stored, stored.row, stored.column + column), Minus<X>(), m, SUB, SUB);
    }
};

}  // namespace ascend_k3
