// What the advanced calls share: working memory, and the order between the instructions that they are made of.
//
// The pages say that these calls take working memory, the caller's or what the TPipe has not given away, and that its size
// comes from a host function. What the host function answers is not documented, and neither is how large a part a call does
// at a time: here it is as much as the working memory holds, and the least is what the smallest part takes. An address is a
// multiple of 32 bytes ([Common]).
#pragma once

#include <initializer_list>

#include "pipe.h"
#include "vector_cast.h"
#include "vector_layout.h"
#include "vector_reduce.h"
#include "vector_scalar.h"

namespace AscendC {

namespace emu {

constexpr int32_t refused_tag = -1;
inline bool refused(const LocalTensor<uint8_t>& room) { return room.GetUserTag() == refused_tag; }

/// UB that the TPipe has not given away. Without a TPipe it is refused, and the call does nothing.
inline LocalTensor<uint8_t> free_room(const char* call, Site at) {
    const TPipe* const pipe = GetTPipePtr();
    if (!emulator::require(pipe != nullptr, "queue", at, call, "it takes its working memory from the TPipe, and none is alive; pass sharedTmpBuffer.")) {
        LocalTensor<uint8_t> none;
        none.SetUserTag(refused_tag);
        return none;
    }
    const int64_t used = std::min<int64_t>(pipe->used(emulator::Space::UB), emulator::core().capacity[static_cast<int>(emulator::Space::UB)]);
    return LocalTensor<uint8_t>::make(TPosition::VECCALC, emulator::Space::UB, used, emulator::core().capacity[static_cast<int>(emulator::Space::UB)] - used, 0);
}

/// Working memory as tensors of floats one behind the other, of so many elements each.
class Room {
   public:
    Room(const char* call, Site at, const LocalTensor<uint8_t>& memory, std::initializer_list<int64_t> elements) : memory_(memory) {
        int64_t need = 0;
        for (const int64_t one : elements) {
            begins_.push_back(need);
            need += (one * 4 + 255) / 256 * 256;
        }
        fits_ = !refused(memory) && emulator::require(static_cast<int64_t>(memory.GetSize()) >= need, "out_of_bounds", at, call, "the working memory has " + std::to_string(memory.GetSize()) + " bytes; it takes " + std::to_string(need) + " at least.") &&
                emulator::require(memory.address() % 32 == 0, "alignment", at, call, "the working memory starts at byte " + std::to_string(memory.address()) + " of UB; its address has to be a multiple of 32.");
    }
    bool fits() const { return fits_; }
    LocalTensor<float> operator[](size_t part) const { return memory_[begins_[part]].ReinterpretCast<float>(); }
    /// Elements of each of `parts` parts of the whole memory: 64 at least, and no more than `count` asks for.
    static int64_t share(const LocalTensor<uint8_t>& memory, int64_t parts, int64_t count) {
        return std::min(std::max<int64_t>(memory.GetSize() / parts / 256, 1), (count + 63) / 64) * 64;
    }

   private:
    LocalTensor<uint8_t> memory_;
    std::vector<int64_t> begins_;
    bool fits_ = false;
};

/// What follows on the vector pipe sees what was done.
inline void then(Site at) { emulator::order_pipe(emulator::Pipe::V, at); }

/// "Not supported: addresses that overlap."
template <class A, class B>
bool legal_overlap(const char* call, Site at, const LocalTensor<A>& a, int64_t a_bytes, const LocalTensor<B>& b, int64_t b_bytes, const char* which) {
    return emulator::require(a.address() + a_bytes <= b.address() || b.address() + b_bytes <= a.address(), "argument", at, call, std::string(which) + " overlap; they have to be apart.");
}

template <class T>
constexpr bool half_or_float = std::is_same_v<T, half> || std::is_same_v<T, float>;

/// src as floats: itself, or cast into `room`.
template <class T>
LocalTensor<float> floats_of(const LocalTensor<T>& src, const LocalTensor<float>& room, int64_t count, Site at) {
    if constexpr (std::is_same_v<T, float>) {
        return src;
    } else {
        Cast(room, src, RoundMode::CAST_NONE, static_cast<uint32_t>(count), at);
        then(at);
        return room;
    }
}
/// dst = floats: where they were put already, or cast.
template <class T>
void store_floats(const LocalTensor<T>& dst, const LocalTensor<float>& floats, int64_t count, Site at) {
    if constexpr (!std::is_same_v<T, float>) {
        then(at);
        Cast(dst, floats, RoundMode::CAST_RINT, static_cast<uint32_t>(count), at);
    }
}
/// Where floats for dst are calculated: dst itself, or `room`.
template <class T>
LocalTensor<float> place_for(const LocalTensor<T>& dst, const LocalTensor<float>& room) {
    if constexpr (std::is_same_v<T, float>) return dst;
    else return room;
}

}  // namespace emu

}  // namespace AscendC
