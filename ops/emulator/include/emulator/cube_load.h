// LoadData 2D: fractals of L1 into L0A and L0B, as they are or transposed.
//
// What L0 holds for Mmad: L0A of dav-2201 zZ (fractals row by row), of dav-3510 Nz (column by column); L0B Zn, which is
// where the Nz of the transposed matrix puts it. Inside of a fractal: 16 rows of C0 = 32 bytes, in L0B 16 columns.
// Undefined bytes of L1 (rows behind the end of a matrix) may be loaded; only a product that uses them is a hazard.
#pragma once

#include "cube_copy.h"

namespace AscendC {

struct LoadData2DParams {
    LoadData2DParams() = default;
    LoadData2DParams(uint16_t startIndex, uint8_t repeatTimes, uint16_t srcStride, uint8_t sid, uint16_t dstGap,
                     bool ifTranspose, uint8_t addrMode)
        : startIndex(startIndex), dstGap(dstGap), srcStride(srcStride), ifTranspose(ifTranspose),
          repeatTimes(repeatTimes), sid(sid), addrMode(addrMode) {}
    uint16_t startIndex = 0, dstGap = 0, srcStride = 0;
    bool ifTranspose = false;
    uint8_t repeatTimes = 0, sid = 0, addrMode = 0;
};
using LoadData2dParams = LoadData2DParams;

struct LoadData2DParamsV2 {
    LoadData2DParamsV2() = default;
    LoadData2DParamsV2(uint32_t mStartPosition, uint32_t kStartPosition, uint16_t mStep, uint16_t kStep,
                       int32_t srcStride, uint16_t dstStride, bool ifTranspose, uint8_t sid)
        : mStartPosition(mStartPosition), kStartPosition(kStartPosition), mStep(mStep), kStep(kStep),
          srcStride(srcStride), dstStride(dstStride), ifTranspose(ifTranspose), sid(sid) {}
    uint32_t mStartPosition = 0, kStartPosition = 0;
    uint16_t mStep = 0, kStep = 0;
    int32_t srcStride = 0;
    uint16_t dstStride = 0;
    bool ifTranspose = false;
    uint8_t sid = 0;
};

struct LoadData2DMxParams {
    LoadData2DMxParams() = default;
    LoadData2DMxParams(uint16_t xStartPosition, uint16_t yStartPosition, uint8_t xStep, uint8_t yStep,
                       uint16_t srcStride, uint16_t dstStride)
        : xStartPosition(xStartPosition), yStartPosition(yStartPosition), xStep(xStep), yStep(yStep),
          srcStride(srcStride), dstStride(dstStride) {}
    uint16_t xStartPosition = 0, yStartPosition = 0;
    uint8_t xStep = 0, yStep = 0;
    uint16_t srcStride = 0, dstStride = 0;
};

struct LoadData2dTransposeParams {
    LoadData2dTransposeParams() = default;
    LoadData2dTransposeParams(uint16_t startIndex, uint8_t repeatTimes, uint16_t srcStride, uint16_t dstGap,
                              uint16_t dstFracGap, uint8_t addrMode = 0)
        : startIndex(startIndex), repeatTimes(repeatTimes), srcStride(srcStride), dstGap(dstGap),
          dstFracGap(dstFracGap), addrMode(addrMode) {}
    uint16_t startIndex = 0;
    uint8_t repeatTimes = 0;
    uint16_t srcStride = 0, dstGap = 0, dstFracGap = 0;
    uint8_t addrMode = 0;
};

struct LoadData2dTransposeParamsV2 {
    LoadData2dTransposeParamsV2() = default;
    LoadData2dTransposeParamsV2(uint16_t startIndex, uint8_t repeatTimes, uint16_t srcStride, uint16_t dstGap,
                                uint16_t dstFracGap, uint16_t srcFracGap, uint8_t addrMode = 0)
        : startIndex(startIndex), repeatTimes(repeatTimes), srcStride(srcStride), dstGap(dstGap),
          dstFracGap(dstFracGap), srcFracGap(srcFracGap), addrMode(addrMode) {}
    uint16_t startIndex = 0;
    uint8_t repeatTimes = 0;
    uint16_t srcStride = 0, dstGap = 0, dstFracGap = 0, srcFracGap = 0;
    uint8_t addrMode = 0;
};

namespace cube_impl {

/// Bits of an element; packed types have two in a byte.
template <class T>
constexpr int bits_of() {
    return emulator::numbers::is_packed<T>() ? 4 : 8 * static_cast<int>(sizeof(T));
}
/// Columns of a fractal.
constexpr int64_t columns_of(int bits) { return emu::C0_BYTES * 8 / bits; }
/// Fractals that a transposition turns together into as many: a square of max(16, c0) rows and columns.
constexpr int64_t fractals_of_square(int bits) { return bits == 32 ? 2 : std::max<int64_t>(1, 16 / bits); }

/// A square of elements in up to four fractals: one above the other, for types of 32 bits side by side.
struct Square {
    int64_t source[4], destination[4];  // bytes from the operands' starts
};

/// Byte of element (row, column) of a square; for 4 bits the byte that half of it is in.
template <int bits>
int64_t square_byte(const int64_t* fractals, int64_t row, int64_t column) {
    constexpr int64_t c0 = columns_of(bits);
    return fractals[row / emu::FRACTAL_ROWS + column / c0] + row % emu::FRACTAL_ROWS * emu::C0_BYTES + column % c0 * emu::C0_BYTES / c0;
}

template <int bits>
void transpose_square(uint8_t* out, const uint8_t* in, const Square& square) {
    constexpr int64_t side = std::max(emu::FRACTAL_ROWS, columns_of(bits));
    for (int64_t row = 0; row < side; ++row)
        for (int64_t column = 0; column < side; ++column) {
            const uint8_t* const from = in + square_byte<bits>(square.source, column, row);
            uint8_t* const to = out + square_byte<bits>(square.destination, row, column);
            if constexpr (bits == 4) {
                const int value = *from >> (row % 2 * 4) & 15, shift = static_cast<int>(column % 2) * 4;
                *to = static_cast<uint8_t>((*to & ~(15 << shift)) | value << shift);
            } else {
                std::memcpy(to, from, bits / 8);
            }
        }
}

/// Undefined elements of the source of a transposed square are undefined in the destination.
template <int bits>
void forget_square(const emulator::Access& destination, const emulator::Access& source, const Square& square) {
    constexpr int64_t side = std::max(emu::FRACTAL_ROWS, columns_of(bits)), size = bits / 8 ? bits / 8 : 1;
    bool any = false;
    for (int64_t i = 0; i < fractals_of_square(bits); ++i)
        any |= !emulator::unwritten(source.space, source.begin + square.source[i],
                                    source.begin + square.source[i] + emu::FRACTAL_BYTES)
                    .empty();
    if (!any) return;
    emulator::Access one = destination;
    one.runs = one.groups = 1, one.bytes = size;
    for (int64_t row = 0; row < side; ++row)
        for (int64_t column = 0; column < side; ++column) {
            const int64_t from = source.begin + square_byte<bits>(square.source, column, row);
            if (emulator::unwritten(source.space, from, from + size).empty()) continue;
            one.begin = destination.begin + square_byte<bits>(square.destination, row, column);
            emulator::forget(one);
        }
}

/// Undefined parts of `bytes` bytes that were copied as they are.
inline void forget_copied(const emulator::Access& destination, int64_t to, const emulator::Access& source, int64_t from,
                          int64_t bytes) {
    for (const auto& [begin, end] :
         emulator::unwritten(source.space, source.begin + from, source.begin + from + bytes)) {
        emulator::Access one = destination;
        one.runs = one.groups = 1, one.bytes = end - begin,
        one.begin = destination.begin + to + begin - source.begin - from;
        emulator::forget(one);
    }
}

/// L0A or L0B as the destination, L1 as the source.
inline bool legal_load(emulator::Space dst, emulator::Space src, const char* call, Site at) {
    return emulator::require(dst == emulator::Space::L0A || dst == emulator::Space::L0B, "wrong_core", at, call,
                             "dst has to be at A2 or B2.") &&
           is_in(src, emulator::Space::L1, "src", "A1 or B1", call, at);
}

inline emulator::Instruction load_instruction(const char* call, Site at, emulator::Space dst, int64_t bytes) {
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::MTE1, instruction.name = call, instruction.at = at;
    instruction.cost =
        emulator::Cost::move(dst == emulator::Space::L0A ? "L1->L0A" : "L1->L0B", static_cast<uint64_t>(bytes));
    return instruction;
}

template <int bits>
void transpose_squares(const Place& dst, const Place& src, const std::vector<Square>& squares) {
    for (const Square& square : squares) {
        transpose_square<bits>(dst.host, src.host, square);
        forget_square<bits>(dst.access, src.access, square);
    }
}

/// Issue a load of whole fractals: pieces of `fractals` consecutive ones, or squares that are transposed.
inline void load(emulator::Instruction instruction, const Place dst, const Place src, emulator::Access from,
                 emulator::Access to, int bits, std::vector<Square> squares, int64_t fractals, bool transpose) {
    from.carries = true;
    instruction.accesses = {from, to};
    emulator::issue(std::move(instruction), [=] {
        if (transpose) {
            if (bits == 4) transpose_squares<4>(dst, src, squares);
            if (bits == 8) transpose_squares<8>(dst, src, squares);
            if (bits == 16) transpose_squares<16>(dst, src, squares);
            if (bits == 32) transpose_squares<32>(dst, src, squares);
            return;
        }
        for (const Square& square : squares) {
            std::memcpy(dst.host + square.destination[0], src.host + square.source[0],
                        static_cast<size_t>(fractals * emu::FRACTAL_BYTES));
            forget_copied(dst.access, square.destination[0], src.access, square.source[0], fractals * emu::FRACTAL_BYTES);
        }
    });
}

template <class T>
constexpr bool load_2d_type() {
    return wide<T>() || one_of<T, int8_t, uint8_t>();
}

inline void load_2d(const Place dst, const Place src, int bits, const LoadData2DParams& p, Site at) {
    const char* const call = "LoadData";
    if (p.repeatTimes == 0) return;  // documented: no operation
    if (!legal_load(dst.space(), src.space(), call, at) ||
        !emulator::require(!p.ifTranspose || bits == 16, "argument", at, call,
                           "ifTranspose turns 16-bit types only; take LoadDataWithTranspose.") ||
        !emulator::require(p.addrMode == 0, "argument", at, call, "addrMode is 1; from L1 only 0 is configurable."))
        return;
    const int64_t pitch = (1 + (is_3510 ? 0 : p.dstGap)) * emu::FRACTAL_BYTES, begin = p.startIndex * emu::FRACTAL_BYTES;
    std::vector<Square> squares(p.repeatTimes);
    for (int64_t i = 0; i < p.repeatTimes; ++i)
        squares[static_cast<size_t>(i)] = {{begin + i * p.srcStride * emu::FRACTAL_BYTES}, {i * pitch}};
    using Kind = emulator::Access::Kind;
    load(load_instruction(call, at, dst.space(), p.repeatTimes * emu::FRACTAL_BYTES), dst, src,
         repeated(src.bytes(Kind::Read, "src", begin, emu::FRACTAL_BYTES), p.repeatTimes, p.srcStride * emu::FRACTAL_BYTES),
         repeated(dst.bytes(Kind::Write, "dst", 0, emu::FRACTAL_BYTES, emu::FRACTAL_BYTES), p.repeatTimes, pitch), bits,
         std::move(squares), 1, p.ifTranspose);
}

inline void load_2d_global(const Place dst, const Place src, const LoadData2DParams& p, Site at) {
    using emulator::Space;
    using Kind = emulator::Access::Kind;
    const char* const call = "LoadData";
    if (p.repeatTimes == 0) return;
    const Space space = dst.space();
    if (!emulator::require(space == Space::L1 || (!is_3510 && (space == Space::L0A || space == Space::L0B)),
                           "wrong_core", at, call,
                           is_3510 ? "from global memory dst has to be at A1 or B1."
                                   : "from global memory dst has to be at A1, B1, A2 or B2.") ||
        !emulator::require(!p.ifTranspose, "argument", at, call, "ifTranspose exists from L1 only."))
        return;
    const int64_t pitch = (1 + p.dstGap) * emu::FRACTAL_BYTES, step = (p.addrMode ? -1 : 1) * p.srcStride * emu::FRACTAL_BYTES,
                  begin = p.startIndex * emu::FRACTAL_BYTES;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::MTE2, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::move(space == Space::L1    ? "GM->L1"
                                            : space == Space::L0A ? "GM->L0A"
                                                                  : "GM->L0B",
                                            static_cast<uint64_t>(p.repeatTimes * emu::FRACTAL_BYTES));
    instruction.accesses = {
        repeated(src.bytes(Kind::Read, "src", begin, emu::FRACTAL_BYTES, 1), p.repeatTimes, step),
        repeated(dst.bytes(Kind::Write, "dst", 0, emu::FRACTAL_BYTES, space == Space::L1 ? 32 : emu::FRACTAL_BYTES),
                 p.repeatTimes, pitch)};
    emulator::issue(std::move(instruction), [=] {
        for (int64_t i = 0; i < p.repeatTimes; ++i)
            std::memcpy(dst.host + i * pitch, src.host + begin + i * step, emu::FRACTAL_BYTES);
    });
}

inline void load_2d_v2(const Place dst, const Place src, int bits, const LoadData2DParamsV2& p, Site at) {
    const char* const call = "LoadData";
    if (!in_range(p.mStep, 0, 255, "mStep", call, at) || !in_range(p.kStep, 0, 255, "kStep", call, at)) return;
    if (p.mStep == 0 || p.kStep == 0) return;  // documented: no operation
    const int64_t together = fractals_of_square(bits);
    const bool beside = bits == 32;
    if (!legal_load(dst.space(), src.space(), call, at) ||
        (p.ifTranspose &&
         !emulator::require(
             (beside ? p.kStep : p.mStep) % together == 0, "argument", at, call,
             std::string(beside ? "kStep" : "mStep") + " is " + std::to_string(beside ? p.kStep : p.mStep) +
                 "; to transpose this type it has to be a multiple of " + std::to_string(together) + ".")))
        return;
    const int64_t source_pitch = p.srcStride * emu::FRACTAL_BYTES, pitch = p.dstStride * emu::FRACTAL_BYTES;
    const int64_t begin =
        (static_cast<int64_t>(p.kStartPosition) * std::abs(p.srcStride) + p.mStartPosition) * emu::FRACTAL_BYTES;
    std::vector<Square> squares;
    int64_t rows = p.mStep, columns = p.kStep;  // of fractals in the destination
    if (!p.ifTranspose) {
        for (int64_t k = 0; k < p.kStep; ++k) squares.push_back({{begin + k * source_pitch}, {k * pitch}});
    } else {
        rows = beside ? p.kStep / together : p.kStep * together;
        columns = beside ? p.mStep * together : p.mStep / together;
        for (int64_t m = 0; m < p.mStep; m += beside ? 1 : together)
            for (int64_t k = 0; k < p.kStep; k += beside ? together : 1) {
                Square square{};
                for (int64_t i = 0; i < together; ++i) {
                    square.source[i] = begin + (beside ? (k + i) * source_pitch + m * emu::FRACTAL_BYTES
                                                       : k * source_pitch + (m + i) * emu::FRACTAL_BYTES);
                    square.destination[i] = beside ? (m * together + i) * pitch + k / together * emu::FRACTAL_BYTES
                                                   : m / together * pitch + (k * together + i) * emu::FRACTAL_BYTES;
                }
                squares.push_back(square);
            }
    }
    using Kind = emulator::Access::Kind;
    load(load_instruction(call, at, dst.space(), p.mStep * p.kStep * emu::FRACTAL_BYTES), dst, src,
         repeated(src.bytes(Kind::Read, "src", begin, p.mStep * emu::FRACTAL_BYTES), p.kStep, source_pitch),
         repeated(dst.bytes(Kind::Write, "dst", 0, rows * emu::FRACTAL_BYTES, emu::FRACTAL_BYTES), columns, pitch), bits,
         std::move(squares), p.mStep, p.ifTranspose);
}

/// The scales behind an MX matrix: to 1/16 of its address in L0A or L0B.
inline void load_scales(const Place dst, const Place scales, const LoadData2DMxParams& mx, Site at) {
    using emulator::Access;
    using emulator::Space;
    const char* const call = "LoadData";
    if (mx.xStep == 0 || mx.yStep == 0) return;  // documented: no operation
    if (!legal_load(dst.space(), Space::L1, call, at) ||
        !is_in(scales.space(), Space::L1, "srcMx", "A1 or B1", call, at))
        return;
    constexpr int64_t fractal = 32;
    const int64_t bytes = mx.yStep * fractal, source_pitch = mx.srcStride * fractal, pitch = mx.dstStride * fractal;
    const int64_t begin = (mx.xStartPosition * static_cast<int64_t>(mx.srcStride) + mx.yStartPosition) * fractal;
    emulator::Instruction instruction = load_instruction(call, at, dst.space(), mx.xStep * bytes);
    Access from = repeated(scales.bytes(Access::Kind::Read, "srcMx", begin, bytes), mx.xStep, source_pitch), to;
    from.carries = true;
    to.space = dst.space() == Space::L0A ? Space::L0A_MX : Space::L0B_MX, to.kind = Access::Kind::Write,
    to.operand = "dst (scales)";
    to.begin = dst.address() / 16, to.bytes = bytes, to.runs = mx.xStep, to.pitch = pitch, to.align = fractal;
    instruction.accesses = {from, to};
    uint8_t* const out = emulator::core().local(to.space, to.begin);
    emulator::issue(std::move(instruction), [=] {
        for (int64_t x = 0; x < mx.xStep; ++x) {
            std::memcpy(out + x * pitch, scales.host + begin + x * source_pitch, static_cast<size_t>(bytes));
            forget_copied(to, x * pitch, from, x * source_pitch, bytes);
        }
    });
}

/// repeatTimes squares; numbers in fractals.
struct Transposition {
    int64_t repeats, start, source_step, source_fractal_step, destination_step, destination_fractal_step;
};

inline void load_transposed(const Place dst, const Place src, int bits, const Transposition p, Site at) {
    const char* const call = "LoadDataWithTranspose";
    if (p.repeats == 0) return;  // documented: no operation
    if (!legal_load(dst.space(), src.space(), call, at) ||
        (is_3510 && !is_in(dst.space(), emulator::Space::L0B, "dst", "B2 on dav-3510", call, at)))
        return;
    const int64_t together = fractals_of_square(bits);
    std::vector<Square> squares(static_cast<size_t>(p.repeats));
    for (int64_t repeat = 0; repeat < p.repeats; ++repeat)
        for (int64_t i = 0; i < together; ++i) {
            squares[static_cast<size_t>(repeat)].source[i] =
                (p.start + repeat * p.source_step + i * p.source_fractal_step) * emu::FRACTAL_BYTES;
            squares[static_cast<size_t>(repeat)].destination[i] =
                (repeat * p.destination_step + i * p.destination_fractal_step) * emu::FRACTAL_BYTES;
        }
    using Kind = emulator::Access::Kind;
    load(load_instruction(call, at, dst.space(), p.repeats * together * emu::FRACTAL_BYTES), dst, src,
         repeated(src.bytes(Kind::Read, "src", p.start * emu::FRACTAL_BYTES, emu::FRACTAL_BYTES), together,
                  p.source_fractal_step * emu::FRACTAL_BYTES, p.repeats, p.source_step * emu::FRACTAL_BYTES),
         repeated(dst.bytes(Kind::Write, "dst", 0, emu::FRACTAL_BYTES, emu::FRACTAL_BYTES), together,
                  p.destination_fractal_step * emu::FRACTAL_BYTES, p.repeats, p.destination_step * emu::FRACTAL_BYTES),
         bits, std::move(squares), 1, true);
}

}  // namespace cube_impl

// ---- LoadData 2D ---------------------------------------------------------------------------------------------------

/// repeatTimes fractals: number i from fractal startIndex + i * srcStride of L1 to i * (1 + dstGap) of L0 (dav-3510: to
/// i), each transposed with ifTranspose (16-bit types only). Source: LoadData (2D).
template <class T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2DParams& p, Site at = Site::here()) {
    static_assert(cube_impl::load_2d_type<T>(), "LoadData with LoadData2DParams: this element type does not exist for it");
    EMULATOR_USES("asc_uses_cube");
    cube_impl::load_2d(cube_impl::place(dst), cube_impl::place(src), cube_impl::bits_of<T>(), p, at);
}

/// The same from global memory, pipe MTE2, not transposed: to L1, on dav-2201 to L0A and L0B as well. addrMode 1 goes
/// through the source backwards. Sources: LoadData (2D), LoadData (GM to L1, 2D).
template <class T>
void LoadData(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const LoadData2DParams& p,
              Site at = Site::here()) {
    static_assert(cube_impl::load_2d_type<T>(), "LoadData with LoadData2DParams: this element type does not exist for it");
    EMULATOR_USES("asc_uses_cube");
    cube_impl::load_2d_global(cube_impl::place(dst), cube_impl::place(src), p, at);
}

/// mStep x kStep fractals of an NZ matrix in L1, srcStride fractals from one column of them to the next, from row of
/// fractals mStartPosition and column kStartPosition on; to columns that are dstStride apart in L0. With ifTranspose L0
/// gets the Nz of the transposed matrix: squares of 16 rows and columns (32 for 8 bits, 64 for 4 bits) are turned, so
/// mStep has to be a multiple of 2 for 8 bits and of 4 for 4 bits, kStep of 2 for 32 bits. dav-3510. Source: LoadData
/// (2D, V2).
template <class T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2DParamsV2& p,
              Site at = Site::here()) {
    static_assert(cube_impl::on_3510<T>(), "LoadData with LoadData2DParamsV2 exists on dav-3510 only");
    static_assert(cube_impl::one_of<T, half, bfloat16_t, int32_t, uint32_t, float, int8_t, uint8_t>() || cube_impl::fp8<T>() ||
                      cube_impl::fp4<T>(),
                  "LoadData with LoadData2DParamsV2: this element type does not exist for it");
    EMULATOR_USES("asc_uses_cube");
    cube_impl::load_2d_v2(cube_impl::place(dst), cube_impl::place(src), cube_impl::bits_of<T>(), p, at);
}

/// LoadData V2 of an MX matrix together with its scales: xStep rows of yStep scale fractals (16 x 2 scales, 32 bytes),
/// srcStride and dstStride fractals apart, go to L0A_MX or L0B_MX at 1/16 of dst's address. Source: LoadData (2D MX).
template <class T, class U = T>
void LoadData(const LocalTensor<U>& dst, const LocalTensor<T>& src, const LocalTensor<fp8_e8m0_t>& srcMx,
              const LoadData2DParamsV2& p, const LoadData2DMxParams& mx, Site at = Site::here()) {
    static_assert(cube_impl::on_3510<T>(), "LoadData with scales exists on dav-3510 only");
    static_assert(std::is_same_v<T, U>, "LoadData with scales: dst and src have to be of one type");
    static_assert(cube_impl::fp4<T>() || cube_impl::one_of<T, fp8_e4m3fn_t, fp8_e5m2_t>(),
                  "LoadData with scales: this element type does not exist for it");
    LoadData(dst, src, p, at);
    cube_impl::load_scales(cube_impl::place(dst), cube_impl::place(srcMx), mx, at);
}

// ---- LoadDataWithTranspose -----------------------------------------------------------------------------------------

/// repeatTimes squares of consecutive fractals (one of 16 bits, two of 8 or 32 bits), each transposed; startIndex and
/// srcStride count squares, dstGap and dstFracGap fractals from the end of one to the start of the next. dav-3510: to
/// L0B only. Source: LoadDataWithTranspose.
template <class T>
void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2dTransposeParams& p,
                           Site at = Site::here()) {
    static_assert(cube_impl::one_of<T, int8_t, uint8_t, half, bfloat16_t, int32_t, uint32_t, float>(),
                  "LoadDataWithTranspose: this element type does not exist for it");
    EMULATOR_USES("asc_uses_cube");
    constexpr int64_t square = cube_impl::fractals_of_square(cube_impl::bits_of<T>());
    cube_impl::load_transposed(cube_impl::place(dst), cube_impl::place(src), cube_impl::bits_of<T>(),
                          {p.repeatTimes, p.startIndex * square, (p.addrMode ? -1 : 1) * p.srcStride * square, 1,
                           p.dstGap + 1, p.dstFracGap + 1},
                          at);
}

/// The same with the source counted in fractals and srcFracGap fractals between those of a square. dav-3510. The pages
/// give four fractals a repeat for 32 bits without saying how they lie: that form is left out. Source:
/// LoadDataWithTranspose.
template <class T>
void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2dTransposeParamsV2& p,
                           Site at = Site::here()) {
    static_assert(cube_impl::on_3510<T>(), "LoadDataWithTranspose with LoadData2dTransposeParamsV2 exists on dav-3510 only");
    static_assert(cube_impl::one_of<T, int8_t, uint8_t, half, bfloat16_t>(),
                  "LoadDataWithTranspose with LoadData2dTransposeParamsV2: 8 and 16 bits only");
    if (!cube_impl::in_range(p.repeatTimes, 1, 255, "repeatTimes", "LoadDataWithTranspose", at)) return;
    EMULATOR_USES("asc_uses_cube");
    cube_impl::load_transposed(cube_impl::place(dst), cube_impl::place(src), cube_impl::bits_of<T>(),
                          {p.repeatTimes, p.startIndex, (p.addrMode ? -1 : 1) * p.srcStride, p.srcFracGap + 1,
                           p.dstGap + 1, p.dstFracGap + 1},
                          at);
}

}  // namespace AscendC
