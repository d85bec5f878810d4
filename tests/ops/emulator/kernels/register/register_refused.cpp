// What dav-2201 does not have, and what dav-3510 does not have of the register calls: none of it compiles. The compiler's
// first errors are shown, hence GROUP.
#include "kernel_operator.h"

using namespace AscendC;

#if __NPU_ARCH__ == 2201
void function(__ubuf__ float*) {}
extern "C" __global__ __aicore__ void register_refused() {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Reg::RegTensor<float> x;
    asc_vf_call<function>(nullptr);
}
#else
struct Pair {
    int a, b;
};
__simd_vf__ inline void StructVF(Pair) {}
__simd_vf__ inline void ReferenceVF(int&) {}
__simd_vf__ inline void RefusedVF(__ubuf__ float* src) {
    Reg::RegTensor<float> x;
    Reg::RegTensor<bfloat16_t> y;
    Reg::RegTensor<int8_t> z;
    Reg::MaskReg mask;
#if GROUP == 0
    Reg::Exp(y, y, mask);
    Reg::Mul(z, z, z, mask);
    Reg::RegTensor<int64_t> wide;
#elif GROUP == 1
    Reg::Sub<float, Reg::MaskMergeMode::MERGING>(x, x, x, mask);
    Reg::LoadAlign<float, Reg::LoadDist::DIST_UNPACK_B16>(x, src);
    Reg::LoadAlign(y, src);
    Reg::LocalMemBar<Reg::MemType::VEC_LOAD, Reg::MemType::VEC_LOAD>();
    Reg::Squeeze<float, Reg::GatherMaskMode::STORE_REG>(x, x, mask);
#elif GROUP == 2
    static constexpr Reg::CastTrait trait5 = {Reg::RegLayout::ZERO, Reg::SatMode::SAT, Reg::MaskMergeMode::ZEROING, RoundMode::CAST_RINT};
    Reg::Cast<int8_t, float, trait5>(z, x, mask);
    static constexpr Reg::CastTrait trait6 = {Reg::RegLayout::UNKNOWN, Reg::SatMode::SAT, Reg::MaskMergeMode::ZEROING, RoundMode::CAST_RINT};
    Reg::Cast<bfloat16_t, float, trait6>(y, x, mask);
    static constexpr Reg::CastTrait trait7 = {Reg::RegLayout::ZERO, Reg::SatMode::UNKNOWN, Reg::MaskMergeMode::ZEROING, RoundMode::CAST_RINT};
    Reg::Cast<bfloat16_t, float, trait7>(y, x, mask);
    static constexpr Reg::CastTrait trait8 = {Reg::RegLayout::ZERO, Reg::SatMode::SAT, Reg::MaskMergeMode::ZEROING, RoundMode::CAST_ODD};
    Reg::Cast<bfloat16_t, float, trait8>(y, x, mask);
#elif GROUP == 3
    uint16_t count = 3;
    mask = Reg::UpdateMask<float>(count);
    Reg::Histograms(x, x, mask);
#endif
}
extern "C" __global__ __aicore__ void register_refused() {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#if GROUP == 4
    asc_vf_call<StructVF>(Pair{1, 2});
    int i = 0;
    asc_vf_call<ReferenceVF>(i);
#else
    asc_vf_call<RefusedVF>(static_cast<__ubuf__ float*>(nullptr));
#endif
}
#endif
