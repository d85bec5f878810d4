// Mmad and MmadMx: C = A x B (+ C or bias) of matrices in L0A and L0B, into L0C.
//
// Products and sums are float32, int32 for int8, with k ascending and C's initial value first. On the device the order
// within a group of k that it adds up in one step is unknown, so float sums may differ in their last bits; a product of
// 8- and 16-bit numbers is exact in both. Infinity and NaN come out as IEEE 754 has them ("Boundary values of Mmad");
// that CTRL[48] saturates float results, as the page Mmad says and that of SetCtrlSpr does not list, is left out.
// Sources: the pages Mmad, MmadMx, GEMV, UnitFlag, HF32 and "K direction alignment".
#pragma once

#include <memory>

#include "cube_load.h"

namespace AscendC {

struct MmadParams {
    MmadParams() = default;
    MmadParams(uint16_t m, uint16_t n, uint16_t k, bool isBias, int32_t fmOffset, bool enSsparse, bool enWinogradA,
               bool enWinogradB)
        : m(m), n(n), k(k), isBias(isBias), fmOffset(fmOffset), enSsparse(enSsparse), enWinogradA(enWinogradA),
          enWinogradB(enWinogradB) {}
    MmadParams(uint16_t m, uint16_t n, uint16_t k, uint8_t unitFlag, bool cmatrixSource, bool cmatrixInitVal)
        : m(m), n(n), k(k), unitFlag(unitFlag), cmatrixSource(cmatrixSource), cmatrixInitVal(cmatrixInitVal) {}
    uint16_t m = 0, n = 0, k = 0;
    bool isBias = false;  // deprecated: add to what is in L0C
    int32_t fmOffset = 0;
    bool enSsparse = false, enWinogradA = false, enWinogradB = false;  // without effect on these SoCs
    uint8_t unitFlag = 0;
    bool kDirectionAlign = false, cmatrixSource = false, cmatrixInitVal = true;
#if __NPU_ARCH__ == 3510
    bool disableGemv = false;
#endif
};

enum class HF32Mode { ENABLE, DISABLE };
enum class HF32TransMode { NEAREST_ZERO, NEAREST_EVEN };

/// float operands of Mmad are rounded to HF32 before they are multiplied. Source: SetHF32Mode.
inline void SetHF32Mode(HF32Mode mode) { emulator::core().control.hf32 = mode == HF32Mode::ENABLE; }
inline void SetHF32Mode(bool on) { emulator::core().control.hf32 = on; }
/// How they are rounded: to nearest, ties towards zero or to even. Source: SetHF32TransMode.
inline void SetHF32TransMode(HF32TransMode mode) {
    emulator::core().control.hf32_nearest_zero = mode == HF32TransMode::NEAREST_ZERO;
}
/// The former form; which of the two modes `true` stands for is taken from the newer one's order. Unknown.
inline void SetHF32TransMode(bool zero) { emulator::core().control.hf32_nearest_zero = zero; }
/// In which order the tiles of C are finished: of use to a Fixpipe behind unit flags, without effect on what is
/// computed. Source: SetMMColumnMajor, SetMMRowMajor.
inline void SetMMRowMajor() { emulator::scalar_work(1); }
inline void SetMMColumnMajor() { emulator::scalar_work(1); }
inline void SetMMLayoutTransform(bool) { emulator::scalar_work(1); }

namespace cube_impl {

/// Bytes of the part of an operand that a product uses: `rows` in blocks of 16 and `columns` in groups of `group`
/// elements (row_bytes bytes), with block and group pitch in bytes. The rest of the last fractals is not read.
inline void add_tiles(std::vector<emulator::Access>& out, const Place& tensor, emulator::Access::Kind kind,
                      const char* operand, uint32_t align, int64_t rows, int64_t columns, int64_t group,
                      int64_t row_bytes, int64_t block_pitch, int64_t group_pitch) {
    const size_t before = out.size();
    const int64_t blocks = rows / 16, last_rows = rows % 16, groups = columns / group,
                  last_bytes = (columns % group * row_bytes + group - 1) / group;
    const auto add = [&](int64_t first_block, int64_t block_count, int64_t count, int64_t first_group,
                         int64_t group_count, int64_t bytes) {
        if (block_count == 0 || group_count == 0 || bytes == 0 || count == 0) return;
        const int64_t begin = first_block * block_pitch + first_group * group_pitch;
        if (bytes == row_bytes) {
            // Whichever of the two directions is contiguous in full becomes one run.
            const int64_t run = count * row_bytes;
            if (block_pitch == run)
                out.push_back(
                    repeated(tensor.bytes(kind, operand, begin, block_count * run, 1), group_count, group_pitch));
            else
                out.push_back(repeated(tensor.bytes(kind, operand, begin, run, 1), group_count, group_pitch,
                                       block_count, block_pitch));
        } else {
            out.push_back(
                repeated(tensor.bytes(kind, operand, begin, bytes, 1), count, row_bytes, block_count, block_pitch));
        }
    };
    add(0, blocks, 16, 0, groups, row_bytes);
    add(blocks, 1, last_rows, 0, groups, row_bytes);
    add(0, blocks, 16, groups, 1, last_bytes);
    add(blocks, 1, last_rows, groups, 1, last_bytes);
    if (out.size() > before) out[before].align = align;
}

/// float with `mantissa` bits of mantissa: HF32.
inline float short_float(float value, int mantissa, bool nearest_zero) {
    uint32_t bits = emulator::numbers::bits_as<uint32_t>(value);
    if ((bits & 0x7fffffffu) >= 0x7f800000u) return value;
    const uint32_t unit = 1u << (23 - mantissa), last = bits / unit & 1;
    bits += nearest_zero ? unit / 2 - 1 : unit / 2 - 1 + last;
    return emulator::numbers::bits_as<float>(bits & ~(unit - 1));
}

/// 16 columns of C, as the inner loop has them.
constexpr int64_t LANES = 16, ROWS_AT_ONCE = 4;
using Eight __attribute__((vector_size(32))) = float;

/// c[row][0..16) += sum over k of a[row][k] * b[k][0..16) for ROWS_AT_ONCE rows, k ascending.
inline void multiply_rows(float* c, const float* a, int64_t a_pitch, const float* b, int64_t count) {
    Eight sums[ROWS_AT_ONCE][2];
    for (int64_t row = 0; row < ROWS_AT_ONCE; ++row) std::memcpy(sums[row], c + row * LANES, sizeof sums[row]);
    Eight s00 = sums[0][0], s01 = sums[0][1], s10 = sums[1][0], s11 = sums[1][1];
    Eight s20 = sums[2][0], s21 = sums[2][1], s30 = sums[3][0], s31 = sums[3][1];
    const float *a0 = a, *a1 = a + a_pitch, *a2 = a1 + a_pitch, *a3 = a2 + a_pitch;
    for (int64_t k = 0; k < count; ++k) {
        Eight left, right;
        std::memcpy(&left, b + k * LANES, sizeof left);
        std::memcpy(&right, b + k * LANES + 8, sizeof right);
        s00 += a0[k] * left, s01 += a0[k] * right;
        s10 += a1[k] * left, s11 += a1[k] * right;
        s20 += a2[k] * left, s21 += a2[k] * right;
        s30 += a3[k] * left, s31 += a3[k] * right;
    }
    sums[0][0] = s00, sums[0][1] = s01, sums[1][0] = s10, sums[1][1] = s11;
    sums[2][0] = s20, sums[2][1] = s21, sums[3][0] = s30, sums[3][1] = s31;
    for (int64_t row = 0; row < ROWS_AT_ONCE; ++row) std::memcpy(c + row * LANES, sums[row], sizeof sums[row]);
}

/// The C0 numbers of a fractal's row as floats.
using Unpack = void (*)(float* to, const uint8_t* row);
template <class T>
void unpack_row(float* to, const uint8_t* row) {
    constexpr int64_t c0 = columns_of(bits_of<T>());
    if constexpr (emulator::numbers::is_packed<T>()) {
        for (int64_t i = 0; i < c0; i += 2) {
            T pair;
            std::memcpy(&pair, row + i / 2, 1);
            to[i] = emulator::numbers::element<float>(pair, 0), to[i + 1] = emulator::numbers::element<float>(pair, 1);
        }
    } else {
        T values[c0];
        std::memcpy(values, row, sizeof values);
        for (int64_t i = 0; i < c0; ++i) to[i] = static_cast<float>(values[i]);
    }
}

/// An operand's element type, as far as a product has to know it.
struct Element {
    Unpack unpack;
    int64_t c0;
    bool real, packed;  // float; fp4
    const char* name;   // of the multiplier in the counters: as in the tables of ops/soc.py
};
template <class A>
constexpr Element element_of(bool mx) {
    const char* const name = mx                              ? (fp4<A>() ? "mxfp4" : "mxfp8")
                             : std::is_same_v<A, half>       ? "fp16"
                             : std::is_same_v<A, bfloat16_t> ? "bf16"
                             : std::is_same_v<A, float>      ? "fp32"
                             : std::is_same_v<A, int8_t>     ? "int8"
                                                             : "fp8";
    return {unpack_row<A>, columns_of(bits_of<A>()), std::is_same_v<A, float>, fp4<A>(), name};
}

/// What a product has to know when it runs.
struct Product {
    int64_t m, n, k, k_groups;  // k_groups: fractals of a row of L0A
    bool gemv, zz, integers, hf32, nearest_zero;
    enum class Start : uint8_t { Zero, L0C, Bias } start;
    int64_t m_blocks() const { return (m + 15) / 16; }
    int64_t n_blocks() const { return (n + 15) / 16; }
};

/// Where a product finds its operands on the host. Scales (MX): one for 32 numbers along k, in fractals of 16 x 2.
struct Operands {
    uint8_t* c;
    const uint8_t *a, *b, *bias, *a_scales, *b_scales;
};

/// k numbers of one row of A or column of B; `fractal` says where a group of C0 of them begins. `to` has room for whole
/// groups.
template <class Fractal>
void unpack_line(float* to, const Product& p, const Element& type, const uint8_t* scales, int64_t index,
                 Fractal fractal) {
    for (int64_t k = 0; k < p.k; k += type.c0) type.unpack(to + k, fractal(k / type.c0));
    if (type.real && p.hf32)
        for (int64_t k = 0; k < p.k; ++k) to[k] = short_float(to[k], is_3510 ? 10 : 11, p.nearest_zero);
    if (scales == nullptr) return;
    for (int64_t group = 0; group < p.k / 32; ++group) {
        const float factor = emulator::numbers::decode_scale(
            scales[(index / 16 * (p.k / 64) + group / 2) * 32 + index % 16 * 2 + group % 2]);
        for (int64_t k = group * 32; k < group * 32 + 32; ++k) to[k] *= factor;
    }
}

/// The product itself.
inline void multiply(const Product& p, const Operands& o, const Element& left, const Element& right) {
    const int64_t m_blocks = p.m_blocks(), n_blocks = p.n_blocks(),
                  rows = (p.m + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ROWS_AT_ONCE;
    const int64_t wide = (p.k + left.c0 - 1) / left.c0 * left.c0;
    const auto room = [](int64_t count) { return std::unique_ptr<float[]>(new float[static_cast<size_t>(count)]); };
    const auto a = room(rows * wide), b = room(LANES * p.k), line = room(wide), sums = room(rows * LANES);
    for (int64_t row = 0; row < p.m; ++row)
        unpack_line(a.get() + row * wide, p, left, o.a_scales, row, [&](int64_t group) {
            if (p.gemv) return o.a + group * emu::C0_BYTES;
            const int64_t fractal = p.zz ? row / 16 * p.k_groups + group : group * m_blocks + row / 16;
            return o.a + fractal * emu::FRACTAL_BYTES + row % 16 * emu::C0_BYTES;
        });
    std::fill(a.get() + p.m * wide, a.get() + rows * wide, 0.0f);
    for (int64_t block = 0; block < n_blocks; ++block) {
        const int64_t columns = std::min(LANES, p.n - block * LANES);
        if (columns < LANES) std::fill(b.get(), b.get() + LANES * p.k, 0.0f);
        for (int64_t column = 0; column < columns; ++column) {
            unpack_line(line.get(), p, right, o.b_scales, block * LANES + column, [&](int64_t group) {
                return o.b + (group * n_blocks + block) * emu::FRACTAL_BYTES + column * emu::C0_BYTES;
            });
            for (int64_t k = 0; k < p.k; ++k) b[static_cast<size_t>(k * LANES + column)] = line[static_cast<size_t>(k)];
        }
        uint8_t* const tile = o.c + block * m_blocks * 16 * LANES * 4;
        // C's initial value of a number, as its four bytes.
        const auto first = [&](void* to, int64_t row, int64_t lane) {
            if (p.start == Product::Start::Zero)
                std::memset(to, 0, 4);
            else
                std::memcpy(to,
                            p.start == Product::Start::L0C ? tile + (row * LANES + lane) * 4
                                                           : o.bias + (block * LANES + lane) * 4,
                            4);
        };
        std::fill(sums.get(), sums.get() + rows * LANES, 0.0f);
        if (!p.integers) {
            if (p.start != Product::Start::Zero)
                for (int64_t row = 0; row < p.m; ++row)
                    for (int64_t lane = 0; lane < columns; ++lane)
                        first(&sums[static_cast<size_t>(row * LANES + lane)], row, lane);
            for (int64_t row = 0; row < rows; row += ROWS_AT_ONCE)
                multiply_rows(sums.get() + row * LANES, a.get() + row * wide, wide, b.get(), p.k);
            for (int64_t row = 0; row < p.m; ++row)
                std::memcpy(tile + row * LANES * 4, sums.get() + row * LANES, static_cast<size_t>(columns * 4));
            continue;
        }
        // Sums of up to 1024 products of int8 are whole numbers of at most 2^24: exact in float.
        constexpr int64_t exact = 1024;
        const std::unique_ptr<int64_t[]> total(new int64_t[static_cast<size_t>(p.m * LANES)]());
        for (int64_t k = 0; k < p.k; k += exact) {
            std::fill(sums.get(), sums.get() + rows * LANES, 0.0f);
            for (int64_t row = 0; row < rows; row += ROWS_AT_ONCE)
                multiply_rows(sums.get() + row * LANES, a.get() + row * wide + k, wide, b.get() + k * LANES,
                              std::min(exact, p.k - k));
            for (int64_t i = 0; i < p.m * LANES; ++i)
                total[static_cast<size_t>(i)] += static_cast<int64_t>(sums[static_cast<size_t>(i)]);
        }
        for (int64_t row = 0; row < p.m; ++row)
            for (int64_t lane = 0; lane < columns; ++lane) {
                int32_t value;
                first(&value, row, lane);
                value = emulator::numbers::integer_to_integer<int32_t>(
                    total[static_cast<size_t>(row * LANES + lane)] + value,
                    true);  // documented: integers always saturate
                std::memcpy(tile + (row * LANES + lane) * 4, &value, 4);
            }
    }
}

template <class T, class A, class B>
constexpr bool mmad_types() {
    if (one_of<A, half, bfloat16_t, float>()) return std::is_same_v<A, B> && std::is_same_v<T, float>;
    if (std::is_same_v<A, int8_t>) return std::is_same_v<B, int8_t> && std::is_same_v<T, int32_t>;
    if (!is_3510 || !std::is_same_v<T, float>) return false;
    return (std::is_same_v<A, hifloat8_t> && std::is_same_v<B, hifloat8_t>) ||
           (one_of<A, fp8_e4m3fn_t, fp8_e5m2_t>() && one_of<B, fp8_e4m3fn_t, fp8_e5m2_t>());
}
template <class T, class A, class B>
constexpr bool mmad_mx_types() {
    return is_3510 && std::is_same_v<T, float> &&
           ((fp4<A>() && fp4<B>()) || (one_of<A, fp8_e4m3fn_t, fp8_e5m2_t>() && one_of<B, fp8_e4m3fn_t, fp8_e5m2_t>()));
}

inline void issue_mmad(const char* call, bool mx, const Place dst, const Place fm, const Place filter,
                       const Place* bias, const Element left, const Element right, bool integers, const MmadParams& p,
                       Site at) {
    using emulator::Access;
    using emulator::Space;
    if (!in_range(p.m, 0, 4095, "m", call, at) || !in_range(p.n, 0, 4095, "n", call, at) ||
        !in_range(p.k, 0, 4095, "k", call, at))
        return;
    if (p.m == 0 || p.n == 0 || p.k == 0) return;  // documented: no operation
    if (!is_in(dst.space(), Space::L0C, "dst", "CO1", call, at) ||
        !is_in(fm.space(), Space::L0A, "fm", "A2", call, at) ||
        !is_in(filter.space(), Space::L0B, "filter", "B2", call, at) ||
        !emulator::require(bias == nullptr || bias->space() == Space::BT || bias->space() == Space::L0C, "wrong_core",
                           at, call, "bias has to be at C2 or CO1.") ||
        !emulator::require(p.unitFlag == 0 || p.unitFlag == 2 || p.unitFlag == 3, "argument", at, call,
                           "unitFlag is " + std::to_string(p.unitFlag) + "; it has to be 0, 2 or 3.") ||
        !emulator::require(!is_3510 || !p.kDirectionAlign, "argument", at, call,
                           "dav-3510 has no kDirectionAlign; set it to false.") ||
        (mx && !emulator::require(p.k % 64 == 0, "argument", at, call,
                                  "k is " + std::to_string(p.k) + "; it has to be a multiple of 64.")))
        return;
    const int64_t c0 = left.c0;
    bool gemv = p.m == 1;
#if __NPU_ARCH__ == 3510
    gemv = gemv && !p.disableGemv;
#endif
    const auto& control = emulator::core().control;
    Product product{p.m,      p.n,      p.k,          (p.k + c0 - 1) / c0,       gemv,
                    !is_3510, integers, control.hf32, control.hf32_nearest_zero, Product::Start::Zero};
    if (left.real && p.kDirectionAlign) product.k_groups = (p.k + 15) / 16 * 2;
    // A bias is taken from where it is. Without one cmatrixInitVal false adds to L0C, or to a row of C2: which is
    // unknown, its first is taken.
    const bool from_bias = bias ? bias->space() == Space::BT : !p.cmatrixInitVal && p.cmatrixSource;
    if (from_bias)
        product.start = Product::Start::Bias;
    else if (bias || p.isBias || !p.cmatrixInitVal)
        product.start = Product::Start::L0C;

    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::M, instruction.name = call, instruction.at = at,
    instruction.unit_flag = p.unitFlag;
    const int64_t m_blocks = product.m_blocks(), n_blocks = product.n_blocks();
    // A product of one row counts as one of 16: what GEMV takes is not published. HF32 doubles the rate of float.
    const int64_t padded = m_blocks * 16 * n_blocks * 16 * ((p.k + c0 - 1) / c0 * c0);
    instruction.cost = emulator::Cost::cube(left.name, static_cast<uint64_t>(p.m) * p.n * p.k,
                                            static_cast<uint64_t>(left.real && control.hf32 ? padded / 2 : padded));
    const uint32_t align = mx && !left.packed ? 1024 : 512;
    auto& accesses = instruction.accesses;
    if (gemv)
        accesses.push_back(fm.bytes(Access::Kind::Read, "fm", 0, (p.k * emu::C0_BYTES + c0 - 1) / c0, align));
    else
        add_tiles(accesses, fm, Access::Kind::Read, "fm", align, p.m, p.k, c0, emu::C0_BYTES,
                  product.zz ? product.k_groups * emu::FRACTAL_BYTES : emu::FRACTAL_BYTES,
                  product.zz ? emu::FRACTAL_BYTES : m_blocks * emu::FRACTAL_BYTES);
    add_tiles(accesses, filter, Access::Kind::Read, "filter", align, p.n, p.k, c0, emu::C0_BYTES, emu::FRACTAL_BYTES,
              n_blocks * emu::FRACTAL_BYTES);
    const auto scales = [&](Space space, const char* operand, int64_t address, int64_t rows) {
        const int64_t pitch = p.k / 64 * 32;  // a row of scale fractals
        Access access;
        access.space = space, access.operand = operand, access.begin = address / 16, access.bytes = rows / 16 * pitch;
        if (rows / 16) accesses.push_back(access);
        access.begin += rows / 16 * pitch, access.bytes = rows % 16 * 2;
        if (rows % 16) accesses.push_back(repeated(access, p.k / 64, 32));
    };
    if (mx)
        scales(Space::L0A_MX, "fm (scales)", fm.address(), p.m),
            scales(Space::L0B_MX, "filter (scales)", filter.address(), p.n);
    if (product.start == Product::Start::Bias) {
        Access access;
        access.space = Space::BT, access.bytes = p.n * 4;
        if (bias) access = bias->bytes(Access::Kind::Read, "bias", 0, p.n * 4, 64);
        access.operand = "bias";
        accesses.push_back(access);
    }
    const size_t before = accesses.size();
    if (product.start == Product::Start::L0C)
        add_tiles(accesses, dst, Access::Kind::Read, "dst", 1024, p.m, p.n, 16, 64, 1024, m_blocks * 1024);
    const Access whole = dst.bytes(Access::Kind::Write, "dst", 0, m_blocks * n_blocks * 1024, 1024);
    accesses.push_back(whole);
    // Products that are large enough follow each other in L0C without PipeBarrier<PIPE_M>: (m / 16) * (n / 16) >= 10,
    // in whole numbers as the page's code has it.
    for (size_t i = before; i < accesses.size(); ++i)
        accesses[i].in_order = p.m / 16 * (p.n / 16) >= 10, accesses[i].unit = p.unitFlag != 0;

    const emulator::Core& core = emulator::core();
    const Operands operands{dst.host,
                            fm.host,
                            filter.host,
                            bias && from_bias ? bias->host : core.local(Space::BT, 0),
                            mx ? core.local(Space::L0A_MX, fm.address() / 16) : nullptr,
                            mx ? core.local(Space::L0B_MX, filter.address() / 16) : nullptr};
    emulator::issue(std::move(instruction), [=] {
        multiply(product, operands, left, right);
        // The rest of the last fractals is undefined.
        Access rest = whole;
        if (product.m % 16) {
            rest.begin = whole.begin + (m_blocks - 1) * 1024 + product.m % 16 * 64,
            rest.bytes = (16 - product.m % 16) * 64;
            emulator::forget(repeated(rest, n_blocks, m_blocks * 1024));
        }
        if (product.n % 16) {
            rest.begin = whole.begin + (n_blocks - 1) * m_blocks * 1024 + product.n % 16 * 4,
            rest.bytes = (16 - product.n % 16) * 4;
            emulator::forget(repeated(rest, product.m, 64));
        }
    });
}

/// The call in types: what goes to `issue_mmad`.
template <bool mx, class T, class A, class B>
void mmad(const char* call, const LocalTensor<T>& dst, const LocalTensor<A>& fm, const LocalTensor<B>& filter,
          const Place* bias, const MmadParams& p, Site at) {
    EMULATOR_USES("asc_uses_cube");
    static_assert(bits_of<A>() == bits_of<B>(), "both matrices have numbers of one width");
    issue_mmad(call, mx, place(dst), place(fm), place(filter), bias, element_of<A>(mx), element_of<B>(mx),
               std::is_same_v<T, int32_t>, p, at);
}

}  // namespace cube_impl

/// dst (L0C, m x n) = fm (L0A, m x k) x filter (L0B, k x n), plus what L0C holds with cmatrixInitVal false (plus C2
/// with cmatrixSource). half, bfloat16, float -> float, int8 -> int32; fp8 and hifloat8 -> float on dav-3510; int4 of
/// dav-2201 is left out. m = 1 is GEMV: fm is k consecutive numbers (dav-3510: unless disableGemv). unitFlag 2, 3: see
/// UnitFlag. Source: Mmad.
template <class T, class U, class S>
void Mmad(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter, const MmadParams& params,
          Site at = Site::here()) {
    static_assert(cube_impl::mmad_types<T, U, S>(),
                  "Mmad: this combination of element types does not exist for it on this SoC");
    if constexpr (cube_impl::mmad_types<T, U, S>()) cube_impl::mmad<false>("Mmad", dst, fm, filter, nullptr, params, at);
}
/// The same with C's initial value from `bias`: a row of n numbers in C2, added to every row.
template <class T, class U, class S, class V>
void Mmad(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter, const LocalTensor<V>& bias,
          const MmadParams& params, Site at = Site::here()) {
    static_assert(cube_impl::mmad_types<T, U, S>() && std::is_same_v<T, V>,
                  "Mmad: this combination of element types does not exist for it on this SoC");
    if constexpr (cube_impl::mmad_types<T, U, S>() && std::is_same_v<T, V>) {
        const cube_impl::Place row = cube_impl::place(bias);
        cube_impl::mmad<false>("Mmad", dst, fm, filter, &row, params, at);
    }
}

/// dst = (scaleA x fm) (scaleB x filter), plus as for Mmad: each 32 numbers along k have one E8M0 scale, in L0A_MX and
/// L0B_MX where LoadData with scales puts them. fp4 with fp4, fp8 with fp8. Scaled numbers are taken as floats: where
/// that overflows or becomes subnormal the device's result is unknown. dav-3510. Source: MmadMx.
template <class T, class U, class S>
void MmadMx(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter, const MmadParams& params,
            Site at = Site::here()) {
    static_assert(cube_impl::mmad_mx_types<T, U, S>(),
                  "MmadMx: this combination of element types does not exist for it on this SoC");
    if constexpr (cube_impl::mmad_mx_types<T, U, S>()) cube_impl::mmad<true>("MmadMx", dst, fm, filter, nullptr, params, at);
}
template <class T, class U, class S, class V>
void MmadMx(const LocalTensor<T>& dst, const LocalTensor<U>& fm, const LocalTensor<S>& filter,
            const LocalTensor<V>& bias, const MmadParams& params, Site at = Site::here()) {
    static_assert(cube_impl::mmad_mx_types<T, U, S>() && std::is_same_v<T, V>,
                  "MmadMx: this combination of element types does not exist for it on this SoC");
    if constexpr (cube_impl::mmad_mx_types<T, U, S>() && std::is_same_v<T, V>) {
        const cube_impl::Place row = cube_impl::place(bias);
        cube_impl::mmad<true>("MmadMx", dst, fm, filter, &row, params, at);
    }
}

}  // namespace AscendC
