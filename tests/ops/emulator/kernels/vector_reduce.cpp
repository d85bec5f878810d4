// Reductions in every form; see test_vector_reduce.py. src is region 1, working memory the end of region 2.
#include "vector_frame.h"

using namespace AscendC;

template <class T, class... Types>
constexpr bool is = (std::is_same_v<T, Types> || ...);

// A call in the forms with a mask. `Set` and `Unset` are the call with isSetMask true and false; M stands for mask and
// repeatTime in either order.
#define MASKED(T, Set, Unset, M, ...)                                                               \
    switch (call.form) {                                                                            \
        case NUMBER: Set(d, s, M(static_cast<int32_t>(call.mask[0]), call.repeats), __VA_ARGS__); break; \
        case BITS: {                                                                                \
            const uint64_t mask[2] = {call.mask[0], call.mask[1]};                                  \
            Set(d, s, M(mask, call.repeats), __VA_ARGS__);                                          \
            break;                                                                                  \
        }                                                                                           \
        case COUNTER:                                                                               \
            SetMaskCount();                                                                         \
            Set(d, s, M(static_cast<int32_t>(call.mask[0]), 1), __VA_ARGS__);                       \
            SetMaskNorm();                                                                          \
            ResetMask();                                                                            \
            break;                                                                                  \
        case OUTSIDE:                                                                               \
            SetVectorMask<T>(call.mask[1], call.mask[0]);                                           \
            Unset(d, s, M(static_cast<int32_t>(MASK_PLACEHOLDER), call.repeats), __VA_ARGS__);      \
            ResetMask();                                                                            \
            break;                                                                                  \
        default: break;                                                                             \
    }
#define MASK_FIRST(mask, repeats) mask, repeats
#define REPEAT_FIRST(mask, repeats) repeats, mask
#define STRIDES call.repeat[0], call.block[1], call.repeat[1]

template <class T>
__aicore__ inline void reduce_tensor(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>(), s = frame.region<T>(1);
    int64_t elements;
    __builtin_memcpy(&elements, &call.scalar, 8);
    const auto tmp = frame.region<T>(2)[static_cast<int>(REGION / sizeof(T)) - elements];
    const bool index = call.mode != 0;
#define TENSOR(number, Name, ...)                                                                                   \
    case number:                                                                                                    \
        if (call.form == COUNT) {                                                                                   \
            Name(d, s, tmp, call.count __VA_ARGS__);                                                                \
        } else if constexpr (sizeof(T) < 8) {                                                                       \
            const uint64_t mask[2] = {call.mask[0], call.mask[1]};                                                  \
            if (call.form == COUNTER) SetMaskCount();                                                               \
            if (call.form == BITS) Name(d, s, tmp, mask, call.repeats, call.repeat[1] __VA_ARGS__);                 \
            else Name(d, s, tmp, static_cast<int32_t>(call.mask[0]), call.repeats, call.repeat[1] __VA_ARGS__);     \
            SetMaskNorm();                                                                                          \
        }                                                                                                           \
        break;
#define INDEX , index
    switch (call.operation) {
        case 8:
            if constexpr (is<T, half, float> || (is_3510 && sizeof(T) >= 4)) {
                switch (call.operation) { TENSOR(8, ReduceSum) default: break; }
            }
            break;
            TENSOR(9, ReduceMax, INDEX)
            TENSOR(10, ReduceMin, INDEX)
        default: break;
    }
}

template <class T>
__aicore__ inline void reduce_parts(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>(), s = frame.region<T>(1);
    const ReduceOrder order = static_cast<ReduceOrder>(call.mode);
    switch (call.operation) {
        case 0:
            if constexpr (is<T, half, float, int32_t, uint32_t>) MASKED(T, (WholeReduceSum<T>), (WholeReduceSum<T, false>), MASK_FIRST, STRIDES)
            break;
        case 1: MASKED(T, (WholeReduceMax<T>), (WholeReduceMax<T, false>), MASK_FIRST, STRIDES, order) break;
        case 2: MASKED(T, (WholeReduceMin<T>), (WholeReduceMin<T, false>), MASK_FIRST, STRIDES, order) break;
        case 11:
            if constexpr (is<T, half, float, int32_t, uint32_t>)
                MASKED(T, (ReduceRepeat<ReduceType::SUM, T>), (ReduceRepeat<ReduceType::SUM, T, T, false>), MASK_FIRST, STRIDES)
            break;
        case 12: MASKED(T, (ReduceRepeat<ReduceType::MAX, T>), (ReduceRepeat<ReduceType::MAX, T, T, false>), MASK_FIRST, STRIDES, order) break;
        case 13: MASKED(T, (ReduceRepeat<ReduceType::MIN, T>), (ReduceRepeat<ReduceType::MIN, T, T, false>), MASK_FIRST, STRIDES, order) break;
        default: break;
    }
    if constexpr (is<T, half, float>) {
        switch (call.operation) {
            case 3: MASKED(T, (BlockReduceSum<T>), (BlockReduceSum<T, false>), REPEAT_FIRST, STRIDES) break;
            case 4: MASKED(T, (BlockReduceMax<T>), (BlockReduceMax<T, false>), REPEAT_FIRST, STRIDES) break;
            case 5: MASKED(T, (BlockReduceMin<T>), (BlockReduceMin<T, false>), REPEAT_FIRST, STRIDES) break;
            case 6: MASKED(T, (PairReduceSum<T>), (PairReduceSum<T, false>), REPEAT_FIRST, STRIDES) break;
            case 7: RepeatReduceSum<T>(d, s, call.repeats, static_cast<int32_t>(call.mask[0]), 99, call.block[1], call.repeat[0], call.repeat[1]); break;
            case 14: MASKED(T, (ReduceDataBlock<ReduceType::SUM, T>), (ReduceDataBlock<ReduceType::SUM, T, T, false>), MASK_FIRST, STRIDES) break;
            case 15: MASKED(T, (ReduceDataBlock<ReduceType::MAX, T>), (ReduceDataBlock<ReduceType::MAX, T, T, false>), MASK_FIRST, STRIDES) break;
            case 16: MASKED(T, (ReduceDataBlock<ReduceType::MIN, T>), (ReduceDataBlock<ReduceType::MIN, T, T, false>), MASK_FIRST, STRIDES) break;
            case 17: MASKED(T, (ReducePairElem<ReduceType::SUM, T>), (ReducePairElem<ReduceType::SUM, T, T, false>), MASK_FIRST, STRIDES) break;
            case 18: {  // the sum from its register; no other order between the two calls
                ReduceSum(d, s, s, call.count);
                const T sum = GetAccVal<T>();
                d.SetValue(8, sum);
                d.SetValue(9, GetReduceRepeatSumSpr<T>());
                SetFlag<HardEvent::S_MTE3>(1);
                WaitFlag<HardEvent::S_MTE3>(1);
                break;
            }
#if __NPU_ARCH__ == 2201
            case 19: {
                WholeReduceMax<T>(d, s, static_cast<int32_t>(call.mask[0]), call.repeats, 1, 1, 8);
                T value, index;
                GetReduceMaxMinCount(value, index);
                d.SetValue(32, value);
                d.SetValue(33, index);
                SetFlag<HardEvent::S_MTE3>(1);
                WaitFlag<HardEvent::S_MTE3>(1);
                break;
            }
#endif
            case 20:  // no barrier between what writes s and what reads it
                Adds(s, s, static_cast<T>(1), 64);
                WholeReduceSum<T>(d, s, 64, 1, 1, 1, 8);
                break;
            case 21: {  // working memory read afterwards
                const auto tmp = frame.region<T>(2);
                ReduceMax(d, s, tmp, call.count);
                PipeBarrier<PIPE_V>();
                Adds(d[64], tmp, static_cast<T>(0), 8);
                break;
            }
            default: break;
        }
    }
}

template <class D, class S>
__aicore__ inline void widen(Frame& frame, const Call& call) {
    const auto d = frame.dst<D>();
    const auto s = frame.region<S>(1);
    WholeReduceSum<S, true, D>(d, s, static_cast<int32_t>(call.mask[0]), call.repeats, STRIDES);
}

extern "C" __global__ __aicore__ void vector_reduce(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
#define TYPE(number, T)                                                                            \
    case number:                                                                                   \
        if (call.operation >= 8 && call.operation <= 10) reduce_tensor<T>(frame, call);            \
        else if constexpr (sizeof(T) < 8) reduce_parts<T>(frame, call);                            \
        break;
    switch (call.type) {
        TYPE(0, half)
        TYPE(1, float)
#if __NPU_ARCH__ == 3510
        TYPE(2, int16_t)
        TYPE(3, int32_t)
        TYPE(4, uint16_t)
        TYPE(6, uint32_t)
        TYPE(7, int64_t)
        TYPE(8, uint64_t)
        case 20: widen<int32_t, int16_t>(frame, call); break;
        case 21: widen<uint32_t, uint16_t>(frame, call); break;
#endif
        default: break;
    }
#ifdef REFUSED
    WholeReduceSum<REFUSED>(frame.region<REFUSED>(0), frame.region<REFUSED>(1), 32, 1, 1, 1, 8);
#endif
#ifdef REFUSED_REGISTER
    float value, index;
    GetReduceMaxMinCount(value, index);
#endif
    frame.store(out);
}
