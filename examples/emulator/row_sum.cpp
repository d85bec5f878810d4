// row_sum: y[r] = sum over c of x[r][c], float, any number of rows and columns.
//
//   x     matrix [rows, cols], row-major
//   y     vector [rows]
//   rows, cols
//
// Work: the rows are cut into groups of ROWS; core i takes groups i, i + cores, and so on. A group
// passes through the unified buffer in tiles of ROWS x COLS, double-buffered. Every row keeps LANES
// partial sums: one Add a 64-column strip, with a repeat for each row, adds the strip to them, and
// its mask leaves out the columns beyond the matrix, so that no padding has to be cleared. When the
// group's columns are done one WholeReduceSum folds the lanes of all its rows. PipeBarrier<PIPE_V> stands
// between vector instructions that depend on each other: arch 2201 needs it unless the compiler inserts
// it (--cce-auto-sync), arch 3510 keeps them in order by itself.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t ROWS = 32;  // rows of a group
constexpr uint32_t COLS = 512;  // columns of a tile
constexpr uint32_t LANES = 64;  // floats of one repeat, 256 bytes
constexpr uint32_t BLOCK = 32 / sizeof(float);  // floats of a 32-byte block
constexpr uint8_t BUFFERS = 2;

class RowSum {
   public:
    __aicore__ inline void Init(TPipe* pipe, GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t cols) {
        rows_ = rows;
        cols_ = cols;
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), static_cast<uint64_t>(rows) * cols);
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y), rows);
        pipe->InitBuffer(in_, BUFFERS, ROWS * COLS * sizeof(float));
        pipe->InitBuffer(out_, BUFFERS, ROWS * sizeof(float));
        pipe->InitBuffer(partial_, ROWS * LANES * sizeof(float));
    }

    __aicore__ inline void Process() {
        const uint32_t step = static_cast<uint32_t>(GetBlockNum()) * ROWS;
        for (uint32_t row = static_cast<uint32_t>(GetBlockIdx()) * ROWS; row < rows_; row += step) {
            SumGroup(row, rows_ - row < ROWS ? rows_ - row : ROWS);
        }
    }

   private:
    __aicore__ inline void SumGroup(uint32_t row, uint32_t rows) {
        LocalTensor<float> partial = partial_.Get<float>();
        Duplicate(partial, 0.0f, static_cast<int32_t>(rows * LANES));
        PipeBarrier<PIPE_V>();
        for (uint32_t col = 0; col < cols_; col += COLS) {
            const uint32_t cols = cols_ - col < COLS ? cols_ - col : COLS;
            CopyIn(row, rows, col, cols);
            Accumulate(partial, rows, cols);
        }

        LocalTensor<float> sums = out_.AllocTensor<float>();
        WholeReduceSum<float>(sums, partial, static_cast<int32_t>(LANES), static_cast<int32_t>(rows),
                              1, 1, LANES / BLOCK);
        out_.EnQue<float>(sums);
        sums = out_.DeQue<float>();
        DataCopyPad(y_[row], sums, {1, static_cast<uint32_t>(rows * sizeof(float)), 0, 0, 0});
        out_.FreeTensor(sums);
    }

    __aicore__ inline void CopyIn(uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) {
        DataCopyExtParams copy;
        copy.blockCount = static_cast<uint16_t>(rows);
        copy.blockLen = cols * sizeof(float);
        copy.srcStride = (cols_ - cols) * sizeof(float);  // in bytes on the global side
        copy.dstStride = (COLS - (cols + BLOCK - 1) / BLOCK * BLOCK) / BLOCK;  // in blocks here
        const DataCopyPadExtParams<float> pad{false, 0, 0, 0.0f};
        LocalTensor<float> tile = in_.AllocTensor<float>();
        DataCopyPad(tile, x_[static_cast<uint64_t>(row) * cols_ + col], copy, pad);
        in_.EnQue(tile);
    }

    __aicore__ inline void Accumulate(const LocalTensor<float>& partial, uint32_t rows, uint32_t cols) {
        // Block strides of one; a repeat is a row: LANES floats of partial sums, COLS of the tile.
        const BinaryRepeatParams strides(1, 1, 1, LANES / BLOCK, LANES / BLOCK, COLS / BLOCK);
        LocalTensor<float> tile = in_.DeQue<float>();
        for (uint32_t col = 0; col < cols; col += LANES) {
            const uint64_t lanes = cols - col < LANES ? cols - col : LANES;
            Add(partial, partial, tile[col], lanes, static_cast<uint8_t>(rows), strides);
            PipeBarrier<PIPE_V>();
        }
        in_.FreeTensor(tile);
    }

    TQue<TPosition::VECIN, 1> in_;
    TQue<TPosition::VECOUT, 1> out_;
    TBuf<TPosition::VECCALC> partial_;
    GlobalTensor<float> x_;
    GlobalTensor<float> y_;
    uint32_t rows_ = 0;
    uint32_t cols_ = 0;
};

}  // namespace

extern "C" __global__ __aicore__ void row_sum(GM_ADDR x, GM_ADDR y, uint32_t rows, uint32_t cols) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    RowSum op;
    op.Init(&pipe, x, y, rows, cols);
    op.Process();
}
