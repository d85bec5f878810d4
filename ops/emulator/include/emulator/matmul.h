// The high-level Matmul class, a part of it: A, B, bias and C in global memory, row-major, called by the vector cores of a mixed
// kernel. Source: the pages Matmul (use), REGIST_MATMUL_OBJ, Init, SetOrgShape, SetSingleShape, SetTail, SetTensorA, SetTensorB,
// SetBias, ClearBias, Iterate, GetTensorC, IterateAll, End, and the struct TCubeTiling.
//
// The cube core of the block does what its vector cores ask for, one call after the other, and the call waits for it. It sees
// what the vector core's scalar knows to be complete: unknown, whether the device waits for the copies under way itself. What
// the class does within L1, L0A, L0B and L0C is not documented: bytes, multiply-adds and their pipes are counted by tiles of
// baseM x baseN over all of k, of which two overlap, and nothing is stored there. Other positions and formats, batches, MX
// types, callbacks, asynchronous calls and a config are not provided.
#pragma once

#include "../kernel_operator.h"

#ifdef ASCENDC_CUBE_ONLY
#error "ASCENDC_CUBE_ONLY is not provided: Matmul is called by the vector cores of a mixed kernel here"
#endif

enum class CubeFormat { ND = 0, NZ, ZN, ZZ, NN, VECTOR, SCALAR, ND_ALIGN, COLUMN_MAJOR };

namespace AscendC {

enum class LayoutMode { NONE = 0, BSNGD = 1, SBNGD = 2, BNGS1S2 = 3, NORMAL = 4 };

template <TPosition POSITION, CubeFormat FORMAT, typename TYPE, bool ISTRANS = false, LayoutMode LAYOUT = LayoutMode::NONE, bool IBSHARE = false, TPosition SRCPOS = TPosition::GM>
struct MatmulType {
    static constexpr TPosition pos = POSITION;
    static constexpr CubeFormat format = FORMAT;
    using T = TYPE;
    static constexpr bool isTrans = ISTRANS;
    static constexpr LayoutMode layout = LAYOUT;
    static constexpr bool ibShare = IBSHARE;
    static constexpr TPosition srcPos = SRCPOS;
};

struct TCubeTiling {
    int32_t usedCoreNum = 0;
    int32_t M = 0, N = 0, Ka = 0, Kb = 0;
    int32_t singleCoreM = 0, singleCoreN = 0, singleCoreK = 0;
    int32_t baseM = 0, baseN = 0, baseK = 0;
    int32_t depthA1 = 0, depthB1 = 0;
    int32_t stepM = 0, stepN = 0;
    int32_t isBias = 0, transLength = 0, iterateOrder = 0;
    int32_t shareMode = 0, shareL1Size = 0, shareL0CSize = 0, shareUbSize = 0;
    int32_t batchM = 0, batchN = 0, singleBatchM = 0, singleBatchN = 0;
    int32_t stepKa = 0, stepKb = 0;
    int32_t depthAL1CacheUB = 0, depthBL1CacheUB = 0;
    int32_t dbL0A = 0, dbL0B = 0, dbL0C = 0;
    int32_t mxTypePara = 0;
};

namespace emu {

/// A matrix in global memory: its element at row i, column j is `line` * i + j behind the start, or turned.
template <class T>
struct GlobalMatrix {
    GlobalTensor<T> memory;
    int64_t line = 0;
    bool turned = false;
    bool given = false;

    /// What a part of it touches, `rows` x `columns` from (row, column) on.
    emulator::Access access(emulator::Access::Kind kind, const char* operand, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
        if (turned) std::swap(row, column), std::swap(rows, columns);
        emulator::Access out = memory.bytes(kind, operand, (row * line + column) * static_cast<int64_t>(sizeof(T)), columns * static_cast<int64_t>(sizeof(T)), sizeof(T));
        out.runs = rows, out.pitch = line * static_cast<int64_t>(sizeof(T));
        return out;
    }
    int64_t offset(int64_t row, int64_t column) const { return (turned ? column * line + row : row * line + column) * static_cast<int64_t>(sizeof(T)); }
    T at(int64_t row, int64_t column) const {
        T value;
        std::memcpy(static_cast<void*>(&value), memory.host(offset(row, column)), sizeof(T));
        return value;
    }
};

/// A tile of C and the numbers that it is made of.
template <class Acc>
struct ProductTile {
    int64_t row = 0, column = 0, m = 0, n = 0;
    std::vector<Acc> sums, left, right;
};

inline emulator::Instruction cube_stage(emulator::Pipe pipe, Site at, emulator::Cost cost, std::vector<emulator::Access> accesses = {}) {
    emulator::Instruction out;
    out.pipe = pipe, out.name = "Matmul", out.at = at, out.cost = cost, out.accesses = std::move(accesses);
    return out;
}

}  // namespace emu

/// C = A x B + bias, of singleCoreM x singleCoreN x singleCoreK, in tiles of baseM x baseN.
template <class A_TYPE, class B_TYPE, class C_TYPE, class BIAS_TYPE = C_TYPE>
class Matmul {
    using A = typename A_TYPE::T;
    using B = typename B_TYPE::T;
    using C = typename C_TYPE::T;
    using Bias = typename BIAS_TYPE::T;
    static constexpr bool whole = std::is_same_v<A, int8_t>;
    using Acc = std::conditional_t<whole, int32_t, float>;
    using Tile = emu::ProductTile<Acc>;
    static_assert(A_TYPE::pos == TPosition::GM && B_TYPE::pos == TPosition::GM && C_TYPE::pos == TPosition::GM, "Matmul: the emulator provides matrices in global memory (TPosition::GM) alone");
    static_assert(A_TYPE::format == CubeFormat::ND && B_TYPE::format == CubeFormat::ND && C_TYPE::format == CubeFormat::ND, "Matmul: the emulator provides CubeFormat::ND alone");
    static_assert(A_TYPE::layout == LayoutMode::NONE && B_TYPE::layout == LayoutMode::NONE && !A_TYPE::ibShare && !B_TYPE::ibShare, "Matmul: the emulator provides no batches and no shared matrices");
    static_assert(std::is_same_v<A, B> && types_impl::in<A>(types_impl::List<half, bfloat16_t, float, int8_t>{}), "Matmul: A and B are both half, bfloat16_t, float or int8_t");
    static_assert(whole ? std::is_same_v<C, int32_t> : types_impl::in<C>(types_impl::List<float, half, bfloat16_t>{}), "Matmul: C is int32_t for int8_t, else float, half or bfloat16_t");

   public:
    void Init(const TCubeTiling* cubeTiling, TPipe* tpipe = nullptr, Site at = Site::here()) {
        static_cast<void>(tpipe);
        tiling_ = *cubeTiling;
        SetOrgShape(tiling_.M, tiling_.N, tiling_.Ka, tiling_.Kb);
        SetSingleShape(tiling_.singleCoreM, tiling_.singleCoreN, tiling_.singleCoreK);
        a_.given = b_.given = bias_given_ = false;
        ready_ = legal_tiling(at);
    }
    void SetOrgShape(int orgM, int orgN, int orgK) { SetOrgShape(orgM, orgN, orgK, orgK); }
    void SetOrgShape(int orgM, int orgN, int orgKa, int orgKb, int orgKc = 0) {
        org_m_ = orgM, org_n_ = orgN, org_ka_ = orgKa, org_kb_ = orgKb, org_c_ = orgKc ? orgKc : orgN;
    }
    void SetSingleShape(int singleM, int singleN, int singleK) { m_ = singleM, n_ = singleN, k_ = singleK, next_ = 0; }
    void SetTail(int tailM = -1, int tailN = -1, int tailK = -1) { SetSingleShape(tailM < 0 ? m_ : tailM, tailN < 0 ? n_ : tailN, tailK < 0 ? k_ : tailK); }
    void SetTensorA(const GlobalTensor<A>& gm, bool isTransposeA = false, Site at = Site::here()) {
        if (emulator::require(A_TYPE::isTrans || !isTransposeA, "argument", at, "SetTensorA", "isTransposeA is true and the MatmulType's ISTRANS is not.")) a_ = {gm, isTransposeA ? org_m_ : org_ka_, isTransposeA, true}, next_ = 0;
    }
    void SetTensorB(const GlobalTensor<B>& gm, bool isTransposeB = false, Site at = Site::here()) {
        if (emulator::require(B_TYPE::isTrans || !isTransposeB, "argument", at, "SetTensorB", "isTransposeB is true and the MatmulType's ISTRANS is not.")) b_ = {gm, isTransposeB ? org_kb_ : org_n_, isTransposeB, true}, next_ = 0;
    }
    void SetBias(const GlobalTensor<Bias>& biasGlobal) { bias_ = biasGlobal, bias_given_ = true; }
    void ClearBias() { bias_given_ = false; }
    void DisableBias() { ClearBias(); }

    /// All tiles, to where they belong in C. enAtomic: 1 adds to C, 2 takes the larger, 3 the smaller one.
    template <bool sync = true>
    void IterateAll(const GlobalTensor<C>& gm, uint8_t enAtomic = 0, bool enSequentialWrite = false, bool waitIterateAll = false, bool fakeMsg = false, Site at = Site::here()) {
        static_assert(sync, "IterateAll: the emulator provides the synchronous call alone");
        static_cast<void>(waitIterateAll), static_cast<void>(fakeMsg);
        if (!legal("IterateAll", at) || !legal_atomic("IterateAll", enAtomic, at)) return;
        Matmul self = *this;
        emulator::cube_post([self, gm, enAtomic, enSequentialWrite, at]() mutable { self.all(gm, enAtomic, enSequentialWrite, at); }, at);
        next_ = 0;
    }
    /// The next tile, first along m (iterateOrder 0) or along n; false behind the last one. enPartialSum: onto what the tile has.
    template <bool sync = true>
    bool Iterate(bool enPartialSum = false, Site at = Site::here()) {
        static_assert(sync, "Iterate: the emulator provides the synchronous call alone");
        if (!legal("Iterate", at)) return false;
        if (!emulator::require(!enPartialSum || (m_ <= tiling_.baseM && n_ <= tiling_.baseN), "argument", at, "Iterate", "enPartialSum is true and C is more than one tile.")) return false;
        if (enPartialSum && tile_) {
            next_ = 0;
        } else if (next_ >= tiles()) {
            next_ = 0, tile_.reset();
            return false;
        }
        const std::shared_ptr<Tile> before = enPartialSum ? tile_ : nullptr;
        const std::shared_ptr<Tile> tile = make_tile(next_++);
        Matmul self = *this;
        emulator::cube_post([self, tile, before, at] {
            self.load(tile, at);
            emulator::wait_pipe(emulator::Pipe::MTE2, "Matmul", at);
            self.multiply(tile, before, at);
        }, at);
        tile_ = tile;
        return true;
    }
    /// The tile of the last Iterate; enSequentialWrite: baseM x baseN from the start of gm on, and not where it belongs in C.
    template <bool sync = true>
    void GetTensorC(const GlobalTensor<C>& gm, uint8_t enAtomic = 0, bool enSequentialWrite = false, Site at = Site::here()) {
        static_assert(sync, "GetTensorC: the emulator provides the synchronous call alone");
        if (!emulator::require(tile_ != nullptr, "argument", at, "GetTensorC", "there is no tile; Iterate comes first.") || !legal_atomic("GetTensorC", enAtomic, at)) return;
        const std::shared_ptr<Tile> tile = tile_;
        Matmul self = *this;
        emulator::cube_post([self, tile, gm, enAtomic, enSequentialWrite, at] { self.store(tile, gm, enAtomic, enSequentialWrite, at); }, at);
    }
    void End(Site at = Site::here()) { emulator::cube_leave(at); }

   private:
    bool legal_tiling(Site at) const {
        const auto& t = tiling_;
        const auto capacity = [](emulator::Space space) {
            const emulator::Core* const cube = emulator::sibling(0);
            return cube ? static_cast<int64_t>(cube->capacity[static_cast<int>(space)]) : int64_t{1} << 40;
        };
        const auto fits = [&](int64_t bytes, emulator::Space space, const char* what) {
            return emulator::require(bytes <= capacity(space), "capacity", at, "Matmul", std::string(what) + " need " + std::to_string(bytes) + " bytes and there are " + std::to_string(capacity(space)) + ".");
        };
        const int64_t size = sizeof(A), m = t.baseM, n = t.baseN, k = t.baseK;
        if (!emulator::require(m > 0 && n > 0 && k > 0 && m % 16 == 0 && n % 16 == 0 && k * size % 32 == 0, "argument", at, "Matmul", "baseM, baseN, baseK are " + std::to_string(m) + ", " + std::to_string(n) + ", " + std::to_string(k) + "; they have to be positive, the first two multiples of 16, the last one of 32 bytes.")) return false;
        return fits(m * k * size * std::max(1, t.dbL0A), emulator::Space::L0A, "tiles of A in L0A") && fits(n * k * size * std::max(1, t.dbL0B), emulator::Space::L0B, "tiles of B in L0B") &&
               fits(m * n * 4 * std::max(1, t.dbL0C), emulator::Space::L0C, "tiles of C in L0C") && fits((m * t.depthA1 + n * t.depthB1) * k * size, emulator::Space::L1, "tiles of A and B in L1");
    }
    bool legal(const char* call, Site at) const {
        if (!emulator::require(ready_, "argument", at, call, "the object has no tiling that fits; REGIST_MATMUL_OBJ or Init gives it one.")) return false;
        if (!emulator::require(a_.given && b_.given, "argument", at, call, "A or B is missing; SetTensorA and SetTensorB come first.")) return false;
        return emulator::require(m_ > 0 && n_ > 0 && k_ > 0 && m_ <= org_m_ && n_ <= org_c_ && k_ <= org_ka_, "argument", at, call, "the part is " + std::to_string(m_) + " x " + std::to_string(n_) + " x " + std::to_string(k_) + " of " + std::to_string(org_m_) + " x " + std::to_string(org_n_) + " x " + std::to_string(org_ka_) + "; it has to be positive and within it.");
    }
    static bool legal_atomic(const char* call, uint8_t enAtomic, Site at) { return emulator::require(enAtomic <= 3, "argument", at, call, "enAtomic is " + std::to_string(enAtomic) + "; it has to be 0 to 3."); }
    int64_t along(int64_t all, int64_t base) const { return (all + base - 1) / base; }
    int64_t tiles() const { return along(m_, tiling_.baseM) * along(n_, tiling_.baseN); }
    std::shared_ptr<Tile> make_tile(int64_t number) const {
        const int64_t down = along(m_, tiling_.baseM), across = along(n_, tiling_.baseN);
        const auto tile = std::make_shared<Tile>();
        tile->row = (tiling_.iterateOrder == 0 ? number % down : number / across) * tiling_.baseM;
        tile->column = (tiling_.iterateOrder == 0 ? number / down : number % across) * tiling_.baseN;
        tile->m = std::min<int64_t>(tiling_.baseM, m_ - tile->row), tile->n = std::min<int64_t>(tiling_.baseN, n_ - tile->column);
        return tile;
    }

    // ---- on the cube core ----

    void load(const std::shared_ptr<Tile>& tile, Site at) const {
        using Kind = emulator::Access::Kind;
        const int64_t k = k_;
        std::vector<emulator::Access> accesses{a_.access(Kind::Read, "A", tile->row, 0, tile->m, k), b_.access(Kind::Read, "B", 0, tile->column, k, tile->n)};
        if (bias_given_) accesses.push_back(bias_.bytes(Kind::Read, "bias", tile->column * static_cast<int64_t>(sizeof(Bias)), tile->n * static_cast<int64_t>(sizeof(Bias)), sizeof(Bias)));
        const uint64_t bytes = static_cast<uint64_t>((tile->m + tile->n) * k) * sizeof(A) + (bias_given_ ? static_cast<uint64_t>(tile->n) * sizeof(Bias) : 0);
        const Matmul self = *this;
        emulator::issue(emu::cube_stage(emulator::Pipe::MTE2, at, emulator::Cost::move("GM->L1", bytes), std::move(accesses)), [self, tile, k] {
            tile->left.resize(static_cast<size_t>(tile->m * k)), tile->right.resize(static_cast<size_t>(k * tile->n));
            for (int64_t i = 0; i < tile->m; ++i)
                for (int64_t j = 0; j < k; ++j) tile->left[static_cast<size_t>(i * k + j)] = static_cast<Acc>(self.a_.at(tile->row + i, j));
            for (int64_t j = 0; j < k; ++j)
                for (int64_t i = 0; i < tile->n; ++i) tile->right[static_cast<size_t>(j * tile->n + i)] = static_cast<Acc>(self.b_.at(j, tile->column + i));
            tile->sums.assign(static_cast<size_t>(tile->m * tile->n), Acc(0));
            for (int64_t i = 0; i < tile->n && self.bias_given_; ++i) {
                Bias value;
                std::memcpy(static_cast<void*>(&value), self.bias_.host((tile->column + i) * static_cast<int64_t>(sizeof(Bias))), sizeof(Bias));
                for (int64_t row = 0; row < tile->m; ++row) tile->sums[static_cast<size_t>(row * tile->n + i)] = static_cast<Acc>(value);
            }
        });
    }
    void multiply(const std::shared_ptr<Tile>& tile, const std::shared_ptr<Tile>& before, Site at) const {
        const int64_t k = k_, size = sizeof(A), c0 = 32 / size;
        emulator::issue(emu::cube_stage(emulator::Pipe::MTE1, at, emulator::Cost::move("L1->L0A", static_cast<uint64_t>(tile->m * k * size))), [] {});
        emulator::issue(emu::cube_stage(emulator::Pipe::MTE1, at, emulator::Cost::move("L1->L0B", static_cast<uint64_t>(tile->n * k * size))), [] {});
        emulator::wait_pipe(emulator::Pipe::MTE1, "Matmul", at);
        const char* const name = whole ? "int8" : std::is_same_v<A, half> ? "fp16" : std::is_same_v<A, bfloat16_t> ? "bf16" : "fp32";
        const int64_t padded = (tile->m + 15) / 16 * 16 * ((tile->n + 15) / 16 * 16) * ((k + c0 - 1) / c0 * c0);
        emulator::issue(emu::cube_stage(emulator::Pipe::M, at, emulator::Cost::cube(name, static_cast<uint64_t>(tile->m * tile->n * k), static_cast<uint64_t>(padded))), [tile, before, k] {
            if (before) tile->sums = before->sums;
            for (int64_t i = 0; i < tile->m; ++i)
                for (int64_t j = 0; j < k; ++j) {
                    const Acc left = tile->left[static_cast<size_t>(i * k + j)];
                    const Acc* const right = &tile->right[static_cast<size_t>(j * tile->n)];
                    Acc* const sums = &tile->sums[static_cast<size_t>(i * tile->n)];
                    EMULATOR_EACH(n, tile->n) sums[n] += left * right[n];
                }
        });
        emulator::wait_pipe(emulator::Pipe::M, "Matmul", at);
    }
    void store(const std::shared_ptr<Tile>& tile, const GlobalTensor<C>& gm, uint8_t atomic, bool sequential, Site at) const {
        using Kind = emulator::Access::Kind;
        const emu::GlobalMatrix<C> c{gm, sequential ? tiling_.baseN : org_c_, false, true};
        const int64_t row = sequential ? 0 : tile->row, column = sequential ? 0 : tile->column;
        emulator::Control control;
        control.atomic = atomic > 0, control.atomic_op = static_cast<uint8_t>(atomic > 0 ? atomic - 1 : 0);
        std::vector<emulator::Access> accesses{c.access(atomic > 0 ? Kind::Atomic : Kind::Write, "C", row, column, tile->m, tile->n)};
        emulator::issue(emu::cube_stage(emulator::Pipe::FIX, at, emulator::Cost::move("L0C->GM", static_cast<uint64_t>(tile->m * tile->n) * sizeof(C)), std::move(accesses)), [=] {
            std::vector<C> line(static_cast<size_t>(tile->n));
            for (int64_t i = 0; i < tile->m; ++i) {
                for (int64_t j = 0; j < tile->n; ++j) line[static_cast<size_t>(j)] = static_cast<C>(tile->sums[static_cast<size_t>(i * tile->n + j)]);
                emu::store_row<C>(c.memory.host(c.offset(row + i, column)), reinterpret_cast<const uint8_t*>(line.data()), tile->n * static_cast<int64_t>(sizeof(C)), control);
            }
        });
    }
    void all(const GlobalTensor<C>& gm, uint8_t atomic, bool sequential, Site at) {
        std::shared_ptr<Tile> coming = make_tile(0);
        load(coming, at);
        for (int64_t number = 0; number < tiles(); ++number) {
            const std::shared_ptr<Tile> tile = coming;
            emulator::wait_pipe(emulator::Pipe::MTE2, "Matmul", at);
            if (number + 1 < tiles()) load(coming = make_tile(number + 1), at);
            multiply(tile, nullptr, at);
            // Tiles one behind the other are baseM x baseN apart.
            store(tile, sequential ? gm[number * tiling_.baseM * tiling_.baseN] : gm, atomic, sequential, at);
        }
    }

    TCubeTiling tiling_;
    bool ready_ = false, bias_given_ = false;
    int64_t org_m_ = 0, org_n_ = 0, org_ka_ = 0, org_kb_ = 0, org_c_ = 0, m_ = 0, n_ = 0, k_ = 0, next_ = 0;
    emu::GlobalMatrix<A> a_;
    emu::GlobalMatrix<B> b_;
    GlobalTensor<Bias> bias_;
    std::shared_ptr<Tile> tile_;
};

namespace emu {

template <class Object>
void init_matmul(Site at, Object& object) {
    static_cast<void>(object), static_cast<void>(at);  // Init gives it its tiling
}
template <class Object, class Tiling, class... More>
void init_matmul(Site at, Object& object, Tiling&& tiling, More&&... more) {
    if constexpr (std::is_pointer_v<std::decay_t<Tiling>>) object.Init(tiling, nullptr, at);
    else object.Init(&tiling, nullptr, at);
    static_assert(sizeof...(More) == 0, "REGIST_MATMUL_OBJ: the emulator provides one Matmul object a kernel");
}
/// The cube core serves its vector cores, and its program ends with that.
inline void serve_matmul(Site at) {
    if constexpr (g_coreType == AIC) {
        EMULATOR_USES("asc_uses_cube");
        emulator::cube_serve(at);
    }
}

}  // namespace emu

}  // namespace AscendC

/// Before the first InitBuffer. On a cube core nothing behind it is run: "the cube core does of itself no more".
#define REGIST_MATMUL_OBJ(tpipe, workspace, ...)                                      \
    static_cast<void>(tpipe), static_cast<void>(workspace);                          \
    AscendC::emu::serve_matmul(AscendC::Site::here(__FILE__, __LINE__));             \
    AscendC::emu::init_matmul(AscendC::Site::here(__FILE__, __LINE__), __VA_ARGS__)
