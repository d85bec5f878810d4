// What a compiler has to refuse: one call a CASE; see test_cube_refused.py.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void cube_refused(GM_ADDR in) {
    GlobalTensor<half> gm;
    GlobalTensor<int64_t> wide;
    gm.SetGlobalBuffer((__gm__ half*)in), wide.SetGlobalBuffer((__gm__ int64_t*)in);
    LocalTensor<half> l1(TPosition::A1, 0, 256), a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256),
        ub(TPosition::VECIN, 0, 256);
    LocalTensor<bfloat16_t> other(TPosition::B2, 0, 256);
    LocalTensor<float> c(TPosition::CO1, 0, 256), bias(TPosition::C2, 0, 64);
    LocalTensor<int32_t> whole(TPosition::CO1, 0, 256);
    LocalTensor<int64_t> l1_wide(TPosition::A1, 0, 256);
    LocalTensor<int8_t> bytes(TPosition::A1, 0, 256);
    (void)gm, (void)wide, (void)l1, (void)a, (void)b, (void)ub, (void)other, (void)c, (void)bias, (void)whole,
        (void)l1_wide, (void)bytes;
#if CASE == 0
    Mmad(c, a, other, MmadParams(16, 16, 16, 0, false, true));  // half with bfloat16
#elif CASE == 1
    Mmad(whole, a, b, MmadParams(16, 16, 16, 0, false, true));  // half to int32
#elif CASE == 2
    DataCopy(l1_wide, wide, Nd2NzParams(1, 16, 16, 0, 16, 16, 1, 0));
#elif CASE == 3
    Fill(bytes, InitConstValueParams<int8_t>(1, 1, 0, 1));
#elif CASE == 4
    MmadMx(c, a, b, MmadParams(16, 16, 64, 0, false, true));
#elif CASE == 5  // without effect on dav-2201
    Fixpipe<half, float, CFG_ROW_MAJOR>(l1, c, FixpipeParamsV220(16, 16, 16, 16, false));
#elif CASE == 6  // dav-3510 only
    LoadData(a, l1, LoadData2DParamsV2(0, 0, 1, 1, 1, 1, false, 0));
#elif CASE == 7
    DataCopy(l1, gm, Dn2NzParams(1, 16, 16, 0, 16, 16, 1, 0));
#elif CASE == 8
    DataCopyL1ToUB(ub, l1, 256);
#elif CASE == 9
    LocalTensor<fp8_e4m3fn_t> left(TPosition::A2, 0, 512), right(TPosition::B2, 0, 512);
    Mmad(c, left, right, MmadParams(16, 16, 32, 0, false, true));
#elif CASE == 10
    Fixpipe<float, float, CFG_ROW_MAJOR>(GlobalTensor<float>(), c,
                                         FixpipeParamsArch3510<CO2Layout::ROW_MAJOR>(16, 16, 16, 16));
#elif CASE == 11
    LocalTensor<float> to_l1(TPosition::A1, 0, 256);
    Fixpipe<float, float, CFG_NZ>(to_l1, c,
                                  FixpipeParamsV220(16, 16, 16, 16, false));  // float stays out of L1 on dav-2201
#elif CASE == 12
    LocalTensor<fp4x2_e2m1_t> left(TPosition::A2, 0, 512);
    LocalTensor<fp8_e4m3fn_t> right(TPosition::B2, 0, 512);
    MmadMx(c, left, right, MmadParams(16, 16, 64, 0, false, true));  // fp4 with fp8
#endif
}
