// Calls that work row by row: SoftMax, RmsNorm. Source: their pages under "advanced API" and those of their tilings.
//
// The structs of tiling come from the host in an order of their own; "there is no need to know what is in them". Here the
// shape is taken of them and nothing else. Unknown: the order of the steps within a row, and whether half is calculated in
// float, as it is here. Fractal layouts (NZ) are not provided.
#pragma once

#include "advanced_room.h"

namespace AscendC {

struct SoftMaxTiling {
    uint32_t srcM = 0, srcK = 0, srcSize = 0, outMaxM = 0, outMaxK = 0, outMaxSize = 0, splitM = 0, splitK = 0, splitSize = 0;
    uint32_t reduceM = 0, reduceK = 0, reduceSize = 0, rangeM = 0, tailM = 0, tailSplitSize = 0, tailReduceSize = 0;
};
struct RmsNormTiling {
    uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0;
    float reciprocalOfHLength = 0;
    uint32_t mainBshLength = 0, mainBsLength = 0, mainBsLengthAlign = 0, loopRound = 0, inputTailPos = 0, tailBshLength = 0, tailBsLength = 0;
};
struct SoftMaxShapeInfo {
    uint32_t srcM, srcK, oriSrcM, oriSrcK;
};
enum class SoftmaxMode { SOFTMAX_NORMAL = 0, SOFTMAX_OUTPUT_WITHOUT_BRC = 1 };
struct SoftmaxConfig {
    bool isCheckTiling = true;
    uint32_t oriSrcM = 0, oriSrcK = 0;
    SoftmaxMode mode = SoftmaxMode::SOFTMAX_NORMAL;
};
constexpr SoftmaxConfig SOFTMAX_DEFAULT_CFG = {true, 0, 0, SoftmaxMode::SOFTMAX_NORMAL};

namespace emu {

/// Strides of a row against one block of 32 bytes.
inline BinaryRepeatParams against_a_block() { return {1, 1, 0, 8, 8, 0}; }

/// f(first, lanes, repeats) for a row of floats: whole repeats, and the rest.
template <class F>
void each_repeats(int64_t count, F f) {
    for (int64_t first = 0; first + 64 <= count;) {
        const int64_t repeats = std::min<int64_t>((count - first) / 64, MAX_REPEAT_TIMES);
        f(first, uint64_t{64}, static_cast<uint8_t>(repeats));
        first += repeats * 64;
    }
    if (count % 64) f(count / 64 * 64, static_cast<uint64_t>(count % 64), uint8_t{1});
}

/// A reduction's result is blocks[0]: value = f(it) with zeros behind it, and then all of blocks is value[0].
template <class F>
void spread(const LocalTensor<float>& blocks, const LocalTensor<float>& value, F f, Site at) {
    Duplicate(value, 0.0f, 8, at);  // Brcb reads eight
    then(at);
    f(value, blocks);
    then(at);
    Brcb(blocks, value, 1, BrcbRepeatParams{1, 8}, at);
    then(at);
}

/// What ReduceMax and ReduceSum work in, for `count` floats, and a value of 8.
inline int64_t reduction_room(int64_t count) { return std::max<int64_t>(64, 2 * ((count + 63) / 64) + 8); }

struct RowShape {
    int64_t rows = 0, columns = 0, original_columns = 0;
};

template <class T, class U>
bool legal_rows(const char* call, Site at, const RowShape& shape, const LocalTensor<T>& dst, const LocalTensor<U>& src, const LocalTensor<uint8_t>& room) {
    const int64_t size = sizeof(T), bytes = shape.rows * shape.columns * size;
    return emulator::require(shape.rows > 0 && shape.columns > 0 && shape.original_columns > 0 && shape.original_columns <= shape.columns, "argument", at, call,
                             "the shape is " + std::to_string(shape.rows) + " rows of " + std::to_string(shape.columns) + " elements, " + std::to_string(shape.original_columns) + " of them original; both have to be positive.") &&
           emulator::require(shape.columns * size % 32 == 0, "alignment", at, call, "a row has " + std::to_string(shape.columns * size) + " bytes; it has to be a multiple of 32.") &&
           legal_overlap(call, at, dst, bytes, room, room.GetSize(), "the destination and the working memory") && legal_overlap(call, at, src, bytes, room, room.GetSize(), "the source and the working memory");
}

/// Sum and Max: tensors of one block a row, or none.
template <class T, class S>
void softmax(Site at, const LocalTensor<T>& dst, const LocalTensor<S>* sum, const LocalTensor<S>* max, const LocalTensor<T>& src, const LocalTensor<uint8_t>& room, const RowShape shape) {
    static_assert(half_or_float<T>, "SoftMax: types are half and float");
    if (!legal_rows("SoftMax", at, shape, dst, src, room)) return;
    const int64_t k = shape.columns, a_block = ONE_BLK_SIZE / static_cast<int64_t>(sizeof(S));
    // What a reduction takes, the blocks of its result; a row of floats.
    const Room parts("SoftMax", at, room, {reduction_room(k), 64, std::is_same_v<T, float> ? 0 : k});
    if (!parts.fits()) return;
    const LocalTensor<float> reduced = parts[0], blocks = parts[1];
    const int32_t n = static_cast<int32_t>(k), original = static_cast<int32_t>(shape.original_columns);
    const auto keep = [&](const LocalTensor<S>* to, int64_t row) {
        if (to == nullptr) return;
        if constexpr (std::is_same_v<S, float>) Adds((*to)[row * a_block], blocks, 0.0f, static_cast<int32_t>(a_block), at);
        else {  // 16 of them
            Adds(blocks[8], blocks, 0.0f, 8, at);
            then(at);
            Cast((*to)[row * a_block], blocks, RoundMode::CAST_RINT, static_cast<uint32_t>(a_block), at);
        }
    };
    for (int64_t row = 0; row < shape.rows; ++row) {
        const LocalTensor<float> in = floats_of(src[row * k], parts[2], k, at), out = place_for(dst[row * k], parts[2]);
        ReduceMax(blocks, in, reduced, original, false, at);
        then(at);
        spread(blocks, reduced, [at](const LocalTensor<float>& to, const LocalTensor<float>& from) { Adds(to, from, 0.0f, 1, at); }, at);
        keep(max, row);
        each_repeats(k, [&](int64_t first, uint64_t lanes, uint8_t repeats) { Sub(out[first], in[first], blocks, lanes, repeats, against_a_block(), at); });
        then(at);
        Exp(out, out, n, at);
        then(at);
        ReduceSum(blocks, out, reduced, original, at);
        then(at);
        spread(blocks, reduced, [at](const LocalTensor<float>& to, const LocalTensor<float>& from) { Adds(to, from, 0.0f, 1, at); }, at);
        keep(sum, row);
        each_repeats(k, [&](int64_t first, uint64_t lanes, uint8_t repeats) { Div(out[first], out[first], blocks, lanes, repeats, against_a_block(), at); });
        store_floats(dst[row * k], out, k, at);
    }
    ResetMask();
}

template <class T>
void rms_norm(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& gamma, const LocalTensor<uint8_t>& room, float epsilon, const RmsNormTiling& tiling, bool basic) {
    static_assert(half_or_float<T>, "RmsNorm: types are half and float");
    const int64_t h = tiling.hLength;
    const RowShape shape{static_cast<int64_t>(tiling.bLength) * tiling.sLength, h, tiling.originalHLength};
    if (!legal_rows("RmsNorm", at, shape, dst, src, room) || !legal_overlap("RmsNorm", at, dst, shape.rows * h * static_cast<int64_t>(sizeof(T)), gamma, h * static_cast<int64_t>(sizeof(T)), "dstLocal and gammaLocal")) return;
    if (!emulator::require(!basic || (h % 64 == 0 && h < 2048 && shape.rows % 8 == 0), "argument", at, "RmsNorm", "isBasicBlock is true and there are " + std::to_string(shape.rows) + " rows of " + std::to_string(h) + "; it takes a multiple of 8 rows of a multiple of 64 below 2048.")) return;
    const int64_t cast = std::is_same_v<T, float> ? 0 : h;
    const Room parts("RmsNorm", at, room, {reduction_room(h), 64, h, cast, cast});
    if (!parts.fits()) return;
    const LocalTensor<float> reduced = parts[0], blocks = parts[1], squares = parts[2], scale = floats_of(gamma, parts[4], h, at);
    const int32_t n = static_cast<int32_t>(h);
    for (int64_t row = 0; row < shape.rows; ++row) {
        const LocalTensor<float> in = floats_of(src[row * h], parts[3], h, at), out = place_for(dst[row * h], parts[3]);
        Mul(squares, in, in, n, at);
        then(at);
        ReduceSum(blocks, squares, reduced, static_cast<int32_t>(shape.original_columns), at);
        then(at);
        const auto root_of_mean = [&](const LocalTensor<float>& to, const LocalTensor<float>& from) {
            Muls(to, from, 1.0f / static_cast<float>(shape.original_columns), 1, at);
            then(at);
            Adds(to, to, epsilon, 1, at);
            then(at);
            Sqrt(to, to, 1, at);
        };
        spread(blocks, reduced, root_of_mean, at);
        each_repeats(h, [&](int64_t first, uint64_t lanes, uint8_t repeats) { Div(out[first], in[first], blocks, lanes, repeats, against_a_block(), at); });
        then(at);
        Mul(out, out, scale, n, at);
        store_floats(dst[row * h], out, h, at);
    }
}

template <const SoftmaxConfig& config>
RowShape softmax_shape(const SoftMaxTiling& tiling, const SoftMaxShapeInfo& info) {
    static_assert(config.mode == SoftmaxMode::SOFTMAX_NORMAL, "SoftMax: config.mode is reserved");
    static_assert(is_2201 || (config.oriSrcM == 0 && config.oriSrcK == 0), "SoftMax: dav-3510 takes the default config alone");
    if (config.oriSrcK) {
        const int64_t columns = info.srcK ? info.srcK : config.oriSrcK;
        return {config.oriSrcM, columns, config.oriSrcK};
    }
    if (info.srcM == 0 && info.srcK == 0) return {tiling.srcM, tiling.srcK, tiling.srcK};
    return {info.srcM, info.srcK, info.oriSrcK};
}

}  // namespace emu

/// max = the largest of a row, sum = the sum of exp(src - max), dst = exp(src - max) / sum; max and sum fill a block of 32
/// bytes a row. Rows are m x n of the tiling or of softmaxShapeInfo; columns beyond oriSrcK are no part of max and sum.
#define EMULATOR_SOFTMAX(T, S, room)                                                                                                             \
    static_assert(!isDataFormatNZ, "SoftMax: NZ is not provided by the emulator");                                                               \
    emu::softmax<T, S>(at, dstTensor, &sumTensor, &maxTensor, srcTensor, room, emu::softmax_shape<config>(tiling, softmaxShapeInfo));
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& sumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site at = Site::here()) {
    EMULATOR_SOFTMAX(T, T, emu::free_room("SoftMax", at))
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<half>& dstTensor, const LocalTensor<float>& sumTensor, const LocalTensor<float>& maxTensor, const LocalTensor<half>& srcTensor, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site at = Site::here()) {
    EMULATOR_SOFTMAX(half, float, emu::free_room("SoftMax", at))
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& sumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
             const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site at = Site::here()) {
    EMULATOR_SOFTMAX(T, T, sharedTmpBuffer)
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<half>& dstTensor, const LocalTensor<float>& sumTensor, const LocalTensor<float>& maxTensor, const LocalTensor<half>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site at = Site::here()) {
    EMULATOR_SOFTMAX(half, float, sharedTmpBuffer)
}
#undef EMULATOR_SOFTMAX
template <class T, bool isReuseSource = false, bool isBasicBlock = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site at = Site::here()) {
    emu::softmax<T, T>(at, dstTensor, nullptr, nullptr, srcTensor, emu::free_room("SoftMax", at), emu::softmax_shape<config>(tiling, softmaxShapeInfo));
}
template <class T, bool isReuseSource = false, bool isBasicBlock = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site at = Site::here()) {
    emu::softmax<T, T>(at, dstTensor, nullptr, nullptr, srcTensor, sharedTmpBuffer, emu::softmax_shape<config>(tiling, softmaxShapeInfo));
}

/// dst = src / sqrt(mean of src^2 + epsilon) * gamma, over rows of [B, S, H]. The mean is over the original H.
template <class T, bool isBasicBlock = false>
void RmsNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>& gammaLocal, const LocalTensor<uint8_t>& sharedTmpBuffer, const T epsilon,
             const RmsNormTiling& tiling, Site at = Site::here()) {
    emu::rms_norm(at, dstLocal, srcLocal, gammaLocal, sharedTmpBuffer, static_cast<float>(epsilon), tiling, isBasicBlock);
}
template <class T, bool isBasicBlock = false>
void RmsNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>& gammaLocal, const T epsilon, const RmsNormTiling& tiling, Site at = Site::here()) {
    emu::rms_norm(at, dstLocal, srcLocal, gammaLocal, emu::free_room("RmsNorm", at), static_cast<float>(epsilon), tiling, isBasicBlock);
}

}  // namespace AscendC
