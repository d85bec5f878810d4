// Fixpipe: a matrix out of L0C, converted on its way, to global memory, L1 or (dav-3510) the UB of the block's vector
// cores.
//
// L0C holds Nz of 16 x 16: element (row, column) of a matrix is number (column / 16 * srcStride + row) * 16 + column %
// 16. Sources: the pages Fixpipe (L0C to GM, to L1, to UB), NZ2ND, NZ2NZ, NZ2DN, F32 Channel Split, Int8 Channel Merge,
// on-the-fly quantization and ReLU, L0C to UB dual-destination mode, SetFixPipeConfig.
#pragma once

#include "cube_mmad.h"
#include "vector_cast.h"

/// How numbers of L0C become those of the destination. Q...: times a factor for all, VQ... and VDEQF16, VREQ8: one a
/// column.
enum QuantMode_t {
    NoQuant,
    F322F16,
    F322BF16,
    DEQF16,
    VDEQF16,
    QF322B8_PRE,
    VQF322B8_PRE,
    REQ8,
    VREQ8,
    QF322FP8_PRE,
    VQF322FP8_PRE,
    QF322HIF8_PRE,
    VQF322HIF8_PRE,
    QF322HIF8_PRE_HYBRID,
    VQF322HIF8_PRE_HYBRID,
    QS322BF16_PRE,
    VQS322BF16_PRE,
    QF322F16_PRE,
    VQF322F16_PRE,
    QF322BF16_PRE,
    VQF322BF16_PRE,
    QF322F32_PRE,
    VQF322F32_PRE
};

namespace AscendC {

enum class CO2Layout : uint8_t { NZ = 0, ROW_MAJOR, COLUMN_MAJOR };
enum class ReluMode { NO_RELU = 0, NORMAL_RELU = 1, SCALAR_RELU = 2, VECTOR_RELU = 3 };
enum class ClipReluMode { NOCLIP_RELU = 0, CLIP_RELU = 1 };

struct FixpipeConfig {
    CO2Layout format;
    bool isToUB;
    constexpr FixpipeConfig(CO2Layout format) : format(format), isToUB(false) {}
    constexpr FixpipeConfig(CO2Layout format, bool isToUB) : format(format), isToUB(isToUB) {}
};
constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ, false};
constexpr FixpipeConfig CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR, false};
constexpr FixpipeConfig CFG_COLUMN_MAJOR = {CO2Layout::COLUMN_MAJOR, false};

struct FixpipeParamsV220 {
    FixpipeParamsV220() = default;
    FixpipeParamsV220(uint16_t nSize, uint16_t mSize, uint16_t srcStride, uint32_t dstStride, bool reluEn)
        : nSize(nSize), mSize(mSize), srcStride(srcStride), dstStride(dstStride), reluEn(reluEn) {}
    FixpipeParamsV220(uint16_t nSize, uint16_t mSize, uint16_t srcStride, uint32_t dstStride, bool reluEn,
                      QuantMode_t quantPre, int64_t deqScalar, uint16_t ndNum, uint16_t srcNdStride,
                      uint16_t dstNdStride, uint8_t unitFlag, bool isChannelSplit = false)
        : nSize(nSize), mSize(mSize), srcStride(srcStride), dstStride(dstStride), quantPre(quantPre),
          deqScalar(static_cast<uint64_t>(deqScalar)), ndNum(ndNum), srcNdStride(srcNdStride), dstNdStride(dstNdStride),
          reluEn(reluEn), unitFlag(unitFlag), isChannelSplit(isChannelSplit) {}
    uint16_t nSize = 0, mSize = 0, srcStride = 0;
    uint32_t dstStride = 0;
    QuantMode_t quantPre = QuantMode_t::NoQuant;
    uint64_t deqScalar = 0;
    uint16_t ndNum = 1, srcNdStride = 0, dstNdStride = 0;
    bool reluEn = false;
    uint8_t unitFlag = 0;
    bool isChannelSplit = false;
};

struct Nz2NdParams {
    using Stride = std::conditional_t<is_3510, uint32_t, uint16_t>;
    Nz2NdParams() = default;
    Nz2NdParams(uint16_t ndNum, uint16_t srcNdStride, Stride dstNdStride)
        : ndNum(ndNum), srcNdStride(srcNdStride), dstNdStride(dstNdStride) {}
    uint16_t ndNum = 1, srcNdStride = 0;
    Stride dstNdStride = 0;
};
struct Nz2DnParams {
    Nz2DnParams() = default;
    Nz2DnParams(uint16_t dnNum, uint16_t srcNzMatrixStride, uint32_t dstDnMatrixStride, uint16_t srcNzC0Stride)
        : dnNum(dnNum), srcNzMatrixStride(srcNzMatrixStride), dstDnMatrixStride(dstDnMatrixStride),
          srcNzC0Stride(srcNzC0Stride) {}
    uint16_t dnNum = 1, srcNzMatrixStride = 0;
    uint32_t dstDnMatrixStride = 0;
    uint16_t srcNzC0Stride = 0;
};

template <CO2Layout format>
struct TransformParams {
    using PARAMS = uint8_t;
};
template <>
struct TransformParams<CO2Layout::ROW_MAJOR> {
    using PARAMS = Nz2NdParams;
};
template <>
struct TransformParams<CO2Layout::COLUMN_MAJOR> {
    using PARAMS = Nz2DnParams;
};

template <CO2Layout format = CO2Layout::ROW_MAJOR>
struct FixpipeParamsArch3510 {
    FixpipeParamsArch3510() = default;
    FixpipeParamsArch3510(uint16_t nSize, uint16_t mSize, uint16_t srcStride, uint32_t dstStride)
        : nSize(nSize), mSize(mSize), srcStride(srcStride), dstStride(dstStride) {}
    ReluMode preReluMode = ReluMode::NO_RELU;
    ClipReluMode preClipReluMode = ClipReluMode::NOCLIP_RELU;
    uint64_t reluScalar = 0, vectorRelu = 0;
    uint16_t nSize = 0, mSize = 0, srcStride = 0;
    uint32_t dstStride = 0;
    QuantMode_t quantPre = QuantMode_t::NoQuant;
    uint64_t deqScalar = 0;
    bool reluEn = false;
    uint8_t unitFlag = 0, dualDstCtl = 0;
    bool subBlockId = false;
    typename TransformParams<format>::PARAMS params{};
    bool isChannelSplit = false;
};
template <CO2Layout format = CO2Layout::ROW_MAJOR>
struct FixpipeParamsC310 : FixpipeParamsArch3510<format> {
    using FixpipeParamsArch3510<format>::FixpipeParamsArch3510;
};

/// isUnitFlag: clear the unit flags of all of L0C, in order on pipe FIX. The tensor forms for DataCopy out of L0C
/// (quantization factors) are not modelled: give Fixpipe its factors. Source: SetFixPipeConfig.
template <class T, bool setRelu = false>
void SetFixPipeConfig(const LocalTensor<T>&, bool isUnitFlag = false, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_cube");
    if (!emulator::require(
            isUnitFlag, "argument", at, "SetFixPipeConfig",
            "only isUnitFlag true (clear the unit flags) is modelled; give Fixpipe its quantization factors."))
        return;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::FIX, instruction.name = "SetFixPipeConfig", instruction.at = at;
    emulator::issue(std::move(instruction), [] { emulator::clear_unit_flags(); });
}

namespace cube {

constexpr bool is_vector_quant(QuantMode_t mode) {
    switch (mode) {
        case VDEQF16:
        case VQF322B8_PRE:
        case VREQ8:
        case VQF322FP8_PRE:
        case VQF322HIF8_PRE:
        case VQF322HIF8_PRE_HYBRID:
        case VQS322BF16_PRE:
        case VQF322F16_PRE:
        case VQF322BF16_PRE:
        case VQF322F32_PRE: return true;
        default: return false;
    }
}
constexpr QuantMode_t scalar_quant(QuantMode_t mode) {
    return is_vector_quant(mode) ? static_cast<QuantMode_t>(mode - 1) : mode;
}
static_assert(scalar_quant(VDEQF16) == DEQF16 && scalar_quant(VQF322F32_PRE) == QF322F32_PRE &&
              scalar_quant(VREQ8) == REQ8);

/// Whether L0C's type U becomes T in this mode (of the scalar form).
template <class T, class U>
constexpr bool quant_fits(QuantMode_t mode) {
    constexpr bool real = std::is_same_v<U, float>;
    switch (mode) {
        case NoQuant: return std::is_same_v<T, U>;
        case F322F16: return real && std::is_same_v<T, half>;
        case F322BF16: return real && std::is_same_v<T, bfloat16_t>;
        case DEQF16: return !real && std::is_same_v<T, half>;
        case QF322B8_PRE: return real && one_of<T, int8_t, uint8_t>();
        case REQ8: return !real && one_of<T, int8_t, uint8_t>();
        case QF322FP8_PRE: return is_3510 && real && std::is_same_v<T, fp8_e4m3fn_t>;
        case QF322HIF8_PRE: return is_3510 && real && std::is_same_v<T, hifloat8_t>;
        case QS322BF16_PRE: return is_3510 && !real && std::is_same_v<T, bfloat16_t>;
        case QF322F16_PRE: return is_3510 && real && std::is_same_v<T, half>;
        case QF322BF16_PRE: return is_3510 && real && std::is_same_v<T, bfloat16_t>;
        case QF322F32_PRE: return is_3510 && real && std::is_same_v<T, float>;
        default: return false;  // hifloat8_t in hybrid rounding: see Rounding::Hybrid
    }
}

/// A conversion as the instruction captured it; `factors`: one a column, nullptr: `factor` for all.
struct Conversion {
    QuantMode_t mode;  // of the scalar form
    uint64_t factor;
    const uint8_t* factors;
    bool relu;
    Saturation saturation;  // as for a Cast to this type
};

/// M1 of a quantization parameter: a float whose low 13 bits do not count.
inline float quant_factor(uint64_t bits) {
    return emulator::numbers::bits_as<float>(static_cast<uint32_t>(bits) & ~0x1fffu);
}
/// Its offset, a signed number of 9 bits. That it is signed is taken from its use; the page says "9 bits of integer".
inline int64_t quant_offset(uint64_t bits) { return static_cast<int64_t>(bits << 18) >> 55; }

/// float -> whole number of 9 bits, plus the offset, to int8 or uint8 as the sign bit says; ends saturate, ties go to
/// even.
inline uint8_t quant_byte(float value, uint64_t parameter) {
    const auto whole = emulator::numbers::to_integer<int16_t, 9>(
        emulator::numbers::to_integral<emulator::numbers::Rounding::Rint>(value), true);
    const int64_t moved = whole + quant_offset(parameter);
    return parameter >> 46 & 1 ? static_cast<uint8_t>(emulator::numbers::integer_to_integer<int8_t>(moved, true))
                               : emulator::numbers::integer_to_integer<uint8_t>(moved, true);
}

/// int32 as a float; dav-2201 with bit 36 of the parameter: shifted right by bits 32 to 35 plus 1 and cut to int16
/// before.
inline float shifted_number(int32_t value, uint64_t parameter) {
    if (is_3510 || !(parameter >> 36 & 1)) return static_cast<float>(value);
    return static_cast<float>(
        emulator::numbers::integer_to_integer<int16_t>(value >> ((parameter >> 32 & 15) + 1), true));
}

/// `count` numbers of columns from `column` on.
template <class T, class U>
void convert_numbers(T* to, const U* from, int64_t column, int64_t count, const Conversion& c) {
    namespace numbers = emulator::numbers;
    const auto parameter = [&](int64_t i) {
        uint64_t bits = c.factor;
        if (c.factors) std::memcpy(&bits, c.factors + (column + i) * 8, 8);
        return bits;
    };
    // ReLU has 0 as the factor of negative numbers.
    const auto scaled = [&](float value, uint64_t bits) {
        return value * (c.relu && value < 0 ? 0.0f : quant_factor(bits));
    };
    const auto number = [&](int64_t i, uint64_t bits) {
        if constexpr (std::is_same_v<U, float>)
            return scaled(from[i], bits);
        else
            return scaled(shifted_number(from[i], bits), bits);
    };
    if constexpr (std::is_same_v<T, U>) {
        if (c.mode == NoQuant) {
            for (int64_t i = 0; i < count; ++i) to[i] = c.relu && from[i] < U(0) ? U(0) : from[i];
            return;
        }
    }
    if constexpr (std::is_same_v<U, float> && one_of<T, half, bfloat16_t>()) {
        if (c.mode == F322F16 || c.mode == F322BF16) {
            for (int64_t i = 0; i < count; ++i)
                to[i] = numbers::convert_as<T, numbers::Rounding::Rint>(c.relu && from[i] < 0 ? 0.0f : from[i],
                                                                        c.saturation.saturate);
            return;
        }
    }
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t bits = parameter(i);
        const float value = number(i, bits);
        if constexpr (one_of<T, int8_t, uint8_t>())
            to[i] = static_cast<T>(quant_byte(value, bits));
        else if constexpr (std::is_same_v<T, half> && std::is_same_v<U, int32_t>)
            to[i] = numbers::convert_as<T, numbers::Rounding::Rint>(value, true);
        else if constexpr (std::is_same_v<T, hifloat8_t>)
            to[i] = numbers::convert_as<T, numbers::Rounding::Round>(value, c.saturation.saturate);
        else if constexpr (one_of<T, half, bfloat16_t, fp8_e4m3fn_t>())
            to[i] =
                numbers::convert_as<T, numbers::Rounding::Rint>(value, c.saturation.saturate, c.saturation.keep_nan);
        else if constexpr (std::is_same_v<T, float>)
            to[i] = value;
    }
}

/// Where Fixpipe takes its numbers and puts them; all in elements.
struct Layout {
    int64_t m, n, matrices, source_column, source_matrix, source_row;   // source_column: between blocks of 16 columns
    int64_t group, group_pitch, row_pitch, column_pitch, matrix_pitch;  // destination: groups of columns, rows, columns
    int parts = 1;                                                      // 2: to both vector cores
    int64_t second = 0;                                                 // where in the source the second part begins
    int64_t destination(int64_t matrix, int64_t row, int64_t column) const {
        return matrix * matrix_pitch + column / group * group_pitch + row * row_pitch + column % group * column_pitch;
    }
};

/// The types of L0C and of the destination, as far as Fixpipe has to know them.
struct Types {
    void (*convert)(void* to, const void* from, int64_t column, int64_t count, const Conversion& c);
    bool (*fits)(QuantMode_t mode);
    int64_t size;  // of the destination's
    const char *from, *to;
    void (*store)(uint8_t* to, const uint8_t* from, int64_t bytes, const emulator::Control& control);
    uint8_t atomic_type;
    Saturation saturation;
};
template <class T, class U>
Types types_of() {
    return {[](void* to, const void* from, int64_t column, int64_t count, const Conversion& c) {
                convert_numbers(static_cast<T*>(to), static_cast<const U*>(from), column, count, c);
            },
            quant_fits<T, U>,
            sizeof(T),
            emulator::numbers::names::Of<U>::name,
            emulator::numbers::names::Of<T>::name,
            store_row<T>,
            atomic::type<T>(),
            saturation<T>()};
}

/// What of the parameters is the same for every form.
struct Options {
    QuantMode_t quant;
    uint64_t factor;
    bool relu;
    uint8_t unit_flag;
};

inline bool legal_fixpipe(const Layout& l, const Types& types, int64_t columns_at_once, const Options& o,
                          bool has_factors, Site at) {
    const char* const call = "Fixpipe";
    return in_range(l.n, 1, 4095, "nSize", call, at) && in_range(l.m, 1, 65535, "mSize", call, at) &&
           emulator::require(l.n % columns_at_once == 0, "argument", at, call,
                             "nSize is " + std::to_string(l.n) + "; for this layout it has to be a multiple of " +
                                 std::to_string(columns_at_once) + ".") &&
           emulator::require(l.group_pitch > 0 && l.row_pitch > 0 && l.column_pitch > 0, "argument", at, call,
                             "dstStride is 0; it has to be positive.") &&
           emulator::require(o.unit_flag == 0 || o.unit_flag == 2 || o.unit_flag == 3, "argument", at, call,
                             "unitFlag is " + std::to_string(o.unit_flag) + "; it has to be 0, 2 or 3.") &&
           emulator::require(types.fits(scalar_quant(o.quant)), "argument", at, call,
                             std::string("quantPre ") + std::to_string(o.quant) + " does not turn " + types.from +
                                 " of L0C into " + types.to + " on this SoC.") &&
           emulator::require(
               is_vector_quant(o.quant) == has_factors, "argument", at, call,
               has_factors
                   ? "a tensor of factors goes with the modes that have one a column (VDEQF16, VREQ8, VQ...) only."
                   : "this quantPre takes a factor a column: give Fixpipe the tensor of factors.");
}

/// The destination: global memory, L1, or UB of one or both vector cores.
struct Destination {
    Place place[2];
    const char* path;
    emulator::Access write(int part, int64_t offset, int64_t bytes, bool atomic) const {
        const bool aligned = place[0].space() != emulator::Space::GM && offset == 0;
        return place[part].bytes(atomic ? emulator::Access::Kind::Atomic : emulator::Access::Kind::Write, "dst", offset,
                                 bytes, aligned ? 32 : 1);
    }
};

/// The instruction: `l` is what each destination gets, the second from source element `l.second` on.
inline void issue_fixpipe(const Destination destination, const Layout l, const Types types, const Place src,
                          const Options o, const Place* factors, int64_t columns_at_once, Site at) {
    using emulator::Access;
    const char* const call = "Fixpipe";
    const emulator::Control control = emulator::core().control;
    if (!legal_fixpipe(l, types, columns_at_once, o, factors != nullptr, at) ||
        !is_in(src.space(), emulator::Space::L0C, "src", "CO1", call, at) ||
        (factors && !is_in(factors->space(), emulator::Space::L1, "cbufWorkspace", "C1", call, at)))
        return;
    const bool atomic = control.atomic && destination.place[0].space() == emulator::Space::GM;
    if (!emulator::require(
            !atomic || control.atomic_type == 0 || control.atomic_type == types.atomic_type, "argument", at, call,
            "atomic writes are on for another type than the tensor's; give SetAtomicAdd the type of the copy."))
        return;
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::FIX, instruction.name = call, instruction.at = at,
    instruction.unit_flag = o.unit_flag;
    instruction.cost =
        emulator::Cost::move(destination.path, static_cast<uint64_t>(l.parts * l.matrices * l.m * l.n * types.size));
    auto& accesses = instruction.accesses;
    for (int64_t index = 0; index < l.matrices * l.parts; ++index) {
        const int64_t begin = (index / l.parts * l.source_matrix + index % l.parts * l.second) * 4, whole = l.n / 16,
                      rest = l.n % 16;
        const auto add = [&](int64_t block, int64_t blocks, int64_t columns) {
            if (columns == 0 || blocks == 0) return;
            const int64_t first = begin + block * l.source_column * 4;
            if (columns == 16 && l.source_row == 16)
                accesses.push_back(
                    repeated(src.bytes(Access::Kind::Read, "src", first, l.m * 64, 1), blocks, l.source_column * 4));
            else
                accesses.push_back(repeated(src.bytes(Access::Kind::Read, "src", first, columns * 4, 1), l.m,
                                            l.source_row * 4, blocks, l.source_column * 4));
        };
        add(0, whole, 16), add(whole, 1, rest);
    }
    accesses.front().align = 64;
    for (Access& source : accesses) source.unit = o.unit_flag != 0, source.carries = !atomic;
    const std::vector<Access> sources = accesses;
    if (factors) accesses.push_back(factors->bytes(Access::Kind::Read, "cbufWorkspace", 0, l.n * 8));
    for (int64_t index = 0; index < l.matrices * l.parts; ++index) {
        const int64_t begin = index / l.parts * l.matrix_pitch * types.size;
        const auto write = [&](int64_t bytes) {
            return destination.write(static_cast<int>(index % l.parts), begin, bytes, atomic);
        };
        if (l.column_pitch != 1)  // column by column
            accesses.push_back(repeated(write(l.m * types.size), l.n, l.column_pitch * types.size));
        else if (l.group >= l.n)  // row by row
            accesses.push_back(repeated(write(l.n * types.size), l.m, l.row_pitch * types.size));
        else
            accesses.push_back(repeated(write(l.m * l.group * types.size), l.n / l.group, l.group_pitch * types.size));
    }
    const Conversion conversion{scalar_quant(o.quant), o.factor, factors ? factors->host : nullptr, o.relu,
                                types.saturation};
    emulator::issue(std::move(instruction), [=] {
        std::vector<uint8_t> line(static_cast<size_t>(l.n * types.size));
        const auto store = [&](uint8_t* to, int64_t column, int64_t count) {
            if (atomic)
                types.store(to, line.data() + column * types.size, count * types.size, control);
            else
                std::memcpy(to, line.data() + column * types.size, static_cast<size_t>(count * types.size));
        };
        const auto from = [&](int64_t index) { return index / l.parts * l.source_matrix + index % l.parts * l.second; };
        for (int64_t index = 0; index < l.matrices * l.parts; ++index) {
            uint8_t* const out =
                destination.place[index % l.parts].host + index / l.parts * l.matrix_pitch * types.size;
            for (int64_t row = 0; row < l.m; ++row) {
                for (int64_t column = 0; column < l.n; column += 16)
                    types.convert(line.data() + column * types.size,
                                  src.host + (from(index) + column / 16 * l.source_column + row * l.source_row) * 4,
                                  column, std::min<int64_t>(16, l.n - column), conversion);
                const int64_t step = l.column_pitch != 1 ? 1 : l.group;
                for (int64_t column = 0; column < l.n; column += step)
                    store(out + l.destination(0, row, column) * types.size, column, std::min(step, l.n - column));
            }
        }
        if (atomic) return;
        bool undefined = false;  // what was undefined in L0C is undefined in the destination
        for (const Access& source : sources)
            undefined |= !emulator::unwritten(source.space, source.begin,
                                              source.begin + (source.groups - 1) * source.group_pitch +
                                                  (source.runs - 1) * source.pitch + source.bytes)
                              .empty();
        if (!undefined) return;
        for (int64_t index = 0; index < l.matrices * l.parts; ++index)
            for (int64_t row = 0; row < l.m; ++row)
                for (int64_t column = 0; column < l.n; ++column) {
                    const int64_t element =
                        src.address() +
                        (from(index) + column / 16 * l.source_column + row * l.source_row + column % 16) * 4;
                    if (!emulator::unwritten(src.space(), element, element + 4).empty())
                        emulator::forget(destination.write(static_cast<int>(index % l.parts),
                                                           l.destination(index / l.parts, row, column) * types.size,
                                                           types.size, false));
                }
    });
}

/// Layouts of the destination: row-major rows of `stride` elements, or groups of columns `stride` elements apart. Bytes
/// come in groups of 32 columns (Int8 Channel Merge), split floats of 8, everything else of 16.
template <class T>
void set_destination(Layout& l, CO2Layout format, int64_t stride, bool split) {
    if (format == CO2Layout::ROW_MAJOR) {
        l.group = l.n, l.group_pitch = std::max<int64_t>(l.n, 1), l.row_pitch = stride, l.column_pitch = 1;
    } else if (format == CO2Layout::COLUMN_MAJOR) {
        l.group = l.n, l.group_pitch = 1, l.row_pitch = 1, l.column_pitch = stride;
    } else {
        l.group = sizeof(T) == 1 ? 32
                  : split        ? 8
                                 : 16,
        l.group_pitch = stride, l.row_pitch = l.group, l.column_pitch = 1;
    }
}
template <class T>
constexpr int64_t columns_at_once(CO2Layout format, bool split) {
    if (format != CO2Layout::NZ) return 1;
    return sizeof(T) == 1 ? 32 : split ? 8 : 16;
}

template <class T, class U>
constexpr bool fixpipe_types(bool to_l1) {
    if (std::is_same_v<U, float>)
        return one_of<T, int8_t, uint8_t, half, bfloat16_t>() || (is_3510 && one_of<T, hifloat8_t, fp8_e4m3fn_t>()) ||
               (std::is_same_v<T, float> && (is_3510 || !to_l1));
    if (std::is_same_v<U, int32_t>)
        return one_of<T, int8_t, uint8_t, half>() || (is_3510 && std::is_same_v<T, bfloat16_t>) ||
               (std::is_same_v<T, int32_t> && (is_3510 || !to_l1));
    return false;
}

template <class Params>
Options options(const Params& p) {
    return {p.quantPre, p.deqScalar, p.reluEn, p.unitFlag};
}

/// `factors`: nullptr for the modes that have one factor for all.
template <class T, class U, class Params>
void fixpipe_to_global(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const Layout& l, int64_t at_once,
                       const Params& p, const LocalTensor<uint64_t>* factors, Site at) {
    EMULATOR_USES("asc_uses_cube");
    const Place columns = factors ? place(*factors) : Place{};
    issue_fixpipe({{place(dst), {}}, "L0C->GM"}, l, types_of<T, U>(), place(src), options(p),
                  factors ? &columns : nullptr, at_once, at);
}

/// `owner` negative: L1; 1, 2: UB of that vector core, from it on of `l.parts` of them.
template <class T, class U, class Params>
void fixpipe_to_local(const LocalTensor<T>& dst, int owner, const LocalTensor<U>& src, const Layout& l, int64_t at_once,
                      const Params& p, const LocalTensor<uint64_t>* factors, Site at) {
    EMULATOR_USES("asc_uses_cube");
    const bool l1 = owner < 0;
    if (!is_in(dst.space(), l1 ? emulator::Space::L1 : emulator::Space::UB, "dst",
               l1 ? "A1, B1 or C1" : "VECIN, VECOUT or VECCALC", "Fixpipe", at))
        return;
    const Place columns = factors ? place(*factors) : Place{};
    issue_fixpipe({{place(dst, owner), l.parts == 2 ? place(dst, owner + 1) : Place{}}, l1 ? "L0C->L1" : "L0C->UB"}, l,
                  types_of<T, U>(), place(src), options(p), factors ? &columns : nullptr, at_once, at);
}

// ---- FixpipeParamsV220, on both ----

/// False: nothing to do, or refused.
template <class T, class U>
bool layout_v220(Layout& l, const FixpipeParamsV220& p, CO2Layout format, bool to_l1, Site at) {
    static_assert(fixpipe_types<T, U>(false),
                  "Fixpipe: this combination of element types does not exist for it on this SoC");
    const char* const call = "Fixpipe";
    if (p.mSize == 0 || p.nSize == 0 || p.ndNum == 0) return false;  // documented: no operation
    const bool nd = format == CO2Layout::ROW_MAJOR;
    if ((nd && !in_range(p.mSize, 1, 8192, "mSize", call, at)) ||
        (nd && p.ndNum > 1 && !in_range(p.srcNdStride, 0, 512, "srcNdStride", call, at)) ||
        !emulator::require(!p.isChannelSplit || (std::is_same_v<T, float> && !nd && !to_l1 && p.unitFlag == 0),
                           "argument", at, call,
                           "isChannelSplit goes with float in NZ to global memory, without unitFlag."))
        return false;
    l = {p.mSize, p.nSize, nd ? p.ndNum : 1,      p.srcStride * 16ll, p.srcNdStride * 256ll, 16, 0, 0,
         0,       0,       nd ? p.dstNdStride : 0};
    set_destination<T>(l, format,
                       nd ? p.dstStride : static_cast<int64_t>(p.dstStride) * 32 / static_cast<int64_t>(sizeof(T)),
                       p.isChannelSplit);
    return true;
}

// ---- FixpipeParamsArch3510 ----

template <class T, class U, CO2Layout format>
bool layout_3510(Layout& l, const FixpipeParamsArch3510<format>& p, bool to_global, Site at) {
    static_assert(on_3510<T>(), "Fixpipe on dav-2201 takes FixpipeParamsV220");
    static_assert(fixpipe_types<T, U>(false), "Fixpipe: this combination of element types does not exist for it");
    const char* const call = "Fixpipe";
    int64_t matrices = 1, source_matrix = 0, matrix_pitch = 0, source_row = 16;
    if constexpr (format == CO2Layout::ROW_MAJOR)
        matrices = p.params.ndNum, source_matrix = p.params.srcNdStride * 16ll, matrix_pitch = p.params.dstNdStride;
    if constexpr (format == CO2Layout::COLUMN_MAJOR)
        matrices = p.params.dnNum, source_matrix = p.params.srcNzMatrixStride * 16ll,
        matrix_pitch = p.params.dstDnMatrixStride, source_row = p.params.srcNzC0Stride * 16ll;
    if (p.mSize == 0 || p.nSize == 0 || matrices == 0) return false;  // documented: no operation
    if (!emulator::require(source_row > 0, "argument", at, call, "srcNzC0Stride is 0; it has to be positive.") ||
        !emulator::require(source_row == 16 || p.unitFlag == 0, "argument", at, call,
                           "unitFlag goes with srcNzC0Stride 1 only.") ||
        !emulator::require(
            !p.isChannelSplit || (std::is_same_v<T, float> && format == CO2Layout::NZ && to_global && p.unitFlag == 0),
            "argument", at, call, "isChannelSplit goes with float in NZ to global memory, without unitFlag.") ||
        !emulator::require(p.preReluMode == ReluMode::NO_RELU && p.preClipReluMode == ClipReluMode::NOCLIP_RELU,
                           "argument", at, call, "preReluMode and preClipReluMode are not modelled; take reluEn."))
        return false;
    l = {p.mSize, p.nSize, matrices, p.srcStride * 16ll, source_matrix, source_row, 0, 0, 0, 0, matrix_pitch};
    set_destination<T>(l, format, p.dstStride, p.isChannelSplit);
    return emulator::require(p.dstStride > 0, "argument", at, call, "dstStride is 0; it has to be positive.");
}

template <class T, class U, const FixpipeConfig& config>
void fixpipe_local_3510(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>* factors,
                        const FixpipeParamsArch3510<config.format>& p, Site at) {
    const char* const call = "Fixpipe";
    Layout l;
    if (!layout_3510<T, U>(l, p, false, at)) return;
    const int64_t at_once = columns_at_once<T>(config.format, false), size = sizeof(T);
    // The line of a row-major or column-major matrix fills whole blocks of 32 bytes.
    const int64_t line = config.format == CO2Layout::ROW_MAJOR      ? p.nSize
                         : config.format == CO2Layout::COLUMN_MAJOR ? p.mSize
                                                                    : 32;
    if (!config.isToUB) {
        if (!emulator::require(line * size % 32 == 0, "alignment", at, call,
                               "a line of " + std::to_string(line) + " elements is " + std::to_string(line * size) +
                                   " bytes; towards L1 it has to be a multiple of 32."))
            return;
        fixpipe_to_local(dst, -1, src, l, at_once, p, factors, at);
        return;
    }
    if (!in_range(p.dualDstCtl, 0, 2, "dualDstCtl", call, at)) return;
    if (p.dualDstCtl == 0) {
        fixpipe_to_local(dst, 1 + p.subBlockId, src, l, at_once, p, factors, at);
        return;
    }
    const bool rows = p.dualDstCtl == 1;
    if (!emulator::require(config.format != CO2Layout::COLUMN_MAJOR, "argument", at, call,
                           "dualDstCtl does not go with CFG_COLUMN_MAJOR.") ||
        !emulator::require(p.quantPre == NoQuant && !p.reluEn, "argument", at, call,
                           "dualDstCtl does not go with quantPre or reluEn.") ||
        !emulator::require(
            rows ? p.mSize % 2 == 0 : p.nSize % 32 == 0, "argument", at, call,
            rows ? "mSize is " + std::to_string(p.mSize) + "; to be split it has to be even."
                 : "nSize is " + std::to_string(p.nSize) + "; to be split it has to be a multiple of 32."))
        return;
    (rows ? l.m : l.n) /= 2;
    if (config.format == CO2Layout::ROW_MAJOR) l.group = l.group_pitch = l.n;
    l.parts = 2, l.second = rows ? l.m * 16 : l.n / 16 * l.source_column;
    fixpipe_to_local(dst, 1, src, l, at_once, p, factors, at);
}

}  // namespace cube

/// L0C to global memory in `config.format`: row-major lines of dstStride elements, ndNum matrices of them (srcNdStride
/// in 1024 bytes); or NZ with dstStride blocks of 32 bytes between column groups. Atomic after SetAtomicAdd and its
/// like. On dav-3510 the same: the units of its strides are those of the struct, not of the SoC. Source: Fixpipe (L0C
/// to GM).
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsV220& p,
             Site at = Site::here()) {
    static_assert(config.format != CO2Layout::COLUMN_MAJOR, "Fixpipe: CFG_COLUMN_MAJOR goes with FixpipeParamsArch3510");
    cube::Layout l;
    if (cube::layout_v220<T, U>(l, p, config.format, false, at))
        cube::fixpipe_to_global(dst, src, l, cube::columns_at_once<T>(config.format, p.isChannelSplit), p, nullptr, at);
}
/// The same with one quantization factor a column, in L1.
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR, class S = uint64_t>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<S>& cbufWorkspace,
             const FixpipeParamsV220& p, Site at = Site::here()) {
    static_assert(config.format != CO2Layout::COLUMN_MAJOR, "Fixpipe: CFG_COLUMN_MAJOR goes with FixpipeParamsArch3510");
    static_assert(std::is_same_v<S, uint64_t>, "Fixpipe: quantization factors are uint64_t");
    cube::Layout l;
    if (cube::layout_v220<T, U>(l, p, config.format, false, at))
        cube::fixpipe_to_global(dst, src, l, cube::columns_at_once<T>(config.format, p.isChannelSplit), p,
                                &cbufWorkspace, at);
}
/// L0C to L1, always NZ: CFG_ROW_MAJOR has no effect on dav-2201, and does not go with this struct on dav-3510. Source:
/// Fixpipe (L0C to L1).
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsV220& p, Site at = Site::here()) {
    static_assert(!is_3510 || config.format == CO2Layout::NZ,
                  "Fixpipe to L1 with FixpipeParamsV220 takes CFG_NZ on dav-3510");
    static_assert(cube::fixpipe_types<T, U>(true),
                  "Fixpipe to L1: this combination of element types does not exist for it on this SoC");
    cube::Layout l;
    if (cube::layout_v220<T, U>(l, p, CO2Layout::NZ, true, at))
        cube::fixpipe_to_local(dst, -1, src, l, cube::columns_at_once<T>(CO2Layout::NZ, false), p, nullptr, at);
}
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR, class S = uint64_t>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<S>& cbufWorkspace,
             const FixpipeParamsV220& p, Site at = Site::here()) {
    static_assert(!is_3510 || config.format == CO2Layout::NZ,
                  "Fixpipe to L1 with FixpipeParamsV220 takes CFG_NZ on dav-3510");
    static_assert(cube::fixpipe_types<T, U>(true),
                  "Fixpipe to L1: this combination of element types does not exist for it on this SoC");
    static_assert(std::is_same_v<S, uint64_t>, "Fixpipe: quantization factors are uint64_t");
    cube::Layout l;
    if (cube::layout_v220<T, U>(l, p, CO2Layout::NZ, true, at))
        cube::fixpipe_to_local(dst, -1, src, l, cube::columns_at_once<T>(CO2Layout::NZ, false), p, &cbufWorkspace, at);
}

/// The same with the struct of dav-3510; dstStride is in elements in every layout, strides between matrices of L0C in
/// rows of 16 elements.
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsArch3510<config.format>& p,
             Site at = Site::here()) {
    cube::Layout l;
    if (cube::layout_3510<T, U>(l, p, true, at))
        cube::fixpipe_to_global(dst, src, l, cube::columns_at_once<T>(config.format, p.isChannelSplit), p, nullptr, at);
}
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& cbufWorkspace,
             const FixpipeParamsArch3510<config.format>& p, Site at = Site::here()) {
    cube::Layout l;
    if (cube::layout_3510<T, U>(l, p, true, at))
        cube::fixpipe_to_global(dst, src, l, cube::columns_at_once<T>(config.format, p.isChannelSplit), p,
                                &cbufWorkspace, at);
}
/// To L1, or with config.isToUB to the UB of vector core subBlockId; dualDstCtl 1, 2: the first half of the rows, of
/// the columns, to vector core 0 and the second to 1. Sources: Fixpipe (L0C to L1), Fixpipe (L0C to UB).
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const FixpipeParamsArch3510<config.format>& p,
             Site at = Site::here()) {
    cube::fixpipe_local_3510<T, U, config>(dst, src, nullptr, p, at);
}
template <class T, class U, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint64_t>& cbufWorkspace,
             const FixpipeParamsArch3510<config.format>& p, Site at = Site::here()) {
    cube::fixpipe_local_3510<T, U, config>(dst, src, &cbufWorkspace, p, at);
}

}  // namespace AscendC
