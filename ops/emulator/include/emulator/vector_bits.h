// Bits of integers: And, Or, Not, ShiftLeft, ShiftRight. Source: [page] of each call.
#pragma once

#include "vector_binary.h"
#include "vector_unary.h"

namespace AscendC {

// dav-2201 works on 16 bits; its pages advise ReinterpretCast of 32-bit integers, to twice as many elements.
EMULATOR_TYPES(And, (int16_t, uint16_t), (int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Or, (int16_t, uint16_t), (int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(Not, (int16_t, uint16_t), (half, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(ShiftLeft, (int16_t, uint16_t, int32_t, uint32_t), (int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))
EMULATOR_TYPES(ShiftRight, (int16_t, uint16_t, int32_t, uint32_t), (int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))

/// dst = src0 & src1.
EMULATOR_BINARY(And, false, static_cast<T>(a & b))
/// dst = src0 | src1.
EMULATOR_BINARY(Or, false, static_cast<T>(a | b))

namespace emu {

template <class T>
constexpr T inverted(T x) {
    using emulator::numbers::bits_as;
    if constexpr (std::is_integral_v<T>) return static_cast<T>(~x);
    else if constexpr (std::is_same_v<T, float>) return bits_as<float>(~bits_as<uint32_t>(x));
    else return T::from_bits(static_cast<uint16_t>(~x.bits));
}

}  // namespace emu

template <class T>
constexpr auto Not_op = [](T* dst, const T* src, int64_t n) { EMULATOR_EACH(i, n) dst[i] = emu::inverted(src[i]); };
/// dst = ~src.
EMULATOR_UNARY_FORMS(Not, (), Not_op<T>)

namespace emu {

// ---- Shifts ----

/// Unsigned: zeros come in. Signed: the sign stays and the bits below it move. Beyond the width nothing is left of them, as
/// the page of the form whose amount is a tensor says; the page of this one does not.
template <class T>
constexpr T shifted_left(T x, int64_t amount) {
    constexpr int width = 8 * sizeof(T);
    using Word = types_impl::Modular<T>;
    const T moved = amount < width ? static_cast<T>(static_cast<Word>(x) << amount) : T(0);
    if constexpr (std::is_unsigned_v<T>) return moved;
    constexpr T sign = std::numeric_limits<T>::min();
    return static_cast<T>((x & sign) | (moved & static_cast<T>(~sign)));
}
/// Unsigned: zeros come in. Signed: copies of the sign do. `round` adds the last bit that falls out.
template <class T>
constexpr T shifted_right(T x, int64_t amount, bool round) {
    constexpr int width = 8 * sizeof(T);
    const int64_t last = std::is_unsigned_v<T> ? width : width - 1;
    const T moved = amount < width ? static_cast<T>(x >> amount) : std::is_unsigned_v<T> ? T(0) : static_cast<T>(x >> (width - 1));
    const T carry = round && amount > 0 ? static_cast<T>((x >> (amount - 1 < last ? amount - 1 : last - 1)) & 1) : T(0);
    return sum(moved, carry);
}

template <class T>
bool legal_shift(T amount, const char* call, Site at) {
    return emulator::require(std::is_unsigned_v<T> || static_cast<int64_t>(amount) >= 0, "argument", at, call,
                             "scalarValue is " + std::to_string(static_cast<int64_t>(amount)) + "; a number of bits cannot be negative, take the other shift.");
}

template <class T>
void shift_left(const LocalTensor<T>& dst, const LocalTensor<T>& src, T amount, const Lanes& lanes, const UnaryRepeatParams& p, Site at) {
    if (!legal_shift(amount, "ShiftLeft", at)) return;
    const int64_t bits = amount > T(64) ? 64 : static_cast<int64_t>(amount);
    unary("ShiftLeft", at, lanes, dst, src, p, [bits](T* to, const T* from, int64_t n) { EMULATOR_EACH(i, n) to[i] = shifted_left(from[i], bits); });
}
template <class T>
void shift_right(const LocalTensor<T>& dst, const LocalTensor<T>& src, T amount, const Lanes& lanes, const UnaryRepeatParams& p, bool round, Site at) {
    if (!legal_shift(amount, "ShiftRight", at)) return;
    if (!emulator::require(!round || is_2201, "argument", at, "ShiftRight", "roundEn is true; dav-3510 does not round, pass false.")) return;
    if (!emulator::require(!round || (std::is_signed_v<T> && (sizeof(T) == 2 || sizeof(T) == 4)), "argument", at, "ShiftRight", "roundEn is true; it rounds int16_t and int32_t alone, pass false.")) return;
    const int64_t bits = amount > T(64) ? 64 : static_cast<int64_t>(amount);
    if (round)
        unary("ShiftRight", at, lanes, dst, src, p, [bits](T* to, const T* from, int64_t n) { EMULATOR_EACH(i, n) to[i] = shifted_right(from[i], bits, true); });
    else
        unary("ShiftRight", at, lanes, dst, src, p, [bits](T* to, const T* from, int64_t n) { EMULATOR_EACH(i, n) to[i] = shifted_right(from[i], bits, false); });
}

}  // namespace emu

/// dst = src << scalarValue.
template <class T, bool isSetMask = true>
void ShiftLeft(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count, Site at = Site::here()) {
    ShiftLeft_types<T, true>();
    emu::shift_left(dst, src, scalarValue, emu::count_lanes<isSetMask>(count, sizeof(T)), {}, at);
}
template <class T, bool isSetMask = true>
void ShiftLeft(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask, const uint8_t repeatTime,
               const UnaryRepeatParams& repeatParams, Site at = Site::here()) {
    ShiftLeft_types<T, false>();
    emu::shift_left(dst, src, scalarValue, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), repeatParams, at);
}
template <class T, bool isSetMask = true>
void ShiftLeft(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask[], const uint8_t repeatTime,
               const UnaryRepeatParams& repeatParams, Site at = Site::here()) {
    ShiftLeft_types<T, false>();
    emu::shift_left(dst, src, scalarValue, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), repeatParams, at);
}
/// dst = src >> scalarValue.
template <class T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count, Site at = Site::here()) {
    ShiftRight_types<T, true>();
    emu::shift_right(dst, src, scalarValue, emu::count_lanes<isSetMask>(count, sizeof(T)), {}, false, at);
}
template <class T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask, const uint8_t repeatTime,
                const UnaryRepeatParams& repeatParams, bool roundEn = false, Site at = Site::here()) {
    ShiftRight_types<T, false>();
    emu::shift_right(dst, src, scalarValue, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), repeatParams, roundEn, at);
}
template <class T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask[], const uint8_t repeatTime,
                const UnaryRepeatParams& repeatParams, bool roundEn = false, Site at = Site::here()) {
    ShiftRight_types<T, false>();
    emu::shift_right(dst, src, scalarValue, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), repeatParams, roundEn, at);
}

}  // namespace AscendC
