// Which elements a vector instruction works on: repeats of 256 bytes, blocks of 32, masks, counts.
#pragma once

#include "sync.h"

namespace AscendC {

struct UnaryRepeatParams {
    UnaryRepeatParams() = default;
    UnaryRepeatParams(uint16_t dstBlkStride, uint16_t srcBlkStride, uint8_t dstRepStride, uint8_t srcRepStride)
        : dstBlkStride(dstBlkStride), srcBlkStride(srcBlkStride), dstRepStride(dstRepStride), srcRepStride(srcRepStride) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint16_t dstBlkStride = DEFAULT_BLK_STRIDE, srcBlkStride = DEFAULT_BLK_STRIDE;
    uint8_t dstRepStride = DEFAULT_REPEAT_STRIDE, srcRepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false, strideSizeMode = false, halfBlock = false;
};

struct BinaryRepeatParams {
    BinaryRepeatParams() = default;
    BinaryRepeatParams(uint8_t dstBlkStride, uint8_t src0BlkStride, uint8_t src1BlkStride, uint8_t dstRepStride, uint8_t src0RepStride,
                       uint8_t src1RepStride)
        : dstBlkStride(dstBlkStride), src0BlkStride(src0BlkStride), src1BlkStride(src1BlkStride), dstRepStride(dstRepStride),
          src0RepStride(src0RepStride), src1RepStride(src1RepStride) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint8_t dstBlkStride = DEFAULT_BLK_STRIDE, src0BlkStride = DEFAULT_BLK_STRIDE, src1BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t dstRepStride = DEFAULT_REPEAT_STRIDE, src0RepStride = DEFAULT_REPEAT_STRIDE, src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false, strideSizeMode = false;
};

namespace emu {

/// Block and repeat stride of one operand, in blocks of 32 bytes.
struct Stride {
    int64_t block = DEFAULT_BLK_STRIDE, repeat = DEFAULT_REPEAT_STRIDE;
};

/// The lanes of an instruction. `width` is the number of lanes of a repeat: 256 bytes of the widest operand.
struct Lanes {
    bool flat = false;      // a count form: `count` consecutive elements
    int64_t count = 0;      // flat, or all elements of counter mode
    int64_t width = 0, repeats = 0;
    std::vector<std::pair<int64_t, int64_t>> runs;  // lanes [first, second) of a repeat that the mask lets through
    int64_t last_partial = 0;                       // counter mode: lanes of the last repeat, 0: like the others

    int64_t elements() const {
        if (flat) return count;
        int64_t a_repeat = 0;
        for (const auto& [first, last] : runs) a_repeat += last - first;
        return last_partial ? (repeats - 1) * width + last_partial : repeats * a_repeat;
    }
    uint64_t cost_repeats() const { return static_cast<uint64_t>(flat ? (count + width - 1) / width : repeats); }
};

/// `count` consecutive elements; `widest` is the size of the widest operand's element. A form with a count sets counter mode
/// and leaves norm mode with every lane on behind it. Source: "Masks", setting the mask within the call.
inline Lanes flat_lanes(int64_t count, int64_t widest) {
    Lanes out;
    auto& control = emulator::core().control;
    control.counter_mode = false, control.mask[0] = control.mask[1] = ~0ull;
    out.flat = true, out.count = count, out.width = ONE_REPEAT_BYTE_SIZE / widest;
    return out;
}

/// Lanes [0, count) as runs, or the set bits of a mask.
inline std::vector<std::pair<int64_t, int64_t>> runs_of(uint64_t low, uint64_t high, int64_t width) {
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (int64_t lane = 0; lane < width; ++lane) {
        if (!((lane < 64 ? low >> lane : high >> (lane - 64)) & 1)) continue;
        if (!runs.empty() && runs.back().second == lane)
            ++runs.back().second;
        else
            runs.push_back({lane, lane + 1});
    }
    return runs;
}

/// Repeats as the mask register has them: in counter mode all of `mask[0]` elements and `repeats` is not looked at.
inline Lanes register_lanes(int64_t repeats, int64_t widest) {
    const auto& control = emulator::core().control;
    Lanes out;
    out.width = ONE_REPEAT_BYTE_SIZE / widest;
    if (control.counter_mode) {
        out.count = static_cast<int64_t>(control.mask[0]);
        out.repeats = (out.count + out.width - 1) / out.width;
        out.last_partial = out.count % out.width;
        if (out.count > 0) out.runs = {{0, out.width}};
    } else {
        out.repeats = repeats;
        out.runs = runs_of(control.mask[0], control.mask[1], out.width);
    }
    return out;
}

/// A mask given as a number: consecutive lanes in norm mode, all elements in counter mode. It is left in the register.
inline Lanes counted_lanes(uint64_t mask, int64_t repeats, int64_t widest) {
    auto& control = emulator::core().control;
    if (control.counter_mode) {
        control.mask[0] = mask;
    } else {
        control.mask[0] = mask >= 64 ? ~0ull : (1ull << mask) - 1;
        control.mask[1] = mask >= 128 ? ~0ull : mask > 64 ? (1ull << (mask - 64)) - 1 : 0;
    }
    return register_lanes(repeats, widest);
}

/// A mask given as bits, {low, high}. It is left in the register.
inline Lanes bit_lanes(const uint64_t mask[], int64_t repeats, int64_t widest) {
    auto& control = emulator::core().control;
    control.mask[0] = mask[0], control.mask[1] = mask[1];
    return register_lanes(repeats, widest);
}

/// Whether a vector instruction is to be executed; reports numbers that are not legal. No elements: nothing happens, as the
/// pages say, but that a count or repeatTime of 0 is not sure to do nothing on dav-3510.
inline bool legal(const Lanes& lanes, const char* call, Site at) {
    const bool counts = lanes.flat || !emulator::core().control.counter_mode;
    const int64_t number = lanes.flat ? lanes.count : lanes.repeats;
    if (counts && (number < 0 || (number == 0 && is_3510)))
        return emulator::require(false, "argument", at, call, std::string(lanes.flat ? "count" : "repeatTime") + " is " + std::to_string(number) + "; it has to be positive" + (number == 0 ? " on dav-3510." : "."));
    return lanes.elements() > 0;
}

/// Bytes from the operand's start to lane `lane` of repeat `repeat`, for elements of `size` bytes.
inline int64_t lane_offset(int64_t repeat, int64_t lane, Stride stride, int64_t size) {
    const int64_t a_block = ONE_BLK_SIZE / size;
    return (repeat * stride.repeat + lane / a_block * stride.block) * ONE_BLK_SIZE + lane % a_block * size;
}

/// What the lanes of one operand touch.
template <class T>
void add_lane_accesses(std::vector<emulator::Access>& out, const LocalTensor<T>& tensor, emulator::Access::Kind kind, const char* operand,
                       const Lanes& lanes, Stride stride, uint32_t align = 32) {
    const int64_t size = sizeof(T), a_block = ONE_BLK_SIZE / size;
    if (lanes.flat) {
        out.push_back(tensor.access(kind, operand, 0, lanes.count, align));
        return;
    }
    const auto add = [&](int64_t repeat, int64_t repeats, int64_t first, int64_t last) {
        if (repeats <= 0 || first >= last) return;
        // Whole blocks in the middle of a run go together; a cut block at either end goes alone.
        while (first < last) {
            int64_t end = std::min(last, (first / a_block + 1) * a_block), runs = 1;
            int64_t bytes = (end - first) * size;
            if (first % a_block == 0) {
                const int64_t whole = (last - first) / a_block;
                if (whole > 1 && stride.block == 1) {
                    bytes = whole * ONE_BLK_SIZE;
                    end = first + whole * a_block;
                } else if (whole > 1) {
                    runs = whole;
                    end = first + whole * a_block;
                }
            }
            emulator::Access access = tensor.bytes(kind, operand, lane_offset(repeat, first, stride, size), bytes, 1);
            access.runs = runs, access.pitch = stride.block * ONE_BLK_SIZE;
            access.groups = repeats, access.group_pitch = stride.repeat * ONE_BLK_SIZE;
            if (runs == 1 && access.group_pitch == bytes) {
                access.runs = repeats, access.pitch = bytes, access.groups = 1;
            }
            out.push_back(access);
            first = end;
        }
    };
    const int64_t whole = lanes.repeats - (lanes.last_partial ? 1 : 0);
    const size_t before = out.size();
    for (const auto& [first, last] : lanes.runs) add(0, whole, first, last);
    if (lanes.last_partial) add(whole, 1, 0, lanes.last_partial);
    if (out.size() > before && tensor.address() % align != 0) {
        out[before].begin = tensor.address();  // so that the report names the operand's own address
        out[before].align = align;
    }
}

/// Calls f(n, offset of each operand in bytes...) for stretches of lanes that are consecutive in every operand.
template <class F>
void each_stretch(const Lanes& lanes, const Stride* strides, const int64_t* sizes, int operands, F f) {
    int64_t offsets[6] = {};
    if (lanes.flat) {
        f(lanes.count, offsets);
        return;
    }
    // A stretch ends where a block of any operand ends whose next block is elsewhere.
    int64_t step = lanes.width;
    for (int i = 0; i < operands; ++i)
        if (strides[i].block != 1) step = std::min(step, ONE_BLK_SIZE / sizes[i]);
    for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat) {
        const bool partial = lanes.last_partial && repeat == lanes.repeats - 1;
        for (const auto& [first, last] : lanes.runs) {
            const int64_t end = partial ? std::min(last, lanes.last_partial) : last;
            for (int64_t lane = first; lane < end;) {
                const int64_t next = std::min(end, (lane / step + 1) * step);
                for (int i = 0; i < operands; ++i) offsets[i] = lane_offset(repeat, lane, strides[i], sizes[i]);
                f(next - lane, offsets);
                lane = next;
            }
        }
    }
}

/// An operand as the rules below look at it.
struct Place {
    emulator::Space space;
    int64_t address, size;
    Stride stride;
};
template <class T>
Place place_of(const LocalTensor<T>& tensor, Stride stride) { return {tensor.space(), tensor.address(), static_cast<int64_t>(sizeof(T)), stride}; }

/// A destination has to move from block to block. Source: "High-dimensional slices", dataBlockStride.
inline bool legal_destination(const char* call, Site at, const Lanes& lanes, const Place& dst) {
    const int64_t a_block = ONE_BLK_SIZE / dst.size;
    const bool one_block = lanes.flat || lanes.runs.front().first / a_block == (lanes.runs.back().second - 1) / a_block;
    return emulator::require(dst.space == emulator::Space::UB, "wrong_core", at, call, "dst is not in UB; vector instructions work there alone.") &&
           emulator::require(dst.stride.block > 0 || one_block, "argument", at, call, "the block stride of dst is 0; its blocks would lie on each other, give at least 1.");
}
/// Operands of a form with a count are apart or begin at the same address, the source's elements then not being the smaller
/// ones. Source: "General notes and limits", overlapping addresses. With strides it is not checked.
inline bool legal_source(const char* call, Site at, const Lanes& lanes, const Place& dst, const Place& src) {
    if (!emulator::require(src.space == emulator::Space::UB, "wrong_core", at, call, "a source is not in UB; vector instructions work there alone.")) return false;
    if (!lanes.flat) return true;
    const int64_t to_end = dst.address + lanes.count * dst.size, from_end = src.address + lanes.count * src.size;
    const bool together = dst.address == src.address && src.size >= dst.size;
    if (together || to_end <= src.address || from_end <= dst.address) return true;
    return emulator::require(false, "argument", at, call,
                             "dst (bytes " + std::to_string(dst.address) + " to " + std::to_string(to_end) + ") and a source (bytes " + std::to_string(src.address) + " to " + std::to_string(from_end) +
                                 ") overlap in part" + (dst.address == src.address ? ", the source having the smaller elements" : "") + "; they have to be apart, or the same.");
}

/// Where an operand of an instruction is on the host, dst first.
struct Operand {
    uint8_t* base = nullptr;
    Stride stride;
    int64_t size = 1;
};
/// Does `row` on the addresses of every stretch of consecutive elements. Without types: compilers see it once.
using Row = std::function<void(uint8_t* const* operands, int64_t n)>;
inline void issue_rows(emulator::Instruction&& instruction, const Lanes& lanes, const std::vector<Operand>& operands, const Row& row) {
    emulator::issue(std::move(instruction), [lanes, operands, row] {
        Stride strides[6];
        int64_t sizes[6];
        uint8_t* at[6];
        const int count = static_cast<int>(operands.size());
        for (int i = 0; i < count; ++i) strides[i] = operands[static_cast<size_t>(i)].stride, sizes[i] = operands[static_cast<size_t>(i)].size;
        each_stretch(lanes, strides, sizes, count, [&](int64_t n, const int64_t* offsets) {
            for (int i = 0; i < count; ++i) at[i] = operands[static_cast<size_t>(i)].base + offsets[i];
            row(at, n);
        });
    });
}
template <class D, class... S, class F, size_t... number>
Row row_of(F f, std::index_sequence<number...>) {
    return [f](uint8_t* const* operands, int64_t n) __attribute__((flatten)) { f(reinterpret_cast<D*>(operands[0]), reinterpret_cast<const S*>(operands[1 + number])..., n); };
}

/// Issue an element-by-element instruction dst = f(src...). `read_dst`: dst is an operand as well (Axpy, MulAddDst).
/// f(D* dst, const S*... src, int64_t n) works on n consecutive elements.
template <class D, class... S, class F>
void elementwise(const char* call, Site at, const Lanes& lanes, bool read_dst, const LocalTensor<D>& dst, Stride dst_stride, F f,
                 const std::pair<LocalTensor<S>, Stride>&... sources) {
    EMULATOR_USES("asc_uses_vector");
    if (!legal(lanes, call, at)) return;
    const Place to = place_of(dst, dst_stride);
    if (!legal_destination(call, at, lanes, to) || !(legal_source(call, at, lanes, to, place_of(sources.first, sources.second)) && ...)) return;
    static const char* const names[] = {"src0", "src1", "src2", "src3"};
    emulator::Instruction instruction;
    instruction.pipe = emulator::Pipe::V, instruction.name = call, instruction.at = at;
    instruction.cost = emulator::Cost::vector(call, static_cast<uint64_t>(lanes.elements()), lanes.cost_repeats());
    int number = 0;
    (add_lane_accesses(instruction.accesses, sources.first, emulator::Access::Kind::Read, sizeof...(S) == 1 ? "src" : names[number++], lanes,
                       sources.second),
     ...);
    if (read_dst) add_lane_accesses(instruction.accesses, dst, emulator::Access::Kind::Read, "dst", lanes, dst_stride);
    add_lane_accesses(instruction.accesses, dst, emulator::Access::Kind::Write, "dst", lanes, dst_stride);
    const auto operand = [](const auto& tensor, Stride stride) {
        return Operand{emulator::core().local(tensor.space(), tensor.address()), stride, static_cast<int64_t>(sizeof(typename std::decay_t<decltype(tensor)>::PrimType))};
    };
    issue_rows(std::move(instruction), lanes, {operand(dst, dst_stride), operand(sources.first, sources.second)...}, row_of<D, S...>(f, std::index_sequence_for<S...>{}));
}

}  // namespace emu

}  // namespace AscendC
