// How rows are shared among vector cores, and how many of them are in UB at a time.
#pragma once

#include "ascend_k3/platform.h"

struct NormTiling {
    int64_t rows;           // of the tensor
    int64_t rows_a_core;    // the last core may have fewer
    uint32_t width;         // elements of a row
    uint32_t pitch;         // elements from row to row in UB: rows begin at 32 bytes
    uint32_t rows_a_tile;   // in UB at a time
    float eps;
};

// Up to this width many short rows are reduced together, lane by lane; a longer row is reduced by itself.
constexpr uint32_t SHORT_ROW = 256;

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: rows, width, bytes an element, operands in UB a row (2 for x and y, 3 with a gate). numbers: eps.
inline bool tile_rms_norm(const Platform& platform, const int64_t* sizes, const double* numbers, NormTiling& out, Launch& launch) {
    const int64_t rows = sizes[0], width = sizes[1], element = sizes[2], operands = sizes[3];
    if (rows < 1 || width < 1) return refuse(launch, "x has %lld rows of %lld elements; both have to be at least 1", (long long)rows, (long long)width);
    const int64_t pitch = round_up(width * element, 32) / element;
    // float works in the queues' buffers and on the weight as it is; 16-bit types have float copies of the inputs.
    const int64_t copies = element == 4 ? 0 : operands - 1;
    const int64_t a_row = operands * 2 * pitch * element + copies * pitch * 4;
    const int64_t fixed = pitch * element + (element == 4 ? 1 : 2) * round_up(pitch * 4, 256) + 4 * 1024;
    const int64_t most = width <= SHORT_ROW ? 64 : 4;
    const int64_t fit = (platform.ub - fixed) / (a_row + 320);
    if (platform.ub < fixed || fit < 1)
        return refuse(launch, "a row of %lld elements does not fit into UB of %u bytes", (long long)width, platform.ub);
    out.rows = rows;
    out.width = static_cast<uint32_t>(width);
    out.pitch = static_cast<uint32_t>(pitch);
    out.eps = static_cast<float>(numbers[0]);
    out.rows_a_core = ceil_div(rows, platform.vector_cores);
    out.rows_a_tile = static_cast<uint32_t>(at_most(at_most(fit, most), out.rows_a_core));
    launch.block_dim = static_cast<uint32_t>(ceil_div(rows, out.rows_a_core));
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(rms_norm, NormTiling, ascend_k3::tile_rms_norm)
ASCEND_K3_TILING(rms_norm_gated, NormTiling, ascend_k3::tile_rms_norm)
