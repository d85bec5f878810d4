// Rows of a bank as they come from global memory, one at a time.
#pragma once

#include "mixture.h"

namespace ascend_k3 {

/// A queue of rows of T. Float rows stay in it until they are mixed, of the others only a copy in float does.
template <class T>
class RowQueue {
   public:
    __aicore__ inline void Init(TPipe& pipe, const MixTiling& tiling) {
        width_ = tiling.width;
        pipe.InitBuffer(queue_, tiling.buffers, width_ * sizeof(T));
    }

    /// Gives `mix` the row at `source` as number `number` of its group.
    __aicore__ inline void Read(const GlobalTensor<T>& source, uint32_t number, Mixture<T>& mix, uint32_t points) {
        LocalTensor<T> row = LoadRow<T>(queue_, source, width_);
        LocalTensor<float> values = mix.Float(row, number);
        if constexpr (Mixture<T>::is_float) {
            held_[number] = row;
        } else {
            queue_.FreeTensor(row);
            PipeBarrier<PIPE_V>();
        }
        mix.Take(values, number, points);
    }

    /// Row `number` of the group is mixed.
    __aicore__ inline void Release(uint32_t number) {
        if constexpr (Mixture<T>::is_float) queue_.FreeTensor(held_[number]);
    }

    __aicore__ inline TQue<TPosition::VECIN, 1>& Queue() { return queue_; }

   private:
    TQue<TPosition::VECIN, 1> queue_;
    LocalTensor<T> held_[MOST_ROWS];
    uint32_t width_ = 0;
};

}  // namespace ascend_k3
