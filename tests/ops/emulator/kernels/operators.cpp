// dst = src0 op src1 on whole tensors; see test_operators.py.
#include "kernel_operator.h"
using namespace AscendC;

constexpr uint32_t N = 256;

template <class T>
__aicore__ inline void Run(GM_ADDR x_address, GM_ADDR z_address, GM_ADDR y_address, int32_t op, uint32_t count) {
    GlobalTensor<T> x, z, y;
    x.SetGlobalBuffer((__gm__ T*)x_address);
    z.SetGlobalBuffer((__gm__ T*)z_address);
    y.SetGlobalBuffer((__gm__ T*)y_address);
    LocalTensor<T> a(TPosition::VECIN, 0, N), b(TPosition::VECIN, 4096, N), whole(TPosition::VECOUT, 8192, N), dst(TPosition::VECOUT, 8192, count);
    LocalTensor<uint8_t> bits = whole.template ReinterpretCast<uint8_t>();
    DataCopy(a, x, N);
    DataCopy(b, z, N);
    DataCopy(whole, y, N);
    PipeBarrier<PIPE_ALL>();
    if constexpr (std::is_integral_v<T>) {
        if (op == 4) dst = a & b;
        if (op == 5) dst = a | b;
    } else {
        switch (op) {
            case 0: dst = a + b; break;  // @plus
            case 1: dst = a - b; break;
            case 2: dst = a * b; break;
            case 3: dst = a / b; break;
            case 6: bits = a < b; break;
            case 7: bits = a > b; break;
            case 8: bits = a <= b; break;
            case 9: bits = a >= b; break;
            case 10: bits = a == b; break;
            case 11: bits = a != b; break;
            case 12:  // an element, as a value and as a place
                dst(3) = a(2);
                dst(4) = dst(3) + b(2);
                break;
            case 13:  // words of 32 bits as twice as many of 16
                And(whole.template ReinterpretCast<int16_t>(), a.template ReinterpretCast<int16_t>(), b.template ReinterpretCast<int16_t>(), 2 * N);
                break;
            default: break;
        }
    }
    PipeBarrier<PIPE_ALL>();
    DataCopy(y, whole, N);
}

extern "C" __global__ __aicore__ void operators(GM_ADDR x, GM_ADDR z, GM_ADDR y, int32_t op, uint32_t count) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    if (op == 4 || op == 5) Run<int16_t>(x, z, y, op, count);
    else Run<float>(x, z, y, op, count);
}
