// Filling, copying and rearranging; see test_vector_fill.py.
#include "vector_frame.h"

using namespace AscendC;

template <class T>
__aicore__ inline void run(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>(), a = frame.region<T>(1), b = frame.region<T>(2);
    const T scalar = scalar_of<T>(call);
    [[maybe_unused]] constexpr bool one_of_a_size = std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, int8_t> || std::is_same_v<T, int64_t>;
    constexpr bool wide = sizeof(T) == 2 || sizeof(T) == 4;
    switch (call.operation) {
        case 0:
            if (call.form == COUNT) Duplicate(d, scalar, call.count);
            if constexpr (std::is_same_v<T, float> || std::is_same_v<T, uint16_t>) {
#define HEAD d, scalar
#define UNSET T, false
                FORMS(Duplicate, T, static_cast<uint16_t>(call.block[0]), static_cast<uint8_t>(call.repeat[0]))
#undef HEAD
            }
            break;
        case 1:
            if (call.form == OUTSIDE) SetVectorMask<T>(call.mask[1], call.mask[0]);
            Brcb(d, a, static_cast<uint8_t>(call.repeats), {static_cast<uint16_t>(call.block[0]), static_cast<uint16_t>(call.repeat[0])});
            ResetMask();
            break;
        case 2: {
            const CopyRepeatParams params(call.block[0], call.block[1], call.repeat[0], call.repeat[1]);
            const uint8_t repeats = static_cast<uint8_t>(call.repeats);
            if (call.form == NUMBER) Copy(d, a, call.mask[0], repeats, params);
            if (call.form == BITS) Copy(d, a, call.mask, repeats, params);
            if (call.form == COUNTER) {
                SetMaskCount();
                Copy(d, a, call.mask[0], repeats, params);
                SetMaskNorm();
                ResetMask();
            }
            if (call.form == OUTSIDE_COUNTER) {
                SetMaskCount();
                SetVectorMask<T, MaskMode::COUNTER>(static_cast<int32_t>(call.mask[0]));
                Copy<T, false>(d, a, MASK_PLACEHOLDER, repeats, params);
                SetMaskNorm();
                ResetMask();
            }
            break;
        }
        case 3:
            if constexpr (!std::is_same_v<T, bfloat16_t> && !std::is_unsigned_v<T>) CreateVecIndex(d, scalar, static_cast<uint32_t>(call.count));
            break;
        case 4:
            if constexpr (std::is_same_v<T, half> || std::is_same_v<T, int16_t> || std::is_same_v<T, uint16_t>) Transpose(d, a);
            break;
        case 5:
            if constexpr (wide && !std::is_same_v<T, bfloat16_t>) {
                LocalTensor<T> to[16], from[16];
                for (int i = 0; i < 16; ++i) {
                    to[i] = d[i * call.block[0] * 32 / static_cast<int>(sizeof(T))];
                    from[i] = a[i * call.block[1] * 32 / static_cast<int>(sizeof(T))];
                }
                TransDataTo5HD<T>(to, from, TransDataTo5HDParams(false, false, call.repeats, call.repeat[0], call.repeat[1]));
            }
            break;
#if __NPU_ARCH__ == 3510
        case 6:
            if constexpr (one_of_a_size) Interleave(d, d[call.count], a, b, call.count);
            break;
        case 7:
            if constexpr (one_of_a_size) DeInterleave(d, d[call.count], a, b, call.count);
            break;
        case 8:
            if constexpr (one_of_a_size) DeInterleave(d, d[call.count], a, call.count);
            break;
        case 9: Duplicate(d, a, call.count); break;
        case 10: Copy(d, a, static_cast<uint32_t>(call.count)); break;
#endif
        default: break;
    }
}

/// Eight bits of blocks that are given by their addresses.
__aicore__ inline void turn_bytes(Frame& frame, const Call& call) {
    uint64_t to[16], from[16];
    for (int i = 0; i < 16; ++i) {
        to[i] = (uint64_t)frame.dst<int8_t>()[i * call.block[0] * 32].GetPhyAddr();
        from[i] = (uint64_t)frame.region<int8_t>(1)[i * call.block[1] * 32].GetPhyAddr();
    }
    TransDataTo5HD<int8_t>(to, from, TransDataTo5HDParams(call.mode & 1, call.mode & 2, call.repeats, call.repeat[0], call.repeat[1]));
}

extern "C" __global__ __aicore__ void vector_fill(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
    switch (call.type) {
        case 0: run<half>(frame, call); break;
        case 1: run<float>(frame, call); break;
        case 2: run<int16_t>(frame, call); break;
        case 3: run<int32_t>(frame, call); break;
        case 4: run<uint16_t>(frame, call); break;
        case 5: run<bfloat16_t>(frame, call); break;
        case 6: run<uint32_t>(frame, call); break;
#if __NPU_ARCH__ == 3510
        case 7: run<int64_t>(frame, call); break;
        case 8: run<uint64_t>(frame, call); break;
        case 10: run<int8_t>(frame, call); break;
        case 11: run<uint8_t>(frame, call); break;
#endif
        case 12: turn_bytes(frame, call); break;
        default: break;
    }
    frame.store(out);
}
