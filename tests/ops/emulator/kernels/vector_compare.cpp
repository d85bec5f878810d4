// Comparisons and selections in every form; see test_vector_compare.py. Regions: dst, src0, src1; bits in the second half of
// region 2.
#include "vector_frame.h"

using namespace AscendC;

template <class T, class... Types>
constexpr bool is = (std::is_same_v<T, Types> || ...);

template <class T>
__aicore__ inline void compare(Frame& frame, const Call& call) {
    const auto d = frame.dst<uint8_t>();
    const auto a = frame.region<T>(1), b = frame.region<T>(2);
    const auto mode = static_cast<CMPMODE>(call.mode);
    const T scalar = scalar_of<T>(call);
    const BinaryRepeatParams binary(call.block[0], call.block[1], call.block[2], call.repeat[0], call.repeat[1], call.repeat[2]);
    const UnaryRepeatParams unary(call.block[0], call.block[1], call.repeat[0], call.repeat[1]);
    if (call.form == COUNT) {
        if (call.operation == 0) Compare(d, a, b, mode, static_cast<uint32_t>(call.count));
        if (call.operation == 1) Compares(d, a, scalar, mode, static_cast<uint32_t>(call.count));
        if (call.operation == 2) CompareScalar(d, a, scalar, mode, static_cast<uint32_t>(call.count));
        if (call.operation == 3) Compare(frame.dst<int8_t>(), a, b, mode, static_cast<uint32_t>(call.count));
    }
    if constexpr (is<T, half, float, int32_t> || (is_3510 && (is<T, int16_t, uint16_t, bfloat16_t, uint32_t>))) {
        const uint64_t mask[2] = {call.mask[0], call.mask[1]};
        const uint8_t repeats = static_cast<uint8_t>(call.repeats);
        if (call.form == NUMBER && call.operation == 0) Compare(d, a, b, mode, call.mask[0], repeats, binary);
        if (call.form == BITS && call.operation == 0) Compare(d, a, b, mode, mask, repeats, binary);
        if (call.form == NUMBER && call.operation == 1) Compares(d, a, scalar, mode, call.mask[0], repeats, unary);
        if (call.form == BITS && call.operation == 2) CompareScalar(d, a, scalar, mode, mask, repeats, unary);
        if (call.form == COUNTER) {
            SetMaskCount();
            Compare(d, a, b, mode, call.mask[0], 1, binary);
            SetMaskNorm();
            ResetMask();
        }
    }
    if constexpr (is<T, half, float>) {
        if (call.operation == 4) {  // twice into the register: lanes of the second mask alone change
            const uint64_t mask[2] = {call.mask[0], call.mask[1]};
            const uint64_t all = 256 / sizeof(T);
            Compare(a, b, mode, all, binary);
            PipeBarrier<PIPE_V>();
            Compare(a[all], b[all], mode, mask, binary);
            PipeBarrier<PIPE_V>();
            GetCmpMask(d);
        }
    }
}

template <class T>
__aicore__ inline void select(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>(), a = frame.region<T>(1), b = frame.region<T>(2);
    const auto bits = frame.region<uint8_t>(2)[REGION / 2];
    const auto mode = static_cast<SELMODE>(call.mode);
    const T scalar = scalar_of<T>(call);
    const BinaryRepeatParams params(call.block[0], call.block[1], call.block[2], call.repeat[0], call.repeat[1], call.repeat[2]);
    const uint8_t repeats = static_cast<uint8_t>(call.repeats);
    uint64_t mask[2] = {call.mask[0], call.mask[1]};
    if (call.form == COUNT && call.operation == 10) Select(d, bits, a, b, mode, static_cast<uint32_t>(call.count));
    if (call.form == COUNT && call.operation == 11) Select(d, bits.template ReinterpretCast<uint64_t>(), a, scalar, mode, static_cast<uint32_t>(call.count));
    if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
        if (call.form == COUNTER) SetMaskCount();
        if (call.form == BITS && call.operation == 10) Select(d, bits, a, b, mode, mask, repeats, params);
        if (call.form == BITS && call.operation == 11) Select(d, bits, a, scalar, mode, mask, repeats, params);
        if ((call.form == NUMBER || call.form == COUNTER) && call.operation == 10) Select(d, bits, a, b, mode, mask[0], repeats, params);
        if ((call.form == NUMBER || call.form == COUNTER) && call.operation == 11) Select(d, bits, a, scalar, mode, mask[0], repeats, params);
        SetMaskNorm();
        ResetMask();
    }
    if constexpr (is<T, half, float>) {
        const auto room = frame.region<T>(0)[static_cast<int>(REGION / sizeof(T) / 2)];
        switch (call.operation) {
            case 12:  // bits in the register
                SetCmpMask(bits);
                PipeBarrier<PIPE_V>();
                SetVectorMask<T>(call.mask[1], call.mask[0]);
                Select<T, SELMODE::VSEL_CMPMASK_SPR>(d, a, b, repeats, params);
                ResetMask();
                break;
            case 13:  // a scalar in the register
                Duplicate(room, scalar, 64);
                PipeBarrier<PIPE_V>();
                SetCmpMask(room);
                PipeBarrier<PIPE_V>();
                SetVectorMask<T>(call.mask[1], call.mask[0]);
                Select(d, bits, a, repeats, params);
                ResetMask();
                break;
            case 14: {  // the address of the bits in the register
                const uint32_t address = static_cast<uint32_t>(reinterpret_cast<int64_t>(bits.GetPhyAddr())) + static_cast<uint32_t>(call.count);
                Duplicate(room.template ReinterpretCast<uint32_t>(), address, 8);
                PipeBarrier<PIPE_V>();
                SetCmpMask(room.template ReinterpretCast<int64_t>());
                PipeBarrier<PIPE_V>();
                SetVectorMask<T>(call.mask[1], call.mask[0]);
                Select<T, SELMODE::VSEL_TENSOR_TENSOR_MODE>(d, a, b, repeats, params);
                ResetMask();
                break;
            }
            case 15: {  // Compare into the register and Select by it
                Compare(a, b, CMPMODE::LT, static_cast<uint64_t>(256 / sizeof(T)), BinaryRepeatParams());
                PipeBarrier<PIPE_V>();
                SetVectorMask<T>(call.mask[1], call.mask[0]);
                Select<T, SELMODE::VSEL_CMPMASK_SPR>(d, a, b, repeats, params);
                ResetMask();
                break;
            }
            case 16: {  // a tensor of the program in the last 8 KB
                const LocalTensor<T> top(TPosition::VECCALC, (is_3510 ? 248 : 192) * 1024 - 8192, 64);
                Duplicate(top, scalar, 64);
                PipeBarrier<PIPE_V>();
                Select(d, bits, a, scalar, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64u);
                Select(d[64], bits, a, scalar, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64u);
                PipeBarrier<PIPE_V>();
                Adds(d, top, scalar, 64);
                break;
            }
            case 17: {  // an operand there
                const LocalTensor<T> top(TPosition::VECCALC, (is_3510 ? 248 : 192) * 1024 - 8192, 64);
                Select(top, bits, a, b, mode, 64u);
                break;
            }
            default: break;
        }
    }
}

extern "C" __global__ __aicore__ void vector_compare(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
#define COMPARE(number, T) case number: if (call.operation < 10) compare<T>(frame, call); break;
#define BOTH(number, T) case number: if (call.operation < 10) compare<T>(frame, call); else select<T>(frame, call); break;
    switch (call.type) {
        BOTH(0, half)
        BOTH(1, float)
#if __NPU_ARCH__ == 2201
        COMPARE(3, int32_t)
#else
        BOTH(2, int16_t)
        BOTH(3, int32_t)
        BOTH(4, uint16_t)
        BOTH(5, bfloat16_t)
        BOTH(6, uint32_t)
        BOTH(7, int64_t)
        BOTH(8, uint64_t)
        BOTH(9, int8_t)
        BOTH(10, uint8_t)
#endif
        default: break;
    }
#if REFUSED == 1
    Compare(frame.region<uint8_t>(0), frame.region<int16_t>(1), frame.region<int16_t>(2), CMPMODE::EQ, 128u);
#elif REFUSED == 2
    Select(frame.region<int32_t>(0), frame.region<uint8_t>(2), frame.region<int32_t>(1), 1, SELMODE::VSEL_TENSOR_SCALAR_MODE, 64u);
#elif REFUSED == 3
    Compares(frame.region<int8_t>(0), frame.region<float>(1), 1.0f, CMPMODE::EQ, 64u);
#elif REFUSED == 4
    const uint64_t lanes = 8;
    Select(frame.region<int64_t>(0), frame.region<uint8_t>(2), frame.region<int64_t>(1), frame.region<int64_t>(1),
           SELMODE::VSEL_TENSOR_TENSOR_MODE, lanes, uint8_t(1), BinaryRepeatParams());
#endif
    frame.store(out);
}
