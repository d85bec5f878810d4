// IBSet and IBWait; see test_block_flags.py. Each vector core adds what the one before it has written.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { chain, again, mixed, set_twice, never_waited, never_set, block_beyond, event_negative, workspace_small, scratch_small, not_zero };

constexpr uint32_t N = 64;  // floats of a core

#define ORDER(event)                   \
    {                                  \
        SetFlag<HardEvent::event>(0);  \
        WaitFlag<HardEvent::event>(0); \
    }

extern "C" __global__ __aicore__ void block_flags(GM_ADDR x_address, GM_ADDR y_address, GM_ADDR flags_address, int32_t op, int32_t fixed, int32_t room) {
#if defined(MIXED)
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
#elif defined(ROUNDS)
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
#else
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    GlobalTensor<float> x, y;
    GlobalTensor<int32_t> flags;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    flags.SetGlobalBuffer((__gm__ int32_t*)flags_address, room / 4);
    LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECOUT, 1024, N);
    LocalTensor<int32_t> scratch(TPosition::VECCALC, 2048, 8);
    const int32_t me = static_cast<int32_t>(GetBlockIdx()), cores = static_cast<int32_t>(GetBlockNum() * GetTaskRatio());
    constexpr bool alone =
#ifdef MIXED
        false;
#else
        true;
#endif
    if (op == chain || op == again || op == mixed) {
        for (int32_t round = 0; round < (op == again ? 3 : 1); ++round) {
            if ASCEND_IS_AIV {
                if (round > 0) ORDER(MTE3_MTE2);
                DataCopy(a, x[me * N], N);
                if (me > 0) {
                    if (fixed) IBWait<alone>(flags, scratch, me - 1, round);
                    DataCopy(b, y[(me - 1) * N], N);  // @chain
                    ORDER(MTE2_V);
                    Add(a, a, b, N);
                    ORDER(V_MTE3);
                } else {
                    ORDER(MTE2_MTE3);
                }
                DataCopy(y[me * N], a, N);
                if (me + 1 < cores && fixed) IBSet<alone>(flags, scratch, me, round);
            }
            if (op != chain) SyncAll<alone>();
        }
        return;
    }
    if (op == not_zero || op == set_twice || op == never_waited) {
        if (me == 0) IBSet(flags, scratch, 0, 0);  // @not_zero @never_waited
        if (op == set_twice && !fixed && me == 0) IBSet(flags, scratch, 0, 0);  // @set_twice
        if (op == never_waited && !fixed) return;
        if (me == 1) IBWait(flags, scratch, 0, 0);
    }
    if (op == never_set && me == 1) IBWait(flags, scratch, 0, fixed);  // @never_set
    if (op == never_set && me == 0) IBSet(flags, scratch, 0, 1);
    if (op == block_beyond && !fixed && me == 0) IBSet(flags, scratch, cores, 0);  // @block_beyond
    if (op == event_negative && !fixed && me == 0) IBSet(flags, scratch, 0, -1);   // @event_negative
    if (op == workspace_small && !fixed && me == 0) IBSet(flags, scratch, 1, 1);   // @workspace_small
    if (op == scratch_small && !fixed && me == 0) IBSet(flags, LocalTensor<int32_t>(TPosition::VECCALC, 0, 7), 0, 0);  // @scratch_small
}
