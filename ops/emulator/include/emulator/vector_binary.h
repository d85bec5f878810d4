// dst = a op b, element by element: Add, Sub, Mul, Div, Max, Min, AddRelu, SubRelu; dst op= a, b: FusedMulAdd, MulAddRelu,
// MulAddDst. The forms of each: a count, a mask as a number, a mask as bits. Source: [page] of each call.
#pragma once

#include "vector_types.h"

namespace AscendC {

namespace emu {

template <class T, class Op>
void binary(const char* call, Site at, const Lanes& lanes, bool read_dst, const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
            const BinaryRepeatParams& p, Op op) {
    elementwise(call, at, lanes, read_dst, dst, Stride{p.dstBlkStride, p.dstRepStride}, op, std::pair{src0, Stride{p.src0BlkStride, p.src0RepStride}},
                std::pair{src1, Stride{p.src1BlkStride, p.src1RepStride}});
}

#define EMULATOR_BINARY_FORMS(Name, read_dst)                                                                                         \
    template <class T>                                                                                                                \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, Site at = Site::here()) { \
        Name##_types<T, true>();                                                                                                      \
        emu::binary(#Name, at, emu::flat_lanes(count, sizeof(T)), read_dst, dst, src0, src1, {}, Name##_op<T>);                                 \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask, const uint8_t repeatTime, \
              const BinaryRepeatParams& repeatParams, Site at = Site::here()) {                                                       \
        Name##_types<T, false>();                                                                                                     \
        emu::binary(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), read_dst, dst, src0, src1, repeatParams, Name##_op<T>); \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[], const uint8_t repeatTime, \
              const BinaryRepeatParams& repeatParams, Site at = Site::here()) {                                                       \
        Name##_types<T, false>();                                                                                                     \
        emu::binary(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), read_dst, dst, src0, src1, repeatParams, Name##_op<T>); \
    }

}  // namespace emu

/// `expression` is of the elements `a` and `b`, and of `d`, what dst held, when `read_dst`.
#define EMULATOR_BINARY(Name, read_dst, expression)                                                                                   \
    template <class T>                                                                                                                \
    constexpr auto Name##_op = [](T* dst, const T* src0, const T* src1, int64_t n) {                                                  \
        EMULATOR_EACH(i, n) {                                                                                                         \
            const T a = src0[i], b = src1[i];                                                                                         \
            [[maybe_unused]] const T d = read_dst ? dst[i] : a;                                                                       \
            dst[i] = expression;                                                                                                      \
        }                                                                                                                             \
    };                                                                                                                                \
    EMULATOR_BINARY_FORMS(Name, read_dst)

EMULATOR_TYPES(Add, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Sub, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Mul, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int64_t, uint64_t))
EMULATOR_TYPES(Max, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Min, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(AddRelu, (half, float, int16_t), (half, float, int16_t), (int64_t, uint64_t))
EMULATOR_TYPES(SubRelu, (half, float, int16_t), (half, float, int16_t), (int64_t, uint64_t))
EMULATOR_TYPES(FusedMulAdd, (half, float), (half, bfloat16_t, float), (int64_t, uint64_t))
EMULATOR_TYPES(MulAddRelu, (half, float), (half, float), (int64_t, uint64_t))

/// dst = src0 + src1.
EMULATOR_BINARY(Add, false, emu::sum(a, b))
/// dst = src0 - src1.
EMULATOR_BINARY(Sub, false, emu::difference(a, b))
/// dst = src0 * src1.
EMULATOR_BINARY(Mul, false, emu::product(a, b))
/// dst = max(src0, src1).
EMULATOR_BINARY(Max, false, emu::larger(a, b))
/// dst = min(src0, src1).
EMULATOR_BINARY(Min, false, emu::smaller(a, b))
/// dst = max(0, src0 + src1).
EMULATOR_BINARY(AddRelu, false, emu::positive_part(emu::sum(a, b)))
/// dst = max(0, src0 - src1).
EMULATOR_BINARY(SubRelu, false, emu::positive_part(emu::difference(a, b)))
/// dst = src0 * dst + src1. [Borders], tables 20 to 23, list the product as a number of dst's type: it rounds before the sum.
EMULATOR_BINARY(FusedMulAdd, true, emu::sum(emu::product(a, d), b))
/// dst = max(0, src0 * dst + src1).
EMULATOR_BINARY(MulAddRelu, true, emu::positive_part(emu::sum(emu::product(a, d), b)))

// ---- Div ----

/// How dav-3510 divides. Every one gives the nearest number here (documented: an error of at most one unit in the last
/// place, none with 0ULP); those that flush take and give zero for subnormal numbers. Unknown: the sign of that zero.
enum class DivAlgo {
    INTRINSIC = 0,
    DIFF_COMPENSATION,
    PRECISION_1ULP_FTZ_TRUE,
    PRECISION_0ULP_FTZ_TRUE,
    PRECISION_0ULP_FTZ_FALSE,
    PRECISION_1ULP_FTZ_FALSE
};
struct DivConfig {
    DivAlgo algo = DivAlgo::INTRINSIC;
};
constexpr DivConfig DEFAULT_DIV_CONFIG = {DivAlgo::INTRINSIC};

EMULATOR_TYPES(Div, (half, float), (half, float, int16_t, uint16_t, int32_t, uint32_t), (int64_t, uint64_t))

template <class T, DivAlgo algo>
constexpr auto Div_op = [](T* dst, const T* src0, const T* src1, int64_t n) {
    static_assert(std::is_same_v<T, float> || (algo != DivAlgo::DIFF_COMPENSATION && algo != DivAlgo::PRECISION_0ULP_FTZ_TRUE && algo != DivAlgo::PRECISION_0ULP_FTZ_FALSE),
                  "Div: this algorithm exists for float alone");
    constexpr bool flush = is_3510 && algo != DivAlgo::PRECISION_0ULP_FTZ_FALSE && algo != DivAlgo::PRECISION_1ULP_FTZ_FALSE;
    EMULATOR_EACH(i, n) dst[i] = flush ? emu::flushed(emu::quotient(emu::flushed(src0[i]), emu::flushed(src1[i]))) : emu::quotient(src0[i], src1[i]);
};

// dav-2201 has no config, dav-3510 has one behind the other template parameters.
#if __NPU_ARCH__ == 3510
#define EMULATOR_CONFIG , const DivConfig& config = DEFAULT_DIV_CONFIG
#define EMULATOR_ALGO config.algo
#else
#define EMULATOR_CONFIG
#define EMULATOR_ALGO DivAlgo::INTRINSIC
#endif
/// dst = src0 / src1.
template <class T EMULATOR_CONFIG>
void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count, Site at = Site::here()) {
    Div_types<T, true>();
    emu::binary("Div", at, emu::flat_lanes(count, sizeof(T)), false, dst, src0, src1, {}, Div_op<T, EMULATOR_ALGO>);
}
template <class T, bool isSetMask = true EMULATOR_CONFIG>
void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask, const uint8_t repeatTime,
         const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Div_types<T, false>();
    emu::binary("Div", at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), false, dst, src0, src1, repeatParams, Div_op<T, EMULATOR_ALGO>);
}
template <class T, bool isSetMask = true EMULATOR_CONFIG>
void Div(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[], const uint8_t repeatTime,
         const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Div_types<T, false>();
    emu::binary("Div", at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), false, dst, src0, src1, repeatParams, Div_op<T, EMULATOR_ALGO>);
}
#undef EMULATOR_CONFIG
#undef EMULATOR_ALGO

namespace emu {

// ---- MulAddDst ----

/// half * half -> float is exact before the sum; else the product rounds to dst's type ([Borders], table 21).
template <class T, class U>
constexpr T multiply_add(U a, U b, T d) {
    if constexpr (std::is_same_v<T, U>) return sum(product(a, b), d);
    else return static_cast<float>(a) * static_cast<float>(b) + d;
}

}  // namespace emu

template <class T, class U, bool counted>
constexpr void MulAddDst_types() {
    constexpr bool has = types_impl::in<T>(types_impl::List<half, float>{}) || (is_3510 && counted && types_impl::in<T>(types_impl::List<int64_t, uint64_t>{}));
    constexpr bool pair = std::is_same_v<T, U> || (std::is_same_v<T, float> && std::is_same_v<U, half>);
    static_assert(has && pair, "MulAddDst: " EMULATOR_SOC " has dst, src0, src1 of half, half, half; float, float, float; float, half, half; dav-3510 "
                               "with a count also of int64_t or uint64_t.");
    if constexpr (!has || !pair) static_cast<void>(sizeof(types_impl::NotAnElementTypeOfThisCall<U>));
}

namespace emu {

template <class T, class U>
void multiply_add_to(Site at, const Lanes& lanes, const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const BinaryRepeatParams& p) {
    const auto op = [](T* d, const U* a, const U* b, int64_t n) { EMULATOR_EACH(i, n) d[i] = multiply_add(a[i], b[i], d[i]); };
    elementwise("MulAddDst", at, lanes, true, dst, Stride{p.dstBlkStride, p.dstRepStride}, op, std::pair{src0, Stride{p.src0BlkStride, p.src0RepStride}},
                std::pair{src1, Stride{p.src1BlkStride, p.src1RepStride}});
}

}  // namespace emu

/// dst = src0 * src1 + dst. A mask counts elements of the wider type: 64 of half, half -> float, from four blocks each.
template <class T, class U>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const int32_t& count, Site at = Site::here()) {
    MulAddDst_types<T, U, true>();
    emu::multiply_add_to(at, emu::flat_lanes(count, sizeof(T)), dst, src0, src1, {});
}
template <class T, class U, bool isSetMask = true>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, uint64_t mask, const uint8_t repeatTime,
               const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    MulAddDst_types<T, U, false>();
    emu::multiply_add_to(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src0, src1, repeatParams);
}
template <class T, class U, bool isSetMask = true>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const uint64_t mask[], const uint8_t repeatTime,
               const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    MulAddDst_types<T, U, false>();
    emu::multiply_add_to(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src0, src1, repeatParams);
}

}  // namespace AscendC
