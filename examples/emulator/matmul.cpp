// matmul: C = A B, bfloat16 operands, float result, any sizes up to 65535.
//
//   a        matrix [m, k], row-major bfloat16
//   b        matrix [k, n], row-major bfloat16
//   c        matrix [m, n], row-major float
//   m, n, k
//
// Work: C is cut into tiles of TILE_M x TILE_N, numbered row by row; core i computes tiles i,
// i + cores, and so on. For one tile
//   GM -> L1    Nd2Nz copies of TILE_M x TILE_K of A and TILE_K x TILE_N of B,
//   L1 -> L0    STEP_K of those at a time, into L0A and L0B,
//   L0 -> L0C   Mmad, adding up over k,
//   L0C -> GM   one Fixpipe, which turns Nz back into rows.
// Each of the five queues has two buffers, so that all four stages overlap.
//
// In L1 both operands lie in Nz: 16x16 fractals, rows inside, ordered down the columns. Mmad wants
// B as Zn: fractals transposed inside, ordered along the rows. It wants A as Zz (fractals along the
// rows) on arch 2201 and as Nz on arch 3510, hence the two ways to load them.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t EDGE = 16;  // edge of a bfloat16 fractal
constexpr uint32_t FRACTAL = EDGE * EDGE;  // its elements, 512 bytes
constexpr uint32_t TILE_M = 128;
constexpr uint32_t TILE_N = 128;
constexpr uint32_t TILE_K = 256;  // k held in L1
constexpr uint32_t STEP_K = 128;  // k held in L0
constexpr uint8_t BUFFERS = 2;

__aicore__ inline uint32_t Fractals(uint32_t extent) {
    return (extent + EDGE - 1) / EDGE;
}

__aicore__ inline uint32_t Least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

class Matmul {
   public:
    __aicore__ inline void Init(TPipe* pipe, GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n,
                                uint32_t k) {
        m_ = m;
        n_ = n;
        k_ = k;
        a_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t*>(a), static_cast<uint64_t>(m) * k);
        b_.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t*>(b), static_cast<uint64_t>(k) * n);
        c_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(c), static_cast<uint64_t>(m) * n);
        pipe->InitBuffer(inA1_, BUFFERS, TILE_M * TILE_K * sizeof(bfloat16_t));
        pipe->InitBuffer(inB1_, BUFFERS, TILE_K * TILE_N * sizeof(bfloat16_t));
        pipe->InitBuffer(inA2_, BUFFERS, TILE_M * STEP_K * sizeof(bfloat16_t));
        pipe->InitBuffer(inB2_, BUFFERS, STEP_K * TILE_N * sizeof(bfloat16_t));
        pipe->InitBuffer(outC_, BUFFERS, TILE_M * TILE_N * sizeof(float));
    }

    __aicore__ inline void Process() {
        const uint32_t across = (n_ + TILE_N - 1) / TILE_N;
        const uint32_t tiles = (m_ + TILE_M - 1) / TILE_M * across;
        const uint32_t cores = static_cast<uint32_t>(GetBlockNum());
        for (uint32_t tile = static_cast<uint32_t>(GetBlockIdx()); tile < tiles; tile += cores) {
            row_ = tile / across * TILE_M;
            col_ = tile % across * TILE_N;
            rows_ = Least(m_ - row_, TILE_M);
            cols_ = Least(n_ - col_, TILE_N);
            // Mmad takes m = 1 for a vector and reads A without fractals. A single row is therefore
            // loaded twice and multiplied as two; only the first is written out.
            height_ = rows_ == 1 ? 2 : rows_;
            ComputeTile();
            CopyOut();
        }
    }

   private:
    __aicore__ inline void ComputeTile() {
        LocalTensor<float> c = outC_.AllocTensor<float>();
        for (uint32_t k1 = 0; k1 < k_; k1 += TILE_K) {
            const uint32_t depth = Least(k_ - k1, TILE_K);
            CopyIn(k1, depth);
            LocalTensor<bfloat16_t> a1 = inA1_.DeQue<bfloat16_t>();
            LocalTensor<bfloat16_t> b1 = inB1_.DeQue<bfloat16_t>();
            for (uint32_t k0 = 0; k0 < depth; k0 += STEP_K) {
                const uint32_t step = Least(depth - k0, STEP_K);
                LoadA(a1, k0, step);
                LoadB(b1, k0, step, depth);
                Multiply(c, step, k1 + k0 == 0);
            }
            inA1_.FreeTensor(a1);
            inB1_.FreeTensor(b1);
        }
        outC_.EnQue<float>(c);
    }

    __aicore__ inline void CopyIn(uint32_t k1, uint32_t depth) {
        LocalTensor<bfloat16_t> a1 = inA1_.AllocTensor<bfloat16_t>();
        LocalTensor<bfloat16_t> b1 = inB1_.AllocTensor<bfloat16_t>();

        Nd2NzParams a;
        a.ndNum = rows_ == 1 ? 2 : 1;  // a lone row is the same matrix twice, one row below itself
        a.nValue = rows_;
        a.dValue = depth;
        a.srcNdMatrixStride = 0;
        a.srcDValue = k_;
        a.dstNzC0Stride = Fractals(rows_) * EDGE;
        a.dstNzNStride = 1;
        a.dstNzMatrixStride = EDGE;
        DataCopy(a1, a_[static_cast<uint64_t>(row_) * k_ + k1], a);

        Nd2NzParams b;
        b.ndNum = 1;
        b.nValue = depth;
        b.dValue = cols_;
        b.srcNdMatrixStride = 0;
        b.srcDValue = n_;
        b.dstNzC0Stride = Fractals(depth) * EDGE;
        b.dstNzNStride = 1;
        b.dstNzMatrixStride = 0;
        DataCopy(b1, b_[static_cast<uint64_t>(k1) * n_ + col_], b);

        inA1_.EnQue(a1);
        inB1_.EnQue(b1);
    }

    __aicore__ inline void LoadA(const LocalTensor<bfloat16_t>& a1, uint32_t k0, uint32_t step) {
        const uint32_t down = Fractals(rows_);
        const uint32_t across = Fractals(step);
        LocalTensor<bfloat16_t> a2 = inA2_.AllocTensor<bfloat16_t>();
#if __NPU_ARCH__ == 3510
        LoadData2DParamsV2 load;  // Nz to Nz, all at once
        load.mStartPosition = 0;
        load.kStartPosition = k0 / EDGE;
        load.mStep = down;
        load.kStep = across;
        load.srcStride = down;
        load.dstStride = down;
        load.ifTranspose = false;
        LoadData(a2, a1, load);
#else
        LoadData2DParams load;  // Nz to Zz, a row of fractals at a time
        load.repeatTimes = across;
        load.srcStride = down;
        load.dstGap = 0;
        load.ifTranspose = false;
        for (uint32_t i = 0; i < down; ++i) {
            load.startIndex = k0 / EDGE * down + i;
            LoadData(a2[i * across * FRACTAL], a1, load);
        }
#endif
        inA2_.EnQue(a2);
    }

    __aicore__ inline void LoadB(const LocalTensor<bfloat16_t>& b1, uint32_t k0, uint32_t step,
                                 uint32_t depth) {
        const uint32_t down = Fractals(step);
        const uint32_t across = Fractals(cols_);
        const uint32_t pitch = Fractals(depth);
        LocalTensor<bfloat16_t> b2 = inB2_.AllocTensor<bfloat16_t>();
#if __NPU_ARCH__ == 3510
        LoadData2DParamsV2 load;  // Nz to Zn, all at once; "m" and "k" are B's rows and columns
        load.mStartPosition = k0 / EDGE;
        load.kStartPosition = 0;
        load.mStep = down;
        load.kStep = across;
        load.srcStride = pitch;
        load.dstStride = across;
        load.ifTranspose = true;
        LoadData(b2, b1, load);
#else
        LoadData2DParams load;  // Nz to Zn, a row of fractals at a time
        load.repeatTimes = across;
        load.srcStride = pitch;
        load.dstGap = 0;
        load.ifTranspose = true;
        for (uint32_t i = 0; i < down; ++i) {
            load.startIndex = k0 / EDGE + i;
            LoadData(b2[i * across * FRACTAL], b1, load);
        }
#endif
        inB2_.EnQue(b2);
    }

    __aicore__ inline void Multiply(const LocalTensor<float>& c, uint32_t step, bool first) {
        LocalTensor<bfloat16_t> a2 = inA2_.DeQue<bfloat16_t>();
        LocalTensor<bfloat16_t> b2 = inB2_.DeQue<bfloat16_t>();
        MmadParams mmad;
        mmad.m = height_;
        mmad.n = cols_;
        mmad.k = step;
        mmad.cmatrixInitVal = first;
        Mmad(c, a2, b2, mmad);
        // Large products that add to one C follow each other safely; small ones need the barrier.
        if ((height_ / EDGE) * (cols_ / EDGE) < 10) {
            PipeBarrier<PIPE_M>();
        }
        inA2_.FreeTensor(a2);
        inB2_.FreeTensor(b2);
    }

    __aicore__ inline void CopyOut() {
        LocalTensor<float> c = outC_.DeQue<float>();
        FixpipeParamsV220 out;
        out.nSize = cols_;
        out.mSize = rows_;
        out.srcStride = Fractals(height_) * EDGE;
        out.dstStride = n_;
        out.ndNum = 1;
        out.srcNdStride = 0;
        out.dstNdStride = 0;
        Fixpipe<float, float, CFG_ROW_MAJOR>(c_[static_cast<uint64_t>(row_) * n_ + col_], c, out);
        outC_.FreeTensor(c);
    }

    TQue<TPosition::A1, 1> inA1_;
    TQue<TPosition::B1, 1> inB1_;
    TQue<TPosition::A2, 1> inA2_;
    TQue<TPosition::B2, 1> inB2_;
    TQue<TPosition::CO1, 1> outC_;
    GlobalTensor<bfloat16_t> a_;
    GlobalTensor<bfloat16_t> b_;
    GlobalTensor<float> c_;
    uint32_t m_ = 0;
    uint32_t n_ = 0;
    uint32_t k_ = 0;
    uint32_t row_ = 0;  // the tile: its place in C, its extent, its height in the product
    uint32_t col_ = 0;
    uint32_t rows_ = 0;
    uint32_t cols_ = 0;
    uint32_t height_ = 0;
};

}  // namespace

extern "C" __global__ __aicore__ void matmul(GM_ADDR a, GM_ADDR b, GM_ADDR c, uint32_t m, uint32_t n,
                                             uint32_t k) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIC_ONLY);
    TPipe pipe;
    Matmul op;
    op.Init(&pipe, a, b, c, m, n, k);
    op.Process();
}
