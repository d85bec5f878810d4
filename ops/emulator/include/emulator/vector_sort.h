// Sorting: runs of (score, index) pairs of 8 bytes, in falling order of the score. Pages as in vector_types.h.
//
// A pair holds the score in its first bytes and the index, uint32_t, in the last four; bytes 2 and 3 of a half's pair are
// reserved (here 0; unknown). Equal scores keep their order, and so do +0 and -0. NaN comes first: unknown.
#pragma once

#include <array>

#include "vector_reduce.h"

namespace AscendC {

struct MrgSort4Info {
    MrgSort4Info() = default;
    MrgSort4Info(const uint16_t lengths[4], const bool ifExhaustedSuspension, const uint16_t validBit, const uint16_t repeatTimes)
        : ifExhaustedSuspension(ifExhaustedSuspension), validBit(validBit), repeatTimes(static_cast<uint8_t>(repeatTimes)) {
        std::copy_n(lengths, 4, elementLengths);
    }
    uint16_t elementLengths[4] = {0};
    bool ifExhaustedSuspension = false;
    uint16_t validBit = 0;
    uint8_t repeatTimes = 1;
};

template <class T>
struct MrgSortSrcList {
    MrgSortSrcList() = default;
    MrgSortSrcList(const LocalTensor<T>& src1, const LocalTensor<T>& src2, const LocalTensor<T>& src3, const LocalTensor<T>& src4)
        : src1(src1), src2(src2), src3(src3), src4(src4) {}
    LocalTensor<T> src1, src2, src3, src4;
};

EMULATOR_TYPES(Sort, (half, float), (half, float), ())

namespace sort_impl {

constexpr int64_t PAIR = 8;

/// Larger for what comes earlier.
template <class T>
uint32_t key(const uint8_t* score) {
    T value;
    std::memcpy(&value, score, sizeof(T));
    const float number = static_cast<float>(value);
    return static_cast<uint32_t>(reduce_impl::rank<ReduceType::MAX>(number == 0 ? 0.0f : number)) ^ 0x80000000u;
}

/// dst = the `count` pairs of score[i] and index[i], sorted.
template <class T>
void sort_run(const uint8_t* score, const uint8_t* index, int64_t count, uint8_t* dst) {
    std::vector<uint64_t> order(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = static_cast<uint64_t>(~key<T>(score + i * static_cast<int64_t>(sizeof(T)))) << 32 | static_cast<uint64_t>(i);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < count; ++i) {
        const int64_t from = static_cast<int64_t>(order[static_cast<size_t>(i)] & 0xffffffffu);
        std::memset(dst + i * PAIR, 0, 4);
        std::memcpy(dst + i * PAIR, score + from * static_cast<int64_t>(sizeof(T)), sizeof(T));
        std::memcpy(dst + i * PAIR + 4, index + from * 4, 4);
    }
}

using Four = std::array<int64_t, 4>;

/// Merges the first `queues` queues into dst; `suspend`: until one of them is used up. Pairs taken of each.
template <class T>
Four merge(const std::array<const uint8_t*, 4>& source, const Four& lengths, int queues, bool suspend, uint8_t* dst) {
    Four taken{};
    for (;;) {
        int best = -1;
        uint32_t best_key = 0;
        for (int i = 0; i < queues; ++i) {
            if (taken[i] == lengths[i]) continue;
            const uint32_t here = key<T>(source[i] + taken[i] * PAIR);
            if (best < 0 || here > best_key) best = i, best_key = here;
        }
        if (best < 0) return taken;
        std::memcpy(dst, source[best] + taken[best] * PAIR, PAIR);
        dst += PAIR;
        if (++taken[best] == lengths[best] && suspend) return taken;
    }
}

template <class T>
void merge_queues(Site at, const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params) {
    EMULATOR_USES("asc_uses_vector");
    using emulator::Access;
    Sort_types<T, false>();
    const char* const call = "MrgSort";
    const auto need = [&](bool allowed, const std::string& message) { return emulator::require(allowed, "argument", at, call, message); };
    if (!need(params.validBit == 3 || params.validBit == 7 || params.validBit == 15, "validBit is " + std::to_string(params.validBit) + "; it has to be 3, 7 or 15 for the first two, three or four queues.")) return;
    const int queues = params.validBit == 3 ? 2 : params.validBit == 7 ? 3 : 4;
    const std::array<LocalTensor<T>, 4> tensors{src.src1, src.src2, src.src3, src.src4};
    Four lengths{};
    std::array<const uint8_t*, 4> sources{};
    int64_t total = 0;
    bool in_a_row = queues == 4;
    for (int i = 0; i < queues; ++i) {
        lengths[i] = params.elementLengths[i];
        if (!need(lengths[i] <= 4095, "elementLengths[" + std::to_string(i) + "] is " + std::to_string(lengths[i]) + "; it has to be 0 to 4095.")) return;
        if (!need(lengths[i] > 0 || !params.ifExhaustedSuspension, "elementLengths[" + std::to_string(i) + "] is 0; a merge that stops when a queue is used up does nothing then.")) return;
        sources[i] = emulator::core().local(tensors[i].space(), tensors[i].address());
        in_a_row = in_a_row && lengths[i] == lengths[0] && tensors[i].address() == tensors[0].address() + total * PAIR;
        total += lengths[i];
    }
    const int64_t repeats = params.repeatTimes;
    if (!need(repeats > 0, "repeatTimes is 0; it has to be 1 to 255.")) return;
    if (!need(total > 0, "every queue is empty.")) return;
    if (!need(repeats == 1 || (in_a_row && !params.ifExhaustedSuspension), "repeatTimes is " + std::to_string(repeats) + "; more than 1 needs validBit 15, four queues of one length, one behind the other, and no ifExhaustedSuspension.")) return;
    emulator::Instruction what;
    what.pipe = emulator::Pipe::V, what.name = call, what.at = at;
    what.cost = emulator::Cost::vector(call, static_cast<uint64_t>(total * repeats), static_cast<uint64_t>((total * repeats * PAIR + 255) / 256));
    static const char* const names[] = {"src1", "src2", "src3", "src4"};
    const int64_t bytes = total * repeats * PAIR;
    for (int i = 0; i < queues; ++i) {
        if (lengths[i] == 0) continue;
        Access from = tensors[i].bytes(Access::Kind::Read, names[i], 0, lengths[i] * PAIR, 8);
        from.runs = repeats, from.pitch = total * PAIR;
        const int64_t reach = from.begin + from.pitch * (repeats - 1) + from.bytes;
        if (!need(reach <= dst.address() || dst.address() + bytes <= from.begin, std::string(names[i]) + " and dst overlap at byte " + std::to_string(std::max(from.begin, dst.address())) + " of UB.")) return;
        what.accesses.push_back(from);
    }
    const bool suspend = params.ifExhaustedSuspension;
    what.accesses.push_back(dst.bytes(Access::Kind::Write, "dst", 0, suspend ? 0 : bytes));  // with suspend it tells later how many
    uint8_t* const out = emulator::core().local(dst.space(), dst.address());
    emulator::issue(std::move(what), [=] {
        std::vector<uint8_t> merged(static_cast<size_t>(total * PAIR));
        Four taken{};
        for (int64_t repeat = 0; repeat < repeats; ++repeat) {
            std::array<const uint8_t*, 4> here = sources;
            for (int i = 0; i < queues; ++i) here[i] += repeat * total * PAIR;
            taken = merge<T>(here, lengths, queues, suspend, merged.data());
            const int64_t written = (taken[0] + taken[1] + taken[2] + taken[3]) * PAIR;
            if (suspend && !emulator::touch(dst.bytes(Access::Kind::Write, "dst", 0, written))) return;
            std::memcpy(out + repeat * total * PAIR, merged.data(), static_cast<size_t>(written));
        }
        uint64_t result = suspend ? 0 : 1ull << 63;
        for (int i = 0; i < 4; ++i) result |= static_cast<uint64_t>(taken[i]) << (16 * i);
        emulator::core().control.results[reduce_impl::RESULT_MERGED] = result;
    });
}

template <class T>
emulator::Instruction run_instruction(const char* call, Site at, int64_t elements) {
    emulator::Instruction out;
    out.pipe = emulator::Pipe::V, out.name = call, out.at = at;
    out.cost = emulator::Cost::vector(call, static_cast<uint64_t>(elements), static_cast<uint64_t>((elements * PAIR + 255) / 256));
    return out;
}

inline bool legal_repeats(const char* call, Site at, int64_t repeats) {
    return emulator::require(repeats >= 1 && repeats <= 255, "argument", at, call, "repeatTime is " + std::to_string(repeats) + "; it has to be 1 to 255.");
}

}  // namespace sort_impl

/// Each 32 scores of src0 and their indices of src1 as sorted pairs. Addresses: multiples of 32 bytes (the page also has 64 or
/// 128 for src0, 128 for src1 and 256 for dst, taken as the size of a repeat). Source: [Sort32].
template <class T>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& src1, const int32_t repeatTime, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    Sort_types<T, false>();
    using Kind = emulator::Access::Kind;
    if (!sort_impl::legal_repeats("Sort32", at, repeatTime)) return;
    const int64_t count = 32ll * repeatTime;
    emulator::Instruction what = sort_impl::run_instruction<T>("Sort32", at, count);
    what.accesses = {src0.access(Kind::Read, "src0", 0, count), src1.access(Kind::Read, "src1", 0, count), dst.bytes(Kind::Write, "dst", 0, count * sort_impl::PAIR)};
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const scores = core.local(src0.space(), src0.address());
    const uint8_t* const indices = core.local(src1.space(), src1.address());
    emulator::issue(std::move(what), [=] {
        uint8_t run[32 * sort_impl::PAIR];
        for (int64_t first = 0; first < count; first += 32) {
            sort_impl::sort_run<T>(scores + first * static_cast<int64_t>(sizeof(T)), indices + first * 4, 32, run);
            std::memcpy(out + first * sort_impl::PAIR, run, sizeof run);
        }
    });
}

/// Merges up to four sorted queues of pairs; of equal scores the earlier queue's comes first. ifExhaustedSuspension: it stops
/// when a queue is used up. Source: [MrgSort].
template <class T>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& params, Site at = Site::here()) {
    sort_impl::merge_queues(at, dst, src, params);
}

/// How many pairs the last MrgSort took of each queue before it stopped. The scalar waits for the vector pipe: unknown
/// whether the call itself does, its example has no wait. Source: [GetMrgSortResult].
inline void GetMrgSortResult(uint16_t& mrgSortList1, uint16_t& mrgSortList2, uint16_t& mrgSortList3, uint16_t& mrgSortList4, Site at = Site::here()) {
    emulator::wait_pipe(emulator::Pipe::V, "GetMrgSortResult", at);
    const uint64_t result = emulator::core().control.results[reduce_impl::RESULT_MERGED];
    emulator::require(result >> 63 == 0, "argument", at, "GetMrgSortResult", "the MrgSort before it does not stop at the end of a queue; set its ifExhaustedSuspension.");
    mrgSortList1 = result & 0x7fff, mrgSortList2 = result >> 16 & 0x7fff, mrgSortList3 = result >> 32 & 0x7fff, mrgSortList4 = result >> 48 & 0x7fff;
}

/// MrgSort; isExhaustedSuspension: sortedNum is how many pairs were taken of each queue. Source: [MrgSort, advanced API].
template <class T, bool isExhaustedSuspension = false>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& sortList, const uint16_t elementCountList[4], uint32_t sortedNum[4], uint16_t validBit, const int32_t repeatTime,
             Site at = Site::here()) {
    if (!sort_impl::legal_repeats("MrgSort", at, repeatTime)) return;
    sort_impl::merge_queues(at, dst, sortList, MrgSort4Info(elementCountList, isExhaustedSuspension, validBit, static_cast<uint16_t>(repeatTime)));
    if constexpr (isExhaustedSuspension) {
        uint16_t taken[4];
        GetMrgSortResult(taken[0], taken[1], taken[2], taken[3], at);
        std::copy_n(taken, 4, sortedNum);
    }
}

// ---- Sort and what goes with it (advanced API) ----

/// Where pair `elemOffset` is, and how long `elemCount` pairs are, in elements of T: the pages call the unit bytes, but their
/// examples index tensors of T by it. Source: [GetSortOffset], [GetSortLen].
template <class T>
uint32_t GetSortOffset(const uint32_t elemOffset) { return elemOffset * static_cast<uint32_t>(sort_impl::PAIR / sizeof(T)); }
template <class T>
uint32_t GetSortLen(const uint32_t elemCount) { return elemCount * static_cast<uint32_t>(sort_impl::PAIR / sizeof(T)); }

/// concat = what Sort takes for src. On these SoCs that is src itself: the tensor is passed on, nothing is moved and tmp is
/// not used. Source: [Concat].
template <class T>
void Concat(LocalTensor<T>& concat, const LocalTensor<T>& src, const LocalTensor<T>& tmp, const int32_t repeatTime, Site at = Site::here()) {
    Sort_types<T, false>();
    static_cast<void>(tmp);
    if (sort_impl::legal_repeats("Concat", at, repeatTime)) concat = src;
}

/// dst = the scores of `concat` with `index` as sorted pairs: all 32 * repeatTime of them, or each 32. With isFullSort tmp
/// has room for all pairs, and what follows on the vector pipe sees the result without a barrier. Source: [Sort].
template <class T, bool isFullSort>
void Sort(const LocalTensor<T>& dst, const LocalTensor<T>& concat, const LocalTensor<uint32_t>& index, LocalTensor<T>& tmp, const int32_t repeatTime, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    Sort_types<T, false>();
    using Kind = emulator::Access::Kind;
    if (!sort_impl::legal_repeats("Sort", at, repeatTime)) return;
    const int64_t count = 32ll * repeatTime, a_run = isFullSort ? count : 32;
    emulator::Instruction what = sort_impl::run_instruction<T>("Sort", at, count);
    what.accesses = {concat.access(Kind::Read, "concat", 0, count), index.access(Kind::Read, "index", 0, count)};
    reduce_impl::Working working;
    if (isFullSort) working = reduce_impl::working(what, tmp, count * sort_impl::PAIR / static_cast<int64_t>(sizeof(T)), "tmp");
    what.accesses.push_back(dst.bytes(Kind::Write, "dst", 0, count * sort_impl::PAIR));
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const scores = core.local(concat.space(), concat.address());
    const uint8_t* const indices = core.local(index.space(), index.address());
    emulator::issue(std::move(what), [=] {
        std::vector<uint8_t> sorted(static_cast<size_t>(count * sort_impl::PAIR));
        for (int64_t first = 0; first < count; first += a_run)
            sort_impl::sort_run<T>(scores + first * static_cast<int64_t>(sizeof(T)), indices + first * 4, a_run, sorted.data() + first * sort_impl::PAIR);
        working.spoil();
        std::memcpy(out, sorted.data(), sorted.size());
    });
    if (isFullSort) emulator::order_pipe(emulator::Pipe::V, at);
}

/// Scores and indices of 32 pairs a repeat (64 elements of float, 128 of half). Source: [Extract].
template <class T>
void Extract(const LocalTensor<T>& dstValue, const LocalTensor<uint32_t>& dstIndex, const LocalTensor<T>& sorted, const int32_t repeatTime, Site at = Site::here()) {
    EMULATOR_USES("asc_uses_vector");
    Sort_types<T, false>();
    using Kind = emulator::Access::Kind;
    if (!sort_impl::legal_repeats("Extract", at, repeatTime)) return;
    const int64_t count = 32ll * repeatTime;
    emulator::Instruction what = sort_impl::run_instruction<T>("Extract", at, count);
    what.accesses = {sorted.bytes(Kind::Read, "sorted", 0, count * sort_impl::PAIR), dstValue.access(Kind::Write, "dstValue", 0, count), dstIndex.access(Kind::Write, "dstIndex", 0, count)};
    emulator::Core& core = emulator::core();
    uint8_t* const values = core.local(dstValue.space(), dstValue.address());
    uint8_t* const indices = core.local(dstIndex.space(), dstIndex.address());
    const uint8_t* const in = core.local(sorted.space(), sorted.address());
    emulator::issue(std::move(what), [=] {
        const std::vector<uint8_t> pairs(in, in + count * sort_impl::PAIR);
        for (int64_t i = 0; i < count; ++i) {
            std::memcpy(values + i * static_cast<int64_t>(sizeof(T)), pairs.data() + i * sort_impl::PAIR, sizeof(T));
            std::memcpy(indices + i * 4, pairs.data() + i * sort_impl::PAIR + 4, 4);
        }
    });
}

}  // namespace AscendC
