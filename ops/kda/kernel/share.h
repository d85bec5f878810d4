// The chunks of a block, and their order.
#pragma once

#include "kernel_operator.h"
#include "tiling.h"

namespace ascend_k3 {

using namespace AscendC;

/// A chunk of a head of a sequence, the n-th that a block goes through. The block has the head's chunks `begin` to `end`.
struct KdaStep {
    int64_t unit, first_token;          // of all heads of all sequences; of the sequence
    uint32_t sequence, head, tokens, chunks, chunk, begin, end, n;
    bool exists;

    __aicore__ inline uint32_t Filled() const { return tokens - chunk * CHUNK < CHUNK ? tokens - chunk * CHUNK : CHUNK; }
    __aicore__ inline int64_t Token() const { return first_token + chunk * CHUNK; }
    __aicore__ inline bool IsFirst() const { return chunk == begin; }
    __aicore__ inline bool IsLast() const { return chunk + 1 == end; }

    /// The whole of a head.
    __aicore__ inline void Take(const KdaTiling& tiling, const GlobalTensor<int64_t>& offsets, int64_t head_of_all) {
        unit = head_of_all;
        exists = unit < tiling.sequences * tiling.heads;
        if (!exists) return;
        sequence = static_cast<uint32_t>(unit / tiling.heads);
        head = static_cast<uint32_t>(unit % tiling.heads);
        first_token = offsets.GetValue(sequence);
        tokens = static_cast<uint32_t>(offsets.GetValue(sequence + 1) - first_token);
        chunks = (tokens + CHUNK - 1) / CHUNK;
        chunk = begin = 0, end = chunks;
    }
};

__aicore__ inline int64_t KdaBlock() {
    if ASCEND_IS_AIV return GetBlockIdx() / 2;
    return GetBlockIdx();
}

/// Whole heads, every so many as there are blocks. Sequences without tokens have no chunk.
class KdaHeads {
   public:
    __aicore__ inline KdaHeads(const KdaTiling& tiling, const GlobalTensor<int64_t>& offsets) : tiling_(tiling), offsets_(offsets) {}
    __aicore__ inline KdaStep First() const { return From(KdaBlock(), 0); }
    __aicore__ inline KdaStep Next(const KdaStep& step) const { return From(step.unit + GetBlockNum(), step.n + 1); }

   private:
    __aicore__ inline KdaStep From(int64_t unit, uint32_t n) const {
        KdaStep step{};
        step.n = n;
        do {
            step.Take(tiling_, offsets_, unit);
            unit += GetBlockNum();
        } while (step.exists && !step.chunks);
        return step;
    }

    const KdaTiling& tiling_;
    const GlobalTensor<int64_t>& offsets_;
};

/// Equal numbers of chunks for all blocks: first the beginning of a head that the next block ends, then whole heads, then the end
/// of a head that the block before has begun. Where shares are too small for that, heads stay whole.
class KdaShare {
   public:
    __aicore__ inline void Begin(const KdaTiling& tiling, const GlobalTensor<int64_t>& offsets) {
        tiling_ = tiling, offsets_ = offsets;
        int64_t all = 0, most = 0;
        for (int64_t i = 0; i < tiling.sequences; ++i) {
            const int64_t chunks = ChunksOf(i);
            all += chunks * tiling.heads;
            most = chunks > most ? chunks : most;
        }
        const int64_t blocks = GetBlockNum(), block = KdaBlock();
        parted = most > 0 && all / blocks >= 2 * most + ROOM_SLOTS;  // whole heads between the two pieces: the first is ended by then
        Find(all * block / blocks, first_, first_chunk_);
        Find(all * (block + 1) / blocks, last_, last_chunk_);
    }
    bool parted = false;  // whether heads may be
    /// Chunks of the head that the next block ends.
    __aicore__ inline uint32_t Begun() const { return last_chunk_; }

    __aicore__ inline KdaStep First() const {
        KdaStep step{};
        if (last_chunk_) {
            step.Take(tiling_, offsets_, last_);
            step.end = last_chunk_;
            return step;
        }
        return Whole(first_ + (first_chunk_ > 0), 0);
    }
    __aicore__ inline KdaStep Next(const KdaStep& step) const {
        KdaStep next = step;
        ++next.n;
        if (++next.chunk < step.end) return next;
        if (step.begin > 0) {
            next.exists = false;
            return next;
        }
        return Whole(step.unit == last_ ? first_ + (first_chunk_ > 0) : step.unit + 1, next.n);
    }

   private:
    __aicore__ inline int64_t ChunksOf(int64_t sequence) const { return (offsets_.GetValue(sequence + 1) - offsets_.GetValue(sequence) + CHUNK - 1) / CHUNK; }
    /// The head, and the chunk of it, at a position in all chunks of all heads.
    __aicore__ inline void Find(int64_t position, int64_t& unit, uint32_t& chunk) const {
        unit = 0, chunk = 0;
        for (int64_t i = 0; i < tiling_.sequences; ++i) {
            const int64_t chunks = ChunksOf(i), here = chunks * tiling_.heads;
            if (position < here) {
                unit += position / chunks, chunk = static_cast<uint32_t>(position % chunks);
                if (!parted && chunk) ++unit, chunk = 0;
                return;
            }
            position -= here;
            unit += tiling_.heads;
        }
    }
    /// The next whole head with chunks from `unit` on; behind the last, the end of the first.
    __aicore__ inline KdaStep Whole(int64_t unit, uint32_t n) const {
        KdaStep step{};
        for (; unit < last_; ++unit) {
            step.Take(tiling_, offsets_, unit);
            if (step.chunks) break;
        }
        if (unit >= last_) {
            step.exists = false;
            if (first_chunk_) {
                step.Take(tiling_, offsets_, first_);
                step.chunk = step.begin = first_chunk_;
            }
        }
        step.n = n;
        return step;
    }

    KdaTiling tiling_;
    GlobalTensor<int64_t> offsets_;
    int64_t first_ = 0, last_ = 0;
    uint32_t first_chunk_ = 0, last_chunk_ = 0;
};

}  // namespace ascend_k3
