// How tokens are shared among vector cores, and how many of them are in UB at a time.
#pragma once

#include "ascend_k3/platform.h"

struct RouteTiling {
    int64_t tokens;
    int64_t tokens_a_core;   // the last core may have fewer
    uint32_t experts;
    uint32_t pitch;          // scores of a token in UB: whole lists of 128
    uint32_t top_k;
    uint32_t kept;           // pairs that a list hands on when lists are merged
    uint32_t chosen_pitch;   // chosen experts of a token in UB
    uint32_t rows_a_tile;    // tokens in UB at a time
    uint32_t renormalize;
    float scale;
};

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: tokens, experts, top_k, bytes an element of the logits, whether to renormalize. numbers: scaling factor.
inline bool tile_route(const Platform& platform, const int64_t* sizes, const double* numbers, RouteTiling& out, Launch& launch) {
    const int64_t tokens = sizes[0], experts = sizes[1], top_k = sizes[2], element = sizes[3];
    if (tokens < 1 || top_k < 1 || top_k > experts)
        return refuse(launch, "%lld of %lld experts for %lld tokens cannot be chosen; all have to be at least 1", (long long)top_k, (long long)experts, (long long)tokens);
    if (top_k > 64) return refuse(launch, "top_k is %lld; the kernel chooses at most 64 experts", (long long)top_k);
    const int64_t pitch = round_up(experts, 128), chosen = round_up(top_k, 32);
    if (pitch > 8064) return refuse(launch, "there are %lld experts; the kernel takes at most 8064", (long long)experts);
    // Twice in and out; scores, keys, two copies of the sorted pairs, bits; of the chosen ones ids, offsets, scores and keys.
    const int64_t a_row = 2 * round_up(experts * element, 32) + pitch * (4 + 4 + 8 + 8) + pitch / 8 + chosen * (4 * 4 + 2 * (8 + element)) + 64;
    const int64_t fixed = round_up(experts * 4, 32) + 2 * pitch * 4 + 1024;
    const int64_t fit = (platform.ub - fixed) / a_row;
    if (platform.ub < fixed || fit < 1)
        return refuse(launch, "the scores of %lld experts do not fit into UB of %u bytes", (long long)experts, platform.ub);
    out.tokens = tokens;
    out.tokens_a_core = ceil_div(tokens, platform.vector_cores);
    out.experts = static_cast<uint32_t>(experts);
    out.pitch = static_cast<uint32_t>(pitch);
    out.top_k = static_cast<uint32_t>(top_k);
    out.kept = static_cast<uint32_t>(round_up(top_k, 16));
    out.chosen_pitch = static_cast<uint32_t>(chosen);
    out.renormalize = sizes[4] != 0;
    out.scale = static_cast<float>(numbers[0]);
    const int64_t most = at_most(8, 255 * 64 / pitch);  // repeats of an instruction over all scores of a tile
    out.rows_a_tile = static_cast<uint32_t>(at_most(at_most(fit, most), out.tokens_a_core));
    launch.block_dim = static_cast<uint32_t>(ceil_div(tokens, out.tokens_a_core));
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(route, RouteTiling, ascend_k3::tile_route)
