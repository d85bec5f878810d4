// Comparisons to bits, and selections by bits. Bit i of a result is bit i % 8 of byte i / 8. Pages as in vector_types.h.
#pragma once

#include "vector_reduce.h"

namespace AscendC {

enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR = 0, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };

EMULATOR_TYPES(Compare, (half, float, int32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t, double))
EMULATOR_TYPES(CompareToRegister, (half, float), (half, float), ())
EMULATOR_TYPES(Select, (half, float), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (int8_t, uint8_t, int64_t, uint64_t))

namespace compare_impl {

/// NaN: only NE holds, and on dav-2201 not even that ([Borders], tables 30 and 31; of the Reg calls 31 and 32).
template <CMPMODE mode, class T>
constexpr bool holds(T a, T b) {
    if constexpr (!std::is_arithmetic_v<T>) return holds<mode>(static_cast<float>(a), static_cast<float>(b));
    else if constexpr (mode == CMPMODE::LT) return a < b;
    else if constexpr (mode == CMPMODE::GT) return a > b;
    else if constexpr (mode == CMPMODE::EQ) return a == b;
    else if constexpr (mode == CMPMODE::LE) return a <= b;
    else if constexpr (mode == CMPMODE::GE) return a >= b;
    else return is_2201 ? (a < b) | (a > b) : a != b;
}

template <CMPMODE mode, class T>
void row(const T* a, const T* b, int64_t n, uint8_t* flags) {
    EMULATOR_EACH(i, n) flags[i] = holds<mode>(a[i], b[i]);
}

/// flags[i] = a[i] compared with b[i].
template <class T>
void row(CMPMODE mode, const T* a, const T* b, int64_t n, uint8_t* flags) {
    switch (mode) {
        case CMPMODE::LT: return row<CMPMODE::LT>(a, b, n, flags);
        case CMPMODE::GT: return row<CMPMODE::GT>(a, b, n, flags);
        case CMPMODE::EQ: return row<CMPMODE::EQ>(a, b, n, flags);
        case CMPMODE::LE: return row<CMPMODE::LE>(a, b, n, flags);
        case CMPMODE::GE: return row<CMPMODE::GE>(a, b, n, flags);
        default: return row<CMPMODE::NE>(a, b, n, flags);
    }
}

/// Eight flags of 0 or 1 to a byte, and back.
inline uint8_t packed(const uint8_t* flags) {
    uint64_t word;
    std::memcpy(&word, flags, 8);
    return static_cast<uint8_t>(word * 0x0102040810204080ull >> 56);
}
inline void unpack(uint8_t byte, uint8_t* flags) {
    const uint64_t word = byte * 0x8040201008040201ull >> 7 & 0x0101010101010101ull;  // bit i in byte 7 - i
    const uint64_t in_order = __builtin_bswap64(word);
    std::memcpy(flags, &in_order, 8);
}

inline bool legal_mode(CMPMODE mode, const char* call, Site at) {
    return emulator::require(mode <= CMPMODE::NE, "argument", at, call, "cmpMode " + std::to_string(static_cast<int>(mode)) + " does not exist.");
}

/// Repeats in which every lane takes part.
inline emu::Lanes all_lanes(int64_t repeats, int64_t size) {
    emu::Lanes out;
    out.width = ONE_REPEAT_BYTE_SIZE / size, out.repeats = repeats, out.runs = {{0, out.width}};
    return out;
}

/// Bits of the repeats one behind the other: the repeat stride of dst has no effect (unknown for more than one repeat; so it
/// is what Select takes). `scalar`: src1 is the number. Bits of lanes that the mask holds back are 0 ([Compare], examples).
template <class T, class U>
void to_memory(const char* call, Site at, const emu::Lanes& lanes, const LocalTensor<U>& dst, const LocalTensor<T>& src0, emu::Stride stride0,
               const LocalTensor<T>* src1, emu::Stride stride1, T scalar, CMPMODE mode) {
    EMULATOR_USES("asc_uses_vector");
    static_assert(std::is_same_v<U, uint8_t> || std::is_same_v<U, int8_t>, "Compare: dst is uint8_t or int8_t");
    if (!legal_mode(mode, call, at)) return;
    if (is_2201 && std::is_same_v<T, int32_t> && !emulator::require(mode == CMPMODE::EQ, "argument", at, call, "dav-2201 compares int32_t for CMPMODE::EQ alone.")) return;
    if (std::is_same_v<T, double> && src1 == nullptr && !emulator::require(mode == CMPMODE::EQ, "argument", at, call, "double is compared with a scalar for CMPMODE::EQ alone.")) return;
    if (!emu::legal(lanes, call, at)) return;
    emulator::Instruction what = reduce_impl::instruction(call, at, lanes);
    emu::add_lane_accesses(what.accesses, src0, emulator::Access::Kind::Read, "src0", lanes, stride0);
    if (src1) emu::add_lane_accesses(what.accesses, *src1, emulator::Access::Kind::Read, "src1", lanes, stride1);
    what.accesses.push_back(dst.bytes(emulator::Access::Kind::Write, "dst", 0, lanes.repeats * lanes.width / 8));
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in0 = core.local(src0.space(), src0.address());
    const uint8_t* const in1 = src1 ? core.local(src1->space(), src1->address()) : nullptr;
    const emu::Stride step{stride0.block == 1 && (!src1 || stride1.block == 1) ? 1 : 0, 0};
    emulator::issue(std::move(what), [=, lanes = lanes] {
        uint8_t flags[256];
        T number[ONE_REPEAT_BYTE_SIZE / sizeof(T)];
        std::fill_n(number, lanes.width, scalar);
        for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat) {
            std::memset(flags, 0, sizeof flags);
            reduce_impl::each_piece(lanes, step, sizeof(T), repeat, [&](int64_t lane, int64_t n, int64_t) {
                const T* const a = reinterpret_cast<const T*>(in0 + emu::lane_offset(repeat, lane, stride0, sizeof(T)));
                const T* const b = in1 ? reinterpret_cast<const T*>(in1 + emu::lane_offset(repeat, lane, stride1, sizeof(T))) : number;
                row(mode, a, b, n, flags + lane);
            });
            for (int64_t byte = 0; byte < lanes.width / 8; ++byte) out[repeat * lanes.width / 8 + byte] = packed(flags + 8 * byte);
        }
    });
}

/// A count as whole repeats.
template <class T>
bool legal_count(uint32_t count, const char* call, Site at) {
    return emulator::require(count > 0 && count * sizeof(T) % ONE_REPEAT_BYTE_SIZE == 0, "alignment", at, call,
                             std::to_string(count) + " elements are " + std::to_string(count * sizeof(T)) + " bytes; it compares a positive multiple of 256 bytes: round the count up and give the operands room.");
}

/// dav-2201 does not look at the mask ([Compare], mask).
template <bool isSetMask, class Mask>
emu::Lanes lanes_of(Mask mask, uint8_t repeats, int64_t size) {
    return is_2201 ? all_lanes(repeats, size) : emu::mask_lanes<isSetMask>(mask, repeats, size);
}

}  // namespace compare_impl

// ---- Compare ----

/// Bit i of dst = src0[i] cmpMode src1[i]. count * sizeof(T) is a multiple of 256. Source: [Compare].
template <class T, class U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, uint32_t count, Site at = Site::here()) {
    Compare_types<T, true>();
    if (!compare_impl::legal_count<T>(count, "Compare", at)) return;
    const emu::Stride all{};
    compare_impl::to_memory("Compare", at, compare_impl::all_lanes(count * sizeof(T) / ONE_REPEAT_BYTE_SIZE, sizeof(T)), dst, src0, all, &src1, all, T{}, cmpMode);
}
template <class T, class U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask[], uint8_t repeatTime,
             const BinaryRepeatParams& p, Site at = Site::here()) {
    Compare_types<T, false>();
    compare_impl::to_memory("Compare", at, compare_impl::lanes_of<isSetMask>(mask, repeatTime, sizeof(T)), dst, src0, emu::Stride{p.src0BlkStride, p.src0RepStride}, &src1,
                       emu::Stride{p.src1BlkStride, p.src1RepStride}, T{}, cmpMode);
}
template <class T, class U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask, uint8_t repeatTime,
             const BinaryRepeatParams& p, Site at = Site::here()) {
    Compare_types<T, false>();
    compare_impl::to_memory("Compare", at, compare_impl::lanes_of<isSetMask>(mask, repeatTime, sizeof(T)), dst, src0, emu::Stride{p.src0BlkStride, p.src0RepStride}, &src1,
                       emu::Stride{p.src1BlkStride, p.src1RepStride}, T{}, cmpMode);
}

#define EMULATOR_COMPARE_SCALAR(Name)                                                                                                 \
    template <class T, class U>                                                                                                       \
    void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode, uint32_t count, Site at = Site::here()) { \
        Compare_types<T, true>();                                                                                                     \
        static_assert(std::is_same_v<U, uint8_t>, #Name ": dst is uint8_t");                                                          \
        if (!compare_impl::legal_count<T>(count, #Name, at)) return;                                                                       \
        compare_impl::to_memory<T>(#Name, at, compare_impl::all_lanes(count * sizeof(T) / ONE_REPEAT_BYTE_SIZE, sizeof(T)), dst, src0, emu::Stride{}, nullptr, {}, src1Scalar, cmpMode); \
    }                                                                                                                                 \
    template <class T, class U, bool isSetMask = true>                                                                                \
    void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode, const uint64_t mask[], uint8_t repeatTime, \
              const UnaryRepeatParams& p, Site at = Site::here()) {                                                                   \
        Compare_types<T, false>();                                                                                                    \
        static_assert(std::is_same_v<U, uint8_t>, #Name ": dst is uint8_t");                                                          \
        compare_impl::to_memory<T>(#Name, at, compare_impl::lanes_of<isSetMask>(mask, repeatTime, sizeof(T)), dst, src0, emu::Stride{p.srcBlkStride, p.srcRepStride}, nullptr, {}, src1Scalar, cmpMode); \
    }                                                                                                                                 \
    template <class T, class U, bool isSetMask = true>                                                                                \
    void Name(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode, const uint64_t mask, uint8_t repeatTime, \
              const UnaryRepeatParams& p, Site at = Site::here()) {                                                                   \
        Compare_types<T, false>();                                                                                                    \
        static_assert(std::is_same_v<U, uint8_t>, #Name ": dst is uint8_t");                                                          \
        compare_impl::to_memory<T>(#Name, at, compare_impl::lanes_of<isSetMask>(mask, repeatTime, sizeof(T)), dst, src0, emu::Stride{p.srcBlkStride, p.srcRepStride}, nullptr, {}, src1Scalar, cmpMode); \
    }
/// Bit i of dst = src0[i] cmpMode src1Scalar. Source: [Compares]; CompareScalar is its former name.
EMULATOR_COMPARE_SCALAR(Compares)
EMULATOR_COMPARE_SCALAR(CompareScalar)
#undef EMULATOR_COMPARE_SCALAR

// ---- The register of 128 bits between Compare and Select ----

namespace compare_impl {

template <class T>
void to_register(Site at, const emu::Lanes& lanes, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode, const BinaryRepeatParams& p) {
    EMULATOR_USES("asc_uses_vector");
    CompareToRegister_types<T, false>();
    if (!legal_mode(mode, "Compare", at) || !emu::legal(lanes, "Compare", at)) return;
    if (!emulator::require(lanes.repeats == 1, "argument", at, "Compare", "into the register it compares one repeat; counter mode asks for " + std::to_string(lanes.count) + " elements.")) return;
    const emu::Stride stride0{p.src0BlkStride, p.src0RepStride}, stride1{p.src1BlkStride, p.src1RepStride};
    emulator::Instruction what = reduce_impl::instruction("Compare", at, lanes);
    emu::add_lane_accesses(what.accesses, src0, emulator::Access::Kind::Read, "src0", lanes, stride0);
    emu::add_lane_accesses(what.accesses, src1, emulator::Access::Kind::Read, "src1", lanes, stride1);
    emulator::Core& core = emulator::core();
    const uint8_t* const in0 = core.local(src0.space(), src0.address());
    const uint8_t* const in1 = core.local(src1.space(), src1.address());
    emulator::issue(std::move(what), [=, lanes = lanes] {
        auto& bits = emulator::core().control.compare_mask;
        reduce_impl::each_piece(lanes, emu::Stride{0, 0}, sizeof(T), 0, [&](int64_t lane, int64_t n, int64_t) {
            uint8_t flags[128];
            row(mode, reinterpret_cast<const T*>(in0 + emu::lane_offset(0, lane, stride0, sizeof(T))),
                reinterpret_cast<const T*>(in1 + emu::lane_offset(0, lane, stride1, sizeof(T))), n, flags);
            for (int64_t i = lane; i < lane + n; ++i) {
                const uint64_t bit = 1ull << (i % 64);
                bits[i / 64] = flags[i - lane] ? bits[i / 64] | bit : bits[i / 64] & ~bit;
            }
        });
    });
}

}  // namespace compare_impl

/// Bit i of the register = src0[i] cmpMode src1[i], for the lanes of one repeat; bits of other lanes stay ([asc_eq], limits).
/// Source: [Compare, result in a register].
template <class T, bool isSetMask = true>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask[], const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    compare_impl::to_register(at, emu::mask_lanes<isSetMask>(mask, 1, sizeof(T)), src0, src1, cmpMode, repeatParams);
}
template <class T, bool isSetMask = true>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask, const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    compare_impl::to_register(at, emu::mask_lanes<isSetMask>(mask, 1, sizeof(T)), src0, src1, cmpMode, repeatParams);
}

/// The register's 16 bytes to dst, which has room for 128. Source: [GetCmpMask].
template <class T>
void GetCmpMask(const LocalTensor<T>& dst, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    if (!emulator::require(dst.high() - dst.address() >= 128, "out_of_bounds", at, "GetCmpMask", "dst has " + std::to_string(dst.high() - dst.address()) + " bytes to the end of its buffer; it needs 128.")) return;
    emulator::Instruction what;
    what.pipe = emulator::Pipe::V, what.name = "GetCmpMask", what.at = at;
    what.cost = emulator::Cost::vector("GetCmpMask", 16 / sizeof(T), 1);
    what.accesses = {dst.bytes(emulator::Access::Kind::Write, "dst", 0, 16, 16)};
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(what), [=] { std::memcpy(out, emulator::core().control.compare_mask, 16); });
}

/// The register from 16 bytes of src: bits, a scalar, or the address of bits, as the Select behind it takes them. Source:
/// [SetCmpMask].
template <class T>
void SetCmpMask(const LocalTensor<T>& src, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    emulator::Instruction what;
    what.pipe = emulator::Pipe::V, what.name = "SetCmpMask", what.at = at;
    what.cost = emulator::Cost::vector("SetCmpMask", 16 / sizeof(T), 1);
    what.accesses = {src.bytes(emulator::Access::Kind::Read, "src", 0, 16, 16)};
    const uint8_t* const in = emulator::core().local(src.space(), src.address());
    emulator::issue(std::move(what), [=] { std::memcpy(emulator::core().control.compare_mask, in, 16); });
}

// ---- Select ----

namespace compare_impl {

/// Where the bits come from, and whether repeats use them up or share the first ones.
struct Bits {
    enum class From : uint8_t { Tensor, Register, Address } from = From::Tensor;
    bool shared = false;
    const uint8_t* host = nullptr;
};

/// `src1` null: the scalar, or the register's, for every bit that is 0.
template <class T>
void select(Site at, const emu::Lanes& given, const LocalTensor<T>& dst, emu::Stride to, const LocalTensor<T>& src0, emu::Stride stride0, const LocalTensor<T>* src1,
            emu::Stride stride1, T scalar, bool scalar_in_register, Bits bits, const emulator::Access* selection, bool takes_scratch) {
    EMULATOR_USES("asc_uses_vector");
    const char* const call = "Select";
    if (!emu::legal(given, call, at)) return;
    const emu::Lanes lanes = reduce_impl::in_repeats(given);
    emulator::Instruction what = reduce_impl::instruction(call, at, given);
    if (selection) what.accesses.push_back(*selection);
    emu::add_lane_accesses(what.accesses, src0, emulator::Access::Kind::Read, "src0", given, stride0);
    if (src1) emu::add_lane_accesses(what.accesses, *src1, emulator::Access::Kind::Read, "src1", given, stride1);
    emu::add_lane_accesses(what.accesses, dst, emulator::Access::Kind::Write, "dst", given, to);
    emulator::Core& core = emulator::core();
    reduce_impl::Working scratch;
    if (takes_scratch) {
        constexpr int64_t size = 8192;
        const int64_t begin = core.capacity[static_cast<int>(emulator::Space::UB)] - size;
        for (const emulator::Access& access : what.accesses) {
            const int64_t end = access.begin + access.bytes + std::max<int64_t>(0, access.pitch) * (access.runs - 1) + std::max<int64_t>(0, access.group_pitch) * (access.groups - 1);
            if (!emulator::require(end <= begin, "capacity", at, call, std::string(access.operand) + " reaches byte " + std::to_string(end) + " of UB; this form works in the 8192 bytes from " + std::to_string(begin) + " on: keep them free.")) return;
        }
        emulator::Access access;
        access.kind = emulator::Access::Kind::Write, access.operand = "the last 8192 bytes of UB";
        access.begin = begin, access.bytes = size, access.scratch = true;
        what.accesses.insert(what.accesses.begin(), access);
        scratch = {core.local(emulator::Space::UB, begin), size};
    }
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in0 = core.local(src0.space(), src0.address());
    const uint8_t* const in1 = src1 ? core.local(src1->space(), src1->address()) : nullptr;
    const emu::Stride step{to.block == 1 && stride0.block == 1 && (!src1 || stride1.block == 1) ? 1 : 0, 0};
    emulator::issue(std::move(what), [=, now = &core] {
        auto& mask = now->control.compare_mask;
        const uint8_t* source = bits.host;
        if (bits.from == Bits::From::Register) source = reinterpret_cast<const uint8_t*>(mask);
        if (bits.from == Bits::From::Address) {
            emulator::Access access;
            access.operand = "selMask", access.begin = static_cast<int64_t>(mask[0] & 0xffffffffu);
            access.bytes = (lanes.repeats * lanes.width + 7) / 8, access.align = 32;
            if (!emulator::touch(access)) return;
            source = now->local(emulator::Space::UB, access.begin);
        }
        T other = scalar;
        if (scalar_in_register) std::memcpy(&other, mask, sizeof(T));
        uint8_t flags[256];
        const int64_t bytes = lanes.width / 8;
        for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat) {
            const int64_t here = lanes.last_partial && repeat == lanes.repeats - 1 ? (lanes.last_partial + 7) / 8 : bytes;
            for (int64_t byte = 0; byte < here; ++byte) unpack(source[(bits.shared ? 0 : repeat * bytes) + byte], flags + 8 * byte);
            reduce_impl::each_piece(lanes, step, sizeof(T), repeat, [&](int64_t lane, int64_t n, int64_t) {
                T* const d = reinterpret_cast<T*>(out + emu::lane_offset(repeat, lane, to, sizeof(T)));
                const T* const a = reinterpret_cast<const T*>(in0 + emu::lane_offset(repeat, lane, stride0, sizeof(T)));
                const T* const b = in1 ? reinterpret_cast<const T*>(in1 + emu::lane_offset(repeat, lane, stride1, sizeof(T))) : nullptr;
                if (b) EMULATOR_EACH(i, n) d[i] = flags[lane + i] ? a[i] : b[i];
                else EMULATOR_EACH(i, n) d[i] = flags[lane + i] ? a[i] : other;
            });
        }
        // dav-2201: the call hands what it selects by over in the register.
        if (is_2201 && bits.from == Bits::From::Tensor) {
            uint64_t handed[2] = {};
            std::memcpy(handed, in1 ? static_cast<const void*>(source) : static_cast<const void*>(&other), in1 ? static_cast<size_t>(std::min<int64_t>(16, bytes)) : sizeof(T));
            std::memcpy(mask, handed, 16);
        }
        scratch.spoil();
    });
}

template <class T, class U>
void select_by_tensor(Site at, const emu::Lanes& lanes, const LocalTensor<T>& dst, const LocalTensor<U>& sel, const LocalTensor<T>& src0, const LocalTensor<T>* src1,
                      T scalar, bool scalar_in_register, SELMODE mode, const BinaryRepeatParams& p) {
    static_assert(std::is_same_v<U, uint8_t> || std::is_same_v<U, uint16_t> || std::is_same_v<U, uint32_t> || std::is_same_v<U, uint64_t>,
                  "Select: selMask is uint8_t, uint16_t, uint32_t or uint64_t");
    const bool fits = src1 ? mode == SELMODE::VSEL_CMPMASK_SPR || mode == SELMODE::VSEL_TENSOR_TENSOR_MODE : mode == SELMODE::VSEL_TENSOR_SCALAR_MODE;
    if (!emulator::require(fits, "argument", at, "Select", std::string("selMode ") + std::to_string(static_cast<int>(mode)) + (src1 ? " with two tensors; take VSEL_CMPMASK_SPR or VSEL_TENSOR_TENSOR_MODE." : " with a scalar; take VSEL_TENSOR_SCALAR_MODE."))) return;
    const int64_t all = lanes.flat ? lanes.count : lanes.repeats * lanes.width;
    Bits bits;
    bits.shared = mode == SELMODE::VSEL_CMPMASK_SPR;
    bits.host = emulator::core().local(sel.space(), sel.address());
    const emulator::Access selection = sel.bytes(emulator::Access::Kind::Read, "selMask", 0, ((bits.shared ? std::min(all, lanes.width) : all) + 7) / 8);
    select(at, lanes, dst, emu::Stride{p.dstBlkStride, p.dstRepStride}, src0, emu::Stride{p.src0BlkStride, p.src0RepStride}, src1, emu::Stride{p.src1BlkStride, p.src1RepStride},
           scalar, scalar_in_register, bits, &selection, is_2201 && !bits.shared && !scalar_in_register);
}

}  // namespace compare_impl

/// dst[i] = bit i of selMask ? src0[i] : src1. VSEL_TENSOR_SCALAR_MODE. With a mask, repeat r takes bits from
/// r * 256 / sizeof(T) on. dav-2201 works in the last 8 KB of UB. Source: [Select].
template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1, SELMODE selMode, uint32_t count, Site at = Site::here()) {
    Select_types<T, true>();
    compare_impl::select_by_tensor<T>(at, emu::flat_lanes(count, sizeof(T)), dst, selMask, src0, nullptr, src1, false, selMode, {});
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1, SELMODE selMode, uint64_t mask[], uint8_t repeatTime,
            const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Select_types<T, false>();
    compare_impl::select_by_tensor<T>(at, emu::bit_lanes(mask, repeatTime, sizeof(T)), dst, selMask, src0, nullptr, src1, false, selMode, repeatParams);
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1, SELMODE selMode, uint64_t mask, uint8_t repeatTime,
            const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Select_types<T, false>();
    compare_impl::select_by_tensor<T>(at, emu::counted_lanes(mask, repeatTime, sizeof(T)), dst, selMask, src0, nullptr, src1, false, selMode, repeatParams);
}
/// The same with the mask of SetVectorMask and the scalar of SetCmpMask.
template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, uint8_t repeatTime, const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Select_types<T, false>();
    compare_impl::select_by_tensor<T>(at, emu::register_lanes(repeatTime, sizeof(T)), dst, selMask, src0, nullptr, T{}, true, SELMODE::VSEL_TENSOR_SCALAR_MODE, repeatParams);
}

/// dst[i] = bit of selMask ? src0[i] : src1[i]. VSEL_CMPMASK_SPR: every 256 bytes take the same first bits;
/// VSEL_TENSOR_TENSOR_MODE: they use the bits up one behind the other, and dav-2201 works in the last 8 KB of UB.
template <class T, class U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1, SELMODE selMode, uint32_t count, Site at = Site::here()) {
    Select_types<T, true>();
    compare_impl::select_by_tensor<T>(at, emu::flat_lanes(count, sizeof(T)), dst, selMask, src0, &src1, T{}, false, selMode, {});
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1, SELMODE selMode, uint64_t mask[],
            uint8_t repeatTime, const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Select_types<T, false>();
    compare_impl::select_by_tensor<T>(at, emu::bit_lanes(mask, repeatTime, sizeof(T)), dst, selMask, src0, &src1, T{}, false, selMode, repeatParams);
}
template <class T, class U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1, SELMODE selMode, uint64_t mask,
            uint8_t repeatTime, const BinaryRepeatParams& repeatParams, Site at = Site::here()) {
    Select_types<T, false>();
    compare_impl::select_by_tensor<T>(at, emu::counted_lanes(mask, repeatTime, sizeof(T)), dst, selMask, src0, &src1, T{}, false, selMode, repeatParams);
}
/// The same with the mask of SetVectorMask and what SetCmpMask or Compare left in the register: the bits, or their address.
template <class T, SELMODE selMode>
void Select(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint8_t repeatTime, const BinaryRepeatParams& p, Site at = Site::here()) {
    Select_types<T, false>();
    static_assert(selMode != SELMODE::VSEL_TENSOR_SCALAR_MODE, "Select: with a scalar in the register selMask is an argument");
    compare_impl::Bits bits;
    bits.shared = selMode == SELMODE::VSEL_CMPMASK_SPR;
    bits.from = bits.shared ? compare_impl::Bits::From::Register : compare_impl::Bits::From::Address;
    compare_impl::select<T>(at, emu::register_lanes(repeatTime, sizeof(T)), dst, emu::Stride{p.dstBlkStride, p.dstRepStride}, src0, emu::Stride{p.src0BlkStride, p.src0RepStride}, &src1,
                       emu::Stride{p.src1BlkStride, p.src1RepStride}, T{}, false, bits, nullptr, false);
}

}  // namespace AscendC
