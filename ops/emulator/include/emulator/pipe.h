// TPipe, TQue and TBuf: who owns which bytes of local memory, and the flags that queues set and wait for.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "sync.h"

namespace AscendC {

namespace emu {

/// What a queue keeps; the pipe keeps it too, to settle it when the pipe ends before the queue.
struct QueueState {
    enum class Status : uint8_t { Free, Taken, Queued, Dequeued };
    struct Buffer {
        int64_t address = 0;
        Status status = Status::Free;
        int enque_event = -1, free_event = -1;
        emulator::Pipe from = emulator::Pipe::V, to = emulator::Pipe::V;  // of enque_event
        uint32_t allocation = 0;
    };
    std::vector<Buffer> buffers;
    std::deque<size_t> fifo;
    size_t next = 0;
    int64_t bytes = 0;
    emulator::Space space = emulator::Space::UB;
    TPosition position = TPosition::VECCALC;
    emulator::Pipe producer = emulator::Pipe::V, consumer = emulator::Pipe::V;
    int depth = 1;
    std::shared_ptr<int> held;  // tensors of all queues at this position that AllocTensor has given and FreeTensor not got
    bool settled = false;
    Site at;

    /// Takes the flag that FreeTensor set, if it did.
    void take_free_event(Buffer& buffer, Site where, const char* call) {
        if (buffer.free_event < 0) return;
        emulator::wait_flag(consumer, producer, buffer.free_event, where, call);
        emulator::release_event(consumer, producer, buffer.free_event, where);
        buffer.free_event = -1;
    }

    /// The end of the queue: waits for the flags that FreeTensor set and nothing took.
    void settle() {
        if (settled) return;
        settled = true;
        for (Buffer& buffer : buffers) {
            take_free_event(buffer, at, "TQue's end");
            if (buffer.status != Status::Free)
                emulator::report("queue", at,
                                 std::string("a tensor of the queue made here is not freed when its pipe ends: ") +
                                     (buffer.status == Status::Queued ? "it was enqueued and never dequeued" : "FreeTensor is missing") + ".");
        }
    }
};

constexpr int64_t in_blocks_of_32(uint32_t bytes) { return (static_cast<int64_t>(bytes) + 31) / 32 * 32; }

/// The buffers of a queue, at the addresses that take(bytes) gives.
template <class Take>
void lay_out(QueueState& q, int count, int64_t bytes, std::shared_ptr<int> held, Site at, Take take) {
    q.at = at;
    q.settled = false;
    q.buffers.clear(), q.fifo.clear(), q.next = 0;
    q.held = std::move(held);
    q.bytes = bytes;
    const bool alias = count > 1 && emulator::mutated("buffer_alias", at);
    for (int i = 0; i < count; ++i) {
        QueueState::Buffer buffer;
        buffer.address = alias && i > 0 ? q.buffers[0].address : take(bytes);
        q.buffers.push_back(buffer);
    }
    if (emulator::mutated("buffer", at)) q.bytes -= 32;
}

/// The pipes that fill and read a buffer at a position. Source: the queue types of TQueBind.
constexpr emulator::Pipe producer_of(TPosition source, TPosition destination) {
    if (source == TPosition::GM) return emulator::Pipe::MTE2;
    switch (source) {
        case TPosition::VECIN: return emulator::Pipe::MTE2;
        case TPosition::A1: case TPosition::B1: case TPosition::C1: return destination == TPosition::GM ? emulator::Pipe::MTE2 : emulator::Pipe::MTE1;
        case TPosition::CO1: return emulator::Pipe::M;
        default: return emulator::Pipe::V;
    }
}
constexpr emulator::Pipe consumer_of(TPosition source, TPosition destination) {
    switch (destination) {
        case TPosition::GM: return source == TPosition::CO1 ? emulator::Pipe::FIX : emulator::Pipe::MTE3;
        case TPosition::VECOUT: return emulator::Pipe::MTE3;
        case TPosition::A1: case TPosition::B1: case TPosition::C1: case TPosition::TSCM: return emulator::Pipe::MTE1;
        case TPosition::A2: case TPosition::B2: case TPosition::C2: return emulator::Pipe::M;
        case TPosition::CO2: return emulator::Pipe::FIX;
        default: return emulator::Pipe::V;
    }
}

}  // namespace emu

template <TPosition pos, uint32_t bufIDSize>
class TBufPool;

template <TPosition source, TPosition destination, int32_t depth, auto mask = 0>
class TQueBind {
   public:
    TQueBind() : state_(std::make_shared<emu::QueueState>()) {
        state_->producer = emu::producer_of(source, destination);
        state_->consumer = emu::consumer_of(source, destination);
        state_->depth = depth;
        state_->position = source == TPosition::GM ? destination : source;
        if (source == TPosition::A1 || source == TPosition::B1 || source == TPosition::C1) state_->position = destination == TPosition::GM ? source : destination;
        state_->space = emu::space_of(state_->position);
    }
    TQueBind(const TQueBind&) = default;

    template <class T>
    LocalTensor<T> AllocTensor(Site at = Site::here()) {
        static_assert(depth != 0, "AllocTensor: a queue of depth 0 works in place; take AllocTensor(tensor)");
        return allocate<T>(at);
    }
    template <class T>
    void AllocTensor(LocalTensor<T>& out, Site at = Site::here()) {
        static_assert(depth == 0, "AllocTensor(tensor): only a queue of depth 0 works in place");
        out = allocate<T>(at);
    }

    template <class T>
    bool EnQue(const LocalTensor<T>& tensor, Site at = Site::here()) { return enqueue(tensor, state_->producer, state_->consumer, at); }
    /// For a queue of both VECIN and VECOUT: GM, VECIN behind the copy in, VECOUT, GM behind the calculation.
    template <TPosition from, TPosition to, class T>
    bool EnQue(const LocalTensor<T>& tensor, Site at = Site::here()) { return enqueue(tensor, emu::producer_of(from, to), emu::consumer_of(from, to), at); }

    template <class T>
    LocalTensor<T> DeQue(Site at = Site::here()) {
        static_assert(depth != 0, "DeQue: a queue of depth 0 works in place; take DeQue(tensor)");
        return dequeue<T>(at);
    }
    template <TPosition from, TPosition to, class T>
    LocalTensor<T> DeQue(Site at = Site::here()) { return DeQue<T>(at); }
    template <class T>
    void DeQue(LocalTensor<T>& out, Site at = Site::here()) {
        static_assert(depth == 0, "DeQue(tensor): only a queue of depth 0 works in place");
        out = dequeue<T>(at);
    }

    template <class T>
    void FreeTensor(const LocalTensor<T>& tensor, Site at = Site::here()) {
        emu::QueueState& q = *state_;
        const size_t number = find(tensor.low());
        if (number == q.buffers.size()) {
            emulator::report("queue", at, "FreeTensor: the tensor is not of this queue.");
            return;
        }
        auto& buffer = q.buffers[number];
        if (buffer.status == emu::QueueState::Status::Free || buffer.status == emu::QueueState::Status::Queued || buffer.allocation != tensor.allocation()) {
            emulator::report("double_free", at, "FreeTensor: the tensor was freed before, or is in the queue.");
            return;
        }
        emulator::allocation_end(buffer.allocation, at, "FreeTensor");
        buffer.allocation = 0;
        buffer.status = emu::QueueState::Status::Free;
        --*q.held;
        if (q.producer == q.consumer || emulator::mutated("free", at)) return;
        buffer.free_event = emulator::allocate_event(q.consumer, q.producer, at);
        if (buffer.free_event >= 0) emulator::set_flag(q.consumer, q.producer, buffer.free_event, at, "FreeTensor");
    }

    /// Takes the flags of the freed buffers, so that other queues have their event ids.
    void FreeAllEvent(Site at = Site::here()) {
        for (auto& buffer : state_->buffers) state_->take_free_event(buffer, at, "FreeAllEvent");
    }

    bool VacantInQue() const { return static_cast<int>(state_->fifo.size()) < (depth == 0 ? 1 : depth); }
    bool HasTensorInQue() const { return !state_->fifo.empty(); }
    int32_t GetTensorCountInQue() const { return static_cast<int32_t>(state_->fifo.size()); }
    bool HasIdleBuffer() const {
        return std::any_of(state_->buffers.begin(), state_->buffers.end(), [](const auto& buffer) { return buffer.status == emu::QueueState::Status::Free; });
    }

   private:
    friend class TPipe;
    template <TPosition pool, uint32_t buffers>
    friend class TBufPool;
    template <class T>
    LocalTensor<T> allocate(Site at) {
        emu::QueueState& q = *state_;
        if (q.buffers.empty()) {
            emulator::report("queue", at, "AllocTensor: the queue has no buffers; call TPipe::InitBuffer first.");
            return {};
        }
        for (size_t i = 0; i < q.buffers.size(); ++i) {
            const size_t number = (q.next + i) % q.buffers.size();
            auto& buffer = q.buffers[number];
            if (buffer.status != emu::QueueState::Status::Free) continue;
            q.next = number + 1;
            q.take_free_event(buffer, at, "AllocTensor");
            buffer.status = emu::QueueState::Status::Taken;
            if (++*q.held > 8)
                emulator::report("event_id", at, "AllocTensor: more than 8 tensors of queues at one position are held at a time, and each needs an event id; free some first, or put several parts into one buffer.");
            return tensor<T>(buffer, at);
        }
        emulator::report("queue", at, "AllocTensor: all " + std::to_string(q.buffers.size()) + " buffers of the queue are in use; free one first, or give InitBuffer more.");
        return LocalTensor<T>::make(q.position, q.space, q.buffers[0].address, q.bytes, q.buffers[0].allocation);
    }

    template <class T>
    bool enqueue(const LocalTensor<T>& tensor, emulator::Pipe from, emulator::Pipe to, Site at) {
        emu::QueueState& q = *state_;
        const size_t number = find(tensor.low());
        if (number == q.buffers.size() || q.buffers[number].status == emu::QueueState::Status::Free || q.buffers[number].status == emu::QueueState::Status::Queued) {
            emulator::report("queue", at, "EnQue: the tensor was not taken from this queue with AllocTensor, or is in it already.");
            return false;
        }
        const size_t room = depth == 0 ? q.buffers.size() : static_cast<size_t>(depth);
        if (q.fifo.size() >= room) {
            emulator::report("queue", at, "EnQue: the queue holds " + std::to_string(q.fifo.size()) + " tensors, its depth is " + std::to_string(room) + "; dequeue one first, or declare a larger depth.");
            return false;
        }
        auto& buffer = q.buffers[number];
        if (buffer.allocation) emulator::allocation_end(buffer.allocation, at, "EnQue");
        if (!emulator::mutated("enque", at)) {
            buffer.from = from, buffer.to = to;
            if (from == to) {
                emulator::barrier(from, at);
            } else {
                buffer.enque_event = emulator::allocate_event(from, to, at);
                if (buffer.enque_event >= 0) emulator::set_flag(from, to, buffer.enque_event, at, "EnQue");
            }
        }
        buffer.status = emu::QueueState::Status::Queued;
        q.fifo.push_back(number);
        return true;
    }

    template <class T>
    LocalTensor<T> dequeue(Site at) {
        emu::QueueState& q = *state_;
        if (q.fifo.empty()) {
            emulator::report("queue", at, "DeQue: the queue is empty; EnQue a tensor first.");
            return {};
        }
        auto& buffer = q.buffers[q.fifo.front()];
        q.fifo.pop_front();
        if (buffer.enque_event >= 0) {
            emulator::wait_flag(buffer.from, buffer.to, buffer.enque_event, at, "DeQue");
            emulator::release_event(buffer.from, buffer.to, buffer.enque_event, at);
            buffer.enque_event = -1;
        }
        buffer.status = emu::QueueState::Status::Dequeued;
        return tensor<T>(buffer, at);
    }
    template <class T>
    LocalTensor<T> tensor(emu::QueueState::Buffer& buffer, Site at) {
        buffer.allocation = emulator::allocation_begin(state_->space, buffer.address, state_->bytes, at);
        return LocalTensor<T>::make(state_->position, state_->space, buffer.address, state_->bytes, buffer.allocation);
    }
    size_t find(int64_t address) const {
        // Buffers of a queue may share an address in a mutation test: take the one that is in use.
        size_t found = state_->buffers.size();
        for (size_t i = 0; i < state_->buffers.size(); ++i)
            if (state_->buffers[i].address == address && (found == state_->buffers.size() || state_->buffers[i].status != emu::QueueState::Status::Free)) found = i;
        return found;
    }
    std::shared_ptr<emu::QueueState> state_;
};

namespace emu {

/// Where a queue of one position gets its tensors from, or takes them to.
constexpr TPosition source_of(TPosition position) {
    switch (position) {
        case TPosition::VECOUT: case TPosition::CO1: case TPosition::VECCALC: case TPosition::CO2: return position;
        case TPosition::A2: return TPosition::A1;
        case TPosition::B2: return TPosition::B1;
        case TPosition::C2: return TPosition::C1;
        default: return TPosition::GM;
    }
}
constexpr TPosition destination_of(TPosition position) {
    switch (position) {
        case TPosition::VECOUT: case TPosition::CO1: case TPosition::CO2: return TPosition::GM;
        default: return position;
    }
}

}  // namespace emu

template <TPosition position, int32_t depth, auto mask = 0>
class TQue : public TQueBind<emu::source_of(position), emu::destination_of(position), depth, mask> {};

template <TPosition position>
class TBuf {
   public:
    template <class T>
    LocalTensor<T> Get() const { return LocalTensor<T>::make(position, emu::space_of(position), address_, bytes_, 0); }
    template <class T>
    LocalTensor<T> Get(uint32_t count) const {
        LocalTensor<T> out = Get<T>();
        out.SetSize(count);
        return out;
    }
    template <class T>
    LocalTensor<T> GetWithOffset(uint32_t count, uint32_t offset) const {
        LocalTensor<T> out = Get<uint8_t>()[offset].template ReinterpretCast<T>();
        out.SetSize(count);
        return out;
    }

    // ---- for the emulator ----
    void lay_out(int64_t address, int64_t bytes, Site at) {
        address_ = address, bytes_ = bytes;
        if (emulator::mutated("buffer", at)) bytes_ -= 32;
    }

   private:
    int64_t address_ = 0, bytes_ = 0;
};

class TPipe {
   public:
    TPipe(Site at = Site::here()) { Init(at); }
    TPipe(const TPipe&) = delete;
    ~TPipe() noexcept(false) { Destroy(made_); }  // the destructor waits, and a launch that hangs is left by an exception

    void Init(Site at = Site::here()) {
        emulator::Core& core = emulator::core();
        made_ = at;
        const bool nested = core.pipe_object != nullptr && core.pipe_object != this;
        if (nested)
            emulator::report("nested_pipe", at, "TPipe: another TPipe of this core is alive; a kernel has one at a time. Destroy the other first.");
        if (core.pipe_made && !nested)
            for (int i = 1; i < static_cast<int>(emulator::Space::Count); ++i) emulator::poison(static_cast<emulator::Space>(i));
        core.pipe_object = this;
        core.pipe_made = true;
        std::fill(std::begin(used_), std::end(used_), 0);
        buffers_ = 0;
        for (auto& held : held_) held = std::make_shared<int>(0);
    }
    /// Everything is as it was at the start; work that is under way is not waited for.
    void Reset(Site at = Site::here()) {
        settle();
        Init(at);
    }
    void DestroyWithoutPipeAll() {
        settle();
        if (emulator::core().pipe_object == this) emulator::core().pipe_object = nullptr;
    }
    /// Waits for all pipes too.
    void Destroy(Site at = Site::here()) {
        const bool alive = emulator::core().pipe_object == this;
        DestroyWithoutPipeAll();
        if (alive) emulator::drain_pipes(at);
    }

    template <TPosition source, TPosition destination, int32_t depth, auto mask>
    bool InitBuffer(TQueBind<source, destination, depth, mask>& queue, uint8_t count, uint32_t bytes, Site at = Site::here()) {
        count_buffers(count, at);
        emu::QueueState& q = *queue.state_;
        emu::lay_out(q, count, emu::in_blocks_of_32(bytes), held(q.position), at, [&](int64_t whole) { return take(q.space, whole, at); });
        keep(queue.state_);
        return true;
    }
    template <TPosition position>
    bool InitBuffer(TBuf<position>& buffer, uint32_t bytes, Site at = Site::here()) {
        count_buffers(1, at);
        const int64_t whole = emu::in_blocks_of_32(bytes);
        buffer.lay_out(take(emu::space_of(position), whole, at), whole, at);
        return true;
    }
    /// A part of the memory that TBufPool divides, new or that of another pool. See buffer_pool.h.
    template <class T>
    bool InitBufPool(T& bufPool, uint32_t len, Site at = Site::here()) {
        const int64_t whole = emu::in_blocks_of_32(len);
        bufPool.begin(*this, take(T::space, whole, at), whole);
        return true;
    }
    template <class T, class U>
    bool InitBufPool(T& bufPool, uint32_t len, U& shareBuf, Site at = Site::here()) {
        return bufPool.share(*this, emu::in_blocks_of_32(len), shareBuf, at);
    }

    template <HardEvent event>
    TEventID AllocEventID(Site at = Site::here()) {
        const int id = emulator::allocate_event(emu::pipes_of(event).from, emu::pipes_of(event).to, at);
        if (id >= 0) events_.push_back({event, id, at});
        return static_cast<TEventID>(id);
    }
    template <HardEvent event>
    void ReleaseEventID(TEventID id, Site at = Site::here()) {
        emulator::release_event(emu::pipes_of(event).from, emu::pipes_of(event).to, id, at);
        const auto same = [id](const Event& taken) { return taken.event == event && taken.id == id; };
        events_.erase(std::remove_if(events_.begin(), events_.end(), same), events_.end());
    }
    /// An id that is free now; it is not taken.
    TEventID FetchEventID(HardEvent event, Site at = Site::here()) {
        const int id = emulator::allocate_event(emu::pipes_of(event).from, emu::pipes_of(event).to, at);
        emulator::release_event(emu::pipes_of(event).from, emu::pipes_of(event).to, id, at);
        return static_cast<TEventID>(id);
    }
    template <HardEvent event>
    TEventID FetchEventID(Site at = Site::here()) { return FetchEventID(event, at); }

    // ---- for the emulator ----
    /// The queue is settled when the pipe ends.
    void keep(const std::shared_ptr<emu::QueueState>& queue) { queues_.push_back(queue); }
    /// How many tensors the queues of a position hold.
    std::shared_ptr<int> held(TPosition position) const { return held_[static_cast<int>(position)]; }
    /// Bytes that are given away.
    int64_t used(emulator::Space space) const { return used_[static_cast<int>(space)]; }

   private:
    int64_t take(emulator::Space space, int64_t bytes, Site at) {
        int64_t& used = used_[static_cast<int>(space)];
        const int64_t begin = used, capacity = emulator::core().capacity[static_cast<int>(space)];
        static const char* const names[] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", "L0A_MX", "L0B_MX"};
        used += bytes;
        if (capacity > 0 && used > capacity)
            emulator::report("capacity", at, std::string("InitBuffer: ") + names[static_cast<int>(space)] + " overflows, the buffers so far need " + std::to_string(used) + " bytes and it has " + std::to_string(capacity) + ".");
        return begin;
    }
    void count_buffers(int count, Site at) {
        buffers_ += count;
        if (buffers_ > 64)
            emulator::report("capacity", at, "InitBuffer: the kernel has " + std::to_string(buffers_) + " buffers now; it may have 64.");
    }
    void settle() {
        for (auto& queue : queues_) queue->settle();
        queues_.clear();
        for (const Event& taken : events_) {
            emulator::report("event_id", taken.at, "AllocEventID: event " + std::to_string(taken.id) + " is not released when the TPipe ends; ReleaseEventID is missing.");
            emulator::release_event(emu::pipes_of(taken.event).from, emu::pipes_of(taken.event).to, taken.id, taken.at);
        }
        events_.clear();
    }
    struct Event {
        HardEvent event;
        int id;
        Site at;
    };
    std::vector<Event> events_;  // that AllocEventID gave
    std::shared_ptr<int> held_[static_cast<int>(TPosition::MAX)];
    int buffers_ = 0;
    Site made_;
    int64_t used_[static_cast<int>(emulator::Space::Count)] = {};
    std::vector<std::shared_ptr<emu::QueueState>> queues_;
};

/// Tensors one behind the other in one memory, for kernels that order their pipes themselves. Unknown: to what an address
/// is rounded; it is to 32 bytes here.
template <Hardware hardware = Hardware::UB>
class LocalMemAllocator {
   public:
    template <TPosition position, class T, uint32_t count>
    LocalTensor<T> Alloc(Site at = Site::here()) { return Alloc<position, T>(count, at); }
    template <class T, uint32_t count>
    LocalTensor<T> Alloc(Site at = Site::here()) { return Alloc<usual, T>(count, at); }
    template <class T>
    LocalTensor<T> Alloc(uint32_t count, Site at = Site::here()) { return Alloc<usual, T>(count, at); }
    template <TPosition position, class T>
    LocalTensor<T> Alloc(uint32_t count, Site at = Site::here()) {
        static_assert(emu::space_of(position) == emu::space_of(usual), "LocalMemAllocator: this position is in another memory");
        const uint32_t begin = address_, capacity = emulator::core().capacity[static_cast<int>(emu::space_of(position))];
        address_ += (count * static_cast<uint32_t>(sizeof(T)) + 31) / 32 * 32;
        emulator::require(capacity == 0 || address_ <= capacity, "capacity", at, "LocalMemAllocator::Alloc", "the tensors so far need " + std::to_string(address_) + " bytes and the memory has " + std::to_string(capacity) + ".");
        return LocalTensor<T>(position, begin, count);
    }
    uint32_t GetCurAddr() const { return address_; }

   private:
    static constexpr TPosition usual_position() {
        switch (hardware) {
            case Hardware::L1: return TPosition::A1;
            case Hardware::L0A: return TPosition::A2;
            case Hardware::L0B: return TPosition::B2;
            case Hardware::L0C: return TPosition::CO1;
            case Hardware::BIAS: return TPosition::C2;
            case Hardware::FIXBUF: return TPosition::C2PIPE2GM;
            default: return TPosition::VECCALC;
        }
    }
    static constexpr TPosition usual = usual_position();
    static_assert(hardware != Hardware::GM && hardware != Hardware::MAX, "LocalMemAllocator: a local memory is needed");
    uint32_t address_ = 0;
};

inline TPipe* GetTPipePtr() { return static_cast<TPipe*>(emulator::core().pipe_object); }

}  // namespace AscendC
