// The end of a token: the mixture over the sum of its weights, the norm that follows, rounded once and stored.
#pragma once

#include "mixture.h"

namespace ascend_k3 {

template <class T>
class Output {
   public:
    __aicore__ inline void Init(TPipe& pipe, GM_ADDR norm_weight, GM_ADDR y, const MixTiling& tiling) {
        width_ = tiling.width;
        norm_ = tiling.output_norm != 0;
        eps_ = tiling.output_eps;
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y));
        pipe.InitBuffer(out_, 1, Row().blockLen);
        if (!norm_) return;
        weight_global_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(norm_weight));
        pipe.InitBuffer(weight_, Row().blockLen);
        pipe.InitBuffer(scale_, BLOCK * BLOCK * sizeof(float));
    }

    /// The weight of the norm stays in UB.
    __aicore__ inline void Load() {
        if (!norm_) return;
        DataCopyPad(weight_.template Get<T>(), weight_global_, Row(), DataCopyPadExtParams<T>{});
        const TEventID loaded = GetTPipePtr()->AllocEventID<HardEvent::MTE2_V>();
        SetFlag<HardEvent::MTE2_V>(loaded);
        WaitFlag<HardEvent::MTE2_V>(loaded);
        GetTPipePtr()->ReleaseEventID<HardEvent::MTE2_V>(loaded);
    }

    /// y[token] = mixture / total, normed if that is asked for; `total` is a block. The mixture is used up.
    __aicore__ inline void Store(int64_t token, const LocalTensor<float>& mixture, const LocalTensor<float>& total, Mixture<T>& mix) {
        LocalTensor<T> y = out_.template AllocTensor<T>();
        LocalTensor<float> result = mixture;
        if constexpr (Mixture<T>::is_float) result = y;
        PipeBarrier<PIPE_V>();
        if (norm_) {
            Divide(mixture, mixture, total, width_);
            LocalTensor<float> weight = mix.Float(weight_.template Get<T>(), 0);
            LocalTensor<float> scale = scale_.Get<float>();
            PipeBarrier<PIPE_V>();
            mix.RootMeanSquare(scale, mixture, eps_);
            PipeBarrier<PIPE_V>();
            Divide(mixture, mixture, scale, width_);
            PipeBarrier<PIPE_V>();
            Mul(result, mixture, weight, width_);
        } else {
            Divide(result, mixture, total, width_);
        }
        if constexpr (!Mixture<T>::is_float) {
            PipeBarrier<PIPE_V>();
            Cast(y, mixture, RoundMode::CAST_RINT, width_);
        }
        out_.EnQue(y);
        y = out_.template DeQue<T>();
        DataCopyPad(y_[token * width_], y, Row());
        out_.FreeTensor(y);
    }

   private:
    __aicore__ inline DataCopyExtParams Row() const { return DataCopyExtParams{1, static_cast<uint32_t>(width_ * sizeof(T)), 0, 0, 0}; }

    GlobalTensor<T> y_, weight_global_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> weight_, scale_;
    uint32_t width_ = 0;
    bool norm_ = false;
    float eps_ = 0;
};

}  // namespace ascend_k3
