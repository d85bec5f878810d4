// Flags, barriers, cross-core flags, the scalar's data cache.
#pragma once

#include "tensor.h"

namespace AscendC {

template <HardEvent event>
inline void SetFlag(int32_t id, Site at = Site::here()) {
    emulator::set_flag(emu::pipes_of(event).from, emu::pipes_of(event).to, id, at);
}

template <HardEvent event>
inline void WaitFlag(int32_t id, Site at = Site::here()) {
    emulator::wait_flag(emu::pipes_of(event).from, emu::pipes_of(event).to, id, at);
}

template <pipe_t pipe>
inline void PipeBarrier(Site at = Site::here()) {
    static_assert(pipe != PIPE_S, "PipeBarrier: the scalar pipe is in order by itself and has no barrier");
    if constexpr (pipe == PIPE_ALL)
        emulator::barrier_all(at);
    else
        emulator::barrier(emu::pipe_of(pipe), at);
}

template <uint8_t mode, pipe_t pipe>
inline void CrossCoreSetFlag(uint16_t id, Site at = Site::here()) {
    static_assert(pipe != PIPE_ALL, "CrossCoreSetFlag: name the pipe whose work has to be complete");
    static_assert(pipe != PIPE_S || mode == 4, "CrossCoreSetFlag: PIPE_S is for mode 4 of dav-3510 only");
    static_assert(mode <= 2 || (mode == 4 && is_3510), "CrossCoreSetFlag: modes are 0, 1 and 2, and 4 on dav-3510");
    emulator::cross_core_set(mode, emu::pipe_of(pipe), id, at);
}

/// dav-2201: the whole core waits. dav-3510: `pipe` waits (the whole core for PIPE_S).
template <uint8_t mode = 0, pipe_t pipe = PIPE_S>
inline void CrossCoreWaitFlag(uint16_t id, Site at = Site::here()) {
    static_assert(pipe != PIPE_ALL, "CrossCoreWaitFlag: name a pipe, or none for the whole core");
    static_assert(mode <= 2 || mode == 4, "CrossCoreWaitFlag: modes are 0, 1 and 2, and 4 on dav-3510");
    emulator::cross_core_wait(mode == 4 ? 4 : -1, is_3510 ? emu::pipe_of(pipe) : emulator::Pipe::S, id, at);
}

/// dav-3510: the pipe whose work a vector core tells of, and the one that waits for the others; MTE2, MTE3 or all of them.
struct SyncAllConfig {
    pipe_t triggerPipe;
    pipe_t waitPipe;
};
constexpr SyncAllConfig DEFAULT_SYNC_ALL_CONFIG = {PIPE_ALL, PIPE_ALL};

/// All vector cores (true), or all cores of a mixed kernel; each waits for its own pipes first. With one pipe in its config
/// (vector cores alone) it is as mode 0 of CrossCoreSetFlag and CrossCoreWaitFlag, with an id of the system's.
#if __NPU_ARCH__ == 3510
template <bool aiv_only = true, const SyncAllConfig& config = DEFAULT_SYNC_ALL_CONFIG>
inline void SyncAll(Site at = Site::here()) {
    constexpr auto takes = [](pipe_t pipe) { return pipe == PIPE_ALL || pipe == PIPE_MTE2 || pipe == PIPE_MTE3; };
    static_assert(takes(config.triggerPipe) && takes(config.waitPipe), "SyncAll: its config takes PIPE_MTE2, PIPE_MTE3 and PIPE_ALL");
    if constexpr (!aiv_only || (config.triggerPipe == PIPE_ALL && config.waitPipe == PIPE_ALL)) {
        emulator::sync_all(!aiv_only, at);
    } else {
        if (emulator::core().role == emulator::Role::AIC) return;
        if (config.triggerPipe == PIPE_ALL) emulator::drain_pipes(at);
        emulator::cross_core_set(0, config.triggerPipe == PIPE_ALL ? emulator::Pipe::S : emu::pipe_of(config.triggerPipe), 14, at);
        emulator::cross_core_wait(-1, config.waitPipe == PIPE_ALL ? emulator::Pipe::S : emu::pipe_of(config.waitPipe), 14, at);
    }
}
#else
template <bool aiv_only = true>
inline void SyncAll(Site at = Site::here()) {
    emulator::sync_all(!aiv_only, at);
}
#endif

/// The soft form: 32 bytes of zeroed workspace and of UB a core; `used_cores` of the vector cores, 0: all.
template <bool aiv_only = true>
inline void SyncAll(const GlobalTensor<int32_t>& workspace, const LocalTensor<int32_t>& scratch, const int32_t used_cores = 0,
                    Site at = Site::here()) {
    static_assert(aiv_only, "SyncAll: the form with a workspace is between vector cores only");
    const int64_t all = GetBlockNum() * GetTaskRatio(), cores = used_cores > 0 ? used_cores : all;
    if (!emulator::require(cores <= all, "argument", at, "SyncAll", "usedCores is " + std::to_string(used_cores) + "; the launch has " + std::to_string(all) + " vector cores.")) return;
    int64_t room = 0;
    uint8_t* const flags = emulator::global(workspace.address(), &room);
    if (!emulator::require(room >= cores * 32, "out_of_bounds", at, "SyncAll", "the workspace has " + std::to_string(room) + " bytes; " + std::to_string(cores) + " cores need 32 each.")) return;
    if (!emulator::require(scratch.GetLength() >= cores * 32, "out_of_bounds", at, "SyncAll", "the UB scratch has " + std::to_string(scratch.GetLength()) + " bytes; " + std::to_string(cores) + " cores need 32 each.")) return;
    emulator::drain_pipes(at);
    emulator::scalar_access(workspace.bytes(emulator::Access::Kind::Read, "gmWorkspace", 0, cores * 32), "SyncAll", at);
    const bool zero = std::all_of(flags, flags + cores * 32, [](uint8_t byte) { return byte == 0; });
    emulator::require(zero, "argument", at, "SyncAll", "the workspace is not zero; fill it with zeros before the first use.");
    emulator::sync_all(false, at, true, used_cores);
    emulator::Access spoiled = scratch.bytes(emulator::Access::Kind::Write, "ubWorkspace", 0, cores * 32);
    spoiled.scratch = true;
    if (emulator::scalar_access(spoiled, "SyncAll", at)) std::memset(scratch.host(), 0xff, static_cast<size_t>(cores * 32));
    emulator::drain_pipes(at);
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

namespace atomic_impl {

/// The number of a type in Control::atomic_type: 1 to 6, 0 for a type that atomic writes do not exist for.
template <class T>
constexpr uint8_t type() {
    constexpr bool is[] = {std::is_same_v<T, int8_t>, std::is_same_v<T, int16_t>, std::is_same_v<T, half>, std::is_same_v<T, bfloat16_t>,
                           std::is_same_v<T, int32_t>, std::is_same_v<T, float>};
    for (uint8_t i = 0; i < 6; ++i)
        if (is[i]) return i + 1;
    return 0;
}

/// What follows to global memory is combined with what is there, until SetAtomicNone. `op`: 0 add, 1 max, 2 min.
template <class T>
inline void turn_on(uint8_t op) {
    static_assert(type<T>() != 0, "SetAtomicAdd, SetAtomicMax, SetAtomicMin: types are int8, int16, half, bfloat16, int32 and float");
    auto& control = emulator::core().control;
    control.atomic = true, control.atomic_op = op, control.atomic_type = type<T>();
}

}  // namespace atomic_impl

template <class T>
inline void SetAtomicAdd() { atomic_impl::turn_on<T>(0); }
template <class T>
inline void SetAtomicMax() { atomic_impl::turn_on<T>(1); }
template <class T>
inline void SetAtomicMin() { atomic_impl::turn_on<T>(2); }
/// The type alone; it says nothing of whether atomic writes are on.
template <class T>
inline void SetAtomicType() {
    static_assert(atomic_impl::type<T>() != 0, "SetAtomicType: types are int8, int16, half, bfloat16, int32 and float");
    emulator::core().control.atomic_type = atomic_impl::type<T>();
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
