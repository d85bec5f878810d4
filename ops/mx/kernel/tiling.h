// How blocks of 32 numbers are shared among vector cores, and how many of them are in UB at a time.
#pragma once

#include "ascend_k3/platform.h"

struct MxTiling {
    int64_t blocks;         // of the tensor
    int64_t blocks_a_core;  // the last core may have fewer
    uint32_t blocks_a_tile; // in UB at a time, a multiple of 8
    int32_t carry;          // rule "even": what is added to the bits of a float to round it to the element's mantissa
    int32_t format;         // of formats.h
    int32_t unused;
};

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// Bytes of UB that a block of 32 takes: in the queues of x and of the result, and what calculates on it.
inline int64_t quantize_bytes(int64_t element) {
    return 2 * 32 * element + 2 * 33 + (element == 4 ? 0 : 128) + 128 + 2 * 32 + 4 * 4;
}
inline int64_t dequantize_bytes(int64_t element) {
    return 2 * 33 + 2 * 32 * element + (element == 4 ? 0 : 128) + 2 * 64 + 32 + 3 * 4;
}

/// rule "even": half of the last bit that stays of a float's 23, of which the element has `mantissa_bits`.
inline int32_t carry_of(int64_t mantissa_bits) { return 1 << (22 - mantissa_bits); }

inline bool tile_mx(const Platform& platform, int64_t blocks, int64_t bytes_a_block, MxTiling& out, Launch& launch) {
    if (blocks < 1) return refuse(launch, "x has %lld blocks of 32 numbers; it has to have at least 1", (long long)blocks);
    // Brcb takes eight blocks a repeat, and at most 255 repeats. 1024 bytes are for constants.
    const int64_t fit = at_most((platform.ub - 1024) / bytes_a_block / 8 * 8, 2040);
    out.blocks = blocks;
    out.blocks_a_core = round_up(ceil_div(blocks, platform.vector_cores), 8);
    // Several tiles a core, so that copies overlap with the work, but none of less than 64 blocks.
    const int64_t quarter = round_up(ceil_div(out.blocks_a_core, 4), 8);
    out.blocks_a_tile = static_cast<uint32_t>(at_most(at_most(fit, out.blocks_a_core), quarter < 64 ? 64 : quarter));
    launch.block_dim = static_cast<uint32_t>(ceil_div(blocks, out.blocks_a_core));
    return true;
}

/// sizes: blocks, bytes a number, number of the format, mantissa bits of the element, 1 for the rule "even".
inline bool tile_mx_quantize(const Platform& platform, const int64_t* sizes, const double*, MxTiling& out, Launch& launch) {
    out.format = static_cast<int32_t>(sizes[2]);
    out.carry = sizes[4] ? carry_of(sizes[3]) : 0;
    return tile_mx(platform, sizes[0], quantize_bytes(sizes[1]), out, launch);
}

/// sizes: blocks, bytes a number, number of the format.
inline bool tile_mx_dequantize(const Platform& platform, const int64_t* sizes, const double*, MxTiling& out, Launch& launch) {
    out.format = static_cast<int32_t>(sizes[2]);
    return tile_mx(platform, sizes[0], dequantize_bytes(sizes[1]), out, launch);
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(mx_quantize, MxTiling, ascend_k3::tile_mx_quantize)
ASCEND_K3_TILING(mx_dequantize, MxTiling, ascend_k3::tile_mx_dequantize)
