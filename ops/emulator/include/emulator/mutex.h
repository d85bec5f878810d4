// Locks between the pipes of a core, on dav-3510. Source: the pages Mutex (ISASI), Lock, Unlock, AllocMutexID, ReleaseMutexID.
#pragma once

#include "sync.h"

namespace AscendC {

#if __NPU_ARCH__ == 3510
using MutexID = uint8_t;

/// An id from 0 to 27 that is the program's until ReleaseMutexID.
inline MutexID AllocMutexID(Site at = Site::here()) { return static_cast<MutexID>(emulator::allocate_mutex(at)); }
inline void ReleaseMutexID(MutexID id, Site at = Site::here()) { emulator::release_mutex(id, at); }

/// Lock: what follows on `pipe` waits until the lock of the id before it, in the order of the program, is unlocked.
/// Unlock: behind the earlier work of `pipe`. A pipe that locks an id twice running is not held up the second time; between
/// its own instructions PipeBarrier orders. Unknown: whether the unit keeps the order of the program, as the page's example
/// needs it.
class Mutex {
   public:
    template <pipe_t pipe>
    static void Lock(MutexID id, Site at = Site::here()) {
        static_assert(pipe != PIPE_ALL, "Mutex::Lock: name one pipe");
        emulator::lock_mutex(emu::pipe_of(pipe), id, at);
    }
    template <pipe_t pipe>
    static void Unlock(MutexID id, Site at = Site::here()) {
        static_assert(pipe != PIPE_ALL, "Mutex::Unlock: name one pipe");
        emulator::unlock_mutex(emu::pipe_of(pipe), id, at);
    }
};
#endif

}  // namespace AscendC
