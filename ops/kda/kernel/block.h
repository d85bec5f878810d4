// What the cores of a block share: flags, and where things are in UB and L1.
#pragma once

#include "kernel_operator.h"
#include "share.h"

namespace ascend_k3 {

using namespace AscendC;

/// Ids of cross-core flags. Those to FREE are set once a chunk, but OPERANDS twice: for the first three sub-chunks, and for all.
namespace flag {
constexpr uint16_t OPERANDS = 0;      // vector -> cube: what the products of a chunk need
constexpr uint16_t SCORES = 1;        // cube -> vector: the diagonal blocks of A and M
constexpr uint16_t BLOCKS = 2;        // vector -> cube: A's diagonal blocks masked, Y's
constexpr uint16_t FREE = 3;          // cube -> vector: the operands of a chunk have been used
constexpr uint16_t SUMS = 4;          // vector <-> vector: squares of a core's channels
constexpr uint16_t INVERSE_USED = 5;  // cube -> vector, where that writes to L1: the inverse of the chunk before has been used
constexpr uint16_t BEGUN = 6;         // cube -> vector: the state of the head that another block ends is there
constexpr uint16_t ALL_BEGUN = 7;     // all vector cores: those of all blocks are
}  // namespace flag

/// Numbers that the inverse of a chunk's system is merged in.
template <class T>
using Merged = std::conditional_t<sizeof(T) == 2, half, float>;

/// dav-3510: fixpipe writes to the vector cores' UB.
constexpr bool DIRECT = __NPU_ARCH__ == 3510;

constexpr uint32_t KDA_SMALL = 14 * 1024;  // bytes of the numbers that KdaGates keeps

/// UB of a vector core, in bytes. It has half of the channels.
template <class T, uint32_t W>
struct KdaUb {
    static constexpr uint32_t CHANNELS = W / 2, TILE = CHUNK * CHANNELS;  // elements of a chunk
    static constexpr uint32_t OUT_SLOTS = 3, BLOCKS = 2 * SUB * SUB;      // tiles on their way out; elements of a core's diagonal blocks
    static constexpr uint32_t WORK = 0, KEYS = WORK + 3 * TILE * 4, DECAY = KEYS + TILE * 4;
    static constexpr uint32_t FACTORS = DECAY, FACTORS_END = FACTORS + 8 * BLOCKS * 4;  // the inverse, between two chunks
    static constexpr uint32_t IN = FACTORS_END > DECAY + TILE * 4 ? FACTORS_END : DECAY + TILE * 4;
    static constexpr uint32_t OUT = IN + (sizeof(T) == 2 ? 3 * TILE * 2 : 0), SCORES = OUT + OUT_SLOTS * TILE * sizeof(T);
    static constexpr uint32_t INVERSE = SCORES + 2 * BLOCKS * 4, REST = INVERSE + BLOCKS * 4, DONE = REST + BLOCKS * 4;
    static constexpr uint32_t ONE = DONE + 6 * BLOCKS * sizeof(T), ROWS = ONE + SUB * CHANNELS * 4, SMALL = ROWS + 14 * CHANNELS * 4;
    static constexpr uint32_t MASKS = SMALL + KDA_SMALL, BYTES = MASKS + 256;
    static_assert(BYTES <= 184 * 1024, "the UB that a kernel may use on both SoCs");
};

/// L1 of a block, in bytes. `P...` are pairs. What the next chunk's products take while this one's are still read has two or
/// three slots; float32 takes one chunk after the other.
template <class T, uint32_t W>
struct KdaL1 {
    using M = Merged<T>;
    static constexpr bool is_float = sizeof(T) == 4;
    /// dav-3510, 16 bits: the vector cores write their operands to L1 themselves.
    static constexpr bool FROM_VECTOR = DIRECT && !is_float;
    static constexpr uint32_t SQUARE = CHUNK * CHUNK, WIDE = CHUNK * W, HALF = CHUNK / 2;  // elements; tokens
    static constexpr uint32_t PARTS = is_float ? 1 : 2, SLOTS = is_float ? 1 : 2;
    static constexpr uint32_t OPERAND_SLOTS = FROM_VECTOR ? 3 : SLOTS, KEY_SLOTS = FROM_VECTOR ? 2 : 1, STATE_SLOTS = DIRECT ? 1 : SLOTS;

    static constexpr uint32_t MINUS = 0, MINUS_MERGED = MINUS + SUB * SUB * sizeof(T), PFINAL = MINUS_MERGED + SUB * SUB * sizeof(M);
    static constexpr uint32_t ROWS = PFINAL + PARTS * SUB * W * sizeof(T), PCOLUMNS = ROWS + 2 * WIDE * sizeof(T);
    static constexpr uint32_t COLUMNS_BYTES = FirstColumnRow(SUBS - 1) * W * sizeof(T);
    static constexpr uint32_t OPERANDS = PCOLUMNS + PARTS * COLUMNS_BYTES;
    static constexpr uint32_t Q = 0, PLAST = Q + WIDE * sizeof(T), PDECAY = PLAST + PARTS * WIDE * sizeof(T), OPERAND_BYTES = PDECAY + PARTS * SUB * W * sizeof(T);
    static constexpr uint32_t K = OPERANDS + OPERAND_SLOTS * OPERAND_BYTES, V = K + KEY_SLOTS * WIDE * sizeof(T), PSTATE = V + SLOTS * WIDE * sizeof(T);
    static constexpr uint32_t PA = PSTATE + STATE_SLOTS * PARTS * W * W * sizeof(T), PINVERSE = PA + SLOTS * PARTS * SQUARE * sizeof(T);
    static constexpr uint32_t READS = PINVERSE + PARTS * SQUARE * sizeof(T), PU = READS + WIDE * sizeof(T);
    static constexpr uint32_t BESIDE = PU + PARTS * WIDE * sizeof(T);                       // -M: blocks (1, 0) and (3, 2) [2][SUB, SUB]
    static constexpr uint32_t BELOW = BESIDE + 2 * SUB * SUB * sizeof(M);                   // -M: the lower left half [HALF, HALF]
    static constexpr uint32_t PHALVES = BELOW + HALF * HALF * sizeof(M);                    // inverses of both halves [2][HALF, HALF]
    static constexpr uint32_t PBESIDE = PHALVES + PARTS * 2 * HALF * HALF * sizeof(M);      // -M times an inverse [2][SUB, SUB]
    static constexpr uint32_t PBELOW = PBESIDE + PARTS * 2 * SUB * SUB * sizeof(M);         // the same [HALF, HALF]
    static constexpr uint32_t BYTES = PBELOW + PARTS * HALF * HALF * sizeof(M);
    static_assert(BYTES <= 512 * 1024, "L1 of both SoCs has 512 KiB");

    // of chunk number n
    __aicore__ inline static uint32_t Operand(uint32_t n, uint32_t bytes) { return OPERANDS + n % OPERAND_SLOTS * OPERAND_BYTES + bytes; }
    __aicore__ inline static uint32_t Keys(uint32_t n) { return K + n % KEY_SLOTS * WIDE * sizeof(T); }
    __aicore__ inline static uint32_t A(uint32_t n) { return PA + n % SLOTS * PARTS * SQUARE * sizeof(T); }
    /// Columns of sub-chunk i, the number or the rest; the last ones are needed again.
    __aicore__ inline static uint32_t Columns(uint32_t n, uint32_t i, uint32_t part) {
        if (i == SUBS - 1) return Operand(n, PLAST) + part * WIDE * sizeof(T);
        return PCOLUMNS + part * COLUMNS_BYTES + FirstColumnRow(i) * W * sizeof(T);
    }
};

/// `count` blocks [SUB, SUB] side by side, as NZ, to the diagonal of a matrix [CHUNK, CHUNK] in L1, from its block `first` on.
template <class X, class From>
__aicore__ inline void BringDiagonal(const LocalTensor<X>& to, const From& from, uint16_t first, uint16_t count) {
    constexpr uint16_t C0 = 32 / sizeof(X), GROUPS = SUB / C0;  // groups of a block
    for (uint16_t g = 0; g < GROUPS; ++g)
        DataCopy(to[first * SUB * (CHUNK + C0) + g * CHUNK * C0], from[g * SUB * C0], DataCopyParams(count, SUB, (GROUPS - 1) * SUB, GROUPS * CHUNK));
}
/// Two blocks for each of `count` matrices [CHUNK / 2, CHUNK / 2].
template <class X, class From>
__aicore__ inline void BringHalves(const LocalTensor<X>& to, const From& from, uint16_t count) {
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
