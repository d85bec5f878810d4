// What the cores of a block share: flags, where things are in UB and L1, and which heads they take.
#pragma once

#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

/// Ids of cross-core flags, each set once a chunk, but OPERANDS twice: for the first three sub-chunks, and for all.
namespace flag {
constexpr uint16_t OPERANDS = 0;  // vector -> cube: what the products of a chunk need
constexpr uint16_t SCORES = 1;    // cube -> vector: the diagonal blocks of A and L
constexpr uint16_t DIAGONAL = 2;  // vector -> cube: A's diagonal blocks masked, L's inverted
constexpr uint16_t STATE = 3;     // vector -> cube: the state before the chunk
constexpr uint16_t CHANGE = 4;    // cube -> vector: what the chunk adds to the state
}  // namespace flag

/// Numbers that the inverse of a chunk's system is merged in.
template <class T>
using Merged = std::conditional_t<sizeof(T) == 2, half, float>;

/// dav-3510: products go from L0C straight to the UB of their head's vector core.
constexpr bool DIRECT = __NPU_ARCH__ == 3510;

/// UB of a vector core, in bytes.
template <class T, uint32_t W>
struct KdaUb {
    static constexpr uint32_t TILE = SUB * W, SLOTS = DIRECT ? 2 : 4;  // elements; tiles on their way out
    static constexpr uint32_t STATE = 0, KEYS = STATE + W * W * 4, WORK = KEYS + CHUNK * W * 4, IN = WORK + 32 * 1024;
    static constexpr uint32_t OUT = IN + (sizeof(T) == 2 ? 4 * TILE * sizeof(T) : 0), SCRATCH = OUT + SLOTS * TILE * sizeof(T);
    static constexpr uint32_t ROWS = SCRATCH + TILE * 4, SMALL = ROWS + 10 * W * 4;
    static constexpr uint32_t SCORES = SMALL + 4640, CHANGE = SCORES + (DIRECT ? 2 * SUB * CHUNK * 4 : 0);  // what the cube writes
    static constexpr uint32_t BYTES = CHANGE + (DIRECT ? W * W * 4 : 0);
    static_assert(BYTES <= (DIRECT ? 248 : 184) * 1024, "the UB that a kernel may use");
};

/// First row of the operand `columns` of sub-chunk i: 0, 16, 48, 96.
constexpr uint32_t FirstColumnRow(uint32_t i) { return SUB * i * (i + 1) / 2; }

/// L1 of a block, in bytes.
template <class T, uint32_t W>
struct KdaL1 {
    using M = Merged<T>;
    static constexpr bool is_float = sizeof(T) == 4;
    static constexpr uint32_t SQUARE = CHUNK * CHUNK, WIDE = CHUNK * W, HALF = CHUNK / 2;  // elements; tokens
    static constexpr uint32_t PARTS = is_float ? 1 : 2, AREAS = is_float ? 1 : 2;

    // L1, in bytes: what all heads use in turn
    static constexpr uint32_t MINUS = 0, MINUS_MERGED = MINUS + SQUARE * sizeof(T), ROWS = MINUS_MERGED + HALF * HALF * sizeof(M);
    static constexpr uint32_t COLUMNS = ROWS + 2 * WIDE * sizeof(T), COLUMNS_BYTES = FirstColumnRow(SUBS - 1) * W * sizeof(T);
    // and what each has: `P...` are pairs
    static constexpr uint32_t AREA = COLUMNS + PARTS * COLUMNS_BYTES;
    static constexpr uint32_t Q = 0, K = Q + WIDE * sizeof(T), V = K + WIDE * sizeof(T), STATE = V + WIDE * sizeof(T), PKEYS = STATE + W * W * sizeof(T);
    static constexpr uint32_t PA = PKEYS + PARTS * WIDE * sizeof(T), PSOLUTION = PA + AREAS * PARTS * SQUARE * sizeof(T);
    static constexpr uint32_t READS = PSOLUTION + PARTS * SQUARE * sizeof(T), REST_U = READS + WIDE * sizeof(T);
    static constexpr uint32_t BESIDE = REST_U + (PARTS - 1) * WIDE * sizeof(T);                  // -L: blocks (1, 0) and (3, 2) [2][SUB, SUB]
    static constexpr uint32_t BELOW = BESIDE + 2 * SUB * SUB * sizeof(M);                        // -L: the lower left half [HALF, HALF]
    static constexpr uint32_t PMERGED = BELOW + HALF * HALF * sizeof(M);                         // inverses of both halves [2][HALF, HALF]
    static constexpr uint32_t PBESIDE = PMERGED + PARTS * 2 * HALF * HALF * sizeof(M);           // -L times an inverse [2][SUB, SUB]
    static constexpr uint32_t PBELOW = PBESIDE + PARTS * 2 * SUB * SUB * sizeof(M);              // the same [HALF, HALF]
    static constexpr uint32_t AREA_BYTES = PBELOW + PARTS * HALF * HALF * sizeof(M);
    static_assert(AREA + AREAS * AREA_BYTES <= 512 * 1024, "L1 of both SoCs has 512 KiB");
    /// dav-3510, 16 bits: the vector cores write the state and the diagonal blocks themselves.
    static constexpr bool FROM_VECTOR = DIRECT && !is_float;

    /// Where a matrix of a vector core's head begins.
    __aicore__ inline static uint32_t Of(uint32_t s, uint32_t bytes) { return AREA + s % AREAS * AREA_BYTES + bytes; }
};

/// A pair of heads of one sequence.
struct KdaPair {
    int64_t sequence, first_token;
    uint32_t tokens, chunks, head, heads;  // heads: 1 or 2

    __aicore__ inline KdaPair(const KdaTiling& tiling, const GlobalTensor<int64_t>& offsets, int64_t index) {
        const uint32_t a_sequence = (tiling.heads + 1) / 2;
        sequence = index / a_sequence;
        head = static_cast<uint32_t>(index % a_sequence) * 2;
        heads = tiling.heads - head < 2 ? 1 : 2;
        first_token = offsets.GetValue(sequence);
        tokens = static_cast<uint32_t>(offsets.GetValue(sequence + 1) - first_token);
        chunks = (tokens + CHUNK - 1) / CHUNK;
    }
    __aicore__ inline uint32_t TokensOf(uint32_t chunk) const { return tokens - chunk * CHUNK < CHUNK ? tokens - chunk * CHUNK : CHUNK; }
};

/// Four blocks [SUB, SUB], side by side as NZ of [SUB, CHUNK], to the diagonal of a matrix [CHUNK, CHUNK] in L1.
template <class X, class From>
__aicore__ inline void BringDiagonal(const LocalTensor<X>& to, const From& from) {
    constexpr uint16_t C0 = 32 / sizeof(X), GROUPS = SUB / C0;  // groups of a block
    for (uint16_t g = 0; g < GROUPS; ++g)
        DataCopy(to[g * CHUNK * C0], from[g * SUB * C0], DataCopyParams(SUBS, SUB, (GROUPS - 1) * SUB, GROUPS * CHUNK));
}
/// The first two or all of the four blocks to the diagonals of `count` matrices [CHUNK / 2, CHUNK / 2].
template <class X, class From>
__aicore__ inline void BringHalf(const LocalTensor<X>& to, const From& from, uint16_t count) {
    constexpr uint16_t C0 = 32 / sizeof(X), GROUPS = SUB / C0, HALF = CHUNK / 2;
    for (uint16_t g = 0; g < GROUPS; ++g)
        for (uint16_t odd = 0; odd < 2; ++odd)
            DataCopy(to[((odd * GROUPS + g) * HALF + odd * SUB) * C0], from[(odd * GROUPS + g) * SUB * C0],
                     DataCopyParams(count, SUB, (2 * GROUPS - 1) * SUB, 2 * GROUPS * HALF - SUB));
}

template <HardEvent event>
__aicore__ inline void Order() {
    SetFlag<event>(EVENT_ID7);
    WaitFlag<event>(EVENT_ID7);
}

}  // namespace ascend_k3
