// Numbers in UB to codes and scales in UB; the reference is ../reference.py.
#pragma once

#include "formats.h"

namespace ascend_k3 {

/// Quantizes blocks of 32 floats. Every step is exact but the one that rounds: it is done on the bits of a half that was
/// rounded to odd, so that the two roundings are one. No instruction of the element format is used: dav-2201 has none.
class MxQuantizer {
   public:
    __aicore__ inline void Init(TPipe& pipe, const MxFormat& format, uint32_t blocks_a_tile, int32_t carry) {
        format_ = format, carry_ = carry;
        pipe.InitBuffer(work_, blocks_a_tile * MX_BLOCK * sizeof(float));
        pipe.InitBuffer(spread_, 2 * blocks_a_tile * 32);
        pipe.InitBuffer(small_, 4 * blocks_a_tile * sizeof(float));
        pitch_ = blocks_a_tile;
        Duplicate(small_.Get<float>(), 0.0f, pitch_);  // Brcb takes scales by eight, also beyond the last block
        if (format_.bits == 4) {  // neighbours are a byte together: the second counts 16 times
            pipe.InitBuffer(weights_, 32);
            uint64_t even[] = {0x5555, 0}, odd[] = {0xaaaa, 0};
            LocalTensor<half> weights = weights_.Get<half>();
            Duplicate(weights, static_cast<half>(1.0f), even, 1, 1, 8);
            Duplicate(weights, static_cast<half>(16.0f), odd, 1, 1, 8);
        }
    }

    /// Codes and scale bytes of x, `blocks` blocks; x is destroyed. What was written to x before is complete; what reads
    /// codes and scales needs a barrier or a queue.
    __aicore__ inline void Run(const LocalTensor<float>& x, const LocalTensor<uint8_t>& codes, const LocalTensor<uint8_t>& scales, uint32_t blocks) {
        Largest(x, blocks);
        PipeBarrier<PIPE_V>();
        Scales(scales, blocks);
        PipeBarrier<PIPE_V>();
        Scale(x, blocks);
        Round(x, blocks);
        Pack(codes, blocks);
    }

   private:
    /// small_[0]: max |x| of each block, NaN where there is one.
    __aicore__ inline void Largest(const LocalTensor<float>& x, uint32_t blocks) {
        LocalTensor<float> size = work_.Get<float>();
        Abs(size, x, blocks * MX_BLOCK);
        PipeBarrier<PIPE_V>();
        SetMaskCount();
        const BinaryRepeatParams fold{4, 4, 4, 32, 32, 32};  // eight floats of every block
        Max(size, size, size[16], blocks * 8, 1, fold);
        Max(size[8], size[8], size[24], blocks * 8, 1, fold);
        PipeBarrier<PIPE_V>();
        Max(size, size, size[8], blocks * 8, 1, fold);
        PipeBarrier<PIPE_V>();
        BlockReduceMax(small_.Get<float>(), size, 1, blocks * 8, 1, 4, 32);
        SetMaskNorm();
    }

    /// Scale bytes; in spread_, eight times each, the inverse of the scale and a mask that is zero where it is NaN.
    __aicore__ inline void Scales(const LocalTensor<uint8_t>& scales, uint32_t blocks) {
        const uint32_t count = (blocks + 7) / 8 * 8;
        LocalTensor<int32_t> byte = small_.Get<int32_t>(), nan = byte[pitch_], inverse = byte[2 * pitch_];
        Adds(nan, byte, -FLOAT_INFINITY, count);
        Adds(byte, byte, carry_, count);
        PipeBarrier<PIPE_V>();
        Maxs(nan, nan, 0, count);
        ShiftRight(byte, byte, FLOAT_MANTISSA, count);
        PipeBarrier<PIPE_V>();
        Mins(nan, nan, 1, count);
        Adds(byte, byte, -format_.emax, count);
        PipeBarrier<PIPE_V>();
        Muls(inverse, nan, 255, count);
        Maxs(byte, byte, 0, count);
        Adds(nan, nan, -1, count);
        PipeBarrier<PIPE_V>();
        Max(byte, byte, inverse, count);
        PipeBarrier<PIPE_V>();
        Muls(inverse, byte, -1, count);
        LocalTensor<float> number = small_.Get<float>()[3 * pitch_];
        Cast(number, byte, RoundMode::CAST_RINT, blocks);
        PipeBarrier<PIPE_V>();
        Adds(inverse, inverse, 254, count);
        LocalTensor<half> narrow = byte.ReinterpretCast<half>();
        Cast(narrow, number, RoundMode::CAST_RINT, blocks);
        PipeBarrier<PIPE_V>();
        ShiftLeft(inverse, inverse, FLOAT_MANTISSA, count);
        Cast(scales, narrow, RoundMode::CAST_RINT, blocks);
        PipeBarrier<PIPE_V>();
        LocalTensor<int32_t> spread = spread_.Get<int32_t>();
        Brcb(spread, inverse, count / 8, {1, 8});
        Brcb(spread[8 * pitch_], nan, count / 8, {1, 8});
    }

    /// x over its scale and 2^shift.
    __aicore__ inline void Scale(const LocalTensor<float>& x, uint32_t blocks) {
        LocalTensor<float> inverse = spread_.Get<float>();
        SetMaskCount();
        for (uint32_t part = 0; part < MX_BLOCK; part += 8)
            Mul(x[part], x[part], inverse, blocks * 8, 1, BinaryRepeatParams{4, 4, 1, 32, 32, 8});
        SetMaskNorm();
        PipeBarrier<PIPE_V>();
        if (format_.shift > 0) {  // apart from the scale: both together may be too small for a float
            Muls(x, x, 1.0f / format_.PowerOfShift(), blocks * MX_BLOCK);
            PipeBarrier<PIPE_V>();
        }
    }

    /// work_: the codes as 16-bit integers.
    __aicore__ inline void Round(const LocalTensor<float>& x, uint32_t blocks) {
        const int32_t drop = 16 - format_.bits;
        const uint32_t count = blocks * MX_BLOCK;
        LocalTensor<half> value = work_.Get<half>();
        LocalTensor<uint16_t> bits = work_.Get<uint16_t>(), last = bits[pitch_ * MX_BLOCK];
        LocalTensor<int16_t> number = work_.Get<int16_t>();
        Cast(value, x, RoundMode::CAST_ODD, count);
        PipeBarrier<PIPE_V>();
        SetMaskCount();
        LocalTensor<uint16_t> mask = spread_.Get<uint16_t>()[16 * pitch_];
        for (uint32_t part = 0; part < MX_BLOCK; part += 16)
            And(bits[part], bits[part], mask, blocks * 16, 1, BinaryRepeatParams{2, 2, 1, 16, 16, 8});
        SetMaskNorm();
        PipeBarrier<PIPE_V>();
        Mins(value, value, static_cast<half>(format_.largest), count);
        PipeBarrier<PIPE_V>();
        Maxs(value, value, static_cast<half>(-format_.largest), count);
        PipeBarrier<PIPE_V>();
        if (format_.spare > 0) {
            ShiftLeft(number, number, static_cast<int16_t>(format_.spare), count);  // the sign stays
            PipeBarrier<PIPE_V>();
        }
        // Half to even: add half of the last bit that stays, less one where that bit is 0.
        ShiftLeft(last, bits, static_cast<uint16_t>(format_.bits - 1), count);
        PipeBarrier<PIPE_V>();
        ShiftRight(last, last, static_cast<uint16_t>(15), count);
        PipeBarrier<PIPE_V>();
        Add(number, number, last.ReinterpretCast<int16_t>(), count);
        PipeBarrier<PIPE_V>();
        Adds(number, number, static_cast<int16_t>((1 << (drop - 1)) - 1), count);
        PipeBarrier<PIPE_V>();
        ShiftRight(bits, bits, static_cast<uint16_t>(drop), count);
        PipeBarrier<PIPE_V>();
    }

    __aicore__ inline void Pack(const LocalTensor<uint8_t>& codes, uint32_t blocks) {
        const uint32_t count = blocks * MX_BLOCK;
        LocalTensor<half> number = work_.Get<half>();
        Cast(number, work_.Get<int16_t>(), RoundMode::CAST_RINT, count);
        PipeBarrier<PIPE_V>();
        if (format_.bits == 8) {
            Cast(codes, number, RoundMode::CAST_RINT, count);
        } else {
            LocalTensor<half> pair = number[pitch_ * MX_BLOCK * 3 / 2];  // the last quarter of work_
            SetMaskCount();
            Mul(number, number, weights_.Get<half>(), count, 1, BinaryRepeatParams{1, 1, 0, 8, 8, 0});
            PipeBarrier<PIPE_V>();
            PairReduceSum(pair, number, 1, count, 1, 1, 8);
            SetMaskNorm();
            PipeBarrier<PIPE_V>();
            Cast(codes, pair, RoundMode::CAST_RINT, count / 2);
        }
    }

    TBuf<TPosition::VECCALC> work_, spread_, small_, weights_;
    MxFormat format_{};
    uint32_t pitch_ = 0;
    int32_t carry_ = 0;
};

}  // namespace ascend_k3
