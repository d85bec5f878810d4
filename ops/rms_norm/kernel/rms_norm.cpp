// y = round(x / sqrt(mean(x^2) + eps)) * weight, rows shared among vector cores. DTYPE: of x, weight and y.
#include "ascend_k3/infinities.h"
#include "rms_norm.h"

using namespace ascend_k3;

template <class T>
class Norm {
   public:
    __aicore__ inline Norm(TPipe& pipe, GM_ADDR x, GM_ADDR weight, GM_ADDR y, const NormTiling& tiling) : tiling_(tiling) {
        first_ = GetBlockIdx() * tiling.rows_a_core;
        last_ = first_ + tiling.rows_a_core < tiling.rows ? first_ + tiling.rows_a_core : tiling.rows;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
        weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(weight));
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y));
        const uint32_t tile = tiling.rows_a_tile * tiling.pitch;
        pipe.InitBuffer(in_, 2, tile * sizeof(T));
        pipe.InitBuffer(out_, 2, tile * sizeof(T));
        scale_.Init(pipe, tiling);
        if constexpr (!is_float) pipe.InitBuffer(work_, tile * sizeof(float));
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

    __aicore__ inline void CopyIn(int64_t row, uint32_t rows) {
        LocalTensor<T> x = in_.AllocTensor<T>();
        DataCopyPad(x, x_[row * tiling_.width], Rows(rows), DataCopyPadExtParams<T>{});
        in_.EnQue(x);
    }

    __aicore__ inline void Compute(uint32_t rows) {
        const uint32_t count = (rows - 1) * tiling_.pitch + tiling_.width;
        LocalTensor<T> x = in_.DeQue<T>();
        LocalTensor<T> y = out_.AllocTensor<T>();
        LocalTensor<float> work;
        if constexpr (is_float) {
            work = y;
            Adds(work, x, 0.0f, count);
        } else {
            work = work_.Get<float>();
            Cast(work, x, RoundMode::CAST_NONE, count);
        }
        in_.FreeTensor(x);
        PipeBarrier<PIPE_V>();
        norm_.Normalize(work, rows);
        PipeBarrier<PIPE_V>();
        if constexpr (!is_float) {  // the model rounds here, before the weight
            Cast(y, work, RoundMode::CAST_RINT, count);
            PipeBarrier<PIPE_V>();
            Cast(work, y, RoundMode::CAST_NONE, count);
            PipeBarrier<PIPE_V>();
        }
        norm_.ScaleColumns(work, scale_row_, rows);
        if constexpr (!is_float) {
            PipeBarrier<PIPE_V>();
            Cast(y, work, RoundMode::CAST_RINT, count);
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
    GlobalTensor<T> x_, weight_, y_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> work_;
    WeightRow<T> scale_;
    LocalTensor<float> scale_row_;
    RowNorm norm_;
};

extern "C" __global__ __aicore__ void rms_norm(GM_ADDR x, GM_ADDR weight, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(NormTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    Norm<DTYPE>(pipe, x, weight, y, data).Process();
}
