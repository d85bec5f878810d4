// dst = src0 + src1 and the like, on whole tensors. Source: the forms "whole tensor" of the pages Add, Sub, Mul, Div, And, Or,
// Compare.
#pragma once

#include "vector_bits.h"
#include "vector_compare.h"

namespace AscendC {

namespace emu {

/// "As many elements as dst has."
#define EMULATOR_WHOLE(Name)                                                                                                  \
    struct Whole##Name {                                                                                                      \
        template <class T>                                                                                                    \
        static void run(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, Site at) {         \
            Name(dst, src0, src1, static_cast<int32_t>(dst.GetSize()), at);                                                   \
        }                                                                                                                     \
    };
EMULATOR_WHOLE(Add)
EMULATOR_WHOLE(Sub)
EMULATOR_WHOLE(Mul)
EMULATOR_WHOLE(Div)
#undef EMULATOR_WHOLE
/// And and Or have fewer types in this form than with a count.
#define EMULATOR_WHOLE(Name)                                                                                                  \
    struct Whole##Name {                                                                                                      \
        template <class T>                                                                                                    \
        static void run(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, Site at) {         \
            Name##_types<T, false>();                                                                                         \
            Name(dst, src0, src1, static_cast<int32_t>(dst.GetSize()), at);                                                   \
        }                                                                                                                     \
    };
EMULATOR_WHOLE(And)
EMULATOR_WHOLE(Or)
#undef EMULATOR_WHOLE
/// A bit for each element of the sources, which are a multiple of 256 bytes. Unknown: whether dst's length matters.
#define EMULATOR_WHOLE(Name, mode)                                                                                            \
    struct Whole##Name {                                                                                                      \
        template <class U, class T>                                                                                           \
        static void run(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, Site at) {         \
            Compare(dst, src0, src1, CMPMODE::mode, src0.GetSize(), at);                                                      \
        }                                                                                                                     \
    };
EMULATOR_WHOLE(Less, LT)
EMULATOR_WHOLE(Greater, GT)
EMULATOR_WHOLE(LessEqual, LE)
EMULATOR_WHOLE(GreaterEqual, GE)
EMULATOR_WHOLE(Equal, EQ)
EMULATOR_WHOLE(NotEqual, NE)
#undef EMULATOR_WHOLE

}  // namespace emu

}  // namespace AscendC
