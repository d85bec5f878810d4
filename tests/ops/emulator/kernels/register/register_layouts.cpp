// Reductions, filling, indices, and the order of elements in registers. See test_registers.py.
#include "register_frame.h"

using namespace AscendC;
using Reg::ReduceType;

// Name, kind, result, source.
#define REDUCTIONS(X)                                                                                                     \
    X(SUM_FLOAT, SUM, float, float) X(SUM_HALF, SUM, half, half) X(SUM_INT16, SUM, int32_t, int16_t)                      \
    X(SUM_UINT32, SUM, uint32_t, uint32_t) X(MAX_FLOAT, MAX, float, float) X(MAX_HALF, MAX, half, half)                   \
    X(MAX_UINT16, MAX, uint16_t, uint16_t) X(MIN_FLOAT, MIN, float, float) X(MIN_HALF, MIN, half, half)                   \
    X(MIN_INT32, MIN, int32_t, int32_t)
#define BLOCKS(X) X(BLOCK_SUM_FLOAT, SUM, float) X(BLOCK_SUM_HALF, SUM, half) X(BLOCK_MAX_HALF, MAX, half) X(BLOCK_MIN_INT16, MIN, int16_t)

enum Op {
    SUM_FLOAT, SUM_HALF, SUM_INT16, SUM_UINT32, MAX_FLOAT, MAX_HALF, MAX_UINT16, MIN_FLOAT, MIN_HALF, MIN_INT32, BLOCK_SUM_FLOAT,
    BLOCK_SUM_HALF, BLOCK_MAX_HALF, BLOCK_MIN_INT16, PAIR_FLOAT, PAIR_HALF, INTERLEAVE_HALF, INTERLEAVE_FLOAT, DEINTERLEAVE_INT8,
    DEINTERLEAVE_FLOAT, DUPLICATE, DUPLICATE_MERGING, DUPLICATE_FIRST, ARANGE_UP, ARANGE_DOWN, ARANGE_BYTES, GATHER_REGISTER, SQUEEZE, MOVE
};

template <ReduceType type, class D, class S>
__simd_vf__ inline void ReduceVF(__ubuf__ D* dst, __ubuf__ S* src, uint32_t count) {
    Reg::RegTensor<S> x;
    Reg::RegTensor<D> y;
    Reg::MaskReg mask = Reg::UpdateMask<S>(count), all = Reg::CreateMask<D>();
    Reg::LoadAlign(x, src);
    Reg::Reduce<type>(y, x, mask);
    Reg::StoreAlign(dst, y, all);
}
template <ReduceType type, class T>
__simd_vf__ inline void BlockVF(__ubuf__ T* dst, __ubuf__ T* src, uint32_t count) {
    Reg::RegTensor<T> x, y;
    Reg::MaskReg mask = Reg::UpdateMask<T>(count), all = Reg::CreateMask<T>();
    Reg::LoadAlign(x, src);
    Reg::ReduceDataBlock<type>(y, x, mask);
    Reg::StoreAlign(dst, y, all);
}
template <class T>
__simd_vf__ inline void PairVF(__ubuf__ T* dst, __ubuf__ T* src, uint32_t count) {
    Reg::RegTensor<T> x, y;
    Reg::MaskReg mask = Reg::UpdateMask<T>(count), all = Reg::CreateMask<T>();
    Reg::LoadAlign(x, src);
    Reg::PairReduceElem<Reg::PairReduce::SUM>(y, x, mask);
    Reg::StoreAlign(dst, y, all);
}
template <class T, bool apart>
__simd_vf__ inline void TurnsVF(__ubuf__ T* dst, __ubuf__ T* a, __ubuf__ T* b) {
    Reg::RegTensor<T> x, y;
    Reg::MaskReg all = Reg::CreateMask<T>();
    Reg::LoadAlign(x, a);
    Reg::LoadAlign(y, b);
    if constexpr (apart) Reg::DeInterleave(x, y, x, y);
    else Reg::Interleave(x, y, x, y);
    Reg::StoreAlign(dst, x, all);
    Reg::StoreAlign(dst + 256 / sizeof(T), y, all);
}
template <int how>
__simd_vf__ inline void DuplicateVF(__ubuf__ half* dst, __ubuf__ half* src, float scalar, uint32_t count) {
    Reg::RegTensor<half> x, y;
    Reg::MaskReg mask = Reg::UpdateMask<half>(count), all = Reg::CreateMask<half>();
    Reg::LoadAlign(x, src);
    if constexpr (how == 0) Reg::Duplicate(y, static_cast<half>(scalar));
    if constexpr (how == 1) Reg::LoadAlign(y, dst), Reg::Duplicate<half, Reg::MaskMergeMode::MERGING>(y, static_cast<half>(scalar), mask);
    if constexpr (how == 2) Reg::Duplicate(y, x, mask);
    Reg::StoreAlign(dst, y, all);
}
template <class T, Reg::IndexOrder order>
__simd_vf__ inline void ArangeVF(__ubuf__ T* dst, int32_t from) {
    Reg::RegTensor<T> x;
    Reg::MaskReg all = Reg::CreateMask<T>();
    Reg::Arange<T, order>(x, static_cast<T>(from));
    Reg::StoreAlign(dst, x, all);
}
__simd_vf__ inline void GatherRegisterVF(__ubuf__ half* dst, __ubuf__ half* src, __ubuf__ uint16_t* places) {
    Reg::RegTensor<half> x, y;
    Reg::RegTensor<uint16_t> index;
    Reg::MaskReg all = Reg::CreateMask<half>();
    Reg::LoadAlign(x, src);
    Reg::LoadAlign(index, places);
    Reg::Gather(y, x, index);
    Reg::StoreAlign(dst, y, all);
}
__simd_vf__ inline void SqueezeVF(__ubuf__ float* dst, __ubuf__ float* src) {
    Reg::RegTensor<float> x, y;
    Reg::MaskReg third = Reg::CreateMask<float, Reg::MaskPattern::M3>(), all = Reg::CreateMask<float>();
    Reg::LoadAlign(x, src);
    Reg::Squeeze(y, x, third);
    Reg::StoreAlign(dst, y, all);
}
__simd_vf__ inline void MoveVF(__ubuf__ float* dst, __ubuf__ float* src, uint32_t count) {
    Reg::RegTensor<float> x, y, z;
    Reg::MaskReg mask = Reg::UpdateMask<float>(count), all = Reg::CreateMask<float>();
    Reg::LoadAlign(x, src);
    Reg::LoadAlign(y, dst);
    Reg::Move(y, x, mask);
    Reg::Move(z, y);
    Reg::StoreAlign(dst, z, all);
}

__aicore__ inline void body(Frame& f, const Call& c) {
    const uint32_t count = static_cast<uint32_t>(c.count);
    switch (c.op) {
#define CASE(name, type, D, S) \
    case name: asc_vf_call<ReduceVF<ReduceType::type, D, S>>(f.at<D>(0), f.at<S>(1), count); break;
        REDUCTIONS(CASE)
#undef CASE
#define CASE(name, type, T) \
    case name: asc_vf_call<BlockVF<ReduceType::type, T>>(f.at<T>(0), f.at<T>(1), count); break;
        BLOCKS(CASE)
#undef CASE
        case PAIR_FLOAT: asc_vf_call<PairVF<float>>(f.at<float>(0), f.at<float>(1), count); break;
        case PAIR_HALF: asc_vf_call<PairVF<half>>(f.at<half>(0), f.at<half>(1), count); break;
        case INTERLEAVE_HALF: asc_vf_call<TurnsVF<half, false>>(f.at<half>(0), f.at<half>(1), f.at<half>(2)); break;
        case INTERLEAVE_FLOAT: asc_vf_call<TurnsVF<float, false>>(f.at<float>(0), f.at<float>(1), f.at<float>(2)); break;
        case DEINTERLEAVE_INT8: asc_vf_call<TurnsVF<int8_t, true>>(f.at<int8_t>(0), f.at<int8_t>(1), f.at<int8_t>(2)); break;
        case DEINTERLEAVE_FLOAT: asc_vf_call<TurnsVF<float, true>>(f.at<float>(0), f.at<float>(1), f.at<float>(2)); break;
        case DUPLICATE: asc_vf_call<DuplicateVF<0>>(f.at<half>(0), f.at<half>(1), c.scalar, count); break;
        case DUPLICATE_MERGING: asc_vf_call<DuplicateVF<1>>(f.at<half>(0), f.at<half>(1), c.scalar, count); break;
        case DUPLICATE_FIRST: asc_vf_call<DuplicateVF<2>>(f.at<half>(0), f.at<half>(1), c.scalar, count); break;
        case ARANGE_UP: asc_vf_call<ArangeVF<int32_t, Reg::IndexOrder::INCREASE_ORDER>>(f.at<int32_t>(0), c.a); break;
        case ARANGE_DOWN: asc_vf_call<ArangeVF<half, Reg::IndexOrder::DECREASE_ORDER>>(f.at<half>(0), c.a); break;
        case ARANGE_BYTES: asc_vf_call<ArangeVF<int8_t, Reg::IndexOrder::INCREASE_ORDER>>(f.at<int8_t>(0), c.a); break;
        case GATHER_REGISTER: asc_vf_call<GatherRegisterVF>(f.at<half>(0), f.at<half>(1), f.at<uint16_t>(2)); break;
        case SQUEEZE: asc_vf_call<SqueezeVF>(f.at<float>(0), f.at<float>(1)); break;
        default: asc_vf_call<MoveVF>(f.at<float>(0), f.at<float>(1), count); break;
    }
}
REGISTER_KERNEL(register_layouts)
