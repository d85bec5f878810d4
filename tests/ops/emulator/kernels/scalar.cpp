// The scalar and global memory: its data cache of 64-byte lines, and values of every size.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { own_store, clean_line, clean_part, clean_all, two_lines, line_overwritten, sizes, local_values, tiling_pointer };

#define ORDER(event)                            \
    {                                           \
        SetFlag<HardEvent::event>(EVENT_ID0);   \
        WaitFlag<HardEvent::event>(EVENT_ID0);  \
    }

extern "C" __global__ __aicore__ void scalar(GM_ADDR x_address, GM_ADDR y_address, int32_t op, int32_t fixed, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<int32_t> x, y;
    x.SetGlobalBuffer((__gm__ int32_t*)x_address);
    y.SetGlobalBuffer((__gm__ int32_t*)y_address);
    switch (op) {
        case own_store: {  // its own store is read back at once, from the cache
            y.SetValue(3, 41);
            const int32_t back = y.GetValue(3);
            y.SetValue(3, back + 1);
            if (fixed) DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y);  // @own_store
            break;
        }
        case clean_line:  // another line stays in the cache
            y.SetValue(0, 1);
            y.SetValue(16, 2);  // @clean_line
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y);
            if (fixed) DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y[16]);
            break;
        case clean_part:  // from the address to the end of its line only
            for (int32_t i = 0; i < 16; ++i) y.SetValue(i, 100 + i);  // @clean_part
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y[8]);
            if (fixed) DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y);
            break;
        case clean_all:
            for (int32_t i = 0; i < 64; ++i) y.SetValue(i, i);
            DataCacheCleanAndInvalid<int32_t, CacheLine::ENTIRE_DATA_CACHE>(y);
            break;
        case two_lines:  // eight values of 8 bytes from the middle of a line on
            for (int32_t i = 0; i < 16; ++i) y.SetValue(8 + i, i);
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y[8]);
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y[16]);
            break;
        case line_overwritten: {  // a copy writes the rest of the line while the cache holds the old one
            LocalTensor<int32_t> tile(TPosition::VECIN, 0, 16);
            DataCopy(tile, x, 16);
            ORDER(MTE2_MTE3)
            if (!fixed) y.SetValue(0, 7);  // @line_overwritten
            DataCopy(y[8], tile, 8);
            ORDER(MTE3_S)
            if (fixed) y.SetValue(0, 7);
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y);
            break;
        }
        case sizes: {
            GlobalTensor<int8_t> x1, y1;
            GlobalTensor<int16_t> x2, y2;
            GlobalTensor<int64_t> x8, y8;
            GlobalTensor<half> xh, yh;
            x1.SetGlobalBuffer((__gm__ int8_t*)x_address), y1.SetGlobalBuffer((__gm__ int8_t*)y_address);
            x2.SetGlobalBuffer((__gm__ int16_t*)x_address), y2.SetGlobalBuffer((__gm__ int16_t*)y_address);
            x8.SetGlobalBuffer((__gm__ int64_t*)x_address), y8.SetGlobalBuffer((__gm__ int64_t*)y_address);
            xh.SetGlobalBuffer((__gm__ half*)x_address), yh.SetGlobalBuffer((__gm__ half*)y_address);
            for (int32_t i = 0; i < 8; ++i) y1.SetValue(i, x1.GetValue(i));
            for (int32_t i = 4; i < 8; ++i) y2.SetValue(i, x2(i));
            y8.SetValue(2, x8.GetValue(2));
            for (int32_t i = 12; i < 16; ++i) yh.SetValue(i, xh.GetValue(i));
            DataCacheCleanAndInvalid<int8_t, CacheLine::ENTIRE_DATA_CACHE>(y1);
            break;
        }
        case local_values: {
            LocalTensor<int32_t> tile(TPosition::VECIN, 0, 16);
            DataCopy(tile, x, 16);
            ORDER(MTE2_S)
            for (uint32_t i = 0; i < 8; ++i) tile.SetValue(i, tile.GetValue(15 - i) + tile(i));
            for (uint32_t i = 8; i < 16; ++i) tile(i) = static_cast<int32_t>(i);
            ORDER(S_MTE3)
            DataCopy(y, tile, 16);
            break;
        }
        case tiling_pointer: {  // tiling data is read through a plain pointer
            const auto* numbers = reinterpret_cast<const int32_t*>(tiling);
            y.SetValue(0, numbers[0] + numbers[1]);
            DataCacheCleanAndInvalid<int32_t, CacheLine::SINGLE_CACHE_LINE>(y);
            break;
        }
        default: break;
    }
}
