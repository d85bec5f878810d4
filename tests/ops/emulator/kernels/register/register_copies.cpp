// Loads and stores of registers: distributions, strides, unaligned, gathered, masks. See test_registers.py.
#include "register_frame.h"

using namespace AscendC;
using Reg::LoadDist;
using Reg::PostLiteral;
using Reg::StoreDist;

#define LOADS(X)                                                                                                          \
    X(LOAD_NORM, float, DIST_NORM) X(LOAD_BRC_B8, int8_t, DIST_BRC_B8) X(LOAD_BRC_B16, half, DIST_BRC_B16)                \
    X(LOAD_BRC_B32, float, DIST_BRC_B32) X(LOAD_US_B8, uint8_t, DIST_US_B8) X(LOAD_US_B16, int16_t, DIST_US_B16)          \
    X(LOAD_DS_B8, uint8_t, DIST_DS_B8) X(LOAD_DS_B16, bfloat16_t, DIST_DS_B16) X(LOAD_UNPACK_B8, int8_t, DIST_UNPACK_B8)  \
    X(LOAD_UNPACK_B16, bfloat16_t, DIST_UNPACK_B16) X(LOAD_UNPACK_B32, uint32_t, DIST_UNPACK_B32)                         \
    X(LOAD_UNPACK4_B8, fp8_e4m3fn_t, DIST_UNPACK4_B8) X(LOAD_BLK, int32_t, DIST_BLK) X(LOAD_E2B_B16, half, DIST_E2B_B16)  \
    X(LOAD_E2B_B32, float, DIST_E2B_B32)
#define DUAL_LOADS(X) \
    X(LOAD_DINTLV_B8, uint8_t, DIST_DINTLV_B8) X(LOAD_DINTLV_B16, half, DIST_DINTLV_B16) X(LOAD_DINTLV_B32, float, DIST_DINTLV_B32)
// Name, element, distribution, element of the mask.
#define STORES(X)                                                                                                         \
    X(STORE_NORM, half, DIST_NORM, half) X(STORE_NORM_B8, uint8_t, DIST_NORM_B8, uint8_t)                                 \
    X(STORE_NORM_B16, int16_t, DIST_NORM_B16, int16_t) X(STORE_NORM_B32, float, DIST_NORM_B32, float)                     \
    X(STORE_FIRST_B8, int8_t, DIST_FIRST_ELEMENT_B8, int8_t) X(STORE_FIRST_B16, half, DIST_FIRST_ELEMENT_B16, half)       \
    X(STORE_FIRST_B32, float, DIST_FIRST_ELEMENT_B32, float) X(STORE_PACK_B16, int8_t, DIST_PACK_B16, half)               \
    X(STORE_PACK_B32, half, DIST_PACK_B32, float) X(STORE_PACK4_B32, uint8_t, DIST_PACK4_B32, float)
#define DUAL_STORES(X) \
    X(STORE_INTLV_B8, uint8_t, DIST_INTLV_B8) X(STORE_INTLV_B16, half, DIST_INTLV_B16) X(STORE_INTLV_B32, float, DIST_INTLV_B32)

enum Op {
    LOAD_NORM, LOAD_BRC_B8, LOAD_BRC_B16, LOAD_BRC_B32, LOAD_US_B8, LOAD_US_B16, LOAD_DS_B8, LOAD_DS_B16, LOAD_UNPACK_B8, LOAD_UNPACK_B16,
    LOAD_UNPACK_B32, LOAD_UNPACK4_B8, LOAD_BLK, LOAD_E2B_B16, LOAD_E2B_B32, LOAD_DINTLV_B8, LOAD_DINTLV_B16, LOAD_DINTLV_B32,
    STORE_NORM, STORE_NORM_B8, STORE_NORM_B16, STORE_NORM_B32, STORE_FIRST_B8, STORE_FIRST_B16, STORE_FIRST_B32, STORE_PACK_B16,
    STORE_PACK_B32, STORE_PACK4_B32, STORE_INTLV_B8, STORE_INTLV_B16, STORE_INTLV_B32, POST_UPDATE, ADDRESS_REGISTER, DUAL_UPDATE,
    UNALIGNED, LOAD_STORE, GATHER_HALF, GATHER_FLOAT, GATHER_BYTES, MASK_FROM_MEMORY, MASK_GAPS, PATTERNS
};

template <class T, LoadDist dist>
__simd_vf__ inline void LoadVF(__ubuf__ T* dst, __ubuf__ T* src) {
    Reg::RegTensor<T> x;
    Reg::MaskReg all = Reg::CreateMask<T>();
    Reg::LoadAlign<T, dist>(x, src);
    Reg::StoreAlign(dst, x, all);
}
template <class T, LoadDist dist>
__simd_vf__ inline void DualLoadVF(__ubuf__ T* dst, __ubuf__ T* src) {
    Reg::RegTensor<T> x, y;
    Reg::MaskReg all = Reg::CreateMask<T>();
    Reg::LoadAlign<T, dist>(x, y, src);
    Reg::StoreAlign(dst, x, all);
    Reg::StoreAlign(dst + 256 / sizeof(T), y, all);
}
template <class T, StoreDist dist, class M>
__simd_vf__ inline void StoreVF(__ubuf__ T* dst, __ubuf__ T* src, uint32_t count) {
    Reg::RegTensor<T> x;
    Reg::MaskReg mask = Reg::UpdateMask<M>(count);
    Reg::LoadAlign(x, src);
    Reg::StoreAlign<T, dist>(dst, x, mask);
}
template <class T, StoreDist dist>
__simd_vf__ inline void DualStoreVF(__ubuf__ T* dst, __ubuf__ T* a, __ubuf__ T* b) {
    Reg::RegTensor<T> x, y;
    Reg::MaskReg none = Reg::CreateMask<T, Reg::MaskPattern::ALLF>();
    Reg::LoadAlign(x, a);
    Reg::LoadAlign(y, b);
    Reg::StoreAlign<T, dist>(dst, x, y, none);
}
__simd_vf__ inline void PostUpdateVF(__ubuf__ half* dst, __ubuf__ half* src, uint32_t count, uint16_t times) {
    Reg::RegTensor<half> x;
    Reg::MaskReg mask;
    for (uint16_t i = 0; i < times; ++i) {
        mask = Reg::UpdateMask<half>(count);
        Reg::LoadAlign<half, PostLiteral::POST_MODE_UPDATE>(x, src, 128);
        Reg::StoreAlign<half, PostLiteral::POST_MODE_UPDATE>(dst, x, 128, mask);
    }
}
__simd_vf__ inline void AddressRegisterVF(__ubuf__ float* dst, __ubuf__ float* src, uint16_t rows, uint16_t columns) {
    Reg::RegTensor<float> x;
    Reg::MaskReg all = Reg::CreateMask<float>();
    Reg::AddrReg from, to;
    for (uint16_t i = 0; i < rows; ++i) {
        for (uint16_t j = 0; j < columns; ++j) {
            from = Reg::CreateAddrReg<float>(i, 64 * columns, j, 64);
            to = Reg::CreateAddrReg<float>(j, 64 * rows, i, 64);
            Reg::LoadAlign(x, src, from);
            Reg::StoreAlign(dst, x, to, all);
        }
    }
}
__simd_vf__ inline void DualUpdateVF(__ubuf__ float* dst, __ubuf__ float* src, uint16_t times) {
    Reg::RegTensor<float> x, y;
    Reg::MaskReg all = Reg::CreateMask<float>();
    for (uint16_t i = 0; i < times; ++i) {
        Reg::LoadAlign<float, PostLiteral::POST_MODE_UPDATE, LoadDist::DIST_DINTLV_B32>(x, y, src, 128);
        Reg::StoreAlign<float, StoreDist::DIST_INTLV_B32>(dst + i * 128, y, x, all);
    }
}
/// Page LoadUnAlign, "2. continuous unaligned copies".
__simd_vf__ inline void UnalignedVF(__ubuf__ uint32_t* dst, __ubuf__ uint32_t* src, uint32_t step, uint16_t times) {
    Reg::RegTensor<uint32_t> x;
    Reg::UnalignRegForLoad in;
    Reg::UnalignRegForStore out;
    Reg::LoadUnAlignPre(in, src);
    for (uint16_t i = 0; i < times; ++i) {
        Reg::LoadUnAlign(x, in, src, 64);
        Reg::StoreUnAlign(dst, x, out, step);
    }
    Reg::StoreUnAlignPost(dst, out, 0);
}
__simd_vf__ inline void LoadStoreVF(__ubuf__ int8_t* dst, __ubuf__ int8_t* src, uint32_t count, uint16_t times) {
    Reg::RegTensor<int8_t> x;
    for (uint16_t i = 0; i < times; ++i) {
        Reg::Load(x, src + i * count);
        Reg::Store(dst + i * count, x, count);
    }
}
template <class T, class S, class I>
__simd_vf__ inline void GatherVF(__ubuf__ T* dst, __ubuf__ S* src, __ubuf__ I* places, uint32_t count) {
    Reg::RegTensor<T> x;
    Reg::RegTensor<I> index;
    Reg::MaskReg all = Reg::CreateMask<T>(), mask = Reg::UpdateMask<T>(count);
    Reg::LoadAlign(index, places);
    Reg::Gather(x, src, index, mask);
    Reg::StoreAlign(dst, x, all);
}
__simd_vf__ inline void MaskFromMemoryVF(__ubuf__ float* dst, __ubuf__ float* src, __ubuf__ uint32_t* bits) {
    Reg::RegTensor<float> x;
    Reg::MaskReg mask;
    Reg::LoadAlign(mask, bits);
    Reg::LoadAlign(x, src);
    Reg::StoreAlign(dst, x, mask);
    Reg::StoreAlign(reinterpret_cast<__ubuf__ uint32_t*>(dst) + 64, mask);
}
/// Every third element of the lower half.
__simd_vf__ inline void MaskGapsVF(__ubuf__ half* dst, __ubuf__ half* src) {
    Reg::RegTensor<half> x;
    Reg::MaskReg third = Reg::CreateMask<half, Reg::MaskPattern::M3>(), lower = Reg::CreateMask<half, Reg::MaskPattern::H>(), both;
    Reg::And(both, third, lower, third);
    Reg::LoadAlign(x, src);
    Reg::StoreAlign(dst, x, both);
}
template <Reg::MaskPattern pattern>
__simd_callee__ inline void one_pattern(__ubuf__ uint8_t* dst) {
    Reg::MaskReg mask = Reg::CreateMask<half, pattern>();
    Reg::StoreAlign(dst + 32 * static_cast<int>(pattern), mask);
}
__simd_vf__ inline void PatternsVF(__ubuf__ uint8_t* dst) {
    using P = Reg::MaskPattern;
    one_pattern<P::ALL>(dst), one_pattern<P::VL1>(dst), one_pattern<P::VL2>(dst), one_pattern<P::VL3>(dst), one_pattern<P::VL4>(dst);
    one_pattern<P::VL8>(dst), one_pattern<P::VL16>(dst), one_pattern<P::VL32>(dst), one_pattern<P::VL64>(dst), one_pattern<P::VL128>(dst);
    one_pattern<P::M3>(dst), one_pattern<P::M4>(dst), one_pattern<P::H>(dst), one_pattern<P::Q>(dst), one_pattern<P::ALLF>(dst);
}

__aicore__ inline void body(Frame& f, const Call& c) {
    const uint32_t count = static_cast<uint32_t>(c.count);
    const uint16_t times = static_cast<uint16_t>(c.d);
    switch (c.op) {
#define CASE(name, T, dist) \
    case name: asc_vf_call<LoadVF<T, LoadDist::dist>>(f.at<T>(0), f.at<T>(1, c.a)); break;
        LOADS(CASE)
#undef CASE
#define CASE(name, T, dist) \
    case name: asc_vf_call<DualLoadVF<T, LoadDist::dist>>(f.at<T>(0), f.at<T>(1, c.a)); break;
        DUAL_LOADS(CASE)
#undef CASE
#define CASE(name, T, dist, M) \
    case name: asc_vf_call<StoreVF<T, StoreDist::dist, M>>(f.at<T>(0, c.b), f.at<T>(1), count); break;
        STORES(CASE)
#undef CASE
#define CASE(name, T, dist) \
    case name: asc_vf_call<DualStoreVF<T, StoreDist::dist>>(f.at<T>(0), f.at<T>(1), f.at<T>(2)); break;
        DUAL_STORES(CASE)
#undef CASE
        case POST_UPDATE: asc_vf_call<PostUpdateVF>(f.at<half>(0), f.at<half>(1), count, times); break;
        case ADDRESS_REGISTER: asc_vf_call<AddressRegisterVF>(f.at<float>(0), f.at<float>(1), uint16_t(2), uint16_t(3)); break;
        case DUAL_UPDATE: asc_vf_call<DualUpdateVF>(f.at<float>(0), f.at<float>(1), times); break;
        case UNALIGNED: asc_vf_call<UnalignedVF>(f.at<uint32_t>(0, c.b), f.at<uint32_t>(1, c.a), count, times); break;
        case LOAD_STORE: asc_vf_call<LoadStoreVF>(f.at<int8_t>(0, c.b), f.at<int8_t>(1, c.a), count, times); break;
        case GATHER_HALF: asc_vf_call<GatherVF<half, half, uint16_t>>(f.at<half>(0), f.at<half>(1), f.at<uint16_t>(2), count); break;
        case GATHER_FLOAT: asc_vf_call<GatherVF<float, float, uint32_t>>(f.at<float>(0), f.at<float>(1), f.at<uint32_t>(2), count); break;
        case GATHER_BYTES: asc_vf_call<GatherVF<int16_t, int8_t, uint16_t>>(f.at<int16_t>(0), f.at<int8_t>(1), f.at<uint16_t>(2), count); break;
        case MASK_FROM_MEMORY: asc_vf_call<MaskFromMemoryVF>(f.at<float>(0), f.at<float>(1), f.at<uint32_t>(2)); break;
        case MASK_GAPS: asc_vf_call<MaskGapsVF>(f.at<half>(0), f.at<half>(1)); break;
        default: asc_vf_call<PatternsVF>(f.at<uint8_t>(0)); break;
    }
}
REGISTER_KERNEL(register_copies)
