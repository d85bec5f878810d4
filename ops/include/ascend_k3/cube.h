// Matrix products out of L1, alike on both SoCs: operands of 16 or 32 bits, sums in float32.
//
// L1 holds matrices in NZ: groups of C0 columns (32 bytes), each of `rows` rows one below the other. L0A wants A [m, k],
// L0B wants B [k, n]; either may lie in L1 as it is or transposed.
#pragma once

#include "kernel_operator.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t FRACTAL = 16;  // rows of a fractal; columns of one in L0C

template <class T>
constexpr uint32_t C0 = 32 / sizeof(T);

/// A part of an NZ matrix in L1: `row` and `column` are where it begins, `rows` is what the whole matrix has.
template <class T>
struct Nz {
    LocalTensor<T> whole;
    uint16_t rows, row, column;
};

namespace cube_impl {

/// LoadData 3D with a 1 x 1 filter moves `rows` x `columns` of an NZ matrix, transposed or not.
template <class T>
__aicore__ inline void LoadPart(const LocalTensor<T>& to, const Nz<T>& from, uint16_t rows, uint16_t columns, bool transpose, uint16_t blocks) {
    const uint8_t no_padding[4] = {0, 0, 0, 0};
#if __NPU_ARCH__ == 3510
    SetLoadDataRepeat(LoadDataRepeatParam(0, 1, 0, blocks));
#endif
    const uint16_t channels = from.column + columns;
    LoadData(to, from.whole, LoadData3DParamsV2<T>(no_padding, 1, from.rows, channels, columns, rows, from.column, from.row, 1, 1, 1, 1, 1, 1, transpose, false, T(0)));
}

}  // namespace cube_impl

enum class Lies { AsIs, Transposed };

/// L0A = A [m, k].
template <Lies lies, class T>
__aicore__ inline void LoadLeft(const LocalTensor<T>& to, const Nz<T>& a, uint16_t m, uint16_t k) {
    if constexpr (lies == Lies::AsIs)
        cube_impl::LoadPart(to, a, m, k, false, m / FRACTAL);
    else
        cube_impl::LoadPart(to, a, k, m, true, m / FRACTAL);
}

/// L0B = B [k, n]. Fractals of a transposed B are those of L0B.
template <Lies lies, class T>
__aicore__ inline void LoadRight(const LocalTensor<T>& to, const Nz<T>& b, uint16_t n, uint16_t k) {
    if constexpr (lies == Lies::AsIs) {
        cube_impl::LoadPart(to, b, k, n, true, n / FRACTAL);
    } else {
        const uint16_t groups = k / C0<T>, blocks = n / FRACTAL, all = b.rows / FRACTAL;
#if __NPU_ARCH__ == 3510
        LoadData(to, b.whole, LoadData2DParamsV2(b.row / FRACTAL, b.column / C0<T>, blocks, groups, all, blocks, false, 0));
#else
        const uint32_t fractal = FRACTAL * C0<T>;
        for (uint16_t group = 0; group < groups; ++group)
            LoadData(to[group * blocks * fractal], b.whole[((b.column / C0<T> + group) * all + b.row / FRACTAL) * fractal], LoadData2DParams(0, blocks, 1, 0, 0, false, 0));
#endif
    }
}

/// How L0C's float32 becomes T.
template <class T>
constexpr QuantMode_t FROM_FLOAT = std::is_same_v<T, bfloat16_t> ? QuantMode_t::F322BF16 : std::is_same_v<T, half> ? QuantMode_t::F322F16 : QuantMode_t::NoQuant;

/// Rows of global memory, `pitch` elements apart = m x n of L0C, whose column groups have `rows` rows.
template <class T>
__aicore__ inline void StoreRows(const GlobalTensor<T>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows, uint32_t pitch) {
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p(n, m, rows, pitch);
#else
    FixpipeParamsV220 p(n, m, rows, pitch, false);
#endif
    p.quantPre = FROM_FLOAT<T>;
    Fixpipe<T, float, CFG_ROW_MAJOR>(to, c, p);
}

#if __NPU_ARCH__ == 3510
/// The same to UB of vector core `core` of the block.
__aicore__ inline void StoreRows(const LocalTensor<float>& to, uint8_t core, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows, uint32_t pitch) {
    static constexpr FixpipeConfig TO_UB(CO2Layout::ROW_MAJOR, true);
    FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> p(n, m, rows, pitch);
    p.subBlockId = core;
    Fixpipe<float, float, TO_UB>(to, c, p);
}
#endif

/// A part of an NZ matrix of 16 bits in L1 = m x n of L0C.
template <class T>
__aicore__ inline void StoreNz(const Nz<T>& to, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows) {
    static_assert(sizeof(T) == 2, "float32 goes from L0C to L1 through global memory");
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::NZ> p(n, m, rows, to.rows * C0<T>);
#else
    FixpipeParamsV220 p(n, m, rows, to.rows, false);
#endif
    p.quantPre = FROM_FLOAT<T>;
    Fixpipe<T, float, CFG_NZ>(to.whole[(to.column / C0<T> * to.rows + to.row) * C0<T>], c, p);
}

/// The same in float32 to global memory, where the matrix has groups of 8 columns as it will have in L1.
__aicore__ inline void StoreNz(const GlobalTensor<float>& whole, uint16_t all_rows, uint16_t row, uint16_t column, const LocalTensor<float>& c, uint16_t m, uint16_t n, uint16_t rows) {
#if __NPU_ARCH__ == 3510
    FixpipeParamsArch3510<CO2Layout::NZ> p(n, m, rows, all_rows * C0<float>);
#else
    FixpipeParamsV220 p(n, m, rows, all_rows, false);
#endif
    p.isChannelSplit = true;
    Fixpipe<float, float, CFG_NZ>(whole[(column / C0<float> * all_rows + row) * C0<float>], c, p);
}

/// A matrix as the sum of two of 16 bits.
template <class T>
struct Pair {
    Nz<T> number, rest;
};

/// Products, whose sums stay in parts of L0C of `part_bytes`; a larger sum takes several, and has the number of the first.
/// Operands go through two or four parts of L0A and of L0B in slices of k.
template <uint32_t part_bytes = 64 * 1024, int32_t slots = 2>
class ProductsIn {
   public:
    static constexpr uint16_t SLICE = 128 / slots;
    static constexpr uint32_t SLOT = 64 * 1024 / slots, C_PART = part_bytes, L0C = (__NPU_ARCH__ == 3510 ? 256 : 128) * 1024;  // bytes
    static constexpr int32_t C_PARTS = L0C / C_PART;

    __aicore__ inline void Begin() {
        for (int32_t i = 0; i < slots; ++i) SetFlag<HardEvent::M_MTE1>(i);
        for (int32_t i = 0; i < C_PARTS; ++i) SetFlag<HardEvent::FIX_M>(i);
    }
    __aicore__ inline void End() {
        for (int32_t i = 0; i < slots; ++i) WaitFlag<HardEvent::M_MTE1>(i);
        for (int32_t i = 0; i < C_PARTS; ++i) WaitFlag<HardEvent::FIX_M>(i);
    }

    /// A part of L0C for a new sum, when what was in it has been stored.
    __aicore__ inline LocalTensor<float> Open(int32_t part) {
        LocalTensor<float> c = Reopen(part);
        empty_ = true;
        return c;
    }
    /// The same for more to be added.
    __aicore__ inline LocalTensor<float> Reopen(int32_t part) {
        c_ = part;
        WaitFlag<HardEvent::FIX_M>(c_);
        empty_ = false;
        return In(c_);
    }
    /// L0C from that part on.
    __aicore__ inline static LocalTensor<float> In(int32_t part) { return LocalTensor<float>(TPosition::CO1, part * C_PART, (L0C - part * C_PART) / sizeof(float)); }
    /// Back to a part that is open, after sums in others; `empty`: for a new sum.
    __aicore__ inline void Resume(int32_t part, bool empty) { c_ = part, empty_ = empty; }
    /// A sum of its own further on in the part.
    __aicore__ inline void Next() { empty_ = true; }
    /// From here on fixpipe may store the sums; Stored() behind the last store.
    __aicore__ inline void Close() {
        SetFlag<HardEvent::M_FIX>(c_);
        WaitFlag<HardEvent::M_FIX>(c_);
    }
    __aicore__ inline void Stored() { Stored(c_); }
    __aicore__ inline void Stored(int32_t part) { SetFlag<HardEvent::FIX_M>(part); }

    /// c += A B, m x n x k. A lies in L1 as [m, k] or transposed, B as [k, n] or transposed. Of two pairs, the product of
    /// the two rests is left out.
    template <Lies left, Lies right, class A, class B>
    __aicore__ inline void Add(const LocalTensor<float>& c, A a, B b, uint16_t m, uint16_t n, uint16_t k) {
        constexpr bool two_a = !is_single<A>, two_b = !is_single<B>;
        using T = typename Element<A>::type;
        constexpr uint32_t COUNT = SLOT / sizeof(T);
        for (uint16_t first = 0; first < k; first += SLICE) {
            const uint16_t size = k - first < SLICE ? k - first : SLICE;
            in_ = (in_ + 1) % slots;
            LocalTensor<T> a0(TPosition::A2, in_ * SLOT, COUNT), b0(TPosition::B2, in_ * SLOT, COUNT);
            WaitFlag<HardEvent::M_MTE1>(in_);
            LoadLeft<left>(a0, Number(a), m, size);
            LoadRight<right>(b0, Number(b), n, size);
            if constexpr (two_a) LoadLeft<left>(a0[COUNT / 2], a.rest, m, size);
            if constexpr (two_b) LoadRight<right>(b0[COUNT / 2], b.rest, n, size);
            SetFlag<HardEvent::MTE1_M>(in_);
            WaitFlag<HardEvent::MTE1_M>(in_);
            One(c, a0, b0, m, n, size);
            if constexpr (two_b) One(c, a0, b0[COUNT / 2], m, n, size);
            if constexpr (two_a) One(c, a0[COUNT / 2], b0, m, n, size);
            SetFlag<HardEvent::M_MTE1>(in_);
            Move<left == Lies::AsIs>(a, size);
            Move<right == Lies::Transposed>(b, size);
        }
    }

   private:
    template <class X>
    struct Element;
    template <class X>
    struct Element<Nz<X>> {
        using type = X;
    };
    template <class X>
    struct Element<Pair<X>> {
        using type = X;
    };
    template <class X>
    static constexpr bool is_single = std::is_same_v<X, Nz<typename Element<X>::type>>;

    template <class X>
    __aicore__ inline static const Nz<X>& Number(const Nz<X>& x) {
        return x;
    }
    template <class X>
    __aicore__ inline static const Nz<X>& Number(const Pair<X>& x) {
        return x.number;
    }
    template <bool columns, class X>
    __aicore__ inline static void Move(Nz<X>& x, uint16_t size) {
        (columns ? x.column : x.row) += size;
    }
    template <bool columns, class X>
    __aicore__ inline static void Move(Pair<X>& x, uint16_t size) {
        Move<columns>(x.number, size);
        Move<columns>(x.rest, size);
    }
    template <class T>
    __aicore__ inline void One(const LocalTensor<float>& c, const LocalTensor<T>& a, const LocalTensor<T>& b, uint16_t m, uint16_t n, uint16_t k) {
        if (!empty_ && (m / FRACTAL) * (n / FRACTAL) < 10) PipeBarrier<PIPE_M>();
        Mmad(c, a, b, MmadParams(m, n, k, 0, false, empty_));
        empty_ = false;
    }

    int32_t in_ = 0, c_ = 0;
    bool empty_ = true;
};
using Products = ProductsIn<>;

}  // namespace ascend_k3
