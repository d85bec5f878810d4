// dav-3510: what the cube core's copies leave in L1, seen through L1 -> UB -> global memory, and L0C -> UB; see
// test_cube_paths.py.
#include "kernel_operator.h"

using namespace AscendC;

struct Args {
    int32_t what, size, bytes;  // bytes of L1 that are shown
    int32_t number, rows, columns;
    int32_t matrix_stride, line, c0_stride, n_stride, nz_matrix_stride;
    int32_t repeats, blocks, gap, sub;  // Fill; vector core
    int32_t dual, layout, stride, transpose;
};

enum What { ND2NZ, DN2NZ, SMALL_ND2NZ, SMALL_DN2NZ, FILL, CIRCLE, TO_UB, FRACTALS, MISSING_FLAG };

template <class T>
__aicore__ inline void ToL1(const LocalTensor<uint8_t>& l1, GM_ADDR in, const Args& p) {
    GlobalTensor<T> gm;
    gm.SetGlobalBuffer((__gm__ T*)in);
    LocalTensor<T> local = l1.ReinterpretCast<T>();
    const Nd2NzParams nd(p.number, p.rows, p.columns, p.matrix_stride, p.line, p.c0_stride, p.n_stride,
                         p.nz_matrix_stride);
    const Dn2NzParams dn(p.number, p.rows, p.columns, p.matrix_stride, p.line, p.c0_stride, p.n_stride,
                         p.nz_matrix_stride);
    switch (p.what) {
        case ND2NZ: DataCopy(local, gm, nd); break;
        case DN2NZ: DataCopy(local, gm, dn); break;
        case SMALL_ND2NZ: DataCopy<T, true>(local, gm, nd); break;
        case SMALL_DN2NZ: DataCopy<T, true>(local, gm, dn); break;
    }
}

/// An identity times a float matrix is the matrix: L0C holds what `in` does. 32 x 64, K 32.
__aicore__ inline void ToL0C(const LocalTensor<float>& c0, GM_ADDR in, GM_ADDR identity) {
    GlobalTensor<float> a, b;
    a.SetGlobalBuffer((__gm__ float*)identity), b.SetGlobalBuffer((__gm__ float*)in);
    LocalTensor<float> a1(TPosition::A1, 0, 32 * 32), b1(TPosition::B1, 8192, 32 * 64), a2(TPosition::A2, 0, 32 * 32),
        b2(TPosition::B2, 0, 32 * 64);
    DataCopy(a1, a, Nd2NzParams(1, 32, 32, 0, 32, 32, 1, 0));
    DataCopy(b1, b, Nd2NzParams(1, 32, 64, 0, 64, 32, 1, 0));
    SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
    LoadData(a2, a1, LoadData2DParamsV2(0, 0, 2, 4, 2, 2, false, 0));
    LoadData(b2, b1, LoadData2DParamsV2(0, 0, 2, 8, 2, 4, true, 0));
    SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
    WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
    Mmad(c0, a2, b2, MmadParams(32, 64, 32, 0, false, true));
    SetFlag<HardEvent::M_FIX>(EVENT_ID0);
    WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
}

constexpr FixpipeConfig ROWS_TO_UB = {CO2Layout::ROW_MAJOR, true}, NZ_TO_UB = {CO2Layout::NZ, true},
                        COLUMNS_TO_UB = {CO2Layout::COLUMN_MAJOR, true};

template <const FixpipeConfig& config>
__aicore__ inline void ToUB(const LocalTensor<float>& ub, const LocalTensor<float>& c0, const Args& p) {
    FixpipeParamsArch3510<config.format> out(p.columns, p.rows, 32, p.stride);
    out.dualDstCtl = p.dual, out.subBlockId = p.sub != 0;
    if constexpr (config.format == CO2Layout::COLUMN_MAJOR) out.params.srcNzC0Stride = 1;
    Fixpipe<float, float, config>(ub, c0, out);
}

extern "C" __global__ __aicore__ void cube_paths(GM_ADDR in, GM_ADDR identity, GM_ADDR out, Args p) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    GlobalTensor<uint8_t> shown;
    shown.SetGlobalBuffer((__gm__ uint8_t*)out);
    LocalTensor<uint8_t> l1(TPosition::A1, 0, 128 * 1024), ub(TPosition::VECIN, 0, 64 * 1024),
        back(TPosition::VECIN, 64 * 1024, 64 * 1024);
    if ASCEND_IS_AIC {
        if (p.what == CIRCLE) {
            CrossCoreWaitFlag<2, PIPE_MTE3>(EVENT_ID0);
            DataCopyL1ToUB<uint8_t, 0>(back, l1[p.bytes],
                                       p.bytes);  // what vector core 1 wrote goes to 0 and the other way round
            DataCopyL1ToUB<uint8_t, 1>(back, l1, p.bytes);
            CrossCoreSetFlag<2, PIPE_MTE3>(EVENT_ID1);
        } else if (p.what == TO_UB || p.what == MISSING_FLAG) {
            LocalTensor<float> c0(TPosition::CO1, 0, 32 * 64);
            ToL0C(c0, in, identity);
            const LocalTensor<float> to = ub.ReinterpretCast<float>();
            if (p.layout == 0) ToUB<ROWS_TO_UB>(to, c0, p);
            if (p.layout == 1) ToUB<NZ_TO_UB>(to, c0, p);
            if (p.layout == 2) ToUB<COLUMNS_TO_UB>(to, c0, p);
            CrossCoreSetFlag<2, PIPE_FIX>(EVENT_ID1);
        } else {
            LocalTensor<uint16_t> words = l1.ReinterpretCast<uint16_t>();
            Fill(words, {1, static_cast<uint16_t>(p.bytes / 32), 0, uint16_t(0x5a5a)});
            PipeBarrier<PIPE_MTE2>();
            if (p.what == FILL)
                Fill(l1.ReinterpretCast<float>(), InitConstValueParams<float>(p.repeats, p.blocks, p.gap, 1.5f));
            else if (p.size == 1)
                ToL1<uint8_t>(l1, in, p);
            else if (p.size == 2)
                ToL1<half>(l1, in, p);
            else
                ToL1<float>(l1, in, p);
            SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
            WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
            DataCopyL1ToUB(ub, l1, p.bytes);
            CrossCoreSetFlag<2, PIPE_MTE3>(EVENT_ID1);
        }
    }
    if ASCEND_IS_AIV {
        const int32_t sub = static_cast<int32_t>(GetSubBlockIdx());
        if (p.what == CIRCLE) {
            GlobalTensor<uint8_t> gm;
            gm.SetGlobalBuffer((__gm__ uint8_t*)in);
            DataCopy(ub, gm[sub * p.bytes], p.bytes);
            SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
            WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
            DataCopy(l1[sub * p.bytes], ub, p.bytes);
            CrossCoreSetFlag<2, PIPE_MTE3>(EVENT_ID0);
        }
        if (p.what != MISSING_FLAG) CrossCoreWaitFlag<2, PIPE_MTE3>(EVENT_ID1);
        const bool both = p.what == CIRCLE || ((p.what == TO_UB || p.what == MISSING_FLAG) && p.dual != 0);
        if (both || sub == ((p.what == TO_UB || p.what == MISSING_FLAG) ? p.sub : 0))
            DataCopy(shown[both ? sub * p.bytes : 0], p.what == CIRCLE ? back : ub, p.bytes);
        if (p.what == MISSING_FLAG) CrossCoreWaitFlag<2, PIPE_MTE3>(EVENT_ID1);
    }
}
