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

static bool valid_cross(const CoreState& core, int mode, int id, Site at, const char* call) {
    const Core& face = core.face;
    const bool mixed = of_block(face, Role::AIC, 0) != nullptr && of_block(face, Role::AIV, 0) != nullptr;
    const int ids = face.arch == Arch::dav3510 && (mode == 4 || mode < 0) && face.role == Role::AIC ? 32 : 16;
    std::string wrong;
    if (id < 0 || id >= ids)
        wrong = "flag id " + std::to_string(id) + " does not exist; ids are 0 to 10 for kernels (11 to 15 are SyncAll's)";
    else if (mode == 4 && face.arch != Arch::dav3510)
        wrong = "mode 4 exists on dav-3510 only; take mode 2";
    else if (mode == 3 || mode > 4 || mode < -1)
        wrong = "mode " + std::to_string(mode) + " does not exist; modes are 0, 1, 2 (and 4 on dav-3510)";
    else if ((mode == 2 || mode == 4) && !mixed)
        wrong = "mode " + std::to_string(mode) + " is between a cube core and its vector cores, and this kernel type has only one of the two: declare KERNEL_TYPE_MIX_AIC_1_2";
    else if (mode == 1 && face.role == Role::AIC)
        wrong = "mode 1 is between the vector cores of a block, and this is a cube core";
    else if (mode == 4 && face.role == Role::AIC && id >= 16 && face.vector_cores_a_block < 2)
        wrong = "flag id " + std::to_string(id) + " in mode 4 is the second vector core's, and a block of this kernel type has one";
    if (wrong.empty()) return true;
    hazard("cross_core", at, std::string(call) + ": " + wrong + ".", wrong);
    return false;
}

void cross_core_set(int mode, Pipe pipe, int id, Site at) {
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
    wait_until([&core, id] { return !core.cross[id].empty(); }, "waits for cross-core flag " + std::to_string(id), at);
    perform(core, Pipe::S, operation);
}

void sync_all(bool cube_too, Site at) {
    CoreState& core = current();
    if (mutated("sync_all", at)) return;
    const Core& face = core.face;
    if (cube_too && (!of_block(face, Role::AIC, 0) || !of_block(face, Role::AIV, 0))) {
        hazard("cross_core", at, "SyncAll<false> is between cube and vector cores, and this kernel type has only one of the two.");
        return;
    }
    barrier_all(at);
    PipeState& scalar = core.pipes[index(Pipe::S)];
    Token token{Clock{}, scalar.time, at};
    token.clock.remote = everything(core, scalar.clock);
    gather({2, cube_too ? 0 : 1, cube_too ? 0 : static_cast<int>(face.role)}, core, token,
           members([&](const Core& other) { return cube_too || other.role == face.role; }),
           [](CoreState& to, const Token& all) {
               to.sync_all.push_back(all);
               ++machine->progress;
           });
    wait_until([&core] { return !core.sync_all.empty(); }, "waits in SyncAll for cores that have not come to it", at);
    receive(core, scalar.clock, core.sync_all.front().clock.remote);
    scalar.time = std::max(scalar.time, core.sync_all.front().time);
    core.sync_all.pop_front();
}

}  // namespace emulator
