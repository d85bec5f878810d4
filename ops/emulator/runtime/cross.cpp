// Between cores: counted flags, and the barrier of all cores.
#include "state.h"

#include <algorithm>

namespace emulator {

Remote everything(const CoreState& core, const Clock& clock) {
    auto all = std::make_shared<std::vector<uint32_t>>(machine->cores.size() * PIPES);
    if (clock.remote) *all = *clock.remote;
    for (int i = 0; i < PIPES; ++i) {
        uint32_t& entry = (*all)[static_cast<size_t>(core.number * PIPES + i)];
        entry = std::max(entry, clock.own[static_cast<size_t>(i)]);
    }
    return all;
}

void receive(CoreState& core, Clock& clock, const Remote& news) {
    if (!news) return;
    join(clock.remote, news);
    for (int i = 0; i < PIPES; ++i)
        clock.own[static_cast<size_t>(i)] =
            std::max(clock.own[static_cast<size_t>(i)], (*news)[static_cast<size_t>(core.number * PIPES + i)]);
}

/// A token for `core` in the counter `id`.
static void deliver(CoreState& core, int id, const Token& token) {
    core.cross[id].push_back(token);
    if (static_cast<int>(core.cross[id].size()) > CROSS_PENDING)
        hazard("flag_overflow", token.at,
               "CrossCoreSetFlag: flag " + std::to_string(id) + " has more than 15 sets that nothing waited for; the counter holds 15.");
    ++machine->progress;
}

static Token merged(std::deque<Token>& first, std::deque<Token>& second) {
    Token token = first.front();
    join(token.clock.remote, second.front().clock.remote);
    token.time = std::max(token.time, second.front().time);
    first.pop_front();
    second.pop_front();
    return token;
}

/// The newest set of every member is in: the barrier lets them all pass. Its tokens are kept by core until then.
static void gather(std::tuple<int, int, int> key, CoreState& core, const Token& token, const std::vector<CoreState*>& members,
                   const std::function<void(CoreState&, const Token&)>& pass) {
    auto& waiting = machine->gathered[key];
    waiting[core.number].push_back(token);
    for (const CoreState* member : members)
        if (waiting[member->number].empty()) return;
    Token all;
    all.at = token.at;
    for (const CoreState* member : members) {
        Token& one = waiting[member->number].front();
        join(all.clock.remote, one.clock.remote);
        all.time = std::max(all.time, one.time);
        waiting[member->number].pop_front();
    }
    for (CoreState* member : members) pass(*member, all);
}

static std::vector<CoreState*> members(const std::function<bool(const Core&)>& which) {
    std::vector<CoreState*> out;
    for (auto& core : machine->cores)
        if (which(core->face)) out.push_back(core.get());
    return out;
}

static CoreState* of_block(const Core& face, Role role, uint32_t sub) {
    for (auto& core : machine->cores)
        if (core->face.block == face.block && core->face.role == role && (role == Role::AIC || core->face.sub == sub))
            return core.get();
    return nullptr;
}

/// A set of the flag has reached the end of its pipe: its earlier operations are complete.
void cross_core_fire(CoreState& core, int mode, int id, const Token& set) {
    Token token = set;
    token.clock.remote = everything(core, set.clock);
    token.clock.own = {};
    const Core face = core.face;
    const auto pass = [id](CoreState& to, const Token& all) { deliver(to, id, all); };
    if (mode == 0) {
        gather({0, id, static_cast<int>(face.role)}, core, token,
               members([&face](const Core& other) { return other.role == face.role; }), pass);
    } else if (mode == 1) {
        gather({1, id, static_cast<int>(face.block)}, core, token,
               members([&face](const Core& other) { return other.role == Role::AIV && other.block == face.block; }), pass);
    } else if (mode == 2 && face.role == Role::AIC) {
        for (uint32_t sub = 0; sub < face.vector_cores_a_block; ++sub) deliver(*of_block(face, Role::AIV, sub), id, token);
    } else if (mode == 2) {
        CoreState& cube = *of_block(face, Role::AIC, 0);
        if (face.vector_cores_a_block == 1) return deliver(cube, id, token);
        cube.halves[id][face.sub].push_back(token);
        if (!cube.halves[id][0].empty() && !cube.halves[id][1].empty())
            deliver(cube, id, merged(cube.halves[id][0], cube.halves[id][1]));
    } else if (face.role == Role::AIC) {
        deliver(*of_block(face, Role::AIV, id < 16 ? 0 : 1), id % 16, token);
    } else {
        deliver(*of_block(face, Role::AIC, 0), id + 16 * static_cast<int>(face.sub), token);
    }
}

/// Kernels of only one kind of core start without the unit that carries cross-core flags. Source: the constraints of
/// CrossCoreSetFlag, and its table of modes and kernel types.
static std::string unscheduled() {
    if (machine->kernel_type == 0)
        return "a KERNEL_TYPE_AIV_ONLY kernel starts without the unit that carries cross-core flags; declare KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIV_1_0)";
    if (machine->kernel_type == 1)
        return "a KERNEL_TYPE_AIC_ONLY kernel starts without the unit that carries cross-core flags; declare KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_0)";
    return "";
}

static bool valid_cross(const CoreState& core, int mode, int id, Site at, const char* call) {
    const Core& face = core.face;
    const bool mixed = of_block(face, Role::AIC, 0) != nullptr && of_block(face, Role::AIV, 0) != nullptr;
    const int ids = face.arch == Arch::dav3510 && (mode == 4 || mode < 0) && face.role == Role::AIC ? 32 : 16;
    std::string wrong = unscheduled();
    if (!wrong.empty())
        ;  // nothing else matters then
    else if (id < 0 || id >= ids)
        wrong = "flag id " + std::to_string(id) + " does not exist; ids are 0 to 10 for kernels (11 to 15 are SyncAll's)";
    else if (mode == 4 && face.arch != Arch::dav3510)
        wrong = "mode 4 exists on dav-3510 only; take mode 2";
    else if (mode == 3 || mode > 4 || mode < -1)
        wrong = "mode " + std::to_string(mode) + " does not exist; modes are 0, 1, 2 (and 4 on dav-3510)";
    else if ((mode == 2 || mode == 4) && !mixed)
        wrong = "mode " + std::to_string(mode) + " is between a cube core and its vector cores, and this kernel type has only one of the two: declare KERNEL_TYPE_MIX_AIC_1_2";
    else if (mode == 1 && (face.role == Role::AIC || !mixed))
        wrong = face.role == Role::AIC ? "mode 1 is between the vector cores of a block, and this is a cube core"
                                       : "mode 1 is between the vector cores of a block; declare KERNEL_TYPE_MIX_AIC_1_2";
    else if (mode == 4 && face.vector_cores_a_block < 2)
        wrong = "mode 4 is between a cube core and one of its two vector cores; declare KERNEL_TYPE_MIX_AIC_1_2";
    if (wrong.empty()) return true;
    hazard("cross_core", at, std::string(call) + ": " + wrong + ".", wrong);
    return false;
}

void cross_core_set(int mode, Pipe pipe, int id, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (!valid_cross(core, mode, id, at, "CrossCoreSetFlag")) return;
    if (mutated("cross_set", at, id)) return;
    PipeState& scalar = core.pipes[index(Pipe::S)];
    scalar.time += 1 / machine->clock_hz;
    if (pipe == Pipe::S) {
        Token token{scalar.clock, scalar.time, at};
        token.clock.own[index(Pipe::S)] = scalar.seq;
        cross_core_fire(core, mode, id, token);
        return;
    }
    Operation operation;
    operation.kind = Operation::Kind::CrossSet;
    operation.instruction.at = at;
    operation.instruction.name = "CrossCoreSetFlag";
    operation.mode = mode, operation.id = id;
    operation.issued = scalar.clock;
    operation.issued_time = scalar.time;
    core.pipes[index(pipe)].queue.push_back(std::move(operation));
    if (!machine->perturb) pump(core);
}

void cross_core_wait(int mode, Pipe pipe, int id, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (!valid_cross(core, mode, id, at, "CrossCoreWaitFlag")) return;
    if (mutated("cross_wait", at, id)) return;
    Operation operation;
    operation.kind = Operation::Kind::CrossWait;
    operation.instruction.at = at;
    operation.instruction.name = "CrossCoreWaitFlag";
    operation.mode = mode, operation.id = id;
    PipeState& scalar = core.pipes[index(Pipe::S)];
    operation.issued = scalar.clock;
    operation.issued_time = scalar.time;
    if (pipe != Pipe::S) {
        core.pipes[index(pipe)].queue.push_back(std::move(operation));
        if (!machine->perturb) pump(core);
        return;
    }
    core.waiting = &operation;
    wait_until([&core, id] { return !core.cross[id].empty(); }, "waits", at);
    core.waiting = nullptr;
    perform(core, Pipe::S, operation);
}

void sync_all(bool cube_too, Site at, bool soft, int64_t used) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    const Core& face = core.face;
    // In a mixed kernel the form without the cube cores leaves them alone. Source: the page of SyncAll.
    if (!cube_too && face.role == Role::AIC) return;
    if (mutated("sync_all", at)) return;
    std::string wrong = soft ? "" : unscheduled();
    if (wrong.empty() && cube_too && (!of_block(face, Role::AIC, 0) || !of_block(face, Role::AIV, 0)))
        wrong = "SyncAll<false> is between cube and vector cores, and this kernel type has only one of the two; take SyncAll<true>";
    if (!wrong.empty()) {
        hazard("cross_core", at, "SyncAll: " + wrong + ".", wrong);
        return;
    }
    const auto takes_part = [=](const Core& other) {
        return cube_too || (other.role == Role::AIV && (used <= 0 || static_cast<int64_t>(other.block_index) < used));
    };
    if (!takes_part(face)) {
        hazard("argument", at, "SyncAll: vector core " + std::to_string(face.block_index) + " is not one of the " + std::to_string(used) + " that usedCores names.");
        return;
    }
    drain(core, "SyncAll waits for the core's own pipes", at);
    PipeState& scalar = core.pipes[index(Pipe::S)];
    Token token{Clock{}, scalar.time, at};
    token.clock.remote = everything(core, scalar.clock);
    gather({2, cube_too ? 0 : soft ? 2 : 1, static_cast<int>(used)}, core, token, members(takes_part),
           [](CoreState& to, const Token& all) {
               to.sync_all.push_back(all);
               ++machine->progress;
           });
    wait_until([&core] { return !core.sync_all.empty(); }, "waits in SyncAll", at);
    receive(core, scalar.clock, core.sync_all.front().clock.remote);
    scalar.time = std::max(scalar.time, core.sync_all.front().time);
    core.sync_all.pop_front();
}

void block_set(uint64_t address, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    drain(core, "IBSet waits for the core's own pipes", at);
    if (mutated("cross_set", at)) return;
    const PipeState& scalar = core.pipes[index(Pipe::S)];
    if (machine->block_flags.count(address))
        return hazard("double_set", at, "IBSet: the flag is set a second time before anything waits for it.");
    Token token{Clock{}, scalar.time, at};
    token.clock.remote = everything(core, scalar.clock);
    machine->block_flags.emplace(address, std::move(token));
    ++machine->progress;
}

void block_wait(uint64_t address, const std::string& what, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    drain(core, "IBWait waits for the core's own pipes", at);
    if (mutated("cross_wait", at)) return;
    wait_until([=] { return machine->block_flags.count(address) != 0; }, what, at);
    const auto flag = machine->block_flags.find(address);
    PipeState& scalar = core.pipes[index(Pipe::S)];
    receive(core, scalar.clock, flag->second.clock.remote);
    scalar.time = std::max(scalar.time, flag->second.time);
    machine->block_flags.erase(flag);
}

void cube_post(std::function<void()> job, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    CoreState* const cube = of_block(core.face, Role::AIC, 0);
    if (cube == nullptr)
        return hazard("cross_core", at, "the call is done by the block's cube core, and this kernel type has none: declare KERNEL_TYPE_MIX_AIC_1_2 or KERNEL_TYPE_MIX_AIC_1_1.");
    PipeState& scalar = core.pipes[index(Pipe::S)];
    const auto asked = std::make_shared<Job>();
    asked->run = std::move(job), asked->at = at;
    asked->asked = {Clock{}, scalar.time, at};
    asked->asked.clock.own[index(Pipe::S)] = scalar.seq;
    asked->asked.clock.remote = everything(core, scalar.clock);
    cube->jobs.push_back(asked);
    ++machine->progress;
    wait_until([asked] { return asked->finished; }, "waits for its cube core, which REGIST_MATMUL_OBJ puts at its service,", at);
    receive(core, scalar.clock, asked->done.clock.remote);
    scalar.time = std::max(scalar.time, asked->done.time);
}

void cube_serve(Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    PipeState& scalar = core.pipes[index(Pipe::S)];
    for (;;) {
        const auto ready = [&core] { return !core.jobs.empty() || core.left.size() == core.face.vector_cores_a_block; };
        wait_until(ready, "serves its vector cores until End of each of their Matmul objects,", at);
        if (core.jobs.empty()) throw Stopped{};
        const auto job = core.jobs.front();
        core.jobs.pop_front();
        receive(core, scalar.clock, job->asked.clock.remote);
        scalar.time = std::max(scalar.time, job->asked.time);
        job->run();
        drain(core, "waits for the core's own pipes", job->at);
        job->done = {Clock{}, scalar.time, job->at};
        job->done.clock.remote = everything(core, scalar.clock);
        job->finished = true;
        ++machine->progress;
    }
}

void cube_leave(Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (CoreState* const cube = of_block(core.face, Role::AIC, 0)) cube->left.insert(static_cast<int>(core.face.sub));
    ++machine->progress;
}

static std::string name_of(const CoreState& core) {
    return std::string(core.face.role == Role::AIC ? "AIC " : "AIV ") + std::to_string(core.face.block_index);
}

/// Which cores a barrier of several still lacks, and which half of a flag has come.
std::string missing_cores() {
    std::string out;
    for (auto& [key, waiting] : machine->gathered) {
        std::string there, lacks;
        for (auto& core : machine->cores) {
            const auto found = waiting.find(core->number);
            const bool came = found != waiting.end() && !found->second.empty();
            const auto& [kind, id, group] = key;
            const Core& face = core->face;
            const bool member = kind == 0 ? static_cast<int>(face.role) == group
                              : kind == 1 ? face.role == Role::AIV && static_cast<int>(face.block) == group
                                          : id == 0 || (face.role == Role::AIV && (group <= 0 || static_cast<int>(face.block_index) < group));
            if (!member) continue;
            std::string& list = came ? there : lacks;
            if (list.size() < 200) list += (list.empty() ? "" : ", ") + name_of(*core) + (!came && core->finished ? " (has ended)" : "");
        }
        if (there.empty()) continue;
        const bool sync_all = std::get<0>(key) == 2;
        out += "; " + (sync_all ? std::string("SyncAll") : "cross-core flag " + std::to_string(std::get<1>(key)) + " in mode " + std::to_string(std::get<0>(key))) +
               " has been reached by " + there + " and not by " + lacks;
    }
    for (auto& core : machine->cores)
        for (int id = 0; id < CROSS_FLAGS; ++id)
            for (int half = 0; half < 2; ++half)
                if (!core->halves[id][half].empty() && core->halves[id][1 - half].empty())
                    out += "; cross-core flag " + std::to_string(id) + " of " + name_of(*core) + " was set by vector core " + std::to_string(half) +
                           " of its block and not by vector core " + std::to_string(1 - half);
    return out;
}

}  // namespace emulator
