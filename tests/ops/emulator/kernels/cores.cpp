// What the cores of each kernel type say of themselves, and what they may call. TYPE or QUALIFIER is the kernel's type.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { identity, sync_all, sync_all_mixed, set_mode_0, set_mode_1, set_mode_2, foreign_flag, foreign_barrier };

#ifndef QUALIFIER
#define QUALIFIER
#endif

extern "C" __global__ QUALIFIER __aicore__ void cores(GM_ADDR y, int32_t op) {
#ifdef TYPE
    KERNEL_TASK_TYPE_DEFAULT(TYPE);
#endif
    GlobalTensor<int32_t> out;
    out.SetGlobalBuffer((__gm__ int32_t*)y);
    switch (op) {
        case identity: {
            // A line of the cache for each core: cube cores first, then from the 16th on vector cores.
            GlobalTensor<int32_t> row = out[((g_coreType == AIC ? 0 : 16) + GetBlockIdx()) * 16];
            row.SetValue(0, g_coreType);
            row.SetValue(1, GetBlockIdx());
            row.SetValue(2, GetSubBlockIdx());
            row.SetValue(3, GetBlockNum());
            row.SetValue(4, GetSubBlockNum());
            row.SetValue(5, GetTaskRatio());
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(row);
            break;
        }
        case sync_all: SyncAll(); break;              // @sync_all
        case sync_all_mixed: SyncAll<false>(); break;  // @sync_all_mixed
        case set_mode_0:
            CrossCoreSetFlag<0, PIPE_MTE2>(1);  // @set_mode_0
            CrossCoreWaitFlag(1);
            break;
        case set_mode_1:
            if ASCEND_IS_AIV {
                CrossCoreSetFlag<1, PIPE_MTE2>(1);  // @set_mode_1
                CrossCoreWaitFlag(1);
            }
            break;
        case set_mode_2:
            CrossCoreSetFlag<2, PIPE_MTE2>(1);  // @set_mode_2
            CrossCoreWaitFlag(1);
            break;
        case foreign_flag:
            if ASCEND_IS_AIC { SetFlag<HardEvent::MTE2_V>(0); }  // @foreign_flag
            break;
        case foreign_barrier:
            if ASCEND_IS_AIV { PipeBarrier<PIPE_M>(); }  // @foreign_barrier
            break;
        default: break;
    }
}
