// Copies of the cube core: global memory into the fractal layout of L1, L1 to the bias and fixpipe buffers, UB <-> L1
// of dav-3510, and constants in L1, L0A and L0B.
//
// A fractal is 512 bytes: 16 rows of C0 = 32 bytes. NZ puts a matrix down by column groups of C0, each of them row by
// row.
#pragma once

#include <cstdlib>

#include "data_copy.h"

namespace AscendC {

namespace emu {

constexpr int64_t FRACTAL_BYTES = 512, FRACTAL_ROWS = 16, C0_BYTES = 32;

}  // namespace emu

namespace cube_impl {

/// is_3510, for a static_assert of a template that has to fail only where it is used.
template <class T>
constexpr bool on_3510() {
    return is_3510 && sizeof(T) > 0;
}

template <class T, class... Types>
constexpr bool one_of() {
    return (std::is_same_v<T, Types> || ...);
}

/// Types of 16 and 32 bits that every cube core moves.
template <class T>
constexpr bool wide() {
    return one_of<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>();
}
template <class T>
constexpr bool fp4() {
    return one_of<T, fp4x2_e2m1_t, fp4x2_e1m2_t>();
}
template <class T>
constexpr bool fp8() {
    return one_of<T, fp8_e4m3fn_t, fp8_e5m2_t, hifloat8_t>();
}

inline bool in_range(int64_t value, int64_t low, int64_t high, const char* name, const char* call, Site at) {
    return emulator::require(value >= low && value <= high, "argument", at, call,
                             std::string(name) + " is " + std::to_string(value) + "; it has to be " +
                                 std::to_string(low) + " to " + std::to_string(high) + ".");
}
inline bool is_in(emulator::Space space, emulator::Space wanted, const char* operand, const char* position,
                  const char* call, Site at) {
    return emulator::require(space == wanted, "wrong_core", at, call,
                             std::string(operand) + " has to be at " + position + ".");
}

/// `access` repeated: `runs` times `pitch` apart, and all of that `groups` times.
inline emulator::Access repeated(emulator::Access access, int64_t runs, int64_t pitch, int64_t groups = 1,
                                 int64_t group_pitch = 0) {
    access.runs = runs, access.pitch = pitch, access.groups = groups, access.group_pitch = group_pitch;
    return access;
}

/// An operand without its type, so that what works on it is compiled once: where it is, as an access and on the host.
struct Place {
    emulator::Access access;
    uint8_t* host = nullptr;
    emulator::Space space() const { return access.space; }
    int64_t address() const { return access.begin; }
    emulator::Access bytes(emulator::Access::Kind kind, const char* operand, int64_t offset, int64_t bytes,
                           uint32_t align = 32) const {
        emulator::Access out = access;
        out.kind = kind, out.operand = operand, out.begin += offset, out.bytes = bytes, out.align = align;
        return out;
    }
};
/// `owner`: 0 the block's cube core, 1 and 2 its vector cores; a core that the kernel does not have gives no host
/// address.
template <class T>
Place place(const LocalTensor<T>& tensor, int owner = -1) {
    Place out{tensor.bytes(emulator::Access::Kind::Read, "", 0, 0), nullptr};
    out.access.owner = static_cast<int8_t>(owner);
    const emulator::Core* const core = owner < 0 ? &emulator::core() : emulator::sibling(owner);
    if (core) out.host = core->local(tensor.space(), tensor.address());
    return out;
}
template <class T>
Place place(const GlobalTensor<T>& tensor) {
    return {tensor.bytes(emulator::Access::Kind::Read, "", 0, 0), tensor.host()};
}

}  // namespace cube_impl

// ---- ND and DN to NZ -----------------------------------------------------------------------------------------------

struct Nd2NzParams {
    using Wide = std::conditional_t<is_3510, uint64_t, uint16_t>;  // strides of the source
    using Count = std::conditional_t<is_3510, uint32_t, uint16_t>;
    Nd2NzParams() = default;
    Nd2NzParams(uint16_t ndNum, uint16_t nValue, Count dValue, Wide srcNdMatrixStride, Wide srcDValue,
                uint16_t dstNzC0Stride, uint16_t dstNzNStride, Count dstNzMatrixStride)
        : ndNum(ndNum), nValue(nValue), dValue(dValue), srcNdMatrixStride(srcNdMatrixStride), srcDValue(srcDValue),
          dstNzC0Stride(dstNzC0Stride), dstNzNStride(dstNzNStride), dstNzMatrixStride(dstNzMatrixStride) {}
    uint16_t ndNum = 0, nValue = 0;
    Count dValue = 0;
    Wide srcNdMatrixStride = 0, srcDValue = 0;
    uint16_t dstNzC0Stride = 0, dstNzNStride = 0;
    Count dstNzMatrixStride = 0;
};

struct Dn2NzParams {
    Dn2NzParams() = default;
    Dn2NzParams(uint16_t dnNum, uint16_t nValue, uint32_t dValue, uint64_t srcDnMatrixStride, uint64_t srcDValue,
                uint16_t dstNzC0Stride, uint16_t dstNzNStride, uint32_t dstNzMatrixStride)
        : dnNum(dnNum), nValue(nValue), dValue(dValue), srcDnMatrixStride(srcDnMatrixStride), srcDValue(srcDValue),
          dstNzC0Stride(dstNzC0Stride), dstNzNStride(dstNzNStride), dstNzMatrixStride(dstNzMatrixStride) {}
    uint16_t dnNum = 0, nValue = 0;
    uint32_t dValue = 0;
    uint64_t srcDnMatrixStride = 0, srcDValue = 0;
    uint16_t dstNzC0Stride = 0, dstNzNStride = 0;
    uint32_t dstNzMatrixStride = 0;
};

namespace emu {

/// `matrices` matrices of `rows` x `columns` elements to NZ; strides of the source in elements, of the destination in
/// bytes. `transposed`: the source has its columns one after another (DN). `small`: C0 is 4 elements, rows follow each
/// other.
struct ToNz {
    int64_t matrices, rows, columns, matrix_stride, row_stride, c0_stride, n_stride, nz_matrix_stride;
    bool transposed, small;
};

/// Copies `count` elements that lie `pitch` elements apart to consecutive places.
template <class Word>
void gather_words(uint8_t* to, const uint8_t* from, int64_t count, int64_t pitch) {
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * static_cast<int64_t>(sizeof(Word)), from + i * pitch * static_cast<int64_t>(sizeof(Word)),
                    sizeof(Word));
}

inline void copy_to_nz(Site at, const cube_impl::Place dst, const cube_impl::Place src, int64_t size, const ToNz p) {
    using emulator::Access;
    const char* const call = "DataCopy";
    if (p.matrices == 0 || p.rows == 0 || p.columns == 0) return;  // documented: no operation
    if (!cube_impl::is_in(dst.space(), emulator::Space::L1, "dst", "A1, B1 or C1", call, at)) return;
    const int64_t c0 = p.small ? 4 * size : emu::C0_BYTES, groups = (p.columns * size + c0 - 1) / c0;
    const bool overlaps = !p.small && groups > 1 && p.n_stride == emu::C0_BYTES && p.c0_stride < p.rows * emu::C0_BYTES;
    if (!emulator::require(!overlaps, "argument", at, call,
                           "dstNzC0Stride is " + std::to_string(p.c0_stride / emu::C0_BYTES) + " and a column group has " +
                               std::to_string(p.rows) + " rows: column groups would overlap, in no defined order."))
        return;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::MTE2, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move("GM->L1", static_cast<uint64_t>(p.matrices * p.rows * p.columns * size));
    const int64_t line = (p.transposed ? p.rows : p.columns) * size, lines = p.transposed ? p.columns : p.rows;
    instruction.accesses.push_back(cube_impl::repeated(src.bytes(Access::Kind::Read, "src", 0, line, 1), lines,
                                                  p.row_stride * size, p.matrices, p.matrix_stride * size));
    for (int64_t matrix = 0; matrix < p.matrices; ++matrix) {
        const auto write = [&](int64_t bytes) {
            return dst.bytes(Access::Kind::Write, "dst", matrix * p.nz_matrix_stride, bytes);
        };
        if (p.small)
            instruction.accesses.push_back(write((p.rows * c0 + 31) / 32 * 32));
        else if (p.n_stride == emu::C0_BYTES)
            instruction.accesses.push_back(cube_impl::repeated(write(p.rows * emu::C0_BYTES), groups, p.c0_stride));
        else
            instruction.accesses.push_back(cube_impl::repeated(write(emu::C0_BYTES), p.rows, p.n_stride, groups, p.c0_stride));
    }
    emulator::issue(std::move(instruction), [=] {
        const auto gather = size == 1   ? gather_words<uint8_t>
                            : size == 2 ? gather_words<uint16_t>
                                        : gather_words<uint32_t>;
        for (int64_t matrix = 0; matrix < p.matrices; ++matrix) {
            const uint8_t* const from = src.host + matrix * p.matrix_stride * size;
            uint8_t* const to = dst.host + matrix * p.nz_matrix_stride;
            const int64_t n_stride = p.small ? c0 : p.n_stride, elements = c0 / size;
            if (p.small) std::memset(to, 0, static_cast<size_t>((p.rows * c0 + 31) / 32 * 32));
            for (int64_t row = 0; row < p.rows; ++row)
                for (int64_t group = 0; group < groups; ++group) {
                    uint8_t* const block = to + group * p.c0_stride + row * n_stride;
                    const int64_t count = std::min(elements, p.columns - group * elements);
                    if (p.transposed)
                        gather(block, from + (group * elements * p.row_stride + row) * size, count, p.row_stride);
                    else
                        std::memcpy(block, from + (row * p.row_stride + group * elements) * size,
                                    static_cast<size_t>(count * size));
                    std::memset(block + count * size, 0, static_cast<size_t>(c0 - count * size));
                }
        }
    });
}

inline bool legal_nz(int64_t matrices, int64_t rows, int64_t columns, int64_t most_columns, int64_t line,
                     int64_t most_line, int64_t c0_stride, int64_t n_stride, bool small, const char* matrices_name,
                     Site at) {
    const char* const call = "DataCopy";
    if (!cube_impl::in_range(matrices, 0, 4095, matrices_name, call, at) ||
        !cube_impl::in_range(rows, 0, 16384, "nValue", call, at) ||
        !cube_impl::in_range(columns, 0, most_columns, "dValue", call, at))
        return false;
    if (matrices == 0 || rows == 0 || columns == 0) return true;
    if (small)
        return emulator::require(columns <= 4, "argument", at, call,
                                 "enableSmallC0 takes a dValue of at most 4, not " + std::to_string(columns) + ".");
    return cube_impl::in_range(line, 1, most_line, "srcDValue", call, at) &&
           cube_impl::in_range(c0_stride, 1, 16384, "dstNzC0Stride", call, at) &&
           cube_impl::in_range(n_stride, 1, 16384, "dstNzNStride", call, at);
}

}  // namespace emu

/// Rows of a matrix in global memory to NZ in L1: row n, column group g go to dst + (g * dstNzC0Stride + n *
/// dstNzNStride) * 32 bytes; what is missing of the last group of 32 bytes becomes 0, rows behind nValue stay as they
/// are. Packed fp4 is counted in bytes. Source: DataCopy (GM to L1, on-the-fly ND2NZ).
template <class T, bool enableSmallC0 = false>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Nd2NzParams& p, Site at = Site::here()) {
    static_assert(cube_impl::wide<T>() || cube_impl::one_of<T, int8_t, uint8_t>() ||
                      (is_3510 ? cube_impl::fp4<T>() || cube_impl::fp8<T>() || cube_impl::one_of<T, bool, fp8_e8m0_t>()
                               : cube_impl::one_of<T, int4b_t>()),
                  "DataCopy with Nd2NzParams: this element type does not exist for it on this SoC");
    static_assert(!enableSmallC0 || is_3510, "DataCopy: enableSmallC0 exists on dav-3510 only");
    if (!emu::legal_nz(p.ndNum, p.nValue, p.dValue, 65535, static_cast<int64_t>(p.srcDValue),
                  is_3510 ? (1ll << 40) - 1 : 65535, p.dstNzC0Stride, p.dstNzNStride, enableSmallC0, "ndNum", at))
        return;
    emu::copy_to_nz(at, cube_impl::place(dst), cube_impl::place(src), sizeof(T),
               {p.ndNum, p.nValue, static_cast<int64_t>(p.dValue), static_cast<int64_t>(p.srcNdMatrixStride),
                static_cast<int64_t>(p.srcDValue), p.dstNzC0Stride * emu::C0_BYTES, p.dstNzNStride * emu::C0_BYTES,
                static_cast<int64_t>(p.dstNzMatrixStride) * static_cast<int64_t>(sizeof(T)), false, enableSmallC0});
}

/// The same for a matrix that lies column by column: element (n, d) is at src[d * srcDValue + n]. dav-3510. Source:
/// DataCopy (GM to L1, on-the-fly DN2NZ).
template <class T, bool enableSmallC0 = false>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Dn2NzParams& p, Site at = Site::here()) {
    static_assert(cube_impl::on_3510<T>(), "DataCopy with Dn2NzParams exists on dav-3510 only");
    static_assert(cube_impl::wide<T>() || cube_impl::one_of<T, int8_t, uint8_t>() || cube_impl::fp4<T>(),
                  "DataCopy with Dn2NzParams: this element type does not exist for it");
    if (!emu::legal_nz(p.dnNum, p.nValue, p.dValue, (1 << 21) - 1, static_cast<int64_t>(p.srcDValue), (1ll << 40) - 1,
                  p.dstNzC0Stride, p.dstNzNStride, enableSmallC0, "dnNum", at))
        return;
    if (cube_impl::fp4<T>() &&
        !emulator::require(p.nValue % 2 == 0, "argument", at, "DataCopy",
                           "nValue is " + std::to_string(p.nValue) + "; for packed fp4 it has to be even."))
        return;
    emu::copy_to_nz(at, cube_impl::place(dst), cube_impl::place(src), sizeof(T),
               {p.dnNum, p.nValue, static_cast<int64_t>(p.dValue), static_cast<int64_t>(p.srcDnMatrixStride),
                static_cast<int64_t>(p.srcDValue), p.dstNzC0Stride * emu::C0_BYTES, p.dstNzNStride * emu::C0_BYTES,
                static_cast<int64_t>(p.dstNzMatrixStride) * static_cast<int64_t>(sizeof(T)), true, enableSmallC0});
}

namespace emu {

// ---- Between local memories ----------------------------------------------------------------------------------------

/// Rows from one local memory to another.
inline void copy_local_rows(const char* call, Site at, emulator::Pipe pipe, const char* path, const cube_impl::Place dst,
                            const cube_impl::Place src, Rows rows, uint32_t dst_align) {
    using emulator::Access;
    emulator::Instruction instruction;
    instruction.pipe = pipe, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move(path, static_cast<uint64_t>(rows.count * rows.bytes));
    instruction.accesses = {
        cube_impl::repeated(src.bytes(Access::Kind::Read, "src", 0, rows.bytes), rows.count, rows.source_pitch),
        cube_impl::repeated(dst.bytes(Access::Kind::Write, "dst", 0, rows.bytes, dst_align), rows.count,
                       rows.destination_pitch)};
    emulator::issue(std::move(instruction), [=] {
        for (int64_t row = 0; row < rows.count; ++row)
            std::memcpy(dst.host + row * rows.destination_pitch, src.host + row * rows.source_pitch,
                        static_cast<size_t>(rows.bytes));
    });
}

/// DataCopy between two local memories that are not both UB. L1 -> C2 (bias): lengths and gaps of the destination in 64
/// bytes on dav-2201, 32 on dav-3510, pipe MTE1. L1 -> C2PIPE2GM (fixpipe buffer): lengths in 128 bytes, on dav-3510
/// 64; strides from head to head; pipe FIX. UB -> L1 on dav-3510 (the hardware channel), pipe MTE3 of a vector core.
/// Sources: DataCopy (L1 to BiasTable Buffer), (L1 to Fixpipe Buffer), (UB to L1).
template <class T>
void copy_between(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, Site at) {
    using emulator::Space;
    const char* const call = "DataCopy";
    if (p.blockCount == 0 || p.blockLen == 0) return;  // documented: no operation
    if (!cube_impl::in_range(p.blockCount, 1, 4095, "blockCount", call, at)) return;
    if (src.space() == Space::L1 && dst.space() == Space::BT) {
        constexpr int64_t unit = is_3510 ? 32 : 64;
        if (!emulator::require((cube_impl::one_of<T, int32_t, float>()), "argument", at, call,
                               "the bias buffer holds int32_t or float.") ||
            (is_3510 && !emulator::require(p.blockLen % 2 == 0, "argument", at, call,
                                           "blockLen is " + std::to_string(p.blockLen) +
                                               "; towards the bias buffer it has to be even.")))
            return;
        copy_local_rows(
            call, at, emulator::Pipe::MTE1, "L1->BT", cube_impl::place(dst), cube_impl::place(src),
            {p.blockCount, p.blockLen * unit, p.blockLen * unit + p.srcGap * 32, (p.blockLen + p.dstGap) * unit}, 64);
    } else if (src.space() == Space::L1 && dst.space() == Space::FB) {
        constexpr int64_t unit = is_3510 ? 64 : 128;
        if (!emulator::require((cube_impl::one_of<T, uint64_t>()), "argument", at, call,
                               "the fixpipe buffer holds uint64_t."))
            return;
        copy_local_rows(call, at, emulator::Pipe::FIX, "L1->FB", cube_impl::place(dst), cube_impl::place(src),
                        {p.blockCount, p.blockLen * unit, p.srcGap * 32, p.dstGap * 128}, 128);
    } else if (src.space() == Space::UB && dst.space() == Space::L1) {
        if (!emulator::require(is_3510, "wrong_core", at, call,
                               "dav-2201 has no path from UB to L1; go through global memory."))
            return;
        copy_local_rows(call, at, emulator::Pipe::MTE3, "UB->L1", cube_impl::place(dst, 0), cube_impl::place(src), block_rows(p),
                        32);
    } else {
        emulator::require(false, "wrong_core", at, call, "there is no path between these two local memories.");
    }
}

/// The count form: whole blocks of 32 bytes, what is left over is not moved.
template <class T>
void copy_between(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint32_t count, Site at) {
    const int64_t bytes = static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T)) / 32 * 32;
    const int64_t unit = dst.space() == emulator::Space::BT   ? (is_3510 ? 32 : 64)
                         : dst.space() == emulator::Space::FB ? (is_3510 ? 64 : 128)
                                                              : 32;
    if (!emulator::require(bytes > 0 && bytes % unit == 0, "alignment", at, "DataCopy",
                           std::to_string(count) + " elements are " + std::to_string(bytes) +
                               " bytes; on this path a positive multiple of " + std::to_string(unit) + " is moved."))
        return;
    copy_between(dst, src, DataCopyParams{1, static_cast<uint16_t>(bytes / unit), 0, 0}, at);
}

}  // namespace emu

/// L1 to the UB of vector core `subBlockId` of the block. dav-3510, one cube core with two vector cores, pipe MTE3 of
/// the cube core. Source: DataCopyL1ToUB.
template <class T, uint8_t subBlockId = 0>
void DataCopyL1ToUB(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p,
                    Site at = Site::here()) {
    static_assert(cube_impl::on_3510<T>(), "DataCopyL1ToUB exists on dav-3510 only");
    static_assert(subBlockId < 2, "DataCopyL1ToUB: subBlockId is 0 or 1");
    EMULATOR_USES("asc_uses_cube");
    const char* const call = "DataCopyL1ToUB";
    if (!emu::legal_copy(p, call, at) || !cube_impl::is_in(src.space(), emulator::Space::L1, "src", "A1, B1 or C1", call, at) ||
        !cube_impl::is_in(dst.space(), emulator::Space::UB, "dst", "VECIN, VECOUT or VECCALC", call, at))
        return;
    if (!emulator::require(emulator::core().role == emulator::Role::AIC, "wrong_core", at, call,
                           "the cube core copies out of its L1.") ||
        !emulator::require(emulator::core().vector_cores_a_block == 2, "wrong_core", at, call,
                           "it needs a kernel of one cube core with two vector cores."))
        return;
    emu::copy_local_rows(call, at, emulator::Pipe::MTE3, "L1->UB", cube_impl::place(dst, 1 + subBlockId), cube_impl::place(src),
                    emu::block_rows(p), 32);
}
template <class T, uint8_t subBlockId = 0>
void DataCopyL1ToUB(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count,
                    Site at = Site::here()) {
    const int64_t blocks =
        static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T)) / 32;  // documented: rounded down
    DataCopyL1ToUB<T, subBlockId>(dst, src, DataCopyParams{1, static_cast<uint16_t>(blocks), 0, 0}, at);
}

// ---- Constants -----------------------------------------------------------------------------------------------------

template <class T>
struct InitConstValueParams {
    InitConstValueParams() = default;
    InitConstValueParams(uint16_t repeatTimes, uint16_t blockNum, uint16_t dstGap, T initValue)
        : repeatTimes(repeatTimes), blockNum(blockNum), dstGap(dstGap), initValue(initValue) {}
    InitConstValueParams(uint16_t repeatTimes, T initValue) : repeatTimes(repeatTimes), initValue(initValue) {}
    uint16_t repeatTimes = 0, blockNum = 0, dstGap = 0;
    T initValue = T(0);
};

/// repeatTimes times blockNum blocks of initValue, dstGap blocks between them: blocks of 32 bytes in L1 (pipe MTE2), of
/// 512 in L0A and L0B (pipe MTE1, dav-2201). Source: Fill.
template <class T, class U = T>
void Fill(const LocalTensor<T>& dst, const InitConstValueParams<U>& p, Site at = Site::here()) {
    static_assert(std::is_same_v<T, U>, "Fill: the value has to be of the tensor's type");
    static_assert(cube_impl::wide<T>(), "Fill: this element type does not exist for it");
    using emulator::Space;
    const char* const call = "Fill";
    if (!cube_impl::in_range(p.repeatTimes, 0, 32767, "repeatTimes", call, at) ||
        !cube_impl::in_range(p.blockNum, 0, 32767, "blockNum", call, at) ||
        !cube_impl::in_range(p.dstGap, 0, 32767, "dstGap", call, at))
        return;
    if (p.repeatTimes == 0 || p.blockNum == 0) return;  // documented: no operation
    const bool l1 = dst.space() == Space::L1;
    if (!emulator::require(l1 || (!is_3510 && (dst.space() == Space::L0A || dst.space() == Space::L0B)), "wrong_core",
                           at, call, is_3510 ? "dst has to be at A1 or B1." : "dst has to be at A1, B1, A2 or B2."))
        return;
    const int64_t block = l1 ? emu::C0_BYTES : emu::FRACTAL_BYTES, bytes = p.blockNum * block, pitch = bytes + p.dstGap * block;
    emulator::Instruction instruction;
    instruction.pipe = l1 ? emulator::Pipe::MTE2 : emulator::Pipe::MTE1, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move("Fill", static_cast<uint64_t>(p.repeatTimes * bytes));
    instruction.accesses = {cube_impl::repeated(
        dst.bytes(emulator::Access::Kind::Write, "dst", 0, bytes, static_cast<uint32_t>(block)), p.repeatTimes, pitch)};
    uint8_t* const out = cube_impl::place(dst).host;
    emulator::issue(std::move(instruction), [=] {
        for (int64_t repeat = 0; repeat < p.repeatTimes; ++repeat)
            for (int64_t i = 0; i < bytes; i += sizeof(T))
                std::memcpy(out + repeat * pitch + i, &p.initValue, sizeof(T));
    });
}
/// The former name of Fill.
template <class T, class U = T>
void InitConstValue(const LocalTensor<T>& dst, const InitConstValueParams<U>& p, Site at = Site::here()) {
    Fill<T, U>(dst, p, at);
}

}  // namespace AscendC
