// Vector cores that work together: what is right in every order, and one mistake each when `fixed` is 0.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t {
    // one core for itself, all cores at a time
    credit_flags, same_flags, queue_pipeline, queue_preload, queue_in_place, queue_through, queue_free_all, buffers_reset, two_pipes, static_tensors,
    // between cores
    sync_all_phases, barrier_mode_0, soft_sync, soft_sync_some, flag_chain, atomic_add, atomic_max, scalar_results, own_workspace,
    // mistakes only
    write_write, one_branch, overflow, leftover, shared_line, poll_without_clean, soft_not_zero, soft_small, reset_race, fault_of_one,
    // right, each with a test of its own
    line_in_turns, reset_while_waiting
};

constexpr uint32_t N = 64;      // floats of a tile
constexpr uint32_t TILES = 6;   // of a core
constexpr uint32_t TILE = N * sizeof(float);
constexpr uint32_t PART = N * TILES;

#define ORDER(event, id)               \
    {                                  \
        SetFlag<HardEvent::event>(id); \
        WaitFlag<HardEvent::event>(id); \
    }

class Kernel {
   public:
    __aicore__ inline Kernel(GM_ADDR x_address, GM_ADDR y_address, GM_ADDR flags_address, GM_ADDR workspace, int32_t fixed)
        : fixed_(fixed), me_(GetBlockIdx()), cores_(GetBlockNum()) {
        x_.SetGlobalBuffer((__gm__ float*)x_address);
        y_.SetGlobalBuffer((__gm__ float*)y_address);
        flags_.SetGlobalBuffer((__gm__ int32_t*)flags_address);
        w_.SetGlobalBuffer((__gm__ float*)workspace);
    }

    /// y = 2 x, double buffered by hand: the flags from V back to MTE2 and from MTE3 back to V are credits.
    __aicore__ inline void CreditFlags(bool one_id) {
        for (int32_t b = 0; b < 2; ++b) {
            SetFlag<HardEvent::V_MTE2>(b);
            SetFlag<HardEvent::MTE3_V>(b);
        }
        for (uint32_t i = 0; i < TILES; ++i) {
            const int32_t b = i % 2, id = one_id ? 2 : b;
            LocalTensor<float> in(TPosition::VECIN, b * TILE, N), out(TPosition::VECOUT, (2 + b) * TILE, N);
            if (fixed_ || i < 2) WaitFlag<HardEvent::V_MTE2>(b);
            DataCopy(in, x_[me_ * PART + i * N], N);
            SetFlag<HardEvent::MTE2_V>(id);
            WaitFlag<HardEvent::MTE2_V>(id);
            WaitFlag<HardEvent::MTE3_V>(b);
            Add(out, in, in, N);
            if (fixed_ || i >= TILES - 2) SetFlag<HardEvent::V_MTE2>(b);
            SetFlag<HardEvent::V_MTE3>(id);
            WaitFlag<HardEvent::V_MTE3>(id);
            DataCopy(y_[me_ * PART + i * N], out, N);
            SetFlag<HardEvent::MTE3_V>(b);
        }
        for (int32_t b = 0; b < 2; ++b) {
            WaitFlag<HardEvent::V_MTE2>(b);
            WaitFlag<HardEvent::MTE3_V>(b);
        }
    }

    __aicore__ inline void QueuePipeline(TPipe& pipe) {
        TQue<TPosition::VECIN, 1> in;
        TQue<TPosition::VECOUT, 1> out;
        pipe.InitBuffer(in, 2, TILE);
        pipe.InitBuffer(out, 2, TILE);
        for (uint32_t i = 0; i < TILES; ++i) {
            LocalTensor<float> a = in.AllocTensor<float>();
            DataCopy(a, x_[me_ * PART + i * N], N);
            in.EnQue(a);
            LocalTensor<float> loaded = fixed_ || i > 0 ? in.DeQue<float>() : a;
            LocalTensor<float> b = out.AllocTensor<float>();
            Add(b, loaded, loaded, N);  // @queue_pipeline
            if (!fixed_ && i == 0) loaded = in.DeQue<float>();
            in.FreeTensor(loaded);
            out.EnQue<float>(b);
            b = out.DeQue<float>();
            DataCopy(y_[me_ * PART + i * N], b, N);
            out.FreeTensor(b);
        }
    }

    /// One tile is loaded ahead: two stand in the queue at a time.
    __aicore__ inline void QueuePreload(TPipe& pipe) {
        TQue<TPosition::VECIN, 2> in;
        TQue<TPosition::VECOUT, 1> out;
        pipe.InitBuffer(in, 3, TILE);
        pipe.InitBuffer(out, 2, TILE);
        const auto load = [&](uint32_t i) {
            LocalTensor<float> a = in.AllocTensor<float>();
            DataCopy(a, x_[me_ * PART + i * N], N);
            in.EnQue(a);
        };
        load(0);
        for (uint32_t i = 0; i < TILES; ++i) {
            if (i + 1 < TILES) load(i + 1);
            LocalTensor<float> a = in.DeQue<float>(), b = out.AllocTensor<float>();
            Add(b, a, a, N);
            out.EnQue(b);
            in.FreeTensor(a);
            b = out.DeQue<float>();
            DataCopy(y_[me_ * PART + i * N], b, N);
            out.FreeTensor(b);
        }
    }

    __aicore__ inline void QueueInPlace(TPipe& pipe) {
        TQue<TPosition::VECIN, 0> in;
        TQue<TPosition::VECOUT, 0> out;
        pipe.InitBuffer(in, 2, TILE);
        pipe.InitBuffer(out, 1, TILE);
        LocalTensor<float> a, b;
        for (uint32_t i = 0; i < TILES; ++i) {
            in.AllocTensor(a);
            DataCopy(a, x_[me_ * PART + i * N], N);
            in.EnQue(a);
            in.DeQue(a);
            out.AllocTensor(b);
            Add(b, a, a, N);
            out.EnQue(b);
            in.FreeTensor(a);
            out.DeQue(b);
            DataCopy(y_[me_ * PART + i * N], b, N);
            out.FreeTensor(b);
        }
    }

    /// One queue for both ways: y = 2 x is made where x came to.
    __aicore__ inline void QueueThrough(TPipe& pipe) {
        TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> both;
        pipe.InitBuffer(both, 2, TILE);
        for (uint32_t i = 0; i < TILES; ++i) {
            LocalTensor<float> a = both.AllocTensor<float>();
            DataCopy(a, x_[me_ * PART + i * N], N);
            both.EnQue<TPosition::GM, TPosition::VECIN, float>(a);
            a = both.DeQue<TPosition::GM, TPosition::VECIN, float>();
            Add(a, a, a, N);
            both.EnQue<TPosition::VECOUT, TPosition::GM, float>(a);
            a = both.DeQue<TPosition::VECOUT, TPosition::GM, float>();
            DataCopy(y_[me_ * PART + i * N], a, N);
            both.FreeTensor(a);
        }
    }

    /// Nine buffers, one after the other: each gives its event ids back.
    __aicore__ inline void QueueFreeAll(TPipe& pipe) {
        TQue<TPosition::VECIN, 1> in[9];
        LocalTensor<float> out(TPosition::VECOUT, 64 * TILE, N);
        for (uint32_t i = 0; i < 9; ++i) {
            pipe.InitBuffer(in[i], 1, TILE);
            LocalTensor<float> a = in[i].AllocTensor<float>();
            DataCopy(a, x_[me_ * PART + i % TILES * N], N);
            in[i].EnQue(a);
            a = in[i].DeQue<float>();
            if (i > 0) ORDER(MTE3_V, 5);
            Add(out, a, a, N);
            ORDER(V_MTE3, 5);
            DataCopy(y_[me_ * PART + i % TILES * N], out, N);
            PipeBarrier<PIPE_MTE3>();
            in[i].FreeTensor(a);
            if (fixed_) in[i].FreeAllEvent();
        }
    }

    /// The same bytes of UB serve two phases.
    __aicore__ inline void Half(TPipe& pipe, uint32_t first, uint32_t last) {
        TBuf<TPosition::VECCALC> buffer;
        pipe.InitBuffer(buffer, 2 * TILE);
        LocalTensor<float> a = buffer.GetWithOffset<float>(N, 0), b = buffer.GetWithOffset<float>(N, TILE);
        for (uint32_t i = first; i < last; ++i) {
            DataCopy(a, x_[me_ * PART + i * N], N);
            ORDER(MTE2_V, 0);
            Add(b, a, a, N);
            ORDER(V_MTE3, 0);
            DataCopy(y_[me_ * PART + i * N], b, N);
            if (i + 1 < last) {
                ORDER(MTE3_V, 0);
                ORDER(V_MTE2, 0);
            }
        }
    }

    __aicore__ inline void StaticTensors() {
        LocalMemAllocator<Hardware::UB> memory;
        LocalTensor<float> a = memory.Alloc<float, N>();
        LocalTensor<float> b = memory.Alloc<TPosition::VECOUT, float>(N);
        for (uint32_t i = 0; i < TILES; ++i) {
            DataCopy(a, x_[me_ * PART + i * N], N);
            ORDER(MTE2_V, 0);
            Add(b, a, a, N);
            ORDER(V_MTE3, 0);
            DataCopy(y_[me_ * PART + i * N], b, N);
            ORDER(MTE3_V, 0);
            ORDER(V_MTE2, 0);
        }
    }

    /// Each core writes its part of the workspace, and reads its neighbour's behind the barrier, three times.
    template <class Barrier>
    __aicore__ inline void Phases(Barrier barrier) {
        LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECIN, TILE, N), out(TPosition::VECOUT, 2 * TILE, N);
        DataCopy(a, x_[me_ * N], N);
        for (int32_t round = 0; round < 3; ++round) {
            ORDER(MTE2_V, 0);
            if (round > 0) ORDER(MTE3_V, 0);
            Add(out, a, a, N);
            ORDER(V_MTE3, 0);
            DataCopy(w_[me_ * N], out, N);
            barrier(round, 0);
            ORDER(V_MTE2, 0);
            DataCopy(a, w_[(me_ + 1) % cores_ * N], N);  // @sync_all_phases
            barrier(round, 1);
        }
        ORDER(MTE2_MTE3, 0);
        DataCopy(y_[me_ * N], a, N);
    }

    /// The last core doubles its tile; each other one waits for the flag of the core behind it and doubles that one's result.
    __aicore__ inline void FlagChain(bool poll, bool clean) {
        LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECOUT, TILE, N);
        if (me_ + 1 < cores_) {
            GlobalTensor<int32_t> next = flags_[(me_ + 1) * 16];
            while (poll && next.GetValue(0) != 1) {  // @poll_without_clean
                if (clean) DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(next);
            }
            ORDER(S_MTE2, 0);
            DataCopy(a, y_[(me_ + 1) * N], N);
        } else {
            DataCopy(a, x_, N);
        }
        ORDER(MTE2_V, 0);
        Add(b, a, a, N);
        ORDER(V_MTE3, 0);
        DataCopy(y_[me_ * N], b, N);  // @flag_chain
        ORDER(MTE3_S, 0);
        flags_.SetValue(me_ * 16, 1);
        DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(flags_[me_ * 16]);
    }

    /// All cores add to, or take the larger into, the first tile of the workspace; behind the barrier all read it.
    template <class Start>
    __aicore__ inline void Atomic(Start start) {
        LocalTensor<float> a(TPosition::VECIN, 0, N);
        DataCopy(a, x_[me_ * N], N);
        ORDER(MTE2_MTE3, 0);
        if (me_ == 0) DataCopy(w_, a, N);
        SyncAll();
        start();
        if (me_ > 0) DataCopy(w_, a, N);
        SetAtomicNone();
        if (fixed_) SyncAll();
        ORDER(MTE3_MTE2, 0);
        DataCopy(a, w_, N);  // @atomic_add
        ORDER(MTE2_MTE3, 0);
        DataCopy(y_[me_ * N], a, N);
    }

    __aicore__ inline void ScalarResults() {
        LocalTensor<float> a(TPosition::VECIN, 0, N);
        DataCopy(a, x_[me_ * N], N);
        ORDER(MTE2_S, 0);
        float sum = 0;
        for (uint32_t i = 0; i < N; ++i) sum += a.GetValue(i);
        y_.SetValue(me_ * 16, sum);
        DataCacheCleanAndInvalid<float, CacheLine::ENTIRE_DATA_CACHE>(y_);
        SyncAll();
        // Every core reads what the others stored.
        float all = 0;
        for (int64_t core = 0; core < cores_; ++core) {
            if (core != me_) DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(y_[core * 16]);
            all += y_.GetValue(core * 16);
        }
        SyncAll();
        y_.SetValue(me_ * 16 + 1, all);
        DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(y_[me_ * 16]);
    }

    /// Written and read by the same core, through its own part.
    __aicore__ inline void OwnWorkspace() {
        LocalTensor<float> a(TPosition::VECIN, 0, N), b(TPosition::VECIN, TILE, N);
        DataCopy(a, x_[me_ * N], N);
        ORDER(MTE2_MTE3, 0);
        DataCopy(w_[me_ * N], a, N);
        if (fixed_) ORDER(MTE3_MTE2, 0);
        DataCopy(b, w_[me_ * N], N);  // @own_workspace
        ORDER(MTE2_MTE3, 0);
        DataCopy(y_[me_ * N], b, N);
    }

    __aicore__ inline void WriteWrite() {
        LocalTensor<float> a(TPosition::VECIN, 0, N);
        DataCopy(a, x_[me_ * N], N);
        ORDER(MTE2_MTE3, 0);
        if (fixed_)
            DataCopy(y_[me_ * N], a, N);
        else
            for (uint32_t i = 0; i < TILES; ++i) DataCopy(y_[i * N], a, N);  // @write_write
    }

    __aicore__ inline void OneBranch() {
        if (me_ > 0 || fixed_) SyncAll();  // @one_branch
    }

    __aicore__ inline void Overflow() {
        for (int32_t i = 0; i < (fixed_ ? 15 : 16); ++i) CrossCoreSetFlag<0, PIPE_MTE3>(3);  // @overflow
        for (int32_t i = 0; i < (fixed_ ? 15 : 16); ++i) CrossCoreWaitFlag(3);
    }

    __aicore__ inline void Leftover() {
        CrossCoreSetFlag<0, PIPE_MTE3>(4);  // @leftover
        if (fixed_) CrossCoreWaitFlag(4);
    }

    __aicore__ inline void SharedLine() {
        const int64_t place = fixed_ ? me_ * 16 : me_;
        y_.SetValue(place, 1.0f);  // @shared_line
        DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(y_[place]);
    }

    __aicore__ inline void SoftSync(TPipe& pipe, bool zero, int64_t room, int32_t used) {
        TBuf<TPosition::VECCALC> scratch;
        pipe.InitBuffer(scratch, cores_ * 32);
        if (used > 0 && me_ >= used) return;
        GlobalTensor<int32_t> flags;
        if (zero)
            flags = flags_;
        else
            flags.SetGlobalBuffer((__gm__ int32_t*)x_.GetPhyAddr(), cores_ * 8);
        LocalTensor<int32_t> ub = scratch.Get<int32_t>(static_cast<uint32_t>(room / 4));
        SyncAll(flags, ub, used);  // @soft
    }

    __aicore__ inline void FaultOfOne() {
        volatile int32_t* nowhere = nullptr;
        if (me_ == 0 && !fixed_) *nowhere = 1;
        SyncAll();  // @fault_of_one
    }

    /// One line of the cache, written by one core after the other.
    __aicore__ inline void LineInTurns() {
        for (int64_t turn = 0; turn < cores_; ++turn) {
            if (turn == me_) {
                y_.SetValue(me_, static_cast<float>(10 + me_));
                DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(y_);
            }
            SyncAll();
        }
    }

    /// The pipes still have work on the buffers of before when Reset comes.
    __aicore__ inline void ResetWhileWaiting(TPipe& pipe) {
        TBuf<TPosition::VECCALC> buffer;
        pipe.InitBuffer(buffer, 2 * TILE);
        LocalTensor<float> a = buffer.GetWithOffset<float>(N, 0), b = buffer.GetWithOffset<float>(N, TILE);
        DataCopy(a, x_[me_ * N], N);
        ORDER(MTE2_V, 0);
        WaitFlag<HardEvent::S_V>(1);
        Add(b, a, a, N);
        ORDER(V_MTE3, 0);
        DataCopy(y_[me_ * N], b, N);
        pipe.Reset();
        SetFlag<HardEvent::S_V>(1);
    }

    __aicore__ inline void ResetRace(TPipe& pipe) {
        LocalTensor<float> b(TPosition::VECIN, 64 * TILE, N);
        for (int32_t phase = 0; phase < 2; ++phase) {
            ORDER(V_MTE2, 0);
            DataCopy(b, x_[me_ * N], N);
            ORDER(MTE2_V, 0);
            TBuf<TPosition::VECCALC> buffer;
            pipe.InitBuffer(buffer, TILE);
            LocalTensor<float> a = buffer.Get<float>();
            Add(a, b, b, N);  // @reset_race
            ORDER(V_MTE3, 0);
            DataCopy(y_[me_ * N], a, N);
            PipeBarrier<PIPE_MTE3>();
            if (phase == 1) return;
            if (fixed_) PipeBarrier<PIPE_ALL>();
            pipe.Reset();
        }
    }

    int32_t fixed_;
    int64_t me_, cores_;
    GlobalTensor<float> x_, y_, w_;
    GlobalTensor<int32_t> flags_;
};

extern "C" __global__ __aicore__ void sync(GM_ADDR x, GM_ADDR y, GM_ADDR flags, int32_t op, int32_t fixed, GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);
    Kernel kernel(x, y, flags, workspace, fixed);
    TPipe pipe;
    const auto hard = [&](int32_t round, int32_t) {
        if (fixed || round != 1) SyncAll();
    };
    switch (op) {
        case credit_flags: kernel.CreditFlags(false); break;
        case same_flags: kernel.CreditFlags(true); break;
        case queue_pipeline: kernel.QueuePipeline(pipe); break;
        case queue_preload: kernel.QueuePreload(pipe); break;
        case queue_in_place: kernel.QueueInPlace(pipe); break;
        case queue_through: kernel.QueueThrough(pipe); break;
        case queue_free_all: kernel.QueueFreeAll(pipe); break;
        case buffers_reset:
            kernel.Half(pipe, 0, TILES / 2);
            if (fixed) PipeBarrier<PIPE_ALL>();
            pipe.Reset();
            kernel.Half(pipe, TILES / 2, TILES);
            break;
        case two_pipes: {
            kernel.Half(pipe, 0, TILES / 2);
            if (fixed)
                pipe.Destroy();
            else
                pipe.DestroyWithoutPipeAll();
            TPipe second;
            kernel.Half(second, TILES / 2, TILES);
            break;
        }
        case static_tensors: kernel.StaticTensors(); break;
        case sync_all_phases: kernel.Phases(hard); break;
        case barrier_mode_0:
            kernel.Phases([&](int32_t round, int32_t step) {
                if (!fixed && round == 1) return;
                if (step == 0)
                    CrossCoreSetFlag<0, PIPE_MTE3>(5);
                else
                    CrossCoreSetFlag<0, PIPE_MTE2>(5);
                CrossCoreWaitFlag(5);
            });
            break;
        case soft_sync: {
            TBuf<TPosition::VECCALC> place, scratch;
            pipe.InitBuffer(place, 4 * TILE);
            pipe.InitBuffer(scratch, GetBlockNum() * 32);
            GlobalTensor<int32_t> zeros;
            zeros.SetGlobalBuffer((__gm__ int32_t*)flags);
            LocalTensor<int32_t> ub = scratch.Get<int32_t>();
            kernel.Phases([&](int32_t round, int32_t) {
                if (fixed || round != 1) SyncAll(zeros, ub);
            });
            break;
        }
        case soft_sync_some: kernel.SoftSync(pipe, true, GetBlockNum() * 32, 2); break;
        case flag_chain: kernel.FlagChain(fixed != 0, true); break;
        case atomic_add:
            kernel.Atomic([] { SetAtomicAdd<float>(); });
            break;
        case atomic_max:
            kernel.Atomic([] { SetAtomicMax<float>(); });
            break;
        case scalar_results: kernel.ScalarResults(); break;
        case own_workspace: kernel.OwnWorkspace(); break;
        case write_write: kernel.WriteWrite(); break;
        case one_branch: kernel.OneBranch(); break;
        case overflow: kernel.Overflow(); break;
        case leftover: kernel.Leftover(); break;
        case shared_line: kernel.SharedLine(); break;
        case poll_without_clean: kernel.FlagChain(true, fixed != 0); break;
        case soft_not_zero: kernel.SoftSync(pipe, fixed != 0, GetBlockNum() * 32, 0); break;
        case soft_small: kernel.SoftSync(pipe, true, GetBlockNum() * 32 - (fixed ? 0 : 32), 0); break;
        case reset_race: kernel.ResetRace(pipe); break;
        case fault_of_one: kernel.FaultOfOne(); break;
        case line_in_turns: kernel.LineInTurns(); break;
        case reset_while_waiting: kernel.ResetWhileWaiting(pipe); break;
        default: break;
    }
}
