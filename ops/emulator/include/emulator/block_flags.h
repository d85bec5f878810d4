// Flags in global memory from one vector core to another: IBSet, IBWait. Source: their pages.
#pragma once

#include "sync.h"

namespace AscendC {

namespace emu {

/// The address of the flag, 0 when the call is refused. The flag lies 32 bytes * (cores * eventID + blockIdx) into the workspace.
inline uint64_t block_flag(const char* call, Site at, const GlobalTensor<int32_t>& workspace, const LocalTensor<int32_t>& scratch, int64_t cores, int32_t block, int32_t event) {
    if (!emulator::require(block >= 0 && block < cores, "argument", at, call, "blockIdx is " + std::to_string(block) + "; it has to be 0 to " + std::to_string(cores - 1) + ".")) return 0;
    if (!emulator::require(event >= 0, "argument", at, call, "eventID is " + std::to_string(event) + "; it has to be 0 or more.")) return 0;
    const int64_t offset = 32 * (cores * event + block);
    int64_t room = 0;
    const uint8_t* const memory = emulator::global(workspace.address(), &room);
    if (workspace.GetSize() > 0) room = std::min(room, static_cast<int64_t>(workspace.GetSize()) * 4);
    if (!emulator::require(memory != nullptr && room >= offset + 32, "out_of_bounds", at, call, "the workspace has " + std::to_string(room) + " bytes; the flag of block " + std::to_string(block) + " and event " + std::to_string(event) + " is at byte " + std::to_string(offset) + " and takes 32.")) return 0;
    if (!emulator::require(scratch.space() == emulator::Space::UB && scratch.GetLength() >= 32, "out_of_bounds", at, call, "ubWorkspace has " + std::to_string(scratch.GetLength()) + " bytes; it takes 32 of UB.")) return 0;
    return workspace.address() + static_cast<uint64_t>(offset);
}

/// ubWorkspace holds nothing defined afterwards.
inline void spoil_block_scratch(const char* call, Site at, const LocalTensor<int32_t>& scratch) {
    emulator::Access spoiled = scratch.bytes(emulator::Access::Kind::Write, "ubWorkspace", 0, 32);
    spoiled.scratch = true;
    if (emulator::scalar_access(spoiled, call, at)) std::memset(scratch.host(), 0xff, 32);
    emulator::drain_pipes(at);
}

/// The workspace has to be zero before its first use: what is read there is the program's, and the flag itself the machine's.
inline bool block_flag_is_zero(const char* call, Site at, const GlobalTensor<int32_t>& workspace, uint64_t address) {
    const int64_t offset = static_cast<int64_t>(address - workspace.address());
    if (!emulator::scalar_access(workspace.bytes(emulator::Access::Kind::Read, "gmWorkspace", offset, 32), call, at)) return false;
    int32_t value;
    std::memcpy(&value, emulator::global(address, nullptr), sizeof value);
    return emulator::require(value == 0, "argument", at, call, "the workspace is not zero; fill it with zeros before the first use.");
}

}  // namespace emu

/// Behind all earlier work of this core: tells the core that waits at the same workspace, blockIdx and eventID. Between
/// vector cores alone. Unknown: how the flag becomes 0 again; here the wait takes it, and it can be set anew.
template <bool isAIVOnly = true>
void IBSet(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, int32_t blockIdx, int32_t eventID, Site at = Site::here()) {
    if (emulator::core().role == emulator::Role::AIC) return;
    const uint64_t flag = emu::block_flag("IBSet", at, gmWorkspace, ubWorkspace, GetBlockNum() * (isAIVOnly ? 1 : 2), blockIdx, eventID);
    if (flag == 0 || !emu::block_flag_is_zero("IBSet", at, gmWorkspace, flag)) return;
    emulator::block_set(flag, at);
    emu::spoil_block_scratch("IBSet", at, ubWorkspace);
}

/// The core waits until IBSet with the same workspace, blockIdx and eventID.
template <bool isAIVOnly = true>
void IBWait(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, int32_t blockIdx, int32_t eventID, Site at = Site::here()) {
    if (emulator::core().role == emulator::Role::AIC) return;
    const uint64_t flag = emu::block_flag("IBWait", at, gmWorkspace, ubWorkspace, GetBlockNum() * (isAIVOnly ? 1 : 2), blockIdx, eventID);
    if (flag == 0 || !emu::block_flag_is_zero("IBWait", at, gmWorkspace, flag)) return;
    emulator::block_wait(flag, "waits in IBWait for block " + std::to_string(blockIdx) + ", event " + std::to_string(eventID), at);
    emu::spoil_block_scratch("IBWait", at, ubWorkspace);
}

}  // namespace AscendC
