// The element formats beside half, through which their codes are made and read.
#pragma once

#include "kernel_operator.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t MX_BLOCK = 32;             // numbers that share a scale
constexpr int32_t FLOAT_INFINITY = 0x7f800000;  // bits
constexpr int32_t FLOAT_NAN = 0x7fc00000;
constexpr int32_t FLOAT_MANTISSA = 23;        // bits

// An element times 2^-shift is a half whose bits are the sign, `spare` zeros, the code without its sign, and zeros: shift
// is the difference of the exponents' biases. `emax`: exponent of the largest element; `largest`: it, times 2^-shift.
struct mxfp4 {
    static constexpr int32_t emax = 2, shift = 14, spare = 3, bits = 4;
    static constexpr float largest = 6.0f / (1 << shift);
};
struct mxfp8_e4m3 {
    static constexpr int32_t emax = 8, shift = 8, spare = 1, bits = 8;
    static constexpr float largest = 448.0f / (1 << shift);
};
struct mxfp8_e5m2 {
    static constexpr int32_t emax = 15, shift = 0, spare = 0, bits = 8;
    static constexpr float largest = 57344.0f;
};

/// Calls f with the format of this number, as launch.py counts them.
template <class F>
__aicore__ inline void with_format(int32_t number, F f) {
    if (number == 0)
        f(mxfp4{});
    else if (number == 1)
        f(mxfp8_e4m3{});
    else
        f(mxfp8_e5m2{});
}

/// Bytes of the codes of a block.
template <class Format>
constexpr uint32_t MX_BLOCK_BYTES = MX_BLOCK * Format::bits / 8;

}  // namespace ascend_k3
