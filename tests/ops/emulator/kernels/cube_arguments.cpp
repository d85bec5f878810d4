// Calls with numbers that the cube core's instructions do not take, one a case; see test_cube_refused.py.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void cube_arguments(GM_ADDR in, int32_t which) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    if ASCEND_IS_AIC {
        GlobalTensor<half> gm;
        gm.SetGlobalBuffer((__gm__ half*)in);
        LocalTensor<half> l1(TPosition::A1, 0, 4096), a(TPosition::A2, 0, 4096), b(TPosition::B2, 0, 4096);
        LocalTensor<float> c(TPosition::CO1, 0, 4096), bias(TPosition::C2, 0, 64), l1_float(TPosition::C1, 0, 64);
        LocalTensor<int8_t> bytes1(TPosition::A1, 0, 4096), bytes(TPosition::A2, 0, 4096);
        LoadData3DParamsV2<half> image;
        image.l1H = 1, image.l1W = 16, image.channelSize = 16, image.kExtension = 16, image.mExtension = 16;
#if __NPU_ARCH__ == 3510
        if (which != 17) SetLoadDataRepeat({0, 1, 0, 1});
#endif
        MmadParams product(16, 16, 16, 0, false, true);
        switch (which) {
            case 0: DataCopy(l1, gm, Nd2NzParams(4096, 1, 16, 0, 16, 1, 1, 0)); break;
            case 1: DataCopy(l1, gm, Nd2NzParams(1, 16385, 16, 0, 16, 1, 1, 0)); break;
            case 2: DataCopy(l1, gm, Nd2NzParams(1, 16, 16, 0, 0, 16, 1, 0)); break;
            case 3: DataCopy(l1, gm, Nd2NzParams(1, 16, 32, 0, 32, 8, 1, 0)); break;
            case 4: DataCopy(a, gm, Nd2NzParams(1, 16, 16, 0, 16, 16, 1, 0)); break;
            case 5: DataCopy(l1[8], gm, Nd2NzParams(1, 16, 16, 0, 16, 16, 1, 0)); break;
            case 6: LoadData(bytes, bytes1, LoadData2DParams(0, 1, 1, 0, 0, true, 0)); break;
            case 7: LoadData(c.ReinterpretCast<half>(), l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0)); break;
            case 8: LoadData(a[16], l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0)); break;
            case 9:
                product.m = 4096;
                Mmad(c, a, b, product);
                break;
            case 10:
                product.unitFlag = 1;
                Mmad(c, a, b, product);
                break;
            case 11: Mmad(c[16], a, b, product); break;
            case 12: Mmad(c, b, a, product); break;
            case 13:
                image.channelSize = 20;
                LoadData(a, l1, image);
                break;
            case 14:
                image.kExtension = 32;
                LoadData(a, l1, image);
                break;
            case 15:
                image.mExtension = 32;
                LoadData(a, l1, image);
                break;
            case 16:
                image.kStartPt = 8;
                LoadData(a, l1, image);
                break;
            case 17: LoadData(a, l1, image); break;  // dav-3510: no dstStride
            case 18: DataCopy(bias, l1_float[8], DataCopyParams(1, __NPU_ARCH__ == 3510 ? 1 : 64, 0, 0)); break;
            case 19: DataCopy(a, l1, 256); break;
            case 20: Mmad(c, a, b, product); break;  // nothing was loaded
            case 21:
                product.k = 0;
                Mmad(c, a, b, product);
                break;                                                                       // documented: no operation
            case 23: DataCopy(l1, LocalTensor<half>(TPosition::VECIN, 0, 256), 256); break;  // a cube core has no UB
            case 24:  // one fractal of each is loaded, and more is used
            case 25:
                Fill(l1, {1, 16, 0, half(1)});
                SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
                WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
                LoadData(a, l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
                LoadData(b, l1, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
                SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
                WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
                (which == 24 ? product.k : product.m) = 20;
                Mmad(c, a, b, product);
                break;
            case 22: Fill(b, {1, 1, 0, half(1)}); break;  // dav-3510: L1 only
#if __NPU_ARCH__ == 3510
            case 30: LoadData(bytes, bytes1, LoadData2DParamsV2(0, 0, 1, 1, 1, 1, true, 0)); break;
            case 31: LoadDataWithTranspose(a, l1, LoadData2dTransposeParams(0, 1, 1, 0, 0)); break;
            case 32:
                product.kDirectionAlign = true;
                Mmad(c, a, b, product);
                break;
            case 33: DataCopyL1ToUB(LocalTensor<half>(TPosition::VECIN, 0, 256), l1, 256); break;
            case 34: {
                LocalTensor<fp8_e4m3fn_t> left(TPosition::A2, 512, 512), right(TPosition::B2, 0, 512);
                MmadMx(c, left, right, MmadParams(16, 16, 64, 0, false, true));
                break;
            }
            case 35: {
                LocalTensor<fp8_e4m3fn_t> left(TPosition::A2, 0, 512), right(TPosition::B2, 0, 512);
                MmadMx(c, left, right, MmadParams(16, 16, 32, 0, false, true));
                break;
            }
#endif
        }
    }
}
