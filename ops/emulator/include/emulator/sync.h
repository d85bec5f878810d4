// Flags, barriers, cross-core flags, the scalar's data cache.
#pragma once

#include "tensor.h"

namespace AscendC {

template <HardEvent event>
inline void SetFlag(int32_t id, Site at = Site::here()) {
    emulator::set_flag(pipes_of(event).from, pipes_of(event).to, id, at);
}

template <HardEvent event>
inline void WaitFlag(int32_t id, Site at = Site::here()) {
    emulator::wait_flag(pipes_of(event).from, pipes_of(event).to, id, at);
}

template <pipe_t pipe>
inline void PipeBarrier(Site at = Site::here()) {
    if constexpr (pipe == PIPE_ALL)
        emulator::barrier_all(at);
    else
        emulator::barrier(pipe_of(pipe), at);
}

template <uint8_t mode, pipe_t pipe>
inline void CrossCoreSetFlag(uint16_t id, Site at = Site::here()) {
    static_assert(pipe != PIPE_ALL, "CrossCoreSetFlag: name the pipe whose work has to be complete");
    emulator::cross_core_set(mode, pipe_of(pipe), id, at);
}

/// dav-2201: the whole core waits. dav-3510: `pipe` waits (the whole core for PIPE_S).
template <uint8_t mode = 0, pipe_t pipe = PIPE_S>
inline void CrossCoreWaitFlag(uint16_t id, Site at = Site::here()) {
    emulator::cross_core_wait(mode == 4 ? 4 : -1, is_3510 ? pipe_of(pipe) : emulator::Pipe::S, id, at);
}

template <bool aiv_only = true>
inline void SyncAll(Site at = Site::here()) {
    emulator::sync_all(!aiv_only, at);
}

/// The soft form: 32 bytes of zeroed workspace and of UB a core.
template <bool aiv_only = true>
inline void SyncAll(const GlobalTensor<int32_t>& workspace, const LocalTensor<int32_t>& scratch, const int32_t used_cores = 0,
                    Site at = Site::here()) {
    const int64_t cores = used_cores ? used_cores : GetBlockNum();
    int64_t room = 0;
    emulator::global(workspace.address(), &room);
    if (!emulator::require(room >= cores * 32, "out_of_bounds", at, "SyncAll", "the workspace has " + std::to_string(room) + " bytes; " + std::to_string(cores) + " cores need 32 each.")) return;
    if (!emulator::require(scratch.GetLength() >= cores * 32, "out_of_bounds", at, "SyncAll", "the UB scratch has " + std::to_string(scratch.GetLength()) + " bytes; " + std::to_string(cores) + " cores need 32 each.")) return;
    emulator::sync_all(!aiv_only, at);
}

enum class CacheLine : uint64_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT, CACHELINE_ATOMIC };
enum class MemDsbT : uint64_t { ALL, DDR, UB, SEQ };

template <class T, CacheLine line, DcciDst destination = DcciDst::CACHELINE_ALL>
inline void DataCacheCleanAndInvalid(const GlobalTensor<T>& tensor, Site at = Site::here()) {
    emulator::clean_cache(tensor.address(), line == CacheLine::ENTIRE_DATA_CACHE, at);
}

template <MemDsbT kind>
inline void DataSyncBarrier() {
    emulator::scalar_work(1);
}

// ---- Control registers ----

template <class T>
inline void SetAtomicAdd() {
    auto& control = emulator::core().control;
    control.atomic = true, control.atomic_op = 0;
}
template <class T>
inline void SetAtomicMax() {
    auto& control = emulator::core().control;
    control.atomic = true, control.atomic_op = 1;
}
template <class T>
inline void SetAtomicMin() {
    auto& control = emulator::core().control;
    control.atomic = true, control.atomic_op = 2;
}
inline void SetAtomicNone() { emulator::core().control.atomic = false; }
inline void DisableDmaAtomic() { SetAtomicNone(); }

enum class MaskMode : uint8_t { NORMAL, COUNTER };
inline void SetMaskCount() { emulator::core().control.counter_mode = true; }
inline void SetMaskNorm() { emulator::core().control.counter_mode = false; }
template <class T, MaskMode mode = MaskMode::NORMAL>
inline void SetVectorMask(uint64_t high, uint64_t low) {
    auto& control = emulator::core().control;
    control.mask[0] = low, control.mask[1] = high;
}
template <class T, MaskMode mode = MaskMode::NORMAL>
inline void SetVectorMask(int32_t count) {
    auto& control = emulator::core().control;
    if (mode == MaskMode::COUNTER) {
        control.mask[0] = static_cast<uint64_t>(count), control.mask[1] = 0;
    } else {
        control.mask[0] = count >= 64 ? ~0ull : (1ull << count) - 1;
        control.mask[1] = count >= 128 ? ~0ull : count > 64 ? (1ull << (count - 64)) - 1 : 0;
    }
}
inline void ResetMask() {
    auto& control = emulator::core().control;
    control.mask[0] = control.mask[1] = ~0ull;
}

}  // namespace AscendC
