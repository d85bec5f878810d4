// Fixpipe out of an L0C that holds known numbers: types, layouts, quantization, ReLU, atomic; see test_cube_fixpipe.py.
#include "kernel_operator.h"

using namespace AscendC;

struct Args {
    int32_t from, to;          // float 0, int32 1; float, int32, half, bfloat16, int8, uint8, fp8, hifloat8
    int32_t m, n, k, columns;  // C is m x n; `columns` of them are moved
    int32_t layout, quant, relu, vector, split, atomic;
    int32_t stride, number, matrix_stride,
        nd_stride;       // dstStride; matrices, their distance in L0C and in the destination
    int32_t through_l1;  // L0C -> L1 as bfloat16 or half NZ, and that times the identity
    int32_t infinity;    // CTRL[48]
    uint64_t factor;
};

enum { FLOAT, INT32, HALF, BFLOAT16, INT8, UINT8, FP8, HIF8 };

/// Whether the struct of dav-3510 is used; with OLD_STRUCT that of dav-2201 is, on both.
#if __NPU_ARCH__ == 3510 && !defined(OLD_STRUCT)
#define NEW_STRUCT 1
#else
#define NEW_STRUCT 0
#endif

__aicore__ inline int32_t up(int32_t value, int32_t unit) { return (value + unit - 1) / unit * unit; }

/// L0C = A x B: A [m, k] in NZ, B [n, k] in NZ.
template <class U, class A>
__aicore__ inline void ToL0C(const LocalTensor<U>& c0, GM_ADDR a, GM_ADDR b, const Args& p) {
    constexpr int32_t C0 = 32 / sizeof(A);
    GlobalTensor<A> aGm, bGm;
    aGm.SetGlobalBuffer((__gm__ A*)a), bGm.SetGlobalBuffer((__gm__ A*)b);
    LocalTensor<A> a1(TPosition::A1, 0, 64 * 1024 / sizeof(A)), b1(TPosition::B1, 64 * 1024, 64 * 1024 / sizeof(A));
    LocalTensor<A> a2(TPosition::A2, 0, 64 * 1024 / sizeof(A)), b2(TPosition::B2, 0, 64 * 1024 / sizeof(A));
    DataCopy(a1, aGm, Nd2NzParams(1, p.m, p.k, 0, p.k, up(p.m, 16), 1, 0));
    DataCopy(b1, bGm, Nd2NzParams(1, p.n, p.k, 0, p.k, up(p.n, 16), 1, 0));
    SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    const uint16_t high = up(p.m, 16) / 16, wide = up(p.k, C0) / C0;
#if __NPU_ARCH__ == 3510
    LoadData(a2, a1, LoadData2DParamsV2(0, 0, high, wide, high, high, false, 0));
#else
    for (int32_t i = 0; i < high; ++i)
        LoadData(a2[i * wide * 16 * C0], a1[i * 16 * C0], LoadData2DParams(0, wide, high, 0, 0, false, 0));
#endif
    LoadData(b2, b1, LoadData2DParams(0, up(p.n, 16) / 16 * wide, 1, 0, 0, false, 0));
    SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
    WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
    Mmad(c0, a2, b2, MmadParams(p.m, p.n, p.k, 0, false, true));
    SetFlag<HardEvent::M_FIX>(EVENT_ID0);
    WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
}

template <const FixpipeConfig& config>
__aicore__ inline auto Parameters(const Args& p) {
#if NEW_STRUCT
    FixpipeParamsArch3510<config.format> q(p.columns, p.m, up(p.m, 16), p.stride);
    if constexpr (config.format == CO2Layout::ROW_MAJOR) q.params = Nz2NdParams(p.number, p.matrix_stride, p.nd_stride);
    if constexpr (config.format == CO2Layout::COLUMN_MAJOR)
        q.params = Nz2DnParams(p.number, p.matrix_stride, p.nd_stride, 1);
#else
    FixpipeParamsV220 q(p.columns, p.m, up(p.m, 16), p.stride, false);
    q.ndNum = p.number, q.srcNdStride = p.matrix_stride, q.dstNdStride = p.nd_stride;
#endif
    if (p.number > 1) q.mSize = p.m / p.number;
    q.quantPre = static_cast<QuantMode_t>(p.quant), q.deqScalar = p.factor, q.reluEn = p.relu != 0,
    q.isChannelSplit = p.split != 0;
    return q;
}

template <class T, class U, const FixpipeConfig& config>
__aicore__ inline void Store(const LocalTensor<U>& c0, GM_ADDR factors, GM_ADDR out, const Args& p) {
    GlobalTensor<T> outGm;
    outGm.SetGlobalBuffer((__gm__ T*)out);
    const auto q = Parameters<config>(p);
    if constexpr (sizeof(T) > 1)
        if (p.atomic) SetAtomicAdd<T>();
    if (p.vector) {
        GlobalTensor<uint64_t> factorGm;
        factorGm.SetGlobalBuffer((__gm__ uint64_t*)factors);
        LocalTensor<uint64_t> factors1(TPosition::C1, 128 * 1024, 256);
        DataCopy(factors1, factorGm, up(p.n, 4));
        SetFlag<HardEvent::MTE2_FIX>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_FIX>(EVENT_ID0);
        Fixpipe<T, U, config>(outGm, c0, factors1, q);
    } else {
        Fixpipe<T, U, config>(outGm, c0, q);
    }
    if (p.atomic) SetAtomicNone();
}

template <class T, class U>
__aicore__ inline void Lay(const LocalTensor<U>& c0, GM_ADDR factors, GM_ADDR out, const Args& p) {
    if (p.layout == 0) Store<T, U, CFG_ROW_MAJOR>(c0, factors, out, p);
    if (p.layout == 1) Store<T, U, CFG_NZ>(c0, factors, out, p);
#if NEW_STRUCT
    if (p.layout == 2) Store<T, U, CFG_COLUMN_MAJOR>(c0, factors, out, p);
#endif
}

/// L0C -> L1 in NZ of T: the left matrix of a second product, with the n x n identity.
template <class T>
__aicore__ inline void ThroughL1(const LocalTensor<float>& c0, GM_ADDR identity, GM_ADDR out, const Args& p) {
    LocalTensor<T> c1(TPosition::A1, 256 * 1024, 32 * 1024);
    const int32_t rows = up(p.m, 16);
#if NEW_STRUCT
    FixpipeParamsArch3510<CO2Layout::NZ> q(p.n, p.m, rows, rows * 16);
#else
    FixpipeParamsV220 q(p.n, p.m, rows, rows, false);
#endif
    q.quantPre = static_cast<QuantMode_t>(p.quant), q.reluEn = p.relu != 0;
    Fixpipe<T, float, CFG_NZ>(c1, c0, q);
    LocalTensor<T> b1(TPosition::B1, 192 * 1024, 32 * 1024), a2(TPosition::A2, 0, 32 * 1024),
        b2(TPosition::B2, 0, 32 * 1024);
    GlobalTensor<T> unit;
    unit.SetGlobalBuffer((__gm__ T*)identity);
    DataCopy(b1, unit, Nd2NzParams(1, p.n, p.n, 0, p.n, p.n, 1, 0));
    SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    SetFlag<HardEvent::FIX_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::FIX_MTE1>(EVENT_ID0);
    SetFlag<HardEvent::M_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::M_MTE1>(EVENT_ID0);
    const uint16_t high = rows / 16, wide = p.n / 16;
#if __NPU_ARCH__ == 3510
    LoadData(a2, c1, LoadData2DParamsV2(0, 0, high, wide, high, high, false, 0));
#else
    for (int32_t i = 0; i < high; ++i)
        LoadData(a2[i * wide * 256], c1[i * 256], LoadData2DParams(0, wide, high, 0, 0, false, 0));
#endif
    LoadData(b2, b1, LoadData2DParams(0, wide * wide, 1, 0, 0, false, 0));
    SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
    WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
    SetFlag<HardEvent::FIX_M>(EVENT_ID0);
    WaitFlag<HardEvent::FIX_M>(EVENT_ID0);
    PipeBarrier<PIPE_M>();
    Mmad(c0, a2, b2, MmadParams(p.m, p.n, p.n, 0, false, true));
    SetFlag<HardEvent::M_FIX>(EVENT_ID0);
    WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
    Args plain = p;
    plain.quant = NoQuant, plain.relu = 0;
    PipeBarrier<PIPE_FIX>();
    Lay<float, float>(c0, identity, out, plain);
}

extern "C" __global__ __aicore__ void cube_fixpipe(GM_ADDR a, GM_ADDR b, GM_ADDR factors, GM_ADDR out, Args p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    if ASCEND_IS_AIC {
#if __NPU_ARCH__ == 3510
        if (p.infinity) SetCtrlSpr<48, 48>(1);
#endif
        if (p.from == FLOAT) {
            LocalTensor<float> c0(TPosition::CO1, 0, 16 * 1024);
            ToL0C<float, float>(c0, a, b, p);
            if (p.through_l1) {
                if (p.to == HALF) ThroughL1<half>(c0, factors, out, p);
                if (p.to == BFLOAT16) ThroughL1<bfloat16_t>(c0, factors, out, p);
                return;
            }
            if (p.to == FLOAT) Lay<float, float>(c0, factors, out, p);
            if (p.to == HALF) Lay<half, float>(c0, factors, out, p);
            if (p.to == BFLOAT16) Lay<bfloat16_t, float>(c0, factors, out, p);
            if (p.to == INT8) Lay<int8_t, float>(c0, factors, out, p);
            if (p.to == UINT8) Lay<uint8_t, float>(c0, factors, out, p);
#if __NPU_ARCH__ == 3510
            if (p.to == FP8) Lay<fp8_e4m3fn_t, float>(c0, factors, out, p);
            if (p.to == HIF8) Lay<hifloat8_t, float>(c0, factors, out, p);
#endif
        } else {
            LocalTensor<int32_t> c0(TPosition::CO1, 0, 16 * 1024);
            ToL0C<int32_t, int8_t>(c0, a, b, p);
            if (p.to == INT32) Lay<int32_t, int32_t>(c0, factors, out, p);
            if (p.to == HALF) Lay<half, int32_t>(c0, factors, out, p);
            if (p.to == INT8) Lay<int8_t, int32_t>(c0, factors, out, p);
            if (p.to == UINT8) Lay<uint8_t, int32_t>(c0, factors, out, p);
#if __NPU_ARCH__ == 3510
            if (p.to == BFLOAT16) Lay<bfloat16_t, int32_t>(c0, factors, out, p);
#endif
        }
    }
}
