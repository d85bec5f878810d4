// Copies of one to five dimensions, on dav-3510; see test_data_copy_nd.py.
#include "kernel_operator.h"
using namespace AscendC;

struct Params {
    uint64_t from[5];
    uint32_t to[5], size[5];
    uint32_t left[5], right[5];
    int32_t dims, mode, value, skip_dci, fresh;  // mode 0: a constant, 1: the nearest value, 2: 2 before and 1 behind in all dimensions
};

constexpr uint32_t ROOM = 8192;  // bytes
constexpr NdDmaConfig nearest = {true}, same = {false, 2, 1};

template <class T, uint8_t dim>
__aicore__ inline void Run(const LocalTensor<T>& ub, const GlobalTensor<T>& x, const Params& p) {
    NdDmaParams<T, dim> params{{}, static_cast<T>(p.value)};
    for (int i = 0; i < dim; ++i) {
        params.loopInfo.loopSrcStride[i] = p.from[i], params.loopInfo.loopDstStride[i] = p.to[i], params.loopInfo.loopSize[i] = p.size[i];
        params.loopInfo.loopLpSize[i] = static_cast<uint8_t>(p.left[i]), params.loopInfo.loopRpSize[i] = static_cast<uint8_t>(p.right[i]);
    }
    if (!p.skip_dci) NdDmaDci();
    if (p.mode == 0) DataCopy<T, dim>(ub, x, params);  // @copy
    if constexpr (sizeof(T) < 8)
        if (p.mode == 1) DataCopy<T, dim, nearest>(ub, x, params);
    if (p.mode == 2) DataCopy<T, dim, same>(ub, x, params);
}

template <class T>
__aicore__ inline void Run(GM_ADDR x_address, const LocalTensor<uint8_t>& ub, const Params& p) {
    GlobalTensor<T> x;
    x.SetGlobalBuffer((__gm__ T*)x_address);
    const LocalTensor<T> to = ub.ReinterpretCast<T>();
    switch (p.dims) {
        case 1: Run<T, 1>(to, x, p); break;
        case 2: Run<T, 2>(to, x, p); break;
        case 3: Run<T, 3>(to, x, p); break;
        case 4: Run<T, 4>(to, x, p); break;
        default: Run<T, 5>(to, x, p); break;
    }
}

extern "C" __global__ __aicore__ void copies_nd(GM_ADDR x, GM_ADDR y, GM_ADDR base, int32_t size, Params p) {
    GlobalTensor<uint8_t> contents, shown;
    contents.SetGlobalBuffer(base);
    shown.SetGlobalBuffer(y);
    LocalTensor<uint8_t> ub(TPosition::VECIN, 0, ROOM);
    if (!p.fresh) {
        DataCopy(ub, contents, ROOM);
        PipeBarrier<PIPE_ALL>();
    }
    if (size == 1) Run<int8_t>(x, ub, p);
    if (size == 2) Run<half>(x, ub, p);
    if (size == 4) Run<float>(x, ub, p);
    if (size == 8) Run<int64_t>(x, ub, p);
    PipeBarrier<PIPE_ALL>();
    DataCopy(shown, ub, ROOM);
}
