// What a launch hands to a kernel, and how much of it there may be.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { arguments, in_place, many_copies, strided_copies, many_flags, scalar_loop };

struct Numbers {
    int32_t a;
    float b;
    int64_t c;
};

extern "C" __global__ __aicore__ void launched(GM_ADDR x_address, GM_ADDR y_address, int32_t op, float real, bool flag, uint16_t small,
                                               Numbers numbers, GM_ADDR workspace, GM_ADDR tiling) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    GlobalTensor<float> x, y;
    x.SetGlobalBuffer((__gm__ float*)x_address);
    y.SetGlobalBuffer((__gm__ float*)y_address);
    const int64_t me = GetBlockIdx();
    switch (op) {
        case arguments: {
            GET_TILING_DATA_WITH_STRUCT(Numbers, tiled, tiling);
            const float values[] = {real, flag ? 1.0f : 0.0f, static_cast<float>(small), static_cast<float>(numbers.a), numbers.b,
                                    static_cast<float>(numbers.c), static_cast<float>(tiled.a), tiled.b, static_cast<float>(tiled.c),
                                    workspace == nullptr ? 0.0f : 1.0f};
            for (int i = 0; i < 10; ++i) y.SetValue(i, values[i]);
            DataCacheCleanAndInvalid<float, CacheLine::SINGLE_CACHE_LINE>(y);
            break;
        }
        case in_place: {  // x and y may be the same tensor
            LocalTensor<float> a(TPosition::VECIN, 0, 64);
            for (int i = 0; i < 2; ++i) {
                if (i > 0) {
                    SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
                    if (!flag) SetFlag<HardEvent::MTE3_V>(EVENT_ID0);
                    WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
                    if (!flag) WaitFlag<HardEvent::MTE3_V>(EVENT_ID0);
                }
                DataCopy(a, x, 64);  // @in_place
                SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
                WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
                Add(a, a, a, 64);
                SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
                WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
                DataCopy(y, a, 64);
            }
            break;
        }
        case many_copies: {  // `small` tiles of `numbers.a` floats for each core, double buffered
            TPipe pipe;
            TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> through;
            const uint32_t tile = static_cast<uint32_t>(numbers.a);
            pipe.InitBuffer(through, 2, tile * sizeof(float));
            for (uint32_t i = 0; i < small; ++i) {
                const int64_t place = (me * small + i) * static_cast<int64_t>(tile) % numbers.c;
                LocalTensor<float> a = through.AllocTensor<float>();
                DataCopy(a, x[place], tile);
                through.EnQue(a);
                a = through.DeQue<float>();
                DataCopy(y[place], a, tile);
                through.FreeTensor(a);
            }
            break;
        }
        case strided_copies: {  // columns of 8 floats
            LocalTensor<float> a(TPosition::VECIN, 0, 8 * 512);
            for (uint32_t i = 0; i < small; ++i) {
                DataCopy(a, x[i * 8], DataCopyParams(512, 1, static_cast<uint16_t>(small - 1), 0));
                SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
                WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
                DataCopy(y[i * 8], a, DataCopyParams(512, 1, 0, static_cast<uint16_t>(small - 1)));
                SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
                WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID0);
            }
            break;
        }
        case many_flags:
            for (int32_t i = 0; i < numbers.a; ++i) {
                SetFlag<HardEvent::MTE2_V>(i % 8);
                WaitFlag<HardEvent::MTE2_V>(i % 8);
            }
            break;
        case scalar_loop: {
            LocalTensor<float> a(TPosition::VECIN, 0, 1024);
            for (int32_t i = 0; i < numbers.a; ++i) a.SetValue(i % 1024, a.GetValue((i > 0 ? i - 1 : 0) % 1024) + 1.0f);
            break;
        }
        default: break;
    }
}
