// Codes and scales in UB to floats in UB; the reference is ../reference.py.
#pragma once

#include "formats.h"

namespace ascend_k3 {

/// Decodes blocks of 32. The codes become halves by their bits, without an instruction of the element format: dav-2201 has
/// none. All of it is exact.
class MxDequantizer {
   public:
    __aicore__ inline void Init(TPipe& pipe, const MxFormat& format, uint32_t blocks_a_tile) {
        format_ = format, pitch_ = blocks_a_tile;
        pipe.InitBuffer(work_, 2 * pitch_ * MX_BLOCK * sizeof(half));
        pipe.InitBuffer(spread_, pitch_ * 32);
        pipe.InitBuffer(small_, 3 * pitch_ * sizeof(int32_t));
        Duplicate(small_.Get<int32_t>()[pitch_], 0, pitch_);  // Brcb takes scales by eight, also beyond the last block
        if (format_.spare > 0) {
            const uint32_t code = (1u << (format_.bits - 1)) - 1;  // without its sign
            pipe.InitBuffer(fields_, 32);
            Duplicate(fields_.Get<uint16_t>(), static_cast<uint16_t>(0x8000 | code << (16 - format_.bits - format_.spare)), 16);
        }
    }

    /// x = element * 2^(scale - 127) for `blocks` blocks. What reads x needs a barrier or a queue.
    __aicore__ inline void Run(const LocalTensor<float>& x, const LocalTensor<uint8_t>& codes, const LocalTensor<uint8_t>& scales, uint32_t blocks) {
        Scales(scales, blocks);
        Bits(codes, blocks);
        const uint32_t count = blocks * MX_BLOCK;
        Cast(x, work_.Get<half>(), RoundMode::CAST_NONE, count);
        PipeBarrier<PIPE_V>();
        if (format_.shift > 0) {  // apart from the scale: both together may be too large for a float
            Muls(x, x, format_.PowerOfShift(), count);
            PipeBarrier<PIPE_V>();
        }
        LocalTensor<float> scale = spread_.Get<float>();
        SetMaskCount();
        for (uint32_t part = 0; part < MX_BLOCK; part += 8)
            Mul(x[part], x[part], scale, blocks * 8, 1, BinaryRepeatParams{4, 4, 1, 32, 32, 8});
        SetMaskNorm();
    }

   private:
    /// spread_: the scale of each block eight times. Its bits are those of the byte, but for 0 (2^-127 is subnormal) and 255.
    __aicore__ inline void Scales(const LocalTensor<uint8_t>& scales, uint32_t blocks) {
        LocalTensor<int32_t> byte = small_.Get<int32_t>()[pitch_], nan = byte[pitch_];
        LocalTensor<half> number = small_.Get<half>();
        const uint32_t count = (blocks + 7) / 8 * 8;
        Cast(number, scales, RoundMode::CAST_NONE, blocks);
        PipeBarrier<PIPE_V>();
        Cast(byte, number, RoundMode::CAST_RINT, blocks);
        PipeBarrier<PIPE_V>();
        Adds(nan, byte, -254, count);
        ShiftLeft(byte, byte, FLOAT_MANTISSA, count);
        PipeBarrier<PIPE_V>();
        Maxs(nan, nan, 0, count);
        Maxs(byte, byte, 1 << (FLOAT_MANTISSA - 1), count);
        PipeBarrier<PIPE_V>();
        ShiftLeft(nan, nan, FLOAT_MANTISSA - 1, count);
        PipeBarrier<PIPE_V>();
        Add(byte, byte, nan, count);
        PipeBarrier<PIPE_V>();
        Brcb(spread_.Get<int32_t>(), byte, count / 8, {1, 8});
    }

    /// work_: halves, the elements times 2^-shift.
    __aicore__ inline void Bits(const LocalTensor<uint8_t>& codes, uint32_t blocks) {
        const uint32_t count = blocks * MX_BLOCK;
        LocalTensor<half> value = work_.Get<half>();
        LocalTensor<uint16_t> bits = work_.Get<uint16_t>();
        LocalTensor<int16_t> number = work_.Get<int16_t>();
        if (format_.bits == 8) {
            Cast(value, codes, RoundMode::CAST_NONE, count);
            PipeBarrier<PIPE_V>();
            Cast(number, value, RoundMode::CAST_RINT, count);
            PipeBarrier<PIPE_V>();
            ShiftLeft(bits, bits, static_cast<uint16_t>(8), count);
            PipeBarrier<PIPE_V>();
        } else {  // a byte becomes two halves, whose highest bits are a code each
            LocalTensor<uint32_t> first = work_.Get<uint32_t>(), second = first[pitch_ * MX_BLOCK / 2];
            LocalTensor<half> byte = second.ReinterpretCast<half>();
            Cast(byte, codes, RoundMode::CAST_NONE, count / 2);
            PipeBarrier<PIPE_V>();
            Cast(first.ReinterpretCast<int32_t>(), byte, RoundMode::CAST_RINT, count / 2);
            PipeBarrier<PIPE_V>();
            ShiftLeft(second, first, 24u, count / 2);
            ShiftLeft(first, first, 12u, count / 2);
            PipeBarrier<PIPE_V>();
            Or(bits, bits, second.ReinterpretCast<uint16_t>(), count);
            PipeBarrier<PIPE_V>();
        }
        if (format_.spare > 0) {  // the sign stays, with copies of itself behind it that are cleared
            ShiftRight(number, number, static_cast<int16_t>(format_.spare), count);
            PipeBarrier<PIPE_V>();
            SetMaskCount();
            And(bits, bits, fields_.Get<uint16_t>(), count, 1, BinaryRepeatParams{1, 1, 0, 8, 8, 0});
            SetMaskNorm();
            PipeBarrier<PIPE_V>();
        }
        if (format_.nan_is_last) {  // its half gets the highest exponent, which is 0x4000 more
            LocalTensor<int16_t> nan = number[pitch_ * MX_BLOCK];
            ShiftLeft(nan.ReinterpretCast<uint16_t>(), bits, static_cast<uint16_t>(1), count);
            PipeBarrier<PIPE_V>();
            Adds(nan, nan, static_cast<int16_t>(-(0x7e << 8)), count);
            PipeBarrier<PIPE_V>();
            Maxs(nan, nan, static_cast<int16_t>(0), count);
            PipeBarrier<PIPE_V>();
            ShiftLeft(nan, nan, static_cast<int16_t>(6), count);
            PipeBarrier<PIPE_V>();
            Add(number, number, nan, count);
            PipeBarrier<PIPE_V>();
        }
    }

    TBuf<TPosition::VECCALC> work_, spread_, small_, fields_;
    MxFormat format_{};
    uint32_t pitch_ = 0;
};

}  // namespace ascend_k3
