// Elements picked by bits (GatherMask) or by addresses (Gather, Gatherb, Scatter). Pages as in vector_types.h.
#pragma once

#include <memory>

#include "vector_reduce.h"

namespace AscendC {

struct GatherRepeatParams {
    GatherRepeatParams() = default;
    GatherRepeatParams(const uint8_t dstBlkStride, const uint8_t dstRepStride) : dstRepStride(dstRepStride), dstBlkStride(dstBlkStride) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint16_t dstRepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t dstBlkStride = DEFAULT_BLK_STRIDE, src0BlkStride = DEFAULT_BLK_STRIDE, src1BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src0RepStride = DEFAULT_REPEAT_STRIDE, src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false, strideSizeMode = false;
};

enum class GatherMaskMode : uint8_t { VERSION_V1 = 0, VERSION_V2 = 1 };
constexpr GatherMaskMode defaultGatherMaskMode = is_2201 ? GatherMaskMode::VERSION_V2 : GatherMaskMode::VERSION_V1;

struct GatherMaskParams {
    GatherMaskParams() = default;
    GatherMaskParams(const uint8_t src0BlockStride, const uint16_t repeatTimes, const uint16_t src0RepeatStride, const uint8_t src1RepeatStride)
        : src0BlockStride(src0BlockStride), repeatTimes(repeatTimes), src0RepeatStride(src0RepeatStride), src1RepeatStride(src1RepeatStride) {}
    uint8_t src0BlockStride = DEFAULT_BLK_STRIDE;
    uint16_t repeatTimes = 0;
    uint16_t src0RepeatStride = DEFAULT_REPEAT_STRIDE;
    uint8_t src1RepeatStride = DEFAULT_REPEAT_STRIDE;
};

EMULATOR_TYPES(GatherMask, (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t), (half, bfloat16_t, float, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t), ())
EMULATOR_TYPES(Gather, (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t),
               (half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t), (int8_t, uint8_t))
EMULATOR_TYPES(Gatherb, (uint16_t, uint32_t), (half, bfloat16_t, float, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t), ())

namespace gather_impl {

/// Whether a built-in pattern, 1 to 7, keeps element `index` of a repeat.
constexpr bool keeps(uint8_t pattern, int64_t index) {
    if (pattern <= 2) return index % 2 == pattern - 1;
    return pattern == 7 || index % 4 == pattern - 3;
}

/// `pattern` null: the built-in one. Elements beyond those kept stay as they were (unknown: the page calls them undefined).
template <class T>
void by_bits(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& src, uint8_t built_in, const emulator::Access* pattern, const uint8_t* pattern_host,
             bool counted, uint32_t mask, const GatherMaskParams& params, uint64_t& kept) {
    EMULATOR_USES("asc_uses_vector");
    const char* const call = "GatherMask";
    kept = 0;
    if (!emulator::require(params.repeatTimes > 0, "argument", at, call, "repeatTimes is 0; it has to be at least 1.")) return;
    if (counted && !emulator::require(mask > 0, "argument", at, call, "mask is 0; with reduceMode true it is the number of elements of a repeat.")) return;
    emu::Lanes lanes;
    lanes.width = counted ? mask : ONE_REPEAT_BYTE_SIZE / static_cast<int64_t>(sizeof(T));
    lanes.repeats = params.repeatTimes, lanes.runs = {{0, lanes.width}};
    const emu::Stride stride{params.src0BlockStride, params.src0RepeatStride};
    emulator::Instruction what = reduce_impl::instruction(call, at, lanes);
    what.cost.repeats = static_cast<uint64_t>(lanes.repeats * ((lanes.width * static_cast<int64_t>(sizeof(T)) + 255) / 256));
    emu::add_lane_accesses(what.accesses, src, emulator::Access::Kind::Read, "src0", lanes, stride);
    const int64_t pitch = params.src1RepeatStride * ONE_BLK_SIZE;
    if (pattern) {
        emulator::Access bits = *pattern;
        bits.bytes = (lanes.width + 7) / 8, bits.runs = lanes.repeats, bits.pitch = pitch;
        what.accesses.push_back(bits);
    }
    if (!emulator::require(dst.address() % 32 == 0, "alignment", at, call, "dst starts at byte " + std::to_string(dst.address()) + " of UB; its address has to be a multiple of 32.")) return;
    what.accesses.push_back(dst.bytes(emulator::Access::Kind::Write, "dst", 0, 0, 1));  // how many bytes, it tells later
    const auto count = std::make_shared<uint64_t>(0);
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(std::move(what), [=, lanes = lanes] {
        std::vector<int64_t> from;
        for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat)
            for (int64_t lane = 0; lane < lanes.width; ++lane)
                if (pattern_host ? pattern_host[repeat * pitch + lane / 8] >> (lane % 8) & 1 : keeps(built_in, lane)) from.push_back(emu::lane_offset(repeat, lane, stride, sizeof(T)));
        const int64_t bytes = static_cast<int64_t>(from.size() * sizeof(T));
        if (!emulator::touch(dst.bytes(emulator::Access::Kind::Write, "dst", 0, bytes))) return;
        // dst may be src: a kept element never moves forward.
        for (size_t i = 0; i < from.size(); ++i) std::memmove(out + i * sizeof(T), in + from[i], sizeof(T));
        *count = from.size();
    });
    // The call leaves norm mode behind, and its own number in the mask register.
    auto& control = core.control;
    control.counter_mode = false, control.mask[0] = mask, control.mask[1] = 0;
    emulator::wait_pipe(emulator::Pipe::V, call, at);
    kept = *count;
}

/// Tells the machine of elements at `offsets` from the tensor's start; false when they may not be touched. `only_once`:
/// none may come twice.
template <class T>
bool touch(const LocalTensor<T>& tensor, emulator::Access::Kind kind, const char* operand, int64_t size, std::vector<int64_t> offsets, int64_t other, int64_t other_bytes,
           const char* call, Site at, bool only_once) {
    if (!std::is_sorted(offsets.begin(), offsets.end())) std::sort(offsets.begin(), offsets.end());
    const auto twice = std::adjacent_find(offsets.begin(), offsets.end());
    if (only_once && twice != offsets.end())
        return emulator::require(false, "argument", at, call, std::string("two elements go to byte ") + std::to_string(*twice) + " of " + operand + "; what is then there is undefined.");
    for (size_t begin = 0; begin < offsets.size();) {
        size_t end = begin + 1;
        while (end < offsets.size() && offsets[end] <= offsets[end - 1] + size) ++end;
        const int64_t first = offsets[begin], bytes = offsets[end - 1] + size - first;
        const int64_t low = tensor.address() + first;
        if (low < other + other_bytes && low + bytes > other)
            return emulator::require(false, "argument", at, call, "dst and src overlap at byte " + std::to_string(std::max(low, other)) + " of UB.");
        if (!emulator::touch(tensor.bytes(kind, operand, first, bytes, 1))) return false;
        begin = end;
    }
    return true;
}

/// Gather (`towards` false): line[i] = far[base + offset[i]]; Scatter: far[base + offset[i]] = line[i].
template <bool towards, class T>
void elements(const char* call, Site at, const emu::Lanes& given, const LocalTensor<T>& line, emu::Stride line_stride, const LocalTensor<T>& far, const LocalTensor<uint32_t>& offset,
              uint32_t base) {
    EMULATOR_USES("asc_uses_vector");
    using Kind = emulator::Access::Kind;
    if (!emu::legal(given, call, at)) return;
    if (!emulator::require(base % sizeof(T) == 0, "alignment", at, call, std::string(towards ? "dst" : "src") + "BaseAddr is " + std::to_string(base) + "; it has to be a multiple of the " + std::to_string(sizeof(T)) + " bytes of an element."))
        return;
    if (!emulator::require(far.address() % 32 == 0, "alignment", at, call, std::string(towards ? "dst" : "src") + " starts at byte " + std::to_string(far.address()) + " of UB; its address has to be a multiple of 32.")) return;
    const emu::Lanes lanes = reduce_impl::in_repeats(given);
    const emu::Stride offset_stride{1, lanes.width * 4 / ONE_BLK_SIZE};
    emulator::Instruction what = reduce_impl::instruction(call, at, given);
    emu::add_lane_accesses(what.accesses, offset, Kind::Read, towards ? "dstOffset" : "srcOffset", given, offset_stride);
    emu::add_lane_accesses(what.accesses, line, towards ? Kind::Read : Kind::Write, towards ? "src" : "dst", given, line_stride);
    what.accesses.push_back(far.bytes(towards ? Kind::Write : Kind::Read, towards ? "dst" : "src", 0, 0, 1));  // which bytes, it tells later
    emulator::Core& core = emulator::core();
    uint8_t* const near = core.local(line.space(), line.address());
    uint8_t* const away = core.local(far.space(), far.address());
    const uint8_t* const places = core.local(offset.space(), offset.address());
    emulator::issue(std::move(what), [=] {
        std::vector<int64_t> at_line, at_far;
        for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat)
            reduce_impl::each_piece(lanes, emu::Stride{0, 0}, sizeof(T), repeat, [&](int64_t lane, int64_t n, int64_t) {
                for (int64_t i = lane; i < lane + n; ++i) {
                    uint32_t place;
                    std::memcpy(&place, places + emu::lane_offset(repeat, i, offset_stride, 4), 4);
                    at_line.push_back(emu::lane_offset(repeat, i, line_stride, sizeof(T)));
                    at_far.push_back(int64_t{base} + place);
                }
            });
        const auto odd = std::find_if(at_far.begin(), at_far.end(), [](int64_t place) { return place % static_cast<int64_t>(sizeof(T)) != 0; });
        if (odd != at_far.end()) {
            emulator::require(false, "alignment", at, call, "offset " + std::to_string(*odd - int64_t{base}) + " of element " + std::to_string(odd - at_far.begin()) + " is not a multiple of the " + std::to_string(sizeof(T)) + " bytes of an element; offsets count bytes.");
            return;
        }
        const int64_t line_bytes = at_line.back() + static_cast<int64_t>(sizeof(T));
        if (!touch(far, towards ? Kind::Write : Kind::Read, towards ? "dst" : "src", sizeof(T), at_far, line.address(), line_bytes, call, at, towards)) return;
        for (size_t i = 0; i < at_far.size(); ++i)
            std::memcpy(towards ? away + at_far[i] : near + at_line[i], towards ? near + at_line[i] : away + at_far[i], sizeof(T));
    });
}

}  // namespace gather_impl

// ---- By bits ----

/// The elements of src0 whose bit in src1Pattern is 1, one behind the other; rsvdCnt: how many. reduceMode false: repeats of
/// 256 bytes; true: repeats of `mask` elements, however many. Each repeat takes bits src1RepeatStride blocks further on. The
/// scalar waits for the count. Source: [GatherMask].
template <class T, class U, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<U>& src1Pattern, const bool reduceMode, const uint32_t mask,
                const GatherMaskParams& gatherMaskParams, uint64_t& rsvdCnt, Site at = Site::here()) {
    GatherMask_types<T, false>();
    static_assert(std::is_same_v<U, uint8_t> || std::is_same_v<U, uint16_t> || std::is_same_v<U, uint32_t>, "GatherMask: src1Pattern is uint8_t, uint16_t or uint32_t");
    static_assert(sizeof(U) == sizeof(T), "GatherMask: an element of src1Pattern has the size of one of src0");
    const emulator::Access pattern = src1Pattern.bytes(emulator::Access::Kind::Read, "src1Pattern", 0, 1);
    gather_impl::by_bits(at, dst, src0, 0, &pattern, emulator::core().local(src1Pattern.space(), src1Pattern.address()), reduceMode, mask, gatherMaskParams, rsvdCnt);
}
/// A built-in pattern of each repeat: 1 even, 2 odd elements; 3 to 6 the first to fourth of every four; 7 all.
template <class T, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const uint8_t src1Pattern, const bool reduceMode, const uint32_t mask,
                const GatherMaskParams& gatherMaskParams, uint64_t& rsvdCnt, Site at = Site::here()) {
    GatherMask_types<T, false>();
    rsvdCnt = 0;
    if (!emulator::require(src1Pattern >= 1 && src1Pattern <= 7, "argument", at, "GatherMask", "src1Pattern is " + std::to_string(src1Pattern) + "; it has to be 1 to 7.")) return;
    gather_impl::by_bits(at, dst, src0, src1Pattern, nullptr, nullptr, reduceMode, mask, gatherMaskParams, rsvdCnt);
}

// ---- By addresses ----

/// dst[i] = the element of src at byte srcBaseAddr + srcOffset[i]. dst may not overlap what is read. Source: [Gather].
template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr, const uint32_t count, Site at = Site::here()) {
    Gather_types<T, true>();
    gather_impl::elements<false>("Gather", at, emu::flat_lanes(count, sizeof(T)), dst, emu::Stride{}, src, srcOffset, srcBaseAddr);
}
template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr, const uint64_t mask[],
            const uint8_t repeatTime, const uint16_t dstRepStride, Site at = Site::here()) {
    Gather_types<T, false>();
    gather_impl::elements<false>("Gather", at, emu::bit_lanes(mask, repeatTime, sizeof(T)), dst, emu::Stride{1, dstRepStride}, src, srcOffset, srcBaseAddr);
}
template <class T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr, const uint64_t mask,
            const uint8_t repeatTime, const uint16_t dstRepStride, Site at = Site::here()) {
    Gather_types<T, false>();
    gather_impl::elements<false>("Gather", at, emu::counted_lanes(mask, repeatTime, sizeof(T)), dst, emu::Stride{1, dstRepStride}, src, srcOffset, srcBaseAddr);
}

/// Block b of repeat r of dst = the 32 bytes of src at offset[8 r + b]. A dstBlkStride of 0 counts as 1. Source: [Gatherb].
template <class T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& offset, const uint8_t repeatTime, const GatherRepeatParams& repeatParams,
             Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    Gatherb_types<T, false>();
    const char* const call = "Gatherb";
    const int64_t repeats = repeatTime;
    if (!emulator::require(repeats > 0, "argument", at, call, "repeatTime is 0; it has to be 1 to 255.")) return;
    emu::Lanes lanes;
    lanes.width = ONE_REPEAT_BYTE_SIZE / static_cast<int64_t>(sizeof(T)), lanes.repeats = repeats, lanes.runs = {{0, lanes.width}};
    const emu::Stride stride{repeatParams.dstBlkStride == 0 ? 1 : repeatParams.dstBlkStride, repeatParams.dstRepStride};
    emulator::Instruction what = reduce_impl::instruction(call, at, lanes);
    what.accesses.push_back(offset.access(emulator::Access::Kind::Read, "offset", 0, 8 * repeats));
    what.accesses.push_back(src.bytes(emulator::Access::Kind::Read, "src", 0, 0, 1));  // which bytes, it tells later
    emu::add_lane_accesses(what.accesses, dst, emulator::Access::Kind::Write, "dst", lanes, stride);
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    const uint8_t* const places = core.local(offset.space(), offset.address());
    emulator::issue(std::move(what), [=] {
        std::vector<int64_t> from(static_cast<size_t>(8 * repeats)), to(from.size());
        for (size_t i = 0; i < from.size(); ++i) {
            uint32_t place;
            std::memcpy(&place, places + 4 * i, 4);
            from[i] = place;
            to[i] = (static_cast<int64_t>(i) / 8 * stride.repeat + static_cast<int64_t>(i) % 8 * stride.block) * ONE_BLK_SIZE;
            if ((src.address() + from[i]) % ONE_BLK_SIZE != 0) {
                emulator::require(false, "alignment", at, call, "offset " + std::to_string(place) + " of block " + std::to_string(i) + " leads to an address that is not a multiple of 32.");
                return;
            }
        }
        const int64_t reach = *std::max_element(to.begin(), to.end()) + ONE_BLK_SIZE;
        if (!gather_impl::touch(src, emulator::Access::Kind::Read, "src", ONE_BLK_SIZE, from, dst.address(), reach, call, at, false)) return;
        for (size_t i = 0; i < from.size(); ++i) std::memcpy(out + to[i], in + from[i], ONE_BLK_SIZE);
    });
}

#define EMULATOR_SCATTER(...)                                                                                                         \
    static_assert(is_3510 && sizeof(T) != 0, "Scatter: dav-2201 does not have it");                                                   \
    Gather_types<T, __VA_ARGS__>()
/// The element of dst at byte dstBaseAddr + dstOffset[i] = src[i]; no two may be the same. dav-3510 only. Source: [Scatter].
template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset, const uint32_t dstBaseAddr, const uint32_t count, Site at = Site::here()) {
    EMULATOR_SCATTER(true);
    gather_impl::elements<true>("Scatter", at, emu::flat_lanes(count, sizeof(T)), src, emu::Stride{}, dst, dstOffset, dstBaseAddr);
}
template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset, const uint32_t dstBaseAddr, const uint64_t mask[],
             const uint8_t repeatTime, const uint8_t srcRepStride, Site at = Site::here()) {
    EMULATOR_SCATTER(false);
    gather_impl::elements<true>("Scatter", at, emu::bit_lanes(mask, repeatTime, sizeof(T)), src, emu::Stride{1, srcRepStride}, dst, dstOffset, dstBaseAddr);
}
template <class T>
void Scatter(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& dstOffset, const uint32_t dstBaseAddr, const uint64_t mask,
             const uint8_t repeatTime, const uint8_t srcRepStride, Site at = Site::here()) {
    EMULATOR_SCATTER(false);
    gather_impl::elements<true>("Scatter", at, emu::counted_lanes(mask, repeatTime, sizeof(T)), src, emu::Stride{1, srcRepStride}, dst, dstOffset, dstBaseAddr);
}
#undef EMULATOR_SCATTER

}  // namespace AscendC
