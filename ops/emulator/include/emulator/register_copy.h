// Loads from UB into registers and stores back: aligned with their distributions, unaligned, gathered. Pages as in registers.h.
//
// A load reads as many bytes as its distribution says, also for the last elements of a row. Of what lies beyond the end of
// its tensor the elements hold no value: using them is reported, loading them is not, as long as they are in UB.
#pragma once

#include "register_types.h"

namespace AscendC::Reg {

enum class LoadDist {
    DIST_NORM, DIST_BRC_B8, DIST_BRC_B16, DIST_BRC_B32, DIST_US_B8, DIST_US_B16, DIST_DS_B8, DIST_DS_B16, DIST_UNPACK_B8, DIST_UNPACK_B16,
    DIST_UNPACK_B32, DIST_UNPACK4_B8, DIST_BLK, DIST_E2B_B16, DIST_E2B_B32, DIST_DINTLV_B8, DIST_DINTLV_B16, DIST_DINTLV_B32
};
enum class StoreDist {
    DIST_NORM, DIST_NORM_B8, DIST_NORM_B16, DIST_NORM_B32, DIST_FIRST_ELEMENT_B8, DIST_FIRST_ELEMENT_B16, DIST_FIRST_ELEMENT_B32,
    DIST_PACK_B16, DIST_PACK_B32, DIST_PACK4_B32, DIST_INTLV_B8, DIST_INTLV_B16, DIST_INTLV_B32
};
enum class MaskDist { DIST_NORM };

// ---- Distributions ----

/// A load: bytes that it reads, the multiple that its address has to be of ([page] LoadAlign, tables 3 and 6), its element's
/// size (0: any), and which byte read becomes each byte of the register (-1: it is 0), of the second register behind.
struct LoadShape {
    int bytes = 256, align = 32, width = 0;
    bool dual = false;
    std::array<int16_t, 512> from{};
};
constexpr LoadShape load_shape(LoadDist dist) {
    using D = LoadDist;
    LoadShape shape;
    const auto fill = [&shape](auto source) {
        for (int byte = 0; byte < 512; ++byte) shape.from[static_cast<size_t>(byte)] = static_cast<int16_t>(source(byte));
    };
    const auto sized = [&shape](int bytes, int align, int width) { shape.bytes = bytes, shape.align = align, shape.width = width; };
    fill([](int byte) { return byte; });
    int width = 1;
    if (dist == D::DIST_BRC_B16 || dist == D::DIST_US_B16 || dist == D::DIST_DS_B16 || dist == D::DIST_UNPACK_B16 || dist == D::DIST_E2B_B16 || dist == D::DIST_DINTLV_B16) width = 2;
    if (dist == D::DIST_BRC_B32 || dist == D::DIST_UNPACK_B32 || dist == D::DIST_E2B_B32 || dist == D::DIST_DINTLV_B32) width = 4;
    switch (dist) {
        case D::DIST_BRC_B8: case D::DIST_BRC_B16: case D::DIST_BRC_B32:
            sized(width, width, width), fill([=](int byte) { return byte % width; });
            break;
        case D::DIST_US_B8: case D::DIST_US_B16:
            sized(128, 32, width), fill([=](int byte) { return byte / width / 2 * width + byte % width; });
            break;
        case D::DIST_DS_B8: case D::DIST_DS_B16:
            sized(512, 32, width), fill([=](int byte) { return byte < 256 ? byte / width * 2 * width + byte % width : -1; });
            break;
        case D::DIST_UNPACK_B8: case D::DIST_UNPACK_B16: case D::DIST_UNPACK_B32:
            sized(128, 32, width), fill([=](int byte) { return byte / width % 2 == 0 ? byte / width / 2 * width + byte % width : -1; });
            break;
        case D::DIST_UNPACK4_B8: sized(64, 32, 1), fill([](int byte) { return byte % 4 == 0 ? byte / 4 : -1; }); break;
        case D::DIST_BLK: sized(32, 32, 0), fill([](int byte) { return byte % 32; }); break;
        case D::DIST_E2B_B16: case D::DIST_E2B_B32:
            sized(8 * width, 8 * width, width), fill([=](int byte) { return byte / 32 * width + byte % width; });
            break;
        case D::DIST_DINTLV_B8: case D::DIST_DINTLV_B16: case D::DIST_DINTLV_B32:
            // Of any element: the page's own example takes B8 for all. Sound where a store puts them together again.
            sized(512, 32, 0), shape.dual = true;
            fill([=](int byte) { return (byte % 256 / width * 2 + byte / 256) * width + byte % width; });
            break;
        default: break;
    }
    return shape;
}

/// A store: of each element of `lane` bytes the lowest `keep` go to memory side by side; or the first element, or all of two
/// registers by turns, whatever the mask. `width`: the sizes of element that a call may name.
struct StoreShape {
    int lane, keep, align = 32;
    bool first = false, dual = false;
    int width, other;
};
template <class T>
constexpr StoreShape store_shape(StoreDist dist) {
    using D = StoreDist;
    constexpr int size = sizeof(T);
    switch (dist) {
        case D::DIST_NORM_B8: return {1, 1, 32, false, false, 1, 1};
        case D::DIST_NORM_B16: return {2, 2, 32, false, false, 2, 2};
        case D::DIST_NORM_B32: return {4, 4, 32, false, false, 4, 4};
        case D::DIST_FIRST_ELEMENT_B8: return {1, 1, 1, true, false, 1, 1};
        case D::DIST_FIRST_ELEMENT_B16: return {2, 2, 2, true, false, 2, 2};
        case D::DIST_FIRST_ELEMENT_B32: return {4, 4, 4, true, false, 4, 4};
        case D::DIST_PACK_B16: return {2, 1, 32, false, false, 1, 2};
        case D::DIST_PACK_B32: return {4, 2, 32, false, false, 2, 4};
        case D::DIST_PACK4_B32: return {4, 1, 32, false, false, 1, 4};
        case D::DIST_INTLV_B8: return {1, 1, 32, false, true, size, size};
        case D::DIST_INTLV_B16: return {2, 2, 32, false, true, size, size};
        case D::DIST_INTLV_B32: return {4, 4, 32, false, true, size, size};
        default: return {size, size, 32, false, false, size, size};
    }
}

// ---- Bytes ----

/// `bytes` from a pointer on, as an access.
[[gnu::noinline]] inline emulator::Access access_at(uint64_t pointer, emulator::Access::Kind kind, int64_t bytes, int align) {
    const emulator::Buffer buffer = emulator::argument_buffer(emulator::tag_of(pointer));
    emulator::Access access;
    access.kind = kind, access.operand = kind == emulator::Access::Kind::Read ? "src" : "dst";
    access.begin = emulator::offset_of(pointer), access.bytes = bytes;
    access.low = buffer.low, access.high = buffer.high, access.align = static_cast<uint32_t>(align);
    return access;
}

/// Bytes as they were read, up to 512 of them.
struct Fetched {
    uint8_t bytes[512];
    uint64_t known[8] = {};
    Origin origin;
    bool complete = true, beyond = false;
    bool has(int byte) const { return (known[byte / 64] >> (byte % 64) & 1) != 0; }
};

/// Reads `bytes` from `pointer` on into `out`; false: it was refused. `replaced`: what the register held.
[[gnu::noinline]] inline bool fetch(Fetched& out, uint64_t pointer, int bytes, int align, uint32_t replaced, const char* call, Site at) {
    emulator::Access access = access_at(pointer, emulator::Access::Kind::Read, bytes, align);
    access.carries = true;
    const int64_t capacity = emulator::core().capacity[static_cast<int>(emulator::Space::UB)];
    const bool starts_inside = access.begin >= access.low && access.begin < access.high;
    if (access.high >= 0 && starts_inside && access.begin + bytes > access.high && access.begin + bytes <= capacity) {
        access.bytes = access.high - access.begin;
        out.beyond = true;
    }
    if (!emulator::register_load(access, replaced, out.origin, call, at)) return false;
    if (out.beyond) std::memset(out.bytes, 0xff, sizeof out.bytes);
    std::memcpy(out.bytes, emulator::core().local(emulator::Space::UB, access.begin), static_cast<size_t>(access.bytes));
    for (int byte = 0; byte < access.bytes; byte += 64) out.known[byte / 64] = access.bytes - byte >= 64 ? ~0ull : (1ull << (access.bytes - byte)) - 1;
    for (const auto& [first, last] : emulator::unwritten(emulator::Space::UB, access.begin, access.begin + access.bytes))
        for (int64_t byte = first - access.begin; byte < last - access.begin; ++byte) out.known[byte / 64] &= ~(1ull << (byte % 64)), out.complete = false;
    out.complete = out.complete && !out.beyond;
    return true;
}

/// A register of the bytes `from` of what was read; -1 is a zero.
[[gnu::noinline]] inline void spread(Register& dst, const Fetched& in, const int16_t* from, const char* call, Site at) {
    bool zeros = false;
    for (int byte = 0; byte < 256; ++byte) {
        zeros |= from[byte] < 0;
        dst.bytes[byte] = from[byte] < 0 ? uint8_t{0} : in.bytes[from[byte]];
    }
    dst.known = emulator::ALL_BITS;
    if (!in.complete)
        for (int byte = 0; byte < 256; ++byte)
            if (from[byte] >= 0 && !in.has(from[byte])) dst.known.clear(byte);
    dst.value = emulator::new_value();
    dst.origin = in.origin, dst.filled_by = call, dst.filled_at = at, dst.beyond = in.beyond;
}
[[gnu::noinline]] inline void take(Register& dst, const Fetched& in, const char* call, Site at) {
    std::memcpy(dst.bytes, in.bytes, sizeof dst.bytes);
    for (int i = 0; i < 4; ++i) dst.known.word[i] = in.known[i];
    dst.value = emulator::new_value();
    dst.origin = in.origin, dst.filled_by = call, dst.filled_at = at, dst.beyond = in.beyond;
}

/// Writes those of `bytes` whose bit is set to where `pointer` points.
[[gnu::noinline]] inline void put(uint64_t pointer, const uint8_t* bytes, int count, const uint64_t* set, int align, uint32_t value, const Origin& origin, const char* call, Site at) {
    std::vector<emulator::Access> accesses;
    // The next byte from `byte` on whose bit is `wanted`.
    const auto next = [&](int byte, bool wanted) {
        while (byte < count) {
            const uint64_t rest = (wanted ? set[byte / 64] : ~set[byte / 64]) >> (byte % 64);
            if (rest != 0) return std::min(byte + __builtin_ctzll(rest), count);
            byte = (byte / 64 + 1) * 64;
        }
        return count;
    };
    for (int byte = next(0, true), end; byte < count; byte = next(end, true)) {
        end = next(byte, false);
        accesses.push_back(access_at(pointer, emulator::Access::Kind::Write, end - byte, 1));
        accesses.back().begin += byte;
    }
    const int64_t start = emulator::offset_of(pointer);
    if (start % align != 0) return static_cast<void>(emulator::require(false, "alignment", at, call, "(dst) starts at byte " + std::to_string(start) + " of UB; its address has to be a multiple of " + std::to_string(align) + "."));
    if (accesses.empty() || !emulator::register_store(accesses, value, origin, call, at)) return;
    for (const emulator::Access& access : accesses)
        std::memcpy(emulator::core().local(emulator::Space::UB, access.begin), bytes + (access.begin - start), static_cast<size_t>(access.bytes));
}

template <class T>
uint64_t number_of(__ubuf__ T* pointer) { return reinterpret_cast<uint64_t>(pointer); }
/// pointer + elements, which may lie anywhere.
template <class T>
__ubuf__ T* moved(__ubuf__ T* pointer, int64_t elements) { return reinterpret_cast<__ubuf__ T*>(number_of(pointer) + static_cast<uint64_t>(elements * static_cast<int64_t>(sizeof(T)))); }

[[gnu::noinline]] inline bool legal_step(int64_t bytes, int align, const char* call, Site at) {
    return bytes % align == 0 || emulator::require(false, "alignment", at, call, "postUpdateStride is " + std::to_string(bytes) + " bytes; it has to be a multiple of " + std::to_string(align) + ".");
}
[[gnu::noinline]] inline bool legal_offset(const AddrReg& offset, int align, const char* call, Site at) {
    return (offset.known || emulator::require(false, "uninitialised", at, call, "its address register holds no value; CreateAddrReg writes one.")) &&
           (offset.offset % align == 0 || emulator::require(false, "alignment", at, call, "the address register has " + std::to_string(offset.offset) + " bytes; it has to be a multiple of " + std::to_string(align) + "."));
}

// ---- LoadAlign ----

template <class U>
using if_register = std::enable_if_t<std::is_base_of_v<Register, U>, int>;

template <LoadDist dist, class T, class U>
constexpr void load_exists() {
    constexpr LoadShape shape = load_shape(dist);
    static_assert(std::is_same_v<T, typename U::ActualT>, "LoadAlign: the address and the register have to be of one element type.");
    static_assert(shape.width == 0 || shape.width == sizeof(T), "LoadAlign: this LoadDist is of elements of another size.");
}

/// 256 bytes, or as the distribution says: BRC one element to all; US every element twice; DS every second element; UNPACK a
/// zero of its size behind every element (UNPACK4 three); BLK 32 bytes eight times; E2B eight elements, each filling 32
/// bytes. [page] LoadAlign
template <class T = DefaultType, LoadDist dist = LoadDist::DIST_NORM, class U, if_register<U> = 0>
inline void LoadAlign(U& dstReg, __ubuf__ T* srcAddr, Site at = Site::here()) {
    static constexpr LoadShape shape = load_shape(dist);
    load_exists<dist, T, U>();
    static_assert(!shape.dual, "LoadAlign: this LoadDist fills two registers.");
    if (!begin("Reg::LoadAlign", at, LANES<T>, 1, dist == LoadDist::DIST_DS_B8 || dist == LoadDist::DIST_DS_B16)) return;
    Fetched in;
    if (!fetch(in, number_of(srcAddr), shape.bytes, shape.align, dstReg.value, "Reg::LoadAlign", at)) return;
    if constexpr (dist == LoadDist::DIST_NORM) take(dstReg, in, "Reg::LoadAlign", at);
    else spread(dstReg, in, shape.from.data(), "Reg::LoadAlign", at);
}
/// The same, and srcAddr moves by `postUpdateStride` elements.
template <class T = DefaultType, PostLiteral postMode, LoadDist dist = LoadDist::DIST_NORM, class U, if_register<U> = 0>
inline void LoadAlign(U& dstReg, __ubuf__ T*& srcAddr, int32_t postUpdateStride, Site at = Site::here()) {
    static_assert(postMode == PostLiteral::POST_MODE_UPDATE, "LoadAlign: a stride goes with POST_MODE_UPDATE alone.");
    if (!legal_step(postUpdateStride * static_cast<int64_t>(sizeof(T)), load_shape(dist).align, "Reg::LoadAlign", at)) return;
    LoadAlign<T, dist>(dstReg, srcAddr, at);
    srcAddr = moved(srcAddr, postUpdateStride);
}
/// The same from srcAddr + offset on.
template <class T = DefaultType, LoadDist dist = LoadDist::DIST_NORM, class U, if_register<U> = 0>
inline void LoadAlign(U& dstReg, __ubuf__ T* srcAddr, AddrReg offset, Site at = Site::here()) {
    if (!legal_offset(offset, load_shape(dist).align, "Reg::LoadAlign", at)) return;
    LoadAlign<T, dist>(dstReg, reinterpret_cast<__ubuf__ T*>(number_of(srcAddr) + static_cast<uint64_t>(offset.offset)), at);
}
/// DINTLV: of 512 bytes the even elements to the first register, the odd ones to the second.
template <class T = DefaultType, LoadDist dist, class U, if_register<U> = 0>
inline void LoadAlign(U& dstReg0, U& dstReg1, __ubuf__ T* srcAddr, Site at = Site::here()) {
    static constexpr LoadShape shape = load_shape(dist);
    load_exists<dist, T, U>();
    static_assert(shape.dual, "LoadAlign: this LoadDist fills one register.");
    if (!begin("Reg::LoadAlign", at, 2 * LANES<T>, 1, true)) return;
    Fetched in;
    if (!fetch(in, number_of(srcAddr), shape.bytes, shape.align, dstReg0.value, "Reg::LoadAlign", at)) return;
    spread(dstReg0, in, shape.from.data(), "Reg::LoadAlign", at), spread(dstReg1, in, shape.from.data() + 256, "Reg::LoadAlign", at);
}
template <class T = DefaultType, PostLiteral postMode, LoadDist dist, class U, if_register<U> = 0>
inline void LoadAlign(U& dstReg0, U& dstReg1, __ubuf__ T*& srcAddr, int32_t postUpdateStride, Site at = Site::here()) {
    static_assert(postMode == PostLiteral::POST_MODE_UPDATE, "LoadAlign: a stride goes with POST_MODE_UPDATE alone.");
    if (!legal_step(postUpdateStride * static_cast<int64_t>(sizeof(T)), 32, "Reg::LoadAlign", at)) return;
    LoadAlign<T, dist>(dstReg0, dstReg1, srcAddr, at);
    srcAddr = moved(srcAddr, postUpdateStride);
}
template <class T = DefaultType, LoadDist dist, class U, if_register<U> = 0>
inline void LoadAlign(U& dstReg0, U& dstReg1, __ubuf__ T* srcAddr, AddrReg offset, Site at = Site::here()) {
    if (!legal_offset(offset, 32, "Reg::LoadAlign", at)) return;
    LoadAlign<T, dist>(dstReg0, dstReg1, reinterpret_cast<__ubuf__ T*>(number_of(srcAddr) + static_cast<uint64_t>(offset.offset)), at);
}

// ---- StoreAlign ----

template <StoreDist dist, class T, class U>
constexpr void store_exists() {
    constexpr StoreShape shape = store_shape<T>(dist);
    static_assert(std::is_same_v<T, typename U::ActualT>, "StoreAlign: the address and the register have to be of one element type.");
    static_assert(shape.width == sizeof(T) || shape.other == sizeof(T), "StoreAlign: this StoreDist is of elements of another size.");
}

/// The elements of the mask to their places. PACK: the lower half of each (PACK4: the lowest quarter), side by side; unknown
/// for masks with gaps, here every element has its place. FIRST_ELEMENT: the first one, whatever the mask. [page] StoreAlign
template <class T = DefaultType, StoreDist dist = StoreDist::DIST_NORM, class U, if_register<U> = 0>
inline void StoreAlign(__ubuf__ T* dstAddr, U& srcReg, MaskReg& mask, Site at = Site::here()) {
    constexpr StoreShape shape = store_shape<T>(dist);
    store_exists<dist, T, U>();
    static_assert(!shape.dual, "StoreAlign: this StoreDist takes two registers.");
    if (!begin("Reg::StoreAlign", at, mask, shape.lane, 1, true)) return;
    Bits lanes = shape.first ? Bits{{1, 0, 0, 0}} : lanes_of(mask.bits, shape.lane);
    Origin origin = srcReg.origin;
    origin.join(mask.origin);
    if constexpr (shape.lane == shape.keep) {
        need(srcReg, lanes, shape.lane, "Reg::StoreAlign", "src", at);
        const Bits set = whole(lanes, shape.lane);
        put(number_of(dstAddr), srcReg.bytes, 256, set.word, shape.align, srcReg.value, origin, "Reg::StoreAlign", at);
    } else {
        uint8_t packed[128];
        uint64_t set[2] = {0, 0};
        Bits kept;
        for (int lane = 0, to = 0; lane < 256; lane += shape.lane, to += shape.keep) {
            std::memcpy(packed + to, srcReg.bytes + lane, shape.keep);
            if (!lanes[lane]) continue;
            kept.set(lane);
            set[to / 64] |= ((1ull << shape.keep) - 1) << (to % 64);
        }
        need(srcReg, kept, shape.keep, "Reg::StoreAlign", "src", at);
        put(number_of(dstAddr), packed, 256 / shape.lane * shape.keep, set, shape.align, srcReg.value, origin, "Reg::StoreAlign", at);
    }
}
template <class T = DefaultType, PostLiteral postMode, StoreDist dist = StoreDist::DIST_NORM, class U, if_register<U> = 0>
inline void StoreAlign(__ubuf__ T*& dstAddr, U& srcReg, int32_t postUpdateStride, MaskReg& mask, Site at = Site::here()) {
    static_assert(postMode == PostLiteral::POST_MODE_UPDATE, "StoreAlign: a stride goes with POST_MODE_UPDATE alone.");
    if (!legal_step(postUpdateStride * static_cast<int64_t>(sizeof(T)), store_shape<T>(dist).align, "Reg::StoreAlign", at)) return;
    StoreAlign<T, dist>(dstAddr, srcReg, mask, at);
    dstAddr = moved(dstAddr, postUpdateStride);
}
template <class T = DefaultType, StoreDist dist = StoreDist::DIST_NORM, class U, if_register<U> = 0>
inline void StoreAlign(__ubuf__ T* dstAddr, U& srcReg, AddrReg offset, MaskReg& mask, Site at = Site::here()) {
    if (!legal_offset(offset, store_shape<T>(dist).align, "Reg::StoreAlign", at)) return;
    StoreAlign<T, dist>(reinterpret_cast<__ubuf__ T*>(number_of(dstAddr) + static_cast<uint64_t>(offset.offset)), srcReg, mask, at);
}
/// INTLV: elements of the two registers by turns, 512 bytes, whatever the mask.
template <class T = DefaultType, StoreDist dist, class U, if_register<U> = 0>
inline void StoreAlign(__ubuf__ T* dstAddr, U& srcReg0, U& srcReg1, MaskReg& mask, Site at = Site::here()) {
    constexpr StoreShape shape = store_shape<T>(dist);
    store_exists<dist, T, U>();
    static_assert(shape.dual, "StoreAlign: this StoreDist takes one register.");
    if (!begin("Reg::StoreAlign", at, mask, shape.lane, 1, true)) return;
    need(srcReg0, lanes_of(emulator::ALL_BITS, shape.lane), shape.lane, "Reg::StoreAlign", "src0", at);
    need(srcReg1, lanes_of(emulator::ALL_BITS, shape.lane), shape.lane, "Reg::StoreAlign", "src1", at);
    uint8_t both[512];
    for (int lane = 0; lane < 256; lane += shape.lane) {
        std::memcpy(both + 2 * lane, srcReg0.bytes + lane, shape.lane);
        std::memcpy(both + 2 * lane + shape.lane, srcReg1.bytes + lane, shape.lane);
    }
    const uint64_t set[8] = {~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull};
    Origin origin = srcReg0.origin;
    origin.join(srcReg1.origin);
    put(number_of(dstAddr), both, 512, set, shape.align, srcReg0.value, origin, "Reg::StoreAlign", at);
}
template <class T = DefaultType, StoreDist dist, class U, if_register<U> = 0>
inline void StoreAlign(__ubuf__ T* dstAddr, U& srcReg0, U& srcReg1, AddrReg offset, MaskReg& mask, Site at = Site::here()) {
    if (!legal_offset(offset, 32, "Reg::StoreAlign", at)) return;
    StoreAlign<T, dist>(reinterpret_cast<__ubuf__ T*>(number_of(dstAddr) + static_cast<uint64_t>(offset.offset)), srcReg0, srcReg1, mask, at);
}

// ---- Masks ----

/// The 32 bytes of a mask register. [page] MaskReg LoadAlign, StoreAlign; DIST_US, DIST_DS and DIST_PACK are not here.
template <class T, MaskDist dist = MaskDist::DIST_NORM>
inline void LoadAlign(MaskReg& mask, __ubuf__ T* srcAddr, Site at = Site::here()) {
    if (!begin("Reg::LoadAlign(mask)", at, 256, 1)) return;
    Fetched in;
    if (!fetch(in, number_of(srcAddr), 32, 32, 0, "Reg::LoadAlign(mask)", at)) return;
    if (!emulator::require(in.complete, "uninitialised", at, "Reg::LoadAlign(mask)", "the 32 bytes of the mask have not all been written, or are not all in the tensor.")) return;
    std::memcpy(mask.bits.word, in.bytes, sizeof mask.bits.word);
    mask.known = true, mask.origin = in.origin;
}
template <class T, MaskDist dist = MaskDist::DIST_NORM>
inline void StoreAlign(__ubuf__ T* dstAddr, MaskReg& mask, Site at = Site::here()) {
    if (!begin("Reg::StoreAlign(mask)", at, mask, 1, 1, true)) return;
    uint8_t bytes[32];
    std::memcpy(bytes, mask.bits.word, sizeof bytes);
    const uint64_t set = 0xffffffffull;
    put(number_of(dstAddr), bytes, 32, &set, 32, 0, mask.origin, "Reg::StoreAlign(mask)", at);
}

// ---- Unaligned ----

/// 32 bytes that lie before or behind what the unaligned copies move; four of each kind may be alive.
struct UnalignRegForLoad {
    uint8_t bytes[32];
    uint32_t known = 0;
    int64_t block = -1;  // the block of UB that it holds
    Origin origin;
    bool beyond = false;
    explicit UnalignRegForLoad(Site at = Site::here()) { emulator::unaligned_register(0, 1, at); }
    UnalignRegForLoad(const UnalignRegForLoad&) = delete;
    ~UnalignRegForLoad() { emulator::unaligned_register(0, -1, {}); }
};
struct UnalignRegForStore {
    uint8_t bytes[32];
    int count = 0;       // bytes that wait
    int64_t end = 0;     // where the next one goes
    Origin origin;
    Site at;
    explicit UnalignRegForStore(Site at = Site::here()) : at(at) { emulator::unaligned_register(1, 1, at); }
    UnalignRegForStore(const UnalignRegForStore&) = delete;
    ~UnalignRegForStore() {
        emulator::unaligned_register(1, -1, {});
        if (count > 0) emulator::report("argument", at, "Reg::StoreUnAlign: the last " + std::to_string(count) + " bytes stay in the UnalignRegForStore; StoreUnAlignPost is missing.");
    }
};

/// Reads the block of 32 bytes that srcAddr is in. [page] LoadUnAlign
template <class T>
inline void LoadUnAlignPre(UnalignRegForLoad& ureg, __ubuf__ T* srcAddr, Site at = Site::here()) {
    if (!begin("Reg::LoadUnAlignPre", at, 32 / static_cast<int>(sizeof(T)), 1)) return;
    const uint64_t start = number_of(srcAddr), ahead = start % 32;
    Fetched in;
    const emulator::Buffer buffer = emulator::argument_buffer(emulator::tag_of(start));
    // What lies in the block before the tensor is not its own.
    const uint64_t skip = buffer.high >= 0 && emulator::offset_of(start) - static_cast<int64_t>(ahead) < buffer.low && emulator::offset_of(start) >= buffer.low
                              ? static_cast<uint64_t>(buffer.low - emulator::offset_of(start)) + ahead : 0;
    if (!fetch(in, start - ahead + skip, static_cast<int>(32 - skip), 1, 0, "Reg::LoadUnAlignPre", at)) return;
    std::memset(ureg.bytes, 0xff, sizeof ureg.bytes);
    std::memcpy(ureg.bytes + skip, in.bytes, 32 - skip);
    ureg.known = static_cast<uint32_t>(in.known[0] << skip);
    ureg.block = emulator::offset_of(start) / 32, ureg.origin = in.origin, ureg.beyond = in.beyond;
}

/// 256 bytes from srcAddr on: the first from ureg, which then holds the block behind. Takes a Pre, or a LoadUnAlign that
/// ended where this one starts.
template <class T = DefaultType, class U, if_register<U> = 0>
inline void LoadUnAlign(U& dstReg, UnalignRegForLoad& ureg, __ubuf__ T* srcAddr, Site at = Site::here()) {
    static_assert(std::is_same_v<T, typename U::ActualT>, "LoadUnAlign: the address and the register have to be of one element type.");
    if (!begin("Reg::LoadUnAlign", at, LANES<T>, 1)) return;
    const uint64_t start = number_of(srcAddr);
    const int ahead = static_cast<int>(start % 32), head = ahead == 0 ? 0 : 32 - ahead;
    const int64_t block = emulator::offset_of(start) / 32;
    if (!(head == 0 || ureg.block == block) && !emulator::require(false, "argument", at, "Reg::LoadUnAlign", "the UnalignRegForLoad does not hold the 32 bytes that srcAddr is in; LoadUnAlignPre for this address is missing.")) return;
    Fetched tail;  // whole blocks, up to the one that the last byte is in
    const emulator::Buffer buffer = emulator::argument_buffer(emulator::tag_of(start));
    const bool ends_before = head > 0 && buffer.high >= 0 && emulator::offset_of(start) + head >= buffer.high;
    if (!ends_before && !fetch(tail, start + static_cast<uint64_t>(head), 256, 1, dstReg.value, "Reg::LoadUnAlign", at)) return;
    if (ends_before) std::memset(tail.bytes, 0xff, sizeof tail.bytes), tail.beyond = true;
    Register& dst = dstReg;
    std::memcpy(dst.bytes, ureg.bytes + ahead, static_cast<size_t>(head));
    std::memcpy(dst.bytes + head, tail.bytes, static_cast<size_t>(256 - head));
    for (int byte = 0; byte < 256; ++byte) {
        const bool known = byte < head ? (ureg.known >> (ahead + byte) & 1) != 0 : tail.has(byte - head);
        known ? dst.known.set(byte) : dst.known.clear(byte);
    }
    dst.value = emulator::new_value();
    dst.origin = tail.origin;
    if (head > 0) dst.origin.join(ureg.origin);
    dst.filled_by = "Reg::LoadUnAlign", dst.filled_at = at, dst.beyond = tail.beyond || (head > 0 && ureg.beyond);
    if (head > 0) {
        std::memcpy(ureg.bytes, tail.bytes + 224, 32);
        ureg.known = static_cast<uint32_t>(tail.known[3] >> 32);
        ureg.origin = tail.origin, ureg.beyond = tail.beyond;
        ureg.block = block + 8;
    }
}
template <class T = DefaultType, PostLiteral postMode = PostLiteral::POST_MODE_UPDATE, class U, if_register<U> = 0>
inline void LoadUnAlign(U& dstReg, UnalignRegForLoad& ureg, __ubuf__ T*& srcAddr, uint32_t postUpdateStride, Site at = Site::here()) {
    static_assert(postMode == PostLiteral::POST_MODE_UPDATE, "LoadUnAlign: a stride goes with POST_MODE_UPDATE alone.");
    LoadUnAlign<T>(dstReg, ureg, srcAddr, at);
    srcAddr = moved(srcAddr, postUpdateStride);
}

/// The first `postUpdateStride` elements to dstAddr, which moves by them; what does not fill a block of 32 bytes waits in ureg
/// for the next call, or for StoreUnAlignPost. [page] StoreUnAlign
template <class T = DefaultType, PostLiteral postMode = PostLiteral::POST_MODE_UPDATE, class U, if_register<U> = 0>
inline void StoreUnAlign(__ubuf__ T*& dstAddr, U& srcReg, UnalignRegForStore& ureg, uint32_t postUpdateStride, Site at = Site::here()) {
    static_assert(postMode == PostLiteral::POST_MODE_UPDATE, "StoreUnAlign: a stride goes with POST_MODE_UPDATE alone.");
    static_assert(std::is_same_v<T, typename U::ActualT>, "StoreUnAlign: the address and the register have to be of one element type.");
    if (!begin("Reg::StoreUnAlign", at, static_cast<int>(std::min<uint32_t>(postUpdateStride, LANES<T>)), 1, true)) return;
    if (!(postUpdateStride <= LANES<T>) && !emulator::require(false, "argument", at, "Reg::StoreUnAlign", "postUpdateStride is " + std::to_string(postUpdateStride) + " elements; a register has " + std::to_string(LANES<T>) + ".")) return;
    const int64_t start = emulator::offset_of(number_of(dstAddr));
    if (!(ureg.count == 0 || ureg.end == start) && !emulator::require(false, "argument", at, "Reg::StoreUnAlign", "bytes wait in the UnalignRegForStore for address " + std::to_string(ureg.end) + " of UB, and this store begins at " + std::to_string(start) + "; call StoreUnAlignPost before.")) return;
    const int bytes = static_cast<int>(postUpdateStride * sizeof(T));
    need(srcReg, lanes_of(first_lanes<T>(static_cast<int>(postUpdateStride)).bits, sizeof(T)), sizeof(T), "Reg::StoreUnAlign", "src", at);
    uint8_t all[288];
    std::memcpy(all, ureg.bytes, static_cast<size_t>(ureg.count));
    std::memcpy(all + ureg.count, srcReg.bytes, static_cast<size_t>(bytes));
    const int64_t from = start - ureg.count, end = start + bytes;
    const int ready = static_cast<int>(std::max<int64_t>(end / 32 * 32 - from, 0)), rest = ureg.count + bytes - ready;
    Origin origin = srcReg.origin;
    origin.join(ureg.origin);
    uint64_t set[5];
    for (int i = 0; i < 5; ++i) set[i] = ready >= 64 * (i + 1) ? ~0ull : ready > 64 * i ? (1ull << (ready - 64 * i)) - 1 : 0;
    put(number_of(dstAddr) - static_cast<uint64_t>(ureg.count), all, ready, set, 1, srcReg.value, origin, "Reg::StoreUnAlign", at);
    std::memcpy(ureg.bytes, all + ready, static_cast<size_t>(rest));
    ureg.count = rest, ureg.end = end, ureg.at = at;
    ureg.origin = origin;
    dstAddr = moved(dstAddr, postUpdateStride);
}
/// The bytes that wait go to memory; dstAddr, where the last StoreUnAlign ended, moves by `postUpdateStride` elements.
template <class T, PostLiteral postMode = PostLiteral::POST_MODE_UPDATE>
inline void StoreUnAlignPost(__ubuf__ T*& dstAddr, UnalignRegForStore& ureg, int32_t postUpdateStride, Site at = Site::here()) {
    static_assert(postMode == PostLiteral::POST_MODE_UPDATE, "StoreUnAlignPost: a stride goes with POST_MODE_UPDATE alone.");
    if (!begin("Reg::StoreUnAlignPost", at, ureg.count / static_cast<int>(sizeof(T)), 1, true)) return;
    const int64_t start = emulator::offset_of(number_of(dstAddr));
    if (!(ureg.count == 0 || ureg.end == start) && !emulator::require(false, "argument", at, "Reg::StoreUnAlignPost", "dstAddr is byte " + std::to_string(start) + " of UB, and the bytes that wait end at " + std::to_string(ureg.end) + "; give the address as the last StoreUnAlign left it.")) return;
    const uint64_t set = (1ull << ureg.count) - 1;
    const int count = ureg.count;
    ureg.count = 0;
    put(number_of(dstAddr) - static_cast<uint64_t>(count), ureg.bytes, count, &set, 1, 0, ureg.origin, "Reg::StoreUnAlignPost", at);
    ureg.origin = {};
    dstAddr = moved(dstAddr, postUpdateStride);
}

/// 256 bytes from any address. [page] Load: a Pre and a LoadUnAlign
template <class T = DefaultType, class U, if_register<U> = 0>
inline void Load(U& dstReg, __ubuf__ T* srcAddr, Site at = Site::here()) {
    UnalignRegForLoad ureg(at);
    LoadUnAlignPre<T>(ureg, srcAddr, at);
    LoadUnAlign<T>(dstReg, ureg, srcAddr, at);
}
/// The first `count` elements to any address. [page] Store: a StoreUnAlign and a Post
template <class T = DefaultType, class U, if_register<U> = 0>
inline void Store(__ubuf__ T* dstAddr, U& srcReg, uint32_t count, Site at = Site::here()) {
    UnalignRegForStore ureg(at);
    StoreUnAlign<T>(dstAddr, srcReg, ureg, count, at);
    StoreUnAlignPost<T>(dstAddr, ureg, 0, at);
}
template <class T = DefaultType, class U, if_register<U> = 0>
inline void Store(__ubuf__ T* dstAddr, U& srcReg, Site at = Site::here()) {
    Store<T>(dstAddr, srcReg, static_cast<uint32_t>(LANES<T>), at);
}

// ---- Gather ----

template <class D, class S, class I>
constexpr bool gather_exists() {
    constexpr bool widened = (std::is_same_v<D, int16_t> && std::is_same_v<S, int8_t>) || (std::is_same_v<D, uint16_t> && std::is_same_v<S, uint8_t>);
    constexpr bool small = widened || (std::is_same_v<D, S> && types_impl::in<D>(types_impl::List<int16_t, uint16_t, half, bfloat16_t>{}));
    constexpr bool large = std::is_same_v<D, S> && types_impl::in<D>(types_impl::List<int32_t, uint32_t, float>{});
    return (small && std::is_same_v<I, uint16_t>) || (large && std::is_same_v<I, uint32_t>);
}

/// dst[i] = base[index[i]]; bytes come as numbers of 16 bits with 0 above. Unknown: what the mask holds back; here 0.
/// [page] Gather (from UB)
template <class T0 = DefaultType, class T1, class T2 = DefaultType, class T3, class T4, if_register<T3> = 0>
inline void Gather(T3& dstReg, __ubuf__ T1* baseAddr, T4& index, MaskReg& mask, Site at = Site::here()) {
    using D = typename T3::ActualT;
    using I = typename T4::ActualT;
    named<T0, D>(), named<T2, I>();
    static_assert(gather_exists<D, T1, I>(), "Reg::Gather: dav-3510 has elements of 16 bits (or bytes that become such) by uint16_t and of 32 bits by uint32_t.");
    const char* const call = "Reg::Gather";
    if (!begin(call, at, mask, sizeof(D), 2, true)) return;
    if (!emulator::require(number_of(baseAddr) % 32 == 0, "alignment", at, call, "baseAddr is not a multiple of 32 bytes.")) return;
    const Bits lanes = lanes_of(mask.bits, sizeof(D));
    need(index, lanes, sizeof(I), call, "index", at);
    const Values<I> places(index);
    Register out;
    out.known = emulator::ALL_BITS;
    std::memset(out.bytes, 0, sizeof out.bytes);
    Origin origin = index.origin;
    origin.join(mask.origin);
    for (int lane = 0; lane < LANES<D>; ++lane) {
        const int byte = lane * static_cast<int>(sizeof(D));
        if (!lanes[byte]) continue;
        Fetched in;
        if (!fetch(in, number_of(moved(baseAddr, static_cast<int64_t>(places.v[lane]))), sizeof(T1), 1, dstReg.value, call, at)) return;
        std::memcpy(out.bytes + byte, in.bytes, sizeof(T1));
        origin.join(in.origin);
        if (!in.complete) out.known.clear(byte);
    }
    out.origin = origin, out.filled_by = call, out.filled_at = at;
    static_cast<Register&>(dstReg) = out;
}

}  // namespace AscendC::Reg
