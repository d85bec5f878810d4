// Sums, maxima and minima: of the elements of a repeat, of a block of 32 bytes, of neighbours, of a whole tensor.
//
// Pages as in vector_types.h; calls that the current reference has replaced are on the pages of its release 8.5.
// Order of a sum ([ReduceDataBlock], key features; [Reg Reduce]): a binary tree of neighbours, (v0 + v1) + (v2 + v3) ...,
// each sum rounded to the type. Elements that the mask holds back count as 0 ([Reg Reduce]; unknown on dav-2201, the same).
// Maxima and minima: NaN if one is NaN ([Borders], tables 33 to 40), the first of equals, +0 above -0 ([Reg Reduce]).
// The saturating mode of half, which SetSaturationFlag sets, is not here, and neither is that call.
#pragma once

#include <limits>

#include "vector_types.h"

namespace AscendC {

enum class ReduceType { NONE = -1, SUM = 0, MAX, MIN };
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX = 0, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };

EMULATOR_TYPES(WholeReduce, (half, float), (half, float, int16_t, uint16_t, int32_t, uint32_t), ())
EMULATOR_TYPES(BlockReduce, (half, float), (half, float), ())
EMULATOR_TYPES(PairReduce, (half, float), (half, float), ())
EMULATOR_TYPES(ReduceSum, (half, float), (half, float, int32_t, uint32_t), (int64_t, uint64_t))
EMULATOR_TYPES(ReduceMax, (half, float), (half, float, int16_t, uint16_t, int32_t, uint32_t), (int64_t, uint64_t))

namespace reduce_impl {

/// Where results of vector instructions wait for the scalar, in Control::results.
enum ResultRegister { RESULT_SUM = 7, RESULT_EXTREME = 6, RESULT_EXTREME_INDEX = 5, RESULT_MERGED = 4 };

/// A form with a count as repeats, the last of which may be short.
inline emu::Lanes in_repeats(const emu::Lanes& lanes) {
    if (!lanes.flat) return lanes;
    emu::Lanes out;
    out.width = lanes.width, out.count = lanes.count;
    out.repeats = (lanes.count + lanes.width - 1) / lanes.width;
    out.last_partial = lanes.count % lanes.width;
    out.runs = {{0, lanes.width}};
    return out;
}

/// f(lane, n, bytes from the operand's start): lanes [lane, lane + n) of a repeat, which are consecutive in memory.
template <class F>
void each_piece(const emu::Lanes& lanes, emu::Stride stride, int64_t size, int64_t repeat, F f) {
    const int64_t step = stride.block == 1 ? lanes.width : ONE_BLK_SIZE / size;
    const bool partial = lanes.last_partial && repeat == lanes.repeats - 1;
    for (const auto& [first, last] : lanes.runs) {
        const int64_t end = partial ? std::min(last, lanes.last_partial) : last;
        for (int64_t lane = first; lane < end;) {
            const int64_t next = std::min(end, (lane / step + 1) * step);
            f(lane, next - lane, emu::lane_offset(repeat, lane, stride, size));
            lane = next;
        }
    }
}

/// The sum of `count` elements, a power of two of at most 128, by the tree of neighbours.
template <class D, class S>
D tree(const S* values, int64_t count) {
    if (count == 1) return static_cast<D>(values[0]);
    if constexpr (std::is_same_v<D, half>) {  // in floats that are rounded to half: such loops become vectors
        using emulator::numbers::Half;
        float level[128], sums[64];
        EMULATOR_EACH(i, count) level[i] = static_cast<float>(values[i]);
        for (int64_t n = count / 2; n > 0; n /= 2) {
            EMULATOR_EACH(i, n) sums[i] = level[2 * i] + level[2 * i + 1];
            EMULATOR_EACH(i, n) level[i] = emulator::numbers::decode<Half>(emulator::numbers::encode<Half>(sums[i]));
        }
        return static_cast<half>(level[0]);
    }
    D level[128];
    EMULATOR_EACH(i, count / 2) level[i] = emu::sum(static_cast<D>(values[2 * i]), static_cast<D>(values[2 * i + 1]));
    // A level is written over the one that it is made of, behind what it reads.
    for (int64_t n = count / 4; n > 0; n /= 2) EMULATOR_EACH(i, n) level[i] = emu::sum(level[2 * i], level[2 * i + 1]);
    return level[0];
}

/// The lanes of a repeat: where they lie, or a copy in `room` with 0 for those that the mask holds back.
template <class T>
const T* lanes_of(const emu::Lanes& lanes, const uint8_t* src, emu::Stride stride, int64_t repeat, T* room) {
    const bool partial = lanes.last_partial && repeat == lanes.repeats - 1;
    if (!partial && stride.block == 1 && lanes.runs[0].second - lanes.runs[0].first == lanes.width)
        return reinterpret_cast<const T*>(src + repeat * stride.repeat * ONE_BLK_SIZE);
    std::fill_n(room, lanes.width, static_cast<T>(0));
    each_piece(lanes, stride, sizeof(T), repeat, [&](int64_t lane, int64_t n, int64_t offset) {
        std::memcpy(room + lane, src + offset, static_cast<size_t>(n) * sizeof(T));
    });
    return room;
}

/// The sums of all repeats, one a repeat.
template <class D, class S>
void sums_of(const emu::Lanes& lanes, const uint8_t* src, emu::Stride stride, std::vector<D>& out) {
    S room[ONE_REPEAT_BYTE_SIZE / sizeof(S)];
    out.resize(static_cast<size_t>(lanes.repeats));
    for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat)
        out[static_cast<size_t>(repeat)] = tree<D>(lanes_of(lanes, src, stride, repeat, room), lanes.width);
}

template <class T>
using Rank = std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>;

/// An integer that is the larger the better `x` is as a maximum, or as a minimum; NaN is the best.
template <ReduceType type, class T>
constexpr Rank<T> rank(T x) {
    using R = Rank<T>;
    R key;
    bool nan = false;
    if constexpr (std::is_integral_v<T>) {
        key = std::is_signed_v<T> ? static_cast<R>(x) : static_cast<R>(static_cast<R>(x) ^ std::numeric_limits<R>::min());
    } else {
        const R bits = emulator::numbers::bits_as<R>(x);
        const R infinity = sizeof(T) == 2 ? static_cast<R>(0x7c00) : static_cast<R>(0x7f800000);
        nan = (bits & std::numeric_limits<R>::max()) > infinity;
        key = static_cast<R>(bits ^ ((bits >> (8 * sizeof(T) - 1)) & std::numeric_limits<R>::max()));
    }
    if (type == ReduceType::MIN) key = static_cast<R>(~key);
    return nan ? std::numeric_limits<R>::max() : key;
}

/// The number of a rank; of the lowest one, which no number has, what a reduction of nothing is.
template <ReduceType type, class T>
constexpr T value_of(Rank<T> rank) {
    using R = Rank<T>;
    using emulator::numbers::bits_as;
    constexpr R most = std::numeric_limits<R>::max(), infinity = sizeof(T) == 2 ? static_cast<R>(0x7c00) : static_cast<R>(0x7f800000);
    if (rank == most) return bits_as<T>(static_cast<R>(infinity | infinity >> 1));
    if (rank == std::numeric_limits<R>::min()) return bits_as<T>(static_cast<R>(type == ReduceType::MAX ? infinity | std::numeric_limits<R>::min() : infinity));
    const R key = type == ReduceType::MIN ? static_cast<R>(~rank) : rank;
    return bits_as<T>(static_cast<R>(key ^ ((key >> (8 * sizeof(T) - 1)) & most)));
}

template <class T>
struct Extreme {
    T value{};
    int64_t index = -1;  // -1: none
};

/// The best element of a repeat and its lane.
template <ReduceType type, class T>
Extreme<T> extreme_of(const emu::Lanes& lanes, const uint8_t* src, emu::Stride stride, int64_t repeat) {
    Rank<T> best = std::numeric_limits<Rank<T>>::min();
    each_piece(lanes, stride, sizeof(T), repeat, [&](int64_t, int64_t n, int64_t offset) {
        const T* const values = reinterpret_cast<const T*>(src + offset);
        for (int64_t i = 0; i < n; ++i) best = std::max(best, rank<type>(values[i]));
    });
    Extreme<T> out;
    each_piece(lanes, stride, sizeof(T), repeat, [&](int64_t lane, int64_t n, int64_t offset) {
        const T* const values = reinterpret_cast<const T*>(src + offset);
        for (int64_t i = 0; i < n && out.index < 0; ++i)
            if (rank<type>(values[i]) == best) out = {values[i], lane + i};
    });
    return out;
}

/// The better one; of equals the first.
template <ReduceType type, class T>
Extreme<T> better(const Extreme<T>& first, const Extreme<T>& second) {
    if (first.index < 0) return second;
    return second.index >= 0 && rank<type>(second.value) > rank<type>(first.value) ? second : first;
}

/// An index has the size of the element beside it.
template <class T>
T index_bits(int64_t index) {
    T out;
    std::memcpy(&out, &index, sizeof(T));
    return out;
}

inline bool legal_strides(const char* call, Site at, int64_t dst, int64_t src_block, int64_t src_repeat) {
    const std::pair<const char*, int64_t> strides[] = {{"dstRepStride", dst}, {"srcBlkStride", src_block}, {"srcRepStride", src_repeat}};
    for (const auto& [name, value] : strides)
        if (!emulator::require(value >= 0 && value <= 65535, "argument", at, call, std::string(name) + " is " + std::to_string(value) + "; it has to be 0 to 65535.")) return false;
    return true;
}

inline bool legal_repeats(const char* call, Site at, const emu::Lanes& lanes) {
    return emulator::require(emulator::core().control.counter_mode || lanes.repeats <= MAX_REPEAT_TIMES, "argument", at, call, "repeatTime is " + std::to_string(lanes.repeats) + "; it has to be 0 to 255.");
}

inline emulator::Instruction instruction(const char* call, Site at, const emu::Lanes& lanes) {
    emulator::Instruction out;
    out.pipe = emulator::Pipe::V, out.name = call, out.at = at;
    out.cost = emulator::Cost::vector(call, static_cast<uint64_t>(lanes.elements()), lanes.cost_repeats());
    return out;
}

// ---- One result a repeat ----

template <ReduceType type, class D, class S>
void repeats(const char* call, Site at, const emu::Lanes& lanes, const LocalTensor<D>& dst, const LocalTensor<S>& src, int64_t dst_stride,
             int64_t block_stride, int64_t repeat_stride, ReduceOrder order) {
    EMULATOR_USES("asc_uses_vector");
    WholeReduce_types<S, false>();
    constexpr bool widening = is_3510 && type == ReduceType::SUM &&
                              ((std::is_same_v<S, int16_t> && std::is_same_v<D, int32_t>) || (std::is_same_v<S, uint16_t> && std::is_same_v<D, uint32_t>));
    constexpr bool sixteen = std::is_same_v<S, int16_t> || std::is_same_v<S, uint16_t>;
    static_assert(widening || (std::is_same_v<S, D> && !(type == ReduceType::SUM && sixteen)),
                  "ReduceRepeat: dst and src have one type; on dav-3510 sums of int16_t are int32_t, of uint16_t uint32_t");
    if (!legal_strides(call, at, dst_stride, block_stride, repeat_stride) || !legal_repeats(call, at, lanes) || !emu::legal(lanes, call, at)) return;
    const bool index_only = type != ReduceType::SUM && order == ReduceOrder::ORDER_ONLY_INDEX;
    const bool both = type != ReduceType::SUM && (order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE);
    const int64_t unit = index_only ? 4 : static_cast<int64_t>(sizeof(D)) * (both ? 2 : 1);
    const emu::Stride stride{block_stride, repeat_stride};
    emulator::Instruction what = instruction(call, at, lanes);
    emu::add_lane_accesses(what.accesses, src, emulator::Access::Kind::Read, "src", lanes, stride);
    emulator::Access to = dst.bytes(emulator::Access::Kind::Write, "dst", 0, unit, static_cast<uint32_t>(unit));
    to.runs = lanes.repeats, to.pitch = dst_stride * unit;
    what.accesses.push_back(to);
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(std::move(what), [=, lanes = lanes] {
        if constexpr (type == ReduceType::SUM) {
            std::vector<D> sums;
            sums_of<D, S>(lanes, in, stride, sums);
            for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat)
                std::memcpy(out + repeat * dst_stride * unit, &sums[static_cast<size_t>(repeat)], sizeof(D));
        } else {
            Extreme<S> all;
            for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat) {
                Extreme<S> one = extreme_of<type, S>(lanes, in, stride, repeat);
                uint8_t* const to = out + repeat * dst_stride * unit;
                const S index = index_bits<S>(one.index);
                const uint32_t wide = static_cast<uint32_t>(one.index);
                if (index_only) std::memcpy(to, &wide, 4);
                else std::memcpy(to + (order == ReduceOrder::ORDER_INDEX_VALUE ? sizeof(S) : 0), &one.value, sizeof(S));
                if (both) std::memcpy(to + (order == ReduceOrder::ORDER_INDEX_VALUE ? 0 : sizeof(S)), &index, sizeof(S));
                one.index += repeat * lanes.width;
                all = better<type>(all, one);
            }
            auto& control = emulator::core().control;
            control.results[RESULT_EXTREME] = 0;
            std::memcpy(&control.results[RESULT_EXTREME], &all.value, sizeof(S));
            control.results[RESULT_EXTREME_INDEX] = static_cast<uint64_t>(all.index);
        }
    });
}

// ---- One result a block of 32 bytes, one a pair ----

/// `group` lanes make a result; results follow one another, and repeats of them `dst_stride` results of a full repeat.
template <ReduceType type, class T>
void groups(const char* call, Site at, const emu::Lanes& lanes, const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t group, int64_t dst_stride,
            int64_t block_stride, int64_t repeat_stride) {
    EMULATOR_USES("asc_uses_vector");
    if (!legal_strides(call, at, dst_stride, block_stride, repeat_stride) || !legal_repeats(call, at, lanes) || !emu::legal(lanes, call, at)) return;
    const int64_t size = sizeof(T), results = lanes.width / group, pitch = dst_stride * results * size;
    const emu::Stride stride{block_stride, repeat_stride};
    // A group without a lane: dav-2201 leaves dst as it is, dav-3510 writes what a reduction of nothing is.
    std::vector<uint8_t> full(static_cast<size_t>(results), 0), last = full;
    for (int64_t repeat : {int64_t{0}, lanes.repeats - 1})
        each_piece(lanes, stride, size, repeat, [&](int64_t lane, int64_t n, int64_t) {
            for (int64_t i = lane / group; i <= (lane + n - 1) / group; ++i) (repeat == lanes.repeats - 1 ? last : full)[static_cast<size_t>(i)] = 1;
        });
    if (is_3510) std::fill(full.begin(), full.end(), uint8_t{1}), last = full;
    emulator::Instruction what = instruction(call, at, lanes);
    emu::add_lane_accesses(what.accesses, src, emulator::Access::Kind::Read, "src", lanes, stride);
    const auto write = [&](const std::vector<uint8_t>& which, int64_t repeat, int64_t count) {
        for (int64_t begin = 0; begin < results && count > 0; ++begin) {
            if (!which[static_cast<size_t>(begin)]) continue;
            int64_t end = begin;
            while (end < results && which[static_cast<size_t>(end)]) ++end;
            emulator::Access to = dst.bytes(emulator::Access::Kind::Write, "dst", repeat * pitch + begin * size, (end - begin) * size, 1);
            to.runs = count, to.pitch = pitch;
            what.accesses.push_back(to);
            begin = end;
        }
    };
    const uint32_t align = group == 2 ? 32 : static_cast<uint32_t>(results * size);
    if (!emulator::require(dst.address() % align == 0, "alignment", at, call, "dst starts at byte " + std::to_string(dst.address()) + " of UB; its address has to be a multiple of " + std::to_string(align) + ".")) return;
    write(full, 0, lanes.repeats - 1);
    write(last, lanes.repeats - 1, 1);
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(std::move(what), [=, lanes = lanes] {
        T room[ONE_REPEAT_BYTE_SIZE / sizeof(T)], found[64];
        for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat) {
            if constexpr (type == ReduceType::SUM) {
                const T* const values = lanes_of(lanes, in, stride, repeat, room);
                for (int64_t i = 0; i < results; ++i) found[i] = tree<T>(values + i * group, group);
            } else {
                Rank<T> best[64];
                std::fill_n(best, results, std::numeric_limits<Rank<T>>::min());
                each_piece(lanes, stride, size, repeat, [&](int64_t lane, int64_t n, int64_t offset) {
                    const T* const values = reinterpret_cast<const T*>(in + offset);
                    for (int64_t i = 0; i < n;) {
                        const int64_t to = (lane + i) / group, end = std::min(n, (to + 1) * group - lane);
                        for (; i < end; ++i) best[to] = std::max(best[to], rank<type>(values[i]));
                    }
                });
                for (int64_t i = 0; i < results; ++i) found[i] = value_of<type, T>(best[i]);
            }
            const std::vector<uint8_t>& which = repeat == lanes.repeats - 1 ? last : full;
            for (int64_t i = 0; i < results; ++i)
                if (which[static_cast<size_t>(i)]) std::memcpy(out + repeat * pitch + i * size, &found[i], sizeof(T));
        }
    });
}

// ---- One result of a tensor ----

/// Working memory of a call; what is in it afterwards means nothing.
struct Working {
    uint8_t* host = nullptr;
    size_t bytes = 0;
    void spoil() const {
        if (bytes != 0) std::memset(host, 0xff, bytes);
    }
};
template <class T>
Working working(emulator::Instruction& instruction, const LocalTensor<T>& tensor, int64_t elements, const char* operand = "sharedTmpBuffer") {
    emulator::Access access = tensor.access(emulator::Access::Kind::Write, operand, 0, elements);
    access.scratch = true;
    instruction.accesses.push_back(access);
    return {emulator::core().local(tensor.space(), tensor.address()), static_cast<size_t>(elements) * sizeof(T)};
}

template <class T>
constexpr int64_t in_blocks(int64_t elements) {
    const int64_t a_block = ONE_BLK_SIZE / static_cast<int64_t>(sizeof(T));
    return (elements + a_block - 1) / a_block * a_block;
}

/// The results of repeats as elements of new repeats, until one is left ([ReduceSum], the second way).
template <class T>
T tree_of_repeats(std::vector<T> values) {
    const size_t width = ONE_REPEAT_BYTE_SIZE / sizeof(T);
    while (values.size() > 1) {
        std::vector<T> next;
        for (size_t begin = 0; begin < values.size(); begin += width) {
            T room[width];
            std::fill_n(room, width, static_cast<T>(0));
            std::copy_n(values.begin() + static_cast<int64_t>(begin), std::min(width, values.size() - begin), room);
            next.push_back(tree<T>(room, static_cast<int64_t>(width)));
        }
        values.swap(next);
    }
    return values[0];
}

/// `in_order`: repeats are added one after another (the first way); else `merged`: they are added lane by lane into one
/// (the third way), or by a tree (the second).
template <class T>
void whole_sum(Site at, const emu::Lanes& given, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& tmp, int64_t repeat_stride, bool count_form) {
    EMULATOR_USES("asc_uses_vector");
    const char* const call = "ReduceSum";
    if (!legal_strides(call, at, 0, 1, repeat_stride) || !emu::legal(given, call, at)) return;
    const emu::Lanes lanes = in_repeats(given);
    const emu::Stride stride{1, repeat_stride};
    const int64_t bytes = lanes.count * static_cast<int64_t>(sizeof(T));
    const bool counter = count_form || emulator::core().control.counter_mode;
    // 256 to 1024 bytes: taken as with both ends. Repeats are merged from the first to the last: unknown.
    const bool merged = is_3510 && (sizeof(T) == 8 || (counter && bytes >= 256 && bytes <= 1024));
    const bool in_order = is_2201 && count_form;
    emulator::Instruction what = instruction(call, at, given);
    emu::add_lane_accesses(what.accesses, src, emulator::Access::Kind::Read, "src", given, stride);
    Working room_between;
    if (!in_order && !merged) {
        const int64_t first = count_form ? std::max<int64_t>(1, lanes.count / lanes.width) : lanes.repeats;
        room_between = working(what, tmp, in_blocks<T>(first));
        what.cost.repeats += static_cast<uint64_t>((lanes.repeats + lanes.width - 1) / lanes.width);
    }
    what.accesses.push_back(dst.access(emulator::Access::Kind::Write, "dst", 0, 1, sizeof(T)));
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(std::move(what), [=] {
        T result;
        if (merged) {
            T all[ONE_REPEAT_BYTE_SIZE / sizeof(T)], room[ONE_REPEAT_BYTE_SIZE / sizeof(T)];
            std::copy_n(lanes_of(lanes, in, stride, 0, room), lanes.width, all);
            for (int64_t repeat = 1; repeat < lanes.repeats; ++repeat) {
                const T* const values = lanes_of(lanes, in, stride, repeat, room);
                EMULATOR_EACH(i, lanes.width) all[i] = emu::sum(all[i], values[i]);
            }
            result = tree<T>(all, lanes.width);
        } else {
            std::vector<T> sums;
            sums_of<T, T>(lanes, in, stride, sums);
            result = sums[0];
            if (in_order) for (size_t i = 1; i < sums.size(); ++i) result = emu::sum(result, sums[i]);
            else result = tree_of_repeats(std::move(sums));
        }
        room_between.spoil();
        std::memcpy(out, &result, sizeof(T));
        if (count_form) {
            auto& sum = emulator::core().control.results[RESULT_SUM];
            sum = 0;
            std::memcpy(&sum, &result, sizeof(T));
        }
    });
}

/// Elements of working memory of ReduceMax and ReduceMin ([ReduceMax], key features): the results of every round of repeats.
template <class T>
int64_t extreme_working(int64_t repeats, bool index) {
    const int64_t width = ONE_REPEAT_BYTE_SIZE / static_cast<int64_t>(sizeof(T));
    int64_t results = 2 * repeats, all = in_blocks<T>(results);
    if (!index) return all;
    do {
        results = (results + width - 1) / width * 2;
        all += in_blocks<T>(results);
    } while (results > 2);
    return all;
}

template <ReduceType type, class T>
void whole_extreme(const char* call, Site at, const emu::Lanes& given, const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& tmp,
                   int64_t repeat_stride, bool index, bool count_form) {
    EMULATOR_USES("asc_uses_vector");
    if (!legal_strides(call, at, 0, 1, repeat_stride) || !emu::legal(given, call, at)) return;
    const emu::Lanes lanes = in_repeats(given);
    const emu::Stride stride{1, repeat_stride};
    if (sizeof(T) == 2 && index && !emulator::require((lanes.repeats - 1) * lanes.width < 65536, "argument", at, call, "an index of 16 bits reaches element 65535; the " + std::to_string(lanes.elements()) + " elements go further."))
        return;
    emulator::Instruction what = instruction(call, at, given);
    emu::add_lane_accesses(what.accesses, src, emulator::Access::Kind::Read, "src", given, stride);
    Working room_between;
    if (is_2201) room_between = working(what, tmp, extreme_working<T>(count_form ? std::max<int64_t>(1, lanes.count / lanes.width) : lanes.repeats, index));
    what.accesses.push_back(dst.access(emulator::Access::Kind::Write, "dst", 0, index ? 2 : 1, static_cast<uint32_t>(sizeof(T) * (index ? 2 : 1))));
    what.cost.repeats += static_cast<uint64_t>((2 * lanes.repeats + lanes.width - 1) / lanes.width);
    emulator::Core& core = emulator::core();
    uint8_t* const out = core.local(dst.space(), dst.address());
    const uint8_t* const in = core.local(src.space(), src.address());
    emulator::issue(std::move(what), [=] {
        Extreme<T> all;
        for (int64_t repeat = 0; repeat < lanes.repeats; ++repeat) {
            Extreme<T> one = extreme_of<type, T>(lanes, in, stride, repeat);
            if (one.index >= 0) one.index += repeat * lanes.width;
            all = better<type>(all, one);
        }
        const T place = index_bits<T>(all.index);
        room_between.spoil();
        std::memcpy(out, &all.value, sizeof(T));
        if (index) std::memcpy(out + sizeof(T), &place, sizeof(T));
        auto& control = emulator::core().control;
        control.results[RESULT_EXTREME] = 0;
        std::memcpy(&control.results[RESULT_EXTREME], &all.value, sizeof(T));
        control.results[RESULT_EXTREME_INDEX] = ~0ull;  // the page: not to be used
    });
}

}  // namespace reduce_impl

// ---- A repeat of 256 bytes to one ----

/// dst[repeat] = sum, maximum or minimum of the lanes of that repeat of src. MAX, MIN: (value, index in the repeat), or as
/// `order` says; an index alone has 32 bits. dstRepStride counts results. Source: [ReduceRepeat].
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReduceRepeat(const LocalTensor<T>& dst, const LocalTensor<U>& src, const uint64_t mask[], const int32_t repeatTime, const int32_t dstRepStride,
                  const int32_t srcBlkStride, const int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Site at = Site::here()) {
    reduce_impl::repeats<reduceType>("ReduceRepeat", at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(U)), dst, src, dstRepStride, srcBlkStride, srcRepStride, order);
}
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReduceRepeat(const LocalTensor<T>& dst, const LocalTensor<U>& src, const int32_t mask, const int32_t repeatTime, const int32_t dstRepStride,
                  const int32_t srcBlkStride, const int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Site at = Site::here()) {
    reduce_impl::repeats<reduceType>("ReduceRepeat", at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(U)), dst, src, dstRepStride, srcBlkStride, srcRepStride, order);
}

/// The sum of each repeat; dstRepStride counts elements of dst. Source: WholeReduceSum, now [ReduceRepeat].
template <class T, bool isSetMask = true, class U = T>
void WholeReduceSum(const LocalTensor<U>& dst, const LocalTensor<T>& src, const uint64_t mask[], const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {
    reduce_impl::repeats<ReduceType::SUM>("WholeReduceSum", at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, dstRepStride, srcBlkStride, srcRepStride, {});
}
template <class T, bool isSetMask = true, class U = T>
void WholeReduceSum(const LocalTensor<U>& dst, const LocalTensor<T>& src, const int32_t mask, const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {
    reduce_impl::repeats<ReduceType::SUM>("WholeReduceSum", at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, dstRepStride, srcBlkStride, srcRepStride, {});
}

/// WholeReduceSum; dstBlkStride has no effect. Source: RepeatReduceSum, now [ReduceRepeat].
template <class T, bool isSetMask = true, class U = T>
void RepeatReduceSum(const LocalTensor<U>& dst, const LocalTensor<T>& src, const int32_t repeatTime, const int32_t mask, const int32_t dstBlkStride,
                     const int32_t srcBlkStride, const int32_t dstRepStride, const int32_t srcRepStride, Site at = Site::here()) {
    static_cast<void>(dstBlkStride);
    reduce_impl::repeats<ReduceType::SUM>("RepeatReduceSum", at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, dstRepStride, srcBlkStride, srcRepStride, {});
}

#define EMULATOR_WHOLE(Name, type)                                                                                                    \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask[], const int32_t repeatTime, const int32_t dstRepStride, \
              const int32_t srcBlkStride, const int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Site at = Site::here()) { \
        reduce_impl::repeats<type>(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, dstRepStride, srcBlkStride, srcRepStride, order); \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t mask, const int32_t repeatTime, const int32_t dstRepStride, \
              const int32_t srcBlkStride, const int32_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Site at = Site::here()) { \
        reduce_impl::repeats<type>(#Name, at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, dstRepStride, srcBlkStride, srcRepStride, order); \
    }
/// The largest and the smallest of each repeat and where it is. Source: WholeReduceMax, WholeReduceMin, now [ReduceRepeat].
EMULATOR_WHOLE(WholeReduceMax, ReduceType::MAX)
EMULATOR_WHOLE(WholeReduceMin, ReduceType::MIN)
#undef EMULATOR_WHOLE

// ---- A block of 32 bytes to one, a pair to one ----

/// dst[8 * repeat + block] = sum, maximum or minimum of that block of 32 bytes. dstRepStride counts the 8 results of a
/// repeat. Source: [ReduceDataBlock].
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReduceDataBlock(const LocalTensor<T>& dst, const LocalTensor<U>& src, const uint64_t mask[], const int32_t repeatTime, const int32_t dstRepStride,
                     const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {
    static_assert(std::is_same_v<T, U>, "ReduceDataBlock: dst and src have one type");
    BlockReduce_types<T, false>();
    reduce_impl::groups<reduceType>("ReduceDataBlock", at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, ONE_BLK_SIZE / static_cast<int64_t>(sizeof(T)), dstRepStride, srcBlkStride, srcRepStride);
}
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReduceDataBlock(const LocalTensor<T>& dst, const LocalTensor<U>& src, const int32_t mask, const int32_t repeatTime, const int32_t dstRepStride,
                     const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {
    static_assert(std::is_same_v<T, U>, "ReduceDataBlock: dst and src have one type");
    BlockReduce_types<T, false>();
    reduce_impl::groups<reduceType>("ReduceDataBlock", at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, ONE_BLK_SIZE / static_cast<int64_t>(sizeof(T)), dstRepStride, srcBlkStride, srcRepStride);
}

/// dst[i] = src[2 i] + src[2 i + 1]; dstRepStride counts 128 bytes. Source: [ReducePairElem].
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReducePairElem(const LocalTensor<T>& dst, const LocalTensor<U>& src, const uint64_t mask[], const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {
    static_assert(reduceType == ReduceType::SUM && std::is_same_v<T, U>, "ReducePairElem: sums alone, of one type");
    PairReduce_types<T, false>();
    reduce_impl::groups<reduceType>("ReducePairElem", at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, 2, dstRepStride, srcBlkStride, srcRepStride);
}
template <ReduceType reduceType, class T, class U, bool isSetMask = true>
void ReducePairElem(const LocalTensor<T>& dst, const LocalTensor<U>& src, const int32_t mask, const int32_t repeatTime, const int32_t dstRepStride,
                    const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {
    static_assert(reduceType == ReduceType::SUM && std::is_same_v<T, U>, "ReducePairElem: sums alone, of one type");
    PairReduce_types<T, false>();
    reduce_impl::groups<reduceType>("ReducePairElem", at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, 2, dstRepStride, srcBlkStride, srcRepStride);
}

// The former names take repeatTime before the mask.
#define EMULATOR_GROUPS(Name, Family, type, group)                                                                                    \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime, const uint64_t mask[], const int32_t dstRepStride, \
              const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {                                       \
        Family##_types<T, false>();                                                                                                   \
        reduce_impl::groups<type>(#Name, at, emu::mask_lanes<isSetMask>(mask, repeatTime, sizeof(T)), dst, src, group, dstRepStride, srcBlkStride, srcRepStride); \
    }                                                                                                                                 \
    template <class T, bool isSetMask = true>                                                                                         \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeatTime, const int32_t mask, const int32_t dstRepStride, \
              const int32_t srcBlkStride, const int32_t srcRepStride, Site at = Site::here()) {                                       \
        Family##_types<T, false>();                                                                                                   \
        reduce_impl::groups<type>(#Name, at, emu::mask_lanes<isSetMask>(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, group, dstRepStride, srcBlkStride, srcRepStride); \
    }
/// Source: BlockReduceSum, BlockReduceMax, BlockReduceMin, now [ReduceDataBlock]; PairReduceSum, now [ReducePairElem].
EMULATOR_GROUPS(BlockReduceSum, BlockReduce, ReduceType::SUM, ONE_BLK_SIZE / static_cast<int64_t>(sizeof(T)))
EMULATOR_GROUPS(BlockReduceMax, BlockReduce, ReduceType::MAX, ONE_BLK_SIZE / static_cast<int64_t>(sizeof(T)))
EMULATOR_GROUPS(BlockReduceMin, BlockReduce, ReduceType::MIN, ONE_BLK_SIZE / static_cast<int64_t>(sizeof(T)))
EMULATOR_GROUPS(PairReduceSum, PairReduce, ReduceType::SUM, 2)
#undef EMULATOR_GROUPS

// ---- A tensor to one ----

/// dst[0] = sum of src. dav-2201: with a count repeats are added in order, with a mask by a tree that takes sharedTmpBuffer.
/// dav-3510: a tree; 256 to 1024 bytes, and 64-bit integers, are added to one repeat first. Source: [ReduceSum].
template <class T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, const int32_t count, Site at = Site::here()) {
    ReduceSum_types<T, true>();
    reduce_impl::whole_sum(at, emu::count_lanes<isSetMask>(count, sizeof(T)), dst, src, sharedTmpBuffer, DEFAULT_REPEAT_STRIDE, true);
}
template <class T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, const uint64_t mask[], const int32_t repeatTime,
               const int32_t srcRepStride, Site at = Site::here()) {
    ReduceSum_types<T, false>();
    reduce_impl::whole_sum(at, emu::bit_lanes(mask, repeatTime, sizeof(T)), dst, src, sharedTmpBuffer, srcRepStride, false);
}
template <class T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, const int32_t mask, const int32_t repeatTime,
               const int32_t srcRepStride, Site at = Site::here()) {
    ReduceSum_types<T, false>();
    reduce_impl::whole_sum(at, emu::counted_lanes(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, sharedTmpBuffer, srcRepStride, false);
}

#define EMULATOR_EXTREME(Name, type)                                                                                                  \
    template <class T>                                                                                                                \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, const int32_t count, bool calIndex = 0, \
              Site at = Site::here()) {                                                                                               \
        ReduceMax_types<T, true>();                                                                                                   \
        reduce_impl::whole_extreme<type>(#Name, at, emu::flat_lanes(count, sizeof(T)), dst, src, sharedTmpBuffer, DEFAULT_REPEAT_STRIDE, calIndex, true); \
    }                                                                                                                                 \
    template <class T>                                                                                                                \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, const uint64_t mask[], const int32_t repeatTime, \
              const int32_t srcRepStride, bool calIndex = 0, Site at = Site::here()) {                                                \
        ReduceMax_types<T, false>();                                                                                                  \
        reduce_impl::whole_extreme<type>(#Name, at, emu::bit_lanes(mask, repeatTime, sizeof(T)), dst, src, sharedTmpBuffer, srcRepStride, calIndex, false); \
    }                                                                                                                                 \
    template <class T>                                                                                                                \
    void Name(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, const int32_t mask, const int32_t repeatTime, \
              const int32_t srcRepStride, bool calIndex = 0, Site at = Site::here()) {                                                \
        ReduceMax_types<T, false>();                                                                                                  \
        reduce_impl::whole_extreme<type>(#Name, at, emu::counted_lanes(static_cast<uint64_t>(mask), repeatTime, sizeof(T)), dst, src, sharedTmpBuffer, srcRepStride, calIndex, false); \
    }
/// dst[0] = the largest or smallest element; calIndex: dst[1] = its index, as bits of an integer of T's size: the repeat
/// times the elements of 256 bytes, and the lane. dav-2201 works in sharedTmpBuffer. Source: [ReduceMax], [ReduceMin].
EMULATOR_EXTREME(ReduceMax, ReduceType::MAX)
EMULATOR_EXTREME(ReduceMin, ReduceType::MIN)
#undef EMULATOR_EXTREME

// ---- Results in registers ----

/// Value and index of the last ReduceRepeat for a maximum or minimum, over all of its repeats; of ReduceMax and ReduceMin the
/// value alone. The scalar waits for the vector pipe: unknown whether the call itself does, its example has no wait. Not
/// checked: the page asks for consecutive elements and no counter mode. Source: [GetReduceRepeatMaxMinSpr].
template <class T>
void GetReduceRepeatMaxMinSpr(T& maxMinValue, T& maxMinIndex, Site at = Site::here()) {
    static_assert(is_2201 && sizeof(T) != 0, "GetReduceRepeatMaxMinSpr: dav-3510 does not have it");
    static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "GetReduceRepeatMaxMinSpr: half and float alone");
    emulator::wait_pipe(emulator::Pipe::V, "GetReduceRepeatMaxMinSpr", at);
    const auto& results = emulator::core().control.results;
    std::memcpy(&maxMinValue, &results[reduce_impl::RESULT_EXTREME], sizeof(T));
    std::memcpy(&maxMinIndex, &results[reduce_impl::RESULT_EXTREME_INDEX], sizeof(T));
}
template <class T>
void GetReduceMaxMinCount(T& maxMinValue, T& maxMinIndex, Site at = Site::here()) { GetReduceRepeatMaxMinSpr(maxMinValue, maxMinIndex, at); }

/// The result of the last ReduceSum with a count. Source: [GetReduceRepeatSumSpr]; GetAccVal is its former name.
template <class T>
T GetReduceRepeatSumSpr(Site at = Site::here()) {
    static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>, "GetReduceRepeatSumSpr: half and float alone");
    emulator::wait_pipe(emulator::Pipe::V, "GetReduceRepeatSumSpr", at);
    T out;
    std::memcpy(&out, &emulator::core().control.results[reduce_impl::RESULT_SUM], sizeof(T));
    return out;
}
template <class T>
T GetAccVal(Site at = Site::here()) { return GetReduceRepeatSumSpr<T>(at); }

}  // namespace AscendC
