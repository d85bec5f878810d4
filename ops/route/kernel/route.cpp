// ids = the top_k largest of sigmoid(logits) + bias, weights = their sigmoids, over their sum if renormalized, times a scale.
// DTYPE: of logits and weights; the bias is float, ids are int64.
//
// Scores are sorted as pairs with their index: 32 by 32, then lists of 128, of which `kept` pairs go on into each merge. Of
// equal scores the one of the lower index comes first, in Sort32 and MrgSort as they are documented. Behind the last expert the
// bias is -infinity, and a NaN is sorted as +infinity.
#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t LANES = 64;  // floats of a repeat
constexpr uint32_t BLOCK = 8;   // floats of 32 bytes
constexpr uint32_t LIST = 128;  // pairs of a list after the first merge
constexpr uint32_t PAIR = 2;    // floats of a pair

/// y = 1 / y. dav-3510: subnormal results stay, as the order of scores hangs on them.
__aicore__ inline void Invert(const LocalTensor<float>& y, const LocalTensor<float>& one, uint8_t repeats) {
    const BinaryRepeatParams strides{1, 0, 1, BLOCK, 0, BLOCK};
#if __NPU_ARCH__ == 3510
    static constexpr DivConfig config = {DivAlgo::PRECISION_0ULP_FTZ_FALSE};
    Div<float, true, config>(y, one, y, LANES, repeats, strides);
#else
    Div(y, one, y, LANES, repeats, strides);
#endif
}

template <class T>
class Route {
   public:
    __aicore__ inline Route(TPipe& pipe, GM_ADDR logits, GM_ADDR bias, GM_ADDR weights, GM_ADDR ids, const RouteTiling& tiling) : tiling_(tiling) {
        first_ = GetBlockIdx() * tiling.tokens_a_core;
        last_ = first_ + tiling.tokens_a_core < tiling.tokens ? first_ + tiling.tokens_a_core : tiling.tokens;
        logits_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(logits));
        bias_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(bias));
        weights_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(weights));
        ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(ids));
        const uint32_t rows = tiling.rows_a_tile, scores = rows * tiling.pitch, chosen = rows * tiling.chosen_pitch;
        in_pitch_ = (tiling.experts * sizeof(T) + 31) / 32 * 32 / sizeof(T);
        pipe.InitBuffer(in_, 2, rows * in_pitch_ * sizeof(T));
        pipe.InitBuffer(bias_in_, tiling.experts * sizeof(float));
        pipe.InitBuffer(out_, 2, chosen * (sizeof(int64_t) + sizeof(T)));
        pipe.InitBuffer(bias_row_, tiling.pitch * sizeof(float));
        pipe.InitBuffer(index_, tiling.pitch * sizeof(int32_t));
        pipe.InitBuffer(one_, BLOCK * sizeof(float));
        pipe.InitBuffer(scores_, scores * sizeof(float));
        pipe.InitBuffer(keys_, scores * sizeof(float));
        pipe.InitBuffer(is_number_, scores / 8);
        pipe.InitBuffer(pairs_, scores * PAIR * sizeof(float));
        pipe.InitBuffer(lists_, scores * PAIR * sizeof(float));
        pipe.InitBuffer(chosen_keys_, chosen * sizeof(float));
        pipe.InitBuffer(chosen_ids_, chosen * sizeof(int32_t));
        pipe.InitBuffer(chosen_offsets_, chosen * sizeof(int32_t));
        pipe.InitBuffer(chosen_, chosen * sizeof(float));
        pipe.InitBuffer(sums_, (rows + BLOCK - 1) / BLOCK * BLOCK * sizeof(float));
        pipe.InitBuffer(sums_by_eight_, (rows + BLOCK - 1) / BLOCK * BLOCK * BLOCK * sizeof(float));
    }

    __aicore__ inline void Process() {
        LoadBias();
        for (int64_t row = first_; row < last_; row += tiling_.rows_a_tile) {
            const uint32_t rows = last_ - row < tiling_.rows_a_tile ? static_cast<uint32_t>(last_ - row) : tiling_.rows_a_tile;
            CopyIn(row, rows);
            Compute(rows);
            CopyOut(row, rows);
        }
    }

   private:
    __aicore__ inline void LoadBias() {
        LocalTensor<float> bias = bias_in_.Get<float>(), row = bias_row_.Get<float>();
        const TEventID loaded = GetTPipePtr()->AllocEventID<HardEvent::MTE2_V>();
        DataCopyPad(bias, bias_, DataCopyExtParams{1, static_cast<uint32_t>(tiling_.experts * sizeof(float)), 0, 0, 0}, DataCopyPadExtParams<float>{});
        SetFlag<HardEvent::MTE2_V>(loaded);
        Duplicate(row, -INFINITY, tiling_.pitch);
        Duplicate(one_.Get<float>(), 1.0f, BLOCK);
        Duplicate(scores_.Get<float>(), 0.0f, tiling_.rows_a_tile * tiling_.pitch);  // lanes behind the last expert
        Duplicate(sums_.Get<float>(), 1.0f, (tiling_.rows_a_tile + BLOCK - 1) / BLOCK * BLOCK);  // Brcb takes eight
        CreateVecIndex(index_.Get<int32_t>(), 0, tiling_.pitch);
        WaitFlag<HardEvent::MTE2_V>(loaded);
        GetTPipePtr()->ReleaseEventID<HardEvent::MTE2_V>(loaded);
        PipeBarrier<PIPE_V>();
        Adds(row, bias, 0.0f, tiling_.experts);
    }

    __aicore__ inline void CopyIn(int64_t row, uint32_t rows) {
        LocalTensor<T> logits = in_.template AllocTensor<T>();
        DataCopyPad(logits, logits_[row * tiling_.experts], DataCopyExtParams{static_cast<uint16_t>(rows), static_cast<uint32_t>(tiling_.experts * sizeof(T)), 0, 0, 0},
                    DataCopyPadExtParams<T>{});
        in_.EnQue(logits);
    }

    __aicore__ inline void Compute(uint32_t rows) {
        Score(rows);
        PipeBarrier<PIPE_V>();
        Choose(rows, Sort(rows));
        PipeBarrier<PIPE_V>();
        LocalTensor<T> out = out_.template AllocTensor<T>();
        Cast(Ids(out), chosen_ids_.Get<int32_t>(), RoundMode::CAST_NONE, rows * tiling_.chosen_pitch);
        Weigh(out, rows);
        out_.EnQue(out);
    }

    /// scores = sigmoid(logits); keys = scores + bias, +infinity for NaN.
    __aicore__ inline void Score(uint32_t rows) {
        const uint32_t pitch = tiling_.pitch, count = rows * pitch;
        LocalTensor<float> scores = scores_.Get<float>(), keys = keys_.Get<float>(), bias = bias_row_.Get<float>();
        LocalTensor<uint8_t> is_number = is_number_.Get<uint8_t>();
        LocalTensor<T> logits = in_.template DeQue<T>();
        for (uint32_t row = 0; row < rows; ++row) {
            if constexpr (is_float)
                Muls(scores[row * pitch], logits[row * in_pitch_], -1.0f, tiling_.experts);
            else
                Cast(scores[row * pitch], logits[row * in_pitch_], RoundMode::CAST_NONE, tiling_.experts);
        }
        in_.FreeTensor(logits);
        PipeBarrier<PIPE_V>();
        if constexpr (!is_float) {
            Muls(scores, scores, -1.0f, count);
            PipeBarrier<PIPE_V>();
        }
        Exp(scores, scores, count);
        PipeBarrier<PIPE_V>();
        Adds(scores, scores, 1.0f, count);
        PipeBarrier<PIPE_V>();
        Invert(scores, one_.Get<float>(), static_cast<uint8_t>(count / LANES));
        PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < rows; ++row) Add(keys[row * pitch], scores[row * pitch], bias, pitch);
        PipeBarrier<PIPE_V>();
        Compare(is_number, keys, keys, CMPMODE::EQ, count);
        PipeBarrier<PIPE_V>();
        Select(keys, is_number, keys, INFINITY, SELMODE::VSEL_TENSOR_SCALAR_MODE, count);
    }

    /// Sorted pairs: those of row r begin at float r * pitch * 2 of the tensor that it returns.
    __aicore__ inline LocalTensor<float> Sort(uint32_t rows) {
        LocalTensor<float> pairs = pairs_.Get<float>(), lists = lists_.Get<float>(), keys = keys_.Get<float>();
        const uint32_t row_pairs = tiling_.pitch * PAIR;
        for (uint32_t row = 0; row < rows; ++row)
            Sort32(pairs[row * row_pairs], keys[row * tiling_.pitch], index_.Get<uint32_t>(), tiling_.pitch / 32);
        PipeBarrier<PIPE_V>();
        Merge(lists, pairs, 4, 32 * PAIR, 32, rows * tiling_.pitch / LIST);
        uint32_t count = tiling_.pitch / LIST, gap = LIST * PAIR;  // lists of a row, floats from one to the next
        while (count > 1) {
            PipeBarrier<PIPE_V>();
            const uint32_t merged_gap = 4 * tiling_.kept * PAIR;
            for (uint32_t row = 0; row < rows; ++row) MergeRow(pairs[row * row_pairs], merged_gap, lists[row * row_pairs], gap, count);
            const LocalTensor<float> merged = pairs;
            pairs = lists;
            lists = merged;
            count = (count + 3) / 4;
            gap = merged_gap;
        }
        return lists;
    }

    /// `count` lists to a quarter of them, in groups of 2 to 4 neighbours.
    __aicore__ inline void MergeRow(const LocalTensor<float>& out, uint32_t out_gap, const LocalTensor<float>& lists, uint32_t gap, uint32_t count) {
        const uint32_t groups = (count + 3) / 4;
        uint32_t list = 0;
        for (uint32_t group = 0; group < groups; ++group) {
            const uint32_t size = count / groups + (group < count % groups ? 1 : 0);
            Merge(out[group * out_gap], lists[list * gap], size, gap, tiling_.kept, 1);
            list += size;
        }
    }

    /// The first `length` pairs of `count` lists, `gap` floats apart, to one list.
    __aicore__ inline void Merge(const LocalTensor<float>& out, const LocalTensor<float>& lists, uint32_t count, uint32_t gap, uint32_t length, uint32_t repeats) {
        MrgSort4Info info;
        for (uint32_t i = 0; i < 4; ++i) info.elementLengths[i] = static_cast<uint16_t>(i < count ? length : 0);
        info.ifExhaustedSuspension = false;
        info.validBit = static_cast<uint16_t>((1 << count) - 1);
        info.repeatTimes = static_cast<uint8_t>(repeats);
        const uint32_t third = count > 2 ? 2 * gap : 0, fourth = count > 3 ? 3 * gap : 0;
        MrgSort(out, MrgSortSrcList<float>(lists, lists[gap], lists[third], lists[fourth]), info);
    }

    /// Ids of the first pairs of each row, and their scores.
    __aicore__ inline void Choose(uint32_t rows, const LocalTensor<float>& sorted) {
        LocalTensor<uint32_t> ids = chosen_ids_.Get<uint32_t>();
        LocalTensor<float> keys = chosen_keys_.Get<float>(), chosen = chosen_.Get<float>(), scores = scores_.Get<float>();
        LocalTensor<int32_t> offsets = chosen_offsets_.Get<int32_t>();
        const uint32_t pitch = tiling_.chosen_pitch;
        PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < rows; ++row) Extract(keys[row * pitch], ids[row * pitch], sorted[row * tiling_.pitch * PAIR], pitch / 32);
        PipeBarrier<PIPE_V>();
        Muls(offsets, ids.ReinterpretCast<int32_t>(), static_cast<int32_t>(sizeof(float)), rows * pitch);
        PipeBarrier<PIPE_V>();
        for (uint32_t row = 0; row < rows; ++row)
            Gather(chosen[row * pitch], scores[row * tiling_.pitch], offsets[row * pitch].ReinterpretCast<uint32_t>(), 0u, tiling_.top_k);
    }

    /// out = chosen scores, over their sum when renormalized, times the scale.
    __aicore__ inline void Weigh(const LocalTensor<T>& out, uint32_t rows) {
        LocalTensor<float> chosen = chosen_.Get<float>(), sums = sums_.Get<float>(), by_eight = sums_by_eight_.Get<float>();
        const uint8_t step = static_cast<uint8_t>(tiling_.chosen_pitch / BLOCK);
        const uint64_t count = tiling_.top_k;
        if (tiling_.renormalize) {
            WholeReduceSum(sums, chosen, count, rows, 1, 1, step);
            PipeBarrier<PIPE_V>();
            Adds(sums, sums, 1e-20f, rows);
            PipeBarrier<PIPE_V>();
            Brcb(by_eight, sums, static_cast<uint8_t>((rows + BLOCK - 1) / BLOCK), {1, BLOCK});
            PipeBarrier<PIPE_V>();
            Div(chosen, chosen, by_eight, count, rows, BinaryRepeatParams{1, 1, 0, step, step, 1});
            PipeBarrier<PIPE_V>();
        }
        if constexpr (is_float) {
            Muls(out, chosen, tiling_.scale, count, rows, UnaryRepeatParams{1, 1, step, step});
        } else {
            Muls(chosen, chosen, tiling_.scale, count, rows, UnaryRepeatParams{1, 1, step, step});
            PipeBarrier<PIPE_V>();
            Cast(out, chosen, RoundMode::CAST_RINT, count, rows, UnaryRepeatParams{1, 1, static_cast<uint8_t>(step / 2), step});
        }
    }

    __aicore__ inline LocalTensor<int64_t> Ids(const LocalTensor<T>& out) const {
        return out[tiling_.rows_a_tile * tiling_.chosen_pitch].template ReinterpretCast<int64_t>();
    }

    /// Rows of top_k elements, `chosen_pitch` apart in UB.
    template <class U>
    __aicore__ inline DataCopyExtParams Chosen(uint32_t rows) const {
        const uint32_t bytes = tiling_.top_k * sizeof(U), gap = tiling_.chosen_pitch * sizeof(U) - (bytes + 31) / 32 * 32;
        return DataCopyExtParams{static_cast<uint16_t>(rows), bytes, gap / 32, 0, 0};
    }

    __aicore__ inline void CopyOut(int64_t row, uint32_t rows) {
        LocalTensor<T> out = out_.template DeQue<T>();
        DataCopyPad(weights_[row * tiling_.top_k], out, Chosen<T>(rows));
        DataCopyPad(ids_[row * tiling_.top_k], Ids(out), Chosen<int64_t>(rows));
        out_.FreeTensor(out);
    }

    static constexpr bool is_float = std::is_same_v<T, float>;
    RouteTiling tiling_;
    int64_t first_ = 0, last_ = 0;
    uint32_t in_pitch_ = 0;
    GlobalTensor<T> logits_, weights_;
    GlobalTensor<float> bias_;
    GlobalTensor<int64_t> ids_;
    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> bias_in_, bias_row_, index_, one_, scores_, keys_, is_number_, pairs_, lists_, chosen_keys_, chosen_ids_, chosen_offsets_, chosen_, sums_,
        sums_by_eight_;
};

}  // namespace ascend_k3

extern "C" __global__ __aicore__ void route(GM_ADDR logits, GM_ADDR bias, GM_ADDR weights, GM_ADDR ids, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GET_TILING_DATA_WITH_STRUCT(RouteTiling, data, tiling);
    AscendC::TPipe pipe;
    ascend_k3::Route<DTYPE>(pipe, logits, bias, weights, ids, data).Process();
}
