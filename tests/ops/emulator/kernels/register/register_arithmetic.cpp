// Arithmetic between registers, by operation and element type. See test_registers.py.
#include "register_frame.h"

using namespace AscendC;

// Operation, its element types: `Op` has their names as Operation_type.
#define BINARY(X)                                                                                                            \
    X(Add, int8_t) X(Add, uint16_t) X(Add, int32_t) X(Add, half) X(Add, bfloat16_t) X(Add, float) X(Sub, uint8_t)            \
    X(Sub, int32_t) X(Sub, half) X(Sub, float) X(Mul, int16_t) X(Mul, uint32_t) X(Mul, bfloat16_t) X(Mul, float)             \
    X(Div, int32_t) X(Div, half) X(Div, float) X(Max, int8_t) X(Max, uint32_t) X(Max, half) X(Max, float) X(Min, uint16_t)   \
    X(Min, bfloat16_t) X(Min, float) X(And, uint8_t) X(And, int32_t) X(Or, uint16_t) X(Xor, int32_t)
#define SCALAR(X)                                                                                                            \
    X(Adds, int8_t) X(Adds, bfloat16_t) X(Adds, float) X(Muls, int16_t) X(Muls, half) X(Muls, float) X(Maxs, int32_t)        \
    X(Maxs, float) X(Mins, uint8_t) X(Mins, half)
#define UNARY(X)                                                                                                             \
    X(Abs, int8_t) X(Abs, half) X(Abs, float) X(Neg, int32_t) X(Neg, half) X(Neg, float) X(Not, uint16_t) X(Not, float)      \
    X(Exp, half) X(Exp, float) X(Ln, half) X(Ln, float) X(Sqrt, half) X(Sqrt, float)
#define INTO(X) X(MulAddDst, int16_t) X(MulAddDst, half) X(MulAddDst, bfloat16_t) X(MulAddDst, float)
#define SHIFTS(X) X(ShiftLeft, int16_t, int16_t) X(ShiftLeft, uint32_t, int32_t) X(ShiftRight, int32_t, int32_t) X(ShiftRight, uint8_t, int8_t)

enum Op {
    Add_int8_t, Add_uint16_t, Add_int32_t, Add_half, Add_bfloat16_t, Add_float, Sub_uint8_t, Sub_int32_t, Sub_half, Sub_float, Mul_int16_t,
    Mul_uint32_t, Mul_bfloat16_t, Mul_float, Div_int32_t, Div_half, Div_float, Max_int8_t, Max_uint32_t, Max_half, Max_float, Min_uint16_t,
    Min_bfloat16_t, Min_float, And_uint8_t, And_int32_t, Or_uint16_t, Xor_int32_t, Adds_int8_t, Adds_bfloat16_t, Adds_float, Muls_int16_t,
    Muls_half, Muls_float, Maxs_int32_t, Maxs_float, Mins_uint8_t, Mins_half, Abs_int8_t, Abs_half, Abs_float, Neg_int32_t, Neg_half,
    Neg_float, Not_uint16_t, Not_float, Exp_half, Exp_float, Ln_half, Ln_float, Sqrt_half, Sqrt_float, MulAddDst_int16_t, MulAddDst_half,
    MulAddDst_bfloat16_t, MulAddDst_float, ShiftLeft_int16_t, ShiftLeft_uint32_t, ShiftRight_int32_t, ShiftRight_uint8_t, ShiftLefts,
    ShiftRights, Axpy_half, Axpy_float, ExpSub_float, ExpSub_half, ExpSub_odd, ADD_MERGING, MAX_MERGING, EXP_SUBNORMAL, DIV_SUBNORMAL,
    SQRT_SUBNORMAL, COMPARE_LT, COMPARE_GT, COMPARE_EQ, COMPARE_LE, COMPARE_GE, COMPARE_NE, COMPARES_INT8, SELECT, MASK_LOGIC
};

#define LOAD_TWO(T)                          \
    Reg::RegTensor<T> x, y, z;               \
    Reg::MaskReg all = Reg::CreateMask<T>(), mask = Reg::UpdateMask<T>(count); \
    Reg::LoadAlign(x, a);                    \
    Reg::LoadAlign(y, b)

#define FUNCTION(name, T)                                                                            \
    __simd_vf__ inline void name##_##T##VF(__ubuf__ T* dst, __ubuf__ T* a, __ubuf__ T* b, uint32_t count) { \
        LOAD_TWO(T);                                                                                 \
        Reg::name(z, x, y, mask);                                                                    \
        Reg::StoreAlign(dst, z, all);                                                                \
    }
BINARY(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, T)                                                                            \
    __simd_vf__ inline void name##_##T##VF(__ubuf__ T* dst, __ubuf__ T* a, float scalar, uint32_t count) { \
        Reg::RegTensor<T> x, z;                                                                      \
        Reg::MaskReg all = Reg::CreateMask<T>(), mask = Reg::UpdateMask<T>(count);                   \
        Reg::LoadAlign(x, a);                                                                        \
        Reg::name(z, x, static_cast<T>(scalar), mask);                                               \
        Reg::StoreAlign(dst, z, all);                                                                \
    }
SCALAR(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, T)                                                                            \
    __simd_vf__ inline void name##_##T##VF(__ubuf__ T* dst, __ubuf__ T* a, uint32_t count) {         \
        Reg::RegTensor<T> x, z;                                                                      \
        Reg::MaskReg all = Reg::CreateMask<T>(), mask = Reg::UpdateMask<T>(count);                   \
        Reg::LoadAlign(x, a);                                                                        \
        Reg::name(z, x, mask);                                                                       \
        Reg::StoreAlign(dst, z, all);                                                                \
    }
UNARY(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, T)                                                                            \
    __simd_vf__ inline void name##_##T##VF(__ubuf__ T* dst, __ubuf__ T* a, __ubuf__ T* b, uint32_t count) { \
        LOAD_TWO(T);                                                                                 \
        Reg::LoadAlign(z, dst);                                                                      \
        Reg::name(z, x, y, mask);                                                                    \
        Reg::StoreAlign(dst, z, all);                                                                \
    }
INTO(FUNCTION)
#undef FUNCTION
#define FUNCTION(name, T, B)                                                                         \
    __simd_vf__ inline void name##_##T##VF(__ubuf__ T* dst, __ubuf__ T* a, __ubuf__ B* b, uint32_t count) { \
        Reg::RegTensor<T> x, z;                                                                      \
        Reg::RegTensor<B> y;                                                                         \
        Reg::MaskReg all = Reg::CreateMask<T>(), mask = Reg::UpdateMask<T>(count);                   \
        Reg::LoadAlign(x, a);                                                                        \
        Reg::LoadAlign(y, b);                                                                        \
        Reg::name(z, x, y, mask);                                                                    \
        Reg::StoreAlign(dst, z, all);                                                                \
    }
SHIFTS(FUNCTION)
#undef FUNCTION

template <bool left>
__simd_vf__ inline void ShiftByVF(__ubuf__ int32_t* dst, __ubuf__ int32_t* a, int16_t by, uint32_t count) {
    Reg::RegTensor<int32_t> x, z;
    Reg::MaskReg all = Reg::CreateMask<int32_t>(), mask = Reg::UpdateMask<int32_t>(count);
    Reg::LoadAlign(x, a);
    if constexpr (left) Reg::ShiftLefts(z, x, by, mask);
    else Reg::ShiftRights(z, x, by, mask);
    Reg::StoreAlign(dst, z, all);
}
template <class T>
__simd_vf__ inline void AxpyVF(__ubuf__ T* dst, __ubuf__ T* a, float scalar, uint32_t count) {
    Reg::RegTensor<T> x, z;
    Reg::MaskReg all = Reg::CreateMask<T>(), mask = Reg::UpdateMask<T>(count);
    Reg::LoadAlign(x, a);
    Reg::LoadAlign(z, dst);
    Reg::Axpy(z, x, static_cast<T>(scalar), mask);
    Reg::StoreAlign(dst, z, all);
}
template <class T, Reg::RegLayout layout>
__simd_vf__ inline void ExpSubVF(__ubuf__ float* dst, __ubuf__ T* a, __ubuf__ T* b, uint32_t count) {
    Reg::RegTensor<T> x, y;
    Reg::RegTensor<float> z;
    Reg::MaskReg all = Reg::CreateMask<float>(), mask = Reg::UpdateMask<T>(count);
    Reg::LoadAlign(x, a);
    Reg::LoadAlign(y, b);
    Reg::ExpSub<float, T, layout>(z, x, y, mask);
    Reg::StoreAlign(dst, z, all);
}
template <bool add>
__simd_vf__ inline void MergingVF(__ubuf__ float* dst, __ubuf__ float* a, __ubuf__ float* b, uint32_t count) {
    LOAD_TWO(float);
    Reg::LoadAlign(z, dst);
    if constexpr (add) Reg::Add<float, Reg::MaskMergeMode::MERGING>(z, x, y, mask);
    else Reg::Max<float, Reg::MaskMergeMode::MERGING>(z, x, y, mask);
    Reg::StoreAlign(dst, z, all);
}
static constexpr Reg::ExpSpecificMode EXP_MODE = {Reg::MaskMergeMode::ZEROING, ExpAlgo::PRECISION_1ULP_FTZ_FALSE};
static constexpr Reg::DivSpecificMode DIV_MODE = {Reg::MaskMergeMode::ZEROING, true, DivAlgo::PRECISION_0ULP_FTZ_FALSE};
static constexpr Reg::SqrtSpecificMode SQRT_MODE = {Reg::MaskMergeMode::ZEROING, true};
template <int which>
__simd_vf__ inline void SubnormalVF(__ubuf__ float* dst, __ubuf__ float* a, __ubuf__ float* b, uint32_t count) {
    LOAD_TWO(float);
    if constexpr (which == 0) Reg::Exp<float, &EXP_MODE>(z, x, mask);
    if constexpr (which == 1) Reg::Div<float, &DIV_MODE>(z, x, y, mask);
    if constexpr (which == 2) Reg::Sqrt<float, &SQRT_MODE>(z, x, mask);
    Reg::StoreAlign(dst, z, all);
}
template <CMPMODE mode>
__simd_vf__ inline void CompareVF(__ubuf__ float* dst, __ubuf__ float* a, __ubuf__ float* b, uint32_t count) {
    LOAD_TWO(float);
    Reg::MaskReg holds;
    Reg::Compare<float, mode>(holds, x, y, mask);
    Reg::StoreAlign(reinterpret_cast<__ubuf__ uint8_t*>(dst), holds);
    Reg::Select(z, x, y, holds);
    Reg::StoreAlign(dst + 64, z, all);
}
__simd_vf__ inline void ComparesVF(__ubuf__ int8_t* dst, __ubuf__ int8_t* a, float scalar, uint32_t count) {
    Reg::RegTensor<int8_t> x;
    Reg::MaskReg mask = Reg::UpdateMask<int8_t>(count), holds;
    Reg::LoadAlign(x, a);
    Reg::Compares<int8_t, CMPMODE::GE>(holds, x, static_cast<int8_t>(scalar), mask);
    Reg::StoreAlign(dst, holds);
}
__simd_vf__ inline void SelectVF(__ubuf__ half* dst, __ubuf__ half* a, __ubuf__ half* b, uint32_t count) {
    LOAD_TWO(half);
    Reg::Select(z, x, y, mask);
    Reg::StoreAlign(dst, z, all);
}
/// Masks of 32 bytes, read from a and b: and, or, xor, not, move, select, pack, unpack side by side.
__simd_vf__ inline void MaskLogicVF(__ubuf__ uint8_t* dst, __ubuf__ uint8_t* a, __ubuf__ uint8_t* b) {
    Reg::MaskReg x, y, z, m = Reg::CreateMask<uint8_t, Reg::MaskPattern::M3>();
    Reg::LoadAlign(x, a);
    Reg::LoadAlign(y, b);
    Reg::And(z, x, y, m), Reg::StoreAlign(dst, z);
    Reg::Or(z, x, y, m), Reg::StoreAlign(dst + 32, z);
    Reg::Xor(z, x, y, m), Reg::StoreAlign(dst + 64, z);
    Reg::Not(z, x, m), Reg::StoreAlign(dst + 96, z);
    Reg::Move(z, x, m), Reg::StoreAlign(dst + 128, z);
    Reg::Select(z, x, y, m), Reg::StoreAlign(dst + 160, z);
    Reg::Pack(z, x), Reg::StoreAlign(dst + 192, z);
    Reg::Pack<Reg::HighLowPart::HIGHEST>(z, x), Reg::StoreAlign(dst + 224, z);
    Reg::UnPack(z, x), Reg::StoreAlign(dst + 256, z);
    Reg::UnPack<Reg::HighLowPart::HIGHEST>(z, x), Reg::StoreAlign(dst + 288, z);
}

__aicore__ inline void body(Frame& f, const Call& c) {
    const uint32_t count = static_cast<uint32_t>(c.count);
    __ubuf__ float *d = f.at<float>(0), *a = f.at<float>(1), *b = f.at<float>(2);
    switch (c.op) {
#define CASE(name, T, ...) \
    case name##_##T: asc_vf_call<name##_##T##VF>(f.at<T>(0), f.at<T>(1), f.at<T>(2), count); break;
        BINARY(CASE)
        INTO(CASE)
#undef CASE
#define CASE(name, T) \
    case name##_##T: asc_vf_call<name##_##T##VF>(f.at<T>(0), f.at<T>(1), c.scalar, count); break;
        SCALAR(CASE)
#undef CASE
#define CASE(name, T) \
    case name##_##T: asc_vf_call<name##_##T##VF>(f.at<T>(0), f.at<T>(1), count); break;
        UNARY(CASE)
#undef CASE
#define CASE(name, T, B) \
    case name##_##T: asc_vf_call<name##_##T##VF>(f.at<T>(0), f.at<T>(1), f.at<B>(2), count); break;
        SHIFTS(CASE)
#undef CASE
        case ShiftLefts: asc_vf_call<ShiftByVF<true>>(f.at<int32_t>(0), f.at<int32_t>(1), static_cast<int16_t>(c.a), count); break;
        case ShiftRights: asc_vf_call<ShiftByVF<false>>(f.at<int32_t>(0), f.at<int32_t>(1), static_cast<int16_t>(c.a), count); break;
        case Axpy_half: asc_vf_call<AxpyVF<half>>(f.at<half>(0), f.at<half>(1), c.scalar, count); break;
        case Axpy_float: asc_vf_call<AxpyVF<float>>(d, a, c.scalar, count); break;
        case ExpSub_float: asc_vf_call<ExpSubVF<float, Reg::RegLayout::ZERO>>(d, a, b, count); break;
        case ExpSub_half: asc_vf_call<ExpSubVF<half, Reg::RegLayout::ZERO>>(d, f.at<half>(1), f.at<half>(2), count); break;
        case ExpSub_odd: asc_vf_call<ExpSubVF<half, Reg::RegLayout::ONE>>(d, f.at<half>(1), f.at<half>(2), count); break;
        case ADD_MERGING: asc_vf_call<MergingVF<true>>(d, a, b, count); break;
        case MAX_MERGING: asc_vf_call<MergingVF<false>>(d, a, b, count); break;
        case EXP_SUBNORMAL: asc_vf_call<SubnormalVF<0>>(d, a, b, count); break;
        case DIV_SUBNORMAL: asc_vf_call<SubnormalVF<1>>(d, a, b, count); break;
        case SQRT_SUBNORMAL: asc_vf_call<SubnormalVF<2>>(d, a, b, count); break;
        case COMPARE_LT: asc_vf_call<CompareVF<CMPMODE::LT>>(d, a, b, count); break;
        case COMPARE_GT: asc_vf_call<CompareVF<CMPMODE::GT>>(d, a, b, count); break;
        case COMPARE_EQ: asc_vf_call<CompareVF<CMPMODE::EQ>>(d, a, b, count); break;
        case COMPARE_LE: asc_vf_call<CompareVF<CMPMODE::LE>>(d, a, b, count); break;
        case COMPARE_GE: asc_vf_call<CompareVF<CMPMODE::GE>>(d, a, b, count); break;
        case COMPARE_NE: asc_vf_call<CompareVF<CMPMODE::NE>>(d, a, b, count); break;
        case COMPARES_INT8: asc_vf_call<ComparesVF>(f.at<int8_t>(0), f.at<int8_t>(1), c.scalar, count); break;
        case SELECT: asc_vf_call<SelectVF>(f.at<half>(0), f.at<half>(1), f.at<half>(2), count); break;
        default: asc_vf_call<MaskLogicVF>(f.at<uint8_t>(0), f.at<uint8_t>(1), f.at<uint8_t>(2)); break;
    }
}
REGISTER_KERNEL(register_arithmetic)
