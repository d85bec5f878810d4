// Register-level vector functions of dav-3510 (Ascend 950): namespace AscendC::Reg, formerly MicroAPI.
//
// Pages of the Ascend C API reference (docs/zh/api of asc-devkit, July 2026), "basic API, Reg vector computation":
//   [page] the page of that call there   [Mask] register data types, MaskReg   [Layout] auxiliary data types, RegLayout
//   [Performance] appendix, theoretical performance of the Reg interfaces   [Issue] appendix, single and dual issue of them
//   [Borders] appendix, boundary values of the Reg vector computation
// "Unknown" marks what they leave open. Nothing here was compared with silicon.
//
// Not checked, since a run does not show it: loops that are no hardware loops (counters other than uint16_t), and how many of the
// 32 vector, 8 mask and 8 address registers are in use.
// Not here: 64-bit and complex elements (RegTraitNumTwo), block-strided LoadAlign and StoreAlign, unaligned copies with an
// address register or the AR register, GatherB, Scatter, MaskGenWithRegTensor, MoveMask, Interleave and DeInterleave of masks,
// masks in memory but for DIST_NORM, histograms, Log, Log2, Log10, Relu, Prelu, LeakyRelu, AddC, SubC, carries of Add and Sub,
// Mull, AbsSub, MulDstAdd, MulsCast, Truncate, Pack, UnPack and Unsqueeze of registers, tensors as arguments of vector
// functions, names of earlier releases (DataCopy, PairReduceSum, ReduceSum).
#pragma once

#if __NPU_ARCH__ == 3510
#include "register_arithmetic.h"
#include "register_cast.h"
#include "register_copy.h"
#include "register_layout.h"
#else
#include "vector_types.h"

namespace AscendC::Reg {
template <class T>
struct RegTensor {
    static_assert(sizeof(T) == 0, "RegTensor: dav-2201 has no vector registers; they are of dav-3510.");
};
}  // namespace AscendC::Reg
template <auto function, class... Args>
void asc_vf_call(Args&&...) {
    static_assert(sizeof...(Args) > 1000, "asc_vf_call: dav-2201 has no vector functions; they are of dav-3510.");
}
#endif
