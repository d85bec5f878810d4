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
    static constexpr int32_t U = Solve::READS + 1, STATE = U + 1, REST_STATE = STATE + 1, VALUES_IN = SUBS + 2, USED = SUBS + 1;

   public:
    __aicore__ inline KdaCube() : solve_(x_) {}

    __aicore__ inline void Run(GM_ADDR v, GM_ADDR offsets, GM_ADDR o, GM_ADDR final, GM_ADDR workspace, const KdaTiling& tiling) {
        tiling_ = tiling;
        const uint64_t elements = static_cast<uint64_t>(tiling.tokens) * tiling.heads * W;
        v_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(v), elements);
        o_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(o), elements);
        final_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(final), static_cast<uint64_t>(tiling.sequences) * tiling.heads * W * W);
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        x_.room = workspace + KdaStep::Block() * tiling.room;
        KdaStep step = KdaStep::First(tiling_, offsets_);
        if (!step.exists) return;
        x_.products.Begin();
        solve_.Begin();
        if constexpr (!is_float) {
            Solution(step.n);
            BringValues(step);
            const KdaStep next = step.Next(tiling_, offsets_);
            if (next.exists) solve_.Bring(next.n);
        }
        SetFlag<HardEvent::MTE1_MTE2>(USED);
        while (step.exists) {
            const KdaStep next = step.Next(tiling_, offsets_);
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
        solve_.End();
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
        Output(step);
        StoreOutput(step);
        Change(step, [](uint32_t) {});
        if (step.IsLast()) Final(step);
    }
    /// With what the next chunk needs no state for, so that neither waits for fixpipe.
    __aicore__ inline void WithNext(const KdaStep& step, const KdaStep& next) {
        if (next.exists) solve_.Scores(next.n);
        BringStates(step);
        Writes(step);
        if (next.exists) {
            Solve::InverseUsed();
            BringValues(next);
        }
        if constexpr (DIRECT) OfState(step);
        RestOfWrites(step);
        if (next.exists) solve_.RestOfA(next.n);
        const auto solve = [&](uint32_t i) {
            if (next.exists) solve_.Step(i, next.n);
        };
        Change(step, solve);
        const KdaStep later = next.Next(tiling_, offsets_);
        if (next.exists && later.exists) {
            Order<HardEvent::MTE1_MTE2>();
            solve_.Bring(later.n);
        }
        if constexpr (!DIRECT) OfState(step);
        Output(step);
        for (uint32_t i = CHANGE_PARTS; i < Solve::STEPS; ++i) solve(i);
        StoreOutput(step);
        RestOfChange(step);
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
        const bool initial = step.chunk == 0 && tiling_.has_initial;
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
        LocalTensor<float> c = x_.products.Open(X::O_PART);
        if (HasState(step)) x_.products.template Add<Lies::AsIs, Lies::Transposed>(c, X::Queries(step.n), X::Number(X::State(step.n)), CHUNK, W, W);
        x_.products.Stored();
    }
    __aicore__ inline void Output(const KdaStep& step) {
        LocalTensor<float> c = x_.products.Reopen(X::O_PART);
        if (!HasState(step)) x_.products.Next();
        x_.products.template Add<Lies::AsIs, Lies::Transposed>(c, X::A(step.n), X::U(), CHUNK, W, CHUNK);
        x_.products.Close();
    }
    __aicore__ inline void StoreOutput(const KdaStep& step) {
        StoreRows(o_[(step.Token() * tiling_.heads + step.head) * W], x_.products.In(X::O_PART), step.Filled(), W, CHUNK, tiling_.heads * W);
        x_.products.Stored(X::O_PART);
    }
    /// In parts, after each of which `between` is called with its number.
    static constexpr uint32_t DECAY_PARTS = 2, CHANGE_PARTS = DECAY_PARTS + SUBS;
    template <class Between>
    __aicore__ inline void Change(const KdaStep& step, const Between& between) {
        const LocalTensor<float> c = x_.products.Open(X::STATE_PART);
        if (step.chunk > 0) X::Need(REST_STATE);
        for (uint32_t i = 0; i < DECAY_PARTS; ++i) {
            if (HasState(step)) AddDecayed(c, X::State(step.n), X::Decay(step.n), W / DECAY_PARTS * i, W / DECAY_PARTS);
            between(i);
        }
        X::Need(U);
        for (uint32_t i = 0; i < SUBS; ++i) {
            x_.products.Resume(X::STATE_PART, i == 0 && !HasState(step));
            x_.products.template Add<Lies::AsIs, Lies::AsIs>(c, X::At(X::U(), 0, i * SUB), X::At(X::Columns(step.n, SUBS - 1), i * SUB, 0), W, W, SUB);
            if (i == SUBS - 1) x_.PutNumber(X::Number(X::State(step.n + 1)), c, W, W, STATE);
            between(DECAY_PARTS + i);
        }
    }
    __aicore__ inline void RestOfChange(const KdaStep& step) {
        X::Need(STATE);
        x_.PutRest(X::STATE_PART, X::State(step.n + 1), W, W, REST_STATE);
    }
    /// The state stands at the middle of its last sub-chunk; the final one at its end.
    __aicore__ inline void Final(const KdaStep& step) {
        X::Need(REST_STATE);
        LocalTensor<float> c = x_.products.Open(X::STATE_PART);
        AddDecayed(c, X::State(step.n + 1), X::FinalDecay(), 0, W);
        x_.products.Close();
        StoreRows(final_[step.State() * W * W], c, W, W, W, W);
        x_.products.Stored();
    }
    /// Columns of c = S times a diagonal matrix, by its diagonal blocks.
    template <class Y>
    __aicore__ inline void AddDecayed(const LocalTensor<float>& c, const Y& state, const Y& decay, uint16_t first, uint16_t count) {
        for (uint16_t column = first; column < first + count; column += SUB) {
            x_.products.Resume(X::STATE_PART, true);
            x_.products.template Add<Lies::AsIs, Lies::AsIs>(c[column * W], X::At(state, 0, column), X::At(decay, 0, column), W, SUB, SUB);
        }
    }

    KdaTiling tiling_;
    GlobalTensor<T> v_, o_;
    GlobalTensor<float> final_;
    GlobalTensor<int64_t> offsets_;
    X x_;
    Solve solve_;
};

}  // namespace ascend_k3
