// The cube core's part of a chunk: what the state becomes, and the outputs. The state never leaves the core.
#pragma once

#include "solve.h"

namespace ascend_k3 {

template <class T, uint32_t W>
class KdaCube {
    using X = KdaMatrices<T, W>;
    using L1 = typename X::L1;
    using Solve = KdaSolve<T, W>;
    static constexpr bool is_float = X::is_float;
    // Events FIX_MTE1: u, the state, the rest of the state. MTE2_MTE1: the values. MTE1_MTE2: the operands of a chunk have been used.
    static constexpr int32_t U = Solve::READS + 1, STATE = U + 1, REST_STATE = STATE + 1, VALUES_IN = Solve::OTHERS_IN, USED = Solve::OTHERS_USED;

   public:
    __aicore__ inline KdaCube() : solve_(x_) {}

    __aicore__ inline void Run(GM_ADDR v, GM_ADDR offsets, GM_ADDR o, GM_ADDR final, GM_ADDR workspace, const KdaTiling& tiling) {
        tiling_ = tiling;
        const uint64_t elements = static_cast<uint64_t>(tiling.tokens) * tiling.heads * W;
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(v), elements);
        o_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(o), elements);
        final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(final), static_cast<uint64_t>(tiling.sequences) * tiling.heads * W * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        x_.room = workspace + KdaBlock() * tiling.room;
        share_.Begin(tiling_, offsets_);
        KdaStep step = share_.First();
        if (!step.exists) return;
        x_.products.Begin();
        solve_.Begin();
        if constexpr (!is_float) {
            Solution(step.n);
            BringValues(step);
            const KdaStep next = share_.Next(step);
            if (next.exists) solve_.Bring(next.n);
        }
        SetFlag<HardEvent::MTE1_MTE2>(USED);
        while (step.exists) {
            const KdaStep next = share_.Next(step);
            WaitFlag<HardEvent::MTE1_MTE2>(USED);
            if constexpr (is_float)
                Alone(step);
            else
                WithNext(step, next);
            SetFlag<HardEvent::MTE1_MTE2>(USED);
            CrossCoreSetFlag<2, PIPE_MTE1>(flag::FREE);
            step = next;
        }
        WaitFlag<HardEvent::MTE1_MTE2>(USED);
        x_.products.End();
    }

   private:
    /// What needs no state.
    __aicore__ inline void Solution(uint32_t n) {
        solve_.Bring(n);
        solve_.Scores(n);
        solve_.RestOfA(n);
        for (uint32_t i = 0; i < Solve::STEPS; ++i) solve_.Step(i, n);
    }
    __aicore__ inline void Alone(const KdaStep& step) {
        BringValues(step);
        Solution(step.n);
        BringStates(step);
        Writes(step);
        OfState(step);
        for (uint32_t i = 0; i < SUBS; ++i) Output(step, i);
        StoreOutput(step);
        for (uint16_t half = 0; half < 2; ++half) Decayed(step, half);
        for (uint32_t i = 0; i < SUBS; ++i) Gains(step, i);
        StoreState(step);
        if (step.IsLast()) Final(step);
    }
    /// With what the next chunk needs no state for. Each pipe is in order: what waits for fixpipe comes between products that
    /// do not.
    __aicore__ inline void WithNext(const KdaStep& step, const KdaStep& next) {
        uint32_t done = next.exists ? 0 : Solve::STEPS;
        const auto solve = [&](uint32_t end) {
            while (done < end) solve_.Step(done++, next.n);
        };
        const auto solve_one = [&] { solve(done < Solve::STEPS - 1 ? done + 1 : done); };
        BringStates(step);
        if (next.exists) solve_.Scores(next.n);
        Writes(step);
        if constexpr (DIRECT) OfState(step);
        Decayed(step, 0);
        if (next.exists) {
            Solve::InverseUsed();
            BringValues(next);
            solve_.RestOfA(next.n);
        }
        RestOfWrites(step);
        Decayed(step, 1);
        solve_one();
        X::Need(U);
        for (uint32_t i = 0; i < SUBS; ++i) {
            Gains(step, i);
            solve_one();
        }
        StoreState(step);
        if (next.exists) {
            const KdaStep later = share_.Next(next);
            if (later.exists) solve_.Bring(later.n);
        }
        if constexpr (!DIRECT) OfState(step);
        for (uint32_t i = 0; i < SUBS; ++i) {
            Output(step, i);
            solve_one();
        }
        StoreOutput(step);
        solve(Solve::STEPS);
        RestOfState(step);
        if (step.IsLast()) Final(step);
    }

    /// v as it is; rows without a token are zero.
    __aicore__ inline void BringValues(const KdaStep& step) {
        const LocalTensor<T> to = X::Values(step.n).whole;
        if (step.Filled() < CHUNK) {
            Fill(to, InitConstValueParams<T>(1, L1::WIDE * sizeof(T) / 32, 0, T(0)));
            PipeBarrier<PIPE_MTE2>();
        }
        DataCopy(to, v_[(step.Token() * tiling_.heads + step.head) * W], Nd2NzParams(1, step.Filled(), W, 0, tiling_.heads * W, CHUNK, 1, 0));
        SetFlag<HardEvent::MTE2_MTE1>(VALUES_IN);
    }
    /// The initial state before the first chunk, the decay to the end before the last.
    __aicore__ inline void BringStates(const KdaStep& step) {
        constexpr KdaRoom sizes = X::Sizes();
        GlobalTensor<T> operands = x_.template Room<T>(step.n % ROOM_SLOTS * sizes.operands, sizes.operands / sizeof(T));
        const bool initial = step.IsFirst() && HasState(step);
        if (initial) DataCopy(X::template Whole<T>(X::StateAt(step.n), W, W), operands[sizes.initial / sizeof(T)], L1::PARTS * W * W);
        if (step.IsLast()) DataCopy(X::template Whole<T>(L1::PFINAL, SUB, W), operands[sizes.final_decay / sizeof(T)], L1::PARTS * SUB * W);
        if (initial || step.IsLast()) Order<HardEvent::MTE2_MTE1>();
    }

    __aicore__ inline bool HasState(const KdaStep& step) const { return step.chunk > 0 || tiling_.has_initial; }

    // u = X v - X (k exp(G)) S, o = q exp(G) S + A u, and the state decays and gains k^T u.

    /// u, transposed.
    __aicore__ inline void Writes(const KdaStep& step) {
        X::Need(Solve::READS);
        WaitFlag<HardEvent::MTE2_MTE1>(VALUES_IN);
        LocalTensor<float> c = x_.products.Open(X::U_PART);
        x_.products.template Add<Lies::Transposed, Lies::Transposed>(c, X::Values(step.n), X::Inverse(), W, CHUNK, CHUNK);
        if (HasState(step)) x_.products.template Add<Lies::AsIs, Lies::Transposed>(c, X::Number(X::State(step.n)), X::Reads(), W, CHUNK, W);
        x_.PutNumber(X::Number(X::U()), c, W, CHUNK, U);
    }
    __aicore__ inline void RestOfWrites(const KdaStep& step) {
        X::Need(U);
        x_.PutRest(X::U_PART, X::U(), W, CHUNK, U);
    }
    /// q exp(G) S. L0C of dav-3510 keeps it beside all else.
    __aicore__ inline void OfState(const KdaStep& step) {
        x_.products.Open(X::O_PART);
        if (HasState(step)) x_.products.template Add<Lies::AsIs, Lies::Transposed>(x_.products.In(X::O_PART), X::Queries(step.n), X::Number(X::State(step.n)), CHUNK, W, W);
    }
    /// A u, of a sub-chunk's u.
    __aicore__ inline void Output(const KdaStep& step, uint16_t i) {
        x_.products.Resume(X::O_PART, i == 0 && !HasState(step));
        x_.products.template Add<Lies::Transposed, Lies::Transposed>(x_.products.In(X::O_PART), X::At(X::A(step.n), i * SUB, 0), X::At(X::U(), 0, i * SUB), CHUNK, W, SUB);
    }
    __aicore__ inline void StoreOutput(const KdaStep& step) {
        x_.products.Resume(X::O_PART, false);
        x_.products.Close();
        StoreRows(o_[(step.Token() * tiling_.heads + step.head) * W], x_.products.In(X::O_PART), step.Filled(), W, CHUNK, tiling_.heads * W);
        x_.products.Stored();
    }
    /// S decayed, half of its columns.
    __aicore__ inline void Decayed(const KdaStep& step, uint16_t half) {
        if (half == 0) x_.products.Open(X::STATE_PART);
        if (half == 0 && !step.IsFirst()) X::Need(REST_STATE);
        if (HasState(step)) AddDecayed(X::State(step.n), X::Decay(step.n), half);
    }
    /// k^T u, of a sub-chunk.
    __aicore__ inline void Gains(const KdaStep& step, uint16_t i) {
        x_.products.Resume(X::STATE_PART, i == 0 && !HasState(step));
        x_.products.template Add<Lies::AsIs, Lies::AsIs>(x_.products.In(X::STATE_PART), X::At(X::U(), 0, i * SUB), X::At(X::Columns(step.n, SUBS - 1), i * SUB, 0), W, W, SUB);
    }
    __aicore__ inline void StoreState(const KdaStep& step) {
        x_.products.Resume(X::STATE_PART, false);
        x_.PutNumber(X::Number(X::State(step.n + 1)), x_.products.In(X::STATE_PART), W, W, STATE);
    }
    __aicore__ inline void RestOfState(const KdaStep& step) {
        X::Need(STATE);
        x_.PutRest(X::STATE_PART, X::State(step.n + 1), W, W, REST_STATE);
    }
    /// The state stands at the middle of its last sub-chunk; the final one at its end.
    __aicore__ inline void Final(const KdaStep& step) {
        X::Need(REST_STATE);
        x_.products.Open(X::STATE_PART);
        for (uint16_t half = 0; half < 2; ++half) AddDecayed(X::State(step.n + 1), X::FinalDecay(), half);
        x_.products.Close();
        StoreRows(final_[static_cast<uint64_t>(step.unit) * W * W], x_.products.In(X::STATE_PART), W, W, W, W);
        x_.products.Stored();
        if (step.end < step.chunks) CrossCoreSetFlag<2, PIPE_FIX>(flag::BEGUN);
    }
    /// Half of the columns of S times a diagonal matrix, by its diagonal blocks.
    template <class Y>
    __aicore__ inline void AddDecayed(const Y& state, const Y& decay, uint16_t half) {
        for (uint16_t column = half * W / 2; column < (half + 1) * W / 2; column += SUB) {
            x_.products.Resume(X::STATE_PART, true);
            x_.products.template Add<Lies::AsIs, Lies::AsIs>(x_.products.In(X::STATE_PART)[column * W], X::At(state, 0, column), X::At(decay, 0, column), W, SUB, SUB);
        }
    }

    KdaTiling tiling_;
    KdaShare share_;
    GlobalTensor<T> v_, o_;
    GlobalTensor<float> final_;
    GlobalTensor<int64_t> offsets_;
    X x_;
    Solve solve_;
};

}  // namespace ascend_k3
