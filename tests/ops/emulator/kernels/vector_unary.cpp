// dst = f(src) and dst = src op scalar in every form; see test_vector_unary.py.
#include "vector_frame.h"

using namespace AscendC;

template <class T, class... Types>
constexpr bool is = (std::is_same_v<T, Types> || ...);

#if __NPU_ARCH__ == 2201
#define ON_3510(...)
#else
#define ON_3510(...) , __VA_ARGS__
#endif

#define UNARY(number, Name, in_forms, ...)                             \
    case number:                                                       \
        if constexpr (is<T, __VA_ARGS__>) {                            \
            if (call.form == COUNT) Name(d, a, call.count);            \
            if constexpr (is<T, in_forms>) { FORMS(Name, T, params) }  \
        }                                                              \
        break;
#define SCALAR(number, Name, in_forms, ...)                            \
    case number:                                                       \
        if constexpr (is<T, __VA_ARGS__>) {                            \
            if (call.form == COUNT) Name(d, a, scalar, call.count);    \
            if constexpr (is<T, in_forms>) { FORMS(Name, T, params) }  \
        }                                                              \
        break;

template <class T>
__aicore__ inline void run(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>(), a = frame.region<T>(1);
    const T scalar = scalar_of<T>(call);
    const UnaryRepeatParams params(call.block[0], call.block[1], call.repeat[0], call.repeat[1]);
#define UNSET T, false
#define HEAD d, a
    switch (call.operation) {
        UNARY(0, Abs, float, half, float ON_3510(int8_t, int16_t, int32_t, int64_t))
        UNARY(1, Relu, float, half, float, int32_t ON_3510(int64_t))
        UNARY(2, Exp, float, half, float)
        UNARY(3, Ln, float, half, float)
        UNARY(4, Sqrt, float, half, float)
        UNARY(5, Rsqrt, float, half, float)
        UNARY(6, Reciprocal, float, half, float)
        UNARY(7, Not, int16_t, int16_t, uint16_t ON_3510(half, float, int8_t, uint8_t, int32_t, uint32_t, int64_t, uint64_t))
#if __NPU_ARCH__ == 3510
        case 8:
            if constexpr (is<T, half, float, int8_t, int16_t, int32_t, int64_t>) Neg(d, a, call.count);
            break;
        case 9:
            if constexpr (is<T, float>) {
                static constexpr SqrtConfig config = {SqrtAlgo::FAST_INVERSE};
                Sqrt<T, config>(d, a, call.count);
            }
            break;
        case 10:
            if constexpr (is<T, float>) {
                static constexpr RsqrtConfig config = {RsqrtAlgo::FAST_INVERSE};
                Rsqrt<T, config>(d, a, call.count);
            }
            break;
        case 11:
            if constexpr (is<T, half, float>) {
                static constexpr ExpConfig config = {ExpAlgo::PRECISION_1ULP_FTZ_FALSE};
                Exp<T, config>(d, a, call.count);
            }
            break;
        case 12:
            if constexpr (is<T, half, bfloat16_t, float, int16_t, int32_t, int64_t, uint64_t>) {
                if (call.mode == 0) Subs(d, a, scalar, call.count);
                if (call.mode == 1) Subs(d, scalar, a, call.count);
            }
            break;
        case 13:
            if constexpr (is<T, half, float>) {
                if (call.mode == 0) Divs(d, a, scalar, call.count);
                if (call.mode == 1) Divs(d, scalar, a, call.count);
            }
            break;
#endif
        default: break;
    }
#undef HEAD
#define HEAD d, a, scalar
    switch (call.operation) {
        SCALAR(20, Adds, float, half, float, int16_t, int32_t ON_3510(bfloat16_t, int8_t, uint8_t, int64_t, uint64_t))
        SCALAR(21, Muls, float, half, float, int16_t, int32_t ON_3510(bfloat16_t, int64_t, uint64_t))
        SCALAR(22, Maxs, float, half, float, int16_t, int32_t ON_3510(bfloat16_t, int8_t, uint8_t, int64_t, uint64_t))
        SCALAR(23, Mins, float, half, float, int16_t, int32_t ON_3510(bfloat16_t, int8_t, uint8_t, int64_t, uint64_t))
        SCALAR(24, LeakyRelu, float, half, float)
        SCALAR(25, ShiftLeft, int16_t, int16_t, uint16_t, int32_t, uint32_t ON_3510(int8_t, uint8_t, int64_t, uint64_t))
        SCALAR(26, ShiftRight, int16_t, int16_t, uint16_t, int32_t, uint32_t ON_3510(int8_t, uint8_t, int64_t, uint64_t))
        case 27:
            if constexpr (is<T, half, float ON_3510(bfloat16_t, int64_t, uint64_t)>) Axpy(d, a, scalar, call.count);
            break;
        case 28:
            if constexpr (is<T, int16_t, uint16_t, int32_t>) ShiftRight(d, a, scalar, call.mask[0], call.repeats, params, true);
            break;
        case 29:  // isSetMask false in the form with a count: the register's mask
            if constexpr (is<T, float>) {
                SetVectorMask<T>(call.mask[1], call.mask[0]);
                Adds<T, false>(d, a, scalar, call.count);
                ResetMask();
            }
            break;
        case 30:  // a form with a count puts the whole mask back
            if constexpr (is<T, float>) {
                SetVectorMask<T>(0, 1);
                Adds(d[64], a, scalar, 1);
                PipeBarrier<PIPE_V>();
                Adds<T, false>(d, a, scalar, MASK_PLACEHOLDER, 1, params);
            }
            break;
        default: break;
    }
#undef HEAD
#undef UNSET
}

__aicore__ inline void run_wide(Frame& frame, const Call& call) {
    const auto d = frame.dst<float>();
    const auto a = frame.region<half>(1);
    const half scalar = scalar_of<half>(call);
    const UnaryRepeatParams params(call.block[0], call.block[1], call.repeat[0], call.repeat[1]);
    if (call.form == COUNT) Axpy(d, a, scalar, call.count);
#define HEAD d, a, scalar
#define UNSET float, half, false
    FORMS(Axpy, float, params)
#undef UNSET
#undef HEAD
}

extern "C" __global__ __aicore__ void vector_unary(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
    switch (call.type) {
        case 0: run<half>(frame, call); break;
        case 1: run<float>(frame, call); break;
        case 2: run<int16_t>(frame, call); break;
        case 3: run<int32_t>(frame, call); break;
        case 4: run<uint16_t>(frame, call); break;
        case 6: run<uint32_t>(frame, call); break;
#if __NPU_ARCH__ == 3510
        case 5: run<bfloat16_t>(frame, call); break;
        case 7: run<int64_t>(frame, call); break;
        case 8: run<uint64_t>(frame, call); break;
        case 10: run<int8_t>(frame, call); break;
        case 11: run<uint8_t>(frame, call); break;
#endif
        case 9: run_wide(frame, call); break;
        default: break;
    }
    frame.store(out);
}
