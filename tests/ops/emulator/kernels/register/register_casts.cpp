// Casts between registers: source and result, layout, saturation, rounding. See test_registers.py.
#include "register_frame.h"

using namespace AscendC;

// Name, result, source, RegLayout, SatMode, RoundMode.
#define CASTS(X) \
    X(float_half_ZERO_NO_SAT_RINT, half, float, ZERO, NO_SAT, CAST_RINT) \
    X(float_half_ZERO_NO_SAT_FLOOR, half, float, ZERO, NO_SAT, CAST_FLOOR) \
    X(float_half_ONE_SAT_ODD, half, float, ONE, SAT, CAST_ODD) \
    X(float_bfloat16_ONE_NO_SAT_RINT, bfloat16_t, float, ONE, NO_SAT, CAST_RINT) \
    X(float_bfloat16_ONE_NO_SAT_CEIL, bfloat16_t, float, ONE, NO_SAT, CAST_CEIL) \
    X(float_bfloat16_ZERO_SAT_RINT, bfloat16_t, float, ZERO, SAT, CAST_RINT) \
    X(half_float_ZERO_UNKNOWN_UNKNOWN, float, half, ZERO, UNKNOWN, UNKNOWN) \
    X(bfloat16_float_ZERO_UNKNOWN_UNKNOWN, float, bfloat16_t, ZERO, UNKNOWN, UNKNOWN) \
    X(half_float_ONE_UNKNOWN_UNKNOWN, float, half, ONE, UNKNOWN, UNKNOWN) \
    X(bfloat16_float_ONE_UNKNOWN_UNKNOWN, float, bfloat16_t, ONE, UNKNOWN, UNKNOWN) \
    X(half_bfloat16_UNKNOWN_UNKNOWN_RINT, bfloat16_t, half, UNKNOWN, UNKNOWN, CAST_RINT) \
    X(bfloat16_half_UNKNOWN_SAT_RINT, half, bfloat16_t, UNKNOWN, SAT, CAST_RINT) \
    X(bfloat16_half_UNKNOWN_NO_SAT_RINT, half, bfloat16_t, UNKNOWN, NO_SAT, CAST_RINT) \
    X(float_fp8_e4m3fn_ZERO_SAT_RINT, fp8_e4m3fn_t, float, ZERO, SAT, CAST_RINT) \
    X(bfloat16_fp4x2_e2m1_ZERO_UNKNOWN_RINT, fp4x2_e2m1_t, bfloat16_t, ZERO, UNKNOWN, CAST_RINT) \
    X(float_fp8_e4m3fn_ONE_NO_SAT_RINT, fp8_e4m3fn_t, float, ONE, NO_SAT, CAST_RINT) \
    X(fp8_e4m3fn_float_ONE_UNKNOWN_UNKNOWN, float, fp8_e4m3fn_t, ONE, UNKNOWN, UNKNOWN) \
    X(fp4x2_e2m1_bfloat16_ONE_UNKNOWN_UNKNOWN, bfloat16_t, fp4x2_e2m1_t, ONE, UNKNOWN, UNKNOWN) \
    X(fp8_e4m3fn_float_TWO_UNKNOWN_UNKNOWN, float, fp8_e4m3fn_t, TWO, UNKNOWN, UNKNOWN) \
    X(fp4x2_e2m1_bfloat16_TWO_UNKNOWN_UNKNOWN, bfloat16_t, fp4x2_e2m1_t, TWO, UNKNOWN, UNKNOWN) \
    X(float_fp8_e4m3fn_THREE_SAT_RINT, fp8_e4m3fn_t, float, THREE, SAT, CAST_RINT) \
    X(bfloat16_fp4x2_e2m1_THREE_UNKNOWN_RINT, fp4x2_e2m1_t, bfloat16_t, THREE, UNKNOWN, CAST_RINT) \
    X(float_fp8_e5m2_ZERO_SAT_RINT, fp8_e5m2_t, float, ZERO, SAT, CAST_RINT) \
    X(float_fp8_e5m2_TWO_NO_SAT_RINT, fp8_e5m2_t, float, TWO, NO_SAT, CAST_RINT) \
    X(fp8_e5m2_float_ONE_UNKNOWN_UNKNOWN, float, fp8_e5m2_t, ONE, UNKNOWN, UNKNOWN) \
    X(bfloat16_fp4x2_e1m2_ZERO_UNKNOWN_ROUND, fp4x2_e1m2_t, bfloat16_t, ZERO, UNKNOWN, CAST_ROUND) \
    X(fp4x2_e1m2_bfloat16_TWO_UNKNOWN_UNKNOWN, bfloat16_t, fp4x2_e1m2_t, TWO, UNKNOWN, UNKNOWN) \
    X(bfloat16_fp8_e8m0_ONE_UNKNOWN_UNKNOWN, fp8_e8m0_t, bfloat16_t, ONE, UNKNOWN, UNKNOWN) \
    X(fp8_e8m0_bfloat16_ONE_UNKNOWN_UNKNOWN, bfloat16_t, fp8_e8m0_t, ONE, UNKNOWN, UNKNOWN) \
    X(float_int32_UNKNOWN_SAT_ROUND, int32_t, float, UNKNOWN, SAT, CAST_ROUND) \
    X(float_int32_UNKNOWN_SAT_TRUNC, int32_t, float, UNKNOWN, SAT, CAST_TRUNC) \
    X(float_int32_UNKNOWN_NO_SAT_TRUNC, int32_t, float, UNKNOWN, NO_SAT, CAST_TRUNC) \
    X(float_int16_ONE_SAT_ROUND, int16_t, float, ONE, SAT, CAST_ROUND) \
    X(float_int16_ZERO_NO_SAT_RINT, int16_t, float, ZERO, NO_SAT, CAST_RINT) \
    X(half_int32_ONE_UNKNOWN_FLOOR, int32_t, half, ONE, UNKNOWN, CAST_FLOOR) \
    X(half_int16_UNKNOWN_SAT_CEIL, int16_t, half, UNKNOWN, SAT, CAST_CEIL) \
    X(half_int8_ONE_SAT_RINT, int8_t, half, ONE, SAT, CAST_RINT) \
    X(half_uint8_ZERO_NO_SAT_TRUNC, uint8_t, half, ZERO, NO_SAT, CAST_TRUNC) \
    X(bfloat16_int32_ZERO_SAT_RINT, int32_t, bfloat16_t, ZERO, SAT, CAST_RINT) \
    X(int32_float_UNKNOWN_UNKNOWN_FLOOR, float, int32_t, UNKNOWN, UNKNOWN, CAST_FLOOR) \
    X(int16_float_ONE_UNKNOWN_UNKNOWN, float, int16_t, ONE, UNKNOWN, UNKNOWN) \
    X(int8_half_ONE_UNKNOWN_UNKNOWN, half, int8_t, ONE, UNKNOWN, UNKNOWN) \
    X(uint8_half_ZERO_UNKNOWN_UNKNOWN, half, uint8_t, ZERO, UNKNOWN, UNKNOWN) \
    X(int16_half_UNKNOWN_UNKNOWN_RINT, half, int16_t, UNKNOWN, UNKNOWN, CAST_RINT) \
    X(int8_int16_ONE_UNKNOWN_UNKNOWN, int16_t, int8_t, ONE, UNKNOWN, UNKNOWN) \
    X(int8_int32_THREE_UNKNOWN_UNKNOWN, int32_t, int8_t, THREE, UNKNOWN, UNKNOWN) \
    X(uint8_uint32_TWO_UNKNOWN_UNKNOWN, uint32_t, uint8_t, TWO, UNKNOWN, UNKNOWN) \
    X(uint8_uint16_ZERO_UNKNOWN_UNKNOWN, uint16_t, uint8_t, ZERO, UNKNOWN, UNKNOWN) \
    X(int16_uint8_ONE_SAT_UNKNOWN, uint8_t, int16_t, ONE, SAT, UNKNOWN) \
    X(int16_int32_ONE_UNKNOWN_UNKNOWN, int32_t, int16_t, ONE, UNKNOWN, UNKNOWN) \
    X(int16_uint32_ZERO_UNKNOWN_UNKNOWN, uint32_t, int16_t, ZERO, UNKNOWN, UNKNOWN) \
    X(int32_uint8_THREE_SAT_UNKNOWN, uint8_t, int32_t, THREE, SAT, UNKNOWN) \
    X(int32_int16_ZERO_NO_SAT_UNKNOWN, int16_t, int32_t, ZERO, NO_SAT, UNKNOWN) \
    X(uint32_uint16_ONE_SAT_UNKNOWN, uint16_t, uint32_t, ONE, SAT, UNKNOWN) \
    X(uint16_uint32_ONE_UNKNOWN_UNKNOWN, uint32_t, uint16_t, ONE, UNKNOWN, UNKNOWN)

enum Op {
    float_half_ZERO_NO_SAT_RINT, float_half_ZERO_NO_SAT_FLOOR, float_half_ONE_SAT_ODD,
    float_bfloat16_ONE_NO_SAT_RINT, float_bfloat16_ONE_NO_SAT_CEIL, float_bfloat16_ZERO_SAT_RINT,
    half_float_ZERO_UNKNOWN_UNKNOWN, bfloat16_float_ZERO_UNKNOWN_UNKNOWN, half_float_ONE_UNKNOWN_UNKNOWN,
    bfloat16_float_ONE_UNKNOWN_UNKNOWN, half_bfloat16_UNKNOWN_UNKNOWN_RINT, bfloat16_half_UNKNOWN_SAT_RINT,
    bfloat16_half_UNKNOWN_NO_SAT_RINT, float_fp8_e4m3fn_ZERO_SAT_RINT, bfloat16_fp4x2_e2m1_ZERO_UNKNOWN_RINT,
    float_fp8_e4m3fn_ONE_NO_SAT_RINT, fp8_e4m3fn_float_ONE_UNKNOWN_UNKNOWN, fp4x2_e2m1_bfloat16_ONE_UNKNOWN_UNKNOWN,
    fp8_e4m3fn_float_TWO_UNKNOWN_UNKNOWN, fp4x2_e2m1_bfloat16_TWO_UNKNOWN_UNKNOWN, float_fp8_e4m3fn_THREE_SAT_RINT,
    bfloat16_fp4x2_e2m1_THREE_UNKNOWN_RINT, float_fp8_e5m2_ZERO_SAT_RINT, float_fp8_e5m2_TWO_NO_SAT_RINT,
    fp8_e5m2_float_ONE_UNKNOWN_UNKNOWN, bfloat16_fp4x2_e1m2_ZERO_UNKNOWN_ROUND,
    fp4x2_e1m2_bfloat16_TWO_UNKNOWN_UNKNOWN, bfloat16_fp8_e8m0_ONE_UNKNOWN_UNKNOWN,
    fp8_e8m0_bfloat16_ONE_UNKNOWN_UNKNOWN, float_int32_UNKNOWN_SAT_ROUND, float_int32_UNKNOWN_SAT_TRUNC,
    float_int32_UNKNOWN_NO_SAT_TRUNC, float_int16_ONE_SAT_ROUND, float_int16_ZERO_NO_SAT_RINT,
    half_int32_ONE_UNKNOWN_FLOOR, half_int16_UNKNOWN_SAT_CEIL, half_int8_ONE_SAT_RINT, half_uint8_ZERO_NO_SAT_TRUNC,
    bfloat16_int32_ZERO_SAT_RINT, int32_float_UNKNOWN_UNKNOWN_FLOOR, int16_float_ONE_UNKNOWN_UNKNOWN,
    int8_half_ONE_UNKNOWN_UNKNOWN, uint8_half_ZERO_UNKNOWN_UNKNOWN, int16_half_UNKNOWN_UNKNOWN_RINT,
    int8_int16_ONE_UNKNOWN_UNKNOWN, int8_int32_THREE_UNKNOWN_UNKNOWN, uint8_uint32_TWO_UNKNOWN_UNKNOWN,
    uint8_uint16_ZERO_UNKNOWN_UNKNOWN, int16_uint8_ONE_SAT_UNKNOWN, int16_int32_ONE_UNKNOWN_UNKNOWN,
    int16_uint32_ZERO_UNKNOWN_UNKNOWN, int32_uint8_THREE_SAT_UNKNOWN, int32_int16_ZERO_NO_SAT_UNKNOWN,
    uint32_uint16_ONE_SAT_UNKNOWN, uint16_uint32_ONE_UNKNOWN_UNKNOWN,
};

template <class To, class From, Reg::RegLayout layout, Reg::SatMode saturation, RoundMode rounding>
__simd_vf__ inline void CastVF(__ubuf__ To* dst, __ubuf__ From* src, uint32_t count) {
    static constexpr Reg::CastTrait trait = {layout, saturation, Reg::MaskMergeMode::ZEROING, rounding};
    Reg::RegTensor<From> x;
    Reg::RegTensor<To> y;
    Reg::MaskReg mask = Reg::UpdateMask<From>(count), all = Reg::CreateMask<To>();
    Reg::LoadAlign(x, src);
    Reg::Cast<To, From, trait>(y, x, mask);
    Reg::StoreAlign(dst, y, all);
}

/// a: the trait saturates, not the control register. b: NaN stays in 8 bits.
__aicore__ inline void body(Frame& f, const Call& c) {
    const uint32_t count = static_cast<uint32_t>(c.count);
    if (c.a) SetCtrlSpr<60, 60>(0);
    if (c.b) SetCtrlSpr<50, 50>(1);
    switch (c.op) {
#define CASE(name, To, From, layout, saturation, rounding) \
    case name: asc_vf_call<CastVF<To, From, Reg::RegLayout::layout, Reg::SatMode::saturation, RoundMode::rounding>>(f.at<To>(0), f.at<From>(1), count); break;
        CASTS(CASE)
        default: break;
    }
    ResetCtrlSpr<60, 60>();  // a vector function has it as it was at the call
    ResetCtrlSpr<50, 50>();
}
REGISTER_KERNEL(register_casts)
