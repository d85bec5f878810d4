// The partial sum joins the statistics of a mixing point: it is one more row of the mixture that they stand for. Without a
// partial sum only the division is left. DTYPE: of the partial sum, the weights and y; the statistics are float.
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
        pipe.InitBuffer(in_, tiling.buffers, mix_.Pitch() * sizeof(float) + (tiling.partial ? tiling.width * sizeof(T) : 0));
        pipe.InitBuffer(statistics_, 2, 2 * BLOCK * sizeof(float));
        pipe.InitBuffer(blocks_, 2 * BLOCK * BLOCK * sizeof(float));
    }

    __aicore__ inline void Process() {
        if (tiling_.partial) mix_.LoadQuery(0, in_, norm_weight_, query_weight_);
        output_.Load();
        for (int64_t token = first_; token < last_; ++token) {
            const uint32_t number = static_cast<uint32_t>((token - first_) % BLOCK);
            CopyIn(token);
            if (number == 0) LoadStatistics(token);
            MixToken(token, number);
        }
    }

   private:
    /// A token's row of the statistics and, behind it, of the partial sum.
    __aicore__ inline void CopyIn(int64_t token) {
        const DataCopyExtParams row{1, static_cast<uint32_t>(tiling_.width * sizeof(float)), 0, 0, 0};
        LocalTensor<float> in = in_.template AllocTensor<float>();
        DataCopyPad(in, weighted_[token * tiling_.width], row, DataCopyPadExtParams<float>{});
        if (tiling_.partial) {
            const DataCopyExtParams own{1, static_cast<uint32_t>(tiling_.width * sizeof(T)), 0, 0, 0};
            DataCopyPad(in[mix_.Pitch()].template ReinterpretCast<T>(), partial_[token * tiling_.width], own, DataCopyPadExtParams<T>{});
        }
        in_.EnQue(in);
    }

    /// Maximum and normalizer of the next 8 tokens, each a block.
    __aicore__ inline void LoadStatistics(int64_t token) {
        const uint32_t count = last_ - token < BLOCK ? static_cast<uint32_t>(last_ - token) : BLOCK;
        const DataCopyExtParams some{1, static_cast<uint32_t>(count * sizeof(float)), 0, 0, 0};
        const DataCopyPadExtParams<float> zeros{true, 0, static_cast<uint8_t>(BLOCK - count), 0.0f};
        LocalTensor<float> in = statistics_.template AllocTensor<float>();
        DataCopyPad(in, normalizer_[token], some, zeros);
        DataCopyPad(in[BLOCK], maximum_[token], some, zeros);
        statistics_.EnQue(in);
        in = statistics_.template DeQue<float>();
        Brcb(blocks_.Get<float>(), in, 2, {1, BLOCK});
        statistics_.FreeTensor(in);
    }

    __aicore__ inline void MixToken(int64_t token, uint32_t number) {
        LocalTensor<float> mixed = in_.template DeQue<float>();
        LocalTensor<float> normalizer = blocks_.Get<float>()[number * BLOCK];
        if (tiling_.partial) {
            LocalTensor<float> partial = mix_.Float(mixed[mix_.Pitch()].template ReinterpretCast<T>(), 0);
            if constexpr (!Mixture<T>::is_float) PipeBarrier<PIPE_V>();
            mix_.Take(partial, 0, 1);
            DataCopy(mix_.Levels(0), blocks_.Get<float>()[(BLOCK + number) * BLOCK], BLOCK);
            DataCopy(mix_.Total(0), normalizer, BLOCK);
            mix_.Weigh(1, 1);
            mix_.Mix(mixed, 1, 1, false);
            normalizer = mix_.Total(0);
        }
        output_.Store(token, mixed, normalizer, mix_);
        in_.FreeTensor(mixed);
    }

    MixTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<float> maximum_, normalizer_, weighted_;
    GlobalTensor<T> partial_, norm_weight_, query_weight_;
    TQue<TPosition::VECIN, 1> in_, statistics_;
    TBuf<TPosition::VECCALC> blocks_;
    Mixture<T> mix_;
    Output<T> output_;
};

extern "C" __global__ __aicore__ void attention_residual_update(GM_ADDR maximum, GM_ADDR normalizer, GM_ADDR weighted, GM_ADDR partial, GM_ADDR norm_weight,
                                                                GM_ADDR query_weight, GM_ADDR output_norm_weight, GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(MixTiling, data, tiling);
    TPipe pipe;
    Update<DTYPE>(pipe, maximum, normalizer, weighted, partial, norm_weight, query_weight, output_norm_weight, y, data).Process();
}
