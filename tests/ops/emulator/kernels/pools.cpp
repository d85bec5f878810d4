// TBufPool; see test_pools.py. Two stages use the same part of UB one after the other, as in the pages' examples.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { stages, nested, many_times, by_hand, overflow, too_many, share_larger, not_begun, other_pipe, not_freed };

constexpr uint32_t N = 512, BYTES = N * sizeof(float);
using In = TQue<TPosition::VECIN, 1>;
using Out = TQue<TPosition::VECOUT, 1>;

/// y[i] = 2 x[i] through a queue in and a queue out.
__aicore__ inline void Stage(In& in, Out& out, const GlobalTensor<float>& x, const GlobalTensor<float>& y) {
    LocalTensor<float> a = in.AllocTensor<float>();
    DataCopy(a, x, N);  // @stages @nested
    in.EnQue(a);
    a = in.DeQue<float>();
    LocalTensor<float> b = out.AllocTensor<float>();
    Add(b, a, a, N);
    out.EnQue(b);
    in.FreeTensor(a);
    b = out.DeQue<float>();
    DataCopy(y, b, N);
    out.FreeTensor(b);
}

extern "C" __global__ __aicore__ void pools(GM_ADDR x_address, GM_ADDR y_address, int32_t op, int32_t fixed) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<float> x, y;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    TPipe pipe;
    TBufPool<TPosition::VECCALC> first, second;
    In in1, in2;
    Out out1, out2;
    TBuf<TPosition::VECCALC> buffer;
    switch (op) {
        case stages:  // in and out of the second change places
            pipe.InitBufPool(first, 2 * BYTES);
            pipe.InitBufPool(second, 2 * BYTES, first);
            first.InitBuffer(in1, 1, BYTES);
            first.InitBuffer(out1, 1, BYTES);
            Stage(in1, out1, x, y);
            if (fixed) first.Reset();
            second.InitBuffer(out2, 1, BYTES);
            second.InitBuffer(in2, 1, BYTES);
            Stage(in2, out2, x[N], y[N]);
            second.Reset();
            break;
        case nested: {  // a pool and a queue of a pool; a pool within it twice
            TBufPool<TPosition::VECIN, 8> whole;
            pipe.InitBufPool(whole, 4 * BYTES - 5);  // rounded up to 32 bytes
            whole.InitBufPool(first, 2 * BYTES);
            whole.InitBuffer(buffer, 2 * BYTES);
            whole.InitBufPool(second, 2 * BYTES, first);
            first.InitBuffer(in1, 1, BYTES);
            first.InitBuffer(out1, 1, BYTES);
            Stage(in1, out1, x, y);
            if (fixed) first.Reset();
            second.InitBuffer(out2, 1, BYTES);
            second.InitBuffer(in2, 1, BYTES);
            Stage(in2, out2, x[N], y[N]);
            second.Reset();
            whole.Reset();
            break;
        }
        case many_times:  // back to a pool: its buffers are still there
            pipe.InitBufPool(first, 2 * BYTES);
            pipe.InitBufPool(second, 2 * BYTES, first);
            first.InitBuffer(in1, 1, BYTES), first.InitBuffer(out1, 1, BYTES);
            second.InitBuffer(out2, 1, BYTES), second.InitBuffer(in2, 1, BYTES);
            for (uint32_t i = 0; i < 4; ++i) {
                Stage(in1, out1, x[2 * i * N], y[2 * i * N]);
                first.Reset();
                Stage(in2, out2, x[(2 * i + 1) * N], y[(2 * i + 1) * N]);
                if (fixed) second.Reset();
            }
            first.Reset();
            break;
        case by_hand: {  // flags of the program's own: not what Reset waits for
            pipe.InitBufPool(first, 2 * BYTES);
            pipe.InitBufPool(second, BYTES, first);
            first.InitBuffer(buffer, BYTES);
            first.InitBuffer(in1, 1, BYTES);  // has nothing under way
            LocalTensor<float> a = buffer.Get<float>();
            DataCopy(a, x, N);
            SetFlag<HardEvent::MTE2_MTE3>(0);
            WaitFlag<HardEvent::MTE2_MTE3>(0);
            DataCopy(y, a, N);
            first.Reset();
            if (fixed) {
                SetFlag<HardEvent::MTE3_MTE2>(0);
                WaitFlag<HardEvent::MTE3_MTE2>(0);
            }
            TBuf<TPosition::VECCALC> other;
            second.InitBuffer(other, BYTES);
            DataCopy(other.Get<float>(), x, N);  // @by_hand
            break;
        }
        case overflow:
            pipe.InitBufPool(first, 2 * BYTES);
            first.InitBuffer(in1, 2, BYTES);
            if (!fixed) first.InitBuffer(buffer, 32);  // @overflow
            break;
        case too_many:
            pipe.InitBufPool(first, 64 * 32);
            first.InitBuffer(in1, 4, 32);
            if (!fixed) first.InitBuffer(buffer, 32);  // @too_many
            break;
        case share_larger:
            pipe.InitBufPool(first, BYTES);
            pipe.InitBufPool(second, fixed ? BYTES : BYTES + 1, first);  // @share_larger
            break;
        case not_begun:
            if (!fixed) first.InitBuffer(buffer, 32);  // @not_begun
            break;
        case other_pipe: {
            pipe.InitBufPool(first, BYTES);
            pipe.Destroy();
            TPipe another;
            if (fixed) another.InitBufPool(first, BYTES);
            first.InitBuffer(buffer, BYTES);  // @other_pipe
            break;
        }
        case not_freed: {
            pipe.InitBufPool(first, BYTES);
            first.InitBuffer(in1, 1, BYTES);  // @not_freed
            LocalTensor<float> a = in1.AllocTensor<float>();
            if (fixed) in1.FreeTensor(a);
            first.Reset();
            break;
        }
        default: break;
    }
}
