// How tokens are shared among vector cores, and how many rows and mixing points are in UB at a time.
#pragma once

#include "ascend_k3/platform.h"

struct MixTiling {
    int64_t tokens;
    int64_t items_a_core;  // tokens of a core; in the first phase each token as often as there are sets of points
    uint32_t width;        // elements of a row
    uint32_t blocks;       // of the bank
    uint32_t partial;      // 1: a partial sum is the last source
    uint32_t output_norm;  // 1: the RMSNorm that follows is asked for
    uint32_t all_points;   // mixing points
    uint32_t points;       // in UB at a time
    uint32_t group;        // rows that are weighed together
    uint32_t buffers;      // of the queue of rows
    uint32_t fold;         // floats into which a row is folded when it is summed up
    uint32_t reserved;
    float eps, output_eps;
};

constexpr int MOST_ROWS = 7;  // of a group: with what was mixed before they are 8 blocks, one repeat

#ifndef __NPU_ARCH__
namespace ascend_k3 {

// A row is folded into 28 repeats, or 14 where UB is short: both divide the widths of Kimi K3.
constexpr int64_t FOLDS[] = {28 * 64, 14 * 64};
constexpr int64_t WIDEST = 255 * 64;  // a row is scaled by one instruction
constexpr int64_t MOST_POINTS = 8;  // beyond it little is saved

/// Rows of a shape in UB, in bytes: as the model has them, and in float.
struct MixRows {
    int64_t element, row, row_float;
    int64_t copy() const { return element == 4 ? 0 : row_float; }
};

inline MixRows rows_of(int64_t width, int64_t element) { return {element, round_up(width * element, 32), round_up(width * 4, 32)}; }

/// Bytes that mixture.h takes.
inline int64_t bytes_of_mixture(const MixRows& rows, int64_t points, int64_t group, int64_t fold, bool output_norm) {
    if (points == 0 && !output_norm) return 0;
    const int64_t part = round_up(ceil_div(fold, 64), 8) * 4;
    const int64_t sums = group * rows.copy() + (1 + points) * (fold * 4 + group * part + 32);
    return sums + points * (rows.row_float + (9 + (1 + group) + 2) * 32);
}

/// Bytes that output.h takes.
inline int64_t bytes_of_output(const MixRows& rows, bool output_norm) { return rows.row + (output_norm ? rows.row + 256 : 0); }

/// Buffers of the queue of rows: two, and with float rows, which stay in it until they are mixed, one more than a group.
inline int64_t buffers_of(const MixRows& rows, int64_t group) { return rows.element == 4 ? group + 1 : 2; }

/// The most rows of `sources` that a group can have, in groups of about equal size; 0: not even one fits.
template <class Bytes>
int64_t group_of(int64_t ub, int64_t sources, Bytes bytes) {
    int64_t group = at_most(sources, MOST_ROWS);
    while (group > 0 && bytes(group) > ub) --group;
    return group == 0 ? 0 : ceil_div(sources, ceil_div(sources, group));
}

inline bool refuse_row(Launch& launch, const Platform& platform, int64_t width) {
    return refuse(launch, "a row of %lld elements does not fit into UB of %u bytes", (long long)width, platform.ub);
}

/// What all three begin with.
inline bool start_mix(int64_t tokens, int64_t width, MixTiling& out, Launch& launch) {
    if (tokens < 1 || width < 1) return refuse(launch, "there are %lld tokens of %lld elements; both have to be at least 1", (long long)tokens, (long long)width);
    if (width > WIDEST) return refuse(launch, "a row of %lld elements is longer than the %lld that one instruction takes", (long long)width, (long long)WIDEST);
    out.tokens = tokens;
    out.width = static_cast<uint32_t>(width);
    return true;
}

inline void share(int64_t items, const Platform& platform, MixTiling& out, Launch& launch) {
    out.items_a_core = ceil_div(items, platform.vector_cores);
    launch.block_dim = static_cast<uint32_t>(ceil_div(items, out.items_a_core));
}

/// sizes: tokens, blocks, width, bytes an element, whether there is a partial sum, whether there is an output norm.
/// numbers: eps of the scores, eps of the output norm.
inline bool tile_attention_residual(const Platform& platform, const int64_t* sizes, const double* numbers, MixTiling& out, Launch& launch) {
    const int64_t blocks = sizes[1], width = sizes[2];
    const bool partial = sizes[4] != 0, output_norm = sizes[5] != 0;
    if (!start_mix(sizes[0], width, out, launch)) return false;
    const int64_t sources = blocks + partial;
    if (sources < 1) return refuse(launch, "there is neither a block nor a partial sum; one source is needed");
    const MixRows rows = rows_of(width, sizes[3]);
    for (const int64_t most : FOLDS) {
        const int64_t fold = at_most(most, rows.row_float / 4);
        const int64_t group = group_of(platform.ub, sources, [&](int64_t group) {
            return bytes_of_mixture(rows, 1, group, fold, output_norm) + bytes_of_output(rows, output_norm) + buffers_of(rows, group) * rows.row + rows.row_float;
        });
        if (group == 0) continue;
        out.blocks = static_cast<uint32_t>(blocks);
        out.partial = partial, out.output_norm = output_norm;
        out.all_points = out.points = 1;
        out.group = static_cast<uint32_t>(group);
        out.buffers = static_cast<uint32_t>(buffers_of(rows, group));
        out.fold = static_cast<uint32_t>(fold);
        out.eps = static_cast<float>(numbers[0]), out.output_eps = static_cast<float>(numbers[1]);
        share(out.tokens, platform, out, launch);
        return true;
    }
    return refuse_row(launch, platform, width);
}

/// sizes: tokens, blocks, width, bytes an element, mixing points. numbers: eps.
inline bool tile_attention_residual_prepare(const Platform& platform, const int64_t* sizes, const double* numbers, MixTiling& out, Launch& launch) {
    const int64_t blocks = sizes[1], width = sizes[2], all = sizes[4];
    if (!start_mix(sizes[0], width, out, launch)) return false;
    if (blocks < 1 || all < 1) return refuse(launch, "there are %lld blocks and %lld mixing points; both have to be at least 1", (long long)blocks, (long long)all);
    const MixRows rows = rows_of(width, sizes[3]);
    // Every point more at a time saves a reading of the bank, so points come before rows.
    for (int64_t points = at_most(all, MOST_POINTS); points > 0; --points)
        for (const int64_t most : FOLDS) {
            const int64_t fold = at_most(most, rows.row_float / 4);
            const int64_t group = group_of(platform.ub, blocks, [&](int64_t group) {
                return bytes_of_mixture(rows, points, group, fold, false) + buffers_of(rows, group) * rows.row + points * (rows.row_float + 64);
            });
            if (group == 0) continue;
            const int64_t sets = ceil_div(all, points);
            out.blocks = static_cast<uint32_t>(blocks);
            out.all_points = static_cast<uint32_t>(all);
            out.points = static_cast<uint32_t>(ceil_div(all, sets));
            out.group = static_cast<uint32_t>(group);
            out.buffers = static_cast<uint32_t>(buffers_of(rows, group));
            out.fold = static_cast<uint32_t>(fold);
            out.eps = static_cast<float>(numbers[0]);
            share(sets * out.tokens, platform, out, launch);
            return true;
        }
    return refuse_row(launch, platform, width);
}

/// sizes: tokens, width, bytes an element, whether there is a partial sum, whether there is an output norm. numbers: eps of
/// the score, eps of the output norm.
inline bool tile_attention_residual_update(const Platform& platform, const int64_t* sizes, const double* numbers, MixTiling& out, Launch& launch) {
    const int64_t width = sizes[1];
    const bool partial = sizes[3] != 0, output_norm = sizes[4] != 0;
    if (!start_mix(sizes[0], width, out, launch)) return false;
    const MixRows rows = rows_of(width, sizes[2]);
    for (int64_t buffers = 2; buffers > 0; --buffers)
        for (const int64_t most : FOLDS) {
            const int64_t fold = at_most(most, rows.row_float / 4);
            const int64_t input = rows.row_float + (partial ? rows.row : 0), statistics = partial ? 64 : 32, blocks = partial ? 512 : 256;
            if (bytes_of_mixture(rows, partial, 1, fold, output_norm) + bytes_of_output(rows, output_norm) + buffers * (input + statistics) + blocks > platform.ub) continue;
            out.partial = partial, out.output_norm = output_norm;
            out.all_points = out.points = partial;
            out.group = 1;
            out.buffers = static_cast<uint32_t>(buffers);
            out.fold = static_cast<uint32_t>(fold);
            out.eps = static_cast<float>(numbers[0]), out.output_eps = static_cast<float>(numbers[1]);
            share(out.tokens, platform, out, launch);
            return true;
        }
    return refuse_row(launch, platform, width);
}

}  // namespace ascend_k3
#endif

ASCEND_K3_TILING(attention_residual, MixTiling, ascend_k3::tile_attention_residual)
ASCEND_K3_TILING(attention_residual_prepare, MixTiling, ascend_k3::tile_attention_residual_prepare)
ASCEND_K3_TILING(attention_residual_update, MixTiling, ascend_k3::tile_attention_residual_update)
