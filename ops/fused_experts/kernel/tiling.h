// How tokens are shared among vector cores when rows go to their experts and come back.
#pragma once

#include "ascend_k3/platform.h"

struct PermuteTiling {
    int64_t tokens;
    int64_t tokens_a_core;   // the last core may have fewer
    int64_t row_bytes;
    uint32_t row_pitch;      // bytes from row to row in UB
    uint32_t top_k;
    uint32_t experts;
    uint32_t buckets;        // a count for each expert and one for dropped pairs, up to a block of 32 bytes
    uint32_t slice;          // buckets that a core sums over all cores
    uint32_t rows_a_tile;    // tokens in UB at a time
};

struct UnpermuteTiling {
    int64_t jobs;            // a job is a token and a block of columns
    int64_t jobs_a_core;     // the last core may have fewer
    uint32_t top_k;
    uint32_t width;
    uint32_t block;          // columns of a job; the last block may have fewer
    uint32_t blocks;
};

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: tokens, top_k, experts, bytes a row.
inline bool tile_permute(const Platform& platform, const int64_t* sizes, const double*, PermuteTiling& out, Launch& launch) {
    const int64_t tokens = sizes[0], top_k = sizes[1], experts = sizes[2], row_bytes = sizes[3];
    if (tokens < 1 || top_k < 1 || experts < 1 || row_bytes < 1)
        return refuse(launch, "%lld tokens with %lld of %lld experts and rows of %lld bytes; all have to be at least 1", (long long)tokens, (long long)top_k, (long long)experts, (long long)row_bytes);
    if (tokens * top_k > 0x7fffffff) return refuse(launch, "%lld tokens with %lld experts each are more pairs than an int32 counts", (long long)tokens, (long long)top_k);
    out.tokens = tokens, out.row_bytes = row_bytes, out.top_k = static_cast<uint32_t>(top_k), out.experts = static_cast<uint32_t>(experts);
    out.tokens_a_core = ceil_div(tokens, platform.vector_cores);
    const int64_t cores = ceil_div(tokens, out.tokens_a_core), buckets = round_up(experts + 1, 8), pitch = round_up(row_bytes, 32);
    out.buckets = static_cast<uint32_t>(buckets);
    out.slice = static_cast<uint32_t>(round_up(ceil_div(buckets, cores), 8));
    // Three rows of counts, those of all cores for the slice, a row of zeros; twice the rows and places of a tile.
    const int64_t fixed = 3 * buckets * 4 + cores * out.slice * 4 + pitch + 1024;
    const int64_t a_row = 2 * (pitch + round_up(top_k * 4, 32));
    const int64_t fit = (platform.ub - fixed) / a_row;
    if (platform.ub < fixed || fit < 1)
        return refuse(launch, "rows of %lld bytes and counts of %lld experts do not fit into UB of %u bytes", (long long)row_bytes, (long long)experts, platform.ub);
    out.row_pitch = static_cast<uint32_t>(pitch);
    out.rows_a_tile = static_cast<uint32_t>(at_most(at_most(fit, 16), out.tokens_a_core));
    launch.block_dim = static_cast<uint32_t>(cores);
    launch.workspace = static_cast<uint64_t>(cores * buckets * 4);
    return true;
}

/// sizes: tokens, top_k, width, bytes an element of rows, of y.
inline bool tile_unpermute(const Platform& platform, const int64_t* sizes, const double*, UnpermuteTiling& out, Launch& launch) {
    const int64_t tokens = sizes[0], top_k = sizes[1], width = sizes[2], element = sizes[3], out_element = sizes[4];
    if (tokens < 1 || width < 1)
        return refuse(launch, "%lld tokens of %lld columns; both have to be at least 1", (long long)tokens, (long long)width);
    // in and out twice, the sum when y is not float, a float copy of a row when rows are not.
    const int64_t a_column = 2 * (element + out_element) + (out_element == 4 ? 0 : 4) + (element == 4 ? 0 : 4);
    const int64_t fit = (platform.ub - 1024) / a_column / 64 * 64;
    // Few tokens are cut into blocks so that all cores have some, but not below 256 columns.
    const int64_t wanted = ceil_div(platform.vector_cores, tokens);
    const int64_t block = round_up(at_most(ceil_div(width, at_most(wanted, ceil_div(width, 256))), fit), 64);
    out.top_k = static_cast<uint32_t>(top_k), out.width = static_cast<uint32_t>(width);
    out.block = static_cast<uint32_t>(at_most(block, width));
    out.blocks = static_cast<uint32_t>(ceil_div(width, out.block));
    out.jobs = tokens * out.blocks;
    out.jobs_a_core = ceil_div(out.jobs, platform.vector_cores);
    launch.block_dim = static_cast<uint32_t>(ceil_div(out.jobs, out.jobs_a_core));
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(permute_tokens, PermuteTiling, ascend_k3::tile_permute)
ASCEND_K3_TILING(unpermute_tokens, UnpermuteTiling, ascend_k3::tile_unpermute)
