// y = sum_j softmax(s)_j v_j over a token's blocks and its partial sum, s_j = sum(v_j / sqrt(mean(v_j^2) + eps) * query).
// Each row is read from global memory once. Tokens are shared among vector cores. DTYPE: of all tensors.
#include "ascend_k3/infinities.h"
#include "output.h"
#include "rows.h"

using namespace ascend_k3;

template <class T>
class AttentionResidual {
   public:
    __aicore__ inline AttentionResidual(TPipe& pipe, GM_ADDR blocks, GM_ADDR partial, GM_ADDR norm_weight, GM_ADDR query_weight, GM_ADDR output_norm_weight,
                                        GM_ADDR y, const MixTiling& tiling)
        : tiling_(tiling) {
        first_ = GetBlockIdx() * tiling.items_a_core;
        last_ = first_ + tiling.items_a_core < tiling.tokens ? first_ + tiling.items_a_core : tiling.tokens;
        blocks_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(blocks));
        partial_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(partial));
        norm_weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(norm_weight));
        query_weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(query_weight));
        rows_.Init(pipe, tiling);
        pipe.InitBuffer(mixed_, tiling.width * sizeof(float));
        mix_.Init(pipe, tiling);
        output_.Init(pipe, output_norm_weight, y, tiling);
    }

    __aicore__ inline void Process() {
        mix_.LoadQuery(0, rows_.Queue(), norm_weight_, query_weight_);
        output_.Load();
        for (int64_t token = first_; token < last_; ++token) MixToken(token);
    }

   private:
    __aicore__ inline void MixToken(int64_t token) {
        const uint32_t sources = tiling_.blocks + tiling_.partial;
        LocalTensor<float> mixed = mixed_.Get<float>();
        mix_.Start(1);
        for (uint32_t first = 0; first < sources; first += tiling_.group) {
            const uint32_t rows = sources - first < tiling_.group ? sources - first : tiling_.group;
            for (uint32_t row = 0; row < rows; ++row) rows_.Read(Source(token, first + row), row, mix_, 1);
            mix_.Weigh(rows, 1);
            if (first > 0) mix_.Lower(mixed, 1);
            for (uint32_t row = 0; row < rows; ++row) {
                mix_.AddRow(mixed, row, 1, first + row == 0);
                rows_.Release(row);
            }
        }
        output_.Store(token, mixed, mix_.Total(0), mix_);
    }

    __aicore__ inline GlobalTensor<T> Source(int64_t token, uint32_t number) const {
        if (number < tiling_.blocks) return blocks_[(token * tiling_.blocks + number) * tiling_.width];
        return partial_[token * tiling_.width];
    }

    MixTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<T> blocks_, partial_, norm_weight_, query_weight_;
    TBuf<TPosition::VECCALC> mixed_;
    RowQueue<T> rows_;
    Mixture<T> mix_;
    Output<T> output_;
};

extern "C" __global__ __aicore__ void attention_residual(GM_ADDR blocks, GM_ADDR partial, GM_ADDR norm_weight, GM_ADDR query_weight, GM_ADDR output_norm_weight,
                                                         GM_ADDR y, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(MixTiling, data, tiling);
    const KeepInfinities keep;
    TPipe pipe;
    AttentionResidual<DTYPE>(pipe, blocks, partial, norm_weight, query_weight, output_norm_weight, y, data).Process();
}
