// numbers.h behind a C interface, for test_numbers.py; what a compiler can check is checked here.
#include <cstring>
#include <utility>

#include "emulator/numbers.h"

namespace {

using namespace emulator::numbers;

static_assert(std::is_trivial_v<half> && std::is_trivial_v<bfloat16_t> && sizeof(half) == 2 && sizeof(bfloat16_t) == 2);
static_assert(std::is_trivial_v<fp8_e4m3fn_t> && std::is_trivial_v<fp8_e5m2_t> && std::is_trivial_v<fp8_e8m0_t>);
static_assert(sizeof(hifloat8_t) == 1 && sizeof(fp4x2_e2m1_t) == 1 && sizeof(fp4x2_e1m2_t) == 1 && sizeof(int4b_t) == 1);
static_assert(bits_of<int4b_t>() == 4 && bits_of<fp8_e8m0_t>() == 8 && bits_of<half>() == 16);
static_assert(half(1.5f).bits == 0x3e00 && half(65520).bits == 0x7c00 && half(65519.99).bits == 0x7bff);
// 1 + 2^-11 + 2^-40 is above the tie; through a float it would be the tie.
static_assert(half(1.00048828125 + 9.094947017729282e-13).bits == 0x3c01);
static_assert(bfloat16_t((int64_t(1) << 40) + (int64_t(1) << 32) + 1).bits == 0x5381);
static_assert(std::is_same_v<decltype(half(1) + half(1)), half> && std::is_same_v<decltype(half(1) * 2), half>);
static_assert(std::is_same_v<decltype(half(1) + 1.0f), float> && std::is_same_v<decltype(2.0 / half(1)), double>);
static_assert(std::is_convertible_v<float, half> && std::is_convertible_v<half, float>);
static_assert(!std::is_convertible_v<float, bfloat16_t> && !std::is_convertible_v<bfloat16_t, float>);
static_assert(AscendC::ToFloat(AscendC::ToBfloat16(3.14159f)) == 3.140625f);
static_assert((-half(0.0f)).bits == 0x8000 && half(0.0f) == -half(0.0f) && half(1) < half(2) && !(half(1) >= 2));
static_assert(cast_allowed<float, half>(emulator::Arch::dav2201, Rounding::Odd));

/// What kernel sources write.
float written_in_kernels() {
    half x = 1.5f, y = (half)0.0, z(3), w = 2;
    bfloat16_t b = static_cast<bfloat16_t>(0.5f);
    const half constant = x;
    float f = static_cast<float>(x);
    double d = z;
    int32_t i = static_cast<int32_t>(z) + static_cast<int32_t>(bfloat16_t(4));
    x = x + y;
    x += constant;
    x *= 2.0f;
    x -= 1;
    x = x < z ? z : -w;
    b += b;
    half row[2] = {1, 2.0};
    f += AscendC::ToFloat(b) + row[1] / 4;
    if (x != 0 && b > bfloat16_t(0)) f += static_cast<float>(x);
    return f + static_cast<float>(d) + static_cast<float>(i);  // 1.5 + (1 + 0.5) - 2 + 3 + 7
}

template <class From, class To>
bool cast_pair(int from, int to, Rounding mode, bool saturate, bool keep_nan, const void* in, void* out, int64_t count) {
    if (from != static_cast<int>(number_of<From>()) || to != static_cast<int>(number_of<To>())) return false;
    const From* source = static_cast<const From*>(in);
    To* target = static_cast<To*>(out);
    if constexpr (is_packed<To>()) {
        for (int64_t i = 0; i < count; i += 2) target[i / 2] = pack<To>(source[i], source[i + 1], mode, saturate);
    } else if constexpr (is_packed<From>()) {
        for (int64_t i = 0; i < count; ++i) target[i] = element<To>(source[i / 2], static_cast<int>(i % 2));
    } else {
        convert_range(target, source, count, mode, saturate, keep_nan);
        for (int64_t i = 0; i < count; i += 997) {  // one at a time gives the same
            const To alone = convert<To>(source[i], mode, saturate, keep_nan);
            if (std::memcmp(&alone, target + i, sizeof(To)) != 0) throw std::logic_error("convert and convert_range differ");
        }
    }
    return true;
}

template <class T>
void calculate(char operation, const T* a, const T* b, T* out, int64_t count) {
    switch (operation) {
        case '+': for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i]; break;
        case '-': for (int64_t i = 0; i < count; ++i) out[i] = a[i] - b[i]; break;
        case '*': for (int64_t i = 0; i < count; ++i) out[i] = a[i] * b[i]; break;
        default: for (int64_t i = 0; i < count; ++i) out[i] = a[i] / b[i];
    }
}


}  // namespace

extern "C" {

float kernels() { return written_in_kernels(); }

/// 0: done; 1: there is no such conversion; 2: refused in this mode; 3: convert and convert_range differ.
int cast(int from, int to, int mode, int saturate, int keep_nan, const void* in, void* out, int64_t count) {
    const Rounding rounding = static_cast<Rounding>(mode);
    const auto tried = [&](auto... pairs) { return (pairs(from, to, rounding, saturate, keep_nan, in, out, count) || ...); };
    try {
        return tried(
                   cast_pair<float, half>, cast_pair<float, bfloat16_t>, cast_pair<float, float>,
                   cast_pair<float, fp8_e4m3fn_t>, cast_pair<float, fp8_e5m2_t>, cast_pair<float, hifloat8_t>,
                   cast_pair<float, fp8_e8m0_t>, cast_pair<float, int16_t>, cast_pair<float, int32_t>,
                   cast_pair<float, int64_t>, cast_pair<half, float>, cast_pair<half, bfloat16_t>,
                   cast_pair<half, hifloat8_t>, cast_pair<half, fp8_e4m3fn_t>, cast_pair<half, int4b_t>,
                   cast_pair<half, int8_t>, cast_pair<half, uint8_t>, cast_pair<half, int16_t>, cast_pair<half, int32_t>,
                   cast_pair<bfloat16_t, float>, cast_pair<bfloat16_t, half>, cast_pair<bfloat16_t, int32_t>,
                   cast_pair<bfloat16_t, fp8_e8m0_t>, cast_pair<bfloat16_t, fp8_e5m2_t>,
                   cast_pair<bfloat16_t, fp4x2_e2m1_t>, cast_pair<bfloat16_t, fp4x2_e1m2_t>,
                   cast_pair<half, fp4x2_e2m1_t>, cast_pair<fp8_e4m3fn_t, float>, cast_pair<fp8_e5m2_t, float>,
                   cast_pair<fp8_e8m0_t, float>, cast_pair<fp8_e8m0_t, bfloat16_t>, cast_pair<hifloat8_t, float>,
                   cast_pair<hifloat8_t, half>, cast_pair<fp4x2_e2m1_t, float>, cast_pair<fp4x2_e1m2_t, float>,
                   cast_pair<fp4x2_e2m1_t, bfloat16_t>, cast_pair<fp4x2_e1m2_t, bfloat16_t>, cast_pair<int4b_t, half>,
                   cast_pair<int4b_t, bfloat16_t>, cast_pair<int4b_t, int16_t>, cast_pair<int8_t, half>,
                   cast_pair<int8_t, int16_t>, cast_pair<int8_t, int32_t>, cast_pair<uint8_t, half>,
                   cast_pair<uint8_t, uint16_t>, cast_pair<uint8_t, uint32_t>, cast_pair<int16_t, int4b_t>,
                   cast_pair<int16_t, uint8_t>, cast_pair<int16_t, half>, cast_pair<int16_t, int32_t>,
                   cast_pair<int16_t, uint32_t>, cast_pair<int16_t, float>, cast_pair<uint16_t, uint8_t>,
                   cast_pair<uint16_t, uint32_t>, cast_pair<int32_t, uint8_t>, cast_pair<int32_t, int16_t>,
                   cast_pair<int32_t, uint16_t>, cast_pair<int32_t, half>, cast_pair<int32_t, float>,
                   cast_pair<int32_t, int64_t>, cast_pair<uint32_t, uint8_t>, cast_pair<uint32_t, int16_t>,
                   cast_pair<uint32_t, uint16_t>, cast_pair<int64_t, int32_t>, cast_pair<int64_t, float>,
                   cast_pair<int64_t, double>, cast_pair<double, bfloat16_t>, cast_pair<double, float>,
                   cast_pair<double, int32_t>, cast_pair<double, int64_t>)
                   ? 0
                   : 1;
    } catch (const std::invalid_argument&) {
        return 2;
    } catch (const std::logic_error&) {
        return 3;
    }
}

int allowed(int arch, int from, int to, int mode) {  // arch 0: registers of dav-3510
    const Number source = static_cast<Number>(from), target = static_cast<Number>(to);
    return arch == 0 ? register_cast_allowed(source, target, static_cast<Rounding>(mode))
                     : cast_allowed(static_cast<emulator::Arch>(arch), source, target, static_cast<Rounding>(mode));
}

const char* name(int number) {
    const char* found = "";
    const auto look = [&](auto... names) {
        ((static_cast<int>(names.first) == number ? void(found = names.second) : void()), ...);
    };
#define NAMED(T) std::pair<Number, const char*>(number_of<T>(), name_of<T>())
    look(NAMED(bool), NAMED(int4b_t), NAMED(int8_t), NAMED(uint8_t), NAMED(int16_t), NAMED(uint16_t), NAMED(int32_t),
         NAMED(uint32_t), NAMED(int64_t), NAMED(uint64_t), NAMED(fp4x2_e2m1_t), NAMED(fp4x2_e1m2_t), NAMED(fp8_e4m3fn_t),
         NAMED(fp8_e5m2_t), NAMED(fp8_e8m0_t), NAMED(hifloat8_t), NAMED(half), NAMED(bfloat16_t), NAMED(float),
         NAMED(double));
#undef NAMED
    return found;
}

void calculate_half(char operation, const half* a, const half* b, half* out, int64_t count) {
    calculate(operation, a, b, out, count);
}
void calculate_bfloat16(char operation, const bfloat16_t* a, const bfloat16_t* b, bfloat16_t* out, int64_t count) {
    calculate(operation, a, b, out, count);
}
void scaled(const int32_t* in, uint16_t scale, half* out, int64_t count, int saturate) {
    for (int64_t i = 0; i < count; ++i) out[i] = convert_scaled(in[i], half::from_bits(scale), saturate);
}
}
