// The gradient: what the cores of a block share.
#pragma once

#include "backward_tiling.h"
#include "block.h"

namespace ascend_k3 {

/// Cross-core flags, each set at the end of a stage of one side; SUMS is between the vector cores, as in the forward pass.
namespace gradient_flag {
constexpr uint16_t VECTOR = 0, CUBE = 1, DOTS = 5;
}  // namespace gradient_flag

/// UB of a vector core, in bytes; it has half of the channels.
template <class T, uint32_t W>
struct KdaGradientUb {
    static constexpr uint32_t CHANNELS = W / 2, TILE = CHUNK * CHANNELS, SQUARE = CHUNK * CHUNK;
    static constexpr uint32_t WORK = 0, KEYS = WORK + 3 * TILE * 4, DECAY = KEYS + TILE * 4, IN = DECAY + TILE * 4;
    static constexpr uint32_t SPARE = IN + (sizeof(T) == 2 ? 3 * TILE * 2 : 0);  // three tiles, each as large as a square
    static constexpr uint32_t ROWS = SPARE + 3 * SQUARE * 4, SMALL = ROWS + 18 * CHANNELS * 4;
    static constexpr uint32_t MASKS = SMALL + KDA_SMALL, FACTORS = MASKS + 3 * CHUNK * 8, DOTS = FACTORS + 2 * CHUNK * 8 * 4, BYTES = DOTS + 2 * 4 * CHUNK * 4;
    static_assert(BYTES <= 184 * 1024, "the UB that a kernel may use on both SoCs");
};

}  // namespace ascend_k3
