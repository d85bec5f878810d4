// What the vector instructions share: the element types that a call has on a SoC, arithmetic on them, lanes of a call's forms.
//
// Pages of the Ascend C API reference, CANN 9.1, that the vector_*.h headers name:
//   [page] the page of that call under "basic API, memory vector computation"
//   [Mask] SIMD computation, masks   [Slices] SIMD computation, high-dimensional slices   [Common] general notes and limits
//   [Borders] appendix, boundary values of the memory vector computation (A2, A3)
// "Unknown" marks what they leave open. Nothing here was compared with silicon.
#pragma once

#include "lanes.h"

#if __NPU_ARCH__ == 2201
#define EMULATOR_SOC "dav-2201"
#else
#define EMULATOR_SOC "dav-3510"
#endif

/// A loop over the elements of an instruction. Operands of one instruction overlap wholly or not at all ([Common]), so no
/// element waits for another one's result.
#define EMULATOR_EACH(i, n) \
    _Pragma("GCC ivdep")    \
    for (int64_t i = 0; i < (n); ++i)

namespace AscendC {

namespace types_impl {
template <class... T>
struct List {};
template <class T, class... Member>
constexpr bool in(List<Member...>) { return (std::is_same_v<T, Member> || ...); }

/// Never defined: a compiler that stops here names the type.
template <class T>
struct NotAnElementTypeOfThisCall;

/// An unsigned type in which integers of type T add and multiply without overflow being undefined.
template <class T>
using Modular = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
}  // namespace types_impl

#define EMULATOR_MEMBERS(...) __VA_ARGS__

/// Element types of a call: on each SoC, and those that dav-3510 has in the form with a count alone. The lists are in
/// parentheses. `Name_types<T, counted>()` refuses the others when compiling.
#define EMULATOR_TYPES(Name, on_2201, on_3510, counted_on_3510)                                                                       \
    template <class T, bool counted>                                                                                                  \
    constexpr void Name##_types() {                                                                                                   \
        constexpr bool has = is_2201 ? types_impl::in<T>(types_impl::List<EMULATOR_MEMBERS on_2201>{})                                          \
                                     : types_impl::in<T>(types_impl::List<EMULATOR_MEMBERS on_3510>{}) ||                                       \
                                           (counted && types_impl::in<T>(types_impl::List<EMULATOR_MEMBERS counted_on_3510>{}));                \
        static_assert(has, #Name ": " EMULATOR_SOC " does not have it for this element type. dav-2201: " #on_2201 ", dav-3510: " #on_3510 \
                           ", dav-3510 with a count: also " #counted_on_3510 ".");                                                    \
        if constexpr (!has) static_cast<void>(sizeof(types_impl::NotAnElementTypeOfThisCall<T>));                                          \
    }

namespace emu {

// ---- Lanes ----

/// A form with a count. [Mask]: with isSetMask false the mask register holds; on dav-3510 isSetMask has no effect there.
template <bool isSetMask>
inline Lanes count_lanes(int64_t count, int64_t widest) {
    return isSetMask || is_3510 ? flat_lanes(count, widest) : register_lanes(1, widest);
}
template <bool isSetMask>
inline Lanes mask_lanes(uint64_t mask, int64_t repeats, int64_t widest) {
    return isSetMask ? counted_lanes(mask, repeats, widest) : register_lanes(repeats, widest);
}
template <bool isSetMask>
inline Lanes mask_lanes(const uint64_t* mask, int64_t repeats, int64_t widest) {
    return isSetMask ? bit_lanes(mask, repeats, widest) : register_lanes(repeats, widest);
}

// ---- Arithmetic ----

/// Integers wrap around, half and bfloat16_t round to nearest even ([Borders], the mode without saturation, its default).
template <class T>
constexpr T sum(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<types_impl::Modular<T>>(a) + static_cast<types_impl::Modular<T>>(b));
    else return static_cast<T>(a + b);
}
template <class T>
constexpr T difference(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<types_impl::Modular<T>>(a) - static_cast<types_impl::Modular<T>>(b));
    else return static_cast<T>(a - b);
}
template <class T>
constexpr T product(T a, T b) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<types_impl::Modular<T>>(a) * static_cast<types_impl::Modular<T>>(b));
    else return static_cast<T>(a * b);
}
/// Unknown for integers divided by 0 (here 0) and the least number divided by -1 (here it stays).
template <class T>
constexpr T quotient(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        if (b == 0) return 0;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return difference(T(0), a);
        return static_cast<T>(a / b);
    } else {
        return static_cast<T>(a / b);
    }
}

/// The larger and the smaller one; NaN if one is NaN; +0 is larger than -0 ([Borders], tables 13 and 14).
template <class T>
constexpr T larger(T a, T b) {
    using emulator::numbers::bits_as;
    if constexpr (std::is_integral_v<T>) {
        return a > b ? a : b;
    } else if constexpr (std::is_same_v<T, float>) {
        const float even = bits_as<float>(bits_as<uint32_t>(a) & bits_as<uint32_t>(b)), other = (a > b) | (a != a) ? a : b;
        return a == b ? even : other;
    } else {
        return static_cast<T>(larger(static_cast<float>(a), static_cast<float>(b)));
    }
}
template <class T>
constexpr T smaller(T a, T b) {
    using emulator::numbers::bits_as;
    if constexpr (std::is_integral_v<T>) {
        return a < b ? a : b;
    } else if constexpr (std::is_same_v<T, float>) {
        const float even = bits_as<float>(bits_as<uint32_t>(a) | bits_as<uint32_t>(b)), other = (a < b) | (a != a) ? a : b;
        return a == b ? even : other;
    } else {
        return static_cast<T>(smaller(static_cast<float>(a), static_cast<float>(b)));
    }
}
/// max(0, x): -0 becomes +0, NaN stays ([Borders], table 8).
template <class T>
constexpr T positive_part(T x) {
    if constexpr (std::is_integral_v<T>) {
        return x > 0 ? x : T(0);
    } else if constexpr (std::is_same_v<T, float>) {
        return (x > 0.0f) | (x != x) ? x : 0.0f;
    } else {
        return static_cast<T>(positive_part(static_cast<float>(x)));
    }
}

/// Subnormal numbers become a zero of their sign.
template <class T>
constexpr T flushed(T x) {
    using emulator::numbers::bits_as;
    if constexpr (std::is_same_v<T, float>) {
        return (bits_as<uint32_t>(x) & 0x7f800000u) == 0 ? bits_as<float>(bits_as<uint32_t>(x) & 0x80000000u) : x;
    } else if constexpr (std::is_same_v<T, half>) {
        return half::from_bits(static_cast<uint16_t>((x.bits & 0x7c00) == 0 ? x.bits & 0x8000 : x.bits));
    } else {
        return x;
    }
}

}  // namespace emu

}  // namespace AscendC
