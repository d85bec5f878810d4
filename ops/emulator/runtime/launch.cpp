// One launch: global memory, the cores, and their fibers until all have ended.
#include "state.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace emulator {

constexpr size_t POISONED_STACK = 1 << 15;  // the part of it that a kernel's own variables are in
constexpr uint64_t IDLE_LIMIT = 20000;  // rounds of all cores in which nothing happened: they poll what never comes

extern "C" {

/// An argument of the kernel: global memory when `bytes` is not negative, otherwise a value.
struct LaunchArgument {
    uint8_t* host;
    int64_t bytes;
    int use;           // GlobalBuffer::Use
    const char* name;
    uint64_t value;    // of a scalar, its bits
};

struct LaunchOptions {
    int arch, kernel_type;  // 0 vector cores only, 1 cube only, 2 cube and one vector core, 3 cube and two, 4 MIX_AIV_1_0,
                            // 5 MIX_AIC_1_0
    uint32_t block_dim;
    void (*cube_entry)(void* const*);
    void (*vector_entry)(void* const*);
    const LaunchArgument* arguments;
    int argument_count;
    const uint32_t* capacities;  // by Space
    const char* const* rate_names;
    const double* rate_values;
    int rate_count;
    double clock_hz;
    int check, perturb, auto_sync;
    uint64_t seed;
    uint64_t timeline_limit;
    int list_mutations, mutate;
    const char* mutation_kind;
    const char* mutation_file;
    int mutation_line, mutation_detail;
    double time_limit;  // seconds, 0: none
};
}

static void* const* entry_arguments = nullptr;

// ---- Faults of the kernel's own code ----

static thread_local volatile sig_atomic_t in_kernel = 0;
static thread_local volatile sig_atomic_t fault_signal = 0;
static thread_local void* volatile fault_address = nullptr;

constexpr int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE};
constexpr int FAULT_COUNT = 3;
constexpr size_t SIGNAL_STACK = 1 << 16;

/// While it lives, a fault in a kernel ends the launch and not the process; any other goes where it went before.
class FaultGuard {
   public:
    FaultGuard() : stack_(SIGNAL_STACK) {
        stack_t stack{};
        stack.ss_sp = stack_.data(), stack.ss_size = stack_.size();
        sigaltstack(&stack, &stack_before_);
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int i = 0; i < FAULT_COUNT; ++i) sigaction(FAULTS[i], &action, &before_[i]);
    }
    ~FaultGuard() {
        for (int i = 0; i < FAULT_COUNT; ++i) sigaction(FAULTS[i], &before_[i], nullptr);
        sigaltstack(&stack_before_, nullptr);
    }
    FaultGuard(const FaultGuard&) = delete;

   private:
    static void on_fault(int signal, siginfo_t* info, void*) {
        if (!in_kernel) {
            for (int i = 0; i < FAULT_COUNT; ++i) sigaction(FAULTS[i], &before_[i], nullptr);
            return;  // it happens again, and the handler of before sees it
        }
        in_kernel = 0;
        fault_signal = signal;
        fault_address = info->si_addr;
        setcontext(&machine->scheduler);
    }
    static inline struct sigaction before_[FAULT_COUNT];
    stack_t stack_before_{};
    std::vector<uint8_t> stack_;
};

static void report_fault(const CoreState& core) {
    const uint64_t address = reinterpret_cast<uint64_t>(fault_address);
    if (fault_signal == SIGFPE)
        return hazard("argument", core.last_site, "after this call the scalar program divides an integer by zero.");
    if (core.stack.guards(fault_address))
        return hazard("capacity", core.last_site,
                      "after this call the scalar program needs more stack than " + std::to_string(Stack::SIZE) + " bytes: it recurses, or keeps large arrays.");
    std::string what;
    char text[64];
    if (address >= POINTER_BASE && address < POINTER_BASE + SPACES * POINTER_STEP) {
        what = "byte " + std::to_string(offset_of(address)) + " of " + name_of(space_of(address));
    } else if (global(address, nullptr) != nullptr) {
        const GlobalBuffer& buffer = std::prev(machine->buffers.upper_bound(address))->second;
        what = "byte " + std::to_string(address - buffer.address) + " of " + buffer.name;
    } else {
        snprintf(text, sizeof text, "address 0x%llx, where there is no memory", static_cast<unsigned long long>(address));
        what = text;
    }
    hazard("raw_pointer", core.last_site,
           "after this call a plain pointer is dereferenced (" + what + "); memory of the device is read and written with GetValue, SetValue and the API only.");
}

// ---- Fibers ----

Stack::Stack() {
    void* pages = mmap(nullptr, GUARD + SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<uint8_t*>(pages);
    mprotect(pages_, GUARD, PROT_NONE);
}

Stack::~Stack() { munmap(pages_, GUARD + SIZE); }

static void fiber_main() {
    CoreState& core = current();
    try {
        core.entry(entry_arguments);
        wait_until([&core] { return drained(core); }, "is at its end", core.last_site);
    } catch (const Stopped&) {
    }
    core.finished = true;
    ++machine->progress;
    swapcontext(&core.context, &machine->scheduler);
}

static std::unique_ptr<CoreState> make_core(const LaunchOptions& options, Role role, uint32_t block, uint32_t sub) {
    auto core = std::make_unique<CoreState>();
    Core& face = core->face;
    face.arch = static_cast<Arch>(options.arch);
    face.role = role;
    face.block = block, face.sub = sub;
    face.vector_cores_a_block = options.kernel_type == 3 ? 2 : options.kernel_type == 1 || options.kernel_type == 5 ? 0 : 1;
    face.block_index = role == Role::AIV ? block * face.vector_cores_a_block + sub : block;
    face.block_count = options.block_dim;
    for (int i = 1; i < SPACES; ++i) {
        const Space space = static_cast<Space>(i);
        const bool mine = (space == Space::UB) == (role == Role::AIV);
        const uint32_t bytes = mine ? options.capacities[i] : 0;
        // Whole vectors of the host may be read behind the end; the start is aligned for them.
        if (bytes > 0) core->memory[i].assign(bytes + 128, 0xff);
        uint8_t* const start = core->memory[i].data();
        face.memory[i] = start + (64 - reinterpret_cast<uintptr_t>(start) % 64) % 64;
        face.capacity[i] = bytes;
        core->shadows[static_cast<size_t>(i)].reset(0, bytes, false);
    }
    core->units.resize(face.capacity[static_cast<int>(Space::L0C)] / UNIT_BYTES);
    core->entry = role == Role::AIC ? options.cube_entry : options.vector_entry;
    core->number = static_cast<int>(machine->cores.size());
    // Variables that a kernel does not initialise hold no zeros by luck.
    std::memset(core->stack.begin() + Stack::SIZE - POISONED_STACK, 0xff, POISONED_STACK);
    getcontext(&core->context);
    core->context.uc_stack.ss_sp = core->stack.begin();
    core->context.uc_stack.ss_size = Stack::SIZE;
    core->context.uc_link = nullptr;
    makecontext(&core->context, fiber_main, 0);
    return core;
}

/// Whether a SetFlag of the flag is in a queue of the core, behind something that waits.
static const Operation* set_behind(const CoreState& core, const Operation& wait) {
    for (const Operation& operation : core.pipes[static_cast<size_t>(index(wait.from))].queue)
        if (operation.kind == Operation::Kind::Set && operation.from == wait.from && operation.to == wait.to && operation.id == wait.id)
            return &operation;
    return nullptr;
}

static std::string place_of(Site at) { return std::string(at.file) + ":" + std::to_string(at.line); }

static std::string awaited(const CoreState& core, const Operation& head) {
    if (head.kind == Operation::Kind::Instruction)
        return std::string("unit flags of L0C that ") + (head.instruction.pipe == Pipe::M ? "no Fixpipe clears" : "no Mmad sets") + " (" + head.instruction.name + ")";
    if (head.kind != Operation::Kind::Wait) return "cross-core flag " + std::to_string(head.id);
    const Operation* set = set_behind(core, head);
    return std::string("flag ") + name_of(head.from) + "_" + name_of(head.to) + " " + std::to_string(head.id) +
           (set ? ", which pipe " + std::string(name_of(head.from)) + " would set later at " + place_of(set->instruction.at) : ", which nothing sets");
}

static void deadlock() {
    std::string table;
    Site at;
    for (auto& core : machine->cores) {
        if (core->finished) continue;
        const Core& face = core->face;
        std::string waits;
        if (core->waiting)
            waits = "waits for " + awaited(*core, *core->waiting) + ", at " + place_of(core->last_site);
        else if (!core->blocked.empty())
            waits = core->blocked + " at " + place_of(core->last_site);
        for (int i = 0; i < PIPES; ++i) {
            const auto& queue = core->pipes[static_cast<size_t>(i)].queue;
            if (queue.empty()) continue;
            const Operation& head = queue.front();
            waits += (waits.empty() ? "" : ", ") + std::string("pipe ") + name_of(static_cast<Pipe>(i)) + " waits for " + awaited(*core, head) + ", at " +
                     place_of(head.instruction.at);
            if (at.line == 0) at = head.instruction.at;
        }
        if (waits.empty()) waits = "reads again and again, and nothing changes, at " + place_of(core->last_site);
        if (at.line == 0) at = core->last_site;
        table += std::string(table.empty() ? "" : "; ") + (face.role == Role::AIC ? "AIC " : "AIV ") + std::to_string(face.block_index) + " " + waits;
        if (table.size() > 2000) {
            table += "; ...";
            break;
        }
    }
    machine->current = nullptr;
    hazard("deadlock", at, "the kernel hangs: " + table + missing_cores() + ".");
}

/// Give the launch up: what is alive on the stacks of the cores is destroyed.
static void stop() {
    machine->stopped = true;
    for (auto& core : machine->cores) {
        if (core->finished || !core->started) continue;
        machine->current = core.get();
        swapcontext(&machine->scheduler, &core->context);
    }
    machine->current = nullptr;
}

static void run_fibers(double time_limit) {
    const clock_t begin = clock();
    uint64_t idle = 0;
    std::vector<CoreState*> order;
    for (auto& core : machine->cores) order.push_back(core.get());
    for (;;) {
        const uint64_t before = machine->progress + machine->new_reads;
        bool alive = false, all_blocked = true;
        if (machine->perturb) std::shuffle(order.begin(), order.end(), machine->random);
        for (CoreState* core : order) {
            if (core->finished) continue;
            alive = true;
            machine->current = core;
            core->started = true;
            fault_signal = 0;
            in_kernel = 1;
            swapcontext(&machine->scheduler, &core->context);
            in_kernel = 0;
            if (fault_signal != 0) {
                report_fault(*core);
                core->finished = true;  // its stack is left as it is
                return stop();
            }
            all_blocked &= core->finished || !core->blocked.empty();
        }
        if (!alive) return;
        idle = machine->progress + machine->new_reads == before ? idle + 1 : 0;
        if ((idle > 1 && all_blocked) || idle > IDLE_LIMIT) {
            deadlock();
            return stop();
        }
        if (time_limit > 0 && static_cast<double>(clock() - begin) / CLOCKS_PER_SEC > time_limit) {
            machine->current = nullptr;
            hazard("deadlock", order.front()->last_site,
                   "the kernel did not end within " + std::to_string(time_limit) + " seconds of processor time.");
            return stop();
        }
    }
}

/// What a kernel must not leave behind.
static void check_end() {
    for (auto& core : machine->cores) {
        machine->current = core.get();
        for (int from = 0; from < PIPES; ++from)
            for (int to = 0; to < PIPES; ++to)
                for (int id = 0; id < EVENT_IDS; ++id) {
                    const Flag& flag = core->flags[from][to][id];
                    if (flag.pending > 0)
                        hazard("leftover_flag", flag.set_at,
                               std::string("flag ") + name_of(static_cast<Pipe>(from)) + "_" + name_of(static_cast<Pipe>(to)) + " " +
                                   std::to_string(id) + " is set here and nothing waits for it before the kernel ends; the next kernel would find it set.");
                }
        for (int id = 0; id < CROSS_FLAGS; ++id)
            if (!core->cross[id].empty() || !core->halves[id][0].empty() || !core->halves[id][1].empty()) {
                const auto& left = !core->cross[id].empty() ? core->cross[id] : !core->halves[id][0].empty() ? core->halves[id][0] : core->halves[id][1];
                hazard("leftover_flag", left.front().at, "cross-core flag " + std::to_string(id) + " is set here and nothing waits for it before the kernel ends.");
            }
        for (const Unit& unit : core->units)
            if (unit.set)
                hazard("leftover_flag", unit.at, "the unit flags of L0C that this Mmad sets are not cleared by a Fixpipe with unitFlag 3 before the kernel ends.");
        for (const auto& [address, line] : core->cache)
            if (line.dirty != 0)
                hazard("cache_line", line.site, "SetValue on global memory stays in the scalar's data cache: call DataCacheCleanAndInvalid before the kernel ends.");
        if (core->face.control.atomic)
            hazard("control", core->last_site, "the kernel ends with atomic writes switched on: call SetAtomicNone.");
        if (core->face.control.counter_mode)
            hazard("control", core->last_site, "the kernel ends with the vector mask in counter mode: call SetMaskNorm.");
    }
    for (auto& [key, waiting] : machine->gathered)
        for (auto& [number, tokens] : waiting)
            if (!tokens.empty() && std::get<0>(key) != 2) {
                machine->current = machine->cores[static_cast<size_t>(number)].get();
                hazard("leftover_flag", tokens.front().at, "cross-core flag " + std::to_string(std::get<1>(key)) + " is set here by some cores of its group and not by all.");
            }
    for (auto& [address, buffer] : machine->buffers) {
        if (buffer.use != GlobalBuffer::Use::Output || !machine->check) continue;
        int64_t missing = 0, first = -1;
        machine->global_shadow.each(static_cast<int64_t>(address), static_cast<int64_t>(address) + buffer.bytes,
                                    [&](Cell& cell, int64_t begin, int64_t end) {
                                        if (cell.written && !cell.undefined) return;
                                        if (first < 0) first = begin - static_cast<int64_t>(address);
                                        missing += end - begin;
                                    });
        machine->current = nullptr;
        if (missing > 0)
            hazard("unwritten_output", Site{}, "the kernel ends and " + std::to_string(missing) + " bytes of " + buffer.name + ", from byte " + std::to_string(first) + " on, were never written.");
    }
}

static std::string last_report;

extern "C" const char* emulator_launch(const LaunchOptions* given) {
    const LaunchOptions& options = *given;
    Machine here;
    machine = &here;
    here.kernel_type = options.kernel_type;
    here.check = options.check != 0;
    here.perturb = options.perturb != 0;
    here.auto_sync = options.auto_sync != 0;
    here.random.seed(options.seed);
    here.clock_hz = options.clock_hz;
    here.timeline_limit = options.timeline_limit;
    here.list_mutations = options.list_mutations != 0;
    here.mutate = options.mutate != 0;
    if (here.mutate) here.mutation = {options.mutation_kind, options.mutation_file, options.mutation_line, options.mutation_detail};
    for (int i = 0; i < options.rate_count; ++i) here.rates[options.rate_names[i]] = options.rate_values[i];

    uint64_t next = GLOBAL_BASE;
    std::vector<uint64_t> values;
    for (int i = 0; i < options.argument_count; ++i) {
        const LaunchArgument& argument = options.arguments[i];
        if (argument.bytes < 0) {
            values.push_back(argument.value);
            continue;
        }
        const auto use = static_cast<GlobalBuffer::Use>(argument.use);
        // Memory that is given twice is one tensor.
        const GlobalBuffer* same = nullptr;
        for (const auto& [address, buffer] : here.buffers)
            if (argument.bytes > 0 && argument.host >= buffer.host && argument.host + argument.bytes <= buffer.host + buffer.bytes) same = &buffer;
        if (same) {
            values.push_back(same->address + static_cast<uint64_t>(argument.host - same->host));
            continue;
        }
        // Tiling data is read by the scalar through a plain pointer, as on the device.
        const uint64_t address = use == GlobalBuffer::Use::Tiling ? reinterpret_cast<uint64_t>(argument.host) : next;
        here.buffers[address] = {address, argument.bytes, argument.host, argument.name, use};
        const bool written = use == GlobalBuffer::Use::Tensor || use == GlobalBuffer::Use::Tiling;
        if (!written) std::memset(argument.host, 0xff, static_cast<size_t>(argument.bytes));
        here.global_shadow.reset(static_cast<int64_t>(address), static_cast<int64_t>(address) + argument.bytes, written);
        values.push_back(argument.bytes == 0 && use == GlobalBuffer::Use::Workspace ? 0 : address);
        next += (static_cast<uint64_t>(argument.bytes) / 4096 + 3) * 4096;
    }
    std::vector<void*> pointers;
    for (uint64_t& value : values) pointers.push_back(&value);
    entry_arguments = pointers.data();

    for (uint32_t block = 0; block < options.block_dim; ++block) {
        const bool cube_only = options.kernel_type == 1 || options.kernel_type == 5;
        if (cube_only || options.kernel_type == 2 || options.kernel_type == 3) here.cores.push_back(make_core(options, Role::AIC, block, 0));
        if (cube_only) continue;
        for (uint32_t sub = 0; sub < (options.kernel_type == 3 ? 2u : 1u); ++sub)
            here.cores.push_back(make_core(options, Role::AIV, block, sub));
    }

    {
        FaultGuard guard;
        run_fibers(options.time_limit);
    }
    if (!here.stopped) check_end();
    here.current = nullptr;
    last_report = report_json();
    machine = nullptr;
    return last_report.c_str();
}

}  // namespace emulator
