// How gate and up are cut into tiles: some whole rows, or a part of one row.
#pragma once

#include "../../mx/kernel/tiling.h"
#include "ascend_k3/platform.h"

struct SituTiling {
    int64_t rows, width;         // of the output
    int64_t tiles, tiles_a_core; // of the whole; the last core may have fewer
    int64_t tiles_a_row;         // more than 1: a tile is `columns` of one row
    uint32_t columns, rows_a_tile;
    float to_gate, to_up;        // 2 / beta, 2 / linear_beta
    float product;               // beta * linear_beta
    int32_t bounded;             // whether there is a linear_beta
    int32_t format, carry;       // of MxTiling
};

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: rows, width, bytes an element. numbers: beta, linear_beta or 0. `a_number`: bytes of UB for each number of a tile.
inline bool tile_situ(const Platform& platform, const int64_t* sizes, const double* numbers, int64_t a_number, int64_t align, SituTiling& out, Launch& launch) {
    const int64_t rows = sizes[0], width = sizes[1], cores = platform.vector_cores, part = 256, wanted = 4 * cores;  // tiles, so that copies overlap
    if (rows < 1 || width < 1) return refuse(launch, "gate_up has %lld rows of 2 x %lld elements; both have to be at least 1", (long long)rows, (long long)width);
    const int64_t fit = (platform.ub - 2048) / a_number / part * part, pitch = round_up(width, align);
    if (pitch <= fit && rows >= wanted) {
        out.columns = static_cast<uint32_t>(width);
        out.rows_a_tile = static_cast<uint32_t>(at_most(at_most(fit / pitch, 4095), rows / wanted));
    } else {  // few rows, or long ones: parts of a row, of at least 256 numbers
        const int64_t columns = round_up(ceil_div(width, ceil_div(wanted, rows)), part);
        out.columns = static_cast<uint32_t>(at_most(at_most(columns, fit), width));
        out.rows_a_tile = 1;
    }
    out.rows = rows, out.width = width;
    out.tiles_a_row = ceil_div(width, out.columns);
    out.tiles = ceil_div(rows, out.rows_a_tile) * out.tiles_a_row;
    out.tiles_a_core = ceil_div(out.tiles, cores);
    out.bounded = numbers[1] != 0;
    out.to_gate = static_cast<float>(2 / numbers[0]);
    out.to_up = static_cast<float>(out.bounded ? 2 / numbers[1] : 0);
    out.product = static_cast<float>(numbers[0] * (out.bounded ? numbers[1] : 1));
    launch.block_dim = static_cast<uint32_t>(ceil_div(out.tiles, out.tiles_a_core));
    return true;
}

/// Both inputs twice, their floats unless they are it already, and what SituActivation has.
inline int64_t situ_bytes(int64_t element) { return 4 * element + (element == 4 ? 0 : 8) + 20; }

inline bool tile_situ_glu(const Platform& platform, const int64_t* sizes, const double* numbers, SituTiling& out, Launch& launch) {
    return tile_situ(platform, sizes, numbers, situ_bytes(sizes[2]) + 2 * sizes[2], 32 / sizes[2], out, launch);
}

/// sizes also: number of the format, mantissa bits of the element, 1 for the rule "even". 9: the quantizer's bytes, rounded up.
inline bool tile_situ_glu_mx_quantize(const Platform& platform, const int64_t* sizes, const double* numbers, SituTiling& out, Launch& launch) {
    if (sizes[1] % 32) return refuse(launch, "rows of %lld elements are not blocks of 32", (long long)sizes[1]);
    out.format = static_cast<int32_t>(sizes[3]);
    out.carry = sizes[5] ? carry_of(sizes[4]) : 0;
    return tile_situ(platform, sizes, numbers, situ_bytes(sizes[2]) + 9, 32, out, launch);
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(situ_glu, SituTiling, ascend_k3::tile_situ_glu)
ASCEND_K3_TILING(situ_glu_mx_quantize, SituTiling, ascend_k3::tile_situ_glu_mx_quantize)
