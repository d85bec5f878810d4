// Add, Sub, Mul, Div, Max, Min: dst = a op b, element by element.
#pragma once

#include "lanes.h"

namespace AscendC {

namespace types {
template <class T>
constexpr bool is_any() { return false; }
template <class T, class First, class... Rest>
constexpr bool is_any() { return std::is_same_v<T, First> || is_any<T, Rest...>(); }

/// half, float, int16, int32; bfloat16 and others on dav-3510.
template <class T>
constexpr bool arithmetic() {
    return is_any<T, half, float, int16_t, int32_t>() ||
           (is_3510 && is_any<T, bfloat16_t, int8_t, uint8_t, uint16_t, uint32_t, int64_t, uint64_t>());
}
template <class T>
constexpr bool floating() { return is_any<T, half, float>() || (is_3510 && is_any<T, bfloat16_t>()); }
}  // namespace types

// Each of them in its four forms: count, mask as a number, mask as bits, and the operator's count form.
#define EMULATOR_BINARY(Name, allowed, expression)                                                                                  \
    template <class T>                                                                                                              \
    struct Name##Op {                                                                                                               \
        static_assert(allowed, #Name ": this element type does not exist for it on this SoC");                                      \
        void operator()(T* dst, const T* a, const T* b, int64_t n) const {                                                          \
            for (int64_t i = 0; i < n; ++i) dst[i] = expression;                                                                    \
        }                                                                                                                           \
    };                                                                                                                              \
    template <class T>                                                                                                              \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,              \
              Site at = Site::here()) {                                                                                             \
        elementwise(#Name, at, flat_lanes(count, sizeof(T)), false, dst, Stride{}, Name##Op<T>{}, std::pair{src0, Stride{}},        \
                    std::pair{src1, Stride{}});                                                                                     \
    }                                                                                                                               \
    template <class T, bool isSetMask = true>                                                                                       \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,                     \
              const uint8_t repeatTime, const BinaryRepeatParams& p, Site at = Site::here()) {                                      \
        const Lanes lanes = isSetMask ? counted_lanes(mask, repeatTime, sizeof(T)) : register_lanes(repeatTime, sizeof(T));         \
        elementwise(#Name, at, lanes, false, dst, Stride{p.dstBlkStride, p.dstRepStride}, Name##Op<T>{},                            \
                    std::pair{src0, Stride{p.src0BlkStride, p.src0RepStride}}, std::pair{src1, Stride{p.src1BlkStride, p.src1RepStride}}); \
    }                                                                                                                               \
    template <class T, bool isSetMask = true>                                                                                       \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[],                   \
              const uint8_t repeatTime, const BinaryRepeatParams& p, Site at = Site::here()) {                                      \
        const Lanes lanes = isSetMask ? bit_lanes(mask, repeatTime, sizeof(T)) : register_lanes(repeatTime, sizeof(T));             \
        elementwise(#Name, at, lanes, false, dst, Stride{p.dstBlkStride, p.dstRepStride}, Name##Op<T>{},                            \
                    std::pair{src0, Stride{p.src0BlkStride, p.src0RepStride}}, std::pair{src1, Stride{p.src1BlkStride, p.src1RepStride}}); \
    }

EMULATOR_BINARY(Add, types::arithmetic<T>(), static_cast<T>(a[i] + b[i]))
EMULATOR_BINARY(Sub, types::arithmetic<T>(), static_cast<T>(a[i] - b[i]))
EMULATOR_BINARY(Mul, types::arithmetic<T>(), static_cast<T>(a[i] * b[i]))
EMULATOR_BINARY(Div, types::floating<T>(), static_cast<T>(a[i] / b[i]))
EMULATOR_BINARY(Max, types::arithmetic<T>(), b[i] > a[i] ? b[i] : a[i])
EMULATOR_BINARY(Min, types::arithmetic<T>(), b[i] < a[i] ? b[i] : a[i])
#undef EMULATOR_BINARY

}  // namespace AscendC
