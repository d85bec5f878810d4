// What every kernel source names without including more: qualifiers, core types, positions, pipes, events, system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "machine.h"
#include "numbers.h"

#ifndef __NPU_ARCH__
#error "compile kernels with emulator.build: __NPU_ARCH__ (2201 or 3510) is not defined"
#endif
#if __NPU_ARCH__ != 2201 && __NPU_ARCH__ != 3510
#error "__NPU_ARCH__ has to be 2201 (Atlas A2, A3) or 3510 (Ascend 950)"
#endif

#define __aicore__
#define __global__
#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __fbuf__
#define __biasbuf__
#define __simd_vf__
#define __simd_callee__
#define __inout_pipe__(pipe)
#define __in_pipe__(pipe)
#define __out_pipe__(pipe)
#define __sync_alias__
#define __sync_noalias__
#define __force_inline__ inline
#define GM_ADDR __gm__ uint8_t*
// A kernel that says its type in its declaration stands in a section of that type, by which the launch finds it.
#define __mix__(cubes, vectors) EMULATOR_MIX(cubes, vectors)
#define EMULATOR_MIX(cubes, vectors) __attribute__((section("asc_mix_" #cubes "_" #vectors)))
#define __vector__ __attribute__((section("asc_vector")))
#define __cube__ __attribute__((section("asc_cube")))

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_ALL, PIPE_FIX };
enum event_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

enum KernelMetaType {
    KERNEL_TYPE_AIV_ONLY = 0,
    KERNEL_TYPE_AIC_ONLY = 1,
    KERNEL_TYPE_MIX_AIC_1_1 = 2,
    KERNEL_TYPE_MIX_AIC_1_2 = 3,
    KERNEL_TYPE_MIX_AIV_1_0 = 4,
    KERNEL_TYPE_MIX_AIC_1_0 = 5
};

/// The kernel type is read from the object file, as the device's loader does.
#define KERNEL_TASK_TYPE_DEFAULT(type) \
    asm volatile(".pushsection asc_kernel_type,\"a\"\n .int %c0\n .popsection" ::"i"(static_cast<int>(type)))
#define KERNEL_TASK_TYPE(key, type) KERNEL_TASK_TYPE_DEFAULT(type)

/// Instructions leave a mark in the object file, from which the type of a kernel that declares none is taken.
#define EMULATOR_USES(section) asm volatile(".pushsection " section ",\"a\"\n .byte 1\n .popsection")

namespace AscendC {

using emulator::Site;

enum class CoreKind : int { AIC = 1, AIV = 2 };
constexpr int AIC = 1, AIV = 2, MIX = 0;
#if defined(ASC_VIEW_AIC)
constexpr int g_coreType = AIC;
#elif defined(ASC_VIEW_AIV)
constexpr int g_coreType = AIV;
#else
#error "compile kernels with emulator.build: the view (ASC_VIEW_AIC or ASC_VIEW_AIV) is not defined"
#endif
#define ASCEND_IS_AIC constexpr(AscendC::g_coreType == AscendC::AIC)
#define ASCEND_IS_AIV constexpr(AscendC::g_coreType == AscendC::AIV)
#define ASCEND_IS_NOT_AIC constexpr(AscendC::g_coreType != AscendC::AIC)
#define ASCEND_IS_NOT_AIV constexpr(AscendC::g_coreType != AscendC::AIV)

constexpr bool is_2201 = __NPU_ARCH__ == 2201;
constexpr bool is_3510 = __NPU_ARCH__ == 3510;

constexpr int32_t ONE_BLK_SIZE = 32, ONE_REPEAT_BYTE_SIZE = 256, MAX_REPEAT_TIMES = 255;
constexpr int32_t DEFAULT_BLK_NUM = 8, DEFAULT_BLK_STRIDE = 1, DEFAULT_REPEAT_STRIDE = 8, HALF_DEFAULT_REPEAT_STRIDE = 4;
constexpr uint64_t MASK_PLACEHOLDER = 0;

enum class TPosition : uint8_t {
    GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC, LCM = VECCALC, TSCM, C2PIPE2GM, C2PIPE2LOCAL, MAX
};
using QuePosition = TPosition;
using TEventID = int8_t;

enum class Hardware : uint8_t { GM, UB, L1, L0A, L0B, L0C, BIAS, FIXBUF, MAX };

namespace emu {

constexpr emulator::Space space_of(TPosition position) {
    switch (position) {
        case TPosition::A1: case TPosition::B1: case TPosition::C1: case TPosition::TSCM: return emulator::Space::L1;
        case TPosition::A2: return emulator::Space::L0A;
        case TPosition::B2: return emulator::Space::L0B;
        case TPosition::C2: return emulator::Space::BT;
        case TPosition::CO1: return emulator::Space::L0C;
        case TPosition::C2PIPE2GM: case TPosition::C2PIPE2LOCAL: return emulator::Space::FB;
        case TPosition::GM: return emulator::Space::GM;
        default: return emulator::Space::UB;
    }
}

constexpr emulator::Pipe pipe_of(pipe_t pipe) {
    switch (pipe) {
        case PIPE_V: return emulator::Pipe::V;
        case PIPE_M: return emulator::Pipe::M;
        case PIPE_MTE1: return emulator::Pipe::MTE1;
        case PIPE_MTE2: return emulator::Pipe::MTE2;
        case PIPE_MTE3: return emulator::Pipe::MTE3;
        case PIPE_FIX: return emulator::Pipe::FIX;
        default: return emulator::Pipe::S;
    }
}

}  // namespace emu

// from, to: the flag is set behind the work of the first and waited for by the second.
#define EMULATOR_EVENTS(X) \
    X(MTE2, MTE1) X(MTE1, MTE2) X(MTE1, M) X(M, MTE1) X(MTE2, V) X(V, MTE2) X(MTE3, V) X(V, MTE3) X(M, V) X(V, M) X(V, V) \
    X(MTE3, MTE1) X(MTE1, MTE3) X(MTE1, V) X(V, MTE1) X(MTE2, M) X(M, MTE2) X(M, FIX) X(FIX, M) X(MTE3, MTE2) X(MTE2, MTE3) \
    X(S, V) X(V, S) X(S, MTE2) X(MTE2, S) X(S, MTE3) X(MTE3, S) X(S, M) X(M, S) X(S, MTE1) X(MTE1, S) X(S, FIX) X(FIX, S) \
    X(MTE2, FIX) X(FIX, MTE2) X(FIX, MTE3) X(MTE3, FIX) X(MTE1, FIX) X(FIX, MTE1) X(FIX, V) X(V, FIX) X(M, MTE3) X(MTE3, M)

enum class HardEvent : uint8_t {
#define EMULATOR_EVENT(a, b) a##_##b,
    EMULATOR_EVENTS(EMULATOR_EVENT)
#undef EMULATOR_EVENT
    MAX
};

namespace emu {

struct EventPipes {
    emulator::Pipe from, to;
};

constexpr EventPipes pipes_of(HardEvent event) {
    switch (event) {
#define EMULATOR_EVENT(a, b) \
    case HardEvent::a##_##b: return {emulator::Pipe::a, emulator::Pipe::b};
        EMULATOR_EVENTS(EMULATOR_EVENT)
#undef EMULATOR_EVENT
        default: return {emulator::Pipe::S, emulator::Pipe::S};
    }
}

}  // namespace emu

inline int64_t GetBlockIdx() { return emulator::core().block_index; }
inline int64_t GetBlockNum() { return emulator::core().block_count; }
inline int64_t GetSubBlockIdx() { return emulator::core().sub; }
inline int64_t GetSubBlockNum() { return emulator::core().role == emulator::Role::AIC ? 1 : emulator::core().vector_cores_a_block; }
/// Cores of the caller's kind to one block.
inline int64_t GetTaskRatio() { return GetSubBlockNum(); }

/// The user's part of the workspace that the kernel was given; no system part comes before it here.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR) {}
inline GM_ADDR GetSysWorkSpacePtr() { return nullptr; }

}  // namespace AscendC

/// Tiling data is copied from global memory by the scalar.
#define REGISTER_TILING_DEFAULT(type) using EmulatorTilingDefault = type
#define GET_TILING_DATA_WITH_STRUCT(type, name, address) \
    type name = *reinterpret_cast<const __gm__ type*>(address); \
    emulator::scalar_work((sizeof(type) + 7) / 8)
#define GET_TILING_DATA(name, address) GET_TILING_DATA_WITH_STRUCT(EmulatorTilingDefault, name, address)
#define TILING_KEY_IS(key) ((key) == 0)
