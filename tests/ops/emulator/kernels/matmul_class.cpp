// The high-level Matmul class; see test_matmul_class.py. Each block has rows of C, each of its vector cores half of them.
#include "kernel_operator.h"
#include "lib/matmul_intf.h"
using namespace AscendC;

#ifndef ELEMENT
#define ELEMENT half
#define OUTPUT float
#define OFFSETS float
#endif

enum Op : int32_t { all, tiles, sequential, partial_sums, adds, after_vector, early_read, no_end, not_given, too_large, wrong_turn };

struct Args {
    TCubeTiling tiling;
    int32_t op, fixed, turned, part_k;
};

using AType = MatmulType<TPosition::GM, CubeFormat::ND, ELEMENT, true>;
using BType = MatmulType<TPosition::GM, CubeFormat::ND, ELEMENT, true>;
using PlainType = MatmulType<TPosition::GM, CubeFormat::ND, ELEMENT>;
using CType = MatmulType<TPosition::GM, CubeFormat::ND, OUTPUT>;
using BiasType = MatmulType<TPosition::GM, CubeFormat::ND, OFFSETS>;

class Run {
   public:
    __aicore__ inline void Init(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR bias, GM_ADDR workspace, const Args& args) {
        args_ = args;
        REGIST_MATMUL_OBJ(&pipe_, GetSysWorkSpacePtr(), mm_, &args_.tiling);  // @regist
        a_.SetGlobalBuffer((__gm__ ELEMENT*)a);
        b_.SetGlobalBuffer((__gm__ ELEMENT*)b);
        c_.SetGlobalBuffer((__gm__ OUTPUT*)c);
        bias_.SetGlobalBuffer((__gm__ OFFSETS*)bias);
        copied_.SetGlobalBuffer((__gm__ ELEMENT*)workspace);
        pipe_.InitBuffer(buffer_, 4096);
    }
    __aicore__ inline void Process() {
        const TCubeTiling& t = args_.tiling;
        const int64_t row = GetBlockIdx() * t.singleCoreM;
        if (row >= t.M) return mm_.End();
        if (row + t.singleCoreM > t.M) mm_.SetSingleShape(t.M - row, t.singleCoreN, t.singleCoreK);
        if (args_.op != not_given) mm_.SetTensorA(a_[args_.turned ? row : row * t.Ka], args_.turned);
        mm_.SetTensorB(b_, args_.turned);
        if (t.isBias) mm_.SetBias(bias_);
        const GlobalTensor<OUTPUT> c = c_[row * t.N];
        switch (args_.op) {
            case tiles:
                while (mm_.Iterate()) mm_.GetTensorC(c);
                break;
            case sequential: mm_.IterateAll(c, 0, true); break;
            case partial_sums:  // k in parts, onto what the tile has
                for (int32_t first = 0; first < t.Ka; first += args_.part_k) {
                    mm_.SetSingleShape(t.singleCoreM, t.singleCoreN, args_.part_k);
                    mm_.SetTensorA(a_[row * t.Ka + first]);
                    mm_.SetTensorB(b_[first * t.N]);
                    mm_.Iterate(first > 0);
                }
                mm_.GetTensorC(c);
                break;
            case adds:
                mm_.IterateAll(c);
                mm_.IterateAll(c, 1);
                break;
            case after_vector: {  // A is what this core has written, C is what it reads then
                LocalTensor<ELEMENT> line = buffer_.Get<ELEMENT>();
                DataCopy(line, a_[row * t.Ka], t.singleCoreM * t.Ka);
                SetFlag<HardEvent::MTE2_MTE3>(0);
                WaitFlag<HardEvent::MTE2_MTE3>(0);
                DataCopy(copied_[row * t.Ka], line, t.singleCoreM * t.Ka);
                if (args_.fixed) {
                    SetFlag<HardEvent::MTE3_S>(0);
                    WaitFlag<HardEvent::MTE3_S>(0);
                }
                mm_.SetTensorA(copied_[row * t.Ka]);
                mm_.IterateAll(c);  // @after_vector
                LocalTensor<OUTPUT> out = buffer_.Get<OUTPUT>();
                SetFlag<HardEvent::MTE3_MTE2>(0);
                WaitFlag<HardEvent::MTE3_MTE2>(0);
                DataCopy(out, c, t.N);
                SetFlag<HardEvent::MTE2_V>(0);
                WaitFlag<HardEvent::MTE2_V>(0);
                Muls(out, out, static_cast<OUTPUT>(2), t.N);
                SetFlag<HardEvent::V_MTE3>(0);
                WaitFlag<HardEvent::V_MTE3>(0);
                DataCopy(c, out, t.N);
                break;
            }
            case early_read:
                if (!args_.fixed) mm_.GetTensorC(c);  // @early_read
                mm_.IterateAll(c);
                break;
            case not_given:
                if (args_.fixed) mm_.SetTensorA(a_[row * t.Ka]);
                mm_.IterateAll(c);  // @not_given
                break;
            case wrong_turn: {
                Matmul<PlainType, PlainType, CType, BiasType> plain;
                plain.Init(&t);
                if (!args_.fixed) plain.SetTensorA(a_, true);  // @wrong_turn
                break;
            }
            default: mm_.IterateAll(c); break;
        }
        if (args_.op != no_end || args_.fixed) mm_.End();
    }

   private:
    Args args_;
    TPipe pipe_;
    TBuf<TPosition::VECCALC> buffer_;
    Matmul<AType, BType, CType, BiasType> mm_;
    GlobalTensor<ELEMENT> a_, b_, copied_;
    GlobalTensor<OUTPUT> c_;
    GlobalTensor<OFFSETS> bias_;
};

extern "C" __global__ __aicore__ void matmul_class(GM_ADDR a, GM_ADDR b, GM_ADDR c, GM_ADDR bias, Args args, GM_ADDR workspace) {
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    Run run;
    run.Init(a, b, c, bias, workspace, args);
    run.Process();
}
