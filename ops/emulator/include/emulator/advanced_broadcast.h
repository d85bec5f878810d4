// Broadcast and CumSum. Source: their pages under "advanced API".
#pragma once

#include "advanced_room.h"

namespace AscendC {

namespace emu {

/// An instruction of the whole call: what it reads and writes, and working memory that holds nothing defined afterwards.
inline emulator::Instruction whole_call(const char* call, Site at, int64_t elements, int64_t repeats, const LocalTensor<uint8_t>* room, std::vector<emulator::Access> accesses) {
    emulator::Instruction out = vector_instruction(call, at, elements, repeats, std::move(accesses));
    if (room != nullptr && room->GetSize() > 0) {
        out.accesses.push_back(room->bytes(emulator::Access::Kind::Write, "sharedTmpBuffer", 0, room->GetSize()));
        out.accesses.back().scratch = true;
    }
    return out;
}
inline int64_t repeats_of(int64_t bytes) { return (bytes + ONE_REPEAT_BYTE_SIZE - 1) / ONE_REPEAT_BYTE_SIZE; }

/// dst of shape `to` = src of shape `from`, whose axes of length 1 repeat.
template <class T>
void broadcast(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& src, const std::vector<int64_t>& to, const std::vector<int64_t>& from, const LocalTensor<uint8_t>* room) {
    const auto product_of = [](const std::vector<int64_t>& shape) {
        int64_t all = 1;
        for (const int64_t axis : shape) all *= axis;
        return all;
    };
    for (size_t i = 0; i < to.size(); ++i)
        if (!emulator::require(from[i] > 0 && (from[i] == to[i] || (from[i] == 1 && to[i] > 0)), "argument", at, "Broadcast", "axis " + std::to_string(i) + " of the source has " + std::to_string(from[i]) + " elements and that of dst " + std::to_string(to[i]) + "; they have to be equal, or the source's 1.")) return;
    if (room != nullptr && refused(*room)) return;
    const int64_t size = sizeof(T), count = product_of(to), sources = product_of(from);
    if (!legal_overlap("Broadcast", at, dst, count * size, src, sources * size, "dst and src")) return;
    if (room != nullptr && (!legal_overlap("Broadcast", at, dst, count * size, *room, room->GetSize(), "dst and sharedTmpBuffer") || !legal_overlap("Broadcast", at, src, sources * size, *room, room->GetSize(), "src and sharedTmpBuffer"))) return;
    using Kind = emulator::Access::Kind;
    // Brcb, Copy and, where a row is no multiple of 32 bytes, GatherMask go over dst. Unknown: what each costs.
    const int64_t passes = to.back() * size % 32 ? 3 : 2;
    T* const out = dst.host();
    const T* const in = src.host();
    emulator::issue(whole_call("Broadcast", at, passes * count, passes * repeats_of(count * size), room, {src.access(Kind::Read, "src", 0, sources), dst.access(Kind::Write, "dst", 0, count)}), [=] {
        for (int64_t i = 0; i < count; ++i) {
            int64_t rest = i, index = 0, stride = 1;
            for (size_t axis = to.size(); axis-- > 0;) {
                if (from[axis] != 1) index += rest % to[axis] * stride;
                rest /= to[axis], stride *= from[axis];
            }
            out[i] = in[index];
        }
    });
}

template <class T, int32_t dim, int32_t axis>
void broadcast_axis(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t* dstShape, const uint32_t* srcShape, const LocalTensor<uint8_t>* room) {
    static_assert(dim == 1 || dim == 2, "Broadcast: dim is 1 or 2");
    static_assert(axis == 0 || (axis == 1 && dim == 2), "Broadcast: axis is 0, or 1 of two dimensions");
    static_assert(is_3510 || types_impl::in<T>(types_impl::List<int8_t, uint8_t, half, float>{}), "Broadcast: " EMULATOR_SOC " has int8_t, uint8_t, half and float");
    const std::vector<int64_t> to(dstShape, dstShape + dim), from(srcShape, srcShape + dim);
    for (int i = 0; i < dim; ++i)
        if (!emulator::require(i == axis ? from[static_cast<size_t>(i)] == 1 : from[static_cast<size_t>(i)] == to[static_cast<size_t>(i)], "argument", at, "Broadcast", "axis " + std::to_string(i) + " has " + std::to_string(from[static_cast<size_t>(i)]) + " elements in src and " + std::to_string(to[static_cast<size_t>(i)]) + " in dst; src has 1 on the axis " + std::to_string(axis) + " and as many as dst on the others.")) return;
    if (dim == 2 && axis == 0 && !emulator::require(from[1] * static_cast<int64_t>(sizeof(T)) % 32 == 0, "alignment", at, "Broadcast", "a row has " + std::to_string(from[1] * static_cast<int64_t>(sizeof(T))) + " bytes; along axis 0 it has to be a multiple of 32.")) return;
    broadcast(at, dst, src, to, from, room);
}

}  // namespace emu

/// dst = src repeated along `axis`, on which src has one element.
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
void Broadcast(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dstShape[dim], const uint32_t srcShape[dim], LocalTensor<uint8_t>& sharedTmpBuffer, Site at = Site::here()) {
    emu::broadcast_axis<T, dim, axis>(at, dstLocal, srcLocal, dstShape, srcShape, &sharedTmpBuffer);
}
template <class T, int32_t dim, int32_t axis, bool isReuseSource = false>
void Broadcast(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dstShape[dim], const uint32_t srcShape[dim], Site at = Site::here()) {
    const LocalTensor<uint8_t> room = emu::free_room("Broadcast", at);
    emu::broadcast_axis<T, dim, axis>(at, dstLocal, srcLocal, dstShape, srcShape, &room);
}

#if __NPU_ARCH__ == 3510
/// Filled by GetBroadcastTilingInfo. Unknown: what is in it; here the number of axes.
struct BroadcastTiling {
    uint32_t rank = 0;
};
template <class T, int constRank = -1, uint32_t* constDstShape = nullptr, uint32_t* constSrcShape = nullptr>
void GetBroadcastTilingInfo(uint32_t rank, const uint32_t* dstShape, const uint32_t* srcShape, bool srcInnerPad, BroadcastTiling& tiling, Site at = Site::here()) {
    static_cast<void>(dstShape), static_cast<void>(srcShape);
    if (!emulator::require(rank >= 1 && rank <= 9 && (constRank < 0 || static_cast<uint32_t>(constRank) == rank), "argument", at, "GetBroadcastTilingInfo", "rank is " + std::to_string(rank) + "; it has to be 1 to 9, and constRank when that is given.")) return;
    if (emulator::require(!srcInnerPad, "argument", at, "GetBroadcastTilingInfo", "srcInnerPad is true; only false is supported.")) tiling.rank = rank;
}
/// dst = src repeated along every axis on which src has one element and dst more.
template <class T, int constRank = -1, uint32_t* constDstShape = nullptr, uint32_t* constSrcShape = nullptr, bool constSrcInnerPad = false>
void Broadcast(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t* dstShape, const uint32_t* srcShape, BroadcastTiling* tiling, Site at = Site::here()) {
    if (!emulator::require(tiling != nullptr && tiling->rank > 0, "argument", at, "Broadcast", "the tiling is empty; GetBroadcastTilingInfo fills it.")) return;
    emu::broadcast(at, dst, src, std::vector<int64_t>(dstShape, dstShape + tiling->rank), std::vector<int64_t>(srcShape, srcShape + tiling->rank), nullptr);
}
#endif

// ---- CumSum ----

enum class CumSumAlgorithm { CUMSUM_ALGORITHM_LINEBYLINE = 0, CUMSUM_ALGORITHM_SKLANSKY = 1 };
struct CumSumConfig {
    bool isLastAxis{true};
    bool isReuseSource{false};
    bool outputLastRow{false};
    CumSumAlgorithm algorithm{CumSumAlgorithm::CUMSUM_ALGORITHM_LINEBYLINE};
};
constexpr CumSumConfig defaultCumSumConfig = {};
struct CumSumInfo {
    uint32_t outter{0};
    uint32_t inner{0};
};

namespace emu {

/// Sums up to each of `count` floats, `stride` apart: one after the other, or by halves (Sklansky): at step s those whose
/// bit s is set add the last sum of the half before them.
inline void running_sums(float* values, int64_t count, int64_t stride, CumSumAlgorithm algorithm) {
    if (algorithm == CumSumAlgorithm::CUMSUM_ALGORITHM_LINEBYLINE) {
        for (int64_t i = 1; i < count; ++i) values[i * stride] += values[(i - 1) * stride];
        return;
    }
    for (int64_t half_size = 1; half_size < count; half_size *= 2)
        for (int64_t i = 0; i < count; ++i)
            if (i & half_size) values[i * stride] += values[(i / half_size * half_size - 1) * stride];
}

template <class T, const CumSumConfig& config>
void cumulative_sum(Site at, const LocalTensor<T>& dst, const LocalTensor<T>& last, const LocalTensor<T>& src, const LocalTensor<uint8_t>& room, const CumSumInfo& info) {
    static_assert(half_or_float<T>, "CumSum: types are half and float");
    static_assert(is_3510 || config.algorithm == CumSumAlgorithm::CUMSUM_ALGORITHM_LINEBYLINE, "CumSum: CUMSUM_ALGORITHM_SKLANSKY exists on dav-3510 only");
    const int64_t rows = info.outter, columns = info.inner, count = rows * columns, size = sizeof(T);
    if (refused(room)) return;
    if (!emulator::require(rows > 0 && columns > 0, "argument", at, "CumSum", "outter is " + std::to_string(rows) + " and inner " + std::to_string(columns) + "; both have to be positive.")) return;
    if (!emulator::require(columns * size % 32 == 0, "alignment", at, "CumSum", "inner is " + std::to_string(columns * size) + " bytes; it has to be a multiple of 32.")) return;
    if (!emulator::require(count <= dst.GetSize() && count <= src.GetSize(), "out_of_bounds", at, "CumSum", std::to_string(rows) + " x " + std::to_string(columns) + " elements are more than dstTensor's " + std::to_string(dst.GetSize()) + " or srcTensor's " + std::to_string(src.GetSize()) + ".")) return;
    const int64_t last_count = config.isLastAxis ? rows : columns;
    if (!emulator::require(!config.outputLastRow || last_count <= last.GetSize(), "out_of_bounds", at, "CumSum", "lastRowTensor has " + std::to_string(last.GetSize()) + " elements; it takes " + std::to_string(last_count) + ".")) return;
    using Kind = emulator::Access::Kind;
    std::vector<emulator::Access> accesses{src.access(Kind::Read, "src", 0, count), dst.access(Kind::Write, "dst", 0, count)};
    if (config.outputLastRow) accesses.push_back(last.access(Kind::Write, "lastRow", 0, last_count));
    // Along the last axis the matrix is transposed before and after the sums. Unknown: what that costs.
    const int64_t passes = (config.isLastAxis ? 3 : 1) + (size == 2 ? 2 : 0);
    T *const out = dst.host(), *const end = last.host();
    const T* const in = src.host();
    // "The implementation converts precision": half is summed in float.
    emulator::issue(whole_call("CumSum", at, passes * count, passes * repeats_of(count * size), &room, std::move(accesses)), [=] {
        std::vector<float> sums(in, in + count);
        if (config.isLastAxis)
            for (int64_t row = 0; row < rows; ++row) running_sums(&sums[static_cast<size_t>(row * columns)], columns, 1, config.algorithm);
        else
            for (int64_t column = 0; column < columns; ++column) running_sums(&sums[static_cast<size_t>(column)], rows, columns, config.algorithm);
        for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(sums[static_cast<size_t>(i)]);
        for (int64_t i = 0; config.outputLastRow && i < last_count; ++i) end[i] = out[config.isLastAxis ? (i + 1) * columns - 1 : (rows - 1) * columns + i];
    });
}

}  // namespace emu

/// dst = sums along the last axis, or down the rows, up to each element; outputLastRow: lastRow = the last one of each.
template <class T, const CumSumConfig& config = defaultCumSumConfig>
void CumSum(LocalTensor<T>& dstTensor, LocalTensor<T>& lastRowTensor, const LocalTensor<T>& srcTensor, LocalTensor<uint8_t>& sharedTmpBuffer, const CumSumInfo& cumSumInfo, Site at = Site::here()) {
    emu::cumulative_sum<T, config>(at, dstTensor, lastRowTensor, srcTensor, sharedTmpBuffer, cumSumInfo);
}
template <class T, const CumSumConfig& config = defaultCumSumConfig>
void CumSum(LocalTensor<T>& dstTensor, LocalTensor<T>& lastRowTensor, const LocalTensor<T>& srcTensor, const CumSumInfo& cumSumInfo, Site at = Site::here()) {
    emu::cumulative_sum<T, config>(at, dstTensor, lastRowTensor, srcTensor, emu::free_room("CumSum", at), cumSumInfo);
}

}  // namespace AscendC
