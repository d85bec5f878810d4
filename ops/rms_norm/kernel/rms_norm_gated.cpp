// y = round(x / sqrt(mean(x^2) + eps) * weight * sigmoid(gate)), rows shared among vector cores. DTYPE: of all of them.
#include "ascend_k3/infinities.h"
#include "rms_norm.h"

using namespace ascend_k3;

template <class T>
class GatedNorm {
   public:
    __aicore__ inline GatedNorm(TPipe& pipe, GM_ADDR x, GM_ADDR gate, GM_ADDR weight, GM_ADDR y, const NormTiling& tiling) : tiling_(tiling) {
        first_ = GetBlockIdx() * tiling.rows_a_core;
        last_ = first_ + tiling.rows_a_core < tiling.rows ? first_ + tiling.rows_a_core : tiling.rows;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
        gate_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(gate));
        weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(weight));
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y));
        const uint32_t tile = tiling.rows_a_tile * tiling.pitch;
        pipe.InitBuffer(in_, 2, 2 * tile * sizeof(T));
        pipe.InitBuffer(out_, 2, tile * sizeof(T));
        scale_.Init(pipe, tiling);
        if constexpr (!is_float) pipe.InitBuffer(work_, 2 * tile * sizeof(float));
        norm_.Init(pipe, tiling);
    }

    __aicore__ inline void Process() {
        scale_row_ = scale_.Load(weight_);
        for (int64_t row = first_; row < last_; row += tiling_.rows_a_tile) {
            const uint32_t rows = last_ - row < tiling_.rows_a_tile ? static_cast<uint32_t>(last_ - row) : tiling_.rows_a_tile;
            CopyIn(row, rows);
            Compute(rows);
            CopyOut(row, rows);
        }
    }

   private:
    __aicore__ inline DataCopyExtParams Rows(uint32_t rows) const {
        return DataCopyExtParams{static_cast<uint16_t>(rows), static_cast<uint32_t>(tiling_.width * sizeof(T)), 0, 0, 0};
    }

    /// x, and the gate behind it.
    __aicore__ inline void CopyIn(int64_t row, uint32_t rows) {
        LocalTensor<T> x = in_.AllocTensor<T>();
        DataCopyPad(x, x_[row * tiling_.width], Rows(rows), DataCopyPadExtParams<T>{});
        DataCopyPad(x[rows * tiling_.pitch], gate_[row * tiling_.width], Rows(rows), DataCopyPadExtParams<T>{});
        in_.EnQue(x);
    }

    __aicore__ inline void Compute(uint32_t rows) {
        const uint32_t count = rows * tiling_.pitch;
        LocalTensor<T> in = in_.DeQue<T>();
        LocalTensor<T> y = out_.AllocTensor<T>();
        LocalTensor<float> x;
        if constexpr (is_float) {
            x = in;
        } else {
            x = work_.Get<float>();
            Cast(x, in, RoundMode::CAST_NONE, 2 * count);
            in_.FreeTensor(in);
            PipeBarrier<PIPE_V>();
        }
        LocalTensor<float> gate = x[count];
        Muls(gate, gate, -1.0f, count);
        norm_.Normalize(x, rows);
        PipeBarrier<PIPE_V>();
        norm_.ScaleColumns(x, scale_row_, rows);
        Exp(gate, gate, count);
        PipeBarrier<PIPE_V>();
        Adds(gate, gate, 1.0f, count);
        PipeBarrier<PIPE_V>();
        if constexpr (is_float) {
            Div(y, x, gate, count);
            in_.FreeTensor(in);
        } else {
            Div(x, x, gate, count);
            PipeBarrier<PIPE_V>();
            Cast(y, x, RoundMode::CAST_RINT, count);
        }
        out_.EnQue(y);
    }

    __aicore__ inline void CopyOut(int64_t row, uint32_t rows) {
        LocalTensor<T> y = out_.DeQue<T>();
        DataCopyPad(y_[row * tiling_.width], y, Rows(rows));
        out_.FreeTensor(y);
    }

    static constexpr bool is_float = std::is_same_v<T, float>;
    NormTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<T> x_, gate_, weight_, y_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> work_;
    WeightRow<T> scale_;
    LocalTensor<float> scale_row_;
    RowNorm norm_;
};

extern "C" __global__ __aicore__ void rms_norm_gated(GM_ADDR x, GM_ADDR gate, GM_ADDR weight, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(NormTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    GatedNorm<DTYPE>(pipe, x, gate, weight, y, data).Process();
}
