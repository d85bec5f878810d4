// Copies of up to five dimensions from global memory to UB, on dav-3510. Source: the pages DataCopy (GM to UB, NDDMA), NdDmaDci.
#pragma once

#include <array>

#include "data_copy.h"

namespace AscendC {

#if __NPU_ARCH__ == 3510
struct NdDmaConfig {
    static constexpr uint16_t unsetPad = 0xffff;
    bool isNearestValueMode = false;
    uint16_t loopLpSize = unsetPad, loopRpSize = unsetPad;
    bool ascOptimize = false;
};
constexpr NdDmaConfig kDefaultNdDmaConfig;

template <uint8_t dim>
struct NdDmaLoopInfo {
    uint64_t loopSrcStride[dim] = {0};
    uint32_t loopDstStride[dim] = {0};
    uint32_t loopSize[dim] = {0};
    uint8_t loopLpSize[dim] = {0};
    uint8_t loopRpSize[dim] = {0};
};
template <class T, uint8_t dim>
struct NdDmaParams {
    NdDmaLoopInfo<dim> loopInfo;
    T constantValue;
};

/// Drops what the cache of these copies holds.
inline void NdDmaDci() {
    emulator::scalar_work(1);
    emulator::core().control.nddma_fresh = true;
}

namespace emu {

/// A dimension of the copy: strides in bytes, elements, paddings before and behind them.
struct Loop {
    int64_t from = 0, to = 0, size = 1, left = 0, right = 0;
    int64_t all() const { return left + size + right; }
};
using Loops = std::array<Loop, 5>;  // the innermost first; what is left over has one element

/// What the loops touch: `stride` and `count` of a loop. Loops 3 and 4 go one by one, the others together.
inline void add_loop_accesses(std::vector<emulator::Access>& out, const emulator::Access& one, const Loops& loops, int64_t (*stride)(const Loop&), int64_t (*count)(const Loop&)) {
    for (int64_t i4 = 0; i4 < count(loops[4]); ++i4)
        for (int64_t i3 = 0; i3 < count(loops[3]); ++i3)
            for (int64_t i2 = 0; i2 < count(loops[2]); ++i2) {
                emulator::Access access = one;
                access.begin += i4 * stride(loops[4]) + i3 * stride(loops[3]) + i2 * stride(loops[2]);
                if (!out.empty()) access.align = 1;
                if (stride(loops[0]) == one.bytes) access.bytes = one.bytes * count(loops[0]);
                else access.runs = stride(loops[0]) == 0 ? 1 : count(loops[0]), access.pitch = stride(loops[0]);
                access.groups = stride(loops[1]) == 0 ? 1 : count(loops[1]), access.group_pitch = stride(loops[1]);
                out.push_back(access);
            }
}

inline bool legal_loops(const Loops& loops, int dim, int64_t size, Site at) {
    const auto in_range = [at](int64_t value, int64_t least, int64_t most, const char* name, int i) {
        return emulator::require(value >= least && value < most, "argument", at, "DataCopy", std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(value) + "; it has to be " + std::to_string(least) + " to " + std::to_string(most - 1) + ".");
    };
    for (int i = 0; i < dim; ++i) {
        const Loop& loop = loops[static_cast<size_t>(i)];
        if (!in_range(loop.from / size, 0, 1ll << 40, "loopSrcStride", i) || !in_range(loop.to / size, 0, 1ll << 20, "loopDstStride", i) || !in_range(loop.size, 1, 1ll << 20, "loopSize", i)) return false;
    }
    // The elements of dst lie apart: each stride reaches beyond all that the smaller ones cover.
    Loops sorted = loops;
    std::sort(sorted.begin(), sorted.end(), [](const Loop& a, const Loop& b) { return a.to < b.to; });
    int64_t covered = size;
    for (const Loop& loop : sorted) {
        if (loop.all() == 1) continue;
        if (!emulator::require(loop.to >= covered, "argument", at, "DataCopy", "a loopDstStride is " + std::to_string(loop.to / size) + " elements and the loops within it cover " + std::to_string(covered / size) + "; loops must not overlap in dst.")) return false;
        covered += (loop.all() - 1) * loop.to;
    }
    return true;
}

}  // namespace emu

/// dst[sum of i_d loopDstStride[d]] = src[sum of (i_d - left_d) loopSrcStride[d]]; in the paddings constantValue, or the
/// nearest element of the dimension. Dimension 0 is the innermost one. NdDmaDci has to come before: the copies have a cache,
/// and what it held is read without it. Here only that it was called at all is looked at.
template <class T, uint8_t dim, const NdDmaConfig& config = kDefaultNdDmaConfig>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const NdDmaParams<T, dim>& params, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    using emulator::Access;
    static_assert(dim >= 1 && dim <= 5, "DataCopy with NdDmaParams: dim is 1 to 5");
    static_assert(config.loopLpSize == NdDmaConfig::unsetPad || config.loopLpSize < 256, "NdDmaConfig: loopLpSize is at most 255");
    static_assert(config.loopRpSize == NdDmaConfig::unsetPad || config.loopRpSize < 256, "NdDmaConfig: loopRpSize is at most 255");
    static_assert(sizeof(T) < 8 || !config.isNearestValueMode, "DataCopy with NdDmaParams: a type of 64 bits has no nearest value mode");
    constexpr int64_t size = sizeof(T);
    emu::Loops loops;
    for (int i = 0; i < dim; ++i)
        loops[static_cast<size_t>(i)] = {static_cast<int64_t>(params.loopInfo.loopSrcStride[i]) * size, static_cast<int64_t>(params.loopInfo.loopDstStride[i]) * size,
                                         static_cast<int64_t>(params.loopInfo.loopSize[i]), config.loopLpSize == NdDmaConfig::unsetPad ? params.loopInfo.loopLpSize[i] : config.loopLpSize,
                                         config.loopRpSize == NdDmaConfig::unsetPad ? params.loopInfo.loopRpSize[i] : config.loopRpSize};
    const T value = params.constantValue;
    if constexpr (size == 8) {
        const T zero{};
        if (!emulator::require(std::memcmp(&value, &zero, sizeof(T)) == 0, "argument", at, "DataCopy", "constantValue of a type of 64 bits can only be 0.")) return;
    }
    if (!emulator::require(dst.space() == emulator::Space::UB, "wrong_core", at, "DataCopy", "a copy with NdDmaParams goes to UB.") || !emu::legal_loops(loops, dim, size, at)) return;
    emulator::require(emulator::core().control.nddma_fresh, "cache_line", at, "DataCopy", "NdDmaDci is missing before it: the cache of these copies may hold old values.");
    int64_t elements = 1;
    for (const emu::Loop& loop : loops) elements *= loop.size;
    emulator::Instruction instruction = copy_impl::move_instruction("DataCopy", at, emulator::Pipe::MTE2, "GM->UB", elements * size);
    emu::add_loop_accesses(instruction.accesses, src.bytes(Access::Kind::Read, "src", 0, size, static_cast<uint32_t>(size)), loops, [](const emu::Loop& loop) { return loop.from; }, [](const emu::Loop& loop) { return loop.from == 0 ? int64_t{1} : loop.size; });
    std::vector<Access> writes;
    emu::add_loop_accesses(writes, dst.bytes(Access::Kind::Write, "dst", 0, size), loops, [](const emu::Loop& loop) { return loop.to; }, [](const emu::Loop& loop) { return loop.all(); });
    instruction.accesses.insert(instruction.accesses.end(), writes.begin(), writes.end());
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(instruction), [=] {
        std::array<int64_t, 5> i{};
        for (;;) {
            int64_t from = 0, to = 0;
            bool inside = true;
            for (size_t d = 0; d < 5; ++d) {
                const int64_t at_source = std::clamp<int64_t>(i[d] - loops[d].left, 0, loops[d].size - 1);
                inside &= at_source == i[d] - loops[d].left;
                from += at_source * loops[d].from, to += i[d] * loops[d].to;
            }
            if (inside || config.isNearestValueMode) std::memcpy(out + to, src.host(from), sizeof(T));
            else std::memcpy(out + to, &value, sizeof(T));
            size_t d = 0;
            while (d < 5 && ++i[d] == loops[d].all()) i[d++] = 0;
            if (d == 5) return;
        }
    });
}
#endif

}  // namespace AscendC
