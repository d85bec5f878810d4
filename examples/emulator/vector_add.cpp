// vector_add: z[i] = x[i] + y[i], float, any length.
//
//   x, y    input vectors in global memory
//   z       output vector
//   length  number of elements
//
// Work: the vector is cut into one run of whole 512-byte lines a core, the last run taking what is
// left. A core walks its run in tiles of TILE elements through three queues of two buffers each, so
// that the copy in of a tile, the addition of the one before and the copy out of the one before
// that overlap. DataCopyPad moves the last tile, whose length need not fill a 32-byte block.
#include "kernel_operator.h"

using namespace AscendC;

namespace {

constexpr uint32_t TILE = 4096;  // elements a tile
constexpr uint32_t LINE = 128;  // elements in 512 bytes, the unit the runs are rounded to
constexpr uint8_t BUFFERS = 2;  // double buffering

class VectorAdd {
   public:
    __aicore__ inline void Init(TPipe* pipe, GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t length) {
        const uint32_t cores = GetBlockNum();
        const uint32_t lines = (length + LINE - 1) / LINE;
        const uint32_t run = (lines + cores - 1) / cores * LINE;
        const uint32_t first = static_cast<uint32_t>(GetBlockIdx()) * run;
        count_ = first >= length ? 0 : (length - first < run ? length - first : run);
        if (count_ == 0) {
            return;
        }
        x_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x) + first, count_);
        y_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(y) + first, count_);
        z_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(z) + first, count_);
        pipe->InitBuffer(inX_, BUFFERS, TILE * sizeof(float));
        pipe->InitBuffer(inY_, BUFFERS, TILE * sizeof(float));
        pipe->InitBuffer(outZ_, BUFFERS, TILE * sizeof(float));
    }

    __aicore__ inline void Process() {
        for (uint32_t offset = 0; offset < count_; offset += TILE) {
            const uint32_t size = count_ - offset < TILE ? count_ - offset : TILE;
            CopyIn(offset, size);
            Compute(size);
            CopyOut(offset, size);
        }
    }

   private:
    __aicore__ inline void CopyIn(uint32_t offset, uint32_t size) {
        const DataCopyExtParams copy{1, static_cast<uint32_t>(size * sizeof(float)), 0, 0, 0};
        const DataCopyPadExtParams<float> pad{false, 0, 0, 0.0f};
        LocalTensor<float> x = inX_.AllocTensor<float>();
        LocalTensor<float> y = inY_.AllocTensor<float>();
        DataCopyPad(x, x_[offset], copy, pad);
        DataCopyPad(y, y_[offset], copy, pad);
        inX_.EnQue(x);
        inY_.EnQue(y);
    }

    __aicore__ inline void Compute(uint32_t size) {
        LocalTensor<float> x = inX_.DeQue<float>();
        LocalTensor<float> y = inY_.DeQue<float>();
        LocalTensor<float> z = outZ_.AllocTensor<float>();
        Add(z, x, y, static_cast<int32_t>(size));
        outZ_.EnQue<float>(z);
        inX_.FreeTensor(x);
        inY_.FreeTensor(y);
    }

    __aicore__ inline void CopyOut(uint32_t offset, uint32_t size) {
        const DataCopyExtParams copy{1, static_cast<uint32_t>(size * sizeof(float)), 0, 0, 0};
        LocalTensor<float> z = outZ_.DeQue<float>();
        DataCopyPad(z_[offset], z, copy);
        outZ_.FreeTensor(z);
    }

    TQue<TPosition::VECIN, 1> inX_;
    TQue<TPosition::VECIN, 1> inY_;
    TQue<TPosition::VECOUT, 1> outZ_;
    GlobalTensor<float> x_;
    GlobalTensor<float> y_;
    GlobalTensor<float> z_;
    uint32_t count_ = 0;
};

}  // namespace

extern "C" __global__ __aicore__ void vector_add(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t length) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    TPipe pipe;
    VectorAdd op;
    op.Init(&pipe, x, y, z, length);
    op.Process();
}
