// What the cube core and the vector cores of a block tell each other, and the inputs that both read.
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

/// First row of the operand `columns` of sub-chunk i: 0, 16, 48, 96.
constexpr uint32_t FirstColumnRow(uint32_t i) { return SUB * i * (i + 1) / 2; }

template <HardEvent event>
__aicore__ inline void Order() {
    SetFlag<event>(EVENT_ID7);
    WaitFlag<event>(EVENT_ID7);
}

}  // namespace ascend_k3
