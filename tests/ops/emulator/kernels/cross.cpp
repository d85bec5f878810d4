// Cube and vector cores of a block: cross-core flags, right in every order, and one mistake each when `fixed` is 0.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t {
    ring, ring_no_forward, cube_to_vector, halves, all_cores, one_vector_core, later_set, count, one_half, circle, scheduled_sets, poll_behind_wait
};

constexpr uint32_t N = 64;  // floats of a tile; each vector core has its half of it
constexpr uint32_t HALF = N / 2;
constexpr int32_t ROUNDS = 5;
constexpr uint64_t SLOT = N;

#define ORDER(event, id)                \
    {                                   \
        SetFlag<HardEvent::event>(id);  \
        WaitFlag<HardEvent::event>(id); \
    }

class Kernel {
   public:
    __aicore__ inline Kernel(GM_ADDR x_address, GM_ADDR y_address, GM_ADDR workspace, int32_t fixed)
        : fixed_(fixed), block_(g_coreType == AIC ? GetBlockIdx() : GetBlockIdx() / GetTaskRatio()), sub_(GetSubBlockIdx()) {
        x_.SetGlobalBuffer((__gm__ float*)x_address);
        y_.SetGlobalBuffer((__gm__ float*)y_address);
        w_.SetGlobalBuffer((__gm__ float*)workspace + block_ * 2 * SLOT, 2 * SLOT);
    }

    /// The vector cores put doubled tiles into a ring of two slots of the workspace; the cube core sums each.
    __aicore__ inline void Ring(bool forward, bool back) {
        for (int32_t i = 0; i < ROUNDS; ++i) {
            const int32_t slot = i % 2;
            if ASCEND_IS_AIV {
                LocalTensor<float> in(TPosition::VECIN, 0, HALF), out(TPosition::VECOUT, 1024, HALF);
                if (i > 0) {
                    ORDER(V_MTE2, 0);
                    ORDER(MTE3_V, 0);
                }
                DataCopy(in, x_[block_ * N + sub_ * HALF], HALF);
                ORDER(MTE2_V, 0);
                Add(out, in, in, HALF);
                ORDER(V_MTE3, 0);
                if (back && i >= 2) CrossCoreWaitFlag<2, PIPE_MTE3>(2 + slot);
                DataCopy(w_[slot * SLOT + sub_ * HALF], out, HALF);
                CrossCoreSetFlag<2, PIPE_MTE3>(slot);
            }
            if ASCEND_IS_AIC {
                LocalTensor<float> tile(TPosition::A1, 0, N);
                if (forward) CrossCoreWaitFlag<2, PIPE_MTE2>(slot);
                PipeBarrier<PIPE_MTE2>();
                DataCopy(tile, w_[slot * SLOT], N);  // @ring @ring_no_forward
                if (!forward) CrossCoreWaitFlag<2, PIPE_MTE2>(slot);
                if (back && i < ROUNDS - 2) CrossCoreSetFlag<2, PIPE_MTE2>(2 + slot);
            }
        }
    }

    /// The cube core's scalar writes, the vector cores read.
    __aicore__ inline void CubeToVector() {
        if ASCEND_IS_AIC {
            for (uint32_t i = 0; i < N; ++i) w_.SetValue(i, static_cast<float>(block_ * 100 + i));
            DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(w_);
            PipeBarrier<PIPE_ALL>();
            CrossCoreSetFlag<2, PIPE_MTE2>(6);
        }
        if ASCEND_IS_AIV {
            LocalTensor<float> tile(TPosition::VECIN, 0, HALF);
            if (fixed_) CrossCoreWaitFlag(6);
            DataCopy(tile, w_[sub_ * HALF], HALF);  // @cube_to_vector
            ORDER(MTE2_MTE3, 0);
            DataCopy(y_[block_ * N + sub_ * HALF], tile, HALF);
            if (!fixed_) CrossCoreWaitFlag(6);
        }
    }

    /// The two vector cores of a block swap their halves.
    __aicore__ inline void Halves() {
        if ASCEND_IS_AIV {
            LocalTensor<float> tile(TPosition::VECIN, 0, HALF);
            DataCopy(tile, x_[block_ * N + sub_ * HALF], HALF);
            ORDER(MTE2_MTE3, 0);
            DataCopy(w_[sub_ * HALF], tile, HALF);
            CrossCoreSetFlag<1, PIPE_MTE3>(7);
            if (fixed_) CrossCoreWaitFlag(7);
            LocalTensor<float> other(TPosition::VECIN, 1024, HALF);
            DataCopy(other, w_[(1 - sub_) * HALF], HALF);  // @halves
            ORDER(MTE2_MTE3, 0);
            DataCopy(y_[block_ * N + sub_ * HALF], other, HALF);
            if (!fixed_) CrossCoreWaitFlag(7);
        }
    }

    /// Vector cores write, every cube core reads all of it behind SyncAll<false>.
    __aicore__ inline void AllCores() {
        if ASCEND_IS_AIV {
            LocalTensor<float> tile(TPosition::VECIN, 0, HALF);
            DataCopy(tile, x_[block_ * N + sub_ * HALF], HALF);
            ORDER(MTE2_MTE3, 0);
            DataCopy(y_[block_ * N + sub_ * HALF], tile, HALF);
            SyncAll<false>();
        }
        if ASCEND_IS_AIC {
            LocalTensor<float> all(TPosition::A1, 0, N * GetBlockNum());
            if (fixed_) SyncAll<false>();
            DataCopy(all, y_, N * GetBlockNum());  // @all_cores
            if (!fixed_) SyncAll<false>();
        }
    }

    /// The cube core speaks to each vector core alone (dav-3510).
    __aicore__ inline void OneVectorCore() {
#if __NPU_ARCH__ == 3510
        if ASCEND_IS_AIC {
            CrossCoreSetFlag<4, PIPE_MTE2>(3 + 16);
            CrossCoreWaitFlag<4, PIPE_MTE2>(3 + 16);
            CrossCoreSetFlag<4, PIPE_MTE2>(3);
            CrossCoreWaitFlag<4, PIPE_MTE2>(3);
        }
        if ASCEND_IS_AIV {
            LocalTensor<float> tile(TPosition::VECIN, 0, HALF);
            DataCopy(tile, x_[block_ * N + sub_ * HALF], HALF);
            ORDER(MTE2_MTE3, 0);
            if (fixed_) CrossCoreWaitFlag<4, PIPE_MTE3>(3);
            DataCopy(w_, tile, HALF);  // @one_vector_core
            CrossCoreSetFlag<4, PIPE_MTE3>(3);
            if (!fixed_) CrossCoreWaitFlag<4, PIPE_MTE3>(3);
        }
#endif
    }

    /// The vector core sets flag 9 behind its wait for flag 8, in another pipe; the cube core sets 8 behind its wait for 9.
    __aicore__ inline void LaterSet() {
        if ASCEND_IS_AIV {
            CrossCoreWaitFlag<2, PIPE_MTE3>(8);
            CrossCoreSetFlag<2, PIPE_MTE2>(9);
        }
        if ASCEND_IS_AIC {
            if (fixed_) CrossCoreSetFlag<2, PIPE_MTE2>(8);
            CrossCoreWaitFlag<2, PIPE_MTE2>(9);  // @later_set
            if (!fixed_) CrossCoreSetFlag<2, PIPE_MTE2>(8);
        }
    }

    __aicore__ inline void Count() {
        const int32_t times = fixed_ ? 15 : 16;
        if ASCEND_IS_AIC {
            for (int32_t i = 0; i < times; ++i) CrossCoreSetFlag<2, PIPE_MTE2>(10);  // @count
            CrossCoreSetFlag<2, PIPE_MTE2>(9);
        }
        if ASCEND_IS_AIV {
            CrossCoreWaitFlag(9);  // all sets are there before the first wait for them
            for (int32_t i = 0; i < times; ++i) CrossCoreWaitFlag(10);
        }
    }

    /// A flag of both vector cores that only one of them sets.
    __aicore__ inline void OneHalf() {
        if ASCEND_IS_AIC { CrossCoreWaitFlag(5); }  // @one_half
        if ASCEND_IS_AIV {
            if (fixed_ || sub_ == 0) CrossCoreSetFlag<2, PIPE_MTE3>(5);
        }
    }

    __aicore__ inline void Circle() {
        if ASCEND_IS_AIC {
            if (fixed_) CrossCoreSetFlag<2, PIPE_MTE2>(1);
            CrossCoreWaitFlag(0);  // @circle
            if (!fixed_) CrossCoreSetFlag<2, PIPE_MTE2>(1);
        }
        if ASCEND_IS_AIV {
            CrossCoreWaitFlag(1);
            CrossCoreSetFlag<2, PIPE_MTE3>(0);
        }
    }

    /// A set is queued behind the copy of its pipe: the wait sees what was copied, and nothing that came later.
    __aicore__ inline void ScheduledSets() {
        if ASCEND_IS_AIV {
            LocalTensor<float> tile(TPosition::VECIN, 0, HALF);
            DataCopy(tile, x_[block_ * N + sub_ * HALF], HALF);
            ORDER(MTE2_MTE3, 0);
            if (fixed_) {
                DataCopy(w_[sub_ * HALF], tile, HALF);
                CrossCoreSetFlag<2, PIPE_MTE3>(4);
            } else {
                CrossCoreSetFlag<2, PIPE_MTE3>(4);
                DataCopy(w_[sub_ * HALF], tile, HALF);
            }
        }
        if ASCEND_IS_AIC {
            LocalTensor<float> tile(TPosition::A1, 0, N);
            CrossCoreWaitFlag<2, PIPE_MTE2>(4);
            DataCopy(tile, w_, N);  // @scheduled_sets
        }
    }

    /// dav-3510: the scalar polls a flag in memory while its own pipe waits for the other core.
    __aicore__ inline void PollBehindWait() {
        GlobalTensor<int32_t> flag;
        flag.SetGlobalBuffer((__gm__ int32_t*)y_.GetPhyAddr() + block_ * 16, 16);
        if ASCEND_IS_AIV {
            if (sub_ == 1) {
                CrossCoreWaitFlag<2, PIPE_MTE3>(3);
                CrossCoreSetFlag<2, PIPE_MTE3>(2);
                return;
            }
            CrossCoreWaitFlag<2, PIPE_MTE3>(3);
            CrossCoreSetFlag<2, PIPE_MTE3>(2);
            while (flag.GetValue(0) != 7) DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(flag);
        }
        if ASCEND_IS_AIC {
            CrossCoreSetFlag<2, PIPE_MTE2>(3);
            CrossCoreWaitFlag(2);
            flag.SetValue(0, 7);
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(flag);
        }
    }

   private:
    int32_t fixed_;
    int64_t block_, sub_;
    GlobalTensor<float> x_, y_, w_;
};

extern "C" __global__ __aicore__ void cross(GM_ADDR x, GM_ADDR y, int32_t op, int32_t fixed, GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    Kernel kernel(x, y, workspace, fixed);
    switch (op) {
        case ring: kernel.Ring(true, fixed != 0); break;
        case ring_no_forward: kernel.Ring(fixed != 0, true); break;
        case cube_to_vector: kernel.CubeToVector(); break;
        case halves: kernel.Halves(); break;
        case all_cores: kernel.AllCores(); break;
        case one_vector_core: kernel.OneVectorCore(); break;
        case later_set: kernel.LaterSet(); break;
        case count: kernel.Count(); break;
        case one_half: kernel.OneHalf(); break;
        case circle: kernel.Circle(); break;
        case scheduled_sets: kernel.ScheduledSets(); break;
        case poll_behind_wait: kernel.PollBehindWait(); break;
        default: break;
    }
}
