// How sequences, heads and rows of states are shared among vector cores, and what a core keeps in UB.
#pragma once

#include "ascend_k3/platform.h"

struct KdaDecodeTiling {
    int64_t items, items_a_core;   // an item is some rows of the state of one head of one sequence
    uint32_t tokens, heads, rows;            // rows: value channels of an item
    uint32_t has_accepted;
    float lower_bound, scale;
};

namespace ascend_k3 {

constexpr uint32_t MOST_TOKENS = 8, BLOCK_BYTES = 32;

/// Bytes of UB. The first three are buffers of queues, two each.
struct DecodeRoom {
    uint32_t pitch;     // floats from row to row of a state that was loaded: a column of blocks lies in different banks
    uint32_t head, slice, result;
    uint32_t products;  // [2 tokens, rows, 8] or [tokens, 2 tokens, 64] floats
    uint32_t vectors;   // [2 tokens, width] floats
    uint32_t reads;     // [2 tokens, rows] floats
    uint32_t factors;   // [tokens, 2 tokens] floats, and each of them eight times
    uint32_t all;

    constexpr DecodeRoom(uint32_t tokens, uint32_t width, uint32_t rows, uint32_t element)
        : pitch(width + 8),
          head(3 * tokens * width * element + tokens * BLOCK_BYTES + width * 4 + BLOCK_BYTES),  // k, q, g; beta, dt_bias, A_log
          slice(rows * pitch * 4 + tokens * rows * element),                                    // state, v
          result(rows * width * 4 + tokens * rows * element),                                   // state, o
          products(2 * tokens * (rows > 8 * tokens ? rows * 32 : tokens * 256)),
          vectors(2 * tokens * width * 4),
          reads(2 * tokens * rows * 4),
          factors((2 * tokens * tokens + 7) / 8 * 9 * 32),
          all(2 * (head + slice + result) + products + 2 * vectors + reads + reads / 2 + factors + SMALL) {}

    static constexpr uint32_t SMALL = 440 * 4;  // constants, and numbers of tokens
};

}  // namespace ascend_k3

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: sequences, tokens, heads, width, bytes an element, whether counts are given. numbers: bound, scale.
inline bool tile_kda_decode(const Platform& platform, const int64_t* sizes, const double* numbers, KdaDecodeTiling& out, Launch& launch) {
    const int64_t sequences = sizes[0], tokens = sizes[1], heads = sizes[2], width = sizes[3], element = sizes[4];
    if (width != 64 && width != 128) return refuse(launch, "q has %lld key channels; the kernel takes 64 and 128", (long long)width);
    if (tokens < 1 || tokens > MOST_TOKENS) return refuse(launch, "q has %lld tokens a sequence; the kernel takes 1 to %u", (long long)tokens, MOST_TOKENS);
    // Fewest rows one after the other on a core; an item costs about 16 rows beside its own.
    int64_t least = 0;
    for (uint32_t rows = 64; rows >= 16; rows /= 2) {
        const DecodeRoom room(static_cast<uint32_t>(tokens), static_cast<uint32_t>(width), rows, static_cast<uint32_t>(element));
        if (room.all > platform.ub) continue;
        const int64_t items = sequences * heads * (width / rows), a_core = ceil_div(items, platform.vector_cores), time = a_core * (rows + 16);
        if (least && time >= least) continue;
        least = time;
        out.items = items;
        out.items_a_core = a_core;
        out.rows = rows;
    }
    if (!least) return refuse(launch, "%lld tokens of %lld channels do not fit into UB of %u bytes", (long long)tokens, (long long)width, platform.ub);
    out.tokens = static_cast<uint32_t>(tokens);
    out.heads = static_cast<uint32_t>(heads);
    out.has_accepted = static_cast<uint32_t>(sizes[5]);
    out.lower_bound = static_cast<float>(numbers[0]);
    out.scale = static_cast<float>(numbers[1]);
    launch.block_dim = static_cast<uint32_t>(ceil_div(out.items, out.items_a_core));
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(kda_decode, KdaDecodeTiling, ascend_k3::tile_kda_decode)
