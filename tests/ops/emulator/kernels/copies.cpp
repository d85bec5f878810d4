// Copies between global memory and UB, and within UB. UB is filled from `base` first, and shown in `y` afterwards.
#include "kernel_operator.h"
using namespace AscendC;

enum Op : int32_t { in_count, in_blocks, in_pad, in_pad_compact, out_count, out_blocks, out_pad, out_pad_compact, within_count, within_blocks, atomic_out };

struct Params {
    int32_t op, count;
    int32_t block_count, block_len;
    int64_t source_gap, destination_gap;
    int32_t is_pad, left, right, value;
    int32_t ub_offset, gm_offset;  // bytes
    int32_t atomic, is_bfloat16;
};

constexpr uint32_t ROOM = 4096;  // bytes of UB that are looked at, and of y

template <class T>
__aicore__ inline void Run(GM_ADDR x_address, GM_ADDR y_address, const LocalTensor<uint8_t>& ub_bytes, const Params& p) {
    GlobalTensor<T> x, y;
    x.SetGlobalBuffer((__gm__ T*)(x_address + p.gm_offset));
    y.SetGlobalBuffer((__gm__ T*)(y_address + p.gm_offset));
    LocalTensor<T> ub = ub_bytes[p.ub_offset].template ReinterpretCast<T>();
    const DataCopyParams blocks(static_cast<uint16_t>(p.block_count), static_cast<uint16_t>(p.block_len), static_cast<uint16_t>(p.source_gap),
                                static_cast<uint16_t>(p.destination_gap));
    const DataCopyExtParams bytes(static_cast<uint16_t>(p.block_count), static_cast<uint32_t>(p.block_len), p.source_gap, p.destination_gap, 0);
    const DataCopyPadExtParams<T> pad(p.is_pad == 1, static_cast<uint8_t>(p.left), static_cast<uint8_t>(p.right), static_cast<T>(p.value));
    if (p.is_pad == 2) SetPadValue(static_cast<T>(p.value));  // @pad_value
    switch (p.op) {
        case in_count: DataCopy(ub, x, p.count); break;    // @in_count
        case in_blocks: DataCopy(ub, x, blocks); break;    // @in_blocks
        case in_pad: DataCopyPad(ub, x, bytes, pad); break;  // @in_pad
        case out_count: DataCopy(y, ub, p.count); break;   // @out_count
        case out_blocks: DataCopy(y, ub, blocks); break;   // @out_blocks
        case out_pad: DataCopyPad(y, ub, bytes); break;    // @out_pad
#if __NPU_ARCH__ == 3510
        case in_pad_compact: DataCopyPad<T, PaddingMode::Compact>(ub, x, bytes, pad); break;
        case out_pad_compact: DataCopyPad<T, PaddingMode::Compact>(y, ub, bytes); break;
#endif
        default: break;
    }
}

template <class T>
__aicore__ inline void RunAtomic(GM_ADDR y_address, const LocalTensor<uint8_t>& ub_bytes, const Params& p) {
    GlobalTensor<T> y;
    y.SetGlobalBuffer((__gm__ T*)(y_address + p.gm_offset));
    if (p.atomic == 0) SetAtomicAdd<T>();
    if (p.atomic == 1) SetAtomicMax<T>();
    if (p.atomic == 2) SetAtomicMin<T>();
    const DataCopyExtParams bytes(static_cast<uint16_t>(p.block_count), static_cast<uint32_t>(p.block_len), p.source_gap, p.destination_gap, 0);
    DataCopyPad(y, ub_bytes.ReinterpretCast<T>(), bytes);
    DisableDmaAtomic();
}

extern "C" __global__ __aicore__ void copies(GM_ADDR x, GM_ADDR y, GM_ADDR base, int32_t size, Params p) {
    GlobalTensor<uint8_t> contents, shown;
    contents.SetGlobalBuffer(base);
    shown.SetGlobalBuffer(y);
    LocalTensor<uint8_t> ub(TPosition::VECIN, 0, 2 * ROOM);
    DataCopy(ub, contents, 2 * ROOM);
    PipeBarrier<PIPE_ALL>();
    if (p.op == atomic_out) {
        if (p.is_bfloat16)
            RunAtomic<bfloat16_t>(y, ub, p);
        else if (size == 1)
            RunAtomic<int8_t>(y, ub, p);
        else if (size == 2)
            RunAtomic<half>(y, ub, p);
        else if (size == 4)
            RunAtomic<float>(y, ub, p);
        else if (size == 12)
            RunAtomic<int16_t>(y, ub, p);
        else
            RunAtomic<int32_t>(y, ub, p);
        return;
    }
    if (p.op == within_count) DataCopy(ub.ReinterpretCast<float>(), ub[ROOM].ReinterpretCast<float>(), p.count);
    if (p.op == within_blocks)
        DataCopy(ub.ReinterpretCast<float>(), ub[ROOM].ReinterpretCast<float>(),
                 DataCopyParams(static_cast<uint16_t>(p.block_count), static_cast<uint16_t>(p.block_len),
                                static_cast<uint16_t>(p.source_gap), static_cast<uint16_t>(p.destination_gap)));
    if (size == 1) Run<int8_t>(x, y, ub, p);
    if (size == 2) Run<half>(x, y, ub, p);
    if (size == 4) Run<float>(x, y, ub, p);
    if (size == 8) Run<int64_t>(x, y, ub, p);
    PipeBarrier<PIPE_ALL>();
    if (p.op < out_count || p.op >= within_count) DataCopy(shown, ub, ROOM);  // @shown
}
