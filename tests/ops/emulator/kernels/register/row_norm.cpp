// y = x / sqrt(mean(x^2) + epsilon) * weight by rows, bfloat16: a whole kernel with vector functions, rows through queues.
#include "kernel_operator.h"

using namespace AscendC;

constexpr uint32_t LANES = GetVecLen() / sizeof(float);

static constexpr Reg::CastTrait WIDEN = {Reg::RegLayout::ZERO, Reg::SatMode::UNKNOWN, Reg::MaskMergeMode::ZEROING, RoundMode::UNKNOWN};
static constexpr Reg::CastTrait NARROW = {Reg::RegLayout::ZERO, Reg::SatMode::NO_SAT, Reg::MaskMergeMode::ZEROING, RoundMode::CAST_RINT};

__simd_vf__ inline void NormVF(__ubuf__ bfloat16_t* y, __ubuf__ bfloat16_t* x, __ubuf__ float* weight, __ubuf__ float* wide, uint32_t columns, float mean,
                               float epsilon, uint16_t times) {
    Reg::RegTensor<bfloat16_t> narrow;
    Reg::RegTensor<float> value, squares, scale, root, one, factor;
    Reg::MaskReg mask, all = Reg::CreateMask<float>(), first = Reg::CreateMask<float, Reg::MaskPattern::VL1>();
    Reg::Duplicate(squares, 0.0f);
    uint32_t left = columns;
    for (uint16_t i = 0; i < times; ++i) {
        mask = Reg::UpdateMask<float>(left);
        Reg::LoadAlign<bfloat16_t, Reg::LoadDist::DIST_UNPACK_B16>(narrow, x + i * LANES);
        Reg::Cast<float, bfloat16_t, WIDEN>(value, narrow, mask);  // zero behind the row's end
        Reg::MulAddDst(squares, value, value, all);
        Reg::StoreAlign(wide + i * LANES, value, mask);
    }
    Reg::Reduce<Reg::ReduceType::SUM>(scale, squares, all);
    Reg::Muls(scale, scale, mean, first);
    Reg::Adds(scale, scale, epsilon, first);
    Reg::Sqrt(root, scale, first);
    Reg::Duplicate(one, 1.0f);
    Reg::Div(scale, one, root, first);
    Reg::Duplicate(scale, scale, all);
    Reg::LocalMemBar<Reg::MemType::VEC_STORE, Reg::MemType::VEC_LOAD>();
    left = columns;
    for (uint16_t i = 0; i < times; ++i) {
        mask = Reg::UpdateMask<float>(left);
        Reg::LoadAlign(value, wide + i * LANES);
        Reg::LoadAlign(factor, weight + i * LANES);
        Reg::Mul(value, value, scale, mask);
        Reg::Mul(value, value, factor, mask);
        Reg::Cast<bfloat16_t, float, NARROW>(narrow, value, mask);
        Reg::StoreAlign<bfloat16_t, Reg::StoreDist::DIST_PACK_B32>(y + i * LANES, narrow, mask);
    }
}

extern "C" __global__ __aicore__ void row_norm(GM_ADDR x, GM_ADDR weight, GM_ADDR y, uint32_t rows, uint32_t columns, float epsilon) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    const uint32_t bytes = (columns * 2 + 31) / 32 * 32, wide_bytes = (columns * 4 + 31) / 32 * 32;
    const uint16_t times = static_cast<uint16_t>(CeilDivision(static_cast<int32_t>(columns), static_cast<int32_t>(LANES)));
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    TQue<TPosition::VECOUT, 1> out;
    TBuf<TPosition::VECCALC> factors, scratch;
    pipe.InitBuffer(in, 2, bytes);
    pipe.InitBuffer(out, 2, bytes);
    pipe.InitBuffer(factors, wide_bytes);
    pipe.InitBuffer(scratch, wide_bytes);
    GlobalTensor<bfloat16_t> from, to;
    GlobalTensor<float> given;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t*>(x), rows * columns);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ bfloat16_t*>(y), rows * columns);
    given.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(weight), columns);
    LocalTensor<float> factor = factors.Get<float>(), wide = scratch.Get<float>();
    DataCopyPad(factor, given, {1, columns * 4, 0, 0, 0}, {false, 0, 0, 0.0f});
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    for (uint32_t row = GetBlockIdx(); row < rows; row += GetBlockNum()) {
        LocalTensor<bfloat16_t> tile = in.AllocTensor<bfloat16_t>();
        DataCopyPad(tile, from[row * columns], {1, columns * 2, 0, 0, 0}, {false, 0, 0, bfloat16_t(0.0f)});
        in.EnQue(tile);
        tile = in.DeQue<bfloat16_t>();
        LocalTensor<bfloat16_t> result = out.AllocTensor<bfloat16_t>();
        asc_vf_call<NormVF>(result.GetPhyAddr(), tile.GetPhyAddr(), factor.GetPhyAddr(), wide.GetPhyAddr(), columns, 1.0f / static_cast<float>(columns), epsilon, times);
        in.FreeTensor(tile);
        out.EnQue(result);
        result = out.DeQue<bfloat16_t>();
        DataCopyPad(to[row * columns], result, {1, columns * 2, 0, 0, 0});
        out.FreeTensor(result);
    }
}
