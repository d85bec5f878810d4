// Less common ways into L0 and the unit flags, one a case; what L0A or L0B holds is shown by a product with the
// identity; see test_cube_loads.py.
#include "kernel_operator.h"

using namespace AscendC;

struct Args {
    int32_t which, m, k;
    int32_t start, stride, gap;                                             // of LoadData 2D
    int32_t height, width, channels, filter, step, dilation, pad, k_start;  // of LoadData 3D
    float padding;
};

enum {
    START_INDEX,
    GM_TO_L1,
    GM_TO_L0,
    IMAGE,
    SQUARES,
    SQUARES_V2,
    FILL,
    CLEAR_UNITS,
    NO_UNITS,
    FIXPIPE_BUFFER,
    REPEATS
};

extern "C" __global__ __aicore__ void cube_loads(GM_ADDR in, GM_ADDR identity, GM_ADDR out, Args p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    if ASCEND_IS_AIC {
        GlobalTensor<half> gm, unit;
        GlobalTensor<float> shown;
        gm.SetGlobalBuffer((__gm__ half*)in), unit.SetGlobalBuffer((__gm__ half*)identity),
            shown.SetGlobalBuffer((__gm__ float*)out);
        LocalTensor<half> l1(TPosition::A1, 0, 64 * 1024), unit1(TPosition::B1, 128 * 1024, 64 * 1024),
            a(TPosition::A2, 0, 32 * 1024), b(TPosition::B2, 0, 32 * 1024);
        LocalTensor<float> c(TPosition::CO1, 0, 32 * 1024);
        const bool right = p.which == SQUARES || p.which == SQUARES_V2;  // what is shown lies in L0B
        const int32_t side = right ? p.m : p.k;                          // of the identity
        DataCopy(unit1, unit, Nd2NzParams(1, side, side, 0, side, side, 1, 0));
        LoadData2DParams load(p.start, p.m / 16 * (p.k / 16), p.stride, 0, p.gap, false, 0);
        if (p.which == GM_TO_L1) {
            load.addrMode = 1, load.dstGap = 0;
            LoadData(l1, gm, load);
            load = LoadData2DParams(0, p.m / 16 * (p.k / 16), 1, 0, 0, false, 0);
#if __NPU_ARCH__ == 2201
        } else if (p.which == GM_TO_L0) {
            LoadData(a, gm, load);
            SetFlag<HardEvent::MTE2_M>(EVENT_ID1);
            WaitFlag<HardEvent::MTE2_M>(EVENT_ID1);
#endif
        } else {
            DataCopy(l1, gm, 32 * 1024);
        }
        SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        if (p.which == START_INDEX || p.which == GM_TO_L1 || p.which >= CLEAR_UNITS) LoadData(a, l1, load);
        if (p.which == IMAGE || p.which == REPEATS) {
            SetLoadDataPaddingValue(half(p.padding));
            const uint8_t pads[4] = {static_cast<uint8_t>(p.pad), static_cast<uint8_t>(p.pad),
                                     static_cast<uint8_t>(p.pad), static_cast<uint8_t>(p.pad)};
            SetFmatrix(p.height, p.width, pads, FmatrixMode::FMATRIX_LEFT);
            SetLoadDataRepeat(LoadDataRepeatParam(1, p.which == REPEATS ? 2 : 1, 0, (p.m + 15) / 16));
            LoadData3DParamsV2<half> q;
            q.channelSize = p.channels, q.kExtension = p.k, q.mExtension = p.m, q.kStartPt = p.k_start;
            q.filterW = q.filterH = p.filter, q.strideW = q.strideH = p.step,
            q.dilationFilterW = q.dilationFilterH = p.dilation;
            static constexpr IsResetLoad3dConfig KEEP = {false, false};
            LoadData<half, KEEP>(a, l1, q);
        }
        if (p.which == SQUARES)
            LoadDataWithTranspose(b, l1, LoadData2dTransposeParams(p.start, p.k / 16, p.stride, p.gap, 0));
#if __NPU_ARCH__ == 3510
        if (p.which == SQUARES_V2)
            LoadDataWithTranspose(b, l1, LoadData2dTransposeParamsV2(p.start, p.k / 16, p.stride, p.gap, 0, 0));
#else
        if (p.which == FILL) {
            Fill(a, {1, static_cast<uint16_t>(p.k / 16), 0, half(1)});
            PipeBarrier<PIPE_MTE1>();
            Fill(a[256], {2, 1, 1, half(3)});  // every other fractal from the second on
        }
#endif
        LoadData(right ? a : b, unit1, LoadData2DParams(0, side / 16 * (side / 16), 1, 0, 0, false, 0));
        SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
        WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
        MmadParams product(p.m, p.k, right ? p.m : p.k, p.which == CLEAR_UNITS ? 3 : 0, false, true);
        Mmad(c, a, b, product);
        SetFlag<HardEvent::M_FIX>(EVENT_ID0);
        WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
        if (p.which == FIXPIPE_BUFFER) {
            LocalTensor<uint64_t> factors1(TPosition::C1, 0, 64), factors(TPosition::C2PIPE2GM, 0, 64);
            SetFlag<HardEvent::MTE2_FIX>(EVENT_ID0);
            WaitFlag<HardEvent::MTE2_FIX>(EVENT_ID0);
            DataCopy(factors, factors1, DataCopyParams(1, __NPU_ARCH__ == 3510 ? 8 : 4, 0, 0));
        }
        if (p.which == CLEAR_UNITS) SetFixPipeConfig(c, true);
#if __NPU_ARCH__ == 3510
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> store(p.k, p.m, (p.m + 15) / 16 * 16, p.k);
#else
        FixpipeParamsV220 store(p.k, p.m, (p.m + 15) / 16 * 16, p.k, false);
#endif
        if (p.which == NO_UNITS) store.unitFlag = 3;
        Fixpipe<float, float, CFG_ROW_MAJOR>(shown, c, store);
    }
}
