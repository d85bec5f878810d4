// The gradient, the cube core's part: products of float32 matrices in the workspace, stage by stage.
#pragma once

#include "ascend_k3/cube.h"
#include "backward_block.h"

namespace ascend_k3 {

template <uint32_t W>
class KdaGradientCube {
    static constexpr KdaGradientRoom ROOM{W};
    static constexpr uint32_t AREA = 64 * 1024;  // bytes of L1 of either operand

   public:
    __aicore__ inline void Run(GM_ADDR offsets, GM_ADDR workspace, const KdaTiling& tiling) {
        offsets_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(offsets), tiling.sequences + 1);
        room_ = workspace + KdaBlock() * tiling.room;
        products_.Begin();
        const KdaHeads heads(tiling, offsets_);
        for (KdaStep step = heads.First(); step.exists; step = heads.Next(step)) {
            for (uint32_t chunk = 0; chunk + 1 < step.chunks; ++chunk) Forward(chunk);
            for (uint32_t chunk = step.chunks; chunk-- > 0;) Backward(chunk);
        }
        products_.End();
    }

   private:
    /// A matrix of the workspace: from a byte on, rows `pitch` apart.
    struct Matrix {
        uint64_t bytes;
        uint16_t rows, columns;
        uint32_t pitch;
    };
    static __aicore__ inline Matrix Wide(uint64_t bytes) { return {bytes, CHUNK, W, W}; }
    static __aicore__ inline Matrix Square(uint64_t bytes) { return {bytes, CHUNK, CHUNK, CHUNK}; }
    static __aicore__ inline Matrix State(uint64_t bytes) { return {bytes, W, W, W}; }
    static __aicore__ inline Matrix Before(uint32_t chunk) { return State(ROOM.states + chunk * ROOM.state); }
    /// Of sub-chunk i: its rows; the columns for it; what of a transposed square belongs to both.
    static __aicore__ inline Matrix Rows(uint64_t bytes, uint32_t i) { return {bytes + i * SUB * W * 4, SUB, W, W}; }
    static __aicore__ inline Matrix Columns(uint64_t bytes, uint32_t i) { return {bytes + FirstColumnRow(i) * W * 4, static_cast<uint16_t>((i + 1) * SUB), W, W}; }
    static __aicore__ inline Matrix Part(uint64_t bytes, uint32_t i) { return {bytes + i * SUB * 4, static_cast<uint16_t>((i + 1) * SUB), SUB, CHUNK}; }

    // ---- stages ----
    __aicore__ inline void Forward(uint32_t chunk) {
        Begin();
        Keys(chunk);
        End();
        Begin();
        Product<Lies::AsIs, Lies::AsIs>(Wide(ROOM.u), Square(ROOM.inverse), Wide(ROOM.values));
        Product<Lies::Transposed, Lies::AsIs>(State(ROOM.change), Wide(ROOM.u), Wide(ROOM.k_end));
        End();
    }
    __aicore__ inline void Backward(uint32_t chunk) {
        Begin();
        Keys(chunk);
        for (uint32_t i = 0; i < SUBS; ++i) Product<Lies::AsIs, Lies::Transposed>(Part(ROOM.a, i), Columns(ROOM.columns, i), Rows(ROOM.rows_q, i));
        End();
        Begin();
        Product<Lies::AsIs, Lies::AsIs>(Wide(ROOM.u), Square(ROOM.inverse), Wide(ROOM.values));
        Product<Lies::Transposed, Lies::AsIs>(Wide(ROOM.of_u), Square(ROOM.masked), Wide(ROOM.u));
        Open();
        Add<Lies::AsIs, Lies::AsIs>(Square(ROOM.a), Wide(ROOM.do_));
        Add<Lies::AsIs, Lies::Transposed>(Wide(ROOM.k_end), State(ROOM.dstate));
        Close(Wide(ROOM.du));
        Product<Lies::Transposed, Lies::AsIs>(Wide(ROOM.r), Square(ROOM.inverse), Wide(ROOM.du));
        Product<Lies::AsIs, Lies::Transposed>(Square(ROOM.da), Wide(ROOM.u), Wide(ROOM.do_));
        Product<Lies::AsIs, Lies::AsIs>(Wide(ROOM.dq), Wide(ROOM.do_), Before(chunk));
        Product<Lies::AsIs, Lies::AsIs>(Wide(ROOM.dk_end), Wide(ROOM.u), State(ROOM.dstate));
        End();
        Begin();
        Product<Lies::AsIs, Lies::Transposed>(Square(ROOM.dm), Wide(ROOM.u), Wide(ROOM.dw));
        Product<Lies::AsIs, Lies::AsIs>(Wide(ROOM.dk), Wide(ROOM.dw), Before(chunk));
        Open();
        Add<Lies::Transposed, Lies::AsIs>(Wide(ROOM.do_), Wide(ROOM.q));
        Add<Lies::Transposed, Lies::AsIs>(Wide(ROOM.dw), Wide(ROOM.k));
        Close(State(ROOM.change));
        End();
        Begin();
        for (uint32_t i = 0; i < SUBS; ++i) {
            Product<Lies::Transposed, Lies::AsIs>(Rows(ROOM.drows_q, i), Part(ROOM.da, i), Columns(ROOM.columns, i));
            Product<Lies::Transposed, Lies::AsIs>(Rows(ROOM.drows_k, i), Part(ROOM.dm, i), Columns(ROOM.columns, i));
            Open();
            Add<Lies::AsIs, Lies::AsIs>(Part(ROOM.da, i), Rows(ROOM.rows_q, i));
            Add<Lies::AsIs, Lies::AsIs>(Part(ROOM.dm, i), Rows(ROOM.rows_k, i));
            Close(Columns(ROOM.dcolumns, i));
        }
        End();
    }
    /// M, and how its keys read the state.
    __aicore__ inline void Keys(uint32_t chunk) {
        for (uint32_t i = 0; i < SUBS; ++i) Product<Lies::AsIs, Lies::Transposed>(Part(ROOM.m, i), Columns(ROOM.columns, i), Rows(ROOM.rows_k, i));
        Product<Lies::AsIs, Lies::Transposed>(Wide(ROOM.of_state), Wide(ROOM.k), Before(chunk));
    }

    __aicore__ inline static void Begin() { CrossCoreWaitFlag(gradient_flag::VECTOR); }
    __aicore__ inline static void End() { CrossCoreSetFlag<2, PIPE_FIX>(gradient_flag::CUBE); }

    // ---- products ----
    template <Lies left, Lies right>
    __aicore__ inline void Product(const Matrix& c, const Matrix& a, const Matrix& b) {
        Open();
        Add<left, right>(a, b);
        Close(c);
    }
    __aicore__ inline void Open() { c_ = products_.Open(0); }
    /// c += A B; matrices that fixpipe has stored may be among them.
    template <Lies left, Lies right>
    __aicore__ inline void Add(const Matrix& a, const Matrix& b) {
        Order<HardEvent::FIX_MTE2>();
        Order<HardEvent::MTE1_MTE2>();
        const Nz<float> in_a = Bring(0, a), in_b = Bring(AREA, b);
        Order<HardEvent::MTE2_MTE1>();
        const bool turned = left == Lies::Transposed;
        m_ = turned ? a.columns : a.rows;
        n_ = right == Lies::Transposed ? b.rows : b.columns;
        products_.template Add<left, right>(c_, in_a, in_b, m_, n_, turned ? a.rows : a.columns);
    }
    __aicore__ inline void Close(const Matrix& c) {
        products_.Close();
        StoreRows(Room(c), c_, m_, n_, m_, c.pitch);
        products_.Stored();
    }
    __aicore__ inline Nz<float> Bring(uint32_t l1, const Matrix& from) const {
        const LocalTensor<float> to(TPosition::A1, l1, from.rows * from.columns);
        DataCopy(to, Room(from), Nd2NzParams(1, from.rows, from.columns, 0, from.pitch, from.rows, 1, 0));
        return {to, from.rows, 0, 0};
    }
    __aicore__ inline GlobalTensor<float> Room(const Matrix& matrix) const {
        GlobalTensor<float> out;
        out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(room_ + matrix.bytes), (matrix.rows - 1) * matrix.pitch + matrix.columns);
        return out;
    }

    GlobalTensor<int64_t> offsets_;
    GM_ADDR room_;
    ProductsIn<> products_;
    LocalTensor<float> c_;
    uint16_t m_ = 0, n_ = 0;
};

}  // namespace ascend_k3
