// Two tiles of 1024 floats a block: y = x + 1, overlapped by the events or one after the other; the workspace gets a copy.
#include "kernel_operator.h"

using namespace AscendC;

enum Op { overlapped, serial };

constexpr uint32_t TILE = 1024;

extern "C" __global__ __aicore__ void report(GM_ADDR x, GM_ADDR y, int32_t op, GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer[2];
    GlobalTensor<float> in, out, copy;
    const uint32_t first = GetBlockIdx() * 2 * TILE;
    in.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x) + first, 2 * TILE);
    out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + first, 2 * TILE);
    copy.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace) + first, 2 * TILE);
    for (auto& one : buffer) pipe.InitBuffer(one, TILE * sizeof(float));
    for (int32_t i = 0; i < 2; ++i) {
        LocalTensor<float> tile = buffer[i].Get<float>();
        DataCopy(tile, in[i * TILE], TILE);
        SetFlag<HardEvent::MTE2_V>(i);
        WaitFlag<HardEvent::MTE2_V>(i);
        Adds(tile, tile, 1.0f, TILE);  // @adds
        SetFlag<HardEvent::V_MTE3>(i);
        WaitFlag<HardEvent::V_MTE3>(i);
        DataCopy(out[i * TILE], tile, TILE);
        if (GetBlockIdx() == 0) DataCopy(copy[i * TILE], tile, TILE);
        if (op == serial) PipeBarrier<PIPE_ALL>();
    }
}
