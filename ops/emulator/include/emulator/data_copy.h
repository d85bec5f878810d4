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

/// Rows of a copy: `count` rows of `bytes`, at pitches that may differ on both sides.
struct Rows {
    int64_t count, bytes, source_pitch, destination_pitch;
};

/// dst = src, or dst = dst op src in global memory when atomic writes are on.
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

template <class T>
void copy_in(const char* call, Site at, const LocalTensor<T>& dst, const GlobalTensor<T>& src, Rows rows, const DataCopyPadExtParams<T>* pad) {
    using emulator::Access;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::MTE2, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move("GM->UB", static_cast<uint64_t>(rows.count * rows.bytes));
    Access from = src.bytes(Access::Kind::Read, "src", 0, rows.bytes);
    from.runs = rows.count, from.pitch = rows.source_pitch;
    // Every row begins at a block of 32 bytes; what is left of its last block is filled too.
    const int64_t left = pad && pad->isPad ? pad->leftPadding * static_cast<int64_t>(sizeof(T)) : 0;
    const int64_t right = pad && pad->isPad ? pad->rightPadding * static_cast<int64_t>(sizeof(T)) : 0;
    const int64_t whole = (left + rows.bytes + right + 31) / 32 * 32;
    Access to = dst.bytes(Access::Kind::Write, "dst", 0, whole);
    to.runs = rows.count, to.pitch = rows.destination_pitch;
    instruction.accesses = {from, to};
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    const T value = pad ? pad->paddingValue : T{};
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row) {
            uint8_t* const to_row = out + row * rows.destination_pitch;
            std::memset(to_row, 0xff, static_cast<size_t>(whole));  // dummy bytes: NaN, so that their use shows
            for (int64_t i = 0; i < left; i += sizeof(T)) std::memcpy(to_row + i, &value, sizeof(T));
            std::memcpy(to_row + left, src.host(row * rows.source_pitch), static_cast<size_t>(rows.bytes));
            for (int64_t i = 0; i < right; i += sizeof(T)) std::memcpy(to_row + left + rows.bytes + i, &value, sizeof(T));
        }
    });
}

template <class T>
void copy_out(const char* call, Site at, const GlobalTensor<T>& dst, const LocalTensor<T>& src, Rows rows) {
    EMULATOR_USES("asc_uses_vector");
    using emulator::Access;
    const emulator::Control control = emulator::core().control;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::MTE3, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move("UB->GM", static_cast<uint64_t>(rows.count * rows.bytes));
    Access from = src.bytes(Access::Kind::Read, "src", 0, rows.bytes);
    from.runs = rows.count, from.pitch = rows.source_pitch;
    Access to = dst.bytes(control.atomic ? Access::Kind::Atomic : Access::Kind::Write, "dst", 0, rows.bytes);
    to.runs = rows.count, to.pitch = rows.destination_pitch;
    instruction.accesses = {from, to};
    const uint8_t* const in = emulator::core().local(src.space(), src.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            store_row<T>(dst.host(row * rows.destination_pitch), in + row * rows.source_pitch, rows.bytes, control);
    });
}

// ---- In blocks of 32 bytes ----

inline Rows block_rows(const DataCopyParams& p) {
    return {p.blockCount, p.blockLen * 32ll, (p.blockLen + p.srcStride) * 32ll, (p.blockLen + p.dstStride) * 32ll};
}

inline bool legal_copy(const DataCopyParams& p, const char* call, Site at) {
    return emulator::require(p.blockCount >= 1 && p.blockCount <= 4095, "argument", at, call, "blockCount is " + std::to_string(p.blockCount) + "; it has to be 1 to 4095.") &&
           emulator::require(p.blockLen >= 1, "argument", at, call, "blockLen is 0; it counts blocks of 32 bytes and has to be at least 1.");
}

template <class T>
bool legal_count(uint32_t count, const char* call, Site at) {
    return emulator::require(count > 0 && count * sizeof(T) % 32 == 0, "alignment", at, call, std::to_string(count) + " elements are " + std::to_string(count * sizeof(T)) + " bytes; a copy without padding moves a positive multiple of 32: take DataCopyPad for the tail.");
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, Site at = Site::here());
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, Site at = Site::here());

template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at = Site::here()) {
    if (legal_copy(params, "DataCopy", at)) copy_out("DataCopy", at, dst, src, block_rows(params));
}
template <class T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Site at = Site::here()) {
    const int64_t bytes = static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T));
    if (legal_count<T>(count, "DataCopy", at)) copy_out("DataCopy", at, dst, src, {1, bytes, bytes, bytes});
}

/// Within UB, on the vector pipe.
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at = Site::here());

// ---- In bytes, with padding ----

inline bool legal_pad(uint16_t count, int64_t length, const char* call, Site at) {
    return emulator::require(count >= 1 && count <= 4095, "argument", at, call, "blockCount is " + std::to_string(count) + "; it has to be 1 to 4095.") &&
           emulator::require(length >= 1 && length <= 2097151, "argument", at, call, "blockLen is " + std::to_string(length) + "; it counts bytes and has to be 1 to 2097151.");
}

template <class T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& params, const DataCopyPadExtParams<T>& pad, Site at = Site::here()) {
    if (!legal_pad(params.blockCount, params.blockLen, "DataCopyPad", at)) return;
    const int64_t left = pad.isPad ? pad.leftPadding : 0, right = pad.isPad ? pad.rightPadding : 0;
    if (!emulator::require(left * static_cast<int64_t>(sizeof(T)) <= 32 && right * static_cast<int64_t>(sizeof(T)) <= 32, "argument", at, "DataCopyPad", "leftPadding " + std::to_string(left) + " and rightPadding " + std::to_string(right) + " may be at most 32 bytes each.")) return;
    const int64_t whole = (params.blockLen + (left + right) * static_cast<int64_t>(sizeof(T)) + 31) / 32 * 32;
    copy_in("DataCopyPad", at, dst, src, {params.blockCount, params.blockLen, params.blockLen + params.srcStride, whole + params.dstStride * 32}, &pad);
}
template <class T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& params, Site at = Site::here()) {
    if (!legal_pad(params.blockCount, params.blockLen, "DataCopyPad", at)) return;
    const int64_t whole = (params.blockLen + 31ll) / 32 * 32;
    copy_out("DataCopyPad", at, dst, src, {params.blockCount, params.blockLen, whole + params.srcStride * 32, params.blockLen + params.dstStride});
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

template <class T>
void copy_rows_in(const char* call, Site at, const LocalTensor<T>& dst, const GlobalTensor<T>& src, Rows rows) {
    if (dst.space() == emulator::Space::UB) return copy_in<T>(call, at, dst, src, rows, nullptr);
    using emulator::Access;
    if (!emulator::require(dst.space() == emulator::Space::L1, "wrong_core", at, call, "global memory is copied into UB or L1 only.")) return;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::MTE2, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move("GM->L1", static_cast<uint64_t>(rows.count * rows.bytes));
    Access from = src.bytes(Access::Kind::Read, "src", 0, rows.bytes);
    from.runs = rows.count, from.pitch = rows.source_pitch;
    Access to = dst.bytes(Access::Kind::Write, "dst", 0, rows.bytes);
    to.runs = rows.count, to.pitch = rows.destination_pitch;
    instruction.accesses = {from, to};
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            std::memcpy(out + row * rows.destination_pitch, src.host(row * rows.source_pitch), static_cast<size_t>(rows.bytes));
    });
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, Site at) {
    if (legal_copy(params, "DataCopy", at)) copy_rows_in("DataCopy", at, dst, src, block_rows(params));
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, uint32_t count, Site at) {
    const int64_t bytes = static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T));
    if (legal_count<T>(count, "DataCopy", at)) copy_rows_in("DataCopy", at, dst, src, {1, bytes, bytes, bytes});
}

template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site at) {
    EMULATOR_USES("asc_uses_vector");
    using emulator::Access;
    if (!legal_copy(params, "DataCopy", at)) return;
    if (!emulator::require(dst.space() == emulator::Space::UB && src.space() == emulator::Space::UB, "wrong_core", at, "DataCopy", "this form copies within UB.")) return;
    const Rows rows = block_rows(params);
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::V, instruction.name = "DataCopy", instruction.at = at;
    instruction.cost = emulator::Cost::vector("DataCopy", static_cast<uint64_t>(rows.count * rows.bytes) / sizeof(T), static_cast<uint64_t>(rows.count * rows.bytes + 255) / 256);
    Access from = src.bytes(Access::Kind::Read, "src", 0, rows.bytes);
    from.runs = rows.count, from.pitch = rows.source_pitch;
    Access to = dst.bytes(Access::Kind::Write, "dst", 0, rows.bytes);
    to.runs = rows.count, to.pitch = rows.destination_pitch;
    instruction.accesses = {from, to};
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    const uint8_t* const in = emulator::core().local(src.space(), src.address());
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            std::memmove(out + row * rows.destination_pitch, in + row * rows.source_pitch, static_cast<size_t>(rows.bytes));
    });
}
template <class T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Site at = Site::here()) {
    if (legal_count<T>(count, "DataCopy", at)) DataCopy(dst, src, DataCopyParams{1, static_cast<uint16_t>(count * sizeof(T) / 32), 0, 0}, at);
}

}  // namespace AscendC
