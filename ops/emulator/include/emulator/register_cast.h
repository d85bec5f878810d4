// Cast between registers. Pages as in registers.h; the conversions and their modes are in numbers.h.
#pragma once

#include "register_types.h"
#include "vector_cast.h"

namespace AscendC::Reg {

struct CastTrait {
    RegLayout layoutMode = RegLayout::UNKNOWN;
    SatMode satMode = SatMode::UNKNOWN;
    MaskMergeMode mrgMode = MaskMergeMode::UNKNOWN;
    RoundMode roundMode = RoundMode::UNKNOWN;
};
inline constexpr CastTrait castTrait = {};

namespace cast_impl {

namespace numbers = emulator::numbers;

/// UNKNOWN stands for the one mode of a conversion that does not round.
constexpr numbers::Rounding rounding(RoundMode mode) { return mode == RoundMode::UNKNOWN ? numbers::Rounding::None : static_cast<numbers::Rounding>(static_cast<int>(mode)); }

template <class To, class From>
constexpr bool exists() {
    for (int mode = 0; mode < 8; ++mode)
        if (numbers::register_cast_allowed(numbers::number_of<From>(), numbers::number_of<To>(), static_cast<numbers::Rounding>(mode))) return true;
    return false;
}

/// Bytes that one step of the instruction takes and gives: an element, or a pair of 16-bit elements and a packed byte.
template <class T, class Other>
constexpr int step() { return numbers::is_packed<Other>() ? 2 * static_cast<int>(sizeof(T)) : static_cast<int>(sizeof(T)); }

/// Whether the trait says how to saturate ([page] Cast, tables 6 to 9): where a result may not fit.
template <class To, class From>
constexpr bool has_saturation() {
    using N = numbers::Number;
    constexpr N to = numbers::number_of<To>(), from = numbers::number_of<From>();
    if (to == N::Float || to == N::E8M0 || numbers::is_packed<From>() || to == N::E2M1x2 || to == N::E1M2x2) return false;
    if (emu::is_integer<From>() && !emu::is_integer<To>()) return false;
    if (from == N::E8M0 || from == N::HiFloat8 || (from == N::Half && (to == N::Int32 || to == N::Bfloat16))) return false;
    return !(emu::is_integer<From>() && emu::is_integer<To>() && numbers::bits_of<To>() > numbers::bits_of<From>());
}

/// [Performance]: 64 elements a cycle between float and the types of 16 bits, half of that for what is not listed: taken.
template <class To, class From>
constexpr int cycles() {
    constexpr bool floats = (std::is_same_v<To, float> && (std::is_same_v<From, half> || std::is_same_v<From, bfloat16_t>)) ||
                            (std::is_same_v<From, float> && (std::is_same_v<To, half> || std::is_same_v<To, bfloat16_t>));
    return floats ? 1 : 2;
}

}  // namespace cast_impl

/// dst = src in dst's type. Where the sizes differ, a wide element goes with one of the narrow ones beside it, and the layout
/// says which ([Layout]); the rest of a narrow result is 0. The mask's bits are those of the source's element that is used.
/// With bit 60 of the control register set, as it is by default, its bits 48 and 59 saturate instead of the trait. [page] Cast
template <class T = DefaultType, class U = DefaultType, const CastTrait& trait = castTrait, class S, class V>
inline void Cast(S& dstReg, V& srcReg, MaskReg& mask, Site at = Site::here()) {
    namespace numbers = emulator::numbers;
    using To = typename S::ActualT;
    using From = typename V::ActualT;
    named<T, To>(), named<U, From>();
    constexpr bool exists = cast_impl::exists<To, From>();
    static_assert(exists, "Reg::Cast: dav-3510 does not convert between these types; see tables 6 to 9 of its page.");
    if constexpr (exists) {
        constexpr auto mode = cast_impl::rounding(trait.roundMode);
        constexpr bool known_mode = numbers::register_cast_allowed(numbers::number_of<From>(), numbers::number_of<To>(), mode);
        static_assert(known_mode, "Reg::Cast: this pair of types does not have this roundMode; see tables 6 to 9 of its page (RoundMode::UNKNOWN where nothing rounds).");
        static_assert(mode != numbers::Rounding::Hybrid, "Reg::Cast: CAST_HYBRID is not defined well enough to be emulated; take CAST_ROUND.");
        static_assert(trait.mrgMode == MaskMergeMode::ZEROING, "Reg::Cast: mrgMode has to be MaskMergeMode::ZEROING.");
        constexpr bool saturates = cast_impl::has_saturation<To, From>();
        static_assert(saturates == (trait.satMode != SatMode::UNKNOWN), "Reg::Cast: satMode has to be NO_SAT or SAT where a result may not fit, and UNKNOWN elsewhere; see tables 6 to 9 of its page.");
        constexpr int in = cast_impl::step<From, To>(), out_size = cast_impl::step<To, From>(), wide = in > out_size ? in : out_size;
        constexpr int parts = wide / (in < out_size ? in : out_size), part = static_cast<int>(trait.layoutMode);
        static_assert(parts == 1 ? trait.layoutMode == RegLayout::UNKNOWN : part >= 0 && part < parts, "Reg::Cast: layoutMode names which of the narrow elements beside a wide one is used: ZERO or ONE of two, ZERO to THREE of four, UNKNOWN for equal sizes.");
        constexpr int from_at = in < out_size ? part * in : 0, to_at = in > out_size ? part * out_size : 0;
        if constexpr (known_mode && mode != numbers::Rounding::Hybrid) {
            if (!begin("Reg::Cast", at, mask, wide, cast_impl::cycles<To, From>())) return;
            const auto bit = [ctrl = emulator::function_ctrl()](int number) { return (ctrl >> number & 1) != 0; };
            const bool saturate = bit(60) ? !bit(emu::is_integer<To>() ? 59 : 48) : trait.satMode == SatMode::SAT || !saturates, keep_nan = bit(50);
            Bits used;
            for (int at_byte = 0; at_byte < 256; at_byte += wide)
                if (mask.bits[at_byte + from_at]) used.set(at_byte + from_at);
            need(srcReg, used, in, "Reg::Cast", "src", at);
            const Values<From> src(srcReg);
            Values<To> dst;
            std::memset(static_cast<void*>(dst.v), 0, sizeof dst.v);
            for (int at_byte = 0; at_byte < 256; at_byte += wide) {
                if (!used[at_byte + from_at]) continue;
                const int from = (at_byte + from_at) / static_cast<int>(sizeof(From)), to = (at_byte + to_at) / static_cast<int>(sizeof(To));
                if constexpr (numbers::is_packed<To>()) {
                    dst.v[to] = numbers::pack<To>(src.v[from], src.v[from + 1], mode, saturate);
                } else if constexpr (numbers::is_packed<From>()) {
                    dst.v[to] = numbers::element<To>(src.v[from], 0), dst.v[to + 1] = numbers::element<To>(src.v[from], 1);
                } else {
                    constexpr auto known = mode == numbers::Rounding::None && !std::is_same_v<To, hifloat8_t> ? numbers::Rounding::Rint : mode;
                    dst.v[to] = numbers::convert_as<To, known>(src.v[from], saturate, keep_nan);
                }
            }
            Origin origin = srcReg.origin;
            origin.join(mask.origin);
            std::memcpy(dstReg.bytes, static_cast<const void*>(dst.v), sizeof dstReg.bytes);
            dstReg.known = emulator::ALL_BITS;
            dstReg.value = emulator::new_value();
            dstReg.origin = origin;
        }
    }
}

}  // namespace AscendC::Reg
