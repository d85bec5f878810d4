// Elements by bits and by addresses; see test_vector_gather.py. Regions: dst, src; region 2 holds bits or offsets.
#include "vector_frame.h"

using namespace AscendC;

template <class T>
using Pattern = std::conditional_t<sizeof(T) == 1, uint8_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>;

template <class T>
__aicore__ inline void pick(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>(), s = frame.region<T>(1);
    const auto offsets = frame.region<uint32_t>(2);
    const uint32_t base = static_cast<uint32_t>(call.block[0]);
    uint64_t mask[2] = {call.mask[0], call.mask[1]};
    if constexpr (sizeof(T) < 8 && (is_3510 || sizeof(T) > 1)) {
        if (call.operation == 0 || call.operation == 1) {
            SetFlag<HardEvent::MTE2_S>(1);
            WaitFlag<HardEvent::MTE2_S>(1);
            uint64_t kept = 77;
            const GatherMaskParams params(call.block[1], call.repeats, call.repeat[1], call.repeat[2]);
            if (call.operation == 0) GatherMask(d, s, static_cast<uint8_t>(call.mode), call.form == COUNT, static_cast<uint32_t>(call.count), params, kept);
            else GatherMask(d, s, frame.region<Pattern<T>>(2), call.form == COUNT, static_cast<uint32_t>(call.count), params, kept);
            frame.region<uint64_t>(call.place).SetValue(REGION / 8 - 1, kept);
            SetFlag<HardEvent::S_MTE3>(1);
            WaitFlag<HardEvent::S_MTE3>(1);
        }
    }
    if (call.operation == 2) {
        if (call.form == COUNT) Gather(d, s, offsets, base, static_cast<uint32_t>(call.count));
        if constexpr (sizeof(T) > 1) {
            if (call.form == NUMBER) Gather(d, s, offsets, base, call.mask[0], static_cast<uint8_t>(call.repeats), static_cast<uint16_t>(call.repeat[0]));
            if (call.form == BITS) Gather(d, s, offsets, base, mask, static_cast<uint8_t>(call.repeats), static_cast<uint16_t>(call.repeat[0]));
        }
    }
    if constexpr (is_3510 || std::is_same_v<T, uint16_t> || std::is_same_v<T, uint32_t>) {
        if (call.operation == 3) Gatherb(d, s, offsets, static_cast<uint8_t>(call.repeats), GatherRepeatParams(call.block[1], call.repeat[0]));
    }
#if __NPU_ARCH__ == 3510
    if (call.operation == 4) {
        if (call.form == COUNT) Scatter(d, s, offsets, base, static_cast<uint32_t>(call.count));
        if constexpr (sizeof(T) > 1) {
            if (call.form == NUMBER) Scatter(d, s, offsets, base, call.mask[0], static_cast<uint8_t>(call.repeats), static_cast<uint8_t>(call.repeat[1]));
            if (call.form == BITS) Scatter(d, s, offsets, base, mask, static_cast<uint8_t>(call.repeats), static_cast<uint8_t>(call.repeat[1]));
        }
    }
#endif
    if constexpr (std::is_same_v<T, float>) {
        if (call.operation == 5) {  // counter mode before; norm mode and the call's own number in the register after it
            uint64_t kept;
            SetMaskCount();
            GatherMask(d, s, static_cast<uint8_t>(7), true, static_cast<uint32_t>(call.count), {1, 1, 8, 0}, kept);
            PipeBarrier<PIPE_V>();
            Adds<float, false>(d[1024], s, 0.0f, MASK_PLACEHOLDER, 1, UnaryRepeatParams());
            ResetMask();
        }
        if (call.operation == 6) {  // the scalar looks at dst behind GatherMask, without a flag
            uint64_t kept;
            GatherMask(d, s, static_cast<uint8_t>(1), false, 0, {1, 2, 8, 0}, kept);
            d.SetValue(1024, d.GetValue(static_cast<uint32_t>(kept) - 1));
            SetFlag<HardEvent::S_MTE3>(1);
            WaitFlag<HardEvent::S_MTE3>(1);
        }
    }
}

extern "C" __global__ __aicore__ void vector_gather(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
#define TYPE(number, T) case number: pick<T>(frame, call); break;
    switch (call.type) {
        TYPE(0, half)
        TYPE(1, float)
        TYPE(2, int16_t)
        TYPE(3, int32_t)
        TYPE(4, uint16_t)
        TYPE(5, bfloat16_t)
        TYPE(6, uint32_t)
#if __NPU_ARCH__ == 3510
        TYPE(7, int64_t)
        TYPE(8, uint64_t)
        TYPE(9, int8_t)
        TYPE(10, uint8_t)
#endif
        default: break;
    }
#if REFUSED == 1
    Scatter(frame.region<float>(0), frame.region<float>(1), frame.region<uint32_t>(2), 0u, 8u);
#elif REFUSED == 2
    Gather(frame.region<int64_t>(0), frame.region<int64_t>(1), frame.region<uint32_t>(2), 0u, 8u);
#elif REFUSED == 3
    Gatherb(frame.region<float>(0), frame.region<float>(1), frame.region<uint32_t>(2), uint8_t(1), GatherRepeatParams(1, 8));
#elif REFUSED == 4
    uint64_t kept;
    GatherMask(frame.region<float>(0), frame.region<float>(1), frame.region<uint16_t>(2), false, 0u, {1, 1, 8, 0}, kept);
#elif REFUSED == 5
    uint64_t kept;
    GatherMask(frame.region<int8_t>(0), frame.region<int8_t>(1), uint8_t(1), false, 0u, {1, 1, 8, 0}, kept);
#endif
    frame.store(out);
}
