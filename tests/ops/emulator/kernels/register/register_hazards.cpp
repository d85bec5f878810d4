// Vector functions with a mistake each, and the right ones beside them. See test_register_hazards.py. `// @name` marks lines.
#include "register_frame.h"

using namespace AscendC;
using Reg::MemType;

enum Op {
    READ_AFTER_WRITE, READ_BEHIND_BARRIER, READ_BEHIND_ALL, READ_BEHIND_WRONG_BARRIER, READ_SAME_REGISTER, READ_ELSEWHERE, LOOP_OF_THE_PAGE,
    LOOP_WITHOUT_BARRIER, WRITE_AFTER_READ, WRITE_BEHIND_BARRIER, WRITE_DERIVED, WRITE_OTHER_VALUE, WRITE_MASK_DERIVED, WRITE_DERIVED_FROM_OTHER,
    SUM_OVER_ITS_OWN, SUM_OVER_THE_OTHER, WRITE_AFTER_WRITE, WRITE_TWICE_BEHIND_OTHERS, WRITE_TWICE_BEHIND_BARRIER, WRITE_TWICE_SAME_REGISTER, WRITE_TWICE_OTHER_VALUE, WRITE_TWICE_BEHIND_LOAD, GATHER_WITHOUT_BARRIER, TWO_FUNCTIONS,
    NO_FLAG_BEFORE, NO_FLAG_BEHIND, UNWRITTEN_MEMORY, UNWRITTEN_MASKED, HALF_WRITTEN, UNWRITTEN_REGISTER, UNWRITTEN_ACCUMULATOR, UNWRITTEN_MASK,
    UNWRITTEN_ADDRESS, FREED_TENSOR, GLOBAL_ARGUMENT, CALL_IN_FUNCTION, SCALAR_IN_FUNCTION, OUTSIDE_OF_FUNCTION, FIVE_UNALIGNED, POST_MISSING, NOT_ADJACENT, PRE_MISSING, PLAIN_POINTER,
    STEP_UNALIGNED, SAME_DESTINATIONS, COUNTED, COUNTED_STORES
};

#define BARRIER(a, b) Reg::LocalMemBar<MemType::a, MemType::b>()

template <int op>
__simd_vf__ inline void OrderVF(__ubuf__ float* dst, __ubuf__ float* src) {
    Reg::RegTensor<float> x, y, z;
    Reg::MaskReg all = Reg::CreateMask<float>(), some;
    Reg::LoadAlign(x, src);
    Reg::Duplicate(y, 1.0f);
    if constexpr (op <= READ_ELSEWHERE) {
        Reg::StoreAlign(dst, x, all);  // @stored
        if constexpr (op == READ_BEHIND_BARRIER) BARRIER(VEC_STORE, VEC_LOAD);  // @barrier
        if constexpr (op == READ_BEHIND_ALL) BARRIER(VEC_ALL, VEC_ALL);
        if constexpr (op == READ_BEHIND_WRONG_BARRIER) BARRIER(VEC_LOAD, VEC_STORE), BARRIER(VEC_STORE, VEC_STORE);
        if constexpr (op == READ_SAME_REGISTER) Reg::LoadAlign(x, dst);
        else Reg::LoadAlign(z, dst + (op == READ_ELSEWHERE ? 64 : 0));  // @load
    }
    if constexpr (op == WRITE_AFTER_READ || op == WRITE_BEHIND_BARRIER) {
        if constexpr (op == WRITE_BEHIND_BARRIER) BARRIER(VEC_LOAD, VEC_STORE);
        Reg::StoreAlign(src, y, all);  // @overwrite
    }
    if constexpr (op == WRITE_DERIVED) {
        Reg::Add(z, y, x, all);
        Reg::Muls(z, z, 2.0f, all);
        Reg::StoreAlign(src, z, all);
    }
    if constexpr (op == WRITE_OTHER_VALUE) {
        Reg::Duplicate(x, 3.0f);
        Reg::StoreAlign(src, x, all);  // @other_value
    }
    if constexpr (op == WRITE_MASK_DERIVED) {
        Reg::Compares<float, CMPMODE::GT>(some, x, 0.0f, all);
        Reg::StoreAlign(src, y, some);
    }
    if constexpr (op == WRITE_DERIVED_FROM_OTHER) {
        Reg::LoadAlign(z, src + 64);
        Reg::Adds(z, z, 1.0f, all);
        Reg::StoreAlign(src, z, all);  // @other
    }
    if constexpr (op == WRITE_AFTER_WRITE || op == WRITE_TWICE_BEHIND_OTHERS || op == WRITE_TWICE_BEHIND_BARRIER) {
        Reg::StoreAlign(dst, x, all);  // @first
        if constexpr (op == WRITE_TWICE_BEHIND_OTHERS) BARRIER(VEC_STORE, VEC_LOAD), BARRIER(VEC_LOAD, VEC_STORE);
        if constexpr (op == WRITE_TWICE_BEHIND_BARRIER) BARRIER(VEC_STORE, VEC_STORE);
        Reg::StoreAlign(dst + 8, y, all);  // @second
    }
    if constexpr (op == WRITE_TWICE_SAME_REGISTER || op == WRITE_TWICE_OTHER_VALUE) {
        Reg::StoreAlign(dst, x, all);
        if constexpr (op == WRITE_TWICE_OTHER_VALUE) Reg::Adds(x, x, 1.0f, all);
        Reg::StoreAlign(dst, x, all);  // @again
    }
    if constexpr (op == WRITE_TWICE_BEHIND_LOAD) {
        Reg::StoreAlign(dst, x, all);
        BARRIER(VEC_STORE, VEC_LOAD);
        Reg::LoadAlign(z, dst);
        Reg::StoreAlign(dst, z, all);
    }
}
/// The example of the page LocalMemBar: every iteration reads what the one before wrote.
template <bool barrier>
__simd_vf__ inline void LoopVF(__ubuf__ float* dst, __ubuf__ float* src0, __ubuf__ float* src1, uint32_t count, uint16_t times) {
    Reg::RegTensor<float> x, y, z;
    Reg::MaskReg mask;
    for (uint16_t i = 0; i < times; ++i) {
        mask = Reg::UpdateMask<float>(count);
        if constexpr (barrier) BARRIER(VEC_STORE, VEC_LOAD);
        Reg::LoadAlign(x, src0);
        Reg::LoadAlign(y, src1 + i * 64);
        Reg::Add(z, x, y, mask);
        Reg::StoreAlign(dst, z, mask);
    }
}
/// Loads of two tensors by turns, of which the sum is of the first: more of them than Origin has ranges.
template <bool own>
__simd_vf__ inline void SumVF(__ubuf__ float* a, __ubuf__ float* b) {
    Reg::RegTensor<float> x, y, total;
    Reg::MaskReg all = Reg::CreateMask<float>();
    Reg::Duplicate(total, 0.0f);
    for (uint16_t i = 0; i < 8; ++i) {
        Reg::LoadAlign(x, a + i * 64);
        Reg::LoadAlign(y, b + i * 64);
        Reg::Add(total, total, x, all);
    }
    for (uint16_t i = 0; i < 8; ++i) Reg::StoreAlign((own ? a : b) + i * 64, total, all);  // @sum
}
__simd_vf__ inline void GatherBehindStoreVF(__ubuf__ float* dst, __ubuf__ uint32_t* places) {
    Reg::RegTensor<float> x, z;
    Reg::RegTensor<uint32_t> index;
    Reg::MaskReg all = Reg::CreateMask<float>();
    Reg::Arange(reinterpret_cast<Reg::RegTensor<int32_t>&>(index), int32_t(0));
    Reg::Duplicate(x, 1.0f);
    Reg::StoreAlign(dst, x, all);
    Reg::Gather(z, dst, index, all);  // @gather
}
template <int op>
__simd_vf__ inline void UnwrittenVF(__ubuf__ float* dst, __ubuf__ float* src, uint32_t count) {
    Reg::RegTensor<float> x, y, z;
    Reg::MaskReg all = Reg::CreateMask<float>(), mask = Reg::UpdateMask<float>(count), none;
    Reg::LoadAlign(x, src);  // @unwritten_load
    if constexpr (op == UNWRITTEN_MEMORY) Reg::Exp(z, x, all);  // @unwritten_use
    if constexpr (op == UNWRITTEN_MASKED) Reg::Exp(z, x, mask);
    if constexpr (op == UNWRITTEN_REGISTER) Reg::Add(z, x, y, mask);  // @unwritten_register
    if constexpr (op == UNWRITTEN_ACCUMULATOR) Reg::MulAddDst(z, x, x, mask);  // @unwritten_accumulator
    if constexpr (op == UNWRITTEN_MASK) Reg::Add(z, x, x, none);  // @unwritten_mask
    if constexpr (op == UNWRITTEN_ADDRESS) {
        Reg::AddrReg offset;
        Reg::LoadAlign(z, src, offset);  // @unwritten_address
        return;
    }
    if constexpr (op != UNWRITTEN_MASK) Reg::StoreAlign(dst, z, all);
}
/// Of the second float two bytes are written.
__simd_vf__ inline void HalfWrittenVF(__ubuf__ float* dst) {
    Reg::RegTensor<half> x;
    Reg::RegTensor<float> y, z;
    uint32_t three = 3;
    Reg::MaskReg some = Reg::UpdateMask<half>(three), two = Reg::CreateMask<float, Reg::MaskPattern::VL2>();
    Reg::Duplicate(x, static_cast<half>(1.0f));
    Reg::StoreAlign(reinterpret_cast<__ubuf__ half*>(dst), x, some);
    BARRIER(VEC_STORE, VEC_LOAD);
    Reg::LoadAlign(y, dst);
    Reg::Exp(z, y, two);  // @half_written
}
__simd_vf__ inline void CopyVF(__ubuf__ float* dst, __ubuf__ float* src) {
    Reg::RegTensor<float> x;
    Reg::MaskReg all = Reg::CreateMask<float>();
    Reg::LoadAlign(x, src);  // @copied_from
    Reg::StoreAlign(dst, x, all);  // @copied_to
}
__simd_vf__ inline void CallVF(__ubuf__ float* dst) {
    LocalTensor<float> tensor(TPosition::VECCALC, 0, 64);
    Duplicate(tensor, 1.0f, 64);  // @call_in_function
}
__simd_vf__ inline void ScalarVF(__ubuf__ float* dst) {
    LocalTensor<float> tensor(TPosition::VECCALC, 0, 64);
    tensor.SetValue(0, 1.0f);  // @scalar_in_function
}
__simd_vf__ inline void FiveVF(__ubuf__ float* src) {
    Reg::UnalignRegForLoad a, b, c, d;
    Reg::UnalignRegForLoad e;  // @fifth
    Reg::LoadUnAlignPre(e, src);
}
__simd_vf__ inline void PostMissingVF(__ubuf__ float* dst, __ubuf__ float* src) {
    Reg::RegTensor<float> x;
    Reg::UnalignRegForStore ureg;
    Reg::LoadAlign(x, src);
    Reg::StoreUnAlign(dst, x, ureg, 13);  // @post_missing
}
__simd_vf__ inline void NotAdjacentVF(__ubuf__ float* dst, __ubuf__ float* src) {
    Reg::RegTensor<float> x;
    Reg::UnalignRegForStore ureg;
    Reg::LoadAlign(x, src);
    Reg::StoreUnAlign(dst, x, ureg, 13);
    dst += 3;
    Reg::StoreUnAlign(dst, x, ureg, 13);  // @not_adjacent
    Reg::StoreUnAlignPost(dst, ureg, 0);  // @post_elsewhere
}
__simd_vf__ inline void PreMissingVF(__ubuf__ float* src) {
    Reg::RegTensor<float> x;
    Reg::UnalignRegForLoad ureg;
    Reg::LoadUnAlign(x, ureg, src + 3);  // @pre_missing
}
__simd_vf__ inline void PlainVF(__ubuf__ float* dst) { *dst = 1.0f; }
__simd_vf__ inline void StepVF(__ubuf__ float* src) {
    Reg::RegTensor<float> x;
    Reg::LoadAlign<float, Reg::PostLiteral::POST_MODE_UPDATE>(x, src, 12);  // @step
}
__simd_vf__ inline void SameVF(__ubuf__ float* src) {
    Reg::RegTensor<float> x, y;
    Reg::LoadAlign(x, src);
    Reg::LoadAlign(y, src);
    Reg::Interleave(x, x, x, y);  // @same
}
__simd_vf__ inline void CountedVF(__ubuf__ float* dst, __ubuf__ float* a, __ubuf__ float* b, uint32_t count, uint16_t times) {
    Reg::RegTensor<float> x, y;
    Reg::RegTensor<int32_t> z;
    Reg::MaskReg mask;
    for (uint16_t i = 0; i < times; ++i) {
        mask = Reg::UpdateMask<float>(count);
        Reg::LoadAlign(x, a + i * 64);
        Reg::LoadAlign(y, b + i * 64);
        Reg::Mul(x, x, y, mask);
        Reg::Exp(x, x, mask);
        Reg::Add(z, reinterpret_cast<Reg::RegTensor<int32_t>&>(x), reinterpret_cast<Reg::RegTensor<int32_t>&>(x), mask);
        Reg::StoreAlign(dst + i * 64, x, mask);
    }
}
__simd_vf__ inline void CountedStoresVF(__ubuf__ float* dst, uint16_t times) {
    Reg::RegTensor<float> x;
    Reg::MaskReg all = Reg::CreateMask<float>();
    Reg::Duplicate(x, 1.0f);
    for (uint16_t i = 0; i < times; ++i) Reg::StoreAlign(dst + i * 64, x, all);
}

__aicore__ inline void body(Frame& f, const Call& c) {
    __ubuf__ float *d = f.at<float>(0), *a = f.at<float>(1), *b = f.at<float>(2);
    const uint32_t count = static_cast<uint32_t>(c.count);
    LocalTensor<float> fresh(TPosition::VECCALC, 5 * REGION, 64);
    switch (c.op) {
#define CASE(op) case op: asc_vf_call<OrderVF<op>>(d, a); break;
        CASE(READ_AFTER_WRITE) CASE(READ_BEHIND_BARRIER) CASE(READ_BEHIND_ALL) CASE(READ_BEHIND_WRONG_BARRIER) CASE(READ_SAME_REGISTER)
        CASE(READ_ELSEWHERE) CASE(WRITE_AFTER_READ) CASE(WRITE_BEHIND_BARRIER) CASE(WRITE_DERIVED) CASE(WRITE_OTHER_VALUE)
        CASE(WRITE_MASK_DERIVED) CASE(WRITE_DERIVED_FROM_OTHER) CASE(WRITE_AFTER_WRITE) CASE(WRITE_TWICE_BEHIND_OTHERS) CASE(WRITE_TWICE_BEHIND_BARRIER)
        CASE(WRITE_TWICE_SAME_REGISTER) CASE(WRITE_TWICE_OTHER_VALUE) CASE(WRITE_TWICE_BEHIND_LOAD)
#undef CASE
        case LOOP_OF_THE_PAGE: asc_vf_call<LoopVF<true>>(d, d, a, 64 * 4, uint16_t(4)); break;
        case LOOP_WITHOUT_BARRIER: asc_vf_call<LoopVF<false>>(d, d, a, 64 * 4, uint16_t(4)); break;
        case SUM_OVER_ITS_OWN: asc_vf_call<SumVF<true>>(a, b); break;
        case SUM_OVER_THE_OTHER: asc_vf_call<SumVF<false>>(a, b); break;
        case GATHER_WITHOUT_BARRIER: asc_vf_call<GatherBehindStoreVF>(d, f.at<uint32_t>(2)); break;
        case TWO_FUNCTIONS:
            asc_vf_call<CopyVF>(d, a);
            asc_vf_call<CopyVF>(d + 64, d);
            asc_vf_call<CopyVF>(d, b);
            break;
        case NO_FLAG_BEFORE: {
            GlobalTensor<uint8_t> global;
            global.SetGlobalBuffer(f.global(), REGION);
            DataCopy(f.tensor(1), global, REGION);  // @copy_in
            asc_vf_call<CopyVF>(d, a);
            break;
        }
        case NO_FLAG_BEHIND: {
            GlobalTensor<uint8_t> global;
            global.SetGlobalBuffer(f.global(), REGION);
            asc_vf_call<CopyVF>(a, d);
            DataCopy(global, f.tensor(1), REGION);  // @copy_out
            SetFlag<HardEvent::MTE3_V>(1);
            WaitFlag<HardEvent::MTE3_V>(1);
            break;
        }
#define CASE(op) case op: asc_vf_call<UnwrittenVF<op>>(d, op == UNWRITTEN_MEMORY ? fresh.GetPhyAddr() : a, count); break;
        case UNWRITTEN_MASKED:
            Duplicate(fresh, 1.0f, 32);
            asc_vf_call<UnwrittenVF<UNWRITTEN_MASKED>>(d, fresh.GetPhyAddr(), count);
            break;
        CASE(UNWRITTEN_MEMORY) CASE(UNWRITTEN_REGISTER) CASE(UNWRITTEN_ACCUMULATOR) CASE(UNWRITTEN_MASK) CASE(UNWRITTEN_ADDRESS)
#undef CASE
        case HALF_WRITTEN: asc_vf_call<HalfWrittenVF>(fresh.GetPhyAddr()); break;
        case FREED_TENSOR: {
            TQue<TPosition::VECIN, 1> queue;
            f.pipe().InitBuffer(queue, 1, 256);
            LocalTensor<float> tensor = queue.AllocTensor<float>();
            Duplicate(tensor, 1.0f, 64);
            queue.FreeTensor(tensor);
            asc_vf_call<CopyVF>(d, tensor.GetPhyAddr());  // @freed
            break;
        }
        case GLOBAL_ARGUMENT: asc_vf_call<CopyVF>(d, reinterpret_cast<__ubuf__ float*>(f.global())); break;  // @global
        case CALL_IN_FUNCTION: asc_vf_call<CallVF>(d); break;
        case SCALAR_IN_FUNCTION: asc_vf_call<ScalarVF>(d); break;
        case OUTSIDE_OF_FUNCTION: {
            Reg::RegTensor<float> x;
            Reg::Duplicate(x, 1.0f);  // @outside
            break;
        }
        case FIVE_UNALIGNED: asc_vf_call<FiveVF>(a); break;
        case POST_MISSING: asc_vf_call<PostMissingVF>(d, a); break;
        case NOT_ADJACENT: asc_vf_call<NotAdjacentVF>(d, a); break;
        case PRE_MISSING: asc_vf_call<PreMissingVF>(a); break;
        case PLAIN_POINTER: asc_vf_call<PlainVF>(d); break;
        case STEP_UNALIGNED: asc_vf_call<StepVF>(a); break;
        case SAME_DESTINATIONS: asc_vf_call<SameVF>(a); break;
        case COUNTED: asc_vf_call<CountedVF>(d, a, b, count, static_cast<uint16_t>(c.d)); break;
        default: asc_vf_call<CountedStoresVF>(d, static_cast<uint16_t>(c.d)); break;
    }
}
REGISTER_KERNEL(register_hazards)
