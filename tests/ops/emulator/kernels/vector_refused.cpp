// Calls with element types that the SoC does not have for them; see test_vector_refused.py.
#include "kernel_operator.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void vector_refused() {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    LocalTensor<bfloat16_t> brain;
    LocalTensor<int64_t> longs;
    LocalTensor<int8_t> bytes;
    LocalTensor<float> floats;
#if __NPU_ARCH__ == 2201
    Add(brain, brain, brain, 8);
    Muls(longs, longs, int64_t(2), 8);
    Duplicate(bytes, int8_t(1), 8);
#else
    Exp(brain, brain, 8);
    Adds(longs, longs, int64_t(2), 8, 1, {1, 1, 8, 8});
    Mul(bytes, bytes, bytes, 8);
#endif
    Cast(bytes, floats, RoundMode::CAST_RINT, 8);
}
