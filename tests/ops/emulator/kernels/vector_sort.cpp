// Sorting; see test_vector_sort.py. Region 1: scores and, from its middle on, indices; region 0: pairs; region 2: merged.
#include "vector_frame.h"

using namespace AscendC;

template <class T>
__aicore__ inline void sort(Frame& frame, const Call& call) {
    constexpr int a_pair = 8 / static_cast<int>(sizeof(T));
    const auto scores = frame.region<T>(1), pairs = frame.region<T>(0), merged = call.block[3] ? frame.dst<T>() : frame.region<T>(2);
    const auto indices = frame.region<uint32_t>(1)[REGION / 8];
    MrgSort4Info info;
    int at[4], next = 0;
    for (int i = 0; i < 4; ++i) {
        info.elementLengths[i] = static_cast<uint16_t>(call.repeat[i]);
        at[i] = next;
        next += call.repeat[i] * a_pair;
    }
    info.validBit = static_cast<uint16_t>(call.mode);
    info.ifExhaustedSuspension = call.form == 1;
    info.repeatTimes = static_cast<uint8_t>(call.repeats);
    SetFlag<HardEvent::MTE2_S>(1);
    WaitFlag<HardEvent::MTE2_S>(1);
    const MrgSortSrcList<T> queues(pairs[at[0]], pairs[at[1]], pairs[at[2]], pairs[at[3]]);
    switch (call.operation) {
        case 0: Sort32(frame.dst<T>(), scores, indices, call.repeats); break;
        case 1: MrgSort(merged[call.offset / static_cast<int>(sizeof(T))], queues, info); break;
        case 2: {  // and how many were taken
            MrgSort(merged, queues, info);
            uint16_t taken[4];
            GetMrgSortResult(taken[0], taken[1], taken[2], taken[3]);
            for (int i = 0; i < 4; ++i) frame.region<uint16_t>(2).SetValue(REGION / 2 - 4 + i, taken[i]);
            SetFlag<HardEvent::S_MTE3>(1);
            WaitFlag<HardEvent::S_MTE3>(1);
            break;
        }
        case 3: {  // the advanced call
            uint32_t taken[4] = {9, 9, 9, 9};
            if (call.form == 1) MrgSort<T, true>(merged, queues, info.elementLengths, taken, info.validBit, call.repeats);
            else MrgSort<T>(merged, queues, info.elementLengths, taken, info.validBit, call.repeats);
            for (int i = 0; i < 4; ++i) frame.region<uint16_t>(2).SetValue(REGION / 2 - 4 + i, taken[i]);
            SetFlag<HardEvent::S_MTE3>(1);
            WaitFlag<HardEvent::S_MTE3>(1);
            break;
        }
        case 4:
        case 5: {  // Concat, Sort and Extract, as the page has them one behind the other
            LocalTensor<T> concat, room = pairs[static_cast<int>(REGION / sizeof(T) / 2)];
            Concat(concat, scores, room, 2 * call.repeats);
            if (call.operation == 4) {
                Sort<T, true>(pairs, concat, indices, room, call.repeats);
            } else {
                Sort<T, false>(pairs, concat, indices, room, call.repeats);
                PipeBarrier<PIPE_V>();
            }
            Extract(merged, merged.template ReinterpretCast<uint32_t>()[REGION / 8], pairs, call.repeats);
            break;
        }
        case 6: {  // four runs of 32 by Sort32, then MrgSort over all of them
            Sort32(pairs, scores, indices, 4);
            PipeBarrier<PIPE_V>();
            const uint16_t lengths[4] = {32, 32, 32, 32};
            const uint32_t step = GetSortOffset<T>(32);
            MrgSort(merged, MrgSortSrcList<T>(pairs[0], pairs[step], pairs[2 * step], pairs[3 * step]), MrgSort4Info(lengths, false, 0b1111, 1));
            break;
        }
        case 7:  // the working memory of Sort afterwards
        {
            LocalTensor<T> room = merged;
            Sort<T, true>(pairs, scores, indices, room, 1);
            Adds(merged, merged, static_cast<T>(0), 8);
            break;
        }
        case 8: MrgSort(pairs[a_pair], queues, info); break;
        case 9: {  // no barrier between Sort32 and MrgSort
            Sort32(pairs, scores, indices, 4);
            MrgSort(merged, queues, info);
            break;
        }
        default: break;
    }
}

extern "C" __global__ __aicore__ void vector_sort(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
    if (call.type == 0) sort<half>(frame, call);
    else sort<float>(frame, call);
#ifdef REFUSED
    Sort32(frame.region<int32_t>(0), frame.region<int32_t>(1), frame.region<uint32_t>(2), 1);
#endif
    frame.store(out);
}
