// Statistics of a bank of blocks for M mixing points: the largest score, the sum of exp(score - largest), and the mixture
// with these weights. As many points as UB holds are done in one reading of the bank; sets of points and tokens are shared
// among vector cores. DTYPE: of blocks and weights; the statistics are float.
#include "rows.h"

using namespace ascend_k3;

template <class T>
class Prepare {
   public:
    __aicore__ inline Prepare(TPipe& pipe, GM_ADDR blocks, GM_ADDR norm_weights, GM_ADDR query_weights, GM_ADDR maximum, GM_ADDR normalizer, GM_ADDR weighted,
                              const MixTiling& tiling)
        : tiling_(tiling) {
        const int64_t sets = (tiling.all_points + tiling.points - 1) / tiling.points, items = sets * tiling.tokens;
        first_ = GetBlockIdx() * tiling.items_a_core;
        last_ = first_ + tiling.items_a_core < items ? first_ + tiling.items_a_core : items;
        blocks_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(blocks));
        norm_weights_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(norm_weights));
        query_weights_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(query_weights));
        maximum_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(maximum));
        normalizer_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(normalizer));
        weighted_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(weighted));
        rows_.Init(pipe, tiling);
        mix_.Init(pipe, tiling);
        pipe.InitBuffer(out_, 1, tiling.points * (mix_.Pitch() + 2 * BLOCK) * sizeof(float));
    }

    __aicore__ inline void Process() {
        int64_t loaded = -1;
        for (int64_t item = first_; item < last_; ++item) {
            const int64_t set = item / tiling_.tokens;
            const uint32_t point = static_cast<uint32_t>(set * tiling_.points);
            const uint32_t points = tiling_.all_points - point < tiling_.points ? tiling_.all_points - point : tiling_.points;
            if (set != loaded)
                for (uint32_t i = 0; i < points; ++i) mix_.LoadQuery(i, rows_.Queue(), norm_weights_[(point + i) * tiling_.width], query_weights_[(point + i) * tiling_.width]);
            loaded = set;
            MixToken(item % tiling_.tokens, points);
            CopyOut(item % tiling_.tokens, point, points);
        }
    }

   private:
    __aicore__ inline void MixToken(int64_t token, uint32_t points) {
        LocalTensor<float> out;
        mix_.Start(points);
        for (uint32_t first = 0; first < tiling_.blocks; first += tiling_.group) {
            const uint32_t rows = tiling_.blocks - first < tiling_.group ? tiling_.blocks - first : tiling_.group;
            for (uint32_t row = 0; row < rows; ++row)
                rows_.Read(blocks_[(token * tiling_.blocks + first + row) * tiling_.width], row, mix_, points);
            mix_.Weigh(rows, points);
            if (first == 0)
                out = out_.AllocTensor<float>();
            else
                mix_.Lower(out, points);
            for (uint32_t row = 0; row < rows; ++row) {
                mix_.AddRow(out, row, points, first + row == 0);
                rows_.Release(row);
            }
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t i = 0; i < points; ++i) {
            DataCopy(out[Statistics(i)], mix_.Levels(i), BLOCK);
            DataCopy(out[Statistics(i) + BLOCK], mix_.Total(i), BLOCK);
        }
        out_.EnQue(out);
    }

    __aicore__ inline void CopyOut(int64_t token, uint32_t point, uint32_t points) {
        const DataCopyExtParams whole{1, static_cast<uint32_t>(tiling_.width * sizeof(float)), 0, 0, 0}, one{1, sizeof(float), 0, 0, 0};
        LocalTensor<float> out = out_.DeQue<float>();
        for (uint32_t i = 0; i < points; ++i) {
            const int64_t row = (point + i) * tiling_.tokens + token;
            DataCopyPad(weighted_[row * tiling_.width], out[i * mix_.Pitch()], whole);
            DataCopyPad(maximum_[row], out[Statistics(i)], one);
            DataCopyPad(normalizer_[row], out[Statistics(i) + BLOCK], one);
        }
        out_.FreeTensor(out);
    }

    /// Behind the mixtures of all points: two blocks for each.
    __aicore__ inline uint32_t Statistics(uint32_t point) const { return tiling_.points * mix_.Pitch() + 2 * BLOCK * point; }

    MixTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<T> blocks_, norm_weights_, query_weights_;
    GlobalTensor<float> maximum_, normalizer_, weighted_;
    TQue<TPosition::VECOUT, 1> out_;
    RowQueue<T> rows_;
    Mixture<T> mix_;
};

extern "C" __global__ __aicore__ void attention_residual_prepare(GM_ADDR blocks, GM_ADDR norm_weights, GM_ADDR query_weights, GM_ADDR maximum, GM_ADDR normalizer,
                                                                 GM_ADDR weighted, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(MixTiling, data, tiling);
    TPipe pipe;
    Prepare<DTYPE>(pipe, blocks, norm_weights, query_weights, maximum, normalizer, weighted, data).Process();
}
