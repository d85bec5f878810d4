// matmul_silu: Y = silu(A B), silu(x) = x / (1 + exp(-x)), half operands, float result.
//
//   a          matrix [m, k], row-major half
//   b          matrix [k, n], row-major half
//   y          matrix [m, n], row-major float
//   m, n, k    up to 65535
//   workspace  blocks x SLOTS x TILE_M x TILE_N floats of global memory, any content
//
// Work: a mixed kernel, one cube core with two vector cores a block. Y is cut into tiles of
// TILE_M x TILE_N; block i takes tiles i, i + blocks, and so on. The cube core writes the product of
// a tile to one of its SLOTS in the workspace; the vector cores then take the upper and the lower
// half of its rows, apply silu and write Y. Two flags in mode 2 (the cube core of a block with both
// of its vector cores) carry the hand-over:
//   READY  cube to vector: a tile is in its slot, set on the Fixpipe pipe behind the write;
//   TAKEN  vector to cube: a slot has been read, set on MTE2 behind the read.
// The cube core runs up to SLOTS tiles ahead, and waits for the last TAKEN flags before it ends.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t EDGE = 16;  // edge of a half fractal
constexpr uint32_t FRACTAL = EDGE * EDGE;  // its elements, 512 bytes
constexpr uint32_t TILE_M = 128;
constexpr uint32_t TILE_N = 128;
constexpr uint32_t TILE_K = 128;
constexpr uint32_t TILE = TILE_M * TILE_N;
constexpr uint32_t BLOCK = 32 / sizeof(float);  // floats of a 32-byte block
constexpr uint32_t SLOTS = 2;
constexpr uint8_t BUFFERS = 2;
constexpr uint8_t CUBE_WITH_VECTORS = 2;  // mode of the flags
constexpr uint16_t READY = 0;
constexpr uint16_t TAKEN = 1;

__aicore__ inline uint32_t Fractals(uint32_t extent) {
    return (extent + EDGE - 1) / EDGE;
}

__aicore__ inline uint32_t Least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

struct Shape {
    uint32_t m;
    uint32_t n;
    uint32_t k;
};

struct Tile {
    uint32_t row;
    uint32_t col;
    uint32_t rows;
    uint32_t cols;
};

__aicore__ inline uint32_t TileCount(const Shape& shape) {
    return (shape.m + TILE_M - 1) / TILE_M * ((shape.n + TILE_N - 1) / TILE_N);
}

__aicore__ inline Tile TileAt(const Shape& shape, uint32_t index) {
    const uint32_t across = (shape.n + TILE_N - 1) / TILE_N;
    Tile tile;
    tile.row = index / across * TILE_M;
    tile.col = index % across * TILE_N;
    tile.rows = Least(shape.m - tile.row, TILE_M);
    tile.cols = Least(shape.n - tile.col, TILE_N);
    return tile;
}

class Product {
   public:
    __aicore__ inline void Init(TPipe* pipe, GM_ADDR a, GM_ADDR b, GM_ADDR workspace,
                                const Shape& shape) {
        shape_ = shape;
        block_ = static_cast<uint32_t>(GetBlockIdx());
        a_.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(a));
        b_.SetGlobalBuffer(reinterpret_cast<__gm__ half*>(b));
        slots_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace) + block_ * SLOTS * TILE);
        pipe->InitBuffer(inA1_, BUFFERS, TILE_M * TILE_K * sizeof(half));
        pipe->InitBuffer(inB1_, BUFFERS, TILE_K * TILE_N * sizeof(half));
        pipe->InitBuffer(inA2_, BUFFERS, TILE_M * TILE_K * sizeof(half));
        pipe->InitBuffer(inB2_, BUFFERS, TILE_K * TILE_N * sizeof(half));
        pipe->InitBuffer(outC_, BUFFERS, TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        const uint32_t tiles = TileCount(shape_);
        const uint32_t blocks = static_cast<uint32_t>(GetBlockNum());
        uint32_t done = 0;
        for (uint32_t index = block_; index < tiles; index += blocks) {
            const Tile tile = TileAt(shape_, index);
            // m = 1 would make Mmad read A as a plain vector: a lone row is multiplied as two.
            const uint32_t height = tile.rows == 1 ? 2 : tile.rows;
            LocalTensor<float> c = outC_.AllocTensor<float>();
            for (uint32_t k = 0; k < shape_.k; k += TILE_K) {
                const uint32_t depth = Least(shape_.k - k, TILE_K);
                CopyIn(tile, k, depth);
                LoadA(height, depth);
                LoadB(tile.cols, depth);
                Multiply(c, height, tile.cols, depth, k == 0);
            }
            outC_.EnQue<float>(c);

            if (done >= SLOTS) {
                CrossCoreWaitFlag<CUBE_WITH_VECTORS, PIPE_FIX>(TAKEN);
            }
            CopyOut(tile, height, done % SLOTS);
            CrossCoreSetFlag<CUBE_WITH_VECTORS, PIPE_FIX>(READY);
            ++done;
        }
        for (uint32_t i = 0; i < Least(done, SLOTS); ++i) {
            CrossCoreWaitFlag<CUBE_WITH_VECTORS, PIPE_FIX>(TAKEN);
        }
    }

   private:
    __aicore__ inline void CopyIn(const Tile& tile, uint32_t k, uint32_t depth) {
        LocalTensor<half> a1 = inA1_.AllocTensor<half>();
        LocalTensor<half> b1 = inB1_.AllocTensor<half>();
        const uint16_t copies = tile.rows == 1 ? 2 : 1;
        const Nd2NzParams a(copies, tile.rows, depth, 0, shape_.k, Fractals(tile.rows) * EDGE, 1, EDGE);
        const Nd2NzParams b(1, depth, tile.cols, 0, shape_.n, Fractals(depth) * EDGE, 1, 0);
        DataCopy(a1, a_[static_cast<uint64_t>(tile.row) * shape_.k + k], a);
        DataCopy(b1, b_[static_cast<uint64_t>(k) * shape_.n + tile.col], b);
        inA1_.EnQue(a1);
        inB1_.EnQue(b1);
    }

    // L1 holds Nz; L0A takes Nz on arch 3510 and Zz on arch 2201.
    __aicore__ inline void LoadA(uint32_t height, uint32_t depth) {
        const uint32_t down = Fractals(height);
        const uint32_t across = Fractals(depth);
        LocalTensor<half> a1 = inA1_.DeQue<half>();
        LocalTensor<half> a2 = inA2_.AllocTensor<half>();
#if __NPU_ARCH__ == 3510
        LoadData2DParamsV2 load;
        load.mStep = down;
        load.kStep = across;
        load.srcStride = down;
        load.dstStride = down;
        LoadData(a2, a1, load);
#else
        LoadData2DParams load;
        load.repeatTimes = across;
        load.srcStride = down;
        for (uint32_t i = 0; i < down; ++i) {
            LoadData(a2[i * across * FRACTAL], a1[i * FRACTAL], load);
        }
#endif
        inA2_.EnQue(a2);
        inA1_.FreeTensor(a1);
    }

    // L1 holds Nz; L0B takes Zn, every fractal transposed.
    __aicore__ inline void LoadB(uint32_t cols, uint32_t depth) {
        const uint32_t down = Fractals(depth);
        const uint32_t across = Fractals(cols);
        LocalTensor<half> b1 = inB1_.DeQue<half>();
        LocalTensor<half> b2 = inB2_.AllocTensor<half>();
        LoadData2DParams load;
        load.repeatTimes = across;
        load.srcStride = down;
        load.ifTranspose = true;
        for (uint32_t i = 0; i < down; ++i) {
            LoadData(b2[i * across * FRACTAL], b1[i * FRACTAL], load);
        }
        inB2_.EnQue(b2);
        inB1_.FreeTensor(b1);
    }

    __aicore__ inline void Multiply(const LocalTensor<float>& c, uint32_t height, uint32_t cols,
                                    uint32_t depth, bool first) {
        LocalTensor<half> a2 = inA2_.DeQue<half>();
        LocalTensor<half> b2 = inB2_.DeQue<half>();
        MmadParams mmad;
        mmad.m = height;
        mmad.n = cols;
        mmad.k = depth;
        mmad.cmatrixInitVal = first;
        Mmad(c, a2, b2, mmad);
        if ((height / EDGE) * (cols / EDGE) < 10) {
            PipeBarrier<PIPE_M>();
        }
        inA2_.FreeTensor(a2);
        inB2_.FreeTensor(b2);
    }

    __aicore__ inline void CopyOut(const Tile& tile, uint32_t height, uint32_t slot) {
        LocalTensor<float> c = outC_.DeQue<float>();
        FixpipeParamsV220 out;
        out.nSize = tile.cols;
        out.mSize = tile.rows;
        out.srcStride = Fractals(height) * EDGE;
        out.dstStride = TILE_N;
        out.ndNum = 1;
        out.srcNdStride = 0;
        out.dstNdStride = 0;
        Fixpipe<float, float, CFG_ROW_MAJOR>(slots_[slot * TILE], c, out);
        outC_.FreeTensor(c);
    }

    TQue<TPosition::A1, 1> inA1_;
    TQue<TPosition::B1, 1> inB1_;
    TQue<TPosition::A2, 1> inA2_;
    TQue<TPosition::B2, 1> inB2_;
    TQue<TPosition::CO1, 1> outC_;
    GlobalTensor<half> a_;
    GlobalTensor<half> b_;
    GlobalTensor<float> slots_;
    Shape shape_;
    uint32_t block_ = 0;
};

class Silu {
   public:
    __aicore__ inline void Init(TPipe* pipe, GM_ADDR y, GM_ADDR workspace, const Shape& shape) {
        shape_ = shape;
        half_ = static_cast<uint32_t>(GetSubBlockIdx());
        block_ = static_cast<uint32_t>(GetBlockIdx() / GetTaskRatio());
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y));
        slots_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(workspace) + block_ * SLOTS * TILE);
        pipe->InitBuffer(in_, BUFFERS, TILE / 2 * sizeof(float));
        pipe->InitBuffer(out_, BUFFERS, TILE / 2 * sizeof(float));
        pipe->InitBuffer(denominator_, TILE / 2 * sizeof(float));
    }

    __aicore__ inline void Process() {
        const uint32_t tiles = TileCount(shape_);
        const uint32_t blocks = static_cast<uint32_t>(GetBlockNum());
        uint32_t done = 0;
        for (uint32_t index = block_; index < tiles; index += blocks) {
            Tile tile = TileAt(shape_, index);
            const uint32_t upper = (tile.rows + 1) / 2;
            const uint32_t skip = half_ == 0 ? 0 : upper;
            tile.row += skip;
            tile.rows = half_ == 0 ? upper : tile.rows - upper;  // a lone row leaves the lower half none

            CrossCoreWaitFlag<CUBE_WITH_VECTORS, PIPE_MTE2>(READY);
            if (tile.rows > 0) {
                CopyIn(tile, (done % SLOTS) * TILE + skip * TILE_N);
            }
            CrossCoreSetFlag<CUBE_WITH_VECTORS, PIPE_MTE2>(TAKEN);
            if (tile.rows > 0) {
                Compute(tile);
                CopyOut(tile);
            }
            ++done;
        }
    }

   private:
    // Rows lie one after another in the unified buffer, each filled up to a 32-byte block.
    __aicore__ inline uint32_t Pitch(const Tile& tile) {
        return (tile.cols + BLOCK - 1) / BLOCK * BLOCK;
    }

    __aicore__ inline void CopyIn(const Tile& tile, uint32_t offset) {
        DataCopyExtParams copy;
        copy.blockCount = static_cast<uint16_t>(tile.rows);
        copy.blockLen = tile.cols * sizeof(float);
        copy.srcStride = (TILE_N - tile.cols) * sizeof(float);
        copy.dstStride = 0;
        DataCopyPadExtParams<float> pad;
        pad.isPad = true;
        pad.leftPadding = 0;
        pad.rightPadding = static_cast<uint8_t>(Pitch(tile) - tile.cols);
        pad.paddingValue = 0.0f;
        LocalTensor<float> x = in_.AllocTensor<float>();
        DataCopyPad(x, slots_[offset], copy, pad);
        in_.EnQue(x);
    }

    __aicore__ inline void Compute(const Tile& tile) {
        const int32_t count = static_cast<int32_t>(tile.rows * Pitch(tile));
        LocalTensor<float> x = in_.DeQue<float>();
        LocalTensor<float> y = out_.AllocTensor<float>();
        LocalTensor<float> denominator = denominator_.Get<float>();
        Muls(denominator, x, -1.0f, count);
        PipeBarrier<PIPE_V>();
        Exp(denominator, denominator, count);
        PipeBarrier<PIPE_V>();
        Adds(denominator, denominator, 1.0f, count);
        PipeBarrier<PIPE_V>();
        Div(y, x, denominator, count);
        out_.EnQue<float>(y);
        in_.FreeTensor(x);
    }

    __aicore__ inline void CopyOut(const Tile& tile) {
        DataCopyExtParams copy;
        copy.blockCount = static_cast<uint16_t>(tile.rows);
        copy.blockLen = tile.cols * sizeof(float);
        copy.srcStride = 0;
        copy.dstStride = (shape_.n - tile.cols) * sizeof(float);
        LocalTensor<float> y = out_.DeQue<float>();
        DataCopyPad(y_[static_cast<uint64_t>(tile.row) * shape_.n + tile.col], y, copy);
        out_.FreeTensor(y);
    }

    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> denominator_;
    GlobalTensor<float> y_;
    GlobalTensor<float> slots_;
    Shape shape_;
    uint32_t half_ = 0;
    uint32_t block_ = 0;
};

}  // namespace

extern "C" __global__ __aicore__ void matmul_silu(GM_ADDR a, GM_ADDR b, GM_ADDR y, uint32_t m, uint32_t n,
                                                  uint32_t k, GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    const Shape shape{m, n, k};
    TPipe pipe;
    if ASCEND_IS_AIC {
        Product op;
        op.Init(&pipe, a, b, workspace, shape);
        op.Process();
    }
    if ASCEND_IS_AIV {
        Silu op;
        op.Init(&pipe, y, workspace, shape);
        op.Process();
    }
}
