// What the runtime keeps: clocks, pipes, flags, shadows of every memory, counters.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <ucontext.h>
#include <unordered_map>
#include <vector>

#include "../include/emulator/machine.h"

namespace emulator {

constexpr int PIPES = static_cast<int>(Pipe::Count);
constexpr int SPACES = static_cast<int>(Space::Count);
constexpr int EVENT_IDS = 8;         // a pair of pipes has events 0 to 7
constexpr int CROSS_FLAGS = 32;      // 16 a core; mode 4 of dav-3510 adds 16 for the second vector core
constexpr int64_t UNIT_BYTES = 512;  // a unit flag stands for so much of L0C
constexpr int CROSS_PENDING = 15;    // a cross-core counter holds 4 bits

inline int index(Pipe pipe) { return static_cast<int>(pipe); }
inline int index(Space space) { return static_cast<int>(space); }
const char* name_of(Pipe pipe);
const char* name_of(Space space);

// ---- Happens-before ----

/// Newest operation of each pipe of each core that is known to be complete: [cores * PIPES], never changed once shared.
using Remote = std::shared_ptr<const std::vector<uint32_t>>;

/// What is known complete: by pipe of the own core, and of the other cores as of the last word from them.
struct Clock {
    std::array<uint32_t, PIPES> own{};
    Remote remote;
    void join(const Clock& other);
};

void join(Remote& mine, const Remote& other);

struct Token {
    Clock clock;
    double time = 0;
    Site at;
};

constexpr uint16_t HOST = 0xffff;

/// An operation that touched memory: the newest of its kind is kept beside the bytes.
struct Ref {
    uint16_t core = HOST;  // HOST: none of this launch
    uint8_t pipe = 0;
    bool unit = false;
    uint32_t seq = 0;
    uint32_t site = 0;  // index into Machine::sites
};

/// A few Refs, one a pipe and core, without an allocation for the first two.
class Refs {
   public:
    void put(const Ref& ref);
    void clear() { count_ = 0; more_.clear(); }
    bool empty() const { return count_ == 0; }
    template <class F>
    void each(F f) const {
        for (int i = 0; i < count_ && i < 2; ++i) f(first_[i]);
        for (const Ref& ref : more_) f(ref);
    }

   private:
    Ref first_[2];
    int count_ = 0;
    std::vector<Ref> more_;
};

struct Cell {
    bool written = false, undefined = false;  // has a value; undefined: but not a defined one
    Ref writer;
    Refs atomics, readers;
};

/// Every byte of one memory with who touched it last, as runs of bytes of one history.
class Shadow {
   public:
    void reset(int64_t begin, int64_t end, bool written);
    /// No value is defined any more; who touched the bytes is still known.
    void forget();
    /// f(Cell&, begin, end) for the runs of [begin, end), cut at both ends.
    template <class F>
    void each(int64_t begin, int64_t end, F f) {
        const auto last = cut(end);
        for (auto run = cut(begin); run != last; ++run) f(run->second, run->first, std::next(run)->first);
    }

    /// f(const Cell&, begin, end) for the same runs, cutting none.
    template <class F>
    void look(int64_t begin, int64_t end, F f) const {
        auto run = cells_.upper_bound(begin);
        if (run != cells_.begin()) --run;
        for (; run != cells_.end() && run->first < end; ++run) {
            const auto next = std::next(run);
            f(run->second, std::max(begin, run->first), next == cells_.end() ? end : std::min(end, next->first));
        }
    }

   private:
    using Cells = std::map<int64_t, Cell>;  // begin of a run; it ends where the next begins
    Cells::iterator cut(int64_t at);
    void merge(int64_t begin, int64_t end);
    Cells cells_;
    friend struct Checker;
};

// ---- A core ----

struct Operation {
    enum class Kind : uint8_t { Instruction, Set, Wait, Barrier, CrossSet, CrossWait } kind = Kind::Instruction;
    Instruction instruction;
    std::function<void()> run;
    Pipe from = Pipe::S, to = Pipe::S;
    int id = 0, mode = 0;
    bool dropped = false;
    Clock issued;
    double issued_time = 0;
};

struct PipeState {
    std::deque<Operation> queue;
    Clock clock;
    uint32_t seq = 0;
    double time = 0, busy = 0;
};

struct Flag {
    std::deque<Token> tokens;
    int pending = 0;  // sets less waits, in the order of the program
    Site set_at;
    bool taken = false;  // by AllocEventID or a queue
};

/// The flag of a block of L0C between Mmad, which waits until it is clear, and Fixpipe, which waits until it is set.
struct Unit {
    bool set = false;
    double time = 0;  // of the last change
    Site at;
};

/// A line of a core's data cache, through which its scalar reads and writes global memory.
struct Line {
    uint8_t bytes[64];
    uint64_t dirty = 0;    // a bit a byte
    uint64_t checked = 0;  // bytes whose read from memory has been checked
    Site site;             // of the last store
};

struct Counter {
    Cost::Unit unit;
    Pipe pipe;
    uint64_t amount = 0, repeats = 0, calls = 0;
};

/// The stack of a fiber, above pages that cannot be touched.
class Stack {
   public:
    Stack();
    ~Stack();
    Stack(const Stack&) = delete;
    uint8_t* begin() const { return pages_ + GUARD; }
    static constexpr size_t SIZE = 1 << 20, GUARD = 1 << 16;
    bool guards(const void* address) const { return address >= pages_ && address < begin(); }

   private:
    uint8_t* pages_;
};

/// Thrown through a kernel that hangs, so that its objects are destroyed.
struct Stopped {};

struct CoreState {
    Core face;
    int number = 0;
    std::array<PipeState, PIPES> pipes;
    Flag flags[PIPES][PIPES][EVENT_IDS];
    std::deque<Token> cross[CROSS_FLAGS];
    std::deque<Token> halves[CROSS_FLAGS][2];  // a cube core collects the sets of both vector cores here
    std::array<Shadow, SPACES> shadows;
    std::vector<uint8_t> memory[SPACES];
    std::vector<Unit> units;  // of L0C
    std::map<uint64_t, Line> cache;
    std::set<uint64_t> refreshed;  // lines that DataCacheCleanAndInvalid has dropped: their reads may be polls of a flag
    std::map<std::string, Counter> counters;
    uint64_t scalar_operations = 0;
    // the fiber
    ucontext_t context;
    Stack stack;
    void (*entry)(void* const*) = nullptr;
    bool started = false, finished = false;
    std::string blocked;  // what it waits for; empty when it runs
    const Operation* waiting = nullptr;  // the flag among what the scalar may wait for
    Site last_site;
    std::deque<Token> sync_all;  // a token a round that all cores have reached
    // scalar reads since anything else happened: a program that only reads may be polling
    uint64_t quiet_since = 0, quiet_reads = 0;
    std::set<std::pair<int, int64_t>> quiet_addresses;
};

// ---- The machine ----

struct GlobalBuffer {
    uint64_t address;
    int64_t bytes;
    uint8_t* host;
    std::string name;
    enum class Use : int { Tensor = 0, Output = 1, Workspace = 2, Tiling = 3 } use;
    uint64_t read = 0, written = 0;
};

struct Hazard {
    std::string kind, message, file;
    int line;
    uint64_t count;
};

struct Allocation {
    Space space;
    int64_t begin, bytes;
    bool live;
    Site at;
};

struct Slice {  // of the timeline
    int core;
    Pipe pipe;
    double begin, end;
    const char* name;
    Site at;
};

struct Rate {
    std::string name;
    double value;
};

struct MutationPoint {
    std::string kind, file;
    int line, detail;
    bool operator<(const MutationPoint& o) const {
        return std::tie(kind, file, line, detail) < std::tie(o.kind, o.file, o.line, o.detail);
    }
};

struct Machine {
    std::vector<std::unique_ptr<CoreState>> cores;
    CoreState* current = nullptr;
    ucontext_t scheduler;
    int kernel_type = 0;
    uint64_t progress = 0, new_reads = 0;
    bool stopped = false;  // the launch is given up; what still runs is destructors

    std::map<uint64_t, GlobalBuffer> buffers;  // by address
    Shadow global_shadow;
    std::vector<Allocation> allocations;
    std::vector<std::pair<Site, const char*>> sites;
    std::map<std::tuple<const char*, int, const char*>, uint32_t> site_numbers;

    std::vector<Hazard> hazards;
    std::map<std::tuple<std::string, std::string, int, std::string>, size_t> hazard_numbers;
    std::vector<Slice> timeline;
    size_t timeline_limit = 0;
    std::map<std::string, double> rates;  // bytes, repeats or steps a second
    double clock_hz = 1e9;
    bool check = true;
    bool perturb = false;
    bool auto_sync = false;  // as a compiler with --cce-auto-sync=on
    std::mt19937_64 random;

    bool list_mutations = false;
    std::map<MutationPoint, uint64_t> mutation_points;
    bool mutate = false;
    MutationPoint mutation;
    uint64_t mutation_hits = 0;

    // the instruction that is running, for `touch`
    CoreState* running = nullptr;
    Operation* running_operation = nullptr;
    Pipe running_pipe = Pipe::S;

    std::map<std::tuple<int, int, int>, std::map<int, std::deque<Token>>> gathered;  // see cross.cpp
    std::map<uint64_t, Remote> published;  // cache line: what its last scalar store, written back, knew
    std::map<uint64_t, Refs> line_writers; // cache line: the cores that wrote it back
    uint64_t dirty_lines = 0;              // in the caches of all cores
};

extern Machine* machine;
inline CoreState& current() { return *machine->current; }

uint32_t site_number(Site at, const char* name);
void hazard(const char* kind, Site at, const std::string& message, const std::string& key = "");

// machine.cpp
/// Whether the compiler synchronizes the core's vector pipe with itself, and its scalar with V, MTE2 and MTE3; never on
/// cube cores. Source: the page on automatic synchronization within a core, cce-auto-sync.
inline bool auto_sync(const CoreState& core) { return machine->auto_sync && core.face.role == Role::AIV; }
bool can_run(CoreState& core, const Operation& operation);
void perform(CoreState& core, Pipe pipe, Operation& operation);
bool step(CoreState& core, Pipe pipe);
bool pump(CoreState& core);
bool drained(const CoreState& core);
/// A scalar read that changes nothing: a program that does only this lets the others run, and counts as waiting.
void quiet_read(CoreState& core, const Access& access);
/// The scalar program waits for the pipes of a vector core.
void wait_pipes(const char* call, Site at);
/// The scalar program waits until all pipes are empty, and knows of all that they did.
void drain(CoreState& core, const std::string& what, Site at);
/// The scalar program waits until `ready`, while pipes and other cores go on.
void wait_until(const std::function<bool()>& ready, const std::string& what, Site at);

// shadow.cpp
bool check_bounds(CoreState& core, const Access& access, const char* name, Site at);
void check_order(CoreState& core, Pipe pipe, const Clock& clock, uint32_t seq, const Access& access, const char* name,
                 Site at);
void count_scalar_bytes(uint64_t address, int bytes, bool store);

// cross.cpp
void cross_core_fire(CoreState& core, int mode, int id, const Token& token);
/// What `clock` of `core` knows, its own core included: for another core.
Remote everything(const CoreState& core, const Clock& clock);
void receive(CoreState& core, Clock& clock, const Remote& news);
/// For the report of a hang: "; SyncAll has been reached by AIV 0 and not by AIV 1 (has ended)".
std::string missing_cores();

// report.cpp
std::string report_json();

// launch.cpp
/// Leave the fiber until the scheduler comes back to it.
void leave(CoreState& core);

}  // namespace emulator
