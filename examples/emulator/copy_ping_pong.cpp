// copy_ping_pong: dst[i] = src[i], int32, any length.
//
//   src, dst  vectors in global memory
//   length    number of elements
//
// Work: tiles of TILE elements are dealt to the cores in turn. A core copies each tile in and out
// through one of two buffers. There is no queue here: the two pipes are ordered by events alone.
// FILLED (MTE2 to MTE3) says a buffer has been filled, EMPTY (MTE3 to MTE2) that it has been emptied;
// each buffer has its own pair. Both EMPTY events are set before the loop, as both buffers start
// empty, and both are waited for after it, so that every set has its wait.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t TILE = 8192;  // elements a tile
constexpr uint32_t BUFFERS = 2;

}  // namespace

extern "C" __global__ __aicore__ void copy_ping_pong(GM_ADDR src, GM_ADDR dst, uint32_t length) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<int32_t> from;
    GlobalTensor<int32_t> to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(src), length);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(dst), length);

    TPipe pipe;
    TBuf<TPosition::VECIN> buffer[BUFFERS];
    TEventID filled[BUFFERS];
    TEventID empty[BUFFERS];
    for (uint32_t i = 0; i < BUFFERS; ++i) {
        pipe.InitBuffer(buffer[i], TILE * sizeof(int32_t));
        filled[i] = pipe.AllocEventID<HardEvent::MTE2_MTE3>();
        empty[i] = pipe.AllocEventID<HardEvent::MTE3_MTE2>();
        SetFlag<HardEvent::MTE3_MTE2>(empty[i]);
    }

    const uint32_t tiles = (length + TILE - 1) / TILE;
    const uint32_t cores = static_cast<uint32_t>(GetBlockNum());
    const DataCopyPadExtParams<int32_t> pad{false, 0, 0, 0};
    uint32_t side = 0;
    for (uint32_t tile = static_cast<uint32_t>(GetBlockIdx()); tile < tiles; tile += cores) {
        const uint32_t offset = tile * TILE;
        const uint32_t size = length - offset < TILE ? length - offset : TILE;
        const DataCopyExtParams copy{1, static_cast<uint32_t>(size * sizeof(int32_t)), 0, 0, 0};
        LocalTensor<int32_t> local = buffer[side].Get<int32_t>();

        WaitFlag<HardEvent::MTE3_MTE2>(empty[side]);
        DataCopyPad(local, from[offset], copy, pad);
        SetFlag<HardEvent::MTE2_MTE3>(filled[side]);

        WaitFlag<HardEvent::MTE2_MTE3>(filled[side]);
        DataCopyPad(to[offset], local, copy);
        SetFlag<HardEvent::MTE3_MTE2>(empty[side]);
        side = 1 - side;
    }

    for (uint32_t i = 0; i < BUFFERS; ++i) {
        WaitFlag<HardEvent::MTE3_MTE2>(empty[i]);
        pipe.ReleaseEventID<HardEvent::MTE2_MTE3>(filled[i]);
        pipe.ReleaseEventID<HardEvent::MTE3_MTE2>(empty[i]);
    }
}
