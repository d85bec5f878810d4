// Arithmetic, bits, comparisons and selections between registers, element by element. Pages as in registers.h.
//
// Cycles of an instruction are 256 bytes over its parallelism in [Performance]: integers add and multiply 128 bytes a cycle,
// Exp, Ln, Sqrt and Div 16 elements. Results are rounded as those of the memory form are (vector_*.h): to the nearest number.
#pragma once

#include "register_types.h"
#include "vector_binary.h"
#include "vector_compare.h"
#include "vector_unary.h"

namespace AscendC::Reg {

using AscendC::DivAlgo;
using AscendC::ExpAlgo;
using AscendC::LnAlgo;
using AscendC::SqrtAlgo;

/// Integers pass the adders and multipliers at half the rate.
template <class T>
constexpr int adding() { return std::is_integral_v<T> ? 2 : 1; }
/// The unit for elementary functions and quotients gives 16 elements a cycle.
template <class T>
constexpr int elementary() { return LANES<T> / 16; }

// ---- dst = a op b ----

#define EMULATOR_REGISTER_BINARY(Name, merges, cycles, expression)                                                        \
    template <class T = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class U>                                \
    inline void Name(U& dstReg, U& srcReg0, U& srcReg1, MaskReg& mask, Site at = Site::here()) {                          \
        using E = typename U::ActualT;                                                                                    \
        named<T, E>();                                                                                                    \
        Name##_types<E>();                                                                                                \
        mode_exists<mode, merges>();                                                                                      \
        constexpr bool merging = mode == MaskMergeMode::MERGING;                                                          \
        const auto op = [](E a, E b) { return static_cast<E>(expression); };                                              \
        elementwise<E>("Reg::" #Name, at, (cycles) + merging, dstReg, mask, merging, op, operand<E>(srcReg0), operand<E>(srcReg1)); \
    }

EMULATOR_REGISTER_TYPES(Add, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Sub, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Mul, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Max, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Min, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(And, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t)
EMULATOR_REGISTER_TYPES(Or, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t)
EMULATOR_REGISTER_TYPES(Xor, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t)

/// dst = src0 + src1; integers wrap around. The merging form is two instructions.
EMULATOR_REGISTER_BINARY(Add, true, adding<E>(), emu::sum(a, b))
EMULATOR_REGISTER_BINARY(Sub, false, adding<E>(), emu::difference(a, b))
EMULATOR_REGISTER_BINARY(Mul, false, adding<E>(), emu::product(a, b))
/// dst = max(src0, src1); +0 is above -0.
EMULATOR_REGISTER_BINARY(Max, true, 1, emu::larger(a, b))
EMULATOR_REGISTER_BINARY(Min, true, 1, emu::smaller(a, b))
EMULATOR_REGISTER_BINARY(And, false, 1, a & b)
EMULATOR_REGISTER_BINARY(Or, false, 1, a | b)
EMULATOR_REGISTER_BINARY(Xor, false, 1, a ^ b)
#undef EMULATOR_REGISTER_BINARY

// ---- dst = a op scalar ----

#define EMULATOR_REGISTER_SCALAR(Name, cycles, expression)                                                                \
    template <class T = DefaultType, class U, MaskMergeMode mode = MaskMergeMode::ZEROING, class S>                       \
    inline void Name(S& dstReg, S& srcReg, U scalarValue, MaskReg& mask, Site at = Site::here()) {                        \
        using E = typename S::ActualT;                                                                                    \
        named<T, E>();                                                                                                    \
        Name##_types<E>();                                                                                                \
        mode_exists<mode>();                                                                                              \
        const E b = static_cast<E>(scalarValue);                                                                          \
        const auto op = [b](E a) { return static_cast<E>(expression); };                                                  \
        elementwise<E>("Reg::" #Name, at, cycles, dstReg, mask, false, op, operand<E>(srcReg));                           \
    }

EMULATOR_REGISTER_TYPES(Adds, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Muls, int16_t, uint16_t, half, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Maxs, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Mins, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)

EMULATOR_REGISTER_SCALAR(Adds, adding<E>(), emu::sum(a, b))
EMULATOR_REGISTER_SCALAR(Muls, adding<E>(), emu::product(a, b))
EMULATOR_REGISTER_SCALAR(Maxs, 1, emu::larger(a, b))
EMULATOR_REGISTER_SCALAR(Mins, 1, emu::smaller(a, b))
#undef EMULATOR_REGISTER_SCALAR

// ---- dst = f(src) ----

#define EMULATOR_REGISTER_UNARY(Name, cycles, expression)                                             \
    template <class T = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class U>            \
    inline void Name(U& dstReg, U& srcReg, MaskReg& mask, Site at = Site::here()) {                   \
        using E = typename U::ActualT;                                                                \
        named<T, E>();                                                                                \
        Name##_types<E>();                                                                            \
        mode_exists<mode>();                                                                          \
        const auto op = [](E a) { return static_cast<E>(expression); };                               \
        elementwise<E>("Reg::" #Name, at, cycles, dstReg, mask, false, op, operand<E>(srcReg));       \
    }

template <class T>
constexpr T negative(T x) {
    if constexpr (std::is_integral_v<T>) return emu::difference(T(0), x);
    else return -x;
}
template <class T>
constexpr T complement(T x) {
    using Word = std::conditional_t<sizeof(T) == 1, uint8_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>;
    return emulator::numbers::bits_as<T>(static_cast<Word>(~emulator::numbers::bits_as<Word>(x)));
}

EMULATOR_REGISTER_TYPES(Abs, int8_t, int16_t, half, int32_t, float)
EMULATOR_REGISTER_TYPES(Neg, int8_t, int16_t, half, int32_t, float)
EMULATOR_REGISTER_TYPES(Not, int8_t, uint8_t, int16_t, uint16_t, half, int32_t, uint32_t, float)

EMULATOR_REGISTER_UNARY(Abs, adding<E>(), emu::magnitude(a))
EMULATOR_REGISTER_UNARY(Neg, adding<E>(), negative(a))
EMULATOR_REGISTER_UNARY(Not, 1, complement(a))
#undef EMULATOR_REGISTER_UNARY

// ---- Elementary functions and quotients ----

struct ExpSpecificMode {
    MaskMergeMode mrgMode = MaskMergeMode::ZEROING;
    ExpAlgo algo = ExpAlgo::INTRINSIC;
};
struct LnSpecificMode {
    MaskMergeMode mrgMode = MaskMergeMode::ZEROING;
    LnAlgo algo = LnAlgo::INTRINSIC;
};
struct SqrtSpecificMode {
    MaskMergeMode mrgMode = MaskMergeMode::ZEROING;
    bool precisionMode = false;
    SqrtAlgo algo = SqrtAlgo::INTRINSIC;
};
struct DivSpecificMode {
    MaskMergeMode mrgMode = MaskMergeMode::ZEROING;
    bool precisionMode = false;
    DivAlgo algo = DivAlgo::INTRINSIC;
};

/// `mode` of these calls is a MaskMergeMode, or the address of a struct that has one and an algorithm.
template <class Struct, auto mode>
constexpr Struct specific() {
    if constexpr (std::is_same_v<decltype(mode), MaskMergeMode>) {
        mode_exists<mode>();
        return Struct{};
    } else {
        static_assert(std::is_same_v<decltype(mode), const Struct*>, "`mode` has to be a MaskMergeMode or the address of the call's struct");
        mode_exists<mode->mrgMode>();
        return *mode;
    }
}

/// f of the number as a float, rounded to its type, as the rows of vector_unary.h.
template <bool flush, class F, class T>
inline T of_float(T x) { return flush ? emu::flushed(T(F{}(static_cast<float>(emu::flushed(x))))) : T(F{}(static_cast<float>(x))); }

#define EMULATOR_REGISTER_FUNCTION(Name, Struct, function)                                            \
    template <class T = DefaultType, auto mode = MaskMergeMode::ZEROING, class U>                     \
    inline void Name(U& dstReg, U& srcReg, MaskReg& mask, Site at = Site::here()) {                   \
        using E = typename U::ActualT;                                                                \
        named<T, E>();                                                                                \
        Name##_types<E>();                                                                            \
        constexpr Struct how = specific<Struct, mode>();                                              \
        constexpr auto algo = algo_of<E>(how);                                                        \
        const auto op = [](E a) { return of_float<emu::flushes(algo), EMULATOR_MEMBERS function>(a); };                     \
        elementwise<E>("Reg::" #Name, at, elementary<E>(), dstReg, mask, false, op, operand<E>(srcReg)); \
    }

EMULATOR_REGISTER_TYPES(Exp, half, float)
EMULATOR_REGISTER_TYPES(Ln, half, float)
EMULATOR_REGISTER_TYPES(Sqrt, half, float)
EMULATOR_REGISTER_TYPES(Div, int16_t, uint16_t, half, int32_t, uint32_t, float)

/// precisionMode stands for the algorithm that it selects. [page] Sqrt
template <class T, class Struct>
constexpr auto algo_of(Struct how) {
    if constexpr (std::is_same_v<Struct, SqrtSpecificMode>) return how.precisionMode && how.algo == SqrtAlgo::INTRINSIC ? SqrtAlgo::FAST_INVERSE : how.algo;
    else return how.algo;
}
template <class T, SqrtAlgo algo>
struct RootOf : emu::Root<false> {
    static_assert(std::is_same_v<T, float> || !emu::fast_inverse(algo), "Reg::Sqrt: FAST_INVERSE and PRECISION_0ULP_FTZ_FALSE exist for float alone");
};

EMULATOR_REGISTER_FUNCTION(Exp, ExpSpecificMode, (emu::Exponential))
EMULATOR_REGISTER_FUNCTION(Ln, LnSpecificMode, (emu::Logarithm))
EMULATOR_REGISTER_FUNCTION(Sqrt, SqrtSpecificMode, (RootOf<E, algo>))
#undef EMULATOR_REGISTER_FUNCTION

/// dst = src0 / src1.
template <class T = DefaultType, auto mode = MaskMergeMode::ZEROING, class U>
inline void Div(U& dstReg, U& srcReg0, U& srcReg1, MaskReg& mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Div_types<E>();
    constexpr DivSpecificMode how = specific<DivSpecificMode, mode>();
    const auto op = [](E a, E b) {
        E out;
        (Div_op<E, how.algo>)(&out, &a, &b, int64_t(1));
        return out;
    };
    elementwise<E>("Reg::Div", at, elementary<E>(), dstReg, mask, false, op, operand<E>(srcReg0), operand<E>(srcReg1));
}

/// e^(src0 - src1) as float. Of half, the elements 2 i (ZERO) or 2 i + 1 (ONE) of the sources, and so of the mask, are used.
template <class T = DefaultType, class U = DefaultType, RegLayout layout = RegLayout::ZERO, MaskMergeMode mode = MaskMergeMode::ZEROING, class S, class V>
inline void ExpSub(S& dstReg, V& srcReg0, V& srcReg1, MaskReg& mask, Site at = Site::here()) {
    using D = typename S::ActualT;
    using E = typename V::ActualT;
    named<T, D>(), named<U, E>();
    mode_exists<mode>();
    static_assert(std::is_same_v<D, float> && (std::is_same_v<E, float> || std::is_same_v<E, half>), "Reg::ExpSub: dav-3510 has float, float -> float and half, half -> float.");
    static_assert(layout == RegLayout::ZERO || layout == RegLayout::ONE, "Reg::ExpSub: dav-3510 has RegLayout::ZERO and ONE.");
    constexpr int step = 4 / sizeof(E), first = step == 1 ? 0 : static_cast<int>(layout);
    if (!begin("Reg::ExpSub", at, mask, 4, elementary<float>())) return;
    Bits lanes, used;
    for (int lane = 0; lane < 64; ++lane) {
        const int bit = (step * lane + first) * static_cast<int>(sizeof(E));
        if (mask.bits[bit]) lanes.set(4 * lane), used.set(bit);
    }
    need(srcReg0, used, sizeof(E), "Reg::ExpSub", "src0", at), need(srcReg1, used, sizeof(E), "Reg::ExpSub", "src1", at);
    const Values<E> a(srcReg0), b(srcReg1);
    Values<float> out;
    for (int lane = 0; lane < 64; ++lane) {
        out.v[lane] = of_float<true, emu::Exponential>(static_cast<float>(a.v[step * lane + first]) - static_cast<float>(b.v[step * lane + first]));
    }
    Origin origin = srcReg0.origin;
    origin.join(srcReg1.origin), origin.join(mask.origin);
    settle<float>(dstReg, out, lanes, false);
    dstReg.origin = origin;
}

// ---- dst += a * b ----

/// a * b + d, rounded once: "a single instruction that is more exact than Mul and Add" ([page] MulAddDst).
template <class T>
inline T fused(T a, T b, T d) {
    if constexpr (std::is_integral_v<T>) return emu::sum(emu::product(a, b), d);
    else if constexpr (std::is_same_v<T, float>) return std::fma(a, b, d);
    else if constexpr (std::is_same_v<T, half>) return half::from_bits(static_cast<uint16_t>(emulator::numbers::encode<emulator::numbers::Half>(static_cast<double>(static_cast<float>(a) * static_cast<float>(b)) + static_cast<double>(static_cast<float>(d)))));
    else return bfloat16_t::from_bits(static_cast<uint16_t>(emulator::numbers::encode<emulator::numbers::Bfloat16>(static_cast<double>(static_cast<float>(a) * static_cast<float>(b)) + static_cast<double>(static_cast<float>(d)))));
}

EMULATOR_REGISTER_TYPES(MulAddDst, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Axpy, half, float)

/// dst = src0 * src1 + dst.
template <class T = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class U>
inline void MulAddDst(U& dstReg, U& srcReg0, U& srcReg1, MaskReg& mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    MulAddDst_types<E>();
    mode_exists<mode>();
    elementwise<E>("Reg::MulAddDst", at, adding<E>(), dstReg, mask, false, fused<E>, operand<E>(srcReg0), operand<E>(srcReg1), operand<E>(dstReg));
}

/// dst = scalarValue * src + dst; the product is rounded first, as in the memory form. Unknown whether it is.
template <class T = DefaultType, class U, MaskMergeMode mode = MaskMergeMode::ZEROING, class S>
inline void Axpy(S& dstReg, S& srcReg, const U scalarValue, MaskReg& mask, Site at = Site::here()) {
    using E = typename S::ActualT;
    named<T, E>();
    Axpy_types<E>();
    mode_exists<mode>();
    const E scalar = static_cast<E>(scalarValue);
    const auto op = [scalar](E a, E d) { return emu::sum(emu::product(scalar, a), d); };
    elementwise<E>("Reg::Axpy", at, 1, dstReg, mask, false, op, operand<E>(srcReg), operand<E>(dstReg));
}

// ---- Shifts ----

/// By the width and more: 0, or -1 for a negative number shifted right. A signed number that is shifted left keeps its sign
/// bit ([page] ShiftLeft); by the width and more it is 0. Unknown for negative distances; here as for the width.
template <class T>
constexpr T shifted_left(T x, int64_t by) {
    using Word = std::make_unsigned_t<T>;
    constexpr int64_t width = 8 * sizeof(T);
    if (by < 0 || by >= width) return 0;
    const Word moved = static_cast<Word>(static_cast<uint64_t>(static_cast<Word>(x)) << by), sign = static_cast<Word>(Word(1) << (width - 1));
    return static_cast<T>(std::is_signed_v<T> ? (moved & ~sign) | (static_cast<Word>(x) & sign) : moved);
}
template <class T>
constexpr T shifted_right(T x, int64_t by) {
    constexpr int64_t width = 8 * sizeof(T);
    return by < 0 || by >= width ? static_cast<T>(x < 0 ? -1 : 0) : static_cast<T>(x >> by);
}

EMULATOR_REGISTER_TYPES(Shift, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t)

#define EMULATOR_REGISTER_SHIFT(Name, function)                                                                            \
    template <class T = DefaultType, class U = DefaultType, MaskMergeMode mode = MaskMergeMode::ZEROING, class S, class V> \
    inline void Name(S& dstReg, S& srcReg0, V& srcReg1, MaskReg& mask, Site at = Site::here()) {                           \
        using E = typename S::ActualT;                                                                                     \
        using B = typename V::ActualT;                                                                                     \
        named<T, E>(), named<U, B>();                                                                                      \
        Shift_types<E>();                                                                                                  \
        static_assert(std::is_same_v<B, std::make_signed_t<E>>, "Reg::" #Name ": distances have to be signed integers of the element's size."); \
        mode_exists<mode>();                                                                                               \
        const auto op = [](E a, B by) { return function(a, by); };                                                         \
        elementwise<E>("Reg::" #Name, at, 1, dstReg, mask, false, op, operand<E>(srcReg0), operand<B>(srcReg1));           \
    }                                                                                                                      \
    template <class T = DefaultType, class U, MaskMergeMode mode = MaskMergeMode::ZEROING, class S>                        \
    inline void Name##s(S& dstReg, S& srcReg, U scalarValue, MaskReg& mask, Site at = Site::here()) {                      \
        using E = typename S::ActualT;                                                                                     \
        named<T, E>();                                                                                                     \
        Shift_types<E>();                                                                                                  \
        static_assert(std::is_same_v<U, int16_t>, "Reg::" #Name "s: the distance has to be an int16_t.");                 \
        mode_exists<mode>();                                                                                               \
        if (!emulator::require(scalarValue >= 0, "argument", at, "Reg::" #Name "s", "scalarValue is " + std::to_string(scalarValue) + "; it may not be negative.")) return; \
        const auto op = [scalarValue](E a) { return function(a, scalarValue); };                                           \
        elementwise<E>("Reg::" #Name "s", at, 1, dstReg, mask, false, op, operand<E>(srcReg));                             \
    }
EMULATOR_REGISTER_SHIFT(ShiftLeft, shifted_left)
EMULATOR_REGISTER_SHIFT(ShiftRight, shifted_right)
#undef EMULATOR_REGISTER_SHIFT

// ---- Comparisons and selections ----

EMULATOR_REGISTER_TYPES(Compare, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)
EMULATOR_REGISTER_TYPES(Select, bool, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float)

template <CMPMODE mode, class E>
void compare(const char* call, MaskReg& dst, const Register& a, const Values<E>& b, const Register* other, const MaskReg& mask, Site at) {
    if (!begin(call, at, mask, sizeof(E), 1)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(E));
    need(a, lanes, sizeof(E), call, "src0", at);
    if (other != nullptr) need(*other, lanes, sizeof(E), call, "src1", at);
    const Values<E> left(a);
    MaskReg out;
    out.known = true;
    for (int lane = 0, bit = 0; lane < LANES<E>; ++lane, bit += static_cast<int>(sizeof(E)))
        if (lanes[bit] && compare_impl::holds<mode>(left.v[lane], b.v[lane])) out.bits.set(bit);
    out.origin = a.origin;
    if (other != nullptr) out.origin.join(other->origin);
    out.origin.join(mask.origin);
    dst = out;
}

/// Bits of the elements for which src0 compares so with src1; 0 where the mask holds back.
template <class T = DefaultType, CMPMODE mode = CMPMODE::EQ, class U>
inline void Compare(MaskReg& dst, U& srcReg0, U& srcReg1, MaskReg& mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Compare_types<E>();
    compare<mode, E>("Reg::Compare", dst, srcReg0, Values<E>(srcReg1), &srcReg1, mask, at);
}
template <class T = DefaultType, CMPMODE mode = CMPMODE::EQ, class U, class S>
inline void Compares(MaskReg& dst, U& srcReg, S scalarValue, MaskReg& mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Compare_types<E>();
    Values<E> right;
    std::fill_n(right.v, LANES<E>, static_cast<E>(scalarValue));
    compare<mode, E>("Reg::Compares", dst, srcReg, right, nullptr, mask, at);
}

/// src0 where the mask has a 1, src1 elsewhere.
template <class T = DefaultType, class U>
inline void Select(U& dstReg, U& srcReg0, U& srcReg1, MaskReg& mask, Site at = Site::here()) {
    using E = typename U::ActualT;
    named<T, E>();
    Select_types<E>();
    if (!begin("Reg::Select", at, mask, sizeof(E), 1)) return;
    const Bits lanes = whole(lanes_of(mask.bits, sizeof(E)), sizeof(E));
    // A value that is chosen and missing stays missing: it is reported where it is used.
    Register out;
    for (int byte = 0; byte < 256; ++byte) out.bytes[byte] = lanes[byte] ? srcReg0.bytes[byte] : srcReg1.bytes[byte];
    out.known = emulator::each_word([&](int i) { return (srcReg0.known.word[i] & lanes.word[i]) | (srcReg1.known.word[i] & ~lanes.word[i]); });
    out.origin = srcReg0.origin;
    out.origin.join(srcReg1.origin), out.origin.join(mask.origin);
    const Register& incomplete = emulator::each_word([&](int i) { return ~srcReg0.known.word[i] & lanes.word[i]; }).any() ? srcReg0 : srcReg1;
    out.filled_by = incomplete.filled_by, out.filled_at = incomplete.filled_at, out.beyond = incomplete.beyond;
    static_cast<Register&>(dstReg) = out;
}

// ---- Masks ----

template <class F>
void mask_operation(const char* call, Site at, MaskReg& dst, const MaskReg& mask, F f, const MaskReg& a, const MaskReg& b) {
    if (!begin(call, at, mask, 1, 1) || !need(a, call, at) || !need(b, call, at)) return;
    MaskReg out;
    out.known = true;
    out.bits = emulator::each_word([&](int i) { return f(a.bits.word[i], b.bits.word[i], mask.bits.word[i]); });
    out.origin = a.origin;
    out.origin.join(b.origin), out.origin.join(mask.origin);
    dst = out;
}
/// Bit by bit; bits that the mask holds back are 0. Unknown for all but Move; taken.
inline void And(MaskReg& dst, MaskReg& src0, MaskReg& src1, MaskReg& mask, Site at = Site::here()) {
    mask_operation("Reg::And(mask)", at, dst, mask, [](uint64_t a, uint64_t b, uint64_t m) { return a & b & m; }, src0, src1);
}
inline void Or(MaskReg& dst, MaskReg& src0, MaskReg& src1, MaskReg& mask, Site at = Site::here()) {
    mask_operation("Reg::Or(mask)", at, dst, mask, [](uint64_t a, uint64_t b, uint64_t m) { return (a | b) & m; }, src0, src1);
}
inline void Xor(MaskReg& dst, MaskReg& src0, MaskReg& src1, MaskReg& mask, Site at = Site::here()) {
    mask_operation("Reg::Xor(mask)", at, dst, mask, [](uint64_t a, uint64_t b, uint64_t m) { return (a ^ b) & m; }, src0, src1);
}
inline void Not(MaskReg& dst, MaskReg& src, MaskReg& mask, Site at = Site::here()) {
    mask_operation("Reg::Not(mask)", at, dst, mask, [](uint64_t a, uint64_t, uint64_t m) { return ~a & m; }, src, src);
}
inline void Move(MaskReg& dst, MaskReg& src, MaskReg& mask, Site at = Site::here()) {
    mask_operation("Reg::Move(mask)", at, dst, mask, [](uint64_t a, uint64_t, uint64_t m) { return a & m; }, src, src);
}
/// src0 where the mask has a 1, src1 elsewhere.
inline void Select(MaskReg& dst, MaskReg& src0, MaskReg& src1, MaskReg& mask, Site at = Site::here()) {
    mask_operation("Reg::Select(mask)", at, dst, mask, [](uint64_t a, uint64_t b, uint64_t m) { return (a & m) | (b & ~m); }, src0, src1);
}
/// Even bits of src become the lower or the upper half of dst, whose other half is 0: unknown, taken.
template <HighLowPart part = HighLowPart::LOWEST>
inline void Pack(MaskReg& dst, MaskReg& src, Site at = Site::here()) {
    if (!begin("Reg::Pack(mask)", at, src, 1, 1, true)) return;
    MaskReg out;
    out.known = true, out.origin = src.origin;
    for (int bit = 0; bit < 128; ++bit)
        if (src.bits[2 * bit]) out.bits.set(bit + (part == HighLowPart::HIGHEST ? 128 : 0));
    dst = out;
}
/// Bits of src's lower or upper half become the even bits of dst.
template <HighLowPart part = HighLowPart::LOWEST>
inline void UnPack(MaskReg& dst, MaskReg& src, Site at = Site::here()) {
    if (!begin("Reg::UnPack(mask)", at, src, 1, 1, true)) return;
    MaskReg out;
    out.known = true, out.origin = src.origin;
    for (int bit = 0; bit < 128; ++bit)
        if (src.bits[bit + (part == HighLowPart::HIGHEST ? 128 : 0)]) out.bits.set(2 * bit);
    dst = out;
}

}  // namespace AscendC::Reg
