// Sigmoid and SwiGLU. Source: their pages under "advanced API, activation functions". Unknown: the order of their steps, and
// whether half is calculated in float, as it is here.
#pragma once

#include "advanced_room.h"

namespace AscendC {

namespace emu {

/// to = 1 + exp(-scale * from).
inline void one_and_exponential(const LocalTensor<float>& to, const LocalTensor<float>& from, float scale, int32_t count, Site at) {
    Muls(to, from, -scale, count, at);
    then(at);
    Exp(to, to, count, at);
    then(at);
    Adds(to, to, 1.0f, count, at);
    then(at);
}

template <class T>
void sigmoid(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& room, int64_t count) {
    static_assert(half_or_float<T>, "Sigmoid: types are half and float");
    constexpr int64_t size = sizeof(T);
    if (count <= 0 || refused(room) || !legal_overlap("Sigmoid", at, dst, count * size, src, count * size, "dstTensor and srcTensor") || !legal_overlap("Sigmoid", at, dst, count * size, room, room.GetSize(), "dstTensor and sharedTmpBuffer") || !legal_overlap("Sigmoid", at, src, count * size, room, room.GetSize(), "srcTensor and sharedTmpBuffer")) return;
    const int64_t step = Room::share(room, 2, count);
    const Room parts("Sigmoid", at, room, {step, step});
    if (!parts.fits()) return;
    Duplicate(parts[0], 1.0f, static_cast<int32_t>(std::min(step, count)), at);
    for (int64_t first = 0; first < count; first += step) {
        const int32_t n = static_cast<int32_t>(std::min(step, count - first));
        const LocalTensor<float> exponential = parts[1];
        one_and_exponential(exponential, floats_of(src[first], exponential, n, at), 1.0f, n, at);
        const LocalTensor<float> out = place_for(dst[first], exponential);
        Div(out, parts[0], exponential, n, at);
        store_floats(dst[first], out, n, at);
    }
}

template <class T>
void swiglu(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, float beta, const LocalTensor<uint8_t>& room, int64_t count) {
    static_assert(half_or_float<T>, "SwiGLU: types are half and float");
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (count <= 0 || refused(room) || !legal_overlap("SwiGLU", at, dst, bytes, src0, bytes, "dstTensor and srcTensor0") || !legal_overlap("SwiGLU", at, dst, bytes, src1, bytes, "dstTensor and srcTensor1")) return;
    if (!legal_overlap("SwiGLU", at, dst, bytes, room, room.GetSize(), "dstTensor and sharedTmpBuffer") || !legal_overlap("SwiGLU", at, src0, bytes, room, room.GetSize(), "srcTensor0 and sharedTmpBuffer") || !legal_overlap("SwiGLU", at, src1, bytes, room, room.GetSize(), "srcTensor1 and sharedTmpBuffer")) return;
    const int64_t step = Room::share(room, std::is_same_v<T, float> ? 1 : 3, count), cast = std::is_same_v<T, float> ? 0 : step;
    const Room parts("SwiGLU", at, room, {step, cast, cast});
    if (!parts.fits()) return;
    for (int64_t first = 0; first < count; first += step) {
        const int32_t n = static_cast<int32_t>(std::min(step, count - first));
        const LocalTensor<float> gate = floats_of(src1[first], parts[1], n, at), exponential = parts[0];
        one_and_exponential(exponential, gate, beta, n, at);
        Div(exponential, gate, exponential, n, at);
        then(at);
        const LocalTensor<float> value = floats_of(src0[first], parts[2], n, at), out = place_for(dst[first], exponential);
        Mul(out, value, exponential, n, at);
        store_floats(dst[first], out, n, at);
    }
}

}  // namespace emu

/// dst = 1 / (1 + exp(-src)).
template <class T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount, Site at = Site::here()) {
    emu::sigmoid(at, dstTensor, srcTensor, sharedTmpBuffer, calCount);
}
template <class T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, Site at = Site::here()) {
    emu::sigmoid(at, dstTensor, srcTensor, sharedTmpBuffer, srcTensor.GetSize());
}
template <class T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const uint32_t calCount, Site at = Site::here()) {
    emu::sigmoid(at, dstTensor, srcTensor, emu::free_room("Sigmoid", at), calCount);
}
template <class T, bool isReuseSource = false>
void Sigmoid(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, Site at = Site::here()) {
    emu::sigmoid(at, dstTensor, srcTensor, emu::free_room("Sigmoid", at), srcTensor.GetSize());
}

/// dst = src0 * src1 / (1 + exp(-scalarValue * src1)).
template <class T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1, const float& scalarValue, const LocalTensor<uint8_t>& sharedTmpBuffer,
            const uint32_t calCount, Site at = Site::here()) {
    emu::swiglu(at, dstTensor, srcTensor0, srcTensor1, scalarValue, sharedTmpBuffer, calCount);
}
template <class T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1, const float& scalarValue, const LocalTensor<uint8_t>& sharedTmpBuffer,
            Site at = Site::here()) {
    emu::swiglu(at, dstTensor, srcTensor0, srcTensor1, scalarValue, sharedTmpBuffer, srcTensor0.GetSize());
}
template <class T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1, const float& scalarValue, const uint32_t calCount, Site at = Site::here()) {
    emu::swiglu(at, dstTensor, srcTensor0, srcTensor1, scalarValue, emu::free_room("SwiGLU", at), calCount);
}
template <class T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, LocalTensor<T>& srcTensor0, LocalTensor<T>& srcTensor1, const float& scalarValue, Site at = Site::here()) {
    emu::swiglu(at, dstTensor, srcTensor0, srcTensor1, scalarValue, emu::free_room("SwiGLU", at), srcTensor0.GetSize());
}

}  // namespace AscendC
