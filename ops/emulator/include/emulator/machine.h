// The machine under the kernel: what the API headers call, and what runtime/ implements.
//
// An API call becomes an Instruction: a pipe, the bytes it reads and writes, what it costs, and a function that does it on
// host memory. The runtime keeps one queue a pipe and core, runs an instruction when its queue lets it, and checks every
// access against the happens-before relation that the kernel's own flags and barriers establish.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace emulator {

enum class Arch : int { dav2201 = 2201, dav3510 = 3510 };
enum class Role : uint8_t { AIC, AIV };
enum class Pipe : uint8_t { S, V, M, MTE1, MTE2, MTE3, FIX, Count };
enum class Space : uint8_t { GM, UB, L1, L0A, L0B, L0C, BT, FB, L0A_MX, L0B_MX, Count };

/// Where in the kernel's source a call stands. As a default argument `Site at = Site::here()` it is the caller's line.
struct Site {
    const char* file = "";
    int line = 0;
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

/// Bytes that an instruction touches: `runs` runs of `bytes`, `pitch` apart, and all of that `groups` times, `group_pitch`
/// apart. `begin` is an offset in a local memory, or an address in global memory.
struct Access {
    enum class Kind : uint8_t { Read, Write, Atomic };
    Space space = Space::UB;
    Kind kind = Kind::Read;
    const char* operand = "";  // "dst", "src0": names the argument in a report
    int64_t begin = 0;
    int64_t bytes = 0;
    int64_t runs = 1, pitch = 0;
    int64_t groups = 1, group_pitch = 0;
    int64_t low = 0, high = -1;  // the buffer or tensor that the access has to stay in; high < 0: the whole memory, and in
                                 // global memory the whole tensor that `low` is in
    uint32_t allocation = 0;     // of a queue's buffer; 0: none
    uint32_t align = 1;          // bytes that `begin` has to be a multiple of
    int8_t owner = -1;           // whose local memory: -1 this core's, 0 the block's cube core's, 1 or 2 its vector cores'
    bool in_order = false;       // the pipe itself keeps this access behind its own earlier ones (accumulation in L0C)
    bool scratch = false;        // a write whose bytes mean nothing afterwards: working memory of the call
    bool unit = false;           // of L0C: the unit flags order it against those of the other pipe (Instruction::unit_flag)
    bool carries = false;        // read: undefined bytes are moved on and not reported; `forget` them where they arrive
};

/// What an instruction costs, for the counters and the time estimate.
struct Cost {
    enum class Unit : uint8_t { None, Move, Vector, Cube, Scalar };
    Unit unit = Unit::None;
    const char* what = "";   // "GM->UB", "Add<float>", "bf16": the counter's name
    uint64_t amount = 0;     // bytes, elements, multiply-adds
    uint64_t repeats = 0;    // vector: repeats of 256 bytes; cube: steps of one fractal product
    static Cost move(const char* path, uint64_t bytes) { return {Unit::Move, path, bytes, 0}; }
    static Cost vector(const char* call, uint64_t elements, uint64_t repeats) { return {Unit::Vector, call, elements, repeats}; }
    static Cost cube(const char* type, uint64_t macs, uint64_t steps) { return {Unit::Cube, type, macs, steps}; }
};

struct Instruction {
    Pipe pipe = Pipe::S;
    const char* name = "";
    Site at;
    std::vector<Access> accesses;
    Cost cost;
    // 2, 3: on pipe M it waits until the unit flags of its L0C blocks are clear, on FIX until they are set; 3 turns them.
    uint8_t unit_flag = 0;
};

/// Control registers of a core that instructions capture when they are issued.
struct Control {
    bool counter_mode = false;
    uint64_t mask[2] = {~0ull, ~0ull};  // low, high; in counter mode mask[0] is the number of elements
    bool atomic = false;
    uint8_t atomic_type = 0;   // of AscendC's data types, 0: the tensor's own
    uint8_t atomic_op = 0;     // 0 add, 1 max, 2 min
    bool hf32 = false, hf32_nearest_zero = false;
    uint64_t ctrl = 1ull << 60;           // bits of the control register that SetCtrlSpr changes, as they are by default
    uint16_t deq_scale = 0;               // SetDeqScale(half), its bits
    bool deq_scale_set = false;
    uint64_t fmatrix = 0, padding_value = 0, compare_mask[2] = {0, 0};
    uint64_t copy_padding = 0;            // SetPadValue, of DataCopyPad
    bool copy_padding_set = false;
    bool nddma_fresh = false;             // NdDmaDci has been called
    uint64_t load_repeat = 1ull << 16;    // of LoadData 3D: stride, times << 16, mode << 24, dstStride << 32, set << 63
    uint64_t results[8] = {};             // of reductions and sorts, read by the Get...Spr calls
};

/// What a core knows of itself.
struct Core {
    Arch arch;
    Role role;
    uint32_t block = 0, sub = 0;           // block of the launch; 0 or 1 for the vector cores of a mixed block
    uint32_t vector_cores_a_block = 1;
    uint32_t block_index = 0, block_count = 0;  // as GetBlockIdx and GetBlockNum return them
    Control control;
    uint8_t* memory[static_cast<int>(Space::Count)] = {};  // host address of each local memory
    uint32_t capacity[static_cast<int>(Space::Count)] = {};
    void* pipe_object = nullptr;           // the TPipe that is alive
    bool pipe_made = false;                // one has been made before

    uint8_t* local(Space space, int64_t offset) const { return memory[static_cast<int>(space)] + offset; }
};

/// The core whose code is running.
Core& core();
/// A core of the same block: 0 the cube core, 1 and 2 the vector cores; nullptr when the kernel type has none.
Core* sibling(int which);

// ---- Instructions ------------------------------------------------------------------------------------------------

enum class Turn { Now, Later, Never };

/// Takes the instruction into its pipe. Now: the caller runs it and then calls `finish`; Never: it was refused, a report
/// says why.
Turn start(Instruction& instruction);
void finish();
void defer(Instruction&& instruction, std::function<void()> run);

/// Issue an instruction whose effect on memory is `run`. Nothing of the caller may be captured by reference in it.
template <class Run>
inline void issue(Instruction instruction, Run run) {
    const Turn turn = start(instruction);
    if (turn == Turn::Now) {
        run();
        finish();
    } else if (turn == Turn::Later) {
        defer(std::move(instruction), std::function<void()>(std::move(run)));
    }
}

/// Report an access made by the instruction that is running now and could not be told before (gathers). An access
/// of 0 bytes at the issue has it asked then whether a queue's tensor is the program's.
/// False: it is outside of its memory and must not be done.
bool touch(const Access& access);

/// The parts of [begin, end) of a local memory of this core that nothing has written or that were forgotten; none when
/// accesses are not checked.
std::vector<std::pair<int64_t, int64_t>> unwritten(Space space, int64_t begin, int64_t end);
/// What the instruction that is running now wrote there is undefined: a read of it is a hazard.
void forget(const Access& access);
/// Clear the unit flags of all blocks of L0C.
void clear_unit_flags();

/// A scalar access, done at once: true when it may be done.
bool scalar_access(const Access& access, const char* name, Site at);

/// Count scalar work that no memory access stands for.
void scalar_work(uint64_t operations);

/// Name a mistake. `kind` is one of the kinds listed in report.py.
void report(const char* kind, Site at, const std::string& message);

/// Refuse an argument: reports `kind` and returns false when `allowed` is false.
inline bool require(bool allowed, const char* kind, Site at, const char* call, const std::string& message) {
    if (!allowed) report(kind, at, std::string(call) + ": " + message);
    return allowed;
}

// ---- Synchronization ----------------------------------------------------------------------------------------------

void set_flag(Pipe from, Pipe to, int id, Site at, const char* call = "SetFlag");
void wait_flag(Pipe from, Pipe to, int id, Site at, const char* call = "WaitFlag");
void barrier(Pipe pipe, Site at);
/// The scalar waits for what `pipe` was given so far, as calls that return a result of it do.
void wait_pipe(Pipe pipe, const char* call, Site at);
void barrier_all(Site at);
/// The barrier that a call has in itself, between instructions of one pipe: no barrier of the program.
void order_pipe(Pipe pipe, Site at);
/// The wait that a call has in itself: as barrier_all, but no barrier of the program.
void drain_pipes(Site at);
void cross_core_set(int mode, Pipe pipe, int id, Site at);
void cross_core_wait(int mode, Pipe pipe, int id, Site at);  // Pipe::S: the whole core waits
/// `used` cores, 0: all; `soft`: through global memory, without the unit that cross-core flags need.
void sync_all(bool cube_too, Site at, bool soft = false, int64_t used = 0);
/// Flags of dav-3510 that one pipe holds at a time, in the order in which the program locks them.
void lock_mutex(Pipe pipe, int id, Site at);
void unlock_mutex(Pipe pipe, int id, Site at);
int allocate_mutex(Site at);
void release_mutex(int id, Site at);
/// A flag in global memory between cores: the sender's pipes are empty when it sets it, the receiver waits as a whole.
void block_set(uint64_t address, Site at);
void block_wait(uint64_t address, const std::string& what, Site at);
/// A vector core has its block's cube core do `job` and waits until it is done. The cube core does what its vector cores ask
/// for, in `cube_serve`, until each of them has said that it asks no more; its program ends there.
void cube_post(std::function<void()> job, Site at);
void cube_serve(Site at);
void cube_leave(Site at);
/// Write the core's scalar cache back to global memory (the line at `address`, or all of it) and forget it.
void clean_cache(uint64_t address, bool whole, Site at);
/// Let other cores run; counts as waiting for them.
void yield_core();

/// Event ids that AllocEventID, FetchEventID and the queues share.
int allocate_event(Pipe from, Pipe to, Site at);
void release_event(Pipe from, Pipe to, int id, Site at);

// ---- Memory ---------------------------------------------------------------------------------------------------------

/// A buffer of a queue becomes the program's (true) or free again (false); 0 is never an allocation.
uint32_t allocation_begin(Space space, int64_t begin, int64_t bytes, Site at);
void allocation_end(uint32_t allocation, Site at, const char* call);

/// Host address of a global address, nullptr when nothing is there. `bytes` from it on are in one tensor.
uint8_t* global(uint64_t address, int64_t* bytes);
/// Contents of a local memory become undefined, as when a pipe object starts anew.
void poison(Space space);
/// Scalar load and store through the core's data cache; `value` holds up to 8 bytes, `low` and `high` are the tensor's.
bool scalar_global(uint64_t address, void* value, int bytes, bool store, Site at, const char* name, int64_t low = 0, int64_t high = -1);

/// Local addresses handed out as pointers: nothing is mapped there, so a raw dereference is caught.
/// Bits 0 to 31 are the offset, bits 32 to 39 which argument of a vector function it is of (1, 2, ...; 0: of none).
constexpr uint64_t POINTER_BASE = 0x100000000000ull, POINTER_STEP = 0x010000000000ull, POINTER_TAG = 1ull << 32;
constexpr uint64_t GLOBAL_BASE = 0x200000000000ull;
inline uint64_t pointer_of(Space space, int64_t offset) {
    return POINTER_BASE + static_cast<uint64_t>(space) * POINTER_STEP + static_cast<uint64_t>(offset);
}
inline Space space_of(uint64_t pointer) { return static_cast<Space>((pointer - POINTER_BASE) / POINTER_STEP); }
inline int64_t offset_of(uint64_t pointer) { return static_cast<int32_t>(static_cast<uint32_t>(pointer)); }
inline int tag_of(uint64_t pointer) { return static_cast<int>((pointer + POINTER_TAG / 2) / POINTER_TAG % 256); }

// ---- Vector functions of dav-3510 -----------------------------------------------------------------------------------

/// What a register's value derives from: loads of the running vector function, as ranges of their numbers, and the newest
/// store that these loads came behind.
struct Origin {
    static constexpr int RANGES = 6;
    struct Range {
        uint32_t first, last;
    };
    Range ranges[RANGES];
    int count = 0;
    uint32_t stores = 0;

    void add(Range range);
    void join(const Origin& other);
    bool has(uint32_t load) const;
};

/// The buffer that an address of local memory was taken from; high < 0: not known, the whole memory.
struct Buffer {
    Space space = Space::UB;
    int64_t low = 0, high = -1;
    uint32_t allocation = 0;
};
/// GetPhyAddr hands out an address of this buffer.
void address_taken(const Buffer& buffer);
/// The buffer of which an address at `offset` was taken: the largest, the newest of equals, and none that was given away
/// where there is another.
Buffer buffer_at(Space space, int64_t offset);

/// A vector function runs between the two, on the pipe's turn; `buffers` are those of its arguments, `ctrl` the control
/// register as it was at the call. What it did is its cost.
void function_begin(std::vector<Buffer> buffers, uint64_t ctrl);
void function_end();
/// Whether one is running; reports `call` when none is.
bool in_function(const char* call, Site at);
uint64_t function_ctrl();
Buffer argument_buffer(int tag);

/// A number for every value that a register takes on.
uint32_t new_value();
/// A load of the vector function into a register that held `replaced`, and a store of the register that holds `value`: it
/// comes behind earlier stores of the same value. False: it is outside of its memory and must not be done. A store's accesses
/// are parts of one instruction.
bool register_load(const Access& access, uint32_t replaced, Origin& origin, const char* call, Site at);
bool register_store(const std::vector<Access>& accesses, uint32_t value, const Origin& origin, const char* call, Site at);
/// An instruction of it; `alone`: one a cycle at most.
void register_work(const char* call, uint64_t elements, int cycles, bool alone);

enum class Reach : uint8_t { LoadsAfterStores, StoresAfterLoads, StoresAfterStores, All, Scalar };
/// What comes behind waits for what came before.
void register_barrier(Reach reach, Site at);
/// The scarce registers for addresses that are not aligned: +1 and -1. `which`: 0 for loads, 1 for stores.
void unaligned_register(int which, int change, Site at);

// ---- Mutation -------------------------------------------------------------------------------------------------------

/// A place that a mutation test may change. Registers the place in a run that lists them; true in the run that changes
/// this one. `kind`: "wait", "set", "barrier", "enque", "deque", "free", "alloc", "buffer", "offset", ...
bool mutated(const char* kind, Site at, int detail = 0);

}  // namespace emulator
