// How heads are shared among blocks, and where intermediate results lie in global memory.
#pragma once

#include "ascend_k3/platform.h"

namespace ascend_k3 {

constexpr uint32_t CHUNK = 64, SUB = 16, SUBS = CHUNK / SUB;  // tokens of a chunk, of a sub-chunk; sub-chunks
constexpr uint32_t ROOM_SLOTS = 4;                            // chunks whose operands the workspace holds

/// First row of the columns of sub-chunk i: 0, 16, 48, 96. The keys of sub-chunks 0 to i follow.
constexpr uint32_t FirstColumnRow(uint32_t i) { return SUB * i * (i + 1) / 2; }

/// The workspace of a block, in bytes. `element` and `merged` are those of an operand and of the numbers that the inverse is
/// merged in; operands of 16 bits marked "pair" are two matrices, a number and the rest that 16 bits leave.
struct KdaRoom {
    uint32_t rows, columns, columns_low, q, k, decay, final_decay, initial, operands;  // of one of ROOM_SLOTS slots
    uint32_t scores, blocks, minus, sums, kept, bytes;

    constexpr KdaRoom(uint32_t width, uint32_t element, uint32_t merged)
        : rows(0),                                                                   // q and -k from the middle [2 CHUNK, W]
          columns(rows + 2 * CHUNK * width * element),                               // k to the middle, for each sub-chunk
          columns_low(columns + FirstColumnRow(SUBS) * width * element),             // what 16 bits leave of them
          q(columns_low + (element == 2 ? FirstColumnRow(SUBS) * width * element : 0)),
          k(q + CHUNK * width * element),                                            // both from where the state is
          decay(k + CHUNK * width * element),                                        // of the state, diagonal blocks [SUB, W], pair
          final_decay(decay + 2 * SUB * width * element),
          initial(final_decay + 2 * SUB * width * element),                          // S [W, W], pair
          operands(initial + 2 * width * width * element),
          scores(ROOM_SLOTS * operands),                                             // diagonal blocks of a core [2][2][SUB, 2 SUB] float
          blocks(scores + 2 * SUB * CHUNK * 4),                                      // inverses, merged and as operand, and A, pairs
          minus(blocks + SUB * CHUNK * 2 * (merged + 2 * element)),                  // -1 on the diagonal, in both types, [SUB, SUB]
          sums(minus + SUB * SUB * (merged + element)),                              // squares of q and k of a core [2][2][2 CHUNK] float
          kept(sums + 2 * 2 * 2 * CHUNK * 4),                                        // float only: products on their way to L1
          bytes(kept + (element == 4 ? (2 * CHUNK * CHUNK + width * width) * 4 : 0)) {}
};

}  // namespace ascend_k3

struct KdaTiling {
    int64_t sequences, tokens, heads;
    float lower_bound, scale;
    uint64_t has_initial, room;  // room: bytes of workspace of a block
};

struct KdaFragments {
    int64_t fragments;
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
    out.heads = heads;
    out.has_initial = static_cast<uint64_t>(sizes[5]);
    out.lower_bound = static_cast<float>(numbers[0]);
    out.scale = static_cast<float>(numbers[1]);
    out.room = static_cast<uint64_t>(round_up(room.bytes, 512));
    launch.block_dim = static_cast<uint32_t>(at_most(heads * sizes[0], platform.cube_cores));
    launch.workspace = launch.block_dim * out.room;
    return true;
}

/// Into how many fragments each sequence of equal length is cut so that few heads fill the cores. A fragment's transition and its
/// state from a zero start take twice its heads, so three passes over all tokens in all: less than four are not worth it.
/// sizes: sequences, tokens of each, heads.
inline bool tile_kda_fragments(const Platform& platform, const int64_t* sizes, const double*, KdaFragments& out, Launch& launch) {
    constexpr int64_t LEAST = 4, TOKENS = 16 * CHUNK;  // fragments; tokens of one, so that its beginning and end do not matter
    const int64_t blocks = platform.cube_cores / (sizes[0] * sizes[2]), pieces = at_most(blocks, sizes[1] / TOKENS);
    out.fragments = pieces >= LEAST ? pieces : 1;
    launch.block_dim = 1;
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(kda, KdaTiling, ascend_k3::tile_kda)
ASCEND_K3_TILING(kda_fragments, KdaFragments, ascend_k3::tile_kda_fragments)
