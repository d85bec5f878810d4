// Rearranging elements in UB: Transpose, TransDataTo5HD; Interleave and DeInterleave on dav-3510. Source: [page] of each call.
#pragma once

#include <array>

#include "vector_fill.h"

namespace AscendC {

// ---- Transpose ----

EMULATOR_TYPES(Transpose, (half, int16_t, uint16_t), (half, int16_t, uint16_t), ())

/// dst = src^T of 16 x 16; dst may be src.
template <class T>
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, Site at = Site::here()) {
    Transpose_types<T, false>();
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(emu::vector_instruction("Transpose", at, 256, 2, {src.access(emulator::Access::Kind::Read, "src", 0, 256), dst.access(emulator::Access::Kind::Write, "dst", 0, 256)}), [=] {
        uint16_t from[16][16], to[16][16];
        std::memcpy(from, in, 512);
        for (int i = 0; i < 16; ++i)
            for (int j = 0; j < 16; ++j) to[i][j] = from[j][i];
        std::memcpy(out, to, 512);
    });
}

// ---- TransDataTo5HD ----

constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;

struct TransDataTo5HDParams {
    TransDataTo5HDParams() = default;
    TransDataTo5HDParams(const bool dstHighHalf, const bool srcHighHalf, const uint8_t repeatTimes, const uint16_t dstRepStride, const uint16_t srcRepStride)
        : dstHighHalf(dstHighHalf), srcHighHalf(srcHighHalf), repeatTimes(repeatTimes), dstRepStride(dstRepStride), srcRepStride(srcRepStride) {}
    bool dstHighHalf = false, srcHighHalf = false;
    uint8_t repeatTimes = 1;
    uint16_t dstRepStride = 0, srcRepStride = 0;
};

EMULATOR_TYPES(TransDataTo5HD, (int8_t, uint8_t, int16_t, uint16_t, half, int32_t, uint32_t, float),
               (int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float), ())

/// Sixteen blocks to sixteen blocks. 16 bits: block i of dst is element i of every block of src. 32 bits: two blocks of dst for
/// each of the 8 elements. 8 bits: half a block, which dstHighHalf and srcHighHalf choose. The tensors' addresses move by the
/// repeat strides (blocks of 32 bytes) from repeat to repeat, and before the first one too when it is the only one.
template <class T>
void TransDataTo5HD(const LocalTensor<T> (&dstList)[NCHW_CONV_ADDR_LIST_SIZE], const LocalTensor<T> (&srcList)[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& nchwconvParams, Site at = Site::here()) {
    TransDataTo5HD_types<T, false>();
    constexpr int64_t size = sizeof(T), bytes = size == 1 ? 16 : 32;  // of each block that are touched
    const TransDataTo5HDParams p = nchwconvParams;
    if (p.repeatTimes == 0) return;
    const int64_t first = p.repeatTimes == 1 ? 1 : 0;
    const int64_t to_half = size == 1 && p.dstHighHalf ? 16 : 0, from_half = size == 1 && p.srcHighHalf ? 16 : 0;
    emulator::Core& core = emulator::core();
    std::vector<emulator::Access> accesses;
    std::array<uint8_t*, 16> to;
    std::array<const uint8_t*, 16> from;
    for (size_t i = 0; i < 16; ++i) {
        const auto add = [&](const LocalTensor<T>& tensor, emulator::Access::Kind kind, const char* name, int64_t half, int64_t stride) {
            if (!emulator::require(tensor.address() % 32 == 0, "alignment", at, "TransDataTo5HD", std::string(name) + " " + std::to_string(i) + " begins at byte " + std::to_string(tensor.address()) + "; it has to begin at a multiple of 32.")) return false;
            emulator::Access access = tensor.bytes(kind, name, first * stride * 32 + half, bytes, 1);
            access.runs = p.repeatTimes, access.pitch = stride * 32;
            accesses.push_back(access);
            return true;
        };
        if (!add(srcList[i], emulator::Access::Kind::Read, "srcList", from_half, p.srcRepStride) || !add(dstList[i], emulator::Access::Kind::Write, "dstList", to_half, p.dstRepStride)) return;
        to[i] = core.local(dstList[i].space(), dstList[i].address() + first * p.dstRepStride * 32 + to_half);
        from[i] = core.local(srcList[i].space(), srcList[i].address() + first * p.srcRepStride * 32 + from_half);
    }
    emulator::issue(emu::vector_instruction("TransDataTo5HD", at, p.repeatTimes * 16 * bytes / size, 2ll * p.repeatTimes, std::move(accesses)), [=] {
        constexpr int64_t elements = bytes / size;  // of a block
        for (int64_t repeat = 0; repeat < p.repeatTimes; ++repeat) {
            uint8_t block[16][32], turned[16][32];
            for (size_t j = 0; j < 16; ++j) std::memcpy(block[j], from[j] + repeat * p.srcRepStride * 32, static_cast<size_t>(bytes));
            for (int64_t element = 0; element < elements; ++element)
                for (int64_t j = 0; j < 16; ++j) {
                    const int64_t place = element * 16 + j;
                    std::memcpy(turned[place / elements] + place % elements * size, block[j] + element * size, static_cast<size_t>(size));
                }
            for (size_t i = 0; i < 16; ++i) std::memcpy(to[i] + repeat * p.dstRepStride * 32, turned[i], static_cast<size_t>(bytes));
        }
    });
}
/// The same with addresses as GetPhyAddr gives them.
template <class T>
void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE], const TransDataTo5HDParams& nchwconvParams, Site at = Site::here()) {
    LocalTensor<T> to[NCHW_CONV_ADDR_LIST_SIZE], from[NCHW_CONV_ADDR_LIST_SIZE];
    const auto tensor = [&](uint64_t address) {
        const int64_t offset = emulator::offset_of(address);
        return LocalTensor<T>::make(TPosition::VECCALC, emulator::Space::UB, offset, emulator::core().capacity[static_cast<int>(emulator::Space::UB)] - offset, 0);
    };
    for (int i = 0; i < NCHW_CONV_ADDR_LIST_SIZE; ++i) {
        const bool local = dstList[i] >= emulator::POINTER_BASE && srcList[i] >= emulator::POINTER_BASE && emulator::space_of(dstList[i]) == emulator::Space::UB && emulator::space_of(srcList[i]) == emulator::Space::UB;
        if (!emulator::require(local, "argument", at, "TransDataTo5HD", "an address of the lists is not of UB; take GetPhyAddr of a tensor there.")) return;
        to[i] = tensor(dstList[i]), from[i] = tensor(srcList[i]);
    }
    TransDataTo5HD<T>(to, from, nchwconvParams, at);
}

// ---- Interleave, DeInterleave ----

#if __NPU_ARCH__ == 3510
EMULATOR_TYPES(Interleave, (), (), (half, bfloat16_t, float, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t))
EMULATOR_TYPES(DeInterleave, (), (), (half, bfloat16_t, float, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t))

namespace emu {

inline bool legal_halves(int64_t count, const char* call, Site at) {
    return emulator::require(count > 0 && count % 2 == 0, "argument", at, call, "the count is " + std::to_string(count) + "; it has to be a positive even number.");
}
template <class T>
bool apart(const LocalTensor<T>& a, int64_t a_count, const LocalTensor<T>& b, int64_t b_count) {
    const int64_t size = sizeof(T);
    return a.address() + a_count * size <= b.address() || b.address() + b_count * size <= a.address();
}

}  // namespace emu

/// dst0 = src0[0], src1[0], src0[1], src1[1], ... and dst1 the rest of it; each of the four has `count` elements.
template <class T>
void Interleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t count, Site at = Site::here()) {
    Interleave_types<T, true>();
    using Kind = emulator::Access::Kind;
    if (!emu::legal_halves(count, "Interleave", at)) return;
    const bool separate = emu::apart(dst0, count, src0, count) && emu::apart(dst0, count, src1, count) && emu::apart(dst1, count, src0, count) && emu::apart(dst1, count, src1, count);
    if (!emulator::require(separate, "argument", at, "Interleave", "a source and a destination overlap; they have to be apart.")) return;
    T *const to0 = dst0.host(), *const to1 = dst1.host();
    const T *const from0 = src0.host(), *const from1 = src1.host();
    const int64_t half_count = count / 2;
    emulator::issue(emu::vector_instruction("Interleave", at, 2ll * count, (2ll * count * static_cast<int64_t>(sizeof(T)) + 255) / 256,
                                       {src0.access(Kind::Read, "src0", 0, count), src1.access(Kind::Read, "src1", 0, count), dst0.access(Kind::Write, "dst0", 0, count), dst1.access(Kind::Write, "dst1", 0, count)}),
                    [=] {
                        for (int64_t i = 0; i < half_count; ++i) to0[2 * i] = from0[i], to0[2 * i + 1] = from1[i];
                        for (int64_t i = 0; i < half_count; ++i) to1[2 * i] = from0[half_count + i], to1[2 * i + 1] = from1[half_count + i];
                    });
}

/// dst0 has the even elements of src0 and src1 one behind the other, dst1 the odd ones; each of the four has `count` elements.
template <class T>
void DeInterleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t count, Site at = Site::here()) {
    DeInterleave_types<T, true>();
    using Kind = emulator::Access::Kind;
    if (!emu::legal_halves(count, "DeInterleave", at)) return;
    const bool separate = emu::apart(dst0, count, src0, count) && emu::apart(dst0, count, src1, count) && emu::apart(dst1, count, src0, count) && emu::apart(dst1, count, src1, count);
    if (!emulator::require(separate, "argument", at, "DeInterleave", "a source and a destination overlap; they have to be apart.")) return;
    T *const to0 = dst0.host(), *const to1 = dst1.host();
    const T *const from0 = src0.host(), *const from1 = src1.host();
    const int64_t half_count = count / 2;
    emulator::issue(emu::vector_instruction("DeInterleave", at, 2ll * count, (2ll * count * static_cast<int64_t>(sizeof(T)) + 255) / 256,
                                       {src0.access(Kind::Read, "src0", 0, count), src1.access(Kind::Read, "src1", 0, count), dst0.access(Kind::Write, "dst0", 0, count), dst1.access(Kind::Write, "dst1", 0, count)}),
                    [=] {
                        for (int64_t i = 0; i < half_count; ++i) to0[i] = from0[2 * i], to1[i] = from0[2 * i + 1];
                        for (int64_t i = 0; i < half_count; ++i) to0[half_count + i] = from1[2 * i], to1[half_count + i] = from1[2 * i + 1];
                    });
}
/// The even and the odd elements of one source of srcCount elements; each destination has half as many.
template <class T>
void DeInterleave(const LocalTensor<T>& dst0, const LocalTensor<T>& dst1, const LocalTensor<T>& src, const int32_t srcCount, Site at = Site::here()) {
    DeInterleave_types<T, true>();
    using Kind = emulator::Access::Kind;
    if (!emu::legal_halves(srcCount, "DeInterleave", at)) return;
    const int64_t half_count = srcCount / 2;
    if (!emulator::require(emu::apart(dst0, half_count, src, srcCount) && emu::apart(dst1, half_count, src, srcCount), "argument", at, "DeInterleave", "a source and a destination overlap; they have to be apart.")) return;
    T *const to0 = dst0.host(), *const to1 = dst1.host();
    const T* const from = src.host();
    emulator::issue(emu::vector_instruction("DeInterleave", at, srcCount, (srcCount * static_cast<int64_t>(sizeof(T)) + 255) / 256,
                                       {src.access(Kind::Read, "src", 0, srcCount), dst0.access(Kind::Write, "dst0", 0, half_count), dst1.access(Kind::Write, "dst1", 0, half_count)}),
                    [=] {
                        for (int64_t i = 0; i < half_count; ++i) to0[i] = from[2 * i], to1[i] = from[2 * i + 1];
                    });
}
#endif

}  // namespace AscendC
