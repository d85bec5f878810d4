// The gradient: how heads are shared among blocks, and where intermediate results lie in global memory.
#pragma once

#include "tiling.h"

namespace ascend_k3 {

/// The workspace of a block, in bytes: matrices of float32 in rows, each of the chunk at hand, and the states before all chunks.
struct KdaGradientRoom {
    uint64_t wide, square, state;                                        // bytes of [CHUNK, W], [CHUNK, CHUNK], [W, W]
    uint64_t rows_q, rows_k, columns, q, k, k_end;                       // operands of the forward pass, as docs/kda.md names them
    uint64_t of_state, values, u, of_u, do_, r, dw;                      // (k e^G) S, b (v - that), u, M u, do, X^T du, -b r
    uint64_t dq, dk, dk_end, drows_q, drows_k, dcolumns, du;             // gradients of those operands
    uint64_t a, m, masked, inverse, da, dm;                              // A, M, that masked, and gradients, transposed; (I + b M)^-1
    uint64_t dstate, change, sums, states;

    constexpr explicit KdaGradientRoom(uint64_t width)
        : wide(CHUNK * width * 4), square(CHUNK * CHUNK * 4), state(width * width * 4),
          rows_q(0), rows_k(rows_q + wide), columns(rows_k + wide), q(columns + FirstColumnRow(SUBS) * width * 4), k(q + wide), k_end(k + wide),
          of_state(k_end + wide), values(of_state + wide), u(values + wide), of_u(u + wide), do_(of_u + wide), r(do_ + wide), dw(r + wide),
          dq(dw + wide), dk(dq + wide), dk_end(dk + wide), drows_q(dk_end + wide), drows_k(drows_q + wide), dcolumns(drows_k + wide),
          du(dcolumns + FirstColumnRow(SUBS) * width * 4),
          a(du + wide), m(a + square), masked(m + square), inverse(masked + square), da(inverse + square), dm(da + square),
          dstate(dm + square), change(dstate + state), sums(change + state), states(sums + 2 * 2 * 2 * CHUNK * 4 + 2 * 4 * CHUNK * 4) {}
};

}  // namespace ascend_k3

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// sizes: sequences, tokens, heads, width, bytes an element, whether there is an initial state. numbers: bound, scale.
inline bool tile_kda_backward(const Platform& platform, const int64_t* sizes, const double* numbers, KdaTiling& out, Launch& launch) {
    if (!tile_kda(platform, sizes, numbers, out, launch)) return false;
    const KdaGradientRoom room(static_cast<uint64_t>(sizes[3]));
    // one sequence may have all tokens
    out.room = static_cast<uint64_t>(round_up(room.states + ceil_div(sizes[1], CHUNK) * room.state, 512));
    launch.workspace = launch.block_dim * out.room;
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(kda_backward, KdaTiling, ascend_k3::tile_kda_backward)
