// Cast: one element type to another. Source: [page] Cast; numbers.h has the pairs, the modes and the conversions.
#pragma once

#include <array>

#include "vector_types.h"

namespace AscendC {

/// UNKNOWN: of conversions between registers that do not round.
enum class RoundMode { UNKNOWN = -1, CAST_NONE = 0, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD, CAST_HYBRID };

/// The scale of int32_t -> half, until it is set again. Source: [page] SetDeqScale.
inline void SetDeqScale(half scale) {
    auto& control = emulator::core().control;
    control.deq_scale = scale.bits, control.deq_scale_set = true;
}

// ---- Saturation ----

// Float -> half, bfloat16_t: [Borders] has infinity and NaN by default. SetCtrlSpr's page has bit 48 clear by default, which is
// the greatest number and 0. They contradict each other; taken: infinity on dav-2201, where the first page speaks of it alone,
// and the bit on dav-3510, also for the types of 8 bits. To integers: the ends of the range by default on both (table 32).
// Not here: bit 48 for half arithmetic and bit 53 for integer arithmetic (dav-3510), SetSaturationFlag (dav-2201).

#if __NPU_ARCH__ == 3510
/// Bits of the control register that conversions heed: 48 clear saturates to floating-point types, 50 set keeps NaN in 8 bits
/// all the same, 59 clear saturates to integers, 60 set makes 48 and 59 count for every instruction.
template <int8_t startBit, int8_t endBit>
inline void SetCtrlSpr(int64_t value) {
    static_assert(startBit == endBit && (startBit == 48 || startBit == 50 || startBit == 59 || startBit == 60),
                  "SetCtrlSpr: the emulator has the bits 48, 50, 59 and 60, one at a time");
    auto& ctrl = emulator::core().control.ctrl;
    ctrl = (ctrl & ~(1ull << startBit)) | (static_cast<uint64_t>(value & 1) << startBit);
}
template <int8_t startBit, int8_t endBit>
inline void ResetCtrlSpr() {
    SetCtrlSpr<startBit, endBit>(startBit == 60);
}
template <int8_t startBit, int8_t endBit>
inline int64_t GetCtrlSpr() {
    static_assert(startBit == endBit && (startBit == 48 || startBit == 50 || startBit == 59 || startBit == 60),
                  "GetCtrlSpr: the emulator has the bits 48, 50, 59 and 60, one at a time");
    return static_cast<int64_t>(emulator::core().control.ctrl >> startBit & 1);
}
#endif

namespace emu {

/// How a conversion to `To` treats what does not fit.
struct Saturation {
    bool saturate, keep_nan;
};
template <class T>
constexpr bool is_integer() { return std::is_integral_v<T> || std::is_same_v<T, int4b_t>; }
template <class To>
inline Saturation saturation() {
    const auto& control = emulator::core().control;
    if (is_2201) return {is_integer<To>(), false};
    const auto bit = [&](int number) { return (control.ctrl >> number & 1) != 0; };
    return {!bit(is_integer<To>() ? 59 : 48), bit(50)};
}

// ---- Which conversions ----

constexpr emulator::Arch ARCH = is_2201 ? emulator::Arch::dav2201 : emulator::Arch::dav3510;
constexpr std::array<const char*, 8> ROUND_MODES = {"CAST_NONE", "CAST_RINT", "CAST_FLOOR", "CAST_CEIL", "CAST_ROUND", "CAST_TRUNC", "CAST_ODD", "CAST_HYBRID"};

template <class To, class From>
constexpr bool cast_exists() {
    for (int mode = 0; mode < 8; ++mode)
        if (emulator::numbers::cast_allowed<From, To>(ARCH, static_cast<emulator::numbers::Rounding>(mode))) return true;
    return false;
}

}  // namespace emu

template <class To, class From>
struct NoCast;  // never defined: a compiler that stops here names the types
template <class To, class From>
constexpr void Cast_types() {
    constexpr bool exists = emu::cast_exists<To, From>();
    static_assert(exists, "Cast: " EMULATOR_SOC " does not convert between these types; see the table of its page, and take two steps.");
    if constexpr (!exists) static_cast<void>(sizeof(NoCast<To, From>));
}

namespace emu {

inline bool legal_mode(emulator::numbers::Number from, const char* from_name, emulator::numbers::Number to, const char* to_name, RoundMode mode, Site at) {
    using namespace emulator::numbers;
    const int number = static_cast<int>(mode);
    const bool known = number >= 0 && number < 8, listed = known && cast_allowed(ARCH, from, to, static_cast<Rounding>(number));
    if (listed && mode != RoundMode::CAST_HYBRID) return true;
    const std::string pair = std::string(from_name) + " -> " + to_name;
    if (listed) return emulator::require(false, "argument", at, "Cast", "CAST_HYBRID of " + pair + " is not defined well enough to be emulated; take CAST_ROUND.");
    std::string allowed;
    for (int other = 0; other < 7; ++other)
        if (cast_allowed(ARCH, from, to, static_cast<Rounding>(other))) allowed += (allowed.empty() ? "" : ", ") + std::string(ROUND_MODES[static_cast<size_t>(other)]);
    const std::string given = known ? ROUND_MODES[static_cast<size_t>(number)] : "mode " + std::to_string(number);
    return emulator::require(false, "argument", at, "Cast", pair + " has no " + given + " on " EMULATOR_SOC "; it has " + allowed + ".");
}

/// The one mode that a conversion has, Hybrid when it has several.
template <class To, class From>
constexpr emulator::numbers::Rounding only_mode() {
    using namespace emulator::numbers;
    Rounding found = Rounding::Hybrid;
    int modes = 0;
    for (int mode = 0; mode < 8; ++mode)
        if (cast_allowed<From, To>(ARCH, static_cast<Rounding>(mode))) found = static_cast<Rounding>(mode), ++modes;
    return modes == 1 ? found : Rounding::Hybrid;
}

/// `n` numbers in a row. Compiled once for a pair of types, whoever calls it.
template <class To, class From>
[[gnu::noinline]] void convert_row(To* to, const From* from, int64_t n, emulator::numbers::Rounding mode, Saturation rule) {
    using namespace emulator::numbers;
    constexpr Rounding only = only_mode<To, From>();
    if constexpr (only != Rounding::Hybrid) {
        if (rule.saturate)
            for (int64_t i = 0; i < n; ++i) to[i] = convert_as<To, only == Rounding::None ? Rounding::Rint : only>(from[i], true, rule.keep_nan);
        else
            for (int64_t i = 0; i < n; ++i) to[i] = convert_as<To, only == Rounding::None ? Rounding::Rint : only>(from[i], false, rule.keep_nan);
    } else {
        // A constant on dav-2201, so that half of the loops are not compiled.
        convert_range(to, from, n, mode, is_2201 ? is_integer<To>() : rule.saturate, !is_2201 && rule.keep_nan);
    }
}

}  // namespace emu

// ---- Packed pairs ----

/// Two neighbours: what a packed byte converts from and to.
template <class T>
struct Two {
    T first, second;
};

namespace emu {

template <class T>
LocalTensor<Two<T>> in_pairs(const LocalTensor<T>& tensor) { return tensor.template ReinterpretCast<Two<T>>(); }

/// The same lanes counted in pairs. False: a pair is cut.
inline bool pair_lanes(Lanes& lanes, Site at) {
    bool whole = lanes.count % 2 == 0 && lanes.last_partial % 2 == 0;
    for (auto& [first, last] : lanes.runs) {
        whole = whole && first % 2 == 0 && last % 2 == 0;
        first /= 2, last /= 2;
    }
    lanes.count /= 2, lanes.width /= 2, lanes.last_partial /= 2;
    return emulator::require(whole, "argument", at, "Cast", "the count or the mask cuts a pair of 4-bit numbers in two; both are in a byte, so numbers of elements have to be even and mask bits equal in pairs.");
}

// ---- Cast ----

template <class To, class From>
void cast(Site at, Lanes lanes, const LocalTensor<To>& dst, const LocalTensor<From>& src, RoundMode round_mode, const UnaryRepeatParams& p) {
    namespace numbers = emulator::numbers;
    if (!legal_mode(numbers::number_of<From>(), numbers::name_of<From>(), numbers::number_of<To>(), numbers::name_of<To>(), round_mode, at)) return;
    const auto mode = static_cast<numbers::Rounding>(round_mode);
    const Saturation rule = saturation<To>();
    const Stride to_stride{p.dstBlkStride, p.dstRepStride}, from_stride{p.srcBlkStride, p.srcRepStride};
    if constexpr (numbers::is_packed<To>()) {
        if (!pair_lanes(lanes, at)) return;
        const auto op = [=](To* to, const Two<From>* from, int64_t n) {
            for (int64_t i = 0; i < n; ++i) to[i] = numbers::pack<To>(from[i].first, from[i].second, mode, rule.saturate);
        };
        elementwise("Cast", at, lanes, false, dst, to_stride, op, std::pair{in_pairs(src), from_stride});
    } else if constexpr (numbers::is_packed<From>()) {
        if (!pair_lanes(lanes, at)) return;
        const auto op = [](Two<To>* to, const From* from, int64_t n) {
            for (int64_t i = 0; i < n; ++i) to[i] = {numbers::element<To>(from[i], 0), numbers::element<To>(from[i], 1)};
        };
        elementwise("Cast", at, lanes, false, in_pairs(dst), to_stride, op, std::pair{src, from_stride});
    } else if constexpr (std::is_same_v<From, int32_t> && std::is_same_v<To, half>) {
        const auto& control = emulator::core().control;
        if (!emulator::require(control.deq_scale_set, "uninitialised", at, "Cast", "int32 -> half multiplies with a scale that nothing has set; call SetDeqScale(half) before.")) return;
        const half scale = half::from_bits(control.deq_scale);
        const auto op = [=](half* to, const int32_t* from, int64_t n) {
            for (int64_t i = 0; i < n; ++i) to[i] = numbers::convert_scaled(from[i], scale, rule.saturate);
        };
        elementwise("Cast", at, lanes, false, dst, to_stride, op, std::pair{src, from_stride});
    } else {
        const auto op = [=](To* to, const From* from, int64_t n) {
            if (static_cast<const void*>(to) != static_cast<const void*>(from)) return convert_row(to, from, n, mode, rule);
            From part[64];  // in place: read before it is written
            for (int64_t i = 0; i < n; i += 64) {
                const int64_t size = std::min<int64_t>(64, n - i);
                std::memcpy(static_cast<void*>(part), reinterpret_cast<const uint8_t*>(from + i), static_cast<size_t>(size) * sizeof(From));
                convert_row(to + i, part, size, mode, rule);
            }
        };
        elementwise("Cast", at, lanes, false, dst, to_stride, op, std::pair{src, from_stride});
    }
}

/// Elements of a repeat: 256 bytes of the wider type. A packed pair is never the wider one.
template <class To, class From>
constexpr int64_t wider() { return static_cast<int64_t>(std::max(sizeof(To), sizeof(From))); }

}  // namespace emu

/// dst = src in dst's type. Narrowing in place is allowed when both begin at the same address; the mask counts elements of
/// the wider type, and a repeat of the narrower one has fewer blocks.
template <class T, class U>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint32_t count, Site at = Site::here()) {
    Cast_types<T, U>();
    emu::cast(at, emu::flat_lanes(count, emu::wider<T, U>()), dst, src, roundMode, {});
}
template <class T, class U, bool isSetMask = true>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint64_t mask, const uint8_t repeatTime,
          const UnaryRepeatParams& repeatParams, Site at = Site::here()) {
    Cast_types<T, U>();
    static_assert(!std::is_same_v<T, double> && !std::is_same_v<U, double>, "Cast: double has the form with a count alone");
    emu::cast(at, emu::mask_lanes<isSetMask>(mask, repeatTime, emu::wider<T, U>()), dst, src, roundMode, repeatParams);
}
template <class T, class U, bool isSetMask = true>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint64_t mask[], const uint8_t repeatTime,
          const UnaryRepeatParams& repeatParams, Site at = Site::here()) {
    Cast_types<T, U>();
    static_assert(!std::is_same_v<T, double> && !std::is_same_v<U, double>, "Cast: double has the form with a count alone");
    emu::cast(at, emu::mask_lanes<isSetMask>(mask, repeatTime, emu::wider<T, U>()), dst, src, roundMode, repeatParams);
}

}  // namespace AscendC
