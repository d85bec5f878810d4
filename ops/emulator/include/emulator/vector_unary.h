// dst = f(src), element by element: Abs, Relu, Neg, Exp, Ln, Sqrt, Rsqrt, Reciprocal. Source: [page] of each call.
//
// Accuracy. dav-3510: an error of at most one unit in the last place for Exp, Ln, Sqrt and Rsqrt. Rsqrt and Reciprocal have
// more than 1e-3 (half) and 1e-4 (float) of relative error by their pages, which advise Div and Sqrt instead. dav-2201: not
// documented for the others. Here every result is the nearest number of the type (half: rounded from float): a kernel whose
// tolerance only just holds here may miss it on a device.
#pragma once

#include "elementary.h"
#include "vector_types.h"

namespace AscendC {

namespace emu {

template <class T, class Op>
void unary(const char* call, Site at, const Lanes& lanes, const LocalTensor<T>& dst, const LocalTensor<T>& src, const UnaryRepeatParams& p, Op op) {
    elementwise(call, at, lanes, false, dst, Stride{p.dstBlkStride, p.dstRepStride}, op, std::pair{src, Stride{p.srcBlkStride, p.srcRepStride}});
}

}  // namespace emu

// `Parameters` come behind the template's others; `Op` is the operation on rows of elements.
#define EMULATOR_UNARY_FORMS(Name, Parameters, Op)                                                                                    \
    template <class T EMULATOR_MEMBERS Parameters>                                                                                    \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, Site at = Site::here()) {                   \
        Name##_types<T, true>();                                                                                                      \
        emu::unary(#Name, at, emu::flat_lanes(count, sizeof(T)), dst, src, {}, Op);                                                             \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true EMULATOR_MEMBERS Parameters>                                                             \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask, const uint8_t repeatTime,                          \
              const UnaryRepeatParams& repeatParams, Site at = Site::here()) {                                                        \
        Name##_types<T, false>();                                                                                                     \
        emu::unary(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, repeatParams, Op);                             \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true EMULATOR_MEMBERS Parameters>                                                             \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[], const uint8_t repeatTime,                        \
              const UnaryRepeatParams& repeatParams, Site at = Site::here()) {                                                        \
        Name##_types<T, false>();                                                                                                     \
        emu::unary(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, repeatParams, Op);                             \
    }

namespace emu {

// ---- Without rounding ----

/// Unknown for the least integer: it stays.
template <class T>
constexpr T magnitude(T x) {
    if constexpr (std::is_integral_v<T>) return x < 0 ? difference(T(0), x) : x;
    else if constexpr (std::is_same_v<T, float>) return std::fabs(x);
    else return T::from_bits(static_cast<uint16_t>(x.bits & 0x7fff));
}

}  // namespace emu

EMULATOR_TYPES(Abs, (half, float), (half, float, int16_t, int32_t), (int8_t, int64_t))
EMULATOR_TYPES(Relu, (half, float, int32_t), (half, float, int32_t), (int64_t))

template <class T>
constexpr auto Abs_op = [](T* dst, const T* src, int64_t n) { EMULATOR_EACH(i, n) dst[i] = emu::magnitude(src[i]); };
template <class T>
constexpr auto Relu_op = [](T* dst, const T* src, int64_t n) { EMULATOR_EACH(i, n) dst[i] = emu::positive_part(src[i]); };

/// dst = |src|.
EMULATOR_UNARY_FORMS(Abs, (), Abs_op<T>)
/// dst = max(0, src).
EMULATOR_UNARY_FORMS(Relu, (), Relu_op<T>)

#if __NPU_ARCH__ == 3510
EMULATOR_TYPES(Neg, (), (), (half, float, int8_t, int16_t, int32_t, int64_t))
/// dst = -src.
template <class T>
void Neg(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Site at = Site::here()) {
    Neg_types<T, true>();
    const auto op = [](T* to, const T* from, int64_t n) {
        EMULATOR_EACH(i, n) {
            if constexpr (std::is_integral_v<T>) to[i] = emu::difference(T(0), from[i]);
            else to[i] = -from[i];
        }
    };
    emu::unary("Neg", at, emu::flat_lanes(count, sizeof(T)), dst, src, {}, op);
}
#endif

// ---- Elementary functions ----

EMULATOR_TYPES(Exp, (half, float), (half, float), ())
EMULATOR_TYPES(Ln, (half, float), (half, float), ())
EMULATOR_TYPES(Sqrt, (half, float), (half, float), ())
EMULATOR_TYPES(Rsqrt, (half, float), (half, float), ())
EMULATOR_TYPES(Reciprocal, (half, float), (half, float), (int64_t, uint64_t))

// How dav-3510 computes them. FTZ_TRUE and INTRINSIC flush: they take and give zero for subnormal numbers. The pages say "all
// subnormal numbers" without naming the side; unknown too is the sign of that zero, here the number's own.
enum class ExpAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
enum class LnAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
enum class ReciprocalAlgo { INTRINSIC = 0, PRECISION_1ULP_FTZ_TRUE, PRECISION_1ULP_FTZ_FALSE };
enum class SqrtAlgo { INTRINSIC = 0, FAST_INVERSE, PRECISION_1ULP_FTZ_TRUE, PRECISION_0ULP_FTZ_FALSE, PRECISION_1ULP_FTZ_FALSE };
enum class RsqrtAlgo { INTRINSIC = 0, FAST_INVERSE, PRECISION_1ULP_FTZ_TRUE, PRECISION_0ULP_FTZ_FALSE, PRECISION_1ULP_FTZ_FALSE };
struct ExpConfig {
    ExpAlgo algo = ExpAlgo::INTRINSIC;
};
struct LnConfig {
    LnAlgo algo = LnAlgo::INTRINSIC;
};
struct ReciprocalConfig {
    ReciprocalAlgo algo = ReciprocalAlgo::INTRINSIC;
};
struct SqrtConfig {
    SqrtAlgo algo = SqrtAlgo::INTRINSIC;
};
struct RsqrtConfig {
    RsqrtAlgo algo = RsqrtAlgo::INTRINSIC;
};
constexpr ExpConfig DEFAULT_EXP_CONFIG = {ExpAlgo::INTRINSIC};
constexpr LnConfig DEFAULT_LN_CONFIG = {LnAlgo::INTRINSIC};
constexpr ReciprocalConfig DEFAULT_RECIPROCAL_CONFIG = {ReciprocalAlgo::INTRINSIC};
constexpr SqrtConfig DEFAULT_SQRT_CONFIG = {SqrtAlgo::INTRINSIC};
constexpr RsqrtConfig DEFAULT_RSQRT_CONFIG = {RsqrtAlgo::INTRINSIC};

namespace emu {

template <class Algo>
constexpr bool flushes(Algo algo) {
    return is_3510 && (algo == Algo::INTRINSIC || algo == Algo::PRECISION_1ULP_FTZ_TRUE);
}
/// FAST_INVERSE and 0ULP are for float up to 2^126, PRECISION_1ULP_FTZ_FALSE is for half.
template <class T, class Algo>
constexpr bool root_exists(Algo algo) {
    return flushes(algo) || is_2201 || std::is_same_v<T, half> == (algo == Algo::PRECISION_1ULP_FTZ_FALSE);
}
template <class Algo>
constexpr bool fast_inverse(Algo algo) {
    return algo == Algo::FAST_INVERSE || algo == Algo::PRECISION_0ULP_FTZ_FALSE;
}

/// f of the number as a float, rounded to its type.
template <bool flush, class F>
constexpr auto through_float = [](auto* dst, const auto* src, int64_t n) {
    using T = std::remove_reference_t<decltype(*dst)>;
    EMULATOR_EACH(i, n) dst[i] = flush ? flushed(T(F{}(static_cast<float>(flushed(src[i]))))) : T(F{}(static_cast<float>(src[i])));
};
struct Exponential {
    float operator()(float x) const { return emulator::numbers::exponential(x); }
};
struct Logarithm {
    float operator()(float x) const { return emulator::numbers::logarithm(x); }
};
struct Inverse {
    float operator()(float x) const { return 1.0f / x; }
};
/// Beyond 2^126 the fast inverse gives 0.
template <bool fast>
struct Root {
    float operator()(float x) const { return fast && x > 0x1p126f ? 0.0f : std::sqrt(x); }
};
/// Beyond 2^126 the fast inverse gives infinity.
template <bool fast>
struct InverseRoot {
    float operator()(float x) const { return fast && x > 0x1p126f ? std::numeric_limits<float>::infinity() : emulator::numbers::inverse_root(x); }
};

}  // namespace emu

template <ExpAlgo algo>
constexpr auto Exp_op = emu::through_float<emu::flushes(algo), emu::Exponential>;
template <LnAlgo algo>
constexpr auto Ln_op = emu::through_float<emu::flushes(algo), emu::Logarithm>;

namespace emu {

template <class T, SqrtAlgo algo>
constexpr auto sqrt_op() {
    static_assert(root_exists<T>(algo), "Sqrt: FAST_INVERSE and PRECISION_0ULP_FTZ_FALSE exist for float, PRECISION_1ULP_FTZ_FALSE for half");
    return through_float<flushes(algo), Root<fast_inverse(algo)>>;
}
template <class T, RsqrtAlgo algo>
constexpr auto rsqrt_op() {
    static_assert(root_exists<T>(algo), "Rsqrt: FAST_INVERSE and PRECISION_0ULP_FTZ_FALSE exist for float, PRECISION_1ULP_FTZ_FALSE for half");
    return through_float<flushes(algo), InverseRoot<fast_inverse(algo)>>;
}
/// Integers: 1 / src, see `quotient`.
template <class T, ReciprocalAlgo algo>
constexpr auto reciprocal_op() {
    if constexpr (std::is_integral_v<T>)
        return [](T* dst, const T* src, int64_t n) { EMULATOR_EACH(i, n) dst[i] = quotient(T(1), src[i]); };
    else
        return through_float<flushes(algo), Inverse>;
}

}  // namespace emu

#if __NPU_ARCH__ == 3510
#define EMULATOR_CONFIG(Config, value) (, const Config& config = value)
#define EMULATOR_ALGO(Algo) config.algo
#else
#define EMULATOR_CONFIG(Config, value) ()
#define EMULATOR_ALGO(Algo) Algo::INTRINSIC
#endif
/// dst = e^src.
EMULATOR_UNARY_FORMS(Exp, EMULATOR_CONFIG(ExpConfig, DEFAULT_EXP_CONFIG), (Exp_op<EMULATOR_ALGO(ExpAlgo)>))
/// dst = ln src.
EMULATOR_UNARY_FORMS(Ln, EMULATOR_CONFIG(LnConfig, DEFAULT_LN_CONFIG), (Ln_op<EMULATOR_ALGO(LnAlgo)>))
/// dst = sqrt(src).
EMULATOR_UNARY_FORMS(Sqrt, EMULATOR_CONFIG(SqrtConfig, DEFAULT_SQRT_CONFIG), (emu::sqrt_op<T, EMULATOR_ALGO(SqrtAlgo)>()))
/// dst = 1 / sqrt(src).
EMULATOR_UNARY_FORMS(Rsqrt, EMULATOR_CONFIG(RsqrtConfig, DEFAULT_RSQRT_CONFIG), (emu::rsqrt_op<T, EMULATOR_ALGO(RsqrtAlgo)>()))
/// dst = 1 / src.
EMULATOR_UNARY_FORMS(Reciprocal, EMULATOR_CONFIG(ReciprocalConfig, DEFAULT_RECIPROCAL_CONFIG), (emu::reciprocal_op<T, EMULATOR_ALGO(ReciprocalAlgo)>()))
#undef EMULATOR_CONFIG
#undef EMULATOR_ALGO

}  // namespace AscendC
