// dst = src op scalar, element by element: Adds, Muls, Maxs, Mins, LeakyRelu, Axpy; Subs and Divs on dav-3510.
// Source: [page] of each call.
#pragma once

#include "vector_binary.h"
#include "vector_unary.h"

namespace AscendC {

/// `expression` is of the element `a` and the scalar `s`.
#define EMULATOR_SCALAR(Name, expression)                                                                                             \
    template <class T>                                                                                                                \
    auto Name##_with(T s) {                                                                                                           \
        return [s](T* dst, const T* src, int64_t n) {                                                                                 \
            EMULATOR_EACH(i, n) {                                                                                                     \
                const T a = src[i];                                                                                                   \
                dst[i] = expression;                                                                                                  \
            }                                                                                                                         \
        };                                                                                                                            \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count, Site at = Site::here()) { \
        Name##_types<T, true>();                                                                                                      \
        emu::unary(#Name, at, emu::count_lanes<isSetMask>(count, sizeof(T)), dst, src, {}, Name##_with<T>(scalarValue));                        \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask, const uint8_t repeatTime,    \
              const UnaryRepeatParams& repeatParams, Site at = Site::here()) {                                                        \
        Name##_types<T, false>();                                                                                                     \
        emu::unary(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, repeatParams, Name##_with<T>(scalarValue));    \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask[], const uint8_t repeatTime,  \
              const UnaryRepeatParams& repeatParams, Site at = Site::here()) {                                                        \
        Name##_types<T, false>();                                                                                                     \
        emu::unary(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, repeatParams, Name##_with<T>(scalarValue));    \
    }

EMULATOR_TYPES(Adds, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, int32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Muls, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, int32_t), (int64_t, uint64_t))
EMULATOR_TYPES(Maxs, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, int32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Mins, (half, float, int16_t, int32_t), (half, bfloat16_t, float, int16_t, int32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(LeakyRelu, (half, float), (half, float), ())

/// dst = src + scalarValue.
EMULATOR_SCALAR(Adds, emu::sum(a, s))
/// dst = src * scalarValue.
EMULATOR_SCALAR(Muls, emu::product(a, s))
/// dst = max(src, scalarValue).
EMULATOR_SCALAR(Maxs, emu::larger(a, s))
/// dst = min(src, scalarValue).
EMULATOR_SCALAR(Mins, emu::smaller(a, s))
/// dst = src where its sign is +, else src * scalarValue ([Borders], table 19: -0 is scaled).
EMULATOR_SCALAR(LeakyRelu, std::signbit(static_cast<float>(a)) ? emu::product(a, s) : a)
#undef EMULATOR_SCALAR

// ---- Subs, Divs: the scalar on either side ----

#if __NPU_ARCH__ == 3510
struct BinaryDefaultType {};
struct BinaryConfig {
    int8_t scalarTensorIndex = 1;
};
constexpr BinaryConfig DEFAULT_BINARY_CONFIG = {1};

namespace emu {

template <class T>
constexpr bool is_tensor = false;
template <class T>
constexpr bool is_tensor<LocalTensor<T>> = true;

}  // namespace emu

/// One of src0 and src1 is a tensor, the other a number. Not here: a tensor's element as the scalar.
#define EMULATOR_EITHER_SIDE(Name, operation)                                                                                         \
    template <class U, class S, class V>                                                                                              \
    void Name##_sides(const U& dst, const S& src0, const V& src1, const emu::Lanes& lanes, const UnaryRepeatParams& p, Site at) {          \
        using T = typename U::PrimType;                                                                                               \
        static_assert(emu::is_tensor<S> != emu::is_tensor<V>, #Name ": one of src0 and src1 has to be a LocalTensor and the other a number");   \
        if constexpr (emu::is_tensor<S>) {                                                                                                 \
            static_assert(std::is_same_v<V, T>, #Name ": the scalar has to be of the tensors' element type");                         \
            emu::unary(#Name, at, lanes, dst, src0, p,                                                                                     \
                  [s = T(src1)](T* to, const T* a, int64_t n) { EMULATOR_EACH(i, n) to[i] = operation(a[i], s); });                   \
        } else {                                                                                                                      \
            static_assert(std::is_same_v<S, T>, #Name ": the scalar has to be of the tensors' element type");                         \
            emu::unary(#Name, at, lanes, dst, src1, p,                                                                                     \
                  [s = T(src0)](T* to, const T* a, int64_t n) { EMULATOR_EACH(i, n) to[i] = operation(s, a[i]); });                   \
        }                                                                                                                             \
    }                                                                                                                                 \
    template <class T = BinaryDefaultType, bool isSetMask = true, const BinaryConfig& config = DEFAULT_BINARY_CONFIG, class U, class S, class V> \
    void Name(const U& dst, const S& src0, const V& src1, const int32_t& count, Site at = Site::here()) {                             \
        Name##_types<typename U::PrimType, true>();                                                                                   \
        Name##_sides(dst, src0, src1, emu::flat_lanes(count, sizeof(typename U::PrimType)), {}, at);                                       \
    }                                                                                                                                 \
    template <class T = BinaryDefaultType, bool isSetMask = true, const BinaryConfig& config = DEFAULT_BINARY_CONFIG, class U, class S, class V> \
    void Name(const U& dst, const S& src0, const V& src1, uint64_t mask, const uint8_t repeatTime, const UnaryRepeatParams& repeatParams, \
              Site at = Site::here()) {                                                                                               \
        Name##_types<typename U::PrimType, false>();                                                                                  \
        Name##_sides(dst, src0, src1, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(typename U::PrimType)), repeatParams, at);       \
    }                                                                                                                                 \
    template <class T = BinaryDefaultType, bool isSetMask = true, const BinaryConfig& config = DEFAULT_BINARY_CONFIG, class U, class S, class V> \
    void Name(const U& dst, const S& src0, const V& src1, uint64_t mask[], const uint8_t repeatTime, const UnaryRepeatParams& repeatParams, \
              Site at = Site::here()) {                                                                                               \
        Name##_types<typename U::PrimType, false>();                                                                                  \
        Name##_sides(dst, src0, src1, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(typename U::PrimType)), repeatParams, at);       \
    }

EMULATOR_TYPES(Subs, (), (half, bfloat16_t, float, int16_t, int32_t), (int64_t, uint64_t))
EMULATOR_TYPES(Divs, (), (half, float), (int64_t, uint64_t))
/// dst = src0 - src1.
EMULATOR_EITHER_SIDE(Subs, emu::difference)
/// dst = src0 / src1.
EMULATOR_EITHER_SIDE(Divs, emu::quotient)
#undef EMULATOR_EITHER_SIDE
#endif

// ---- Axpy ----

template <class T, class U, bool counted>
constexpr void Axpy_types() {
    constexpr bool same = std::is_same_v<T, U> && (types_impl::in<T>(types_impl::List<half, float>{}) || (is_3510 && std::is_same_v<T, bfloat16_t>) ||
                                                   (is_3510 && counted && types_impl::in<T>(types_impl::List<int64_t, uint64_t>{})));
    constexpr bool has = same || (std::is_same_v<T, float> && std::is_same_v<U, half>);
    static_assert(has, "Axpy: " EMULATOR_SOC " has dst, src, scalar of half, half, half; float, float, float; float, half, half; dav-3510 also of "
                       "bfloat16_t, and with a count of int64_t or uint64_t.");
    if constexpr (!has) static_cast<void>(sizeof(types_impl::NotAnElementTypeOfThisCall<U>));
}

namespace emu {

template <class T, class U>
void axpy(Site at, const Lanes& lanes, const LocalTensor<T>& dst, const LocalTensor<U>& src, U scalar, const UnaryRepeatParams& p) {
    const auto op = [scalar](T* d, const U* a, int64_t n) { EMULATOR_EACH(i, n) d[i] = multiply_add(a[i], scalar, d[i]); };
    elementwise("Axpy", at, lanes, true, dst, Stride{p.dstBlkStride, p.dstRepStride}, op, std::pair{src, Stride{p.srcBlkStride, p.srcRepStride}});
}

}  // namespace emu

/// dst = src * scalarValue + dst. A mask counts elements of the wider type; see `multiply_add` for the rounding.
template <class T, class U>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, const int32_t& count, Site at = Site::here()) {
    Axpy_types<T, U, true>();
    emu::axpy(at, emu::flat_lanes(count, sizeof(T)), dst, src, scalarValue, {});
}
template <class T, class U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, uint64_t mask, const uint8_t repeatTime,
          const UnaryRepeatParams& repeatParams, Site at = Site::here()) {
    Axpy_types<T, U, false>();
    emu::axpy(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, scalarValue, repeatParams);
}
template <class T, class U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, uint64_t mask[], const uint8_t repeatTime,
          const UnaryRepeatParams& repeatParams, Site at = Site::here()) {
    Axpy_types<T, U, false>();
    emu::axpy(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, scalarValue, repeatParams);
}

}  // namespace AscendC
