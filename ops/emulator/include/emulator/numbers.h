// The scalar number types that Ascend C kernels name, and the conversions of its Cast.
//
// Formats: IEEE 754-2019 (half), bfloat16 (the upper half of binary32), OCP 8-bit Floating Point 1.0 (e4m3fn, e5m2), OCP
// Microscaling 1.0 (e8m0, e2m1), and the vendor's page "Built-in data types" (e1m2, bias 1: largest 1.75; HiFloat8).
// Conversions: the pages of the Ascend C API reference (docs/zh/api of cann/asc-devkit, July 2026),
//   [P] basic API, data structures, precision_conversion   rounding modes, one section for each pair of types
//   [M] basic API, memory vector computation, Cast         legal pairs and modes of each product
//   [R] basic API, Reg vector computation, Cast            the same for registers, (non-)saturation, HiFloat8
//   [C] basic API, special registers, SetCtrlSpr           control bits 48, 50, 59, 60
//   [B] appendix, boundary values of the memory (A2, A3) and of the Reg (950) vector computation
// "Unknown" marks what these pages leave open or contradict each other in; there the IEEE or OCP behaviour is taken.
// The examples of [P] for half -> bfloat16_t, float -> fp8 and bfloat16_t -> e1m2 round to whole numbers, or beyond the
// format, against the rule that they stand under: the rule is taken.
// Nothing here was compared with silicon.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "machine.h"

#ifdef __FAST_MATH__
#error "numbers.h rounds and tells NaN by IEEE 754: compile without -ffast-math."
#endif

// A loop over numbers becomes vector instructions only where the conversion is inlined, which g++ left out in large sources.
#define EMULATOR_INLINE __attribute__((always_inline)) inline

namespace emulator::numbers {

/// RoundMode of Ascend C, in its order. None: Rint where the conversion loses bits. Rint: to nearest, ties to even. Round:
/// to nearest, ties away from zero. Odd: an inexact number takes the neighbour whose last bit is 1 (von Neumann).
/// Hybrid: to hifloat8_t only, and never done here, see `encode_hifloat8`.
enum class Rounding : uint8_t { None, Rint, Floor, Ceil, Round, Trunc, Odd, Hybrid };

template <class To, class From>
EMULATOR_INLINE constexpr To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, value);
}

/// A binary floating-point format of sign, exponent and mantissa: `SmallestNormal` is the exponent of the smallest normal
/// number; `Largest` the code of the largest finite one; `Infinity` what overflow gives, NaN in a format without infinity.
template <int Bits, int Mantissa, int SmallestNormal, uint32_t Largest, uint32_t Infinity, uint32_t Nan>
struct Format {
    static constexpr int bits = Bits, mantissa = Mantissa, smallest_normal = SmallestNormal;
    static constexpr uint32_t largest = Largest, infinity = Infinity, nan = Nan;
};
using Half = Format<16, 10, -14, 0x7bff, 0x7c00, 0x7e00>;
using Bfloat16 = Format<16, 7, -126, 0x7f7f, 0x7f80, 0x7fc0>;
using Float = Format<32, 23, -126, 0x7f7fffff, 0x7f800000, 0x7fc00000>;
using E4M3 = Format<8, 3, -6, 0x7e, 0x7f, 0x7f>;
using E5M2 = Format<8, 2, -14, 0x7b, 0x7c, 0x7f>;
using E2M1 = Format<4, 1, 0, 7, 7, 0>;  // overflow gives the largest, NaN gives 0: [R], restrictions, and [B]
using E1M2 = Format<4, 2, 0, 7, 7, 0>;

/// Code of `value` in the format F. Saturating ([C], bit 48): overflow and infinity give the largest number, NaN gives 0
/// (or stays, with `keep_nan`). Otherwise infinity and NaN stay, and overflow gives infinity; unknown for the directed
/// modes, where IEEE 754 gives the largest number when the mode rounds towards zero. The sign of zero stays, also when a
/// number becomes zero; subnormal numbers are kept on both sides: the example of bfloat16_t -> half in [P] has one.
template <class F, Rounding mode = Rounding::Rint, class Real>
EMULATOR_INLINE constexpr uint32_t encode(Real value, bool saturate = false, bool keep_nan = false) {
    static_assert(mode != Rounding::Hybrid, "Hybrid rounding is defined for hifloat8_t alone");
    static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);
    using Word = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
    constexpr int mantissa = sizeof(Real) == 4 ? 23 : 52, bias = sizeof(Real) == 4 ? 127 : 1023;
    static_assert(F::mantissa < mantissa);
    constexpr Word one = 1, sign_bit = one << (8 * sizeof(Real) - 1), special = Word(2 * bias + 1) << mantissa;

    const Word word = bits_as<Word>(value), magnitude = word & ~sign_bit;
    const bool negative = (word & sign_bit) != 0;
    const bool normal = (magnitude >> mantissa) != 0;
    const Word significand = (magnitude & ((one << mantissa) - 1)) | (normal ? one << mantissa : 0);
    // Binades above the smallest normal number; below it the last place stays where it is.
    const int above = static_cast<int>(magnitude >> mantissa) + (normal ? 0 : 1) - (F::smallest_normal + bias);
    const int below = above < 0 ? -above : 0;
    const int all = mantissa - F::mantissa + below, shift = all < mantissa + 2 ? all : mantissa + 2;
    const Word unit = one << shift, last = (significand >> shift) & 1;
    Word carry = 0;
    if (mode == Rounding::None || mode == Rounding::Rint) carry = unit / 2 - 1 + last;
    if (mode == Rounding::Round) carry = unit / 2;
    if (mode == Rounding::Floor) carry = negative ? unit - 1 : 0;
    if (mode == Rounding::Ceil) carry = negative ? 0 : unit - 1;
    if (mode == Rounding::Odd) carry = last ? 0 : unit - 1;
    // The hidden bit, and a carry out of the mantissa, add one to the exponent field.
    Word code = ((significand + carry) >> shift) + (static_cast<Word>(above < 0 ? 0 : above) << F::mantissa);

    const bool inwards = mode == Rounding::Trunc || mode == Rounding::Odd || (mode == Rounding::Floor && !negative) ||
                         (mode == Rounding::Ceil && negative);
    const bool largest = saturate | (inwards & (magnitude != special));  // no branches: the loops become vectors
    const Word overflow = largest ? F::largest : F::infinity;
    code = code > F::largest ? overflow : code;
    const bool zero_for_nan = F::nan == 0 || (saturate && !keep_nan);
    const uint32_t sign = static_cast<uint32_t>(negative) << (F::bits - 1);
    const uint32_t number = static_cast<uint32_t>(code) | sign, nan = zero_for_nan ? 0 : F::nan | sign;
    return magnitude > special ? nan : number;
}

/// Number that a code of the format F stands for; every one is a float.
template <class F>
EMULATOR_INLINE constexpr float decode(uint32_t code) {
    if constexpr (F::bits == 16 && F::smallest_normal == -126) return bits_as<float>(code << 16);
    constexpr int wider = 23 - F::mantissa;
    constexpr float last_place = bits_as<float>(static_cast<uint32_t>(127 + F::smallest_normal - F::mantissa) << 23);
    const uint32_t sign = (code >> (F::bits - 1)) & 1, magnitude = code & ((1u << (F::bits - 1)) - 1);
    const uint32_t normal = (magnitude << wider) + (static_cast<uint32_t>(126 + F::smallest_normal) << 23);
    const uint32_t subnormal = bits_as<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * last_place);
    const uint32_t special = 0x7f800000u | ((magnitude << wider) & 0x7fffffu);
    const uint32_t is_subnormal = 0u - (magnitude < (1u << F::mantissa));  // no branches: the loops become vectors
    const uint32_t is_special = 0u - (F::nan != 0 && magnitude >= F::infinity);
    const uint32_t number = (subnormal & is_subnormal) | (normal & ~is_subnormal);
    return bits_as<float>((special & is_special) | (number & ~is_special) | sign << 31);
}

/// Code of HiFloat8 ([R], float -> hifloat8_t), ties away from zero. It has one zero, 0x80 is NaN, 0x6f infinity.
///
/// Hybrid is left out: it compares the bits that are dropped with the last 14 bits of the number itself and carries when
/// they are not less, which as it is written would change 16.0, a number of the format, to 20.0. Unknown what is meant.
constexpr uint32_t encode_hifloat8(float value, bool saturate = false) {
    const uint32_t word = bits_as<uint32_t>(value), sign = word >> 31 << 7, fraction = word & 0x7fffffu;
    int exponent = static_cast<int>(word >> 23 & 255) - 127;
    if (exponent == 128 && fraction != 0) return saturate ? 0 : 0x80;
    if (exponent < -23) return 0;
    if (exponent <= -16) {  // the powers of two from 2^-22 to 2^-16, "subnormal"
        exponent += exponent == -23 || fraction >= 0x400000u ? 1 : 0;
        return sign | (exponent == -15 ? 0x7eu : static_cast<uint32_t>(exponent + 23));
    }
    const int size = exponent < 0 ? -exponent : exponent, mantissa = size < 4 ? 3 : size < 8 ? 2 : 1;
    uint32_t kept = (fraction + (1u << (22 - mantissa))) >> (23 - mantissa);
    exponent += static_cast<int>(kept >> mantissa);
    kept &= (1u << mantissa) - 1;
    const uint32_t e = static_cast<uint32_t>(exponent < 0 ? -exponent : exponent), minus = exponent < 0;
    uint32_t code = 0;
    if (e == 0) code = 0x08 | kept;
    else if (e == 1) code = 0x10 | minus << 3 | kept;
    else if (e < 4) code = 0x20 | minus << 4 | (e & 1) << 3 | kept;
    else if (e < 8) code = 0x40 | minus << 4 | (e & 3) << 2 | kept;
    else if (e < 16) code = 0x60 | minus << 4 | (e & 7) << 1 | kept;
    if (exponent > 15 || code == 0x6f) code = saturate ? 0x6e : 0x6f;
    return sign | code;
}

constexpr float decode_hifloat8(uint32_t code) {
    const uint32_t sign = (code & 0x80) << 24, magnitude = code & 0x7f;
    int exponent = 0, mantissa = 3;
    if (magnitude == 0) return code == 0 ? 0.0f : bits_as<float>(0x7fc00000u);
    if (magnitude == 0x6f) return bits_as<float>(0x7f800000u | sign);
    if (magnitude < 0x08) return bits_as<float>((magnitude - 23 + 127) << 23 | sign);
    if (magnitude >= 0x60) exponent = 8 | (magnitude >> 1 & 7), mantissa = 1;
    else if (magnitude >= 0x40) exponent = 4 | (magnitude >> 2 & 3), mantissa = 2;
    else if (magnitude >= 0x20) exponent = 2 | (magnitude >> 3 & 1);
    else if (magnitude >= 0x10) exponent = 1;
    const uint32_t minus_at = magnitude >= 0x20 ? 4 : 3;
    if (magnitude >= 0x10 && (magnitude >> minus_at & 1)) exponent = -exponent;
    const uint32_t fraction = (magnitude & ((1u << mantissa) - 1)) << (23 - mantissa);
    return bits_as<float>(static_cast<uint32_t>(exponent + 127) << 23 | fraction | sign);
}

/// 2^(code - 127), NaN for 255.
constexpr float decode_scale(uint32_t code) {
    return bits_as<float>(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : code << 23);
}

/// The exponent field: sign and mantissa are dropped, so a power of two from 2^-127 on is exact, and less is 2^-127. NaN
/// gives NaN. Infinity: [R] has the largest, 0xfe, [B] has NaN; taken as saturating and not saturating.
constexpr uint32_t encode_scale(float value, bool saturate = true) {
    const uint32_t word = bits_as<uint32_t>(value);
    return saturate && (word & 0x7fffffffu) == 0x7f800000u ? 0xfe : word >> 23 & 255;
}

/// An integer as a double that rounds to any format of at most 51 bits as the integer itself does, in every mode: bits
/// beyond the 53rd leave a mark in the last one.
template <class Integer>
EMULATOR_INLINE constexpr double double_of(Integer value) {
    if constexpr (sizeof(Integer) <= 4) {
        return static_cast<double>(value);
    } else {
        const bool negative = value < 0;
        const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
        const uint64_t upper = magnitude >> 11 | ((magnitude & 2047) != 0);
        const double wide = magnitude >> 53 ? static_cast<double>(static_cast<int64_t>(upper)) * 2048.0
                                            : static_cast<double>(static_cast<int64_t>(magnitude));
        return negative ? -wide : wide;
    }
}

template <class T>
using if_arithmetic = std::enable_if_t<std::is_arithmetic_v<T>, int>;
template <class T>
using if_integral = std::enable_if_t<std::is_integral_v<T>, int>;

/// Code of a C++ number, to nearest even, as the scalar conversions give it.
template <class F, class T>
EMULATOR_INLINE constexpr uint16_t encode_scalar(T value) {
    if constexpr (std::is_same_v<T, float>) return static_cast<uint16_t>(encode<F>(value));
    else if constexpr (std::is_floating_point_v<T>) return static_cast<uint16_t>(encode<F>(static_cast<double>(value)));
    else return static_cast<uint16_t>(encode<F>(double_of(value)));
}

}  // namespace emulator::numbers

// ---- Types -----------------------------------------------------------------------------------------------------------

/// IEEE binary16. Like the device's own type it converts from and to every arithmetic type without being asked.
struct half {
    uint16_t bits;
    half() = default;
    template <class T, emulator::numbers::if_arithmetic<T> = 0>
    EMULATOR_INLINE constexpr half(T value) : bits(emulator::numbers::encode_scalar<emulator::numbers::Half>(value)) {}
    EMULATOR_INLINE constexpr operator float() const {
        return emulator::numbers::decode<emulator::numbers::Half>(bits);
    }
    static constexpr half from_bits(uint16_t bits) {
        half value(0.0f);
        value.bits = bits;
        return value;
    }
};

/// The upper half of a float. "Built-in data types" does not list it among the types that an immediate may initialize,
/// and scalar arithmetic goes through ToFloat: conversions have to be asked for, `bfloat16_t(x)`, `static_cast<float>(x)`.
struct bfloat16_t {
    uint16_t bits;
    bfloat16_t() = default;
    template <class T, emulator::numbers::if_arithmetic<T> = 0>
    EMULATOR_INLINE constexpr explicit bfloat16_t(T value)
        : bits(emulator::numbers::encode_scalar<emulator::numbers::Bfloat16>(value)) {}
    template <class T, emulator::numbers::if_arithmetic<T> = 0>
    EMULATOR_INLINE constexpr explicit operator T() const {
        return static_cast<T>(emulator::numbers::decode<emulator::numbers::Bfloat16>(bits));
    }
    static constexpr bfloat16_t from_bits(uint16_t bits) {
        bfloat16_t value(0.0f);
        value.bits = bits;
        return value;
    }
};

struct fp8_e4m3fn_t {
    uint8_t bits;
    constexpr explicit operator float() const { return emulator::numbers::decode<emulator::numbers::E4M3>(bits); }
};
struct fp8_e5m2_t {
    uint8_t bits;
    constexpr explicit operator float() const { return emulator::numbers::decode<emulator::numbers::E5M2>(bits); }
};
struct fp8_e8m0_t {
    uint8_t bits;
    constexpr explicit operator float() const { return emulator::numbers::decode_scale(bits); }
};
struct hifloat8_t {
    uint8_t bits;
    constexpr explicit operator float() const { return emulator::numbers::decode_hifloat8(bits); }
};

/// Two numbers of 4 bits in a byte, the first in the low bits.
struct fp4x2_e2m1_t {
    uint8_t bits;
};
struct fp4x2_e1m2_t {
    uint8_t bits;
};
struct int4b_t {
    uint8_t bits;
};
using int4x2_t = int4b_t;  // the name of the packed pair in the Reg API

// A float holds the product of two 11-bit significands, and has the 2 p + 2 bits with which a sum or a quotient that is
// rounded to it first rounds to the same half or bfloat16_t as the exact one.
namespace emulator::numbers {
template <class T>
using if_sixteen = std::enable_if_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>, int>;
}

#define EMULATOR_ARITHMETIC(op)                                                                                        \
    template <class T, emulator::numbers::if_sixteen<T> = 0>                                                           \
    EMULATOR_INLINE constexpr T operator op(T a, T b) {                                                                \
        return T(static_cast<float>(a) op static_cast<float>(b));                                                      \
    }                                                                                                                  \
    template <class T, class I, emulator::numbers::if_sixteen<T> = 0, emulator::numbers::if_integral<I> = 0>           \
    constexpr T operator op(T a, I b) {                                                                                \
        return a op T(b);                                                                                              \
    }                                                                                                                  \
    template <class T, class I, emulator::numbers::if_sixteen<T> = 0, emulator::numbers::if_integral<I> = 0>           \
    constexpr T operator op(I a, T b) {                                                                                \
        return T(a) op b;                                                                                              \
    }                                                                                                                  \
    template <class T, class U, emulator::numbers::if_sixteen<T> = 0>                                                  \
    constexpr T& operator op##=(T& a, U b) {                                                                           \
        return a = T(a op b);                                                                                          \
    }
EMULATOR_ARITHMETIC(+)
EMULATOR_ARITHMETIC(-)
EMULATOR_ARITHMETIC(*)
EMULATOR_ARITHMETIC(/)
#undef EMULATOR_ARITHMETIC

#define EMULATOR_COMPARISON(op)                                                                                        \
    template <class T, emulator::numbers::if_sixteen<T> = 0>                                                           \
    constexpr bool operator op(T a, T b) {                                                                             \
        return static_cast<float>(a) op static_cast<float>(b);                                                         \
    }
EMULATOR_COMPARISON(==)
EMULATOR_COMPARISON(!=)
EMULATOR_COMPARISON(<)
EMULATOR_COMPARISON(<=)
EMULATOR_COMPARISON(>)
EMULATOR_COMPARISON(>=)
#undef EMULATOR_COMPARISON

template <class T, emulator::numbers::if_sixteen<T> = 0>
constexpr T operator-(T a) {
    return T::from_bits(static_cast<uint16_t>(a.bits ^ 0x8000u));
}

namespace emulator::numbers {

// ---- Names -----------------------------------------------------------------------------------------------------------

enum class Number : uint8_t {
    Bool, Int4, Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64,
    E2M1x2, E1M2x2, E4M3fn, E5M2, E8M0, HiFloat8, Half, Bfloat16, Float, Double, Count
};

namespace names {
template <class T> struct Of;
template <> struct Of<bool> { static constexpr Number number = Number::Bool; static constexpr const char* name = "bool"; };
#define EMULATOR_NUMBER(type, id, text)                                                                                \
    template <> struct Of<type> {                                                                                      \
        static constexpr Number number = Number::id;                                                                   \
        static constexpr const char* name = text;                                                                      \
    };
EMULATOR_NUMBER(int4b_t, Int4, "int4")
EMULATOR_NUMBER(int8_t, Int8, "int8")
EMULATOR_NUMBER(uint8_t, Uint8, "uint8")
EMULATOR_NUMBER(int16_t, Int16, "int16")
EMULATOR_NUMBER(uint16_t, Uint16, "uint16")
EMULATOR_NUMBER(int32_t, Int32, "int32")
EMULATOR_NUMBER(uint32_t, Uint32, "uint32")
EMULATOR_NUMBER(int64_t, Int64, "int64")
EMULATOR_NUMBER(uint64_t, Uint64, "uint64")
EMULATOR_NUMBER(fp4x2_e2m1_t, E2M1x2, "fp4_e2m1")
EMULATOR_NUMBER(fp4x2_e1m2_t, E1M2x2, "fp4_e1m2")
EMULATOR_NUMBER(fp8_e4m3fn_t, E4M3fn, "fp8_e4m3fn")
EMULATOR_NUMBER(fp8_e5m2_t, E5M2, "fp8_e5m2")
EMULATOR_NUMBER(fp8_e8m0_t, E8M0, "fp8_e8m0")
EMULATOR_NUMBER(hifloat8_t, HiFloat8, "hifloat8")
EMULATOR_NUMBER(half, Half, "half")
EMULATOR_NUMBER(bfloat16_t, Bfloat16, "bfloat16")
EMULATOR_NUMBER(float, Float, "float")
EMULATOR_NUMBER(double, Double, "double")
#undef EMULATOR_NUMBER
}  // namespace names

template <class T> constexpr const char* name_of() { return names::Of<std::remove_cv_t<T>>::name; }
template <class T> constexpr Number number_of() { return names::Of<std::remove_cv_t<T>>::number; }
/// Two elements in a byte.
template <class T> constexpr bool is_packed() {
    return number_of<T>() == Number::Int4 || number_of<T>() == Number::E2M1x2 || number_of<T>() == Number::E1M2x2;
}
/// Bits of an element: 4 in the packed types, whose size is one byte.
template <class T> constexpr int bits_of() { return is_packed<T>() ? 4 : 8 * static_cast<int>(sizeof(T)); }

// ---- Which conversions Cast has --------------------------------------------------------------------------------------

struct CastRule {
    Number from, to;
    uint8_t modes;  // bit m: the mode m of Rounding
};
constexpr uint8_t EXACT = 1 << 0;                // CAST_NONE alone
constexpr uint8_t FIVE = 0b00111110;             // CAST_RINT, FLOOR, CEIL, ROUND, TRUNC
constexpr uint8_t FIVE_OR_NONE = FIVE | EXACT;
constexpr uint8_t FIVE_ODD_OR_NONE = FIVE | EXACT | 1 << 6;
constexpr uint8_t ANY = 0b01111111;              // the mode has no effect: int32_t -> half goes with SetDeqScale
constexpr uint8_t HIFLOAT8 = 1 << 4 | 1 << 7;    // CAST_ROUND, CAST_HYBRID

/// [M], Atlas A2; the table of Atlas A3 is the same.
constexpr CastRule CASTS_2201[] = {
    {Number::Int4, Number::Half, EXACT},         {Number::Int8, Number::Half, EXACT},
    {Number::Uint8, Number::Half, EXACT},        {Number::Int16, Number::Half, FIVE_OR_NONE},
    {Number::Int16, Number::Float, EXACT},       {Number::Half, Number::Int4, FIVE_OR_NONE},
    {Number::Half, Number::Int8, FIVE_OR_NONE},  {Number::Half, Number::Uint8, FIVE_OR_NONE},
    {Number::Half, Number::Int16, FIVE},         {Number::Half, Number::Int32, FIVE},
    {Number::Half, Number::Float, EXACT},        {Number::Bfloat16, Number::Int32, FIVE},
    {Number::Bfloat16, Number::Float, EXACT},    {Number::Int32, Number::Int16, EXACT},
    {Number::Int32, Number::Half, ANY},          {Number::Int32, Number::Float, FIVE_OR_NONE},
    {Number::Int32, Number::Int64, EXACT},       {Number::Float, Number::Int16, FIVE},
    {Number::Float, Number::Half, FIVE_ODD_OR_NONE}, {Number::Float, Number::Bfloat16, FIVE},
    {Number::Float, Number::Int32, FIVE},        {Number::Float, Number::Float, FIVE},
    {Number::Float, Number::Int64, FIVE},        {Number::Int64, Number::Int32, EXACT},
    {Number::Int64, Number::Float, FIVE},
};
/// [M], Ascend 950, without complex32 and complex64.
constexpr CastRule CASTS_3510[] = {
    {Number::Int4, Number::Int16, EXACT},        {Number::Int4, Number::Half, EXACT},
    {Number::Int4, Number::Bfloat16, EXACT},     {Number::Int8, Number::Int16, EXACT},
    {Number::Int8, Number::Half, EXACT},         {Number::Int8, Number::Int32, EXACT},
    {Number::Uint8, Number::Uint16, EXACT},      {Number::Uint8, Number::Half, EXACT},
    {Number::Uint8, Number::Uint32, EXACT},      {Number::E2M1x2, Number::Bfloat16, EXACT},
    {Number::E1M2x2, Number::Bfloat16, EXACT},   {Number::HiFloat8, Number::Half, EXACT},
    {Number::HiFloat8, Number::Float, EXACT},    {Number::E5M2, Number::Float, EXACT},
    {Number::E4M3fn, Number::Float, EXACT},      {Number::Int16, Number::Int4, EXACT},
    {Number::Int16, Number::Uint8, EXACT},       {Number::Int16, Number::Half, FIVE},
    {Number::Int16, Number::Int32, EXACT},       {Number::Int16, Number::Uint32, EXACT},
    {Number::Int16, Number::Float, EXACT},       {Number::Uint16, Number::Uint8, EXACT},
    {Number::Uint16, Number::Uint32, EXACT},     {Number::Half, Number::Int4, FIVE},
    {Number::Half, Number::Int8, FIVE},          {Number::Half, Number::Uint8, FIVE},
    {Number::Half, Number::HiFloat8, HIFLOAT8},  {Number::Half, Number::Int16, FIVE},
    {Number::Half, Number::Bfloat16, FIVE},      {Number::Half, Number::Int32, FIVE},
    {Number::Half, Number::Float, EXACT},        {Number::Bfloat16, Number::E2M1x2, FIVE},
    {Number::Bfloat16, Number::E1M2x2, FIVE},    {Number::Bfloat16, Number::Half, FIVE},
    {Number::Bfloat16, Number::Int32, FIVE},     {Number::Bfloat16, Number::Float, EXACT},
    {Number::Int32, Number::Uint8, EXACT},       {Number::Int32, Number::Int16, EXACT},
    {Number::Int32, Number::Uint16, EXACT},      {Number::Int32, Number::Half, ANY},
    {Number::Int32, Number::Float, FIVE},        {Number::Int32, Number::Int64, EXACT},
    {Number::Uint32, Number::Uint8, EXACT},      {Number::Uint32, Number::Int16, EXACT},
    {Number::Uint32, Number::Uint16, EXACT},     {Number::Float, Number::HiFloat8, HIFLOAT8},
    {Number::Float, Number::E5M2, 1 << 1},       {Number::Float, Number::E4M3fn, 1 << 1},
    {Number::Float, Number::Int16, FIVE},        {Number::Float, Number::Half, FIVE_ODD_OR_NONE},
    {Number::Float, Number::Bfloat16, FIVE},     {Number::Float, Number::Int32, FIVE},
    {Number::Float, Number::Float, FIVE},        {Number::Float, Number::Int64, FIVE},
    {Number::Int64, Number::Int32, EXACT},       {Number::Int64, Number::Float, FIVE},
    {Number::Int64, Number::Double, FIVE},       {Number::Double, Number::Bfloat16, FIVE},
    {Number::Double, Number::Int32, 1 << 5},     {Number::Double, Number::Float, FIVE},
    {Number::Double, Number::Int64, 1 << 5},
};

/// Whether Cast on local tensors has this conversion in this mode.
constexpr bool cast_allowed(Arch arch, Number from, Number to, Rounding mode) {
    const auto allowed = [=](const auto& rules) {
        for (const CastRule& rule : rules)
            if (rule.from == from && rule.to == to) return (rule.modes >> static_cast<int>(mode) & 1) != 0;
        return false;
    };
    return arch == Arch::dav2201 ? allowed(CASTS_2201) : allowed(CASTS_3510);
}
template <class From, class To>
constexpr bool cast_allowed(Arch arch, Rounding mode) {
    return cast_allowed(arch, number_of<From>(), number_of<To>(), mode);
}

/// The same for Reg::Cast on registers of dav-3510 ([R], tables 6 to 9): it adds the scales, has no double, no float ->
/// float, no int32_t -> half, and no mode None where it rounds. None stands for its RoundMode::UNKNOWN.
constexpr bool register_cast_allowed(Number from, Number to, Rounding mode) {
    if ((from == Number::Bfloat16 && to == Number::E8M0) || (from == Number::E8M0 && to == Number::Bfloat16))
        return mode == Rounding::None;
    if (from == Number::Double || to == Number::Double || (from == Number::Float && to == Number::Float)) return false;
    if (to == Number::Half && (from == Number::Int32 || (from == Number::Float && mode == Rounding::None))) return false;
    return cast_allowed(Arch::dav3510, from, to, mode);
}

// ---- Conversion ------------------------------------------------------------------------------------------------------

/// Integer that a number rounds to.
template <Rounding mode, class Real>
EMULATOR_INLINE Real to_integral(Real x) {
    static_assert(mode != Rounding::Hybrid, "Hybrid rounding is defined for hifloat8_t alone");
    // All from nearbyint: unlike floor, ceil and trunc it becomes a vector instruction without -fno-trapping-math.
    using Word = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
    const auto one_if = [](bool yes) { return bits_as<Real>((Word(0) - yes) & bits_as<Word>(Real(1))); };
    const Real size = std::fabs(x), near = std::nearbyint(size);
    if constexpr (mode == Rounding::None || mode == Rounding::Rint) return std::copysign(near, x);
    const Real whole = near - one_if(near > size), half_of = whole * Real(0.5);
    const bool inexact = whole < size;
    bool carry = false;
    if (mode == Rounding::Floor) carry = inexact & std::signbit(x);
    if (mode == Rounding::Ceil) carry = inexact & !std::signbit(x);
    if (mode == Rounding::Round) carry = inexact & (size - whole >= Real(0.5));
    if (mode == Rounding::Odd) carry = inexact & (std::nearbyint(half_of) == half_of);
    return std::copysign(whole + one_if(carry), x);
}

/// A whole number as an integer of `Bits` bits. NaN gives 0. Infinity gives the end of the range; so does what lies outside
/// when saturating, else the low bits stay ([R], table 4; [B] has half -> int16_t of +-65504 saturate all the same).
template <class To, int Bits = 8 * sizeof(To), class Real>
EMULATOR_INLINE To to_integer(Real whole, bool saturate) {
    constexpr bool is_signed = std::is_signed_v<To>;
    constexpr Real end = static_cast<Real>(uint64_t(1) << (Bits - 1)) * (is_signed ? 1 : 2);
    constexpr Real low = is_signed ? -end : Real(0);
    constexpr To most = static_cast<To>(~uint64_t(0) >> (64 - Bits + is_signed));
    constexpr To least = is_signed ? static_cast<To>(-most - 1) : To(0);
    using Wide = std::conditional_t<(Bits < 32 || (Bits == 32 && is_signed)), int32_t, int64_t>;
    const bool inside = whole >= low && whole < end;
    const To value = static_cast<To>(static_cast<Wide>(inside ? whole : Real(0)));
    if (saturate || std::isinf(whole)) return whole >= end ? most : whole < low ? least : value;
    if (inside || whole != whole) return value;
    const uint64_t rest = static_cast<uint64_t>(std::fmod(std::fabs(whole), Real(18446744073709551616.0)));
    const uint64_t bits = (whole < 0 ? 0 - rest : rest) << (64 - Bits);
    return is_signed ? static_cast<To>(static_cast<int64_t>(bits) >> (64 - Bits)) : static_cast<To>(bits >> (64 - Bits));
}

/// Clamped when saturating, else the low bits stay. A wider type always saturates ([R], restrictions: -1 as uint32_t is 0).
template <class To, int Bits = 8 * sizeof(To), class From>
EMULATOR_INLINE constexpr To integer_to_integer(From value, bool saturate) {
    constexpr bool is_signed = std::is_signed_v<To>;
    constexpr To most = static_cast<To>(~uint64_t(0) >> (64 - Bits + is_signed));
    constexpr To least = is_signed ? static_cast<To>(-most - 1) : To(0);
    static_assert(sizeof(From) < 8 || std::is_signed_v<From>, "Cast has no uint64_t");
    constexpr bool narrow = sizeof(From) + std::is_unsigned_v<From> <= 4 && sizeof(To) + std::is_unsigned_v<To> <= 4;
    const std::conditional_t<narrow, int32_t, int64_t> wide = value, high = most, low = least;
    if (saturate || Bits > 8 * static_cast<int>(sizeof(From)))
        return static_cast<To>(wide > high ? high : wide < low ? low : wide);
    const uint64_t bits = static_cast<uint64_t>(wide) << (64 - Bits);
    return is_signed ? static_cast<To>(static_cast<int64_t>(bits) >> (64 - Bits)) : static_cast<To>(bits >> (64 - Bits));
}

/// int64_t -> double; every mode.
template <Rounding mode>
constexpr double integer_to_double(int64_t value) {
    const bool negative = value < 0;
    uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    int drop = 0;
    while (magnitude >> drop >> 53) ++drop;
    const uint64_t unit = uint64_t(1) << drop, last = magnitude >> drop & 1, rest = magnitude & (unit - 1);
    bool carry = false;
    if (mode == Rounding::None || mode == Rounding::Rint) carry = 2 * rest + last > unit;
    if (mode == Rounding::Round) carry = rest != 0 && 2 * rest >= unit;
    if (mode == Rounding::Floor) carry = negative && rest != 0;
    if (mode == Rounding::Ceil) carry = !negative && rest != 0;
    if (mode == Rounding::Odd) carry = rest != 0 && last == 0;
    magnitude = ((magnitude >> drop) + carry) << drop;
    const double wide = static_cast<double>(magnitude >> drop) * static_cast<double>(unit);
    return negative ? -wide : wide;
}

template <class T>
constexpr bool is_small() {
    return !std::is_arithmetic_v<T>;
}

/// The number as a float, or as a double where a float may not hold it.
template <class From>
EMULATOR_INLINE constexpr auto real_of(From value) {
    if constexpr (is_small<From>() || (std::is_integral_v<From> && sizeof(From) < 4)) return static_cast<float>(value);
    else if constexpr (std::is_integral_v<From>) return double_of(value);
    else return value;
}

/// `convert` in a mode that is known when compiling.
template <class To, Rounding mode, class From>
EMULATOR_INLINE To convert_as(From value, bool saturate, bool keep_nan = false) {
    static_assert(!is_packed<To>() && !is_packed<From>(), "packed pairs: pack and element");
    if constexpr (std::is_same_v<To, From> && !std::is_same_v<To, float>) {
        return value;
    } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
        return integer_to_integer<To>(value, saturate);
    } else if constexpr (std::is_integral_v<To>) {
        return to_integer<To>(to_integral<mode>(real_of(value)), saturate);
    } else if constexpr (std::is_same_v<To, double>) {
        if constexpr (std::is_same_v<From, int64_t>) return integer_to_double<mode>(value);
        else return static_cast<double>(real_of(value));
    } else if constexpr (std::is_same_v<To, float>) {
        // float -> float rounds to a whole number; [B]: -0 becomes +0. Taken for every result of zero.
        if constexpr (std::is_same_v<From, float>) return to_integral<mode>(value) + 0.0f;
        else if constexpr (std::is_same_v<decltype(real_of(value)), float>) return real_of(value);
        else if constexpr (std::is_integral_v<From> && mode <= Rounding::Rint) return static_cast<float>(value);
        else return bits_as<float>(encode<Float, mode>(real_of(value)));  // never saturates: [R], restrictions
    } else if constexpr (std::is_same_v<To, fp8_e8m0_t>) {
        return To{static_cast<uint8_t>(encode_scale(static_cast<float>(value), saturate))};
    } else if constexpr (std::is_same_v<To, hifloat8_t>) {
        static_assert(mode == Rounding::Round, "to hifloat8_t only Rounding::Round is defined");
        return To{static_cast<uint8_t>(encode_hifloat8(static_cast<float>(value), saturate))};
    } else if constexpr (std::is_same_v<To, half>) {
        constexpr bool exact = std::is_same_v<From, hifloat8_t>;  // [R], table 7: no saturation mode
        return To::from_bits(static_cast<uint16_t>(encode<Half, mode>(real_of(value), saturate && !exact)));
    } else if constexpr (std::is_same_v<To, bfloat16_t>) {
        constexpr bool exact = is_small<From>();  // [R], table 7, and [B]: half keeps its infinity and NaN
        return To::from_bits(static_cast<uint16_t>(encode<Bfloat16, mode>(real_of(value), saturate && !exact)));
    } else if constexpr (std::is_same_v<To, fp8_e4m3fn_t>) {
        return To{static_cast<uint8_t>(encode<E4M3, mode>(real_of(value), saturate, keep_nan))};
    } else {
        static_assert(std::is_same_v<To, fp8_e5m2_t>, "no conversion to this type is defined");
        return To{static_cast<uint8_t>(encode<E5M2, mode>(real_of(value), saturate, keep_nan))};
    }
}

/// Calls `act` with the mode as a compile-time constant. std::invalid_argument: the destination has no such mode.
template <class To, class Act>
inline auto with_mode(Rounding mode, Act act) {
    if constexpr (std::is_same_v<To, hifloat8_t>) {
        if (mode != Rounding::Round) throw std::invalid_argument("to hifloat8_t only Rounding::Round is defined");
        return act(std::integral_constant<Rounding, Rounding::Round>{});
    } else {
        switch (mode) {
            case Rounding::None:
            case Rounding::Rint: return act(std::integral_constant<Rounding, Rounding::Rint>{});
            case Rounding::Floor: return act(std::integral_constant<Rounding, Rounding::Floor>{});
            case Rounding::Ceil: return act(std::integral_constant<Rounding, Rounding::Ceil>{});
            case Rounding::Round: return act(std::integral_constant<Rounding, Rounding::Round>{});
            case Rounding::Trunc: return act(std::integral_constant<Rounding, Rounding::Trunc>{});
            case Rounding::Odd: return act(std::integral_constant<Rounding, Rounding::Odd>{});
            default: throw std::invalid_argument("Rounding::Hybrid is defined for hifloat8_t alone");
        }
    }
}

/// Cast of one number. It converts more pairs than a device has: ask `cast_allowed`. `saturate`: bit 48 of CTRL is clear
/// (to a floating-point type) or bit 59 is (to an integer), or SatMode::SAT. `keep_nan`: bit 50, to e4m3fn and e5m2.
template <class To, class From>
inline To convert(From value, Rounding mode = Rounding::None, bool saturate = true, bool keep_nan = false) {
    return with_mode<To>(mode, [&](auto m) { return convert_as<To, m()>(value, saturate, keep_nan); });
}

template <class To, Rounding mode, bool saturate, class From>
inline void convert_each(To* to, const From* from, int64_t count, bool keep_nan) {
    for (int64_t i = 0; i < count; ++i) to[i] = convert_as<To, mode>(from[i], saturate, keep_nan);
}

/// `convert` of `count` numbers in a row; the loop has no branch on the mode.
template <class To, class From>
inline void convert_range(To* to, const From* from, int64_t count, Rounding mode = Rounding::None, bool saturate = true,
                          bool keep_nan = false) {
    with_mode<To>(mode, [=](auto m) {
        if (saturate) convert_each<To, m(), true>(to, from, count, keep_nan);
        else convert_each<To, m(), false>(to, from, count, keep_nan);
    });
}

/// Element 0 or 1 of a packed pair; every one is exact in float, half, bfloat16_t and int16_t (int4b_t only).
template <class To, class Packed>
inline To element(Packed pair, int index) {
    static_assert(is_packed<Packed>());
    const uint32_t code = pair.bits >> (4 * index) & 15;
    if constexpr (std::is_same_v<Packed, int4b_t>) return static_cast<To>(static_cast<int16_t>((code ^ 8) - 8));
    else if constexpr (std::is_same_v<Packed, fp4x2_e2m1_t>) return static_cast<To>(decode<E2M1>(code));
    else return static_cast<To>(decode<E1M2>(code));
}

/// Two numbers as a packed pair; fp4 always saturates.
template <class Packed, class From>
inline Packed pack(From first, From second, Rounding mode = Rounding::None, bool saturate = true) {
    static_assert(is_packed<Packed>());
    return with_mode<Packed>(mode, [&](auto m) {
        const auto code = [&](From value) -> uint32_t {
            if constexpr (std::is_same_v<Packed, fp4x2_e2m1_t>) return encode<E2M1, m()>(real_of(value), true);
            else if constexpr (std::is_same_v<Packed, fp4x2_e1m2_t>) return encode<E1M2, m()>(real_of(value), true);
            else if constexpr (std::is_integral_v<From>) return integer_to_integer<int8_t, 4>(value, saturate) & 15;
            else return to_integer<int8_t, 4>(to_integral<m()>(real_of(value)), saturate) & 15;
        };
        return Packed{static_cast<uint8_t>(code(first) | code(second) << 4)};
    });
}

/// int32_t -> half with SetDeqScale: value / 2^17 * scale * 2^17 ([P]). Unknown where that rounds: once, to nearest even.
inline half convert_scaled(int32_t value, half scale, bool saturate = true) {
    const double product = static_cast<double>(value) * static_cast<double>(static_cast<float>(scale));
    return half::from_bits(static_cast<uint16_t>(encode<Half>(product, saturate)));
}

}  // namespace emulator::numbers

namespace AscendC {

/// Scalar Cast ("Cast (float to bfloat16_t)", formerly ToBfloat16): to nearest even. Overflow: unknown, to infinity.
constexpr bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }
/// Scalar Cast ("Cast (several types to float)", formerly ToFloat): of a packed pair the element in the low bits.
constexpr float ToFloat(const bfloat16_t& value) { return static_cast<float>(value); }
constexpr float ToFloat(const hifloat8_t& value) { return static_cast<float>(value); }
constexpr float ToFloat(const fp8_e4m3fn_t& value) { return static_cast<float>(value); }
constexpr float ToFloat(const fp8_e5m2_t& value) { return static_cast<float>(value); }
inline float ToFloat(const fp4x2_e2m1_t& value) { return emulator::numbers::element<float>(value, 0); }
inline float ToFloat(const fp4x2_e1m2_t& value) { return emulator::numbers::element<float>(value, 0); }

}  // namespace AscendC

#undef EMULATOR_INLINE
