// One product C = A x B in one piece or along k, through every way of loading; see test_cube_product.py.
#include "kernel_operator.h"

using namespace AscendC;

struct Args {
    int32_t type, m, n, k, parts;      // parts: k is multiplied in so many equal pieces, at most 4
    int32_t turned_a, turned_b;        // A lies as [k, m], B as [n, k]
    int32_t loader;                    // 0: LoadData 2D or V2, LoadDataWithTranspose; 1: LoadData 3D
    int32_t start;                     // 0: from zero, 1: bias tensor, 2: cmatrixSource, 3: bias at CO1
    int32_t unit_flag, barrier, hf32;  // hf32 1: to even, 2: towards zero; 3: the order of C's tiles
    int32_t nz_input;                  // A and B come as NZ (turned: of the matrices as they lie)
    int32_t no_gemv, store;            // store 0: the end is left out
};

__aicore__ inline int32_t up(int32_t value, int32_t unit) { return (value + unit - 1) / unit * unit; }

template <class T, class A, class B>
class Product {
    static constexpr int32_t C0 = 32 / sizeof(A), L0 = 16 * 1024;  // L0: where the next piece begins

   public:
    __aicore__ inline void Run(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR bias, const Args& args) {
        p = args, part = p.k / p.parts;
        aGm.SetGlobalBuffer((__gm__ A*)a), bGm.SetGlobalBuffer((__gm__ B*)b), cGm.SetGlobalBuffer((__gm__ T*)c),
            biasGm.SetGlobalBuffer((__gm__ T*)bias);
        if (p.hf32 == 3) {
            SetMMRowMajor();
            SetMMLayoutTransform(true);
        } else if (p.hf32) {
            SetHF32Mode(HF32Mode::ENABLE);
            SetHF32TransMode(p.hf32 == 2 ? HF32TransMode::NEAREST_ZERO : HF32TransMode::NEAREST_EVEN);
        }
        // Turned matrices of 8 bits fill whole squares of 32: n of L0B, and m of L0A on dav-3510, are those of the
        // squares.
        m = __NPU_ARCH__ == 3510 && sizeof(A) == 1 && p.turned_a ? up(p.m, 32) : p.m;
        n = sizeof(B) == 1 && !p.turned_b ? up(p.n, 32) : p.n;
        LocalTensor<T> result(TPosition::CO1, 0, up(m, 16) * up(n, 16));
        for (int32_t i = 0; i < p.parts; ++i) {
            if (i > 0) {
                SetFlag<HardEvent::MTE1_MTE2>(EVENT_ID0);
                WaitFlag<HardEvent::MTE1_MTE2>(EVENT_ID0);
            }
            LoadIn(i);
            Multiply(i, result);
        }
        if (!p.store) return;
        if (!p.unit_flag) {
            SetFlag<HardEvent::M_FIX>(EVENT_ID0);
            WaitFlag<HardEvent::M_FIX>(EVENT_ID0);
        }
#if __NPU_ARCH__ == 3510
        FixpipeParamsArch3510<CO2Layout::ROW_MAJOR> out(p.n, p.m, up(m, 16), p.n);
#else
        FixpipeParamsV220 out(p.n, p.m, up(m, 16), p.n, false);
#endif
        out.unitFlag = p.unit_flag ? 3 : 0;
        Fixpipe<T, T, CFG_ROW_MAJOR>(cGm, result, out);
        if (p.hf32 == 3) SetMMColumnMajor(), SetMMLayoutTransform(false);
        else if (p.hf32) SetHF32Mode(HF32Mode::DISABLE);
    }

   private:
    /// rows x columns of a row-major matrix of `line` columns, from element `begin` on, to NZ in L1.
    template <class X>
    __aicore__ inline void ToL1(const LocalTensor<X>& local, const GlobalTensor<X>& gm, int32_t begin, int32_t rows,
                                int32_t columns, int32_t line, int32_t high) {
        if (p.nz_input)
            DataCopy(local, gm, high * up(columns, C0));
        else
            DataCopy(local, gm[begin], Nd2NzParams(1, rows, columns, 0, line, high, 1, 0));
    }

    __aicore__ inline void LoadIn(int32_t i) {
        const bool gemv = p.m == 1 && !p.no_gemv;
        // What lies in L1: rows and columns of each matrix as it is stored, rows rounded up to whole squares.
        const int32_t square = sizeof(A) == 1 ? 32 : 16;
        const int32_t aRows = p.turned_a ? part : p.m, aColumns = p.turned_a ? p.m : part,
                      aHigh = up(aRows, p.turned_a ? square : 16);
        const int32_t bRows = p.turned_b ? p.n : part, bColumns = p.turned_b ? part : p.n,
                      bHigh = up(bRows, p.turned_b ? 16 : square);
        LocalTensor<A> a1(TPosition::A1, 0, 128 * 1024 / sizeof(A));
        LocalTensor<B> b1(TPosition::B1, 128 * 1024, 256 * 1024 / sizeof(B));
        LocalTensor<T> bias1(TPosition::C1, 400 * 1024, 1024);
        LocalTensor<A> a2(TPosition::A2, i * L0, (64 * 1024 - i * L0) / sizeof(A));
        LocalTensor<B> b2(TPosition::B2, i * L0, (64 * 1024 - i * L0) / sizeof(B));
        if (gemv)
            DataCopy(a1, aGm[i * part], up(part, 512 / static_cast<int32_t>(sizeof(A))));
        else
            ToL1(a1, aGm, p.turned_a ? i * part * p.m : i * part, aRows, aColumns, p.turned_a ? p.m : p.k, aHigh);
        ToL1(b1, bGm, p.turned_b ? i * part : i * part * p.n, bRows, bColumns, p.turned_b ? p.k : p.n, bHigh);
        const bool biased = p.start != 0 && i == 0 && p.start != 3;
        if (biased) DataCopy(bias1, biasGm, up(p.n, 16));
        SetFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE1>(EVENT_ID0);
        if (biased)
            DataCopy(LocalTensor<T>(TPosition::C2, 0, 256), bias1,
                     DataCopyParams(1, up(p.n, 16) / (__NPU_ARCH__ == 3510 ? 8 : 16), 0, 0));
        if (gemv) {
            if constexpr (sizeof(A) > 1)
                LoadData(a2, a1, LoadData2DParams(0, up(part * sizeof(A), 512) / 512, 1, 0, 0, false, 0));
        } else if (p.loader == 1)
            Image(a2, a1, aRows, aHigh, up(aColumns, C0), p.turned_a);
        else
            Left(a2, a1, aHigh, up(aColumns, C0));
        if (p.loader == 1 && !p.turned_b)
            Image(b2, b1, bRows, bHigh, up(bColumns, C0), true);
        else
            Right(b2, b1, bHigh, up(bColumns, C0));
        SetFlag<HardEvent::MTE1_M>(EVENT_ID0);
        WaitFlag<HardEvent::MTE1_M>(EVENT_ID0);
    }

    /// LoadData 3D as a matrix loader: `high` positions of `wide` channels.
    template <class X>
    __aicore__ inline void Image(const LocalTensor<X>& dst, const LocalTensor<X>& src, int32_t rows, int32_t high,
                                 int32_t wide, bool turn) {
        LoadData3DParamsV2<X> q;
        q.l1H = 1, q.l1W = high, q.channelSize = wide, q.kExtension = wide, q.mExtension = rows;
        q.enTranspose = turn;
#if __NPU_ARCH__ == 3510
        SetLoadDataRepeatWithStride({0, 1, 0, static_cast<uint16_t>(turn ? up(wide, 16) / 16 : up(rows, 16) / 16)});
        LoadDataWithStride(dst, src, q);
#else
        static constexpr IsResetLoad3dConfig KEEP = {false, false};
        const uint8_t pads[4] = {0, 0, 0, 0};
        SetFmatrix(1, high, pads, FmatrixMode::FMATRIX_LEFT);
        SetLoadDataPaddingValue(X(0));
        LoadData<X, KEEP>(dst, src, q);
#endif
    }

    __aicore__ inline void Left(const LocalTensor<A>& a2, const LocalTensor<A>& a1, int32_t high, int32_t wide) {
#if __NPU_ARCH__ == 3510
        if (p.turned_a) wide = up(wide, 16);  // float: pairs of fractals side by side
        LoadData(
            a2, a1,
            LoadData2DParamsV2(0, 0, high / 16, wide / C0, high / 16, (p.turned_a ? wide : high) / 16, p.turned_a, 0));
#else
        const int32_t fractal = 16 * C0;
        if (!p.turned_a) {  // a row of fractals after the other
            for (int32_t block = 0; block < high / 16; ++block)
                LoadData(a2[block * wide / C0 * fractal], a1[block * fractal],
                         LoadData2DParams(0, wide / C0, high / 16, 0, 0, false, 0));
        } else if constexpr (sizeof(A) == 2) {  // a column of fractals of [k, m] is a row of those of [m, k]
            for (int32_t group = 0; group < wide / 16; ++group)
                LoadData(a2[group * high / 16 * fractal], a1[group * high / 16 * fractal],
                         LoadData2DParams(0, high / 16, 1, 0, 0, true, 0));
        } else if constexpr (sizeof(A) ==
                             1) {  // squares of 32: the second half of their columns is the next row of fractals
            for (int32_t group = 0; group < wide / 32; ++group)
                LoadDataWithTranspose(a2[group * 2 * high / 32 * fractal], a1[group * high / 16 * fractal],
                                      LoadData2dTransposeParams(0, high / 32, 1, 0, high / 32 - 1));
        }
#endif
    }

    __aicore__ inline void Right(const LocalTensor<B>& b2, const LocalTensor<B>& b1, int32_t high, int32_t wide) {
#if __NPU_ARCH__ == 3510
        if (!p.turned_b) wide = up(wide, 16);
        LoadData(
            b2, b1,
            LoadData2DParamsV2(0, 0, high / 16, wide / C0, high / 16, (p.turned_b ? high : wide) / 16, !p.turned_b, 0));
#else
        const int32_t fractal = 16 * C0;
        if (p.turned_b) {  // Nz of [n, k] is Zn of [k, n]
            for (int32_t done = 0, all = high / 16 * (wide / C0); done < all; done += 255)
                LoadData(b2[done * fractal], b1[done * fractal],
                         LoadData2DParams(0, all - done < 255 ? all - done : 255, 1, 0, 0, false, 0));
        } else if constexpr (sizeof(B) == 2) {
            for (int32_t block = 0; block < high / 16; ++block)
                LoadData(b2[block * wide / 16 * fractal], b1[block * fractal],
                         LoadData2DParams(0, wide / 16, high / 16, 0, 0, true, 0));
        } else if constexpr (sizeof(B) == 1) {
            for (int32_t block = 0; block < high / 32; ++block)
                LoadDataWithTranspose(b2[block * wide / 16 * fractal], b1[block * 2 * fractal],
                                      LoadData2dTransposeParams(0, wide / 32, high / 32, 1, 0));
        }
#endif
    }

    __aicore__ inline void Multiply(int32_t i, const LocalTensor<T>& result) {
        LocalTensor<A> a2(TPosition::A2, i * L0, (64 * 1024 - i * L0) / sizeof(A));
        LocalTensor<B> b2(TPosition::B2, i * L0, (64 * 1024 - i * L0) / sizeof(B));
        LocalTensor<T> bias(TPosition::C2, 0, 256);
        MmadParams q(m, n, part, p.unit_flag ? (i + 1 < p.parts ? 2 : 3) : 0, false, i == 0);
#if __NPU_ARCH__ == 3510
        q.disableGemv = p.no_gemv;
#else
        q.kDirectionAlign = sizeof(A) == 4 && p.turned_a;
#endif
        if (i > 0 && p.barrier) PipeBarrier<PIPE_M>();
        if (i == 0 && p.start == 1) {
            q.cmatrixInitVal = false;
            Mmad(result, a2, b2, bias, q);
        } else if (i == 0 && p.start == 2) {
            q.cmatrixInitVal = false, q.cmatrixSource = true;
            Mmad(result, a2, b2, q);
        } else if (i > 0 && p.start == 3) {
            q.cmatrixInitVal = false;
            Mmad(result, a2, b2, result, q);
        } else {
            Mmad(result, a2, b2, q);
        }
    }

    Args p;
    int32_t part, m, n;
    GlobalTensor<A> aGm;
    GlobalTensor<B> bGm;
    GlobalTensor<T> cGm, biasGm;
};

extern "C" __global__ __aicore__ void cube_product(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR bias, Args args) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    if ASCEND_IS_AIC {
        switch (args.type) {
            case 0: Product<float, half, half>().Run(a, b, c, bias, args); break;
            case 1: Product<float, bfloat16_t, bfloat16_t>().Run(a, b, c, bias, args); break;
            case 2: Product<float, float, float>().Run(a, b, c, bias, args); break;
            case 3: Product<int32_t, int8_t, int8_t>().Run(a, b, c, bias, args); break;
#if __NPU_ARCH__ == 3510
            case 4: Product<float, fp8_e4m3fn_t, fp8_e4m3fn_t>().Run(a, b, c, bias, args); break;
            case 5: Product<float, fp8_e4m3fn_t, fp8_e5m2_t>().Run(a, b, c, bias, args); break;
            case 6: Product<float, fp8_e5m2_t, fp8_e4m3fn_t>().Run(a, b, c, bias, args); break;
            case 7: Product<float, fp8_e5m2_t, fp8_e5m2_t>().Run(a, b, c, bias, args); break;
            case 8: Product<float, hifloat8_t, hifloat8_t>().Run(a, b, c, bias, args); break;
#endif
        }
    }
}
