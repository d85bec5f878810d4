// rows[place] = x[token] for each (token, slot), grouped by expert; places [T, k] and counts [E]. Rows are moved as bytes.
//
// 1. Each core counts the pairs of its tokens by expert. 2. Each core takes a slice of the experts and adds up the counts of
// the cores, core by core. 3. From the sums before it each core knows where its pairs of an expert begin; it loads each of its
// rows once and stores it at its places. Pairs of -1 are counted behind the last expert: their rows are zeros, their places -1.
#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

class PermuteTokens {
   public:
    __aicore__ inline PermuteTokens(TPipe& pipe, GM_ADDR x, GM_ADDR ids, GM_ADDR rows, GM_ADDR places, GM_ADDR counts, GM_ADDR workspace,
                                    const PermuteTiling& tiling)
        : tiling_(tiling), core_(static_cast<uint32_t>(GetBlockIdx())), cores_(static_cast<uint32_t>(GetBlockNum())) {
        first_ = core_ * tiling.tokens_a_core;
        last_ = first_ + tiling.tokens_a_core < tiling.tokens ? first_ + tiling.tokens_a_core : tiling.tokens;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(x));
        ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(ids));
        rows_.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(rows));
        places_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(places));
        counts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(counts));
        sums_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(GetUserWorkspace(workspace)));
        place_pitch_ = (tiling.rows_a_tile * tiling.top_k + 7) / 8 * 8;
        pipe.InitBuffer(tile_, 2, tiling.rows_a_tile * tiling.row_pitch);
        pipe.InitBuffer(place_, 2 * place_pitch_ * sizeof(int32_t));
        pipe.InitBuffer(next_, tiling.buckets * sizeof(int32_t));
        pipe.InitBuffer(before_, tiling.buckets * sizeof(int32_t));
        pipe.InitBuffer(total_, tiling.buckets * sizeof(int32_t));
        pipe.InitBuffer(slice_, cores_ * tiling.slice * sizeof(int32_t));
        pipe.InitBuffer(zeros_, tiling.row_pitch);
    }

    __aicore__ inline void Process() {
        Count();
        SyncAll();
        if (cores_ > 1) {
            AddUp();
            SyncAll();
        }
        Begin();
        Move();
    }

   private:
    __aicore__ inline uint32_t Bucket(int64_t pair) const {
        const int64_t id = ids_.GetValue(pair);
        return id < 0 ? tiling_.experts : static_cast<uint32_t>(id);
    }

    /// A row of the workspace: how many pairs this core has for each expert.
    __aicore__ inline void Count() {
        LocalTensor<int32_t> count = next_.Get<int32_t>();
        Duplicate(count, 0, tiling_.buckets);
        Duplicate(zeros_.Get<int32_t>(), 0, tiling_.row_pitch / sizeof(int32_t));
        SetFlag<HardEvent::V_S>(EVENT_ID0);
        WaitFlag<HardEvent::V_S>(EVENT_ID0);
        for (int64_t pair = first_ * tiling_.top_k; pair < last_ * tiling_.top_k; ++pair) {
            const uint32_t bucket = Bucket(pair);
            count.SetValue(bucket, count.GetValue(bucket) + 1);
        }
        SetFlag<HardEvent::S_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::S_MTE3>(EVENT_ID0);
        DataCopy(sums_[static_cast<int64_t>(core_) * tiling_.buckets], count, tiling_.buckets);
    }

    /// Row c of the workspace becomes the sum of rows 0 to c, in this core's slice.
    __aicore__ inline void AddUp() {
        const uint32_t first = core_ * tiling_.slice;
        if (first >= tiling_.buckets) return;
        const uint32_t width = tiling_.buckets - first < tiling_.slice ? tiling_.buckets - first : tiling_.slice;
        const uint32_t bytes = width * sizeof(int32_t), gap = (tiling_.buckets - width) * sizeof(int32_t);
        LocalTensor<int32_t> sums = slice_.Get<int32_t>();
        DataCopyPad(sums, sums_[first], DataCopyExtParams{static_cast<uint16_t>(cores_), bytes, gap, 0, 0}, DataCopyPadExtParams<int32_t>{});
        SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
        for (uint32_t core = 1; core < cores_; ++core) {
            if (core > 1) PipeBarrier<PIPE_V>();
            Add(sums[core * width], sums[core * width], sums[(core - 1) * width], width);
        }
        SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
        DataCopyPad(sums_[first], sums, DataCopyExtParams{static_cast<uint16_t>(cores_), bytes, 0, gap, 0});
    }

    /// next = where the first pair of each expert goes that this core has. The first core writes the counts.
    __aicore__ inline void Begin() {
        LocalTensor<int32_t> next = next_.Get<int32_t>(), before = before_.Get<int32_t>(), total = total_.Get<int32_t>();
        DataCopy(total, sums_[static_cast<int64_t>(cores_ - 1) * tiling_.buckets], tiling_.buckets);
        if (core_ > 0) DataCopy(before, sums_[static_cast<int64_t>(core_ - 1) * tiling_.buckets], tiling_.buckets);
        SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
        int32_t sum = 0;
        for (uint32_t bucket = 0; bucket <= tiling_.experts; ++bucket) {
            next.SetValue(bucket, sum + (core_ > 0 ? before.GetValue(bucket) : 0));
            sum += total.GetValue(bucket);
        }
        if (core_ > 0) return;
        SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        DataCopyPad(counts_, total, DataCopyExtParams{1, static_cast<uint32_t>(tiling_.experts * sizeof(int32_t)), 0, 0, 0});
    }

    __aicore__ inline void Move() {
        uint32_t tile = 0;
        for (int64_t token = first_; token < last_; token += tiling_.rows_a_tile, ++tile) {
            const uint32_t rows = last_ - token < tiling_.rows_a_tile ? static_cast<uint32_t>(last_ - token) : tiling_.rows_a_tile;
            CopyIn(token, rows);
            CopyOut(token, rows, tile);
        }
        for (uint32_t left = tile < 2 ? 0 : tile - 2; left < tile; ++left) WaitFlag<HardEvent::MTE3_S>(left % 2);
    }

    __aicore__ inline void CopyIn(int64_t token, uint32_t rows) {
        LocalTensor<uint8_t> in = tile_.AllocTensor<uint8_t>();
        DataCopyPad(in, x_[token * tiling_.row_bytes], DataCopyExtParams{static_cast<uint16_t>(rows), static_cast<uint32_t>(tiling_.row_bytes), 0, 0, 0},
                    DataCopyPadExtParams<uint8_t>{});
        tile_.EnQue(in);
    }

    __aicore__ inline void CopyOut(int64_t token, uint32_t rows, uint32_t tile) {
        LocalTensor<int32_t> next = next_.Get<int32_t>(), places = place_.Get<int32_t>()[tile % 2 * place_pitch_];
        LocalTensor<uint8_t> zeros = zeros_.Get<uint8_t>(), in = tile_.DeQue<uint8_t>();
        const DataCopyExtParams one_row{1, static_cast<uint32_t>(tiling_.row_bytes), 0, 0, 0};
        if (tile >= 2) WaitFlag<HardEvent::MTE3_S>(tile % 2);
        for (uint32_t row = 0; row < rows; ++row)
            for (uint32_t slot = 0; slot < tiling_.top_k; ++slot) {
                const uint32_t bucket = Bucket((token + row) * tiling_.top_k + slot);
                const bool dropped = bucket == tiling_.experts;
                const int32_t place = next.GetValue(bucket);
                next.SetValue(bucket, place + 1);
                places.SetValue(row * tiling_.top_k + slot, dropped ? -1 : place);
                if (dropped)
                    DataCopyPad(rows_[place * tiling_.row_bytes], zeros, one_row);
                else
                    DataCopyPad(rows_[place * tiling_.row_bytes], in[row * tiling_.row_pitch], one_row);
            }
        tile_.FreeTensor(in);
        SetFlag<HardEvent::S_MTE3>(tile % 2);
        WaitFlag<HardEvent::S_MTE3>(tile % 2);
        DataCopyPad(places_[token * tiling_.top_k], places, DataCopyExtParams{1, static_cast<uint32_t>(rows * tiling_.top_k * sizeof(int32_t)), 0, 0, 0});
        SetFlag<HardEvent::MTE3_S>(tile % 2);
    }

    PermuteTiling tiling_;
    uint32_t core_ = 0, cores_ = 0, place_pitch_ = 0;
    int64_t first_ = 0, last_ = 0;
    GlobalTensor<uint8_t> x_, rows_;
    GlobalTensor<int64_t> ids_;
    GlobalTensor<int32_t> places_, counts_, sums_;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> tile_;
    TBuf<TPosition::VECCALC> place_, next_, before_, total_, slice_, zeros_;
};

}  // namespace ascend_k3

extern "C" __global__ __aicore__ void permute_tokens(GM_ADDR x, GM_ADDR ids, GM_ADDR rows, GM_ADDR places, GM_ADDR counts, GM_ADDR workspace,
                                                     GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0);  // SyncAll is for kernels of which all cores run at the same time
    GET_TILING_DATA_WITH_STRUCT(PermuteTiling, data, tiling);
    AscendC::TPipe pipe;
    ascend_k3::PermuteTokens(pipe, x, ids, rows, places, counts, workspace, data).Process();
}
