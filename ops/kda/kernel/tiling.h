// How sequences and heads are shared among blocks, and where intermediate results lie in global memory.
#pragma once

#include "ascend_k3/platform.h"

namespace ascend_k3 {

constexpr uint32_t CHUNK = 64, SUB = 16, SUBS = CHUNK / SUB;  // tokens of a chunk, of a sub-chunk; sub-chunks

/// Bytes of the workspace of one head of a block. `element` and `merged` are the bytes of an operand and of the numbers
/// that the inverse is merged in.
struct KdaRoom {
    uint32_t rows, columns, columns_low, q_decayed, k_decayed, v, operands;  // of one of two slots of operands
    uint32_t scores, diagonal, minus, state, change, kept, bytes;

    constexpr KdaRoom(uint32_t width, uint32_t element, uint32_t merged)
        : rows(0),                                                              // q and -b k from the middle [2 CHUNK, W]
          columns(rows + 2 * CHUNK * width * element),                          // k to the middle, for each sub-chunk
          columns_low(columns + SUB * SUBS * (SUBS + 1) / 2 * width * element), // what 16 bits leave of them
          q_decayed(columns_low + (element == 2 ? SUB * SUBS * (SUBS + 1) / 2 * width * element : 0)),
          k_decayed(q_decayed + CHUNK * width * element),
          v(k_decayed + CHUNK * width * element),
          operands(v + CHUNK * width * element),
          scores(2 * operands),                                                 // diagonal blocks [2][SUB, CHUNK] float
          diagonal(scores + 2 * SUB * CHUNK * 4),                               // inverses, merged and as operand, and A, each with its rest
          minus(diagonal + SUB * CHUNK * 2 * (merged + 2 * element)),           // -1 on the diagonal, in both types, [SUB, CHUNK]
          state(minus + SUB * CHUNK * (merged + element)),                      // S [W, W]
          change(state + width * width * element),                              // [W, W] float
          kept(change + width * width * 4),                                     // float only: products on their way to L1
          bytes(kept + (element == 4 ? (2 * CHUNK + width) * CHUNK * 4 : 0)) {}
};

}  // namespace ascend_k3

struct KdaTiling {
    int64_t sequences, tokens, pairs;  // pairs of heads of a sequence; the last may be one head
    uint32_t heads, has_initial;
    float lower_bound, scale;
    uint64_t room;                     // bytes of workspace of a head
};

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: sequences, tokens, heads, width, bytes an element, whether there is an initial state. numbers: bound, scale.
inline bool tile_kda(const Platform& platform, const int64_t* sizes, const double* numbers, KdaTiling& out, Launch& launch) {
    const int64_t heads = sizes[2], width = sizes[3], element = sizes[4];
    if (width != 64 && width != 128) return refuse(launch, "q has %lld key channels; the kernel takes 64 and 128", (long long)width);
    const KdaRoom room(static_cast<uint32_t>(width), static_cast<uint32_t>(element), static_cast<uint32_t>(element));
    out.sequences = sizes[0];
    out.tokens = sizes[1];
    out.heads = static_cast<uint32_t>(heads);
    out.pairs = ceil_div(heads, 2) * sizes[0];
    out.has_initial = static_cast<uint32_t>(sizes[5]);
    out.lower_bound = static_cast<float>(numbers[0]);
    out.scale = static_cast<float>(numbers[1]);
    out.room = static_cast<uint64_t>(round_up(room.bytes, 512));
    launch.block_dim = static_cast<uint32_t>(at_most(out.pairs, platform.cube_cores));
    launch.workspace = launch.block_dim * 2 * out.room;
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(kda, KdaTiling, ascend_k3::tile_kda)
