// Issue, pipes, flags and barriers of a core.
#include "state.h"

#include <algorithm>
#include <exception>

namespace emulator {

constexpr uint64_t QUIET_READS = 256;  // scalar reads with nothing else in between, after which the other cores run

Machine* machine = nullptr;

const char* name_of(Pipe pipe) {
    static const char* const names[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};
    return names[index(pipe)];
}

const char* name_of(Space space) {
    static const char* const names[] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB", "L0A_MX", "L0B_MX"};
    return names[index(space)];
}

void join(Remote& mine, const Remote& other) {
    if (!other || mine == other) return;
    if (!mine) {
        mine = other;
        return;
    }
    bool mine_newer = false, other_newer = false;
    for (size_t i = 0; i < mine->size(); ++i) {
        mine_newer |= (*mine)[i] > (*other)[i];
        other_newer |= (*other)[i] > (*mine)[i];
    }
    if (!other_newer) return;
    if (!mine_newer) {
        mine = other;
        return;
    }
    auto both = std::make_shared<std::vector<uint32_t>>(*mine);
    for (size_t i = 0; i < both->size(); ++i) (*both)[i] = std::max((*both)[i], (*other)[i]);
    mine = both;
}

void Clock::join(const Clock& other) {
    for (int i = 0; i < PIPES; ++i) own[i] = std::max(own[i], other.own[i]);
    emulator::join(remote, other.remote);
}

Core& core() { return current().face; }

Core* sibling(int which) {
    const CoreState& me = current();
    for (auto& other : machine->cores) {
        const Core& face = other->face;
        const int number = face.role == Role::AIC ? 0 : 1 + static_cast<int>(face.sub);
        if (face.block == me.face.block && number == which) return &other->face;
    }
    return nullptr;
}

uint32_t site_number(Site at, const char* name) {
    auto [found, added] =
        machine->site_numbers.try_emplace({at.file, at.line, name}, static_cast<uint32_t>(machine->sites.size()));
    if (added) machine->sites.push_back({at, name});
    return found->second;
}

void hazard(const char* kind, Site at, const std::string& message, const std::string& key) {
    if (machine->stopped) return;
    auto [found, added] =
        machine->hazard_numbers.try_emplace({kind, at.file, at.line, key}, machine->hazards.size());
    if (added) {
        std::string where = machine->cores.size() > 1 && machine->current
                                ? std::string(machine->current->face.role == Role::AIC ? "AIC " : "AIV ") +
                                      std::to_string(machine->current->face.block_index) + ": "
                                : "";
        machine->hazards.push_back({kind, where + message, at.file, at.line, 1});
    } else {
        ++machine->hazards[found->second].count;
    }
}

void report(const char* kind, Site at, const std::string& message) { hazard(kind, at, message, message); }

// ---- Instructions ----

static bool has_pipe(const Core& core, Pipe pipe) {
    if (pipe == Pipe::S || pipe == Pipe::MTE2 || pipe == Pipe::MTE3) return true;
    return (pipe == Pipe::V) == (core.role == Role::AIV);
}

static double duration(const Instruction& instruction) {
    const Cost& cost = instruction.cost;
    const char* rate_name = cost.unit == Cost::Unit::Vector ? "vector" : cost.what;
    if (cost.unit == Cost::Unit::None || cost.unit == Cost::Unit::Scalar) return 0;
    auto rate = machine->rates.find(rate_name);
    if (rate == machine->rates.end()) return 0;
    return static_cast<double>(cost.unit == Cost::Unit::Move ? cost.amount : cost.repeats) / rate->second;
}

static void count(CoreState& core, const Instruction& instruction) {
    const Cost& cost = instruction.cost;
    if (cost.unit == Cost::Unit::None) return;
    Counter& counter = core.counters[cost.what];
    counter.unit = cost.unit;
    counter.pipe = instruction.pipe;
    counter.amount += cost.amount;
    counter.repeats += cost.repeats;
    ++counter.calls;
}

static void count_global(const Access& access) {
    if (access.space != Space::GM) return;
    auto buffer = machine->buffers.upper_bound(static_cast<uint64_t>(access.begin));
    if (buffer == machine->buffers.begin()) return;
    --buffer;
    const uint64_t bytes = static_cast<uint64_t>(access.bytes * access.runs * access.groups);
    (access.kind == Access::Kind::Read ? buffer->second.read : buffer->second.written) += bytes;
}

/// The unit flags that an instruction waits for or turns; f(Unit&).
template <class F>
static void each_unit(CoreState& core, const Instruction& instruction, F f) {
    if (instruction.unit_flag == 0) return;
    for (const Access& access : instruction.accesses) {
        if (!access.unit) continue;
        for (int64_t group = 0; group < access.groups; ++group)
            for (int64_t run = 0; run < access.runs; ++run) {
                const int64_t begin = access.begin + group * access.group_pitch + run * access.pitch;
                for (int64_t unit = begin / UNIT_BYTES; unit * UNIT_BYTES < begin + access.bytes; ++unit)
                    f(core.units[static_cast<size_t>(unit)]);
            }
    }
}

static bool units_ready(CoreState& core, const Instruction& instruction) {
    bool ready = true;
    each_unit(core, instruction, [&](const Unit& unit) { ready &= unit.set == (instruction.pipe == Pipe::FIX); });
    return ready;
}

void clear_unit_flags() {
    for (Unit& unit : current().units) unit.set = false;
}

/// The part of an instruction that comes before its effect on memory: its place in time, its accesses, its cost.
static void enter(CoreState& core, Operation& operation) {
    Instruction& instruction = operation.instruction;
    PipeState& pipe = core.pipes[index(instruction.pipe)];
    pipe.clock.join(operation.issued);
    ++pipe.seq;
    if (machine->check)
        for (const Access& access : instruction.accesses)
            if (access.kind == Access::Kind::Read)
                check_order(core, instruction.pipe, pipe.clock, pipe.seq, access, instruction.name, instruction.at);
    if (machine->check)
        for (const Access& access : instruction.accesses)
            if (access.kind != Access::Kind::Read)
                check_order(core, instruction.pipe, pipe.clock, pipe.seq, access, instruction.name, instruction.at);
    for (const Access& access : instruction.accesses) count_global(access);
    count(core, instruction);
    double begin = std::max(pipe.time, operation.issued_time);
    each_unit(core, instruction, [&](const Unit& unit) { begin = std::max(begin, unit.time); });
    const double length = duration(instruction);
    pipe.time = begin + length;
    if (instruction.unit_flag == 3)
        each_unit(core, instruction, [&](Unit& unit) { unit = {instruction.pipe == Pipe::M, pipe.time, instruction.at}; });
    pipe.busy += length;
    if (machine->timeline.size() < machine->timeline_limit)
        machine->timeline.push_back(
            {core.number, instruction.pipe, begin, pipe.time, instruction.name, instruction.at});
    machine->running = &core;
    machine->running_operation = &operation;
    machine->running_pipe = instruction.pipe;
    ++machine->progress;
}

static Operation running_now;

static void stamp(CoreState& core, Operation& operation) {
    PipeState& scalar = core.pipes[index(Pipe::S)];
    scalar.time += 1 / machine->clock_hz;
    operation.issued = scalar.clock;
    operation.issued_time = scalar.time;
}

static bool chance(unsigned one_in) { return machine->random() % one_in == 0; }

Turn start(Instruction& instruction) {
    if (machine->stopped) return Turn::Never;
    CoreState& core = current();
    core.last_site = instruction.at;
    if (!has_pipe(core.face, instruction.pipe)) {
        hazard("wrong_core", instruction.at,
               std::string(instruction.name) + " needs pipe " + name_of(instruction.pipe) + ", which a " +
                   (core.face.role == Role::AIC ? "cube" : "vector") + " core does not have: put it under `if ASCEND_IS_" +
                   (core.face.role == Role::AIC ? "AIV`" : "AIC`") + ", or declare another KERNEL_TASK_TYPE_DEFAULT.",
               instruction.name);
        return Turn::Never;
    }
    bool inside = true;
    for (const Access& access : instruction.accesses)
        inside &= check_bounds(core, access, instruction.name, instruction.at);
    if (!inside) return Turn::Never;
    PipeState& pipe = core.pipes[index(instruction.pipe)];
    if (machine->perturb) {
        if (machine->cores.size() > 1 && chance(16)) yield_core();
        if (!pipe.queue.empty() || !chance(3)) return Turn::Later;
    } else if (!pipe.queue.empty()) {
        return Turn::Later;
    }
    if (!units_ready(core, instruction)) return Turn::Later;
    stamp(core, running_now);
    running_now.instruction = std::move(instruction);
    enter(core, running_now);
    return Turn::Now;
}

void finish() {
    machine->running = nullptr;
    machine->running_operation = nullptr;
}

static void enqueue(CoreState& core, Pipe pipe, Operation&& operation) {
    if (machine->stopped) return;
    core.pipes[index(pipe)].queue.push_back(std::move(operation));
    if (machine->perturb) {
        while (chance(2) || core.pipes[index(pipe)].queue.size() > 64)
            if (!step(core, static_cast<Pipe>(machine->random() % PIPES)) && core.pipes[index(pipe)].queue.size() <= 64)
                break;
            else if (core.pipes[index(pipe)].queue.size() > 64 && !pump(core))
                break;
    } else {
        pump(core);
    }
}

void defer(Instruction&& instruction, std::function<void()> run) {
    Operation operation;
    stamp(current(), operation);
    operation.kind = Operation::Kind::Instruction;
    const Pipe pipe = instruction.pipe;
    operation.instruction = std::move(instruction);
    operation.run = std::move(run);
    enqueue(current(), pipe, std::move(operation));
}

bool can_run(CoreState& core, const Operation& operation) {
    switch (operation.kind) {
        case Operation::Kind::Wait:
            return !core.flags[index(operation.from)][index(operation.to)][operation.id].tokens.empty();
        case Operation::Kind::CrossWait: return !core.cross[operation.id].empty();
        case Operation::Kind::Instruction: return units_ready(core, operation.instruction);
        default: return true;
    }
}

void perform(CoreState& core, Pipe where, Operation& operation) {
    PipeState& pipe = core.pipes[index(where)];
    if (operation.kind == Operation::Kind::Instruction) {
        enter(core, operation);
        CoreState* before = machine->current;
        machine->current = &core;
        operation.run();
        machine->current = before;
        finish();
        return;
    }
    pipe.clock.join(operation.issued);
    pipe.time = std::max(pipe.time, operation.issued_time);
    ++machine->progress;
    const Site at = operation.instruction.at;
    if (operation.kind == Operation::Kind::Wait) {
        auto& tokens = core.flags[index(operation.from)][index(operation.to)][operation.id].tokens;
        pipe.clock.join(tokens.front().clock);
        pipe.time = std::max(pipe.time, tokens.front().time);
        tokens.pop_front();
    } else if (operation.kind == Operation::Kind::CrossWait) {
        auto& tokens = core.cross[operation.id];
        receive(core, pipe.clock, tokens.front().clock.remote);
        pipe.time = std::max(pipe.time, tokens.front().time);
        tokens.pop_front();
    } else if (operation.kind == Operation::Kind::Barrier) {
        pipe.clock.own[index(where)] = pipe.seq;
    } else {
        Token token{pipe.clock, pipe.time, at};
        token.clock.own[index(where)] = pipe.seq;
        if (operation.kind == Operation::Kind::Set)
            core.flags[index(operation.from)][index(operation.to)][operation.id].tokens.push_back(std::move(token));
        else
            cross_core_fire(core, operation.mode, operation.id, token);
    }
}

bool step(CoreState& core, Pipe pipe) {
    auto& queue = core.pipes[index(pipe)].queue;
    if (queue.empty() || !can_run(core, queue.front())) return false;
    Operation operation = std::move(queue.front());
    queue.pop_front();
    perform(core, pipe, operation);
    return true;
}

bool pump(CoreState& core) {
    bool any = false;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < PIPES; ++i)
            while (step(core, static_cast<Pipe>(i))) more = any = true;
    }
    return any;
}

bool drained(const CoreState& core) {
    for (const PipeState& pipe : core.pipes)
        if (!pipe.queue.empty()) return false;
    return true;
}

/// One operation of one pipe, chosen at random.
static bool random_step(CoreState& core) {
    const int first = static_cast<int>(machine->random() % PIPES);
    for (int i = 0; i < PIPES; ++i)
        if (step(core, static_cast<Pipe>((first + i) % PIPES))) return true;
    return false;
}

void wait_until(const std::function<bool()>& ready, const std::string& what, Site at) {
    CoreState& core = current();
    core.last_site = at;
    while (!ready()) {
        if (machine->perturb ? random_step(core) : pump(core)) {
            if (machine->perturb && machine->cores.size() > 1 && chance(8)) leave(core);  // pipes of other cores in between
            continue;
        }
        core.blocked = what;
        leave(core);
        core.blocked.clear();
    }
}

void leave(CoreState& core) {
    if (machine->stopped) return;
    swapcontext(&core.context, &machine->scheduler);
    if (machine->stopped && std::uncaught_exceptions() == 0) throw Stopped{};
}

void yield_core() {
    CoreState& core = current();
    leave(core);
    // The program does not wait for its pipes, and they go on.
    if (machine->perturb)
        random_step(core);
    else
        pump(core);
}

void quiet_read(CoreState& core, const Access& access) {
    if (core.quiet_since != machine->progress) {
        core.quiet_since = machine->progress;
        core.quiet_reads = 0;
        core.quiet_addresses.clear();
    }
    if (++core.quiet_reads < QUIET_READS) return;
    if (core.quiet_addresses.insert({index(access.space), access.begin}).second) ++machine->new_reads;
    if (core.quiet_reads % QUIET_READS == 0) yield_core();
}

void scalar_work(uint64_t operations) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.scalar_operations += operations;
    core.pipes[index(Pipe::S)].time += static_cast<double>(operations) / machine->clock_hz;
}

bool scalar_access(const Access& access, const char* name, Site at) {
    if (machine->stopped) return false;
    CoreState& core = current();
    core.last_site = at;
    if (!check_bounds(core, access, name, at)) return false;
    if (auto_sync(core)) wait_pipes(name, at);
    scalar_work(1);
    if (access.kind == Access::Kind::Read)
        quiet_read(core, access);
    else
        ++machine->progress;
    PipeState& scalar = core.pipes[index(Pipe::S)];
    ++scalar.seq;
    if (machine->check) check_order(core, Pipe::S, scalar.clock, scalar.seq, access, name, at);
    if (auto_sync(core)) scalar.clock.own[index(Pipe::S)] = scalar.seq;  // what is issued from here on waits for it
    return true;
}

bool touch(const Access& touched) {
    CoreState& core = *machine->running;
    Access access = touched;
    access.allocation = 0;  // whether the program had it then was asked when the instruction was issued
    const Instruction& instruction = machine->running_operation->instruction;
    if (!check_bounds(core, access, instruction.name, instruction.at)) return false;
    PipeState& pipe = core.pipes[index(machine->running_pipe)];
    if (machine->check)
        check_order(core, machine->running_pipe, pipe.clock, pipe.seq, access, instruction.name, instruction.at);
    count_global(access);
    return true;
}

// ---- Flags and barriers ----

static std::string event_name(Pipe from, Pipe to, int id) {
    return std::string(name_of(from)) + "_" + name_of(to) + " " + std::to_string(id);
}

/// Whether the core has the pipe; a flag or a barrier of one that it lacks never ends on the device.
static bool own_pipe(const Core& core, Pipe pipe, Site at, const char* call) {
    if (has_pipe(core, pipe)) return true;
    const std::string kind = core.role == Role::AIC ? "cube" : "vector";
    hazard("wrong_core", at,
           std::string(call) + " names pipe " + name_of(pipe) + ", which a " + kind + " core does not have: put it under `if ASCEND_IS_" +
               (core.role == Role::AIC ? "AIV`." : "AIC`."),
           call);
    return false;
}

static bool valid_event(Pipe from, Pipe to, int id, Site at, const char* call) {
    const Core& core = current().face;
    if (!own_pipe(core, from, at, call) || !own_pipe(core, to, at, call)) return false;
    if (id >= 0 && id < EVENT_IDS) return true;
    hazard("event_id", at,
           std::string(call) + "<HardEvent::" + name_of(from) + "_" + name_of(to) + ">: event id " + std::to_string(id) +
               " does not exist; ids are 0 to 7. Take one from AllocEventID or FetchEventID.");
    return false;
}

static int event_key(Pipe from, Pipe to, int id) { return (index(from) * PIPES + index(to)) * EVENT_IDS + id; }

static bool event_dropped(Pipe from, Pipe to, int id) { return mutated("event", Site{}, event_key(from, to, id)); }

void set_flag(Pipe from, Pipe to, int id, Site at, const char* call) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (!valid_event(from, to, id, at, call)) return;
    if (event_dropped(from, to, id) || mutated("set", at, event_key(from, to, id))) return;
    Flag& flag = core.flags[index(from)][index(to)][id];
    if (flag.pending >= 1)
        hazard("double_set", at,
               std::string(call) + ": flag " + event_name(from, to, id) + " is set a second time before anything waits for it; it was set at " +
                   flag.set_at.file + ":" + std::to_string(flag.set_at.line) + ". Wait for it in between, or use another event id.");
    ++flag.pending;
    flag.set_at = at;
    Operation operation;
    stamp(core, operation);
    operation.kind = Operation::Kind::Set;
    operation.instruction.at = at;
    operation.from = from, operation.to = to, operation.id = id;
    if (from == Pipe::S) {
        PipeState& scalar = core.pipes[index(Pipe::S)];
        Token token{scalar.clock, scalar.time, at};
        token.clock.own[index(Pipe::S)] = scalar.seq;
        flag.tokens.push_back(std::move(token));
        ++machine->progress;
        if (!machine->perturb) pump(core);
    } else {
        enqueue(core, from, std::move(operation));
    }
}

void wait_flag(Pipe from, Pipe to, int id, Site at, const char* call) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (!valid_event(from, to, id, at, call)) return;
    if (event_dropped(from, to, id) || mutated("wait", at, event_key(from, to, id))) return;
    Flag& flag = core.flags[index(from)][index(to)][id];
    --flag.pending;
    Operation operation;
    stamp(core, operation);
    operation.kind = Operation::Kind::Wait;
    operation.instruction.at = at;
    operation.instruction.name = call;
    operation.from = from, operation.to = to, operation.id = id;
    if (to == Pipe::S) {
        core.waiting = &operation;
        wait_until([&flag] { return !flag.tokens.empty(); }, "waits", at);
        core.waiting = nullptr;
        perform(core, Pipe::S, operation);
        operation.issued_time = core.pipes[index(Pipe::S)].time;
    } else {
        enqueue(core, to, std::move(operation));
    }
}

void barrier(Pipe pipe, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (mutated("barrier", at, index(pipe))) return;
    if (!own_pipe(core.face, pipe, at, "PipeBarrier")) return;
    Operation operation;
    stamp(core, operation);
    operation.kind = Operation::Kind::Barrier;
    operation.instruction.at = at;
    enqueue(core, pipe, std::move(operation));
}

void drain(CoreState& core, const std::string& what, Site at) {
    wait_until([&core] { return drained(core); }, what, at);
    PipeState& scalar = core.pipes[index(Pipe::S)];
    for (int i = 0; i < PIPES; ++i) {
        scalar.clock.join(core.pipes[i].clock);
        scalar.time = std::max(scalar.time, core.pipes[i].time);
    }
    for (int i = 0; i < PIPES; ++i) scalar.clock.own[i] = core.pipes[i].seq;
}

void wait_pipe(Pipe pipe, const char* call, Site at) {
    CoreState& core = current();
    PipeState& state = core.pipes[index(pipe)];
    wait_until([&state] { return state.queue.empty(); }, std::string(call) + " waits for pipe " + name_of(pipe), at);
    PipeState& scalar = core.pipes[index(Pipe::S)];
    scalar.clock.join(state.clock);
    scalar.clock.own[index(pipe)] = state.seq;
    scalar.time = std::max(scalar.time, state.time);
}

void wait_pipes(const char* call, Site at) {
    for (Pipe pipe : {Pipe::V, Pipe::MTE2, Pipe::MTE3}) wait_pipe(pipe, call, at);
}

void barrier_all(Site at) {
    if (machine->stopped) return;
    if (mutated("barrier", at, PIPES)) return;
    drain(current(), "PipeBarrier<PIPE_ALL> waits for its pipes", at);
}

void drain_pipes(Site at) {
    if (!machine->stopped) drain(current(), "waits for the core's own pipes", at);
}

int allocate_event(Pipe from, Pipe to, Site at) {
    if (machine->stopped) return 0;
    CoreState& core = current();
    for (int id = 0; id < EVENT_IDS; ++id) {
        Flag& flag = core.flags[index(from)][index(to)][id];
        if (flag.taken) continue;
        flag.taken = true;
        return id;
    }
    hazard("event_id", at,
           std::string("the 8 event ids of HardEvent::") + name_of(from) + "_" + name_of(to) +
               " are all taken: release one, or use fewer buffers.");
    return -1;
}

void release_event(Pipe from, Pipe to, int id, Site at) {
    if (machine->stopped || id < 0 || id >= EVENT_IDS) return;
    CoreState& core = current();
    Flag& flag = core.flags[index(from)][index(to)][id];
    if (!flag.taken)
        hazard("event_id", at, "ReleaseEventID: event " + event_name(from, to, id) + " was not allocated, or is released twice.");
    flag.taken = false;
}

// ---- Allocations and mutation ----

uint32_t allocation_begin(Space space, int64_t begin, int64_t bytes, Site at) {
    machine->allocations.push_back({space, begin, bytes, true, at});
    return static_cast<uint32_t>(machine->allocations.size());
}

void allocation_end(uint32_t allocation, Site at, const char* call) {
    if (machine->stopped) return;
    if (allocation == 0 || allocation > machine->allocations.size()) {
        hazard("queue", at, std::string(call) + ": the tensor is not of this queue.");
        return;
    }
    Allocation& entry = machine->allocations[allocation - 1];
    if (!entry.live) hazard("double_free", at, std::string(call) + ": the tensor was freed before.");
    entry.live = false;
}

bool mutated(const char* kind, Site at, int detail) {
    if (machine->stopped) return false;
    if (machine->list_mutations) ++machine->mutation_points[{kind, at.file, at.line, detail}];
    if (!machine->mutate) return false;
    const MutationPoint& m = machine->mutation;
    if (m.line != at.line || m.detail != detail || m.kind != kind || m.file != at.file) return false;
    ++machine->mutation_hits;
    return true;
}

}  // namespace emulator
