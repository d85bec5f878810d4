// TPipe, TQue and TBuf: who owns which bytes of local memory, and the flags that queues set and wait for.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "sync.h"

namespace AscendC {

/// What a queue keeps; the pipe keeps it too, to settle it when the pipe ends before the queue.
struct QueueState {
    enum class Status : uint8_t { Free, Taken, Queued, Dequeued };
    struct Buffer {
        int64_t address = 0;
        Status status = Status::Free;
        int enque_event = -1, free_event = -1;
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
    bool settled = false;
    Site at;

    /// The end of the queue: waits for the flags that FreeTensor set and nothing took.
    void settle() {
        if (settled) return;
        settled = true;
        for (Buffer& buffer : buffers) {
            if (buffer.free_event >= 0) {
                emulator::wait_flag(consumer, producer, buffer.free_event, at, "TQue's end");
                emulator::release_event(consumer, producer, buffer.free_event, at);
                buffer.free_event = -1;
            }
            if (buffer.status != Status::Free)
                emulator::report("queue", at,
                                 std::string("a tensor of the queue made here is not freed when its pipe ends: ") +
                                     (buffer.status == Status::Queued ? "it was enqueued and never dequeued" : "FreeTensor is missing") + ".");
        }
    }
};

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

template <TPosition source, TPosition destination, int32_t depth, auto mask = 0>
class TQueBind {
   public:
    TQueBind() : state_(std::make_shared<QueueState>()) {
        state_->producer = producer_of(source, destination);
        state_->consumer = consumer_of(source, destination);
        state_->depth = depth;
        state_->position = source == TPosition::GM ? destination : source;
        if (source == TPosition::A1 || source == TPosition::B1 || source == TPosition::C1) state_->position = destination == TPosition::GM ? source : destination;
        state_->space = space_of(state_->position);
    }
    TQueBind(const TQueBind&) = default;

    template <class T>
    LocalTensor<T> AllocTensor(Site at = Site::here()) {
        QueueState& q = *state_;
        if (q.buffers.empty()) {
            emulator::report("queue", at, "AllocTensor: the queue has no buffers; call TPipe::InitBuffer first.");
            return {};
        }
        for (size_t i = 0; i < q.buffers.size(); ++i) {
            const size_t number = (q.next + i) % q.buffers.size();
            auto& buffer = q.buffers[number];
            if (buffer.status != QueueState::Status::Free) continue;
            q.next = number + 1;
            if (buffer.free_event >= 0) {
                emulator::wait_flag(q.consumer, q.producer, buffer.free_event, at, "AllocTensor");
                emulator::release_event(q.consumer, q.producer, buffer.free_event, at);
                buffer.free_event = -1;
            }
            buffer.status = QueueState::Status::Taken;
            return tensor<T>(buffer, at);
        }
        emulator::report("queue", at, "AllocTensor: all " + std::to_string(q.buffers.size()) + " buffers of the queue are in use; free one first, or give InitBuffer more.");
        return tensor<T>(q.buffers[0], at);
    }
    template <class T>
    void AllocTensor(LocalTensor<T>& out, Site at = Site::here()) { out = AllocTensor<T>(at); }

    template <class T>
    bool EnQue(const LocalTensor<T>& tensor, Site at = Site::here()) {
        QueueState& q = *state_;
        const size_t number = find(tensor.low());
        if (number == q.buffers.size() || q.buffers[number].status == QueueState::Status::Free || q.buffers[number].status == QueueState::Status::Queued) {
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
            if (q.producer == q.consumer) {
                emulator::barrier(q.producer, at);
            } else {
                buffer.enque_event = emulator::allocate_event(q.producer, q.consumer, at);
                if (buffer.enque_event >= 0) emulator::set_flag(q.producer, q.consumer, buffer.enque_event, at, "EnQue");
            }
        }
        buffer.status = QueueState::Status::Queued;
        q.fifo.push_back(number);
        return true;
    }

    template <class T>
    LocalTensor<T> DeQue(Site at = Site::here()) {
        QueueState& q = *state_;
        if (q.fifo.empty()) {
            emulator::report("queue", at, "DeQue: the queue is empty; EnQue a tensor first.");
            return {};
        }
        auto& buffer = q.buffers[q.fifo.front()];
        q.fifo.pop_front();
        if (buffer.enque_event >= 0) {
            emulator::wait_flag(q.producer, q.consumer, buffer.enque_event, at, "DeQue");
            emulator::release_event(q.producer, q.consumer, buffer.enque_event, at);
            buffer.enque_event = -1;
        }
        buffer.status = QueueState::Status::Dequeued;
        return tensor<T>(buffer, at);
    }
    template <class T>
    void DeQue(LocalTensor<T>& out, Site at = Site::here()) { out = DeQue<T>(at); }

    template <class T>
    void FreeTensor(const LocalTensor<T>& tensor, Site at = Site::here()) {
        QueueState& q = *state_;
        const size_t number = find(tensor.low());
        if (number == q.buffers.size()) {
            emulator::report("queue", at, "FreeTensor: the tensor is not of this queue.");
            return;
        }
        auto& buffer = q.buffers[number];
        if (buffer.status == QueueState::Status::Free || buffer.status == QueueState::Status::Queued || buffer.allocation != tensor.allocation()) {
            emulator::report("double_free", at, "FreeTensor: the tensor was freed before, or is in the queue.");
            return;
        }
        emulator::allocation_end(buffer.allocation, at, "FreeTensor");
        buffer.allocation = 0;
        buffer.status = QueueState::Status::Free;
        if (q.producer == q.consumer || emulator::mutated("free", at)) return;
        buffer.free_event = emulator::allocate_event(q.consumer, q.producer, at);
        if (buffer.free_event >= 0) emulator::set_flag(q.consumer, q.producer, buffer.free_event, at, "FreeTensor");
    }

    bool VacantInQue() const { return static_cast<int>(state_->fifo.size()) < (depth == 0 ? 1 : depth); }
    bool HasTensorInQue() const { return !state_->fifo.empty(); }
    int32_t GetTensorCountInQue() const { return static_cast<int32_t>(state_->fifo.size()); }
    bool HasIdleBuffer() const {
        return std::any_of(state_->buffers.begin(), state_->buffers.end(), [](const auto& buffer) { return buffer.status == QueueState::Status::Free; });
    }

   private:
    friend class TPipe;
    template <class T>
    LocalTensor<T> tensor(QueueState::Buffer& buffer, Site at) {
        buffer.allocation = emulator::allocation_begin(state_->space, buffer.address, state_->bytes, at);
        return LocalTensor<T>::make(state_->position, state_->space, buffer.address, state_->bytes, buffer.allocation);
    }
    size_t find(int64_t address) const {
        // Buffers of a queue may share an address in a mutation test: take the one that is in use.
        size_t found = state_->buffers.size();
        for (size_t i = 0; i < state_->buffers.size(); ++i)
            if (state_->buffers[i].address == address && (found == state_->buffers.size() || state_->buffers[i].status != QueueState::Status::Free)) found = i;
        return found;
    }
    std::shared_ptr<QueueState> state_;
};

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

template <TPosition position, int32_t depth, auto mask = 0>
class TQue : public TQueBind<source_of(position), destination_of(position), depth, mask> {};

template <TPosition position>
class TBuf {
   public:
    template <class T>
    LocalTensor<T> Get() const { return LocalTensor<T>::make(position, space_of(position), address_, bytes_, 0); }
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

   private:
    friend class TPipe;
    int64_t address_ = 0, bytes_ = 0;
};

class TPipe {
   public:
    TPipe(Site at = Site::here()) { Init(at); }
    TPipe(const TPipe&) = delete;
    ~TPipe() { Destroy(); }

    void Init(Site at = Site::here()) {
        if (emulator::core().pipe_object != nullptr && emulator::core().pipe_object != this)
            emulator::report("nested_pipe", at, "TPipe: another TPipe of this core is alive; a kernel has one at a time. Destroy the other first.");
        emulator::core().pipe_object = this;
        std::fill(std::begin(used_), std::end(used_), 0);
        for (int i = 1; i < static_cast<int>(emulator::Space::Count); ++i)
            if (fresh_ == false) emulator::poison(static_cast<emulator::Space>(i));
        fresh_ = false;
    }
    void Reset(Site at = Site::here()) {
        settle();
        Init(at);
    }
    void Destroy() {
        settle();
        if (emulator::core().pipe_object == this) emulator::core().pipe_object = nullptr;
    }

    template <TPosition source, TPosition destination, int32_t depth, auto mask>
    bool InitBuffer(TQueBind<source, destination, depth, mask>& queue, uint8_t count, uint32_t bytes, Site at = Site::here()) {
        QueueState& q = *queue.state_;
        q.at = at;
        q.bytes = rounded(bytes);
        const bool alias = count > 1 && emulator::mutated("buffer_alias", at);
        for (int i = 0; i < count; ++i) {
            QueueState::Buffer buffer;
            buffer.address = alias && i > 0 ? q.buffers[0].address : take(q.space, q.bytes, at);
            q.buffers.push_back(buffer);
        }
        if (emulator::mutated("buffer", at)) q.bytes -= 32;
        queues_.push_back(queue.state_);
        return true;
    }
    template <TPosition position>
    bool InitBuffer(TBuf<position>& buffer, uint32_t bytes, Site at = Site::here()) {
        buffer.bytes_ = rounded(bytes);
        buffer.address_ = take(space_of(position), buffer.bytes_, at);
        if (emulator::mutated("buffer", at)) buffer.bytes_ -= 32;
        return true;
    }

    template <HardEvent event>
    TEventID AllocEventID(Site at = Site::here()) {
        return static_cast<TEventID>(emulator::allocate_event(pipes_of(event).from, pipes_of(event).to, at));
    }
    template <HardEvent event>
    void ReleaseEventID(TEventID id, Site at = Site::here()) { emulator::release_event(pipes_of(event).from, pipes_of(event).to, id, at); }
    /// An id that is free now; it is not taken.
    TEventID FetchEventID(HardEvent event, Site at = Site::here()) {
        const int id = emulator::allocate_event(pipes_of(event).from, pipes_of(event).to, at);
        emulator::release_event(pipes_of(event).from, pipes_of(event).to, id, at);
        return static_cast<TEventID>(id);
    }
    template <HardEvent event>
    TEventID FetchEventID(Site at = Site::here()) { return FetchEventID(event, at); }

   private:
    static int64_t rounded(uint32_t bytes) { return (static_cast<int64_t>(bytes) + 31) / 32 * 32; }
    int64_t take(emulator::Space space, int64_t bytes, Site at) {
        int64_t& used = used_[static_cast<int>(space)];
        const int64_t begin = used, capacity = emulator::core().capacity[static_cast<int>(space)];
        static const char* const names[] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", "L0A_MX", "L0B_MX"};
        used += bytes;
        if (capacity > 0 && used > capacity)
            emulator::report("capacity", at, std::string("InitBuffer: ") + names[static_cast<int>(space)] + " overflows, the buffers so far need " + std::to_string(used) + " bytes and it has " + std::to_string(capacity) + ".");
        return begin;
    }
    void settle() {
        for (auto& queue : queues_) queue->settle();
        queues_.clear();
    }
    int64_t used_[static_cast<int>(emulator::Space::Count)] = {};
    std::vector<std::shared_ptr<QueueState>> queues_;
    bool fresh_ = true;
};

inline TPipe* GetTPipePtr() { return static_cast<TPipe*>(emulator::core().pipe_object); }

}  // namespace AscendC
