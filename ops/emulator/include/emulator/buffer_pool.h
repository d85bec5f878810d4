// TBufPool: parts of UB or L1 that stages of a kernel use one after the other. Source: the pages TBufPool (introduction,
// constructor, InitBufPool, InitBuffer, Reset) and TPipe::InitBufPool.
#pragma once

#include "pipe.h"

namespace AscendC {

constexpr uint32_t defaultBufIDSize = 4;

/// bufIDSize: how many buffers it may give, those of pools within it counted.
template <TPosition pos, uint32_t bufIDSize = defaultBufIDSize>
class TBufPool {
   public:
    static_assert(bufIDSize <= 16, "TBufPool: bufIDSize is at most 16");
    static_assert(emu::space_of(pos) == emulator::Space::UB || emu::space_of(pos) == emulator::Space::L1, "TBufPool: pos is VECIN, VECOUT, VECCALC, A1, B1 or C1");
    static constexpr emulator::Space space = emu::space_of(pos);
    static constexpr int buffers_at_most = static_cast<int>(bufIDSize);

    TBufPool() = default;
    TBufPool(const TBufPool&) = delete;

    template <class T>
    bool InitBufPool(T& bufPool, uint32_t len, Site at = Site::here()) {
        static_assert(T::space == space, "InitBufPool: both pools are of one memory");
        const int64_t whole = emu::in_blocks_of_32(len);
        if (!alive("InitBufPool", at) || !count_buffers("InitBufPool", T::buffers_at_most, at)) return false;
        bufPool.begin(*pipe_, take("InitBufPool", whole, at), whole);
        return true;
    }
    template <class T, class U>
    bool InitBufPool(T& bufPool, uint32_t len, U& shareBuf, Site at = Site::here()) {
        return alive("InitBufPool", at) && bufPool.share(*pipe_, emu::in_blocks_of_32(len), shareBuf, at);
    }
    template <TPosition source, TPosition destination, int32_t depth, auto mask>
    bool InitBuffer(TQueBind<source, destination, depth, mask>& que, uint8_t num, uint32_t len, Site at = Site::here()) {
        emu::QueueState& q = *que.state_;
        if (!alive("InitBuffer", at) || !emulator::require(q.space == space, "argument", at, "InitBuffer", "the queue is not in the memory of the pool.") || !count_buffers("InitBuffer", num, at)) return false;
        emu::lay_out(q, num, emu::in_blocks_of_32(len), pipe_->held(q.position), at, [&](int64_t whole) { return take("InitBuffer", whole, at); });
        pipe_->keep(que.state_);
        queues_.push_back(que.state_);
        return true;
    }
    template <TPosition position>
    bool InitBuffer(TBuf<position>& buf, uint32_t len, Site at = Site::here()) {
        static_assert(emu::space_of(position) == space, "InitBuffer: the buffer is not in the memory of the pool");
        if (!alive("InitBuffer", at) || !count_buffers("InitBuffer", 1, at)) return false;
        const int64_t whole = emu::in_blocks_of_32(len);
        buf.lay_out(take("InitBuffer", whole, at), whole, at);
        return true;
    }
    /// Ends what its queues have under way: another pool may use the memory then. Its buffers stay. What the program orders by
    /// flags of its own is not waited for. Unknown: how; here the scalar waits for the pipes that its queues' tensors go to.
    void Reset(Site at = Site::here()) {
        for (auto& queue : queues_) {
            queue->settle();
            queue->settled = false;
            emulator::wait_pipe(queue->consumer, "TBufPool::Reset", at);
        }
    }

    // ---- for the emulator ----
    void begin(TPipe& pipe, int64_t address, int64_t bytes) {
        pipe_ = &pipe, address_ = address, bytes_ = bytes, used_ = 0, buffers_ = 0;
        queues_.clear();
    }
    template <class U>
    bool share(TPipe& pipe, int64_t bytes, const U& other, Site at) {
        static_assert(U::space == space, "InitBufPool: pools that share are of one memory");
        static_assert(buffers_at_most <= U::buffers_at_most, "InitBufPool: a pool that shares has no more buffers than the other one");
        if (!emulator::require(bytes <= other.bytes(), "capacity", at, "InitBufPool", "the pool takes " + std::to_string(bytes) + " bytes and the one that it shares has " + std::to_string(other.bytes()) + ".")) return false;
        begin(pipe, other.address(), bytes);
        return true;
    }
    int64_t address() const { return address_; }
    int64_t bytes() const { return bytes_; }

   private:
    bool alive(const char* call, Site at) const {
        return emulator::require(pipe_ != nullptr && pipe_ == GetTPipePtr(), "queue", at, call, "the pool has no memory; TPipe::InitBufPool or that of another pool gives it.");
    }
    bool count_buffers(const char* call, int count, Site at) {
        buffers_ += count;
        return emulator::require(buffers_ <= buffers_at_most, "capacity", at, call, "the pool has " + std::to_string(buffers_) + " buffers now; its bufIDSize is " + std::to_string(buffers_at_most) + ".");
    }
    int64_t take(const char* call, int64_t bytes, Site at) {
        const int64_t begin = address_ + used_;
        used_ += bytes;
        emulator::require(used_ <= bytes_, "capacity", at, call, "the pool overflows, its buffers so far need " + std::to_string(used_) + " bytes and it has " + std::to_string(bytes_) + ".");
        return begin;
    }
    TPipe* pipe_ = nullptr;
    int64_t address_ = 0, bytes_ = 0, used_ = 0;
    int buffers_ = 0;
    std::vector<std::shared_ptr<emu::QueueState>> queues_;
};

}  // namespace AscendC
