// exp, ln and 1/sqrt of a float, as the nearest float but for one in some million arguments: the sums are in double, without
// the host's mathematical library, so that every machine gives the same, and without branches, so that loops become vectors.
#pragma once

#include "numbers.h"

namespace emulator::numbers {

/// Adding it leaves a double's nearest integer in the low bits.
constexpr double TO_INTEGER = 6755399441055744.0;

/// first + x (second + x (third + ...)).
template <class... Term>
constexpr double series(double x, double first, Term... others) {
    if constexpr (sizeof...(Term) == 0) return first;
    else return first + x * series(x, others...);
}

/// e^x. x is n ln 2 + r with |r| <= ln 2 / 2; 2^n is an exponent, e^r the first 12 terms of its series (error below 1e-14).
inline float exponential(float argument) {
    double x = static_cast<double>(argument);
    x = x < -110.0 ? -110.0 : x;  // beyond these ends the result is 0 or infinity; NaN stays
    x = x > 90.0 ? 90.0 : x;
    const double shifted = x * 1.4426950408889634 + TO_INTEGER, n = shifted - TO_INTEGER;
    const double r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
    const double sum = series(r, 1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0, 1.0 / 3628800.0, 1.0 / 39916800.0);
    const uint64_t exponent = bits_as<uint64_t>(shifted) - bits_as<uint64_t>(TO_INTEGER) + 1023;
    return static_cast<float>(sum * bits_as<double>(exponent << 52));
}

/// ln x. x is m 2^n with m from sqrt(1/2) to sqrt(2); ln m is 2 artanh((m - 1) / (m + 1)) by its series.
inline float logarithm(float argument) {
    const double x = static_cast<double>(argument);
    const uint64_t word = bits_as<uint64_t>(x), fraction = (word & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    const bool upper = bits_as<double>(fraction) > 1.4142135623730951;
    const double m = upper ? bits_as<double>(fraction) * 0.5 : bits_as<double>(fraction);
    const uint64_t exponent = (word >> 52 & 2047) + (upper ? 1 : 0);
    const double n = bits_as<double>(exponent + bits_as<uint64_t>(TO_INTEGER)) - (TO_INTEGER + 1023.0);
    const double f = (m - 1.0) / (m + 1.0), square = f * f;
    const double sum = series(square, 1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0);
    const double normal = 2.0 * f * sum + n * 0.6931471805599453;
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    const double edge = x == 0.0 ? -infinity : x == infinity ? infinity : nan;
    return static_cast<float>((x > 0.0) & (x < infinity) ? normal : edge);
}

/// 1 / sqrt(x): infinity for +0, -infinity for -0, NaN below.
inline float inverse_root(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }

}  // namespace emulator::numbers
