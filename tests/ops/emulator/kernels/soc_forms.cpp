// Paths and forms that one SoC has and the other has not; see test_soc_forms.py.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { l1_out, l1_out_blocks, l1_out_padded, l1_out_odd, to_l0, boundary };

extern "C" __global__ __aicore__ void soc_forms(GM_ADDR x_address, GM_ADDR y_address, int32_t op) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    GlobalTensor<half> x, y;
    x.SetGlobalBuffer((__gm__ half*)x_address);
    y.SetGlobalBuffer((__gm__ half*)y_address);
    LocalTensor<half> l1(TPosition::A1, 0, 1024), l0(TPosition::A2, 0, 1024);
    if (op == l1_out_odd) y.SetGlobalBuffer((__gm__ half*)(y_address + 3));
    DataCopy(l1, x, 1024);
    SetFlag<HardEvent::MTE2_MTE3>(0);
    WaitFlag<HardEvent::MTE2_MTE3>(0);
    switch (op) {
        case l1_out_odd:
        case l1_out: DataCopy(y, l1, 512); break;                                                  // @l1_out
        case l1_out_blocks: DataCopy(y, l1, DataCopyParams(3, 2, 1, 4)); break;                    // @l1_out_blocks
        case l1_out_padded: DataCopyPad(y, l1, DataCopyExtParams(1, 100, 0, 0, 0)); break;         // @l1_out_padded
        case to_l0: LoadData(l0, x, LoadData2DParams(0, 1, 1, 0, 0, false, 0)); break;             // @to_l0
        case boundary: SetLoadDataBoundary(0); break;                                              // @boundary
        default: break;
    }
}
