// MmadMx: microscaled products, dav-3510; see test_cube_mx.py.
#include "kernel_operator.h"

using namespace AscendC;

struct Args {
    int32_t type, m, n, k;
    int32_t turned_a, turned_b;  // A lies as [k, m], B as [n, k]
    int32_t bias, again;         // again: the product is added a second time
};

__aicore__ inline int32_t up(int32_t value, int32_t unit) { return (value + unit - 1) / unit * unit; }

template <class A, class B, int32_t PACKED>
class Product {
    static constexpr int32_t C0 = 32 * PACKED;

   public:
    __aicore__ inline void Run(GM_ADDR a, GM_ADDR b, GM_ADDR aScales, GM_ADDR bScales, GM_ADDR bias, GM_ADDR c,
                               const Args& p) {
        GlobalTensor<A> aGm;
        GlobalTensor<B> bGm;
        GlobalTensor<half> aScaleGm, bScaleGm;  // two scales are moved as one number of 16 bits
        GlobalTensor<float> biasGm, cGm;
        aGm.SetGlobalBuffer((__gm__ A*)a), bGm.SetGlobalBuffer((__gm__ B*)b),
            biasGm.SetGlobalBuffer((__gm__ float*)bias), cGm.SetGlobalBuffer((__gm__ float*)c);
        aScaleGm.SetGlobalBuffer((__gm__ half*)aScales), bScaleGm.SetGlobalBuffer((__gm__ half*)bScales);
        LocalTensor<A> a1(TPosition::A1, 0, 64 * 1024), a2(TPosition::A2, 0, 64 * 1024);
        LocalTensor<B> b1(TPosition::B1, 64 * 1024, 64 * 1024), b2(TPosition::B2, 0, 64 * 1024);
        LocalTensor<fp8_e8m0_t> as1(TPosition::A1, 128 * 1024, 4096), bs1(TPosition::B1, 132 * 1024, 4096);
        LocalTensor<float> bias1(TPosition::C1, 136 * 1024, 256), bias2(TPosition::C2, 0, 256);
        // What is transposed on its way comes in whole squares of C0: then m or n is a multiple of it.
        const int32_t aRows = p.turned_a ? p.k : p.m, aColumns = p.turned_a ? p.m : p.k, bRows = p.turned_b ? p.n : p.k,
                      bColumns = p.turned_b ? p.k : p.n;
        DataCopy(a1, aGm, Nd2NzParams(1, aRows, aColumns / PACKED, 0, aColumns / PACKED, up(aRows, 16), 1, 0));
        DataCopy(b1, bGm, Nd2NzParams(1, bRows, bColumns / PACKED, 0, bColumns / PACKED, up(bRows, 16), 1, 0));
        // Scales lie as [m, k / 32] and [n, k / 32], of a turned A and an unturned B as [k / 64, m or n, 2].
        Scales(as1, aScaleGm, p.m, p.k / 64, p.turned_a);
        Scales(bs1, bScaleGm, p.n, p.k / 64, !p.turned_b);
        if (p.bias) DataCopy(bias1, biasGm, up(p.n, 16));
        SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        if (p.bias) DataCopy(bias2, bias1, DataCopyParams(1, up(p.n, 16) / 8, 0, 0));
        const uint16_t aHigh = up(aRows, 16) / 16, aWide = up(aColumns, C0) / C0, bHigh = up(bRows, 16) / 16,
                       bWide = up(bColumns, C0) / C0;
        const uint16_t scales = p.k / 64;
        LoadData(a2, a1, as1, LoadData2DParamsV2(0, 0, aHigh, aWide, aHigh, up(p.m, 16) / 16, p.turned_a, 0),
                 LoadData2DMxParams(0, 0, up(p.m, 16) / 16, scales, scales, scales));
        LoadData(b2, b1, bs1, LoadData2DParamsV2(0, 0, bHigh, bWide, bHigh, up(p.n, 16) / 16, !p.turned_b, 0),
                 LoadData2DMxParams(0, 0, up(p.n, 16) / 16, scales, scales, scales));
        SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
        WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
        LocalTensor<float> c0(TPosition::CO1, 0, up(p.m, 16) * up(p.n, 16));
        MmadParams q(p.m, p.n, p.k, 0, false, !p.bias);
        if (p.bias)
            MmadMx(c0, a2, b2, bias2, q);
        else
            MmadMx(c0, a2, b2, q);
        if (p.again) {
            q.cmatrixInitVal = false;
            PipeBarrier<PIPE_M>();
            MmadMx(c0, a2, b2, q);
        }
        SetFlag<HardEvent::M_FIX>(EVENT_ID0);
        WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
        Fixpipe<float, float, CFG_ROW_MAJOR>(cGm, c0,
                                             FixpipeParamsArch3510<CO2Layout::ROW_MAJOR>(p.n, p.m, up(p.m, 16), p.n));
    }

   private:
    __aicore__ inline void Scales(const LocalTensor<fp8_e8m0_t>& local, const GlobalTensor<half>& gm, int32_t rows,
                                  int32_t pairs, bool turned) {
        if (turned)
            DataCopy(local.ReinterpretCast<half>(), gm, Nd2NzParams(1, pairs, rows, 0, rows, pairs, 1, 0));
        else
            DataCopy(local.ReinterpretCast<half>(), gm, Dn2NzParams(1, pairs, rows, 0, pairs, pairs, 1, 0));
    }
};

extern "C" __global__ __aicore__ void cube_mx(GM_ADDR a, GM_ADDR b, GM_ADDR aScales, GM_ADDR bScales, GM_ADDR bias,
                                              GM_ADDR c, Args args) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    if ASCEND_IS_AIC {
        switch (args.type) {
            case 0: Product<fp4x2_e2m1_t, fp4x2_e2m1_t, 2>().Run(a, b, aScales, bScales, bias, c, args); break;
            case 1: Product<fp4x2_e1m2_t, fp4x2_e2m1_t, 2>().Run(a, b, aScales, bScales, bias, c, args); break;
            case 2: Product<fp4x2_e2m1_t, fp4x2_e1m2_t, 2>().Run(a, b, aScales, bScales, bias, c, args); break;
            case 3: Product<fp8_e4m3fn_t, fp8_e4m3fn_t, 1>().Run(a, b, aScales, bScales, bias, c, args); break;
            case 4: Product<fp8_e4m3fn_t, fp8_e5m2_t, 1>().Run(a, b, aScales, bScales, bias, c, args); break;
            case 5: Product<fp8_e5m2_t, fp8_e4m3fn_t, 1>().Run(a, b, aScales, bScales, bias, c, args); break;
        }
    }
}
