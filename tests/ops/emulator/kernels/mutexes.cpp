// Locks between pipes, on dav-3510; see test_mutexes.py. `fixed` 0: the mistake that the case is about.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t {
    pipeline, with_queue, scalar, same_pipe, crossed,
    // mistakes
    lock_twice, unlock_alone, never_unlocked, reserved_id, ids_out, not_released, released_twice, waits_forever
};

constexpr uint32_t N = 256, TILES = 6;  // floats of a tile

/// y = 2 x; two tiles take turns, as in the page's example.
__aicore__ inline void Pipeline(const GlobalTensor<float>& x, const GlobalTensor<float>& y, bool fixed) {
    const MutexID ids[2] = {AllocMutexID(), AllocMutexID()};
    for (uint32_t i = 0; i < TILES; ++i) {
        const MutexID id = ids[i % 2];
        LocalTensor<float> a(TPosition::VECIN, i % 2 * 4096, N), b(TPosition::VECOUT, i % 2 * 4096 + 1024, N);
        Mutex::Lock<PIPE_MTE2>(id);
        DataCopy(a, x[i * N], N);
        Mutex::Unlock<PIPE_MTE2>(id);
        if (fixed) Mutex::Lock<PIPE_V>(id);
        Add(b, a, a, N);  // @pipeline
        if (fixed) Mutex::Unlock<PIPE_V>(id);
        Mutex::Lock<PIPE_MTE3>(id);
        DataCopy(y[i * N], b, N);
        Mutex::Unlock<PIPE_MTE3>(id);
    }
    ReleaseMutexID(ids[0]);
    ReleaseMutexID(ids[1]);
}

extern "C" __global__ __aicore__ void mutexes(GM_ADDR x_address, GM_ADDR y_address, int32_t op, int32_t fixed) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<float> x, y;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECOUT, 1024, N);
    switch (op) {
        case pipeline: Pipeline(x, y, fixed != 0); break;
        case with_queue: {  // the id comes from the framework, beside a queue
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            TBuf<TPosition::VECCALC> buffer;
            pipe.InitBuffer(queue, 2, N * sizeof(float));
            pipe.InitBuffer(buffer, N * sizeof(float));
            LocalTensor<float> out = buffer.Get<float>();
            const MutexID id = AllocMutexID();
            for (uint32_t i = 0; i < TILES; ++i) {
                LocalTensor<float> tile = queue.AllocTensor<float>();
                DataCopy(tile, x[i * N], N);
                queue.EnQue(tile);
                tile = queue.DeQue<float>();
                Mutex::Lock<PIPE_V>(id);
                Add(out, tile, tile, N);
                if (fixed) Mutex::Unlock<PIPE_V>(id);
                queue.FreeTensor(tile);
                if (fixed) Mutex::Lock<PIPE_MTE3>(id);
                DataCopy(y[i * N], out, N);  // @with_queue
                if (fixed) Mutex::Unlock<PIPE_MTE3>(id);
                if (!fixed) Mutex::Unlock<PIPE_V>(id);
            }
            ReleaseMutexID(id);
            break;
        }
        case scalar: {  // the scalar has locks as well
            Mutex::Lock<PIPE_MTE2>(3);
            DataCopy(a, x, N);
            Mutex::Unlock<PIPE_MTE2>(3);
            if (fixed) Mutex::Lock<PIPE_S>(3);
            a.SetValue(0, a.GetValue(0) + 1.0f);  // @scalar
            if (fixed) Mutex::Unlock<PIPE_S>(3);
            Mutex::Lock<PIPE_V>(3);
            Add(b, a, a, N);
            Mutex::Unlock<PIPE_V>(3);
            Mutex::Lock<PIPE_MTE3>(3);
            DataCopy(y, b, N);
            Mutex::Unlock<PIPE_MTE3>(3);
            break;
        }
        case same_pipe:  // "the second Lock does not block any more": copies into one tile
            for (int i = 0; i < 2; ++i) {
                Mutex::Lock<PIPE_MTE2>(0);
                DataCopy(a, x[i * N], N);  // @same_pipe
                Mutex::Unlock<PIPE_MTE2>(0);
                if (fixed) PipeBarrier<PIPE_MTE2>();
            }
            break;
        case crossed:  // each pipe keeps what the other one waits for
            Mutex::Lock<PIPE_MTE2>(0);
            Mutex::Lock<PIPE_V>(1);
            if (fixed) Mutex::Unlock<PIPE_MTE2>(0), Mutex::Unlock<PIPE_V>(1);
            Mutex::Lock<PIPE_MTE2>(1);
            Mutex::Lock<PIPE_V>(0);
            Mutex::Unlock<PIPE_MTE2>(1);
            Mutex::Unlock<PIPE_V>(0);
            if (!fixed) Mutex::Unlock<PIPE_MTE2>(0), Mutex::Unlock<PIPE_V>(1);
            break;
        case lock_twice:
            Mutex::Lock<PIPE_V>(0);
            if (!fixed) Mutex::Lock<PIPE_V>(0);  // @lock_twice
            Mutex::Unlock<PIPE_V>(0);
            break;
        case unlock_alone:
            if (fixed) Mutex::Lock<PIPE_V>(0);
            Mutex::Unlock<PIPE_V>(0);  // @unlock_alone
            break;
        case never_unlocked:
            Mutex::Lock<PIPE_V>(5);  // @never_unlocked
            if (fixed) Mutex::Unlock<PIPE_V>(5);
            break;
        case reserved_id:
            if (!fixed) Mutex::Lock<PIPE_V>(28);  // @reserved_id
            break;
        case ids_out:
            for (int i = 0; i < 29 - fixed; ++i) AllocMutexID();  // @ids_out
            for (int i = 0; i < 28; ++i) ReleaseMutexID(static_cast<MutexID>(i));
            break;
        case not_released: {
            const MutexID id = AllocMutexID();  // @not_released
            if (fixed) ReleaseMutexID(id);
            break;
        }
        case released_twice: {
            const MutexID id = AllocMutexID();
            ReleaseMutexID(id);
            if (!fixed) ReleaseMutexID(id);  // @released_twice
            break;
        }
        case waits_forever:
            Mutex::Lock<PIPE_MTE2>(2);
            if (fixed) Mutex::Unlock<PIPE_MTE2>(2);
            Mutex::Lock<PIPE_S>(2);  // @waits_forever
            Mutex::Unlock<PIPE_S>(2);
            break;
        default: break;
    }
}
