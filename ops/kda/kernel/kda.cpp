// Kimi Delta Attention over whole sequences, in chunks of 64 tokens (docs/kda.md).
//
// A block of one cube core and two vector cores takes a head of a sequence from its first chunk to its last; each vector core
// has half of the channels.
// DTYPE of q, k, v, g and o: bfloat16_t or float; BETA of beta: the same, or float; WIDTH of the heads: 64 or 128.
#include "cube.h"
#include "vector.h"

extern "C" __global__ __aicore__ void kda(GM_ADDR q, GM_ADDR k, GM_ADDR v, GM_ADDR g, GM_ADDR beta, GM_ADDR A_log, GM_ADDR dt_bias, GM_ADDR offsets,
                                          GM_ADDR initial, GM_ADDR o, GM_ADDR final, GM_ADDR workspace, GM_ADDR tiling_data) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    GET_TILING_DATA_WITH_STRUCT(KdaTiling, tiling, tiling_data);
    if ASCEND_IS_AIC {
        ascend_k3::KdaCube<DTYPE, WIDTH>().Run(v, offsets, o, final, workspace, tiling);
    }
    if ASCEND_IS_AIV {
        ascend_k3::KdaVector<DTYPE, BETA, WIDTH>().Run(q, k, g, beta, A_log, dt_bias, offsets, initial, final, workspace, tiling);
    }
}
