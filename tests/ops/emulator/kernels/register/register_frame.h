// What the kernels of the register tests share: three regions of UB from global memory, vector functions on them, dst back.
#pragma once

#include "kernel_operator.h"

/// One call, in the order of test_registers.py.
struct Call {
    int32_t op, count, a, b;
    float scalar;
    int32_t d;
};

constexpr uint32_t REGION = 2048;

class Frame {
   public:
    __aicore__ inline Frame(GM_ADDR d, GM_ADDR a, GM_ADDR b) : d_(d) {
        GM_ADDR const from[] = {d, a, b};
        for (int i = 0; i < 3; ++i) {
            pipe_.InitBuffer(buffers_[i], REGION);
            AscendC::GlobalTensor<uint8_t> global;
            global.SetGlobalBuffer(from[i], REGION);
            AscendC::DataCopy(buffers_[i].Get<uint8_t>(), global, REGION);
        }
        AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(0);
        AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(0);
    }
    /// Region 0 is dst, 1 and 2 are the sources.
    template <class T>
    __aicore__ inline __ubuf__ T* at(int region, int32_t element = 0) {
        return buffers_[region].Get<T>().GetPhyAddr(element);
    }
    __aicore__ inline AscendC::LocalTensor<uint8_t> tensor(int region) { return buffers_[region].Get<uint8_t>(); }
    __aicore__ inline GM_ADDR global() { return d_; }
    __aicore__ inline AscendC::TPipe& pipe() { return pipe_; }
    __aicore__ inline void store() {
        AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(0);
        AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(0);
        AscendC::GlobalTensor<uint8_t> global;
        global.SetGlobalBuffer(d_, REGION);
        AscendC::DataCopy(global, buffers_[0].Get<uint8_t>(), REGION);
    }

   private:
    GM_ADDR d_;
    AscendC::TPipe pipe_;
    AscendC::TBuf<AscendC::TPosition::VECCALC> buffers_[3];
};

/// The kernel named `name`, which runs `body(frame, call)`.
#define REGISTER_KERNEL(name)                                                                     \
    extern "C" __global__ __aicore__ void name(GM_ADDR d, GM_ADDR a, GM_ADDR b, Call call) {      \
        KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);                                           \
        Frame frame(d, a, b);                                                                     \
        body(frame, call);                                                                        \
        frame.store();                                                                            \
    }
