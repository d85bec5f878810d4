// y_t = sum over the slots k of weights[t, k] * rows[places[t, k]], in float, slot by slot; places of -1 are left out.
// DTYPE: of rows. OUT: of y. weights are float, places int32.
#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

template <class T, class Out>
class UnpermuteTokens {
   public:
    __aicore__ inline UnpermuteTokens(TPipe& pipe, GM_ADDR rows, GM_ADDR weights, GM_ADDR places, GM_ADDR y, const UnpermuteTiling& tiling) : tiling_(tiling) {
        first_ = GetBlockIdx() * tiling.jobs_a_core;
        last_ = first_ + tiling.jobs_a_core < tiling.jobs ? first_ + tiling.jobs_a_core : tiling.jobs;
        rows_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(rows));
        weights_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(weights));
        places_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(places));
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ Out*>(y));
        pipe.InitBuffer(in_, 2, tiling.block * sizeof(T));
        pipe.InitBuffer(out_, 2, tiling.block * sizeof(Out));
        if constexpr (!rows_are_float) pipe.InitBuffer(row_, tiling.block * sizeof(float));
        if constexpr (!out_is_float) pipe.InitBuffer(sum_, tiling.block * sizeof(float));
    }

    __aicore__ inline void Process() {
        for (int64_t job = first_; job < last_; ++job) {
            const uint32_t column = static_cast<uint32_t>(job % tiling_.blocks) * tiling_.block, left = tiling_.width - column;
            Sum(job / tiling_.blocks, column, left < tiling_.block ? left : tiling_.block);
        }
    }

   private:
    __aicore__ inline void Sum(int64_t token, uint32_t column, uint32_t count) {
        LocalTensor<Out> out = out_.template AllocTensor<Out>();
        LocalTensor<float> sum;
        if constexpr (out_is_float)
            sum = out;
        else
            sum = sum_.template Get<float>();
        bool first = true;
        for (uint32_t slot = 0; slot < tiling_.top_k; ++slot) {
            const int64_t pair = token * tiling_.top_k + slot, place = places_.GetValue(pair);
            if (place < 0) continue;
            CopyIn(place * tiling_.width + column, count);
            Accumulate(sum, weights_.GetValue(pair), count, first);
            first = false;
        }
        if (first) Duplicate(sum, 0.0f, count);
        if constexpr (!out_is_float) {
            PipeBarrier<PIPE_V>();
            Cast(out, sum, RoundMode::CAST_RINT, count);
        }
        out_.EnQue(out);
        out = out_.template DeQue<Out>();
        DataCopyPad(y_[token * tiling_.width + column], out, DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(Out)), 0, 0, 0});
        out_.FreeTensor(out);
    }

    __aicore__ inline void CopyIn(int64_t offset, uint32_t count) {
        LocalTensor<T> in = in_.template AllocTensor<T>();
        DataCopyPad(in, rows_[offset], DataCopyExtParams{1, static_cast<uint32_t>(count * sizeof(T)), 0, 0, 0}, DataCopyPadExtParams<T>{});
        in_.EnQue(in);
    }

    __aicore__ inline void Accumulate(const LocalTensor<float>& sum, float weight, uint32_t count, bool first) {
        LocalTensor<T> in = in_.template DeQue<T>();
        LocalTensor<float> row;
        if constexpr (rows_are_float) {
            row = in;
        } else {
            row = row_.template Get<float>();
            Cast(row, in, RoundMode::CAST_NONE, count);
        }
        if (!rows_are_float || !first) PipeBarrier<PIPE_V>();
        if (first)
            Muls(sum, row, weight, count);
        else
            Axpy(sum, row, weight, count);
        in_.FreeTensor(in);
    }

    static constexpr bool rows_are_float = std::is_same_v<T, float>, out_is_float = std::is_same_v<Out, float>;
    UnpermuteTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<T> rows_;
    GlobalTensor<float> weights_;
    GlobalTensor<int32_t> places_;
    GlobalTensor<Out> y_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> row_, sum_;
};

}  // namespace ascend_k3

extern "C" __global__ __aicore__ void unpermute_tokens(GM_ADDR rows, GM_ADDR weights, GM_ADDR places, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(UnpermuteTiling, data, tiling);
    AscendC::TPipe pipe;
    ascend_k3::UnpermuteTokens<DTYPE, OUT>(pipe, rows, weights, places, y, data).Process();
}
