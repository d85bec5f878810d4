// Filling and copying within UB: Duplicate, Brcb, Copy, CreateVecIndex. Source: [page] of each call.
#pragma once

#include "vector_types.h"

namespace AscendC {

// ---- Duplicate: one number everywhere ----

EMULATOR_TYPES(Duplicate, (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t),
               (bool, int8_t, uint8_t, fp4x2_e2m1_t, fp4x2_e1m2_t, hifloat8_t, fp8_e8m0_t, fp8_e5m2_t, fp8_e4m3fn_t, int64_t, uint64_t))

namespace emu {

template <class T>
void duplicate(Site at, const Lanes& lanes, const LocalTensor<T>& dst, Stride stride, T value) {
    elementwise("Duplicate", at, lanes, false, dst, stride, [value](T* to, int64_t n) { std::fill(to, to + n, value); });
}

}  // namespace emu

/// dst = scalarValue.
template <class T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, Site at = Site::here()) {
    Duplicate_types<T, true>();
    emu::duplicate(at, emu::flat_lanes(count, sizeof(T)), dst, emu::Stride{}, scalarValue);
}
template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask, const uint8_t repeatTime, const uint16_t dstBlockStride,
               const uint8_t dstRepeatStride, Site at = Site::here()) {
    Duplicate_types<T, false>();
    emu::duplicate(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, emu::Stride{dstBlockStride, dstRepeatStride}, scalarValue);
}
template <class T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[], const uint8_t repeatTime, const uint16_t dstBlockStride,
               const uint8_t dstRepeatStride, Site at = Site::here()) {
    Duplicate_types<T, false>();
    emu::duplicate(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, emu::Stride{dstBlockStride, dstRepeatStride}, scalarValue);
}

namespace emu {

/// What an instruction of the vector pipe does that is not element by element. Only `accesses` may be touched.
inline emulator::Instruction vector_instruction(const char* call, Site at, int64_t elements, int64_t repeats, std::vector<emulator::Access> accesses) {
    EMULATOR_USES("asc_uses_vector");
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::V, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::vector(call, static_cast<uint64_t>(elements), static_cast<uint64_t>(repeats));
    instruction.accesses = std::move(accesses);
    return instruction;
}

}  // namespace emu

#if __NPU_ARCH__ == 3510
/// dst = src[0].
template <class T>
void Duplicate(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, Site at = Site::here()) {
    Duplicate_types<T, true>();
    const emu::Lanes lanes = emu::flat_lanes(count, sizeof(T));
    if (!emu::legal(lanes, "Duplicate", at)) return;
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(emu::vector_instruction("Duplicate", at, count, static_cast<int64_t>(lanes.cost_repeats()),
                                       {src.access(emulator::Access::Kind::Read, "src", 0, 1), dst.access(emulator::Access::Kind::Write, "dst", 0, count)}),
                    [=] {
                        T value;
                        std::memcpy(static_cast<void*>(&value), in, sizeof(T));
                        std::fill(reinterpret_cast<T*>(out), reinterpret_cast<T*>(out) + lanes.count, value);
                    });
}
#endif

// ---- Brcb: eight numbers to eight blocks ----

struct BrcbRepeatParams {
    BrcbRepeatParams() = default;
    BrcbRepeatParams(const uint16_t dstBlkStride, const uint16_t dstRepStride) : dstBlkStride(dstBlkStride), dstRepStride(dstRepStride) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint16_t dstBlkStride = DEFAULT_BLK_STRIDE, dstRepStride = DEFAULT_REPEAT_STRIDE;
    uint16_t src1BlkStride = DEFAULT_BLK_STRIDE, src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false, strideSizeMode = false;
};

EMULATOR_TYPES(Brcb, (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t),
               (half, bfloat16_t, float, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t), ())

/// Block j of repeat i of dst is filled with src[8 i + j]. The mask has no effect; src is read without gaps.
template <class T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t repeatTime, const BrcbRepeatParams& repeatParams, Site at = Site::here()) {
    Brcb_types<T, false>();
    if (repeatTime == 0 && is_2201) return;
    if (!emulator::require(repeatTime > 0, "argument", at, "Brcb", "repeatTime is 0; it has to be 1 to 255 on dav-3510.")) return;
    if (!emulator::require(repeatParams.dstBlkStride > 0, "argument", at, "Brcb", "dstBlkStride is 0; it has to be at least 1.")) return;
    const int64_t repeats = repeatTime, block = repeatParams.dstBlkStride * 32ll, repeat = repeatParams.dstRepStride * 32ll;
    emulator::Access to = dst.bytes(emulator::Access::Kind::Write, "dst", 0, 32);
    to.runs = 8, to.pitch = block, to.groups = repeats, to.group_pitch = repeat;
    const int64_t first = dst.address(), last = first + (repeats - 1) * repeat + 7 * block + 32;
    const int64_t source = src.address(), source_end = source + repeats * 8 * static_cast<int64_t>(sizeof(T));
    if (!emulator::require(source >= last || source_end <= first, "argument", at, "Brcb", "dst and src overlap; they have to be apart.")) return;
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), first);
    const uint8_t* const in = core.local(src.space(), source);
    emulator::issue(emu::vector_instruction("Brcb", at, repeats * 8 * (32 / static_cast<int64_t>(sizeof(T))), repeats, {src.access(emulator::Access::Kind::Read, "src", 0, 8 * repeats), to}), [=] {
        for (int64_t i = 0; i < repeats; ++i)
            for (int64_t j = 0; j < 8; ++j) {
                T value, row[32 / sizeof(T)];
                std::memcpy(static_cast<void*>(&value), in + (8 * i + j) * static_cast<int64_t>(sizeof(T)), sizeof(T));
                std::fill(std::begin(row), std::end(row), value);
                std::memcpy(out + i * repeat + j * block, row, 32);
            }
    });
}

// ---- Copy: blocks at other strides ----

struct CopyRepeatParams {
    CopyRepeatParams() = default;
    CopyRepeatParams(const uint16_t dstStride, const uint16_t srcStride, uint16_t dstRepeatSize, uint16_t srcRepeatSize)
        : dstStride(dstStride), srcStride(srcStride), dstRepeatSize(dstRepeatSize), srcRepeatSize(srcRepeatSize) {}
    uint16_t dstStride = DEFAULT_BLK_STRIDE, srcStride = DEFAULT_BLK_STRIDE;
    uint16_t dstRepeatSize = DEFAULT_REPEAT_STRIDE, srcRepeatSize = DEFAULT_REPEAT_STRIDE;
};

EMULATOR_TYPES(Copy, (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t),
               (half, bfloat16_t, float, int8_t, uint8_t, fp4x2_e2m1_t, fp4x2_e1m2_t, hifloat8_t, fp8_e8m0_t, fp8_e5m2_t, fp8_e4m3fn_t, int16_t, uint16_t,
                int32_t, uint32_t, int64_t, uint64_t),
               ())

namespace emu {

/// In counter mode the mask is the number of elements of every repeat, of as many blocks as they take, and repeatTime counts:
/// the exception among the vector calls.
template <class T>
void copy(Site at, Lanes lanes, const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint8_t repeatTime, const CopyRepeatParams& p) {
    if (emulator::core().control.counter_mode) {
        lanes = {};
        lanes.width = static_cast<int64_t>(emulator::core().control.mask[0]), lanes.repeats = repeatTime;
        if (lanes.width > 0) lanes.runs = {{0, lanes.width}};
    }
    if (!emulator::require(p.dstRepeatSize <= 4095 && p.srcRepeatSize <= 4095, "argument", at, "Copy", "dstRepeatSize is " + std::to_string(p.dstRepeatSize) + " and srcRepeatSize " + std::to_string(p.srcRepeatSize) + "; they have to be 0 to 4095.")) return;
    const auto op = [](T* to, const T* from, int64_t n) { std::memmove(static_cast<void*>(to), from, static_cast<size_t>(n) * sizeof(T)); };
    elementwise("Copy", at, lanes, false, dst, Stride{p.dstStride, p.dstRepeatSize}, op, std::pair{src, Stride{p.srcStride, p.srcRepeatSize}});
}

}  // namespace emu

template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask, const uint8_t repeatTime, const CopyRepeatParams& repeatParams,
          Site at = Site::here()) {
    Copy_types<T, false>();
    emu::copy(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, repeatTime, repeatParams);
}
template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask[], const uint8_t repeatTime, const CopyRepeatParams& repeatParams,
          Site at = Site::here()) {
    Copy_types<T, false>();
    emu::copy(at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, repeatTime, repeatParams);
}
#if __NPU_ARCH__ == 3510
template <class T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Site at = Site::here()) {
    Copy_types<T, true>();
    const auto op = [](T* to, const T* from, int64_t n) { std::memmove(static_cast<void*>(to), from, static_cast<size_t>(n) * sizeof(T)); };
    emu::elementwise("Copy", at, emu::flat_lanes(count, sizeof(T)), false, dst, emu::Stride{}, op, std::pair{src, emu::Stride{}});
}
#endif

// ---- CreateVecIndex ----

EMULATOR_TYPES(CreateVecIndex, (half, float, int16_t, int32_t), (half, float, int16_t, int32_t), (int8_t, int64_t))

/// dst = firstValue, firstValue + 1, ...; half: each sum rounds once (unknown). The forms with a mask are not here.
template <class T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count, Site at = Site::here()) {
    CreateVecIndex_types<T, true>();
    const T first = firstValue;
    emu::elementwise("CreateVecIndex", at, emu::flat_lanes(count, sizeof(T)), false, dst, emu::Stride{}, [first](T* to, int64_t n) {
        EMULATOR_EACH(i, n) {
            if constexpr (std::is_integral_v<T>) to[i] = emu::sum(first, static_cast<T>(i));
            else to[i] = static_cast<T>(static_cast<float>(first) + static_cast<float>(i));
        }
    });
}

}  // namespace AscendC
