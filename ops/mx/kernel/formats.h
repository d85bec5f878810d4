// The element formats beside half, through which their codes are made and read.
#pragma once

#include "kernel_operator.h"

namespace ascend_k3 {

using namespace AscendC;

constexpr uint32_t MX_BLOCK = 32;             // numbers that share a scale
constexpr int32_t FLOAT_INFINITY = 0x7f800000;  // bits
constexpr int32_t FLOAT_NAN = 0x7fc00000;
constexpr int32_t FLOAT_MANTISSA = 23;        // bits

/// An element times 2^-shift is a half whose bits are the sign, `spare` zeros, the code without its sign, and zeros: shift
/// is the difference of the exponents' biases. `emax`: exponent of the largest element; `largest`: it, times 2^-shift.
struct MxFormat {
    int32_t bits, emax, shift, spare;
    float largest;
    bool nan_is_last;  // the code of NaN is the largest, and not beside infinity

    /// Bytes of the codes of a block.
    __aicore__ inline uint32_t BlockBytes() const { return MX_BLOCK * static_cast<uint32_t>(bits) / 8; }
    __aicore__ inline float PowerOfShift() const { return static_cast<float>(1 << shift); }
};

/// The format of a number, as launch.py counts them.
__aicore__ inline MxFormat mx_format(int32_t number) {
    if (number == 0) return {4, 2, 14, 3, 6.0f / (1 << 14), false};    // mxfp4
    if (number == 1) return {8, 8, 8, 1, 448.0f / (1 << 8), true};     // mxfp8_e4m3
    return {8, 15, 0, 0, 57344.0f, false};                             // mxfp8_e5m2
}

}  // namespace ascend_k3
