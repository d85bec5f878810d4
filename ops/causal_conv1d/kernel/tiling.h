// How channels and tokens (or sequences) are shared among vector cores, and how much of them is in UB at a time.
#pragma once

#include "ascend_k3/platform.h"

struct ConvTiling {
    int64_t rows;          // tokens of all sequences; in the step: sequences
    int64_t rows_a_part;   // the last part may have fewer
    int64_t channels;
    int64_t sequences;     // not in the step
    int64_t length;        // of every sequence; 0: cu_seqlens tells
    uint32_t taps;
    uint32_t block;        // channels that a job takes; the last block may have fewer
    uint32_t parts;        // of the rows; a job is one block and one part
    uint32_t jobs;
    uint32_t rows_a_tile;  // in UB at a time
    uint32_t has_window;
    uint32_t silu;
    uint32_t reserved;
};

#ifndef __NPU_ARCH__
namespace ascend_k3 {

/// Blocks and parts: the least work for the core that has most of it, of several such the widest rows. `halo`: rows that a
/// part reads beside its own.
inline void share_conv(int64_t cores, int64_t least_part, int64_t halo, ConvTiling& out, Launch& launch) {
    int64_t least = 0;
    for (int64_t block = 256; block >= 64; block -= 64) {
        const int64_t blocks = ceil_div(out.channels, block);
        int64_t parts = at_most(cores / blocks > 0 ? cores / blocks : 1, ceil_div(out.rows, least_part));
        const int64_t rows = ceil_div(out.rows, parts);
        parts = ceil_div(out.rows, rows);
        const int64_t load = ceil_div(blocks * parts, cores) * at_most(block, out.channels) * (rows + halo);
        if (least != 0 && load >= least) continue;
        least = load;
        out.block = static_cast<uint32_t>(block);
        out.parts = static_cast<uint32_t>(parts);
        out.rows_a_part = rows;
        out.jobs = static_cast<uint32_t>(blocks * parts);
    }
    launch.block_dim = static_cast<uint32_t>(at_most(out.jobs, cores));
}

/// Bytes of UB beside the tiles: the weights as they come, the taps, tables of offsets.
inline int64_t conv_fixed(int64_t pitch, int64_t taps, int64_t weight_element) {
    const int64_t history = taps - 1, copies = weight_element == 4 ? 1 : 2;
    return copies * pitch * taps * weight_element + pitch * taps * 4 + 3 * pitch * 4 + 2 * pitch * history * 4 + 1024;
}

inline bool conv_refused(const ConvTiling& out, int64_t pitch, const Platform& platform, Launch& launch) {
    return refuse(launch, "%u taps on %lld channels at a time do not fit into UB of %u bytes", out.taps, (long long)pitch, platform.ub);
}

/// sizes: tokens, channels, taps, sequences, length (0 with cu_seqlens), bytes an element of x, of the weight, whether there
/// is an initial window, whether SiLU follows.
inline bool tile_conv(const Platform& platform, const int64_t* sizes, const double*, ConvTiling& out, Launch& launch) {
    const int64_t element = sizes[5], weight_element = sizes[6];
    out.rows = sizes[0], out.channels = sizes[1], out.taps = static_cast<uint32_t>(sizes[2]), out.sequences = sizes[3];
    out.length = sizes[4], out.has_window = sizes[7] != 0, out.silu = sizes[8] != 0;
    const int64_t history = out.taps - 1;
    if (out.rows < 1 || out.channels < 1 || out.sequences < 1)
        return refuse(launch, "x has %lld tokens of %lld channels in %lld sequences; all have to be at least 1", (long long)out.rows, (long long)out.channels, (long long)out.sequences);
    share_conv(platform.vector_cores, 64, history, out, launch);
    const int64_t pitch = round_up(at_most(out.block, out.channels), 32 / element);
    // in and out twice; 16-bit types have x and y as float too, float calculates in the buffers of in and out.
    const int64_t a_row = pitch * (4 * element + (element == 4 ? 0 : 8));
    const int64_t fixed = conv_fixed(pitch, out.taps, weight_element) + history * pitch * (6 * element + (element == 4 ? 0 : 4));
    const int64_t fit = (platform.ub - fixed) / a_row;
    if (platform.ub < fixed || fit < 1) return conv_refused(out, pitch, platform, launch);
    out.rows_a_tile = static_cast<uint32_t>(at_most(at_most(fit, 240), out.rows_a_part));
    return true;
}

/// sizes: sequences, channels, taps, bytes an element of x and the windows, of the weight, whether SiLU follows.
inline bool tile_conv_update(const Platform& platform, const int64_t* sizes, const double*, ConvTiling& out, Launch& launch) {
    const int64_t element = sizes[3], weight_element = sizes[4];
    out.rows = sizes[0], out.channels = sizes[1], out.taps = static_cast<uint32_t>(sizes[2]), out.silu = sizes[5] != 0;
    const int64_t history = out.taps - 1;
    if (out.rows < 1 || out.channels < 1)
        return refuse(launch, "x has %lld rows of %lld channels; both have to be at least 1", (long long)out.rows, (long long)out.channels);
    share_conv(platform.vector_cores, 4, 0, out, launch);
    const int64_t pitch = round_up(at_most(out.block, out.channels), 32 / element);
    // Twice: all inputs of the taps, the windows as they come, y and the windows as they go.
    const int64_t a_row = pitch * (2 * element * (out.taps + history + 1 + history) + (element == 4 ? 0 : 4 * (out.taps + 1)));
    const int64_t fixed = conv_fixed(pitch, out.taps, weight_element);
    const int64_t fit = (platform.ub - fixed) / a_row;
    if (platform.ub < fixed || fit < 1) return conv_refused(out, pitch, platform, launch);
    out.rows_a_tile = static_cast<uint32_t>(at_most(at_most(fit, 32), out.rows_a_part));
    return true;
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(causal_conv1d, ConvTiling, ascend_k3::tile_conv)
ASCEND_K3_TILING(causal_conv1d_update, ConvTiling, ascend_k3::tile_conv_update)
