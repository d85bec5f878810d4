// C[m, n] = A[m, k] x B[k, n] in bfloat16 with sums in float32: tiles of 128 x 256, two buffers in L1 and in L0.
#include "kernel_operator.h"

using namespace AscendC;

struct Shape {
    int32_t m, n, k;  // multiples of 128, 256 and 256
};

class Matmul {
    static constexpr int32_t M = 128, N = 256, K1 = 256, K0 = 64, FRACTAL = 16 * 16;

   public:
    __aicore__ inline void Run(GM_ADDR a, GM_ADDR b, GM_ADDR c, const Shape& given) {
        shape = given;
        aGm.SetGlobalBuffer((__gm__ bfloat16_t*)a, static_cast<uint64_t>(shape.m) * shape.k);
        bGm.SetGlobalBuffer((__gm__ bfloat16_t*)b, static_cast<uint64_t>(shape.k) * shape.n);
        cGm.SetGlobalBuffer((__gm__ bfloat16_t*)c, static_cast<uint64_t>(shape.m) * shape.n);
        for (int32_t i = 0; i < 2; ++i) {
            SetFlag<HardEvent::MTE1_MTE2>(i);
            SetFlag<HardEvent::M_MTE1>(i);
        }
        SetFlag<HardEvent::FIX_M>(EVENT_ID0);
        const int32_t across = shape.n / N, tiles = shape.m / M * across;
        for (int32_t tile = GetBlockIdx(); tile < tiles; tile += GetBlockNum())
            Tile(tile / across * M, tile % across * N);
        WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
        for (int32_t i = 0; i < 2; ++i) {
            WaitFlag<HardEvent::M_MTE1>(i);
            WaitFlag<HardEvent::MTE1_MTE2>(i);
        }
    }

   private:
    __aicore__ inline void Tile(int32_t row, int32_t column) {
        WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
        for (int32_t k = 0; k < shape.k; k += K1) {
            const int32_t half = in1;
            in1 = 1 - in1;
            LocalTensor<bfloat16_t> a1(TPosition::A1, half * M * K1 * 2, M * K1),
                b1(TPosition::B1, 2 * M * K1 * 2 + half * K1 * N * 2, K1 * N);
            WaitFlag<HardEvent::MTE1_MTE2>(half);
            DataCopy(a1, aGm[static_cast<int64_t>(row) * shape.k + k], Nd2NzParams(1, M, K1, 0, shape.k, M, 1, 0));
            DataCopy(b1, bGm[static_cast<int64_t>(k) * shape.n + column], Nd2NzParams(1, K1, N, 0, shape.n, K1, 1, 0));
            SetFlag<HardEvent::MTE2_MTE1>(half);
            WaitFlag<HardEvent::MTE2_MTE1>(half);
            for (int32_t step = 0; step < K1 / K0; ++step) Step(a1, b1, step, k == 0 && step == 0);
            SetFlag<HardEvent::MTE1_MTE2>(half);
        }
        SetFlag<HardEvent::M_FIX>(EVENT_ID0);
        WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
        LocalTensor<float> c0(TPosition::CO1, 0, M * N);
#if __NPU_ARCH__ == 3510
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> out(N, M, M, shape.n);
#else
        FixpipeParamsV220 out(N, M, M, shape.n, false);
#endif
        out.quantPre = QuantMode_t::F322BF16;
        Fixpipe<bfloat16_t, float, CFG_ROW_MAJOR>(cGm[static_cast<int64_t>(row) * shape.n + column], c0, out);
        SetFlag<HardEvent::FIX_M>(EVENT_ID0);
    }

    __aicore__ inline void Step(const LocalTensor<bfloat16_t>& a1, const LocalTensor<bfloat16_t>& b1, int32_t step,
                                bool first) {
        const int32_t half = in0;
        in0 = 1 - in0;
        LocalTensor<bfloat16_t> a0(TPosition::A2, half * M * K0 * 2, M * K0),
            b0(TPosition::B2, half * K0 * N * 2, K0 * N);
        LocalTensor<float> c0(TPosition::CO1, 0, M * N);
        WaitFlag<HardEvent::M_MTE1>(half);
#if __NPU_ARCH__ == 3510
        LoadData(a0, a1, LoadData2DParamsV2(0, step * K0 / 16, M / 16, K0 / 16, M / 16, M / 16, false, 0));
        LoadData(b0, b1, LoadData2DParamsV2(step * K0 / 16, 0, K0 / 16, N / 16, K1 / 16, N / 16, true, 0));
#else
        for (int32_t i = 0; i < M / 16; ++i)
            LoadData(a0[i * K0 / 16 * FRACTAL], a1[(step * K0 / 16 * M / 16 + i) * FRACTAL],
                     LoadData2DParams(0, K0 / 16, M / 16, 0, 0, false, 0));
        for (int32_t i = 0; i < K0 / 16; ++i)
            LoadData(b0[i * N / 16 * FRACTAL], b1[(step * K0 / 16 + i) * FRACTAL],
                     LoadData2DParams(0, N / 16, K1 / 16, 0, 0, true, 0));
#endif
        SetFlag<HardEvent::MTE1_M>(half);
        WaitFlag<HardEvent::MTE1_M>(half);
        Mmad(c0, a0, b0, MmadParams(M, N, K0, 0, false, first));
        SetFlag<HardEvent::M_MTE1>(half);
    }

    Shape shape;
    int32_t in1 = 0, in0 = 0;
    GlobalTensor<bfloat16_t> aGm, bGm, cGm;
};

extern "C" __global__ __aicore__ void cube_matmul(GM_ADDR a, GM_ADDR b, GM_ADDR c, Shape shape) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    if ASCEND_IS_AIC {
        Matmul().Run(a, b, c, shape);
    }
}
