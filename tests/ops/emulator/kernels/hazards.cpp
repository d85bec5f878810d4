// Mistakes, one an opcode, each with its repair (`fixed`). The line that ends in "// @opcode" is the one to be reported.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t {
    raw_mte2_v, war_v_mte2, waw_mte2_v, raw_v_mte3, war_mte3_v, raw_v_v, waw_v_v, waw_mte2_mte2, waw_mte3_mte3, raw_mte3_mte2,
    raw_v_s, raw_s_v, raw_mte2_s, raw_s_mte3, war_s_mte2,
    uninitialised_ub, uninitialised_part, uninitialised_workspace, uninitialised_atomic, uninitialised_padding,
    uninitialised_after_reset,
    beyond_ub, beyond_buffer, beyond_tensor, beyond_window, beyond_workspace, beyond_into_next, beyond_scalar, beyond_scalar_window,
    misaligned_address, misaligned_length, misaligned_block, misaligned_global,
    capacity, capacity_buffers, double_free, double_free_stale, use_after_free, use_after_enque, queue_depth, queue_no_buffer, queue_empty, queue_not_freed,
    queue_uninitialised, deadlock_scalar, deadlock_vector, deadlock_circle, leftover_flag, event_ids_out, event_id_range, event_not_released,
    event_alloc_nine, double_set, nested_pipe, raw_pointer_ub, raw_pointer_gm, raw_pointer_null, stack_overflow, divide_by_zero,
    endless_poll, endless_poll_clean, endless_poll_ub, atomic_left_on, atomic_type, counter_mode_left_on, unwritten_output, argument_blocks,
    wrong_space, stale_cache, store_not_cleaned, store_read_by_copy
};

constexpr uint32_t N = 256;  // floats of a tile
constexpr uint32_t TILE = N * sizeof(float);
constexpr uint32_t UB_BYTES = __NPU_ARCH__ == 2201 ? 192 * 1024 : 248 * 1024;

#define ORDER(event)                             \
    if (fixed) {                                 \
        SetFlag<HardEvent::event>(EVENT_ID0);    \
        WaitFlag<HardEvent::event>(EVENT_ID0);   \
    }
#define ALWAYS(event)                        \
    SetFlag<HardEvent::event>(EVENT_ID1);    \
    WaitFlag<HardEvent::event>(EVENT_ID1)

__aicore__ inline int deep(int n) {
    volatile char room[4096];
    room[n % 4096] = static_cast<char>(n);
    return n == 0 ? room[0] : deep(n - 1) + room[n % 4096];
}

extern "C" __global__ __aicore__ void hazards(GM_ADDR x_address, GM_ADDR y_address, GM_ADDR z_address, int32_t op, int32_t fixed,
                                              GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<float> x, y, z, w;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    z.SetGlobalBuffer((__gm__ float*)z_address);
    w.SetGlobalBuffer((__gm__ float*)workspace);
    LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECIN, TILE, N), c(TPosition::VECOUT, 2 * TILE, N);
    LocalTensor<float> d(TPosition::VECOUT, 3 * TILE, N);

    // Most of them begin with two tiles in UB and order what they do with them afterwards.
    const auto load = [&] {
        DataCopy(a, x, N);
        DataCopy(b, y, N);
    };
    const auto load_for_v = [&] {
        load();
        ALWAYS(MTE2_V);
    };

    switch (op) {
        case raw_mte2_v:
            load();
            ORDER(MTE2_V)
            Add(c, a, b, N);  // @raw_mte2_v
            break;
        case war_v_mte2:
            load_for_v();
            Add(c, a, b, N);
            ORDER(V_MTE2)
            DataCopy(a, y, N);  // @war_v_mte2
            break;
        case waw_mte2_v:
            load_for_v();
            DataCopy(c, x, N);
            ORDER(MTE2_V)
            Add(c, a, b, N);  // @waw_mte2_v
            break;
        case raw_v_mte3:
            load_for_v();
            Add(c, a, b, N);
            ORDER(V_MTE3)
            DataCopy(z, c, N);  // @raw_v_mte3
            break;
        case war_mte3_v:
            load_for_v();
            Add(c, a, b, N);
            ALWAYS(V_MTE3);
            DataCopy(z, c, N);
            ORDER(MTE3_V)
            Add(c, a, a, N);  // @war_mte3_v
            break;
        case raw_v_v:
            load_for_v();
            Add(c, a, b, N);
            if (fixed) PipeBarrier<PIPE_V>();
            Add(d, c, b, N);  // @raw_v_v
            break;
        case waw_v_v:
            load_for_v();
            Add(c, a, b, N);
            if (fixed) PipeBarrier<PIPE_V>();
            Add(c, a, a, N);  // @waw_v_v
            break;
        case waw_mte2_mte2:
            DataCopy(a, x, N);
            if (fixed) PipeBarrier<PIPE_MTE2>();
            DataCopy(a, y, N);  // @waw_mte2_mte2
            break;
        case waw_mte3_mte3:
            load();
            ALWAYS(MTE2_MTE3);
            DataCopy(z, a, N);
            if (fixed) PipeBarrier<PIPE_MTE3>();
            DataCopy(z, b, N);  // @waw_mte3_mte3
            break;
        case raw_mte3_mte2:
            load();
            ALWAYS(MTE2_MTE3);
            DataCopy(z, a, N);
            ORDER(MTE3_MTE2)
            DataCopy(c, z, N);  // @raw_mte3_mte2
            break;
        case raw_v_s: {
            load_for_v();
            Add(c, a, b, N);
            ORDER(V_S)
            if (c.GetValue(3) == 12345.0f) Add(d, a, b, N);  // @raw_v_s
            break;
        }
        case raw_s_v:
            for (uint32_t i = 0; i < 8; ++i) a.SetValue(i, 1.0f);
            ORDER(S_V)
            Add(c, a, a, 8);  // @raw_s_v
            break;
        case raw_mte2_s:
            load();
            ORDER(MTE2_S)
            if (a.GetValue(0) == 12345.0f) PipeBarrier<PIPE_ALL>();  // @raw_mte2_s
            break;
        case raw_s_mte3:
            for (uint32_t i = 0; i < 8; ++i) a(i) = 1.0f;
            ORDER(S_MTE3)
            DataCopy(z, a, 8);  // @raw_s_mte3
            break;
        case war_s_mte2:
            load();
            ALWAYS(MTE2_S);
            if (a.GetValue(0) == 12345.0f) PipeBarrier<PIPE_ALL>();
            ORDER(S_MTE2)
            DataCopy(a, y, N);  // @war_s_mte2
            break;

        case uninitialised_ub:
            DataCopy(a, x, N);
            if (fixed) DataCopy(b, y, N);
            ALWAYS(MTE2_V);
            Add(c, a, b, N);  // @uninitialised_ub
            break;
        case uninitialised_part:
            DataCopy(a, x, fixed ? N : N - 8);
            ALWAYS(MTE2_V);
            Add(c, a, a, N);  // @uninitialised_part
            break;
        case uninitialised_workspace:
            if (fixed) {
                load();
                ALWAYS(MTE2_MTE3);
                DataCopy(w, a, N);
                ALWAYS(MTE3_MTE2);
            }
            DataCopy(c, w, N);  // @uninitialised_workspace
            break;
        case uninitialised_atomic:
            load();
            ALWAYS(MTE2_MTE3);
            if (fixed) {
                DataCopy(w, b, N);
                PipeBarrier<PIPE_MTE3>();
            }
            SetAtomicAdd<float>();
            DataCopy(w, a, N);  // @uninitialised_atomic
            SetAtomicNone();
            break;
        case uninitialised_padding:
            DataCopyPad(a, x, DataCopyExtParams(1, 20, 0, 0, 0), DataCopyPadExtParams<float>(fixed != 0, 0, 1, 0.0f));
            ALWAYS(MTE2_V);
            Add(c, a, a, 8);  // @uninitialised_padding
            break;

        case uninitialised_after_reset: {
            TPipe pipe;
            TBuf<TPosition::VECCALC> buffer;
            for (int phase = 0; phase < 2; ++phase) {
                pipe.InitBuffer(buffer, TILE);
                LocalTensor<float> tile = buffer.Get<float>();
                if (phase == 0 || fixed) DataCopy(tile, x, N);
                ALWAYS(MTE2_V);
                if (phase == 1) Add(d, tile, tile, N);  // @uninitialised_after_reset
                PipeBarrier<PIPE_ALL>();
                if (phase == 0) pipe.Reset();
            }
            break;
        }

        case beyond_ub: {
            load_for_v();
            LocalTensor<float> end(TPosition::VECCALC, UB_BYTES - (fixed ? TILE : TILE / 2), N);
            Add(end, a, b, N);  // @beyond_ub
            break;
        }
        case beyond_buffer: {
            load_for_v();
            LocalTensor<float> small(TPosition::VECCALC, 8 * TILE, fixed ? N : N - 8);
            Add(small, a, b, N);  // @beyond_buffer
            break;
        }
        case beyond_tensor:
            DataCopy(a, x[fixed ? N : N + 8], N);  // @beyond_tensor
            break;
        case beyond_window: {
            GlobalTensor<float> part;
            part.SetGlobalBuffer((__gm__ float*)x_address, N);
            DataCopy(a, part[fixed ? 0 : N], N);  // @beyond_window
            break;
        }
        case beyond_workspace:
            load();
            ALWAYS(MTE2_MTE3);
            DataCopy(w[fixed ? 0 : N], a, N);  // @beyond_workspace
            break;
        case beyond_into_next: {
            const int64_t next = (reinterpret_cast<uint64_t>(y_address) - reinterpret_cast<uint64_t>(x_address)) / sizeof(float);
            DataCopy(a, x[fixed ? 0 : next], N);  // @beyond_into_next
            break;
        }
        case beyond_scalar:
            if (x.GetValue(fixed ? 2 * N - 1 : 2 * N) == 12345.0f) PipeBarrier<PIPE_ALL>();  // @beyond_scalar
            break;

        case beyond_scalar_window: {
            GlobalTensor<float> part;
            part.SetGlobalBuffer((__gm__ float*)x_address, N);
            if (part.GetValue(fixed ? N - 1 : N) == 12345.0f) PipeBarrier<PIPE_ALL>();  // @beyond_scalar_window
            break;
        }

        case misaligned_address:
            load_for_v();
            Add(c[fixed ? 8 : 4], a, b, 8);  // @misaligned_address
            break;
        case misaligned_length:
            DataCopy(a, x, fixed ? 8 : 9);  // @misaligned_length
            break;
        case misaligned_block:
            DataCopyPad(a, x, DataCopyExtParams(2, fixed ? 8 : 6, 0, 0, 0), DataCopyPadExtParams<float>());  // @misaligned_block
            break;
        case misaligned_global: {
            GlobalTensor<float> odd;
            odd.SetGlobalBuffer((__gm__ float*)(x_address + 2));
            if (fixed)
                DataCopyPad(a, odd, DataCopyExtParams(1, 32, 0, 0, 0), DataCopyPadExtParams<float>());
            else
                DataCopy(a, odd, 8);  // @misaligned_global
            break;
        }

        case capacity: {
            TPipe pipe;
            TBuf<TPosition::VECCALC> first, second;
            pipe.InitBuffer(first, UB_BYTES / 2);
            pipe.InitBuffer(second, UB_BYTES / 2 + (fixed ? 0 : 32));  // @capacity
            break;
        }
        case capacity_buffers: {
            TPipe pipe;
            TBuf<TPosition::VECCALC> buffers[65];
            for (int i = 0; i < (fixed ? 64 : 65); ++i) pipe.InitBuffer(buffers[i], 32);  // @capacity_buffers
            break;
        }
        case double_free: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 1, TILE);
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            queue.FreeTensor(tensor);
            if (!fixed) queue.FreeTensor(tensor);  // @double_free
            break;
        }
        case double_free_stale: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 1, TILE);
            LocalTensor<float> before = queue.AllocTensor<float>();
            queue.FreeTensor(before);
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            if (!fixed) queue.FreeTensor(before);  // @double_free_stale
            queue.FreeTensor(tensor);
            break;
        }
        case use_after_free: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 1, TILE);
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            DataCopy(tensor, x, N);
            queue.EnQue(tensor);
            tensor = queue.DeQue<float>();
            LocalTensor<float> out(TPosition::VECOUT, 8 * TILE, N);
            if (!fixed) queue.FreeTensor(tensor);
            Add(out, tensor, tensor, N);  // @use_after_free
            if (fixed) queue.FreeTensor(tensor);
            break;
        }
        case use_after_enque: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 1, TILE);
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            DataCopy(tensor, x, N / 2);
            if (fixed) DataCopy(tensor[N / 2], x, N / 2);
            queue.EnQue(tensor);
            if (!fixed) DataCopy(tensor[N / 2], x, N / 2);  // @use_after_enque
            tensor = queue.DeQue<float>();
            queue.FreeTensor(tensor);
            break;
        }
        case queue_depth: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 2, TILE);
            LocalTensor<float> first = queue.AllocTensor<float>(), second = queue.AllocTensor<float>();
            DataCopy(first, x, N);
            DataCopy(second, y, N);
            queue.EnQue(first);
            if (fixed) {
                first = queue.DeQue<float>();
                queue.FreeTensor(first);
                queue.EnQue(second);
            } else {
                queue.EnQue(second);  // @queue_depth
                first = queue.DeQue<float>();
                queue.FreeTensor(first);
                queue.EnQue(second);
            }
            second = queue.DeQue<float>();
            queue.FreeTensor(second);
            break;
        }
        case queue_no_buffer: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, fixed ? 2 : 1, TILE);
            LocalTensor<float> first = queue.AllocTensor<float>();
            LocalTensor<float> second = queue.AllocTensor<float>();  // @queue_no_buffer
            queue.FreeTensor(first);
            if (fixed) queue.FreeTensor(second);
            break;
        }
        case queue_empty: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 1, TILE);
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            DataCopy(tensor, x, N);
            if (fixed) queue.EnQue(tensor);
            LocalTensor<float> taken = queue.DeQue<float>();  // @queue_empty
            if (fixed) tensor = taken;
            queue.FreeTensor(tensor);
            break;
        }
        case queue_not_freed: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            pipe.InitBuffer(queue, 1, TILE);  // @queue_not_freed
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            if (fixed) queue.FreeTensor(tensor);
            break;
        }
        case queue_uninitialised: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> queue;
            if (fixed) pipe.InitBuffer(queue, 1, TILE);
            LocalTensor<float> tensor = queue.AllocTensor<float>();  // @queue_uninitialised
            if (fixed) queue.FreeTensor(tensor);
            break;
        }

        case deadlock_scalar:
            if (fixed) SetFlag<HardEvent::V_S>(EVENT_ID2);
            WaitFlag<HardEvent::V_S>(EVENT_ID2);  // @deadlock_scalar
            break;
        case deadlock_vector:
            load();
            SetFlag<HardEvent::MTE2_V>(fixed ? EVENT_ID3 : EVENT_ID2);
            WaitFlag<HardEvent::MTE2_V>(EVENT_ID3);  // @deadlock_vector
            Add(c, a, b, N);
            break;
        case deadlock_circle:
            load();
            if (fixed) {
                SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
                WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
                SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
                WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
            } else {
                WaitFlag<HardEvent::V_MTE2>(EVENT_ID0);
                SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
                WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);  // @deadlock_circle
                SetFlag<HardEvent::V_MTE2>(EVENT_ID0);
            }
            break;
        case leftover_flag:
            load();
            SetFlag<HardEvent::MTE2_V>(EVENT_ID4);  // @leftover_flag
            if (fixed) WaitFlag<HardEvent::MTE2_V>(EVENT_ID4);
            break;
        case event_ids_out: {
            TPipe pipe;
            TEventID ids[9];
            const int count = fixed ? 8 : 9;
            for (int i = 0; i < count; ++i) ids[i] = pipe.AllocEventID<HardEvent::V_S>();  // @event_ids_out
            for (int i = 0; i < 8; ++i) pipe.ReleaseEventID<HardEvent::V_S>(ids[i]);
            break;
        }
        case event_id_range:
            SetFlag<HardEvent::V_S>(fixed ? 7 : 8);  // @event_id_range
            if (fixed) WaitFlag<HardEvent::V_S>(7);
            break;
        case event_not_released: {
            TPipe pipe;
            const TEventID id = pipe.AllocEventID<HardEvent::V_S>();  // @event_not_released
            if (fixed) pipe.ReleaseEventID<HardEvent::V_S>(id);
            break;
        }
        case event_alloc_nine: {
            TPipe pipe;
            TQue<TPosition::VECIN, 1> first, second;
            pipe.InitBuffer(first, 5, 32);
            pipe.InitBuffer(second, 4, 32);
            LocalTensor<float> tensors[9];
            for (int i = 0; i < (fixed ? 8 : 9); ++i) tensors[i] = (i < 5 ? first : second).AllocTensor<float>();  // @event_alloc_nine
            for (int i = 0; i < 8; ++i) (i < 5 ? first : second).FreeTensor(tensors[i]);
            if (!fixed) {
                first.FreeAllEvent();
                second.FreeTensor(tensors[8]);
            }
            break;
        }
        case double_set:
            SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
            if (fixed) WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
            SetFlag<HardEvent::MTE2_V>(EVENT_ID0);  // @double_set
            WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
            if (!fixed) WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
            break;
        case nested_pipe: {
            TPipe outer;
            if (fixed) outer.Destroy();
            TPipe inner;  // @nested_pipe
            break;
        }
        case raw_pointer_ub: {
            load();
            ALWAYS(MTE2_S);
            if (fixed) {
                if (a.GetValue(0) == 12345.0f) PipeBarrier<PIPE_ALL>();
            } else {
                PipeBarrier<PIPE_ALL>();  // @raw_pointer_ub
                volatile __ubuf__ float* pointer = a.GetPhyAddr();
                pointer[1] = 1.0f;
            }
            break;
        }
        case raw_pointer_gm: {
            PipeBarrier<PIPE_ALL>();  // @raw_pointer_gm
            volatile __gm__ float* pointer = (__gm__ float*)y_address;
            if ((fixed ? y.GetValue(2) : pointer[2]) == 12345.0f) load();
            break;
        }
        case raw_pointer_null: {
            PipeBarrier<PIPE_ALL>();  // @raw_pointer_null
            volatile float* pointer = nullptr;
            if (!fixed && *pointer == 12345.0f) load();
            break;
        }
        case stack_overflow:
            PipeBarrier<PIPE_ALL>();  // @stack_overflow
            if (deep(fixed ? 10 : 100000) == 12345) load();
            break;
        case divide_by_zero: {
            PipeBarrier<PIPE_ALL>();  // @divide_by_zero
            volatile int zero = fixed, seven = 7;
            if (seven / zero == 12345) load();
            break;
        }
        case endless_poll:
            while (x.GetValue(0) != (fixed ? 0.0f : 1.0f)) {  // @endless_poll
            }
            break;
        case endless_poll_clean:
            while (x.GetValue(0) != (fixed ? 0.0f : 1.0f))
                DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(x);  // @endless_poll_clean
            break;
        case endless_poll_ub:
            load();
            ALWAYS(MTE2_S);
            while (a.GetValue(0) != (fixed ? 0.0f : 1.0f)) {  // @endless_poll_ub
            }
            break;
        case atomic_left_on:
            load();
            ALWAYS(MTE2_MTE3);
            SetAtomicAdd<float>();
            DataCopy(z, a, N);  // @atomic_left_on
            if (fixed) SetAtomicNone();
            break;
        case atomic_type: {
            load();
            ALWAYS(MTE2_MTE3);
            if (fixed)
                SetAtomicMax<float>();
            else
                SetAtomicMax<int32_t>();
            DataCopy(z, a, N);  // @atomic_type
            DisableDmaAtomic();
            break;
        }
        case counter_mode_left_on:
            PipeBarrier<PIPE_ALL>();  // @counter_mode_left_on
            SetMaskCount();
            if (fixed) SetMaskNorm();
            break;
        case unwritten_output:
            load();
            ALWAYS(MTE2_MTE3);
            DataCopy(z, a, fixed ? N : N - 16);
            break;
        case argument_blocks:
            DataCopy(a, x, DataCopyParams(fixed ? 1 : 4096, 1, 0, 0));  // @argument_blocks
            break;
        case wrong_space: {
            LocalTensor<float> l1(TPosition::A1, 0, N);
            if (fixed)
                DataCopy(a, x, N);
            else
                DataCopy(l1, x, N);  // @wrong_space
            break;
        }
        case stale_cache: {
            const float before = z.GetValue(0);
            load();
            ALWAYS(MTE2_MTE3);
            ALWAYS(S_MTE3);
            DataCopy(z, b, N);
            ALWAYS(MTE3_S);
            if (fixed) DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(z);
            const float after = z.GetValue(0);  // @stale_cache
            if (before + after == 12345.0f) PipeBarrier<PIPE_ALL>();
            break;
        }
        case store_not_cleaned:
            z.SetValue(0, 1.0f);  // @store_not_cleaned
            if (fixed) DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(z);
            break;
        case store_read_by_copy:
            z.SetValue(0, 1.0f);
            if (fixed) DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(z);
            ALWAYS(S_MTE2);
            DataCopy(a, z, 8);  // @store_read_by_copy
            ALWAYS(MTE2_S);
            if (!fixed) DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(z);
            break;
        default: break;
    }
}
