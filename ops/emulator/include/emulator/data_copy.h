// Copies between global memory and UB, and within UB.
#pragma once

#include "lanes.h"

namespace AscendC {

struct DataCopyParams {
    DataCopyParams() = default;
    DataCopyParams(uint16_t count, uint16_t length, uint16_t source_gap, uint16_t destination_gap)
        : blockCount(count), blockLen(length), srcStride(source_gap), dstStride(destination_gap) {}
    uint16_t blockCount = 1, blockLen = 0;
    union { uint16_t srcStride = 0; uint16_t srcGap; };
    union { uint16_t dstStride = 0; uint16_t dstGap; };
};

struct DataCopyExtParams {
    DataCopyExtParams() = default;
    DataCopyExtParams(uint16_t count, uint32_t length, int64_t source_gap, int64_t destination_gap, uint32_t reserved)
        : blockCount(count), blockLen(length), srcStride(static_cast<Gap>(source_gap)), dstStride(static_cast<Gap>(destination_gap)), rsv(reserved) {}
    using Gap = std::conditional_t<is_3510, int64_t, uint32_t>;
    uint16_t blockCount = 1;
    uint32_t blockLen = 0;
    Gap srcStride = 0, dstStride = 0;
    uint32_t rsv = 0;
};

struct DataCopyPadParams {
    DataCopyPadParams() = default;
    DataCopyPadParams(bool pad, uint8_t left, uint8_t right, uint64_t value) : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    uint64_t paddingValue = 0;
};

template <class T>
struct DataCopyPadExtParams {
    DataCopyPadExtParams() = default;
    DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value) : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
    bool isPad = false;
    uint8_t leftPadding = 0, rightPadding = 0;
    T paddingValue{};
};

/// How the rows of a DataCopyPad lie in UB: each from a block of 32 bytes on, or one behind the other (dav-3510).
enum class PaddingMode : uint8_t { Normal = 0, Compact };

namespace emu {

/// Rows of a copy: `count` rows of `bytes`, at pitches that may differ on both sides.
struct Rows {
    int64_t count, bytes, source_pitch, destination_pitch;
};

/// dst = src, or dst = dst op src in global memory when atomic writes are on. Unknown: how a sum beyond an integer type
/// ends; it wraps here.
template <class T>
void store_row(uint8_t* to, const uint8_t* from, int64_t bytes, const emulator::Control& control) {
    if (!control.atomic) {
        std::memcpy(to, from, static_cast<size_t>(bytes));
        return;
    }
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(T)); ++i) {
        T a, b;
        std::memcpy(&a, to + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
        std::memcpy(&b, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>)
            a = control.atomic_op == 0 ? static_cast<T>(a + b) : control.atomic_op == 1 ? (b > a ? b : a) : (b < a ? b : a);
        std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &a, sizeof(T));
    }
}

}  // namespace emu

// In a namespace of its own, so that a kernel may use these names.
namespace copy_impl {

/// What stands before and behind the bytes of a row in UB, up to whole blocks of 32 bytes. Source: the page of DataCopyPad
/// (GM to UB): without paddings the rest of the last block is filled with the row's first element; with them, paddings and
/// rest are paddingValue when isPad is set and otherwise random. In L1 only the latter (DataCopyPad, GM to L1).
struct PadFill {
    int64_t left = 0, right = 0;  // bytes
    bool value_given = false, in_l1 = false;
    int64_t whole(int64_t bytes) const { return (left + bytes + right + 31) / 32 * 32; }
    bool first_element() const { return left == 0 && right == 0 && !in_l1; }
    bool undefined() const { return !first_element() && !value_given; }
};

// What follows works on bytes: one code for all types of elements.

/// An element of up to 16 bytes, to fill with.
struct Filler {
    uint8_t bytes[16] = {};
    int64_t size = 1;
    template <class T>
    static Filler of(const T& value) {
        static_assert(sizeof(T) <= 16);
        Filler out;
        std::memcpy(out.bytes, &value, sizeof(T));
        out.size = sizeof(T);
        return out;
    }
    /// Copies of it from `begin` on; a cut one stays at the end.
    void fill(uint8_t* begin, int64_t count) const {
        for (int64_t i = 0; i < count; i += size) std::memcpy(begin + i, bytes, static_cast<size_t>(std::min(size, count - i)));
    }
};

/// An instruction that moves bytes between global memory and a local one.
inline emulator::Instruction move_instruction(const char* call, Site at, emulator::Pipe pipe, const char* path, int64_t bytes) {
    emulator::Instruction out;
    out.pipe = pipe, out.name = call, out.at = at;
    out.cost = emulator::Cost::move(path, static_cast<uint64_t>(bytes));
    return out;
}

inline emulator::Access in_rows(emulator::Access access, int64_t rows, int64_t pitch) {
    access.runs = rows, access.pitch = pitch;
    return access;
}

template <class T>
LocalTensor<uint8_t> bytes_of(const LocalTensor<T>& tensor) { return tensor.template ReinterpretCast<uint8_t>(); }

/// What DataCopyPad copies into.
inline bool in_reach(const LocalTensor<uint8_t>& dst, const char* call, Site at) {
    const bool reached = dst.space() == emulator::Space::UB || (is_3510 && dst.space() == emulator::Space::L1);
    return emulator::require(reached, "wrong_core", at, call, is_3510 ? "this form copies into UB or L1." : "this form copies into UB.");
}

inline const char* path_into(const LocalTensor<uint8_t>& dst) { return dst.space() == emulator::Space::UB ? "GM->UB" : "GM->L1"; }

inline void copy_in(const char* call, Site at, const LocalTensor<uint8_t>& dst, const GlobalTensor<uint8_t>& src, emu::Rows rows,
                    PadFill fill, Filler value) {
    using emulator::Access;
    if (!in_reach(dst, call, at)) return;
    emulator::Instruction instruction = move_instruction(call, at, emulator::Pipe::MTE2, path_into(dst), rows.count * rows.bytes);
    const int64_t whole = fill.whole(rows.bytes);
    const auto part = [&](int64_t begin, int64_t bytes, bool undefined) {
        Access to = in_rows(dst.bytes(Access::Kind::Write, "dst", begin, bytes, begin == 0 ? 32 : 1), rows.count, rows.destination_pitch);
        to.scratch = undefined;
        return to;
    };
    instruction.accesses = {in_rows(src.bytes(Access::Kind::Read, "src", 0, rows.bytes), rows.count, rows.source_pitch)};
    if (fill.undefined() && fill.left > 0) instruction.accesses.push_back(part(0, fill.left, true));
    const int64_t begin = fill.undefined() ? fill.left : 0, end = fill.undefined() ? fill.left + rows.bytes : whole;
    instruction.accesses.push_back(part(begin, end - begin, false));
    if (whole > end) instruction.accesses.push_back(part(end, whole - end, true));
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(instruction), [=] {
        const int64_t rest = whole - fill.left - rows.bytes;
        for (int64_t row = 0; row < rows.count; ++row) {
            uint8_t* const to = out + row * rows.destination_pitch;
            const uint8_t* const source = src.host(row * rows.source_pitch);
            if (fill.undefined()) {
                std::memset(to, 0xff, static_cast<size_t>(fill.left));
                std::memset(to + fill.left + rows.bytes, 0xff, static_cast<size_t>(rest));
            } else if (rest > 0 || fill.left > 0) {
                Filler filler = value;
                if (fill.first_element()) std::memcpy(filler.bytes, source, static_cast<size_t>(std::min(filler.size, rows.bytes)));
                filler.fill(to, fill.left);
                filler.fill(to + fill.left + rows.bytes, rest);
            }
            std::memcpy(to + fill.left, source, static_cast<size_t>(rows.bytes));
        }
    });
}

/// Rows one behind the other; behind the last, up to a block of 32 bytes, nothing is defined. Unknown: what stands there.
inline void copy_compact(Site at, const LocalTensor<uint8_t>& dst, const GlobalTensor<uint8_t>& src, emu::Rows rows) {
    using emulator::Access;
    if (!in_reach(dst, "DataCopyPad", at)) return;
    const int64_t bytes = rows.count * rows.bytes, rest = (bytes + 31) / 32 * 32 - bytes;
    emulator::Instruction instruction = move_instruction("DataCopyPad", at, emulator::Pipe::MTE2, path_into(dst), bytes);
    instruction.accesses = {in_rows(src.bytes(Access::Kind::Read, "src", 0, rows.bytes), rows.count, rows.source_pitch),
                            dst.bytes(Access::Kind::Write, "dst", 0, bytes)};
    if (rest > 0) {
        instruction.accesses.push_back(dst.bytes(Access::Kind::Write, "dst", bytes, rest, 1));
        instruction.accesses.back().scratch = true;
    }
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            std::memcpy(out + row * rows.bytes, src.host(row * rows.source_pitch), static_cast<size_t>(rows.bytes));
        std::memset(out + bytes, 0xff, static_cast<size_t>(rest));
    });
}

/// How a row is written to global memory, and the type that atomic writes have to be on for.
struct Store {
    void (*row)(uint8_t*, const uint8_t*, int64_t, const emulator::Control&);
    uint8_t atomic_type;
    template <class T>
    static Store of() { return {emu::store_row<T>, atomic_impl::type<T>()}; }
};

/// `from_l1`: the form takes L1 as well, as DataCopy does on dav-2201. Unknown: the rate of that path; it costs no time.
inline void copy_out(const char* call, Site at, const GlobalTensor<uint8_t>& dst, const LocalTensor<uint8_t>& src, emu::Rows rows,
                     uint32_t destination_align, Store store, bool from_l1 = false) {
    EMULATOR_USES("asc_uses_vector");
    using emulator::Access;
    const emulator::Control control = emulator::core().control;
    const bool l1 = src.space() == emulator::Space::L1 && from_l1;
    if (!emulator::require(src.space() == emulator::Space::UB || l1, "wrong_core", at, call, is_3510 ? "this form copies from UB to global memory; dav-3510 has no path from L1." : from_l1 ? "this form copies from UB or L1 to global memory." : "this form copies from UB to global memory.")) return;
    if (!emulator::require(!control.atomic || control.atomic_type == 0 || control.atomic_type == store.atomic_type, "argument", at, call, "atomic writes are on for another type than the tensor's; give SetAtomicAdd the type of the copy.")) return;
    emulator::Instruction instruction = move_instruction(call, at, emulator::Pipe::MTE3, l1 ? "L1->GM" : "UB->GM", rows.count * rows.bytes);
    const Access::Kind kind = control.atomic ? Access::Kind::Atomic : Access::Kind::Write;
    instruction.accesses = {in_rows(src.bytes(Access::Kind::Read, "src", 0, rows.bytes), rows.count, rows.source_pitch),
                            in_rows(dst.bytes(kind, "dst", 0, rows.bytes, l1 ? 1 : destination_align), rows.count, rows.destination_pitch)};
    const uint8_t* const in = emulator::core().local(src.space(), src.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            store.row(dst.host(row * rows.destination_pitch), in + row * rows.source_pitch, rows.bytes, control);
    });
}

}  // namespace copy_impl

namespace emu {

// ---- In blocks of 32 bytes ----

inline Rows block_rows(const DataCopyParams& p) {
    return {p.blockCount, p.blockLen * 32ll, (p.blockLen + p.srcStride) * 32ll, (p.blockLen + p.dstStride) * 32ll};
}

/// False for a copy of nothing too, which the documentation says does nothing.
inline bool legal_copy(const DataCopyParams& p, const char* call, Site at) {
    if (p.blockCount == 0 || p.blockLen == 0) return false;
    return emulator::require(p.blockCount <= 4095, "argument", at, call, "blockCount is " + std::to_string(p.blockCount) + "; it may be at most 4095.");
}

}  // namespace emu

namespace copy_impl {

inline bool legal_count(int64_t count, int64_t bytes, const char* call, Site at) {
    return emulator::require(bytes > 0 && bytes % 32 == 0, "alignment", at, call, std::to_string(count) + " elements are " + std::to_string(bytes) + " bytes; a copy without padding moves a positive multiple of 32: take DataCopyPad for the tail.");
}

}  // namespace copy_impl

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, Site at = Site::here());
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, Site at = Site::here());

template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at = Site::here()) {
    if (emu::legal_copy(params, "DataCopy", at)) copy_impl::copy_out("DataCopy", at, dst.raw(), copy_impl::bytes_of(src), emu::block_rows(params), sizeof(T), copy_impl::Store::of<T>(), is_2201);
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Site at = Site::here()) {
    const int64_t bytes = static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T));
    if (copy_impl::legal_count(count, bytes, "DataCopy", at)) copy_impl::copy_out("DataCopy", at, dst.raw(), copy_impl::bytes_of(src), {1, bytes, bytes, bytes}, sizeof(T), copy_impl::Store::of<T>(), is_2201);
}

/// Within UB, on the vector pipe.
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at = Site::here());

// ---- In bytes, with padding ----

namespace copy_impl {

/// False for a copy of nothing too, which the documentation says does nothing.
inline bool legal_pad(const DataCopyExtParams& p, int64_t size, const char* call, Site at) {
    if (p.blockCount == 0 || p.blockLen == 0) return false;
    return emulator::require(p.blockCount <= 4095, "argument", at, call, "blockCount is " + std::to_string(p.blockCount) + "; it may be at most 4095.") &&
           emulator::require(p.blockLen <= 2097151, "argument", at, call, "blockLen is " + std::to_string(p.blockLen) + "; it counts bytes and may be at most 2097151.") &&
           emulator::require(p.blockLen % size == 0, "alignment", at, call, "blockLen is " + std::to_string(p.blockLen) + " bytes; it has to be a multiple of the element's " + std::to_string(size) + ".");
}

/// Gaps in global memory (bytes) and in UB (blocks of 32 bytes). `lowest`: of the one in global memory.
inline bool legal_gaps(int64_t global_gap, int64_t local_gap, int64_t lowest, const char* call, Site at) {
    if constexpr (!is_3510) return true;  // of the type's 32 bits, all are allowed
    return emulator::require(global_gap >= lowest && global_gap < (1ll << 40), "argument", at, call, "the gap in global memory is " + std::to_string(global_gap) + " bytes; it has to be " + std::to_string(lowest) + " to 2^40 - 1.") &&
           emulator::require(local_gap >= 0 && local_gap <= 65535, "argument", at, call, "the gap in UB is " + std::to_string(local_gap) + " blocks; it has to be 0 to 65535.");
}

}  // namespace copy_impl

/// The value with which DataCopyPad fills paddings when its isPad is false; as many of its bytes as the copy's elements have.
/// Source: [SetPadValue]. Unknown: whether a copy with isPad changes it; here it does not.
template <class T, TPosition pos = TPosition::MAX>
void SetPadValue(T paddingValue, Site at = Site::here()) {
    static_assert(pos == TPosition::VECIN || pos == TPosition::VECOUT || pos == TPosition::MAX, "SetPadValue: pos is VECIN, VECOUT or MAX");
    constexpr bool has = (std::is_arithmetic_v<T> && sizeof(T) <= 8 && (is_3510 || !std::is_same_v<T, bool>)) || std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t>;
    static_assert(has, "SetPadValue: types are int8_t to uint64_t, half, bfloat16_t, float and double; bool on dav-3510");
    uint64_t bits = 0;
    std::memcpy(&bits, &paddingValue, sizeof(T));
    if (!emulator::require(sizeof(T) < 8 || bits == 0, "argument", at, "SetPadValue", "paddingValue of a type of 64 bits can only be 0.")) return;
    auto& control = emulator::core().control;
    control.copy_padding = bits, control.copy_padding_set = true;
}

/// dst row r = src row r, from a block of 32 bytes on, between the paddings. Compact (dav-3510): the rows lie one behind
/// the other, and the end of the last is filled up to a block. Source: the page of DataCopyPad (GM to UB).
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& params, const DataCopyPadExtParams<T>& pad, Site at = Site::here()) {
    static_assert(mode == PaddingMode::Normal || is_3510, "DataCopyPad: the compact mode exists on dav-3510 only");
    if (!copy_impl::legal_pad(params, sizeof(T), "DataCopyPad", at) || !copy_impl::legal_gaps(params.srcStride, params.dstStride, -static_cast<int64_t>(params.blockLen), "DataCopyPad", at)) return;
    const int64_t size = sizeof(T), bytes = params.blockLen, source_pitch = bytes + static_cast<int64_t>(params.srcStride);
    if (mode == PaddingMode::Compact) return copy_impl::copy_compact(at, copy_impl::bytes_of(dst), src.raw(), emu::Rows{params.blockCount, bytes, source_pitch, bytes});
    const emulator::Control& control = emulator::core().control;
    const bool outside = !pad.isPad && control.copy_padding_set && dst.space() == emulator::Space::UB;
    const copy_impl::PadFill fill{pad.leftPadding * size, pad.rightPadding * size, pad.isPad || outside, dst.space() == emulator::Space::L1};
    if (!emulator::require(fill.left <= 32 && fill.right <= 32, "argument", at, "DataCopyPad", "leftPadding " + std::to_string(pad.leftPadding) + " and rightPadding " + std::to_string(pad.rightPadding) + " may be at most 32 bytes each.")) return;
    if constexpr (sizeof(T) == 8) {
        const T zero{};
        if (!emulator::require(!pad.isPad || std::memcmp(&pad.paddingValue, &zero, sizeof(T)) == 0, "argument", at, "DataCopyPad", "paddingValue of a type of 64 bits can only be 0.")) return;
    }
    const emu::Rows rows{params.blockCount, bytes, source_pitch, fill.whole(bytes) + static_cast<int64_t>(params.dstStride) * 32};
    T value = pad.paddingValue;
    if (outside) std::memcpy(static_cast<void*>(&value), &control.copy_padding, std::min(sizeof(T), sizeof control.copy_padding));
    copy_impl::copy_in("DataCopyPad", at, copy_impl::bytes_of(dst), src.raw(), rows, fill, copy_impl::Filler::of(value));
}
/// dst row r = src row r: exactly blockLen bytes; in UB each row begins at a block of 32 bytes, in the compact mode
/// (dav-3510) where the last one ended. Source: the page of DataCopyPad (UB to GM).
template <class T, PaddingMode mode = PaddingMode::Normal>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& params, Site at = Site::here()) {
    static_assert(mode == PaddingMode::Normal || is_3510, "DataCopyPad: the compact mode exists on dav-3510 only");
    if (!copy_impl::legal_pad(params, sizeof(T), "DataCopyPad", at) || !copy_impl::legal_gaps(params.dstStride, params.srcStride, 0, "DataCopyPad", at)) return;
    const int64_t bytes = params.blockLen, whole = mode == PaddingMode::Compact ? bytes : (bytes + 31) / 32 * 32;
    const int64_t gap = mode == PaddingMode::Compact ? 0 : static_cast<int64_t>(params.srcStride) * 32;
    const emu::Rows rows{params.blockCount, bytes, whole + gap, bytes + static_cast<int64_t>(params.dstStride)};
    copy_impl::copy_out("DataCopyPad", at, dst.raw(), copy_impl::bytes_of(src), rows, 1, copy_impl::Store::of<T>());
}
template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p, const DataCopyPadParams& pad, Site at = Site::here()) {
    T value;
    std::memcpy(&value, &pad.paddingValue, std::min(sizeof(T), sizeof(uint64_t)));
    DataCopyPad(dst, src, DataCopyExtParams{p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0}, DataCopyPadExtParams<T>{pad.isPad, pad.leftPadding, pad.rightPadding, value}, at);
}
template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, Site at = Site::here()) {
    DataCopyPad(dst, src, DataCopyExtParams{p.blockCount, p.blockLen, p.srcStride, p.dstStride, 0}, at);
}

// ---- Global memory to a local one: UB, or L1 as its rows are (see cube_copy.h for the fractal layouts) ----

namespace copy_impl {

/// Without padding; `align`: of the address in global memory.
inline void copy_rows_in(Site at, const LocalTensor<uint8_t>& dst, const GlobalTensor<uint8_t>& src, emu::Rows rows, uint32_t align) {
    using emulator::Access;
    const bool reached = dst.space() == emulator::Space::UB || dst.space() == emulator::Space::L1;
    if (!emulator::require(reached, "wrong_core", at, "DataCopy", "global memory is copied into UB or L1 only.")) return;
    emulator::Instruction instruction = move_instruction("DataCopy", at, emulator::Pipe::MTE2, path_into(dst), rows.count * rows.bytes);
    instruction.accesses = {in_rows(src.bytes(Access::Kind::Read, "src", 0, rows.bytes, align), rows.count, rows.source_pitch),
                            in_rows(dst.bytes(Access::Kind::Write, "dst", 0, rows.bytes), rows.count, rows.destination_pitch)};
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            std::memcpy(out + row * rows.destination_pitch, src.host(row * rows.source_pitch), static_cast<size_t>(rows.bytes));
    });
}

/// Within UB, on the vector pipe.
inline void copy_within(Site at, const LocalTensor<uint8_t>& dst, const LocalTensor<uint8_t>& src, emu::Rows rows, int64_t size) {
    using emulator::Access;
    const uint64_t bytes = static_cast<uint64_t>(rows.count * rows.bytes);
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::V, instruction.name = "DataCopy", instruction.at = at;
    instruction.cost = emulator::Cost::vector("DataCopy", bytes / static_cast<uint64_t>(size), (bytes + 255) / 256);
    instruction.accesses = {in_rows(src.bytes(Access::Kind::Read, "src", 0, rows.bytes), rows.count, rows.source_pitch),
                            in_rows(dst.bytes(Access::Kind::Write, "dst", 0, rows.bytes), rows.count, rows.destination_pitch)};
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    const uint8_t* const in = emulator::core().local(src.space(), src.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            std::memmove(out + row * rows.destination_pitch, in + row * rows.source_pitch, static_cast<size_t>(rows.bytes));
    });
}

}  // namespace copy_impl

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, Site at) {
    if (emu::legal_copy(params, "DataCopy", at)) copy_impl::copy_rows_in(at, copy_impl::bytes_of(dst), src.raw(), emu::block_rows(params), sizeof(T));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, Site at) {
    const int64_t bytes = static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T));
    if (copy_impl::legal_count(count, bytes, "DataCopy", at)) copy_impl::copy_rows_in(at, copy_impl::bytes_of(dst), src.raw(), {1, bytes, bytes, bytes}, sizeof(T));
}

namespace emu {

/// Between local memories that are not both UB: see cube_copy.h.
template <class T>
void copy_between(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at);
template <class T>
void copy_between(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Site at);

}  // namespace emu

template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at) {
    if (dst.space() != emulator::Space::UB || src.space() != emulator::Space::UB) return emu::copy_between(dst, src, params, at);
    if (emu::legal_copy(params, "DataCopy", at)) copy_impl::copy_within(at, copy_impl::bytes_of(dst), copy_impl::bytes_of(src), emu::block_rows(params), sizeof(T));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Site at = Site::here()) {
    if (dst.space() != emulator::Space::UB || src.space() != emulator::Space::UB) return emu::copy_between(dst, src, count, at);
    if (copy_impl::legal_count(count, static_cast<int64_t>(count * sizeof(T)), "DataCopy", at)) DataCopy(dst, src, DataCopyParams{1, static_cast<uint16_t>(count * sizeof(T) / 32), 0, 0}, at);
}

}  // namespace AscendC
