// The gradient of Kimi Delta Attention over whole sequences (docs/kda.md): each block takes a head of a sequence, its chunks
// forwards for the states, then backwards.
// DTYPE of q, k, v, g and o: bfloat16_t or float; BETA of beta: the same, or float; WIDTH of the heads: 64 or 128.
#include "backward_cube.h"
#include "backward_vector.h"

extern "C" __global__ __aicore__ void kda_backward(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets,
                                                   GM_ADDR initial, GM_ADDR do_, GM_ADDR dfinal, GM_ADDR dq, GM_ADDR dk, GM_ADDR dv, GM_ADDR dg, GM_ADDR dbeta,
                                                   GM_ADDR dA_log, GM_ADDR ddt_bias, GM_ADDR dinitial, GM_ADDR workspace, GM_ADDR tiling_data) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    GET_TILING_DATA_WITH_STRUCT(KdaTiling, tiling, tiling_data);
    if ASCEND_IS_AIC {
        ascend_k3::KdaGradientCube<WIDTH>().Run(offsets, workspace, tiling);
    }
    if ASCEND_IS_AIV {
        const ascend_k3::KdaGradients memory{v, g, initial, do_, dfinal, dq, dk, dv, dg, dbeta, dA_log, ddt_bias, dinitial};
        ascend_k3::KdaGradientVector<DTYPE, BETA, WIDTH>().Run(q, k, g, beta, A_log, dt_bias, offsets, memory, workspace, tiling);
    }
}
