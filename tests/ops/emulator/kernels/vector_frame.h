// What the kernels of the vector tests share: three regions of UB from global memory, one vector call, dst's region back.
#pragma once

#include "kernel_operator.h"

/// One call: what vector_oracle.py gives in the same order.
struct Call {
    int32_t operation, type, form, place, count, repeats, mode, offset;
    uint64_t mask[2], scalar;
    int32_t block[4], repeat[4];  // strides of dst, src0, src1
};
enum Form { COUNT, NUMBER, BITS, COUNTER, OUTSIDE, OUTSIDE_COUNTER };

constexpr uint32_t REGION = 16384;

class Frame {
   public:
    __aicore__ inline Frame(GM_ADDR d, GM_ADDR a, GM_ADDR b, const Call& call) : call_(call) {
        pipe_.InitBuffer(buffer_, 3 * REGION);
        GM_ADDR const from[] = {d, a, b};
        for (int i = 0; i < 3; ++i) {
            AscendC::GlobalTensor<int32_t> global;
            global.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(from[i]), REGION / 4);
            AscendC::DataCopy(buffer_.Get<int32_t>()[i * REGION / 4], global, REGION / 4);
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(0);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(0);
    }
    /// Region 0 holds dst, 1 and 2 the sources; `place` 1 or 2: dst is in that source's region, `offset` bytes behind its start.
    template <class T>
    __aicore__ inline AscendC::LocalTensor<T> region(int i) {
        return buffer_.Get<T>()[i * static_cast<int>(REGION / sizeof(T))];
    }
    /// With block[3] it is UB that nothing has written, for a test of what a call says that it writes.
    template <class T>
    __aicore__ inline AscendC::LocalTensor<T> dst() {
        if (call_.block[3]) return AscendC::LocalTensor<T>(AscendC::TPosition::VECCALC, 4 * REGION, REGION / sizeof(T));
        return region<T>(call_.place)[call_.offset / static_cast<int>(sizeof(T))];
    }
    __aicore__ inline void store(GM_ADDR out) {
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(0);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(0);
        AscendC::GlobalTensor<int32_t> global;
        global.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(out), REGION / 4);
        AscendC::DataCopy(global, call_.block[3] ? dst<int32_t>() : region<int32_t>(call_.place), REGION / 4);
    }

   private:
    Call call_;
    AscendC::TPipe pipe_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
};

template <class T>
__aicore__ inline T scalar_of(const Call& call) {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), &call.scalar, sizeof(T));
    return value;
}

/// Every form of a call: `Head` are its arguments before the mask, `Tail` those after repeatTime.
#define FORMS(Name, T, ...)                                                                                                  \
    switch (call.form) {                                                                                                     \
        case NUMBER: Name(HEAD, call.mask[0], static_cast<uint8_t>(call.repeats), __VA_ARGS__); break;                       \
        case BITS: {                                                                                                         \
            uint64_t mask[2] = {call.mask[0], call.mask[1]};                                                                 \
            Name(HEAD, mask, static_cast<uint8_t>(call.repeats), __VA_ARGS__);                                               \
            break;                                                                                                           \
        }                                                                                                                    \
        case COUNTER:                                                                                                        \
            AscendC::SetMaskCount();                                                                                         \
            Name(HEAD, call.mask[0], 1, __VA_ARGS__);                                                                        \
            AscendC::SetMaskNorm();                                                                                          \
            AscendC::ResetMask();                                                                                            \
            break;                                                                                                           \
        case OUTSIDE:                                                                                                        \
            AscendC::SetVectorMask<T>(call.mask[1], call.mask[0]);                                                           \
            Name<UNSET>(HEAD, AscendC::MASK_PLACEHOLDER, static_cast<uint8_t>(call.repeats), __VA_ARGS__);                    \
            AscendC::ResetMask();                                                                                            \
            break;                                                                                                           \
        case OUTSIDE_COUNTER:                                                                                                \
            AscendC::SetMaskCount();                                                                                         \
            AscendC::SetVectorMask<T, AscendC::MaskMode::COUNTER>(static_cast<int32_t>(call.mask[0]));                       \
            Name<UNSET>(HEAD, AscendC::MASK_PLACEHOLDER, 1, __VA_ARGS__);                                                    \
            AscendC::SetMaskNorm();                                                                                          \
            AscendC::ResetMask();                                                                                            \
            break;                                                                                                           \
        default: break;                                                                                                      \
    }
