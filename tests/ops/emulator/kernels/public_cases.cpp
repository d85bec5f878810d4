// Defects of public kernels, each in few lines, and what they should have been (`fixed`).
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t {
    uninitialised_event, second_pipe, silent_return, missing_barrier, overlapping_fills, scalar_scratch,
    scratch_reused, one_flag_for_two, l1_flag_twice, written_back_over, producer_consumer, redundant_set, unwritten_state, tail_rows,
    workspace_counter, width_not_128, too_much_ub, wait_without_set, barrier_in_branch
};

constexpr uint32_t N = 128;
constexpr uint32_t TILE = N * sizeof(float);

#define ORDER(event, id)                \
    {                                   \
        SetFlag<HardEvent::event>(id);  \
        WaitFlag<HardEvent::event>(id); \
    }

/// Fills its event ids in one mode only, and uses them in both.
class Events {
   public:
    __attribute__((noinline)) void Init(bool unit_flag) {
        if (!unit_flag) ids_[0] = EVENT_ID0, ids_[1] = EVENT_ID1;
    }
    __attribute__((noinline)) void Signal(int32_t stage) {
        SetFlag<HardEvent::MTE2_V>(ids_[stage]);  // @uninitialised_event
        WaitFlag<HardEvent::MTE2_V>(ids_[stage]);
    }

   private:
    volatile int32_t ids_[2];
};

extern "C" __global__ __aicore__ void public_cases(GM_ADDR x_address, GM_ADDR y_address, int32_t op, int32_t fixed, int32_t width,
                                                   GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    GlobalTensor<float> x, y, w;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    w.SetGlobalBuffer((__gm__ float*)workspace);
    const int64_t me = GetBlockIdx();
    LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECIN, TILE, N), c(TPosition::VECOUT, 2 * TILE, N);

    if ASCEND_IS_AIC {
        LocalTensor<float> tile(TPosition::A1, 0, N);
        switch (op) {
            case one_flag_for_two: CrossCoreWaitFlag(1); break;  // @one_flag_for_two
            case l1_flag_twice:
                DataCopy(tile, x, N);
                SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
                if (fixed) WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
                PipeBarrier<PIPE_MTE2>();
                DataCopy(tile, y, N);
                SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);  // @l1_flag_twice
                WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
                if (!fixed) WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
                break;
            case producer_consumer:
                if (fixed) CrossCoreSetFlag<2, PIPE_MTE2>(2);
                CrossCoreWaitFlag(3);  // @producer_consumer
                if (!fixed) CrossCoreSetFlag<2, PIPE_MTE2>(2);
                break;
            case redundant_set:
                SetFlag<HardEvent::M_MTE1>(EVENT_ID0);  // @redundant_set
                if (fixed) WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
                break;
            case barrier_in_branch: SyncAll<false>(); break;  // @barrier_in_branch
            default: break;
        }
        return;
    }
    switch (op) {
        case uninitialised_event: {
            Events events;
            events.Init(!fixed);
            events.Signal(1);
            break;
        }
        case second_pipe: {
            TPipe pipe;
            TBuf<TPosition::VECCALC> buffer;
            pipe.InitBuffer(buffer, TILE);
            if (fixed) pipe.Destroy();
            {
                TPipe inner;  // @second_pipe
            }
            break;
        }
        case silent_return: {  // more tokens than the kernel handles: it returns without a word
            const int32_t tokens = width, at_most = fixed ? 64 : 8;
            if (tokens > at_most) return;
            DataCopy(a, x, N);
            ORDER(MTE2_MTE3, 0);
            if (me == 0)
                for (int32_t i = 0; i < 2; ++i) DataCopy(y[i * N], a, N);
            break;
        }
        case missing_barrier:
            DataCopy(a, x, N);
            ORDER(MTE2_V, 0);
            Add(c, a, a, N);
            if (fixed) PipeBarrier<PIPE_V>();
            Mul(b, c, c, N);  // @missing_barrier
            break;
        case overlapping_fills:
            DataCopy(a, x, N);
            ORDER(MTE2_V, 0);
            Add(c, a, a, N);
            if (fixed) PipeBarrier<PIPE_V>();
            Add(c[64], a, a, 64);  // @overlapping_fills
            break;
        case scalar_scratch:  // scalars are read from a buffer that the next copy writes
            DataCopy(a, x, N);
            ORDER(MTE2_S, 0);
            if (a.GetValue(5) == 12345.0f) PipeBarrier<PIPE_ALL>();
            if (fixed) ORDER(S_MTE2, 0);
            DataCopy(a, y, N);  // @scalar_scratch
            break;
        case scratch_reused:
            for (int32_t i = 0; i < 2; ++i) {
                if (i > 0) ORDER(MTE3_V, 0);
                if (i > 0 && fixed) ORDER(V_MTE2, 1);
                DataCopy(a, x, N);  // @scratch_reused
                ORDER(MTE2_V, 0);
                Add(c, a, a, N);
                ORDER(V_MTE3, 0);
                DataCopy(w[me * N], c, N);
                PipeBarrier<PIPE_MTE3>();
            }
            break;
        case one_flag_for_two:
            if (fixed || GetSubBlockIdx() == 1) CrossCoreSetFlag<2, PIPE_MTE3>(1);
            break;
        case written_back_over:  // the result goes out while the next one is made in its place
            DataCopy(a, x, N);
            ORDER(MTE2_V, 0);
            Add(c, a, a, N);
            ORDER(V_MTE3, 0);
            DataCopy(w[me * N], c, N);
            if (fixed) ORDER(MTE3_V, 0);
            Mul(c, a, a, N);  // @written_back_over
            break;
        case producer_consumer:
            CrossCoreWaitFlag(2);
            CrossCoreSetFlag<2, PIPE_MTE3>(3);
            break;
        case unwritten_state:  // the state of the first chunk is added before anything was put there
            DataCopy(a, x, N);
            if (fixed) DataCopy(b, y, N);
            ORDER(MTE2_V, 0);
            Add(c, a, b, N);  // @unwritten_state
            break;
        case tail_rows: {  // 5 rows in a tile of 8: the rest of the tile was never loaded
            const uint32_t rows = 5, row = N / 8;
            DataCopy(a, x, rows * row);
            ORDER(MTE2_V, 0);
            Add(c, a, a, (fixed ? rows : 8) * row);  // @tail_rows
            break;
        }
        case workspace_counter: {
            GlobalTensor<int32_t> counters;
            counters.SetGlobalBuffer((__gm__ int32_t*)workspace);
            if (fixed) {
                counters.SetValue(me * 16, 0);
                DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(counters[me * 16]);
            }
            counters.SetValue(me * 16, counters.GetValue(me * 16) + 1);  // @workspace_counter
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(counters[me * 16]);
            break;
        }
        case width_not_128: {  // buffers for rows of 128; the tiling lets others through
            TPipe pipe;
            TBuf<TPosition::VECCALC> buffer;
            pipe.InitBuffer(buffer, (fixed ? width : 128) * sizeof(float));
            LocalTensor<float> row = buffer.Get<float>();
            DataCopy(row, x, width);  // @width_not_128
            break;
        }
        case too_much_ub: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 2, fixed ? 98304 : 192000);  // @too_much_ub
            break;
        }
        case wait_without_set:
            DataCopy(a, x, N);
            if (fixed) SetFlag<HardEvent::MTE2_V>(EVENT_ID1);
            WaitFlag<HardEvent::MTE2_V>(EVENT_ID1);  // @wait_without_set
            Add(c, a, a, N);
            break;
        case barrier_in_branch:
            if (fixed || me > 0) SyncAll<false>();
            break;
        default: break;
    }
}
