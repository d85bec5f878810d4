// LocalTensor and GlobalTensor: an address, a length, and the buffer they have to stay in.
#pragma once

#include <algorithm>
#include <cstring>

#include "base.h"

namespace AscendC {

namespace emu {

/// An index with the line it stands on, so that a mutation test can shift it.
struct Index {
    int64_t value;
    Site at;
    template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer> || std::is_enum_v<Integer>>>
    Index(Integer value, Site at = Site::here()) : value(static_cast<int64_t>(value)), at(at) {}
};

/// Elements moved by a mutated offset: one block of 32 bytes.
template <class T>
int64_t shifted(const Index& index, int detail) {
    return index.value + (emulator::mutated("offset", index.at, detail) ? static_cast<int64_t>(32 / sizeof(T)) : 0);
}

// Operators on whole tensors, and what they stand for.
#define EMULATOR_OPERATORS(X)                                                                                                              \
    X(+, WholeAdd) X(-, WholeSub) X(*, WholeMul) X(/, WholeDiv) X(&, WholeAnd) X(|, WholeOr)                                               \
    X(<, WholeLess) X(>, WholeGreater) X(<=, WholeLessEqual) X(>=, WholeGreaterEqual) X(==, WholeEqual) X(!=, WholeNotEqual)
#define EMULATOR_OPERATION(op, Name) struct Name;
EMULATOR_OPERATORS(EMULATOR_OPERATION)
#undef EMULATOR_OPERATION

/// dst = src0 op src1 over whole tensors, see vector_operators.h. `Operation::run` does it.
template <class Operation, class Tensor>
struct Whole {
    Tensor src0, src1;
    Site at;
};

}  // namespace emu

struct ShapeInfo {};

template <class T>
class LocalTensor {
   public:
    using PrimType = T;

    LocalTensor() = default;
    /// A tensor of `count` elements at a byte address, without a TPipe. Source: LocalTensor constructors of the static
    /// programming model.
    LocalTensor(TPosition position, uint32_t address, uint32_t count)
        : space_(emu::space_of(position)), position_(position), address_(address), count_(count), low_(address),
          high_(address + static_cast<int64_t>(count) * static_cast<int64_t>(sizeof(T))) {}

    T GetValue(uint32_t index, Site at = Site::here()) const {
        T value{};
        if (scalar_reaches("GetValue", at) && emulator::scalar_access(access(emulator::Access::Kind::Read, "src", index, 1, 1), "GetValue", at))
            std::memcpy(&value, host(index), sizeof(T));
        return value;
    }
    template <class V>
    void SetValue(uint32_t index, V value, Site at = Site::here()) const {
        const T stored = static_cast<T>(value);
        if (scalar_reaches("SetValue", at) && emulator::scalar_access(access(emulator::Access::Kind::Write, "dst", index, 1, 1), "SetValue", at))
            std::memcpy(host(index), &stored, sizeof(T));
    }

    /// Reads as GetValue, assigns as SetValue.
    class Element {
       public:
        operator T() const { return tensor_.GetValue(index_, at_); }
        Element& operator=(T value) { tensor_.SetValue(index_, value, at_); return *this; }
        Element& operator=(const Element& other) { return *this = static_cast<T>(other); }

       private:
        friend class LocalTensor;
        Element(const LocalTensor& tensor, uint32_t index, Site at) : tensor_(tensor), index_(index), at_(at) {}
        const LocalTensor tensor_;
        uint32_t index_;
        Site at_;
    };
    Element operator()(uint32_t index, Site at = Site::here()) const { return Element(*this, index, at); }

    LocalTensor operator[](emu::Index index) const {
        LocalTensor out = *this;
        const int64_t offset = emu::shifted<T>(index, 0);
        out.address_ += offset * static_cast<int64_t>(sizeof(T));
        out.count_ = offset < count_ ? static_cast<uint32_t>(count_ - offset) : 0;
        return out;
    }
    template <class U>
    LocalTensor<U> ReinterpretCast() const {
        LocalTensor<U> out;
        out.space_ = space_, out.position_ = position_, out.address_ = address_, out.low_ = low_, out.high_ = high_;
        out.allocation_ = allocation_;
        out.count_ = static_cast<uint32_t>(static_cast<uint64_t>(count_) * sizeof(T) / sizeof(U));
        return out;
    }

    template <class Operation, class Tensor>
    LocalTensor& operator=(const emu::Whole<Operation, Tensor>& whole) {
        Operation::run(*this, whole.src0, whole.src1, whole.at);
        return *this;
    }
    /// The right side of such an operator, with the line it stands on.
    struct Right {
        LocalTensor tensor;
        Site at;
        Right(const LocalTensor& tensor, Site at = Site::here()) : tensor(tensor), at(at) {}
    };
#define EMULATOR_OPERATOR(op, Name) \
    friend emu::Whole<emu::Name, LocalTensor> operator op(const LocalTensor& src0, const Right& src1) { return {src0, src1.tensor, src1.at}; }
    EMULATOR_OPERATORS(EMULATOR_OPERATOR)
#undef EMULATOR_OPERATOR

    uint32_t GetSize() const { return count_; }
    uint32_t GetLength() const { return count_ * static_cast<uint32_t>(sizeof(T)); }
    void SetSize(uint32_t count) { count_ = count; }
    void SetBufferLen(uint32_t bytes) { count_ = bytes / static_cast<uint32_t>(sizeof(T)); }
    int32_t GetPosition() const { return static_cast<int32_t>(position_); }
    template <class U>
    void SetAddrWithOffset(const LocalTensor<U>& source, uint32_t offset) {
        *this = source.template ReinterpretCast<T>();
        address_ += static_cast<int64_t>(offset) * static_cast<int64_t>(sizeof(T));
    }
    void SetShapeInfo(const ShapeInfo&) {}
    void SetUserTag(int32_t tag) { tag_ = tag; }
    int32_t GetUserTag() const { return tag_; }

    /// An address of local memory as register instructions take it. Nothing can be read through it directly.
    __ubuf__ T* GetPhyAddr() const {
        if (is_3510) emulator::address_taken({space_, low_, high_, allocation_});
        return reinterpret_cast<T*>(emulator::pointer_of(space_, address_));
    }
    __ubuf__ T* GetPhyAddr(uint32_t index) const { return GetPhyAddr() + index; }

    // ---- for the emulator ----
    emulator::Space space() const { return space_; }
    TPosition position() const { return position_; }
    int64_t address() const { return address_; }
    uint32_t allocation() const { return allocation_; }
    int64_t low() const { return low_; }
    int64_t high() const { return high_; }
    /// Host address of an element, in the memory of the core whose code is running.
    T* host(int64_t index = 0) const {
        return reinterpret_cast<T*>(emulator::core().local(space_, address_ + index * static_cast<int64_t>(sizeof(T))));
    }
    /// `count` elements from `index` on.
    emulator::Access access(emulator::Access::Kind kind, const char* operand, int64_t index, int64_t count, uint32_t align = 32) const {
        return bytes(kind, operand, index * static_cast<int64_t>(sizeof(T)), count * static_cast<int64_t>(sizeof(T)), align);
    }
    emulator::Access bytes(emulator::Access::Kind kind, const char* operand, int64_t offset, int64_t bytes, uint32_t align = 32) const {
        emulator::Access out;
        out.space = space_, out.kind = kind, out.operand = operand, out.begin = address_ + offset, out.bytes = bytes;
        out.low = low_, out.high = high_, out.allocation = allocation_, out.align = align;
        return out;
    }
    static LocalTensor make(TPosition position, emulator::Space space, int64_t address, int64_t bytes, uint32_t allocation) {
        LocalTensor out;
        out.space_ = space, out.position_ = position, out.address_ = address, out.low_ = address, out.high_ = address + bytes;
        out.count_ = static_cast<uint32_t>(bytes / static_cast<int64_t>(sizeof(T)));
        out.allocation_ = allocation;
        return out;
    }

   private:
    template <class U>
    friend class LocalTensor;
    bool scalar_reaches(const char* call, Site at) const {
        return emulator::require(space_ == emulator::Space::UB, "wrong_core", at, call, "the scalar reaches tensors at VECIN, VECCALC and VECOUT only.");
    }
    emulator::Space space_ = emulator::Space::UB;
    TPosition position_ = TPosition::VECCALC;
    int64_t address_ = 0;
    uint32_t count_ = 0;
    int64_t low_ = 0, high_ = 0;
    uint32_t allocation_ = 0;
    int32_t tag_ = 0;
};

enum class CacheMode : uint8_t { CACHE_MODE_DISABLE, CACHE_MODE_NORMAL, CACHE_MODE_LAST, CACHE_MODE_PERSISTENT };
enum class CacheRwMode : uint8_t { READ = 1, WRITE = 2, RW = 3 };

template <class T>
class GlobalTensor {
   public:
    using PrimType = T;

    /// `count` 0: as far as the tensor of the launch goes.
    void SetGlobalBuffer(__gm__ T* buffer, uint64_t count = 0) {
        address_ = reinterpret_cast<uint64_t>(buffer);
        count_ = count;
        low_ = static_cast<int64_t>(address_);
        high_ = count ? low_ + static_cast<int64_t>(count * sizeof(T)) : -1;
    }
    const __gm__ T* GetPhyAddr() const { return reinterpret_cast<const T*>(address_); }
    __gm__ T* GetPhyAddr(uint64_t index) const { return reinterpret_cast<T*>(address_) + index; }
    T GetValue(uint64_t index, Site at = Site::here()) const {
        T value{};
        emulator::scalar_global(address_ + index * sizeof(T), &value, sizeof(T), false, at, "GetValue", low_, high_);
        return value;
    }
    template <class V>
    void SetValue(uint64_t index, V value, Site at = Site::here()) const {
        T stored = static_cast<T>(value);
        emulator::scalar_global(address_ + index * sizeof(T), &stored, sizeof(T), true, at, "SetValue", low_, high_);
    }
    T operator()(uint64_t index, Site at = Site::here()) const { return GetValue(index, at); }
    GlobalTensor operator[](emu::Index index) const {
        GlobalTensor out = *this;
        const int64_t offset = emu::shifted<T>(index, 1);
        out.address_ += static_cast<uint64_t>(offset * static_cast<int64_t>(sizeof(T)));
        out.count_ = count_ > static_cast<uint64_t>(offset) ? count_ - static_cast<uint64_t>(offset) : 0;
        return out;
    }
    uint64_t GetSize() const { return count_; }
    void SetShapeInfo(const ShapeInfo&) {}
    template <CacheRwMode mode = CacheRwMode::RW>
    void SetL2CacheHint(CacheMode) {}

    // ---- for the emulator ----
    uint64_t address() const { return address_; }
    emulator::Access bytes(emulator::Access::Kind kind, const char* operand, int64_t offset, int64_t bytes, uint32_t align = 1) const {
        emulator::Access out;
        out.space = emulator::Space::GM, out.kind = kind, out.operand = operand;
        out.begin = static_cast<int64_t>(address_) + offset, out.bytes = bytes;
        out.low = low_, out.high = high_, out.align = align;
        return out;
    }
    uint8_t* host(int64_t offset = 0) const { return emulator::global(address_ + static_cast<uint64_t>(offset), nullptr); }
    /// The same place as bytes, for code that needs no type.
    GlobalTensor<uint8_t> raw() const {
        GlobalTensor<uint8_t> out;
        out.address_ = address_, out.count_ = count_ * sizeof(T), out.low_ = low_, out.high_ = high_;
        return out;
    }

   private:
    template <class U>
    friend class GlobalTensor;
    uint64_t address_ = 0, count_ = 0;
    int64_t low_ = 0, high_ = -1;
};

}  // namespace AscendC
