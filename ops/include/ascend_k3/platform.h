// What a tiling function is told of the SoC, and what it gives back. Plain C++17 for host and kernel.
#pragma once

#include <cstdint>
#ifndef __NPU_ARCH__
#include <cstdio>
#endif

namespace ascend_k3 {

struct Platform {
    uint32_t arch;                       // 2201 or 3510
    uint32_t cube_cores, vector_cores;   // of the device
    uint32_t ub, l1, l0a, l0b, l0c;      // bytes of a core that a kernel may use
};

/// How a kernel is launched. A block of a mixed kernel is one cube core with its vector cores.
struct Launch {
    uint32_t block_dim;
    uint32_t tiling_bytes;
    uint64_t workspace;                  // bytes
    char refusal[240];                   // why the shape cannot be tiled; empty when it can
};

#ifndef __NPU_ARCH__  // the host's part
/// A refusal, printf-like; returns false so that a tiling function can return it.
template <class... Values>
bool refuse(Launch& launch, const char* format, Values... values) {
    snprintf(launch.refusal, sizeof launch.refusal, format, values...);
    return false;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
constexpr int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

#endif

}  // namespace ascend_k3

#ifndef __NPU_ARCH__
/// Exports `bool Function(const Platform&, const int64_t* sizes, const double* numbers, Tiling&, Launch&)` with a C name.
/// `sizes` and `numbers` are what launch.py lists, in its order.
#define ASCEND_K3_TILING(name, Tiling, Function)                                                                          \
    static_assert(sizeof(Tiling) % 8 == 0, #Tiling ": pad it to 8 bytes, host and kernel have to agree");                 \
    extern "C" inline bool name##_tile(const ascend_k3::Platform* platform, const int64_t* sizes, const double* numbers,  \
                                       void* tiling, ascend_k3::Launch* launch) {                                         \
        *launch = ascend_k3::Launch{};                                                                                    \
        launch->tiling_bytes = sizeof(Tiling);                                                                            \
        Tiling& out = *static_cast<Tiling*>(tiling);                                                                      \
        out = Tiling{};                                                                                                   \
        return Function(*platform, sizes, numbers, out, *launch);                                                         \
    }
#else
#define ASCEND_K3_TILING(name, Tiling, Function) static_assert(sizeof(Tiling) % 8 == 0, #Tiling ": pad it to 8 bytes");
#endif
