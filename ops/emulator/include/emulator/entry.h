// The way from the host into a kernel: included behind the kernel's source by the file that emulator.build compiles.
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include "machine.h"

extern "C" {
extern const int __start_asc_kernel_type[] __attribute__((weak, visibility("hidden")));
extern const int __stop_asc_kernel_type[] __attribute__((weak, visibility("hidden")));
#define EMULATOR_SECTION(name)                                                        \
    extern const char __start_##name[] __attribute__((weak, visibility("hidden"))); \
    extern const char __stop_##name[] __attribute__((weak, visibility("hidden")));
EMULATOR_SECTION(asc_vector)
EMULATOR_SECTION(asc_cube)
EMULATOR_SECTION(asc_mix_0_1)
EMULATOR_SECTION(asc_mix_1_0)
EMULATOR_SECTION(asc_mix_1_1)
EMULATOR_SECTION(asc_mix_1_2)
#undef EMULATOR_SECTION
extern const char __start_asc_uses_vector[] __attribute__((weak, visibility("hidden")));
extern const char __start_asc_uses_cube[] __attribute__((weak, visibility("hidden")));
}

namespace emulator {

template <class T>
std::string parameter() {
    if constexpr (std::is_pointer_v<T>) return "pointer";
    else if constexpr (std::is_same_v<T, bool>) return "bool";
    else if constexpr (std::is_floating_point_v<T>) return "float" + std::to_string(8 * sizeof(T));
    else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) return (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
    else return "struct" + std::to_string(sizeof(T));
}

template <class T>
T argument(void* const pointer) {
    static_assert(std::is_trivially_copyable_v<T>, "a kernel's parameter has to be a pointer, a number or a plain struct");
    // A struct by value comes as the address of its bytes, everything else as its bits.
    if constexpr (std::is_pointer_v<T> || std::is_arithmetic_v<T> || std::is_enum_v<T>) {
        T value;
        std::memcpy(&value, pointer, sizeof(T));
        return value;
    } else {
        const void* bytes;
        std::memcpy(&bytes, pointer, sizeof bytes);
        T value;
        std::memcpy(static_cast<void*>(&value), bytes, sizeof(T));
        return value;
    }
}

template <class... T, size_t... i>
void call(void (*kernel)(T...), void* const* arguments, std::index_sequence<i...>) {
    kernel(argument<T>(arguments[i])...);
}

template <class... T>
void enter(void (*kernel)(T...), void* const* arguments) {
    call(kernel, arguments, std::index_sequence_for<T...>{});
}

template <class... T>
std::string signature(void (*)(T...)) {
    std::string out;
    ((out += (out.empty() ? "" : ",") + parameter<T>()), ...);
    return out;
}

/// The type that a kernel's qualifier names, by the section it stands in; -1 without one.
inline int qualified_type(const void* kernel) {
    const struct {
        const char *begin, *end;
        int type;
    } sections[] = {{__start_asc_vector, __stop_asc_vector, 0},   {__start_asc_cube, __stop_asc_cube, 1},
                    {__start_asc_mix_1_1, __stop_asc_mix_1_1, 2}, {__start_asc_mix_1_2, __stop_asc_mix_1_2, 3},
                    {__start_asc_mix_0_1, __stop_asc_mix_0_1, 4}, {__start_asc_mix_1_0, __stop_asc_mix_1_0, 5}};
    for (const auto& section : sections)
        if (section.begin && kernel >= section.begin && kernel < section.end) return section.type;
    return -1;
}

/// The type that KERNEL_TASK_TYPE_DEFAULT declares, -1 without it; -2: the kernels of the file declare different ones.
inline int declared_type() {
    if (!__start_asc_kernel_type) return -1;
    for (const int* type = __start_asc_kernel_type; type < __stop_asc_kernel_type; ++type)
        if (*type != __start_asc_kernel_type[0]) return -2;
    return __start_asc_kernel_type[0];
}

}  // namespace emulator

#define EMULATOR_ENTRY(kernel)                                                                                        \
    extern "C" __attribute__((visibility("default"))) void emulator_entry(void* const* arguments) {                   \
        emulator::enter(&kernel, arguments);                                                                          \
    }                                                                                                                 \
    extern "C" __attribute__((visibility("default"))) const char* emulator_signature() {                              \
        static const std::string text = emulator::signature(&kernel);                                                 \
        return text.c_str();                                                                                          \
    }                                                                                                                 \
    extern "C" __attribute__((visibility("default"))) int emulator_kernel_type() {                                    \
        const int qualified = emulator::qualified_type(reinterpret_cast<const void*>(&kernel));                      \
        return qualified >= 0 ? qualified : emulator::declared_type();                                                \
    }                                                                                                                 \
    extern "C" __attribute__((visibility("default"))) int emulator_uses() {                                           \
        return (__start_asc_uses_vector ? 1 : 0) | (__start_asc_uses_cube ? 2 : 0);                                   \
    }
