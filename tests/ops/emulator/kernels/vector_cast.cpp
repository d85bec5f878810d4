// Cast between the types numbered by FROM and TO, in every form; see test_vector_cast.py.
#include "vector_frame.h"

using namespace AscendC;

using int4 = int4b_t;
template <int number>
struct Type;
#define TYPE(number, name)       \
    template <>                  \
    struct Type<number> {        \
        using type = name;       \
    };
TYPE(0, half) TYPE(1, float) TYPE(2, int16_t) TYPE(3, int32_t) TYPE(4, uint16_t) TYPE(5, bfloat16_t) TYPE(6, uint32_t) TYPE(7, int64_t)
TYPE(8, int8_t) TYPE(9, uint8_t) TYPE(10, int4b_t) TYPE(11, fp4x2_e2m1_t) TYPE(12, fp4x2_e1m2_t) TYPE(13, fp8_e4m3fn_t) TYPE(14, fp8_e5m2_t)
TYPE(15, hifloat8_t) TYPE(16, double)

template <class T, class U>
__aicore__ inline void run(Frame& frame, const Call& call) {
    const auto d = frame.dst<T>();
    const auto a = frame.region<U>(1);
    const auto mode = static_cast<RoundMode>(call.mode);
    if (call.scalar) SetDeqScale(scalar_of<half>(call));
    if (call.form == COUNT) Cast(d, a, mode, call.count);
    constexpr bool masks = (std::is_same_v<T, half> && std::is_same_v<U, float>) || (std::is_same_v<U, half> && (std::is_same_v<T, float> || std::is_same_v<T, int4b_t>)) ||
                           (std::is_same_v<U, int4b_t> && std::is_same_v<T, half>) || std::is_same_v<T, fp4x2_e2m1_t>;
    if constexpr (masks) {
        const UnaryRepeatParams params(call.block[0], call.block[1], call.repeat[0], call.repeat[1]);
        using Wider = std::conditional_t<(sizeof(T) > sizeof(U)), T, U>;
#define HEAD d, a, mode
#define UNSET T, U, false
        FORMS(Cast, Wider, params)
    }
}

template <class T, class U>
constexpr bool cast_only_here() {
    for (int mode = 0; mode < 8; ++mode)
        if (emulator::numbers::cast_allowed<U, T>(emulator::Arch::dav2201, static_cast<emulator::numbers::Rounding>(mode))) return false;
    return true;
}
template <class T, class U>
constexpr bool is_small = std::is_same_v<U, half> ? std::is_same_v<T, float> || std::is_same_v<T, int4b_t>
                                                  : (std::is_same_v<U, float> && (std::is_same_v<T, half> || std::is_same_v<T, bfloat16_t> || std::is_same_v<T, int16_t>)) ||
                                                        (std::is_same_v<U, int32_t> && std::is_same_v<T, half>) || (std::is_same_v<U, int4b_t> && std::is_same_v<T, half>);

template <int to, int from>
__aicore__ inline void pair(Frame& frame, const Call& call) {
    using T = typename Type<to>::type;
    using U = typename Type<from>::type;
    // What dav-2201 has as well is compiled for it alone, but for what is asked of both.
    constexpr bool again = is_2201 || cast_only_here<T, U>() || is_small<T, U>;
    if constexpr (emu::cast_exists<T, U>() && again)
        if (call.operation == to && call.type == from) run<T, U>(frame, call);
}
template <int... number>
__aicore__ inline void pairs(Frame& frame, const Call& call, std::integer_sequence<int, number...>) {
    (pair<number / 17, number % 17>(frame, call), ...);
}

extern "C" __global__ __aicore__ void vector_cast(GM_ADDR d, GM_ADDR a, GM_ADDR b, GM_ADDR out, Call call) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    Frame frame(d, a, b, call);
#if __NPU_ARCH__ == 3510
    if (call.repeat[2] & 1) SetCtrlSpr<48, 48>(1);
    if (call.repeat[2] & 2) SetCtrlSpr<59, 59>(1);
    if (call.repeat[2] & 4) SetCtrlSpr<50, 50>(1);
    if (call.repeat[2] & 16) ResetCtrlSpr<48, 48>();
#endif
    pairs(frame, call, std::make_integer_sequence<int, 17 * 17>{});
    frame.store(out);
}
