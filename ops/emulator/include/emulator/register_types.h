// Vector registers, masks, and how a vector function is called. Pages as in registers.h.
#pragma once

#include <array>
#include <tuple>

#include "vector_types.h"

namespace emulator {

/// A bit for each byte of a register. Of an element the lowest bit counts as its mask ([Mask]).
struct Bits {
    uint64_t word[4] = {};
    bool operator[](int bit) const { return (word[bit / 64] >> (bit % 64) & 1) != 0; }
    void set(int bit) { word[bit / 64] |= 1ull << (bit % 64); }
    void clear(int bit) { word[bit / 64] &= ~(1ull << (bit % 64)); }
    bool any() const { return (word[0] | word[1] | word[2] | word[3]) != 0; }
    int count() const {
        int sum = 0;
        for (const uint64_t w : word) sum += __builtin_popcountll(w);
        return sum;
    }
};
template <class F>
Bits each_word(F f) {
    Bits out;
    for (int i = 0; i < 4; ++i) out.word[i] = f(i);
    return out;
}
/// The lowest bit of every element.
constexpr uint64_t lowest(int size) { return size == 1 ? ~0ull : size == 2 ? 0x5555555555555555ull : 0x1111111111111111ull; }
constexpr Bits ALL_BITS = {{~0ull, ~0ull, ~0ull, ~0ull}};

/// What every register is, whatever its element type: kernels look at one as at another's.
struct Register {
    alignas(16) uint8_t bytes[256];
    Bits known;         // bytes that have a value
    Origin origin;
    const char* filled_by = nullptr;  // the load that brought bytes without a value; none: nothing has written them
    Site filled_at;
    bool beyond = false;              // from beyond the end of its tensor
    uint32_t value = new_value();
    Register() { std::memset(bytes, 0xff, sizeof bytes); }
};

}  // namespace emulator

namespace AscendC {

constexpr uint32_t GetVecLen() { return ONE_REPEAT_BYTE_SIZE; }
constexpr int32_t CeilDivision(int32_t num1, int32_t num2) { return (num1 + num2 - 1) / num2; }

namespace Reg {

using emulator::Bits;
using emulator::Origin;
using emulator::Register;

struct DefaultType {};
struct RegTrait {
    int REG_NUM = 1;
};
inline constexpr RegTrait RegTraitNumOne = {1};

enum class MaskMergeMode { UNKNOWN, MERGING, ZEROING };
enum class PostLiteral { POST_MODE_NORMAL, POST_MODE_UPDATE };
enum class RegLayout { UNKNOWN = -1, ZERO, ONE, TWO, THREE };
enum class SatMode { UNKNOWN = -1, NO_SAT, SAT };
enum class HighLowPart { LOWEST, HIGHEST };
enum class MaskPattern { ALL, VL1, VL2, VL3, VL4, VL8, VL16, VL32, VL64, VL128, M3, M4, H, Q, ALLF = 15 };

/// 256 bytes of elements. Undefined until something writes it.
template <class T, const RegTrait& regTrait = RegTraitNumOne>
struct RegTensor : Register {
    using ActualT = T;
    static_assert(sizeof(T) <= 4, "RegTensor: the emulator has elements of 8, 16 and 32 bits.");
    static_assert(sizeof(T) == 0 || &regTrait == &RegTraitNumOne, "RegTensor: the emulator has RegTraitNumOne alone.");
};

/// 256 bits: one a byte of a register. CreateMask, UpdateMask and Compare set the lowest bit of each element alone; unknown
/// whether the device sets the others, too. Masks read from memory have what is there.
struct MaskReg {
    Bits bits;
    bool known = false;
    Origin origin;
};

template <class T>
constexpr int LANES = ONE_REPEAT_BYTE_SIZE / static_cast<int>(sizeof(T));

// ---- For the calls ----

/// The template argument T of a call names the register's element type, or is left out.
template <class T, class Actual>
constexpr void named() {
    static_assert(std::is_same_v<T, DefaultType> || std::is_same_v<T, Actual>, "the type that the call names is not the register's element type");
}
template <class T, class Actual>
using Named = std::conditional_t<std::is_same_v<T, DefaultType>, Actual, T>;

#define EMULATOR_REGISTER_TYPES(Name, ...)                                                                          \
    template <class T>                                                                                              \
    constexpr void Name##_types() {                                                                                 \
        constexpr bool has = types_impl::in<T>(types_impl::List<__VA_ARGS__>{});                                              \
        static_assert(has, "Reg::" #Name ": dav-3510 does not have it for this element type; it has " #__VA_ARGS__ "."); \
        if constexpr (!has) static_cast<void>(sizeof(types_impl::NotAnElementTypeOfThisCall<T>));                        \
    }

/// Only those with a software form ([page]) keep what the mask holds back; UNKNOWN is of conversions alone.
template <MaskMergeMode mode, bool merges = false>
constexpr void mode_exists() {
    static_assert(mode == MaskMergeMode::ZEROING || (merges && mode == MaskMergeMode::MERGING), "this call has MaskMergeMode::ZEROING alone");
}

/// The mask's elements of `size` bytes.
inline Bits lanes_of(const Bits& mask, int size) {
    return emulator::each_word([&](int i) { return mask.word[i] & emulator::lowest(size); });
}
/// All bits of the elements whose lowest one is set.
inline Bits whole(const Bits& lanes, int size) {
    const uint64_t factor = size == 1 ? 1 : size == 2 ? 3 : 15;
    return emulator::each_word([&](int i) { return lanes.word[i] * factor; });
}

[[gnu::noinline]] inline void missing_lanes(const Register& reg, const Bits& missing, int size, const char* call, const char* operand, Site at) {
    int first = 0, last = 255;
    while (!missing[first]) ++first;
    while (!missing[last]) --last;
    std::string text = std::string(call) + " (" + operand + ") uses elements " + std::to_string(first / size) + " to " + std::to_string(last / size) + " of a register";
    if (reg.filled_by == nullptr) {
        text += ", which hold no value: nothing has written them.";
        return emulator::report("uninitialised", at, text);
    }
    const std::string load = std::string(reg.filled_by) + " at " + reg.filled_at.file + ":" + std::to_string(reg.filled_at.line);
    if (reg.beyond) return emulator::report("out_of_bounds", at, text + " that " + load + " took from beyond the end of its tensor; mask them out.");
    emulator::report("uninitialised", at, text + " that " + load + " took from bytes that nothing has written.");
}
/// Reports elements of `lanes` that have no value.
[[gnu::noinline]] inline void need(const Register& reg, const Bits& lanes, int size, const char* call, const char* operand, Site at) {
    const Bits missing = emulator::each_word([&](int i) {
        uint64_t known = reg.known.word[i];
        if (size >= 2) known &= known >> 1;
        if (size == 4) known &= known >> 2;
        return lanes.word[i] & ~known;
    });
    if (missing.any()) missing_lanes(reg, missing, size, call, operand, at);
}
[[gnu::noinline]] inline bool need(const MaskReg& mask, const char* call, Site at) {
    return mask.known || emulator::require(false, "uninitialised", at, call, "its mask register holds no value; CreateMask, UpdateMask or Compare writes one.");
}

/// An instruction of `cycles` on the lanes of `mask`; false: it is not done.
[[gnu::noinline]] inline bool begin(const char* call, Site at, const MaskReg& mask, int size, int cycles, bool alone = false) {
    if (!emulator::in_function(call, at) || !need(mask, call, at)) return false;
    emulator::register_work(call, static_cast<uint64_t>(lanes_of(mask.bits, size).count()), cycles, alone);
    return true;
}
[[gnu::noinline]] inline bool begin(const char* call, Site at, int lanes, int cycles, bool alone = false) {
    if (!emulator::in_function(call, at)) return false;
    emulator::register_work(call, static_cast<uint64_t>(lanes), cycles, alone);
    return true;
}

/// Elements of a register as an array.
template <class T>
struct Values {
    alignas(32) T v[LANES<T>];
    Values() = default;
    explicit Values(const Register& reg) { std::memcpy(static_cast<void*>(v), reg.bytes, sizeof v); }
};

/// Puts results into `dst`: those of `lanes`, and zero or what it held elsewhere.
template <class D>
[[gnu::noinline]] void settle(Register& dst, const Values<D>& out, const Bits& lanes, bool merging) {
    constexpr int size = sizeof(D);
    dst.value = emulator::new_value();
    const Bits all = lanes_of(emulator::ALL_BITS, size);
    const bool full = ((lanes.word[0] ^ all.word[0]) | (lanes.word[1] ^ all.word[1]) | (lanes.word[2] ^ all.word[2]) | (lanes.word[3] ^ all.word[3])) == 0;
    if (full) {
        std::memcpy(dst.bytes, static_cast<const void*>(out.v), sizeof dst.bytes);
        dst.known = emulator::ALL_BITS;
        return;
    }
    for (int lane = 0; lane < LANES<D>; ++lane) {
        if (lanes[lane * size]) std::memcpy(dst.bytes + lane * size, static_cast<const void*>(out.v + lane), size);
        else if (!merging) std::memset(dst.bytes + lane * size, 0, size);
    }
    const Bits written = whole(lanes, size);
    dst.known = merging ? emulator::each_word([&](int i) { return dst.known.word[i] | written.word[i]; }) : emulator::ALL_BITS;
}

/// dst = f(src...) element by element; sources and result have elements of one size. `operands` of MulAddDst and its like
/// hold dst itself.
template <class D, class... S, class F>
void elementwise(const char* call, Site at, int cycles, Register& dst, const MaskReg& mask, bool merging, F f, const std::pair<const Register&, Values<S>>&... sources) {
    static_assert(((sizeof(S) == sizeof(D)) && ...));
    if (!begin(call, at, mask, sizeof(D), cycles)) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(D));
    static const char* const names[] = {"src0", "src1", "src2"};
    int number = 0;
    (need(sources.first, lanes, sizeof(D), call, sizeof...(S) == 1 ? "src" : names[number++], at), ...);
    Values<D> out;
    EMULATOR_EACH(i, LANES<D>) out.v[i] = f(sources.second.v[i]...);
    Origin origin = merging ? dst.origin : Origin{};
    (origin.join(sources.first.origin), ...);
    origin.join(mask.origin);
    settle<D>(dst, out, lanes, merging);
    dst.origin = origin;
}
template <class S>
std::pair<const Register&, Values<S>> operand(const Register& reg) { return {reg, Values<S>(reg)}; }

// ---- Masks ----

/// The first elements of a mask.
template <class T>
MaskReg first_lanes(int count) {
    MaskReg out;
    out.known = true;
    for (int lane = 0; lane < count && lane < LANES<T>; ++lane) out.bits.set(lane * static_cast<int>(sizeof(T)));
    return out;
}

/// A fixed pattern of elements. H, Q: the lower half, quarter; M3, M4: every third, fourth from the first on. [Mask]
template <class T, MaskPattern mode = MaskPattern::ALL, const RegTrait& regTrait = RegTraitNumOne>
inline MaskReg CreateMask(Site at = Site::here()) {
    static_assert(sizeof(T) <= 4, "CreateMask: the emulator has elements of 8, 16 and 32 bits.");
    if (!begin("Reg::CreateMask", at, LANES<T>, 1)) return {};
    constexpr int counts[] = {1, 2, 3, 4, 8, 16, 32, 64, 128};
    if constexpr (mode == MaskPattern::ALL) return first_lanes<T>(LANES<T>);
    else if constexpr (mode == MaskPattern::ALLF) return first_lanes<T>(0);
    else if constexpr (mode == MaskPattern::H) return first_lanes<T>(LANES<T> / 2);
    else if constexpr (mode == MaskPattern::Q) return first_lanes<T>(LANES<T> / 4);
    else if constexpr (mode <= MaskPattern::VL128) return first_lanes<T>(counts[static_cast<int>(mode) - 1]);
    MaskReg out;
    out.known = true;
    for (int lane = 0; lane < LANES<T>; lane += mode == MaskPattern::M3 ? 3 : 4) out.bits.set(lane * static_cast<int>(sizeof(T)));
    return out;
}

/// The first `scalarValue` elements, as many as a register has; they are taken off the number. [Mask]
template <class T, const RegTrait& regTrait = RegTraitNumOne>
inline MaskReg UpdateMask(uint32_t& scalarValue, Site at = Site::here()) {
    static_assert(sizeof(T) <= 4, "UpdateMask: the emulator has elements of 8, 16 and 32 bits.");
    if (!begin("Reg::UpdateMask", at, LANES<T>, 1)) return {};
    const uint32_t count = std::min<uint32_t>(scalarValue, LANES<T>);
    scalarValue -= count;
    return first_lanes<T>(static_cast<int>(count));
}

// ---- Address registers ----

/// An offset in bytes.
struct AddrReg {
    int64_t offset = 0;
    bool known = false;
};
/// index0 * stride0 + index1 * stride1 + ..., strides in elements. [page] AddrReg
template <class T>
inline AddrReg CreateAddrReg(uint16_t index0, uint32_t stride0) { return {static_cast<int64_t>(sizeof(T)) * index0 * stride0, true}; }
template <class T>
inline AddrReg CreateAddrReg(uint16_t index0, uint32_t stride0, uint16_t index1, uint32_t stride1) {
    return {CreateAddrReg<T>(index0, stride0).offset + CreateAddrReg<T>(index1, stride1).offset, true};
}
template <class T>
inline AddrReg CreateAddrReg(uint16_t index0, uint32_t stride0, uint16_t index1, uint32_t stride1, uint16_t index2, uint32_t stride2) {
    return {CreateAddrReg<T>(index0, stride0, index1, stride1).offset + CreateAddrReg<T>(index2, stride2).offset, true};
}
template <class T>
inline AddrReg CreateAddrReg(uint16_t index0, uint32_t stride0, uint16_t index1, uint32_t stride1, uint16_t index2, uint32_t stride2, uint16_t index3, uint32_t stride3) {
    return {CreateAddrReg<T>(index0, stride0, index1, stride1, index2, stride2).offset + CreateAddrReg<T>(index3, stride3).offset, true};
}

// ---- Order in memory ----

enum class MemType { VEC_STORE, VEC_LOAD, SCALAR_STORE, SCALAR_LOAD, VEC_ALL, SCALAR_ALL };

/// Loads or stores behind it wait for those before it. [page] LocalMemBar, table 3. Scalar accesses of a vector function
/// are not in the emulator, so that the pairs with one do nothing.
template <MemType src, MemType dst>
inline void LocalMemBar(Site at = Site::here()) {
    using M = MemType;
    using emulator::Reach;
    constexpr bool vector = (src == M::VEC_STORE && (dst == M::VEC_LOAD || dst == M::VEC_STORE)) || (src == M::VEC_LOAD && dst == M::VEC_STORE) || (src == M::VEC_ALL && dst == M::VEC_ALL);
    constexpr bool scalar = (src == M::VEC_STORE && (dst == M::SCALAR_LOAD || dst == M::SCALAR_STORE)) || (src == M::VEC_LOAD && dst == M::SCALAR_STORE) ||
                            (src == M::SCALAR_STORE && (dst == M::VEC_LOAD || dst == M::VEC_STORE)) || (src == M::SCALAR_LOAD && dst == M::VEC_STORE) ||
                            (src == M::VEC_ALL && dst == M::SCALAR_ALL) || (src == M::SCALAR_ALL && dst == M::VEC_ALL);
    static_assert(vector || scalar, "LocalMemBar: dav-3510 does not have this pair of MemType; see table 3 of its page.");
    if (!emulator::in_function("Reg::LocalMemBar", at)) return;
    emulator::register_barrier(scalar ? Reach::Scalar : src == M::VEC_ALL ? Reach::All : src == M::VEC_LOAD ? Reach::StoresAfterLoads : dst == M::VEC_LOAD ? Reach::LoadsAfterStores : Reach::StoresAfterStores, at);
}

}  // namespace Reg

namespace MicroAPI = Reg;

// ---- Calls of vector functions ----

namespace function_impl {

template <class P>
constexpr bool allowed() {
    return std::is_arithmetic_v<P> || std::is_enum_v<P> || std::is_same_v<P, half> || std::is_same_v<P, bfloat16_t> ||
           (std::is_pointer_v<P> && !std::is_function_v<std::remove_pointer_t<P>>);
}

/// Registers the buffer of an argument that is an address; false: it is none of UB.
template <class P>
bool prepare(P& argument, int number, std::vector<emulator::Buffer>& buffers, emulator::Instruction& instruction) {
    buffers.push_back({});
    if constexpr (std::is_pointer_v<P>) {
        const uint64_t pointer = reinterpret_cast<uint64_t>(argument);
        const bool local = pointer >= emulator::POINTER_BASE && pointer < emulator::GLOBAL_BASE && emulator::space_of(pointer) == emulator::Space::UB;
        if (!emulator::require(local, "argument", instruction.at, "asc_vf_call", "argument " + std::to_string(number) + " is no address of UB; take GetPhyAddr of a tensor there.")) return false;
        buffers.back() = emulator::buffer_at(emulator::Space::UB, emulator::offset_of(pointer));
        emulator::Access access;  // of 0 bytes: asks whether a queue's tensor is the program's
        access.operand = "argument", access.begin = emulator::offset_of(pointer), access.allocation = buffers.back().allocation;
        instruction.accesses.push_back(access);
        argument = reinterpret_cast<P>(emulator::pointer_of(emulator::Space::UB, emulator::offset_of(pointer)) + static_cast<uint64_t>(number + 1) * emulator::POINTER_TAG);
    }
    return true;
}

template <auto function, class Type>
struct Call {
    static_assert(sizeof(Type) == 0, "asc_vf_call: its function has to be a plain or a static one that returns nothing.");
};
template <auto function, class... P>
struct Call<function, void (*)(P...)> {
    static_assert((allowed<P>() && ...), "asc_vf_call: arguments have to be addresses of UB or plain numbers; structs and references do not pass.");
    void operator()(P... arguments, Site at = Site::here()) const {
        EMULATOR_USES("asc_uses_vector");
        emulator::Instruction instruction;
        instruction.pipe = emulator::Pipe::V, instruction.name = "asc_vf_call", instruction.at = at;
        std::vector<emulator::Buffer> buffers;
        int number = 0;
        bool legal = true;
        ((legal = prepare(arguments, number++, buffers, instruction) && legal), ...);
        if (!legal) return;
        const uint64_t ctrl = emulator::core().control.ctrl;
        emulator::issue(std::move(instruction), [=] {
            emulator::function_begin(buffers, ctrl);
            function(arguments...);
            emulator::function_end();
        });
    }
};

}  // namespace function_impl
}  // namespace AscendC

/// Runs a function marked __simd_vf__ on pipe V: asc_vf_call<function>(arguments...). [page] asc_vf_call
template <auto function>
constexpr AscendC::function_impl::Call<function, decltype(function)> asc_vf_call{};
