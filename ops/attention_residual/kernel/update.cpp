// The partial sum joins the statistics of a mixing point: it is one more row of the mixture that they stand for. Without a
// partial sum only the division is left. DTYPE: of the partial sum, the weights and y; the statistics are float.
#include "ascend_k3/infinities.h"
#include "output.h"

using namespace ascend_k3;

template <class T>
class Update {
   public:
    __aicore__ inline Update(TPipe& pipe, GM_ADDR maximum, GM_ADDR normalizer, GM_ADDR weighted, GM_ADDR partial, GM_ADDR norm_weight, GM_ADDR query_weight,
                             GM_ADDR output_norm_weight, GM_ADDR y, const MixTiling& tiling)
        : tiling_(tiling) {
        first_ = GetBlockIdx() * tiling.items_a_core;
        last_ = first_ + tiling.items_a_core < tiling.tokens ? first_ + tiling.items_a_core : tiling.tokens;
        maximum_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(maximum));
        normalizer_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(normalizer));
        weighted_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(weighted));
        partial_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(partial));
        norm_weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(norm_weight));
        query_weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(query_weight));
        mix_.Init(pipe, tiling);
        output_.Init(pipe, output_norm_weight, y, tiling);
        own_ = mix_.Pitch() + (1 + tiling.partial) * BLOCK;
        pipe.InitBuffer(in_, tiling.buffers, own_ * sizeof(float) + tiling.partial * tiling.width * sizeof(T));
        pipe.InitBuffer(blocks_, (1 + tiling.partial) * BLOCK * BLOCK * sizeof(float));
    }

    __aicore__ inline void Process() {
        if (tiling_.partial) mix_.LoadQuery(0, in_, norm_weight_, query_weight_);
        output_.Load();
        for (int64_t token = first_; token < last_; ++token) {
            CopyIn(token);
            MixToken(token);
        }
    }

   private:
    /// A token's mixture and normalizer and, with a partial sum, its maximum and its row of the partial sum.
    __aicore__ inline void CopyIn(int64_t token) {
        const DataCopyExtParams mixture{1, static_cast<uint32_t>(tiling_.width * sizeof(float)), 0, 0, 0}, one{1, sizeof(float), 0, 0, 0};
        const DataCopyPadExtParams<float> zeros{true, 0, BLOCK - 1, 0.0f};
        LocalTensor<float> in = in_.template AllocTensor<float>();
        DataCopyPad(in, weighted_[token * tiling_.width], mixture, DataCopyPadExtParams<float>{});
        DataCopyPad(in[mix_.Pitch()], normalizer_[token], one, zeros);
        if (tiling_.partial) {
            const DataCopyExtParams partial{1, static_cast<uint32_t>(tiling_.width * sizeof(T)), 0, 0, 0};
            DataCopyPad(in[mix_.Pitch() + BLOCK], maximum_[token], one, zeros);
            DataCopyPad(in[own_].template ReinterpretCast<T>(), partial_[token * tiling_.width], partial, DataCopyPadExtParams<T>{});
        }
        in_.EnQue(in);
    }

    __aicore__ inline void MixToken(int64_t token) {
        LocalTensor<float> mixed = in_.template DeQue<float>();
        LocalTensor<float> statistics = blocks_.Get<float>(), normalizer = statistics;
        Brcb(statistics, mixed[mix_.Pitch()], 1 + tiling_.partial, {1, BLOCK});  // blocks 0 and 8 are those of the token
        if (tiling_.partial) {
            LocalTensor<float> partial = mix_.Float(mixed[own_].template ReinterpretCast<T>(), 0);
            if constexpr (!Mixture<T>::is_float) PipeBarrier<PIPE_V>();
            mix_.Take(partial, 0, 1);
            DataCopy(mix_.Total(0), statistics, BLOCK);
            DataCopy(mix_.Levels(0), statistics[BLOCK * BLOCK], BLOCK);
            mix_.Weigh(1, 1);
            mix_.Lower(mixed, 1);
            mix_.AddRow(mixed, 0, 1, false);
            normalizer = mix_.Total(0);
        }
        output_.Store(token, mixed, normalizer, mix_);
        in_.FreeTensor(mixed);
    }

    MixTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<float> maximum_, normalizer_, weighted_;
    GlobalTensor<T> partial_, norm_weight_, query_weight_;
    TQue<TPosition::VECIN, 1> in_;
    TBuf<TPosition::VECCALC> blocks_;
    Mixture<T> mix_;
    Output<T> output_;
    uint32_t own_ = 0;  // where the partial sum begins in a buffer, in floats
};

extern "C" __global__ __aicore__ void attention_residual_update(GM_ADDR maximum, GM_ADDR normalizer, GM_ADDR weighted, GM_ADDR partial, GM_ADDR norm_weight,
                                                                GM_ADDR query_weight, GM_ADDR output_norm_weight, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(MixTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    Update<DTYPE>(pipe, maximum, normalizer, weighted, partial, norm_weight, query_weight, output_norm_weight, y, data).Process();
}
