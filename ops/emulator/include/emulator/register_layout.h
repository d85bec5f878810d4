// Reductions within a register, filling, indices, and moving elements between registers. Pages as in registers.h.
#pragma once

#include "register_types.h"
#include "vector_reduce.h"

namespace AscendC::Reg {

using AscendC::ReduceType;
enum class PairReduce { SUM = 0 };
enum class IndexOrder { INCREASE_ORDER, DECREASE_ORDER };
enum class GatherMaskMode { NO_STORE_REG, STORE_REG };

// ---- Reductions ----

/// The elements of the mask, `hidden` elsewhere.
template <class T>
Values<T> masked(const Register& reg, const Bits& lanes, T hidden) {
    Values<T> out(reg);
    for (int lane = 0; lane < LANES<T>; ++lane)
        if (!lanes[lane * static_cast<int>(sizeof(T))]) out.v[lane] = hidden;
    return out;
}

/// What a reduction of no elements gives: the type's least number as the largest, its greatest as the smallest ([page]
/// Reduce). Unknown whether infinity counts as one of a floating-point type; taken, as in the memory form.
template <ReduceType type, class T>
constexpr T of_nothing() {
    constexpr bool least = type == ReduceType::MAX;
    if constexpr (std::is_integral_v<T>) return least ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    else if constexpr (std::is_same_v<T, float>) return least ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
    else return half::from_bits(least ? 0xfc00 : 0x7c00);
}
/// A quiet NaN for any other one.
template <class T>
constexpr T plain(T x) {
    if constexpr (std::is_same_v<T, float>) return x != x ? emulator::numbers::bits_as<float>(0x7fc00000u) : x;
    else if constexpr (std::is_same_v<T, half>) return static_cast<float>(x) != static_cast<float>(x) ? half::from_bits(0x7e00) : x;
    else return x;
}

/// Place of the best of `count` elements from the `first` on that `lanes` has: the first NaN, else the first of the largest or
/// smallest, +0 above -0; -1 of none.
template <ReduceType type, class T>
int best(const Values<T>& values, const Bits& lanes, int first, int count) {
    int at = -1;
    for (int i = first; i < first + count; ++i)
        if (lanes[i * static_cast<int>(sizeof(T))] && (at < 0 || reduce_impl::rank<type>(values.v[i]) > reduce_impl::rank<type>(values.v[at]))) at = i;
    return at;
}

template <class D, class S>
constexpr bool sum_exists() {
    return (std::is_same_v<D, S> && types_impl::in<S>(types_impl::List<half, int32_t, uint32_t, float>{})) || (std::is_same_v<D, int32_t> && std::is_same_v<S, int16_t>) ||
           (std::is_same_v<D, uint32_t> && std::is_same_v<S, uint16_t>);
}
template <class D, class S>
constexpr bool extreme_exists() { return std::is_same_v<D, S> && types_impl::in<S>(types_impl::List<half, int16_t, uint16_t, int32_t, uint32_t, float>{}); }

template <ReduceType type, class D, class S>
constexpr void reduction_exists() {
    constexpr bool has = type == ReduceType::SUM ? sum_exists<D, S>() : extreme_exists<D, S>();
    static_assert(has, "Reg::Reduce: dav-3510 has sums of half, int32_t, uint32_t and float, of int16_t in int32_t and of uint16_t in uint32_t; the largest and smallest of half, int16_t, uint16_t, int32_t, uint32_t and float.");
}

/// Element 0: the sum of the mask's elements, by the tree of neighbours. MAX and MIN: the element, and element 1 its place as
/// an integer in the element's bits. All others are 0: unknown, taken. [page] Reduce
template <ReduceType type = ReduceType::SUM, class T = DefaultType, class U = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class S, class V>
inline void Reduce(S& dstReg, V srcReg, MaskReg mask, Site at = Site::here()) {
    using D = typename S::ActualT;
    using E = typename V::ActualT;
    named<T, D>(), named<U, E>();
    mode_exists<mode>();
    reduction_exists<type, D, E>();
    if (!begin("Reg::Reduce", at, mask, sizeof(E), 1, true)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(E));
    need(srcReg, lanes, sizeof(E), "Reg::Reduce", "src", at);
    Values<D> out;
    std::memset(static_cast<void*>(out.v), 0, sizeof out.v);
    if constexpr (type == ReduceType::SUM) {
        const Values<E> values = masked<E>(srcReg, lanes, static_cast<E>(0));
        out.v[0] = reduce_impl::tree<D>(values.v, LANES<E>);
    } else {
        const Values<E> values(srcReg);
        const int place = best<type>(values, lanes, 0, LANES<E>);
        using Word = std::conditional_t<sizeof(E) == 2, uint16_t, uint32_t>;
        out.v[0] = place < 0 ? of_nothing<type, E>() : plain(values.v[place]);
        out.v[1] = emulator::numbers::bits_as<E>(static_cast<Word>(std::max(place, 0)));
    }
    Origin origin = srcReg.origin;
    origin.join(mask.origin);
    settle<D>(dstReg, out, lanes_of(emulator::ALL_BITS, sizeof(D)), false);
    dstReg.origin = origin;
}

/// The same within every 32 bytes, without places: eight results at the low end, 0 behind. [page] ReduceDataBlock
template <ReduceType type = ReduceType::SUM, class T = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class U>
inline void ReduceDataBlock(U& dstReg, U srcReg, MaskReg mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    mode_exists<mode>();
    reduction_exists<type, E, E>();
    if (!begin("Reg::ReduceDataBlock", at, mask, sizeof(E), 1, true)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(E));
    need(srcReg, lanes, sizeof(E), "Reg::ReduceDataBlock", "src", at);
    Values<E> out;
    std::memset(static_cast<void*>(out.v), 0, sizeof out.v);
    constexpr int block = 32 / static_cast<int>(sizeof(E));
    const Values<E> values = masked<E>(srcReg, lanes, static_cast<E>(0));
    for (int i = 0; i < 8; ++i) {
        if constexpr (type == ReduceType::SUM) {
            out.v[i] = reduce_impl::tree<E>(values.v + i * block, block);
        } else {
            const int place = best<type>(values, lanes, i * block, block);
            out.v[i] = place < 0 ? of_nothing<type, E>() : plain(values.v[place]);
        }
    }
    Origin origin = srcReg.origin;
    origin.join(mask.origin);
    settle<E>(dstReg, out, lanes_of(emulator::ALL_BITS, sizeof(E)), false);
    dstReg.origin = origin;
}

/// Sums of neighbours in the lower half, 0 in the upper; what the mask holds back counts as 0. [page] PairReduceElem
template <PairReduce type = PairReduce::SUM, class T = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class U>
inline void PairReduceElem(U& dstReg, U srcReg, MaskReg mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    mode_exists<mode>();
    static_assert(std::is_same_v<E, half> || std::is_same_v<E, float>, "Reg::PairReduceElem: dav-3510 has it for half and float.");
    if (!begin("Reg::PairReduceElem", at, mask, sizeof(E), 1, true)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(E));
    need(srcReg, lanes, sizeof(E), "Reg::PairReduceElem", "src", at);
    const Values<E> values = masked<E>(srcReg, lanes, static_cast<E>(0));
    Values<E> out;
    std::memset(static_cast<void*>(out.v), 0, sizeof out.v);
    for (int i = 0; i < LANES<E> / 2; ++i) out.v[i] = emu::sum(values.v[2 * i], values.v[2 * i + 1]);
    Origin origin = srcReg.origin;
    origin.join(mask.origin);
    settle<E>(dstReg, out, lanes_of(emulator::ALL_BITS, sizeof(E)), false);
    dstReg.origin = origin;
}

// ---- Filling ----

EMULATOR_REGISTER_TYPES(Duplicate, bool, int8_t, uint8_t, fp4x2_e2m1_t, fp4x2_e1m2_t, hifloat8_t, fp8_e8m0_t, fp8_e5m2_t, fp8_e4m3fn_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Arange, int8_t, int16_t, int32_t, half, float)

template <class E>
void fill(const char* call, Site at, Register& dst, E value, const Bits& lanes, bool merging, const Origin& from) {
    Values<E> out;
    std::fill_n(out.v, LANES<E>, value);
    Origin origin = merging ? dst.origin : Origin{};
    origin.join(from);
    settle<E>(dst, out, lanes, merging);
    dst.origin = origin;
    static_cast<void>(call), static_cast<void>(at);
}

/// Every element is the scalar. [page] Duplicate
template <class T = DefaultType, class U, class S, std::enable_if_t<!std::is_base_of_v<Register, U>, int> = 0>
inline void Duplicate(S& dstReg, U scalarValue, Site at = Site::here()) {
    using E = typename S::ActualT;
    named<T, E>();
    Duplicate_types<E>();
    if (!begin("Reg::Duplicate", at, LANES<E>, 1)) return;
    fill<E>("Reg::Duplicate", at, dstReg, static_cast<E>(scalarValue), lanes_of(emulator::ALL_BITS, sizeof(E)), false, {});
}
/// Those of the mask are.
template <class T = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class U, class S, std::enable_if_t<!std::is_base_of_v<Register, U>, int> = 0>
inline void Duplicate(S& dstReg, U scalarValue, MaskReg& mask, Site at = Site::here()) {
    using E = typename S::ActualT;
    named<T, E>();
    Duplicate_types<E>();
    mode_exists<mode, true>();
    if (!begin("Reg::Duplicate", at, mask, sizeof(E), 1)) return;
    fill<E>("Reg::Duplicate", at, dstReg, static_cast<E>(scalarValue), lanes_of(mask.bits, sizeof(E)), mode == MaskMergeMode::MERGING, mask.origin);
}
/// Those of the mask are element 0 of srcReg.
template <class T = DefaultType, HighLowPart pos = HighLowPart::LOWEST, MaskMergeMode mode = MaskMergeMode::ZEROING, class S>
inline void Duplicate(S& dstReg, S& srcReg, MaskReg& mask, Site at = Site::here()) {
    using E = typename S::ActualT;
    named<T, E>();
    Duplicate_types<E>();
    mode_exists<mode, true>();
    static_assert(pos == HighLowPart::LOWEST, "Reg::Duplicate: dav-3510 has HighLowPart::LOWEST alone.");
    if (!begin("Reg::Duplicate", at, mask, sizeof(E), 1)) return;
    need(srcReg, Bits{{1, 0, 0, 0}}, sizeof(E), "Reg::Duplicate", "src", at);
    Origin origin = srcReg.origin;
    origin.join(mask.origin);
    fill<E>("Reg::Duplicate", at, dstReg, Values<E>(srcReg).v[0], lanes_of(mask.bits, sizeof(E)), mode == MaskMergeMode::MERGING, origin);
}

/// scalarValue, scalarValue + 1, ...; DECREASE_ORDER: the same backwards, so that it is the last. Integers wrap around.
/// [page] Arange
template <class T = DefaultType, IndexOrder order = IndexOrder::INCREASE_ORDER, class U, class S>
inline void Arange(S& dstReg, U scalarValue, Site at = Site::here()) {
    using E = typename S::ActualT;
    named<T, E>();
    Arange_types<E>();
    if (!begin("Reg::Arange", at, LANES<E>, std::is_integral_v<E> ? 2 : 1)) return;
    Values<E> out;
    for (int lane = 0; lane < LANES<E>; ++lane) {
        const int step = order == IndexOrder::INCREASE_ORDER ? lane : LANES<E> - 1 - lane;
        out.v[lane] = emu::sum(static_cast<E>(scalarValue), static_cast<E>(step));
    }
    settle<E>(dstReg, out, lanes_of(emulator::ALL_BITS, sizeof(E)), false);
    dstReg.origin = {};
}

/// The mask's elements; dst keeps the others. Without a mask, all. [page] Move (RegTensor)
template <class T = DefaultType, MaskMergeMode mode = MaskMergeMode::MERGING, class U, std::enable_if_t<std::is_base_of_v<Register, U>, int> = 0>
inline void Move(U& dstReg, U& srcReg, MaskReg mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    static_assert(mode == MaskMergeMode::MERGING, "Reg::Move: dav-3510 has MaskMergeMode::MERGING alone.");
    if (!begin("Reg::Move", at, mask, sizeof(E), 1)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(E));
    need(srcReg, lanes, sizeof(E), "Reg::Move", "src", at);
    Origin origin = dstReg.origin;
    origin.join(srcReg.origin), origin.join(mask.origin);
    settle<E>(dstReg, Values<E>(srcReg), lanes, true);
    dstReg.origin = origin;
}
template <class T = DefaultType, class U, std::enable_if_t<std::is_base_of_v<Register, U>, int> = 0>
inline void Move(U& dstReg, U& srcReg, Site at = Site::here()) {
    named<T, typename U::ActualT>();
    if (!begin("Reg::Move", at, LANES<typename U::ActualT>, 1)) return;
    static_cast<Register&>(dstReg) = static_cast<const Register&>(srcReg);
}

// ---- Order of elements ----

/// The 512 bytes of two registers, rearranged into two: byte i of the result is byte from(i).
template <class F>
void rearrange(Register& dst0, Register& dst1, const Register& src0, const Register& src1, F from) {
    Register out[2];
    const Register* const src[2] = {&src0, &src1};
    for (int byte = 0; byte < 512; ++byte) {
        const int at = from(byte);
        out[byte / 256].bytes[byte % 256] = src[at / 256]->bytes[at % 256];
        if (src[at / 256]->known[at % 256]) out[byte / 256].known.set(byte % 256);
    }
    const bool second = emulator::each_word([&](int i) { return ~src1.known.word[i]; }).any();
    for (Register& reg : out) {
        const Register& told = second ? src1 : src0;
        reg.filled_by = told.filled_by, reg.filled_at = told.filled_at, reg.beyond = told.beyond;
        reg.origin = src0.origin;
        reg.origin.join(src1.origin);
    }
    dst0 = out[0], dst1 = out[1];
}

EMULATOR_REGISTER_TYPES(Interleave, bool, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)

/// Elements of src0 and src1 by turns, the first half to dst0. [page] Interleave
template <class T = DefaultType, class U>
inline void Interleave(U& dstReg0, U& dstReg1, U& srcReg0, U& srcReg1, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Interleave_types<E>();
    constexpr int size = sizeof(E);
    if (!begin("Reg::Interleave", at, 2 * LANES<E>, 1, true)) return;
    if (!emulator::require(&dstReg0 != &dstReg1, "argument", at, "Reg::Interleave", "dstReg0 and dstReg1 are one register.")) return;
    rearrange(dstReg0, dstReg1, srcReg0, srcReg1, [](int byte) { return byte / size % 2 * 256 + byte / size / 2 * size + byte % size; });
}
/// Of src0 with src1 behind it, the even elements to dst0, the odd ones to dst1. [page] DeInterleave
template <class T = DefaultType, class U>
inline void DeInterleave(U& dstReg0, U& dstReg1, U& srcReg0, U& srcReg1, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Interleave_types<E>();
    constexpr int size = sizeof(E);
    if (!begin("Reg::DeInterleave", at, 2 * LANES<E>, 1, true)) return;
    if (!emulator::require(&dstReg0 != &dstReg1, "argument", at, "Reg::DeInterleave", "dstReg0 and dstReg1 are one register.")) return;
    rearrange(dstReg0, dstReg1, srcReg0, srcReg1, [](int byte) { return (byte % 256 / size * 2 + byte / 256) * size + byte % size; });
}

/// dst[i] = src[index[i] modulo the number of elements]. [page] Gather (of a register)
template <class T = DefaultType, class U = DefaultType, class S, class V>
inline void Gather(S& dstReg, S& srcReg, V& indexReg, Site at = Site::here()) {
    using E = typename S::ActualT;
    using I = typename V::ActualT;
    named<T, E>(), named<U, I>();
    static_assert(std::is_same_v<I, uint8_t> || std::is_same_v<I, uint16_t> || std::is_same_v<I, uint32_t>, "Reg::Gather: indices are uint8_t, uint16_t or uint32_t.");
    static_assert(sizeof(I) == sizeof(E), "Reg::Gather: indices have to be of the elements' size.");
    if (!begin("Reg::Gather", at, LANES<E>, 4, true)) return;
    need(indexReg, lanes_of(emulator::ALL_BITS, sizeof(I)), sizeof(I), "Reg::Gather", "index", at);
    const Values<I> places(indexReg);
    Register out;
    for (int byte = 0; byte < 256; ++byte) {
        const int at_byte = static_cast<int>(places.v[byte / static_cast<int>(sizeof(E))] % LANES<E>) * static_cast<int>(sizeof(E)) + byte % static_cast<int>(sizeof(E));
        out.bytes[byte] = srcReg.bytes[at_byte];
        if (srcReg.known[at_byte]) out.known.set(byte);
    }
    out.filled_by = srcReg.filled_by, out.filled_at = srcReg.filled_at, out.beyond = srcReg.beyond;
    out.origin = srcReg.origin;
    out.origin.join(indexReg.origin);
    static_cast<Register&>(dstReg) = out;
}

EMULATOR_REGISTER_TYPES(Squeeze, int8_t, uint8_t, int16_t, uint16_t, half, int32_t, uint32_t, float)

/// The mask's elements side by side at the low end, 0 behind. [page] Squeeze
template <class T = DefaultType, GatherMaskMode store = GatherMaskMode::NO_STORE_REG, class U>
inline void Squeeze(U& dstReg, U& srcReg, MaskReg& mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Squeeze_types<E>();
    static_assert(store == GatherMaskMode::NO_STORE_REG, "Reg::Squeeze: the emulator does not have the AR register, GatherMaskMode::STORE_REG.");
    if (!begin("Reg::Squeeze", at, mask, sizeof(E), 5, true)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(E));
    need(srcReg, lanes, sizeof(E), "Reg::Squeeze", "src", at);
    const Values<E> values(srcReg);
    Values<E> out;
    std::memset(static_cast<void*>(out.v), 0, sizeof out.v);
    int to = 0;
    for (int lane = 0; lane < LANES<E>; ++lane)
        if (lanes[lane * static_cast<int>(sizeof(E))]) out.v[to++] = values.v[lane];
    Origin origin = srcReg.origin;
    origin.join(mask.origin);
    settle<E>(dstReg, out, lanes_of(emulator::ALL_BITS, sizeof(E)), false);
    dstReg.origin = origin;
}

}  // namespace AscendC::Reg
