// Casts to half and bfloat16_t that give infinity and NaN where the result is one.
#pragma once

#include "kernel_operator.h"

namespace ascend_k3 {

/// While it lives, casts keep infinity and NaN: dav-3510 would make the largest number and 0 of them.
class KeepInfinities {
   public:
#if __NPU_ARCH__ == 3510
    __aicore__ inline KeepInfinities() { AscendC::SetCtrlSpr<48, 48>(1); }
    __aicore__ inline ~KeepInfinities() { AscendC::ResetCtrlSpr<48, 48>(); }
#else
    __aicore__ inline KeepInfinities() {}
    __aicore__ inline ~KeepInfinities() {}
#endif
};

}  // namespace ascend_k3
