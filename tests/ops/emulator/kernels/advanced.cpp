// Advanced calls; see test_advanced.py. Region 1 and 2: sources; working memory of `offset` bytes behind the regions, none: the
// TPipe's. repeats x count: the shape, mask[0]: the original columns. Sums of a row: from byte 8192 of dst's region on,
// largest ones from byte 12288 on.
#include "vector_frame.h"

using namespace AscendC;

constexpr SoftmaxConfig constant_shape = {true, 4, 40, SoftmaxMode::SOFTMAX_NORMAL};
constexpr CumSumConfig cumsum_rows = {false, false, true}, cumsum_columns = {true, false, true}, cumsum_plain = {true, false, false};
constexpr CumSumConfig cumsum_halves = {true, false, true, CumSumAlgorithm::CUMSUM_ALGORITHM_SKLANSKY};
constexpr CumSumConfig cumsum_row_halves = {false, false, true, CumSumAlgorithm::CUMSUM_ALGORITHM_SKLANSKY};

class Advanced {
   public:
    __aicore__ inline Advanced(Frame& frame, const Call& call)
        : frame_(frame), call_(call), room_(TPosition::VECCALC, 5 * REGION, static_cast<uint32_t>(call.offset)) {}

    template <class T>
    __aicore__ inline void Activation() {
        LocalTensor<T> dst = frame_.region<T>(call_.place), a = frame_.region<T>(1), b = frame_.region<T>(2);
        const uint32_t n = static_cast<uint32_t>(call_.count);
        const float beta = scalar_of<float>(call_);
        if (call_.mode == 1) a.SetSize(n), b.SetSize(n);  // the whole tensor
        if (call_.operation == 0) {
            if (call_.offset && call_.mode == 1) Sigmoid(dst, a, room_);
            else if (call_.offset) Sigmoid(dst, a, room_, n);
            else if (call_.mode == 1) Sigmoid(dst, a);
            else Sigmoid(dst, a, n);
        } else {
            if (call_.offset && call_.mode == 1) SwiGLU(dst, a, b, beta, room_);
            else if (call_.offset) SwiGLU(dst, a, b, beta, room_, n);
            else if (call_.mode == 1) SwiGLU(dst, a, b, beta);
            else SwiGLU(dst, a, b, beta, n);
        }
    }

    template <class T>
    __aicore__ inline void Soft() {
        const LocalTensor<T> dst = frame_.region<T>(call_.place), src = frame_.region<T>(1);
        const SoftMaxShapeInfo info{static_cast<uint32_t>(call_.repeats), static_cast<uint32_t>(call_.count), static_cast<uint32_t>(call_.repeats), static_cast<uint32_t>(call_.mask[0])};
        SoftMaxTiling tiling;
        tiling.srcM = info.srcM, tiling.srcK = info.srcK;
        const LocalTensor<T> sum = frame_.region<T>(0)[8192 / sizeof(T)], max = frame_.region<T>(0)[12288 / sizeof(T)];
        switch (call_.mode) {
            case 0:
                if (call_.offset) SoftMax<T>(dst, sum, max, src, room_, tiling, info);
                else SoftMax<T>(dst, sum, max, src, tiling, info);
                break;
            case 1:
                if (call_.offset) SoftMax<T>(dst, src, room_, tiling, info);
                else SoftMax<T>(dst, src, tiling);
                break;
            case 2:
                if constexpr (std::is_same_v<T, half>) {
                    const LocalTensor<float> wide_sum = sum.template ReinterpretCast<float>(), wide_max = max.template ReinterpretCast<float>();
                    if (call_.offset) SoftMax<half>(dst, wide_sum, wide_max, src, room_, tiling, info);
                    else SoftMax<half>(dst, wide_sum, wide_max, src, tiling, info);
                }
                break;
            default:
                if constexpr (is_2201) SoftMax<T, false, false, false, constant_shape>(dst, sum, max, src, room_, tiling, info);
                break;
        }
    }

    template <class T>
    __aicore__ inline void Norm() {
        RmsNormTiling tiling;
        tiling.bLength = 2, tiling.sLength = static_cast<uint32_t>(call_.repeats) / 2;
        tiling.hLength = static_cast<uint32_t>(call_.count), tiling.originalHLength = static_cast<uint32_t>(call_.mask[0]);
        const LocalTensor<T> dst = frame_.region<T>(call_.place), src = frame_.region<T>(1), gamma = frame_.region<T>(2);
        const T epsilon = static_cast<T>(scalar_of<float>(call_));
        if (call_.mode == 1) RmsNorm<T, true>(dst, src, gamma, room_, epsilon, tiling);
        else if (call_.offset) RmsNorm<T>(dst, src, gamma, room_, epsilon, tiling);
        else RmsNorm<T>(dst, src, gamma, epsilon, tiling);
    }

    template <class T>
    __aicore__ inline void Repeat() {
        const LocalTensor<T> dst = frame_.region<T>(call_.place), src = frame_.region<T>(1);
        const uint32_t rows = static_cast<uint32_t>(call_.repeats), columns = static_cast<uint32_t>(call_.count);
        const uint32_t to[2] = {rows, columns}, down[2] = {1, columns}, across[2] = {rows, 1}, one[1] = {1}, line[1] = {columns};
        if (call_.mode == 0) {
            if (call_.offset) Broadcast<T, 2, 0>(dst, src, to, down, room_);
            else Broadcast<T, 2, 0>(dst, src, to, down);
        } else if (call_.mode == 1) {
            if (call_.offset) Broadcast<T, 2, 1>(dst, src, to, across, room_);
            else Broadcast<T, 2, 1>(dst, src, to, across);
        } else if (call_.mode == 2) {
            Broadcast<T, 1, 0>(dst, src, line, one, room_);
        } else {
#if __NPU_ARCH__ == 3510
            const uint32_t wide[4] = {rows, 3, columns, 2}, narrow[4] = {rows, 1, columns, 1};
            BroadcastTiling tiling;
            GetBroadcastTilingInfo<T>(4, wide, narrow, false, tiling);
            Broadcast(dst, src, wide, narrow, &tiling);
#endif
        }
    }

    template <class T, const CumSumConfig& config>
    __aicore__ inline void Sums() {
        LocalTensor<T> dst = frame_.region<T>(call_.place), last = frame_.region<T>(0)[8192 / sizeof(T)];
        const CumSumInfo info{static_cast<uint32_t>(call_.repeats), static_cast<uint32_t>(call_.count)};
        if (call_.mask[0] < 8192) last.SetSize(static_cast<uint32_t>(call_.mask[0]));
        if (call_.offset) CumSum<T, config>(dst, last, frame_.region<T>(1), room_, info);
        else CumSum<T, config>(dst, last, frame_.region<T>(1), info);
    }
    template <class T>
    __aicore__ inline void Sums() {
        switch (call_.mode) {
            case 0: Sums<T, cumsum_rows>(); break;
            case 1: Sums<T, cumsum_columns>(); break;
            case 2: Sums<T, cumsum_plain>(); break;
#if __NPU_ARCH__ == 3510
            case 3: Sums<T, cumsum_halves>(); break;
            case 4: Sums<T, cumsum_row_halves>(); break;
#endif
            default: break;
        }
    }

    template <class T>
    __aicore__ inline void Process() {
        switch (call_.operation) {
            case 0:
            case 1: Activation<T>(); break;
            case 2: Soft<T>(); break;
            case 3: Norm<T>(); break;
            case 4: Repeat<T>(); break;
            default: Sums<T>(); break;
        }
    }


   private:
    Frame& frame_;
    const Call& call_;
    LocalTensor<uint8_t> room_;
};

extern "C" __global__ __aicore__ void advanced(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
    Advanced run(frame, call);
    if (call.operation == 4 && call.type > 1) {
        if (call.type == 2) run.Repeat<int8_t>();
        if (call.type == 3) run.Repeat<uint8_t>();
#if __NPU_ARCH__ == 3510
        if (call.type == 4) run.Repeat<bfloat16_t>();
        if (call.type == 5) run.Repeat<int64_t>();
#endif
    } else if (call.type == 0) {
        run.Process<half>();
    } else {
        run.Process<float>();
    }
    frame.store(out);
}
