// dst = a op b in every form; see test_vector_binary.py.
#include "vector_frame.h"

using namespace AscendC;

template <class T, class... Types>
constexpr bool is = (std::is_same_v<T, Types> || ...);

#define HEAD d, a, b
#define BINARY(number, Name, ...)                                                          \
    case number:                                                                           \
        if constexpr (is<T, __VA_ARGS__>) {                                                \
            if (call.form == COUNT) Name(d, a, b, call.count);                             \
            if constexpr (std::is_same_v<T, float> || (is<T, uint16_t> && number >= 11)) { \
                FORMS(Name, T, params)                                                     \
            }                                                                              \
        }                                                                                  \
        break;

template <class T>
__aicore__ inline void run(Frame& frame, const Call& call) {
#define UNSET T, false
    const auto d = frame.dst<T>(), a = frame.region<T>(1), b = frame.region<T>(2);
    const BinaryRepeatParams params(call.block[0], call.block[1], call.block[2], call.repeat[0], call.repeat[1], call.repeat[2]);
#if __NPU_ARCH__ == 2201
#define MORE int16_t
#define LONGER int16_t
#else
#define MORE bfloat16_t, uint16_t, uint32_t, int64_t, uint64_t
#define LONGER int64_t, uint64_t
#endif
    switch (call.operation) {
        BINARY(0, Add, half, float, int16_t, int32_t, MORE)
        BINARY(1, Sub, half, float, int16_t, int32_t, MORE)
        BINARY(2, Mul, half, float, int16_t, int32_t, MORE)
        BINARY(4, Max, half, float, int16_t, int32_t, MORE)
        BINARY(5, Min, half, float, int16_t, int32_t, MORE)
        BINARY(6, AddRelu, half, float, int16_t, LONGER)
        BINARY(7, SubRelu, half, float, int16_t, LONGER)
        case 10:
            if constexpr (is<T, half, float, LONGER> && !is<T, int16_t>) MulAddDst(d, a, b, call.count);
            break;
#if __NPU_ARCH__ == 2201
        BINARY(3, Div, half, float)
        BINARY(8, FusedMulAdd, half, float)
        BINARY(9, MulAddRelu, half, float)
        BINARY(11, And, int16_t, uint16_t)
        BINARY(12, Or, int16_t, uint16_t)
#else
        BINARY(3, Div, half, float, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t)
        BINARY(8, FusedMulAdd, half, float, bfloat16_t, int64_t, uint64_t)
        BINARY(9, MulAddRelu, half, float, int64_t, uint64_t)
        BINARY(11, And, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t)
        BINARY(12, Or, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t)
        case 13:
            if constexpr (is<T, half, float>) {
                static constexpr DivConfig exact = {DivAlgo::PRECISION_1ULP_FTZ_FALSE};
                Div<T, exact>(d, a, b, call.count);
            }
            break;
#endif
        default: break;
    }
#undef UNSET
}

/// half * half + float.
__aicore__ inline void run_wide(Frame& frame, const Call& call) {
    const auto d = frame.dst<float>();
    const auto a = frame.region<half>(1), b = frame.region<half>(2);
    const BinaryRepeatParams params(call.block[0], call.block[1], call.block[2], call.repeat[0], call.repeat[1], call.repeat[2]);
    if (call.form == COUNT) MulAddDst(d, a, b, call.count);
#define UNSET float, half, false
    FORMS(MulAddDst, float, params)
#undef UNSET
}

extern "C" __global__ __aicore__ void vector_binary(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
    switch (call.type) {
        case 0: run<half>(frame, call); break;
        case 1: run<float>(frame, call); break;
        case 2: run<int16_t>(frame, call); break;
        case 3: run<int32_t>(frame, call); break;
        case 4: run<uint16_t>(frame, call); break;
#if __NPU_ARCH__ == 3510
        case 5: run<bfloat16_t>(frame, call); break;
        case 6: run<uint32_t>(frame, call); break;
        case 7: run<int64_t>(frame, call); break;
        case 8: run<uint64_t>(frame, call); break;
#endif
        case 9: run_wide(frame, call); break;
        default: break;
    }
    frame.store(out);
}
