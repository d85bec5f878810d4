// Every byte of every memory with its history, and the hazards that an access to it can be.
#include "state.h"

#include <algorithm>

namespace emulator {

void Refs::put(const Ref& ref) {
    const auto same = [&ref](const Ref& other) { return other.core == ref.core && other.pipe == ref.pipe; };
    for (int i = 0; i < count_ && i < 2; ++i)
        if (same(first_[i])) {
            first_[i] = ref;
            return;
        }
    for (Ref& other : more_)
        if (same(other)) {
            other = ref;
            return;
        }
    if (count_ < 2)
        first_[count_] = ref;
    else
        more_.push_back(ref);
    ++count_;
}

void Shadow::reset(int64_t begin, int64_t end, bool written) {
    auto first = cut(begin), last = cut(end);
    cells_.erase(first, last);
    Cell cell;
    cell.written = written;
    cell.writer.core = HOST;
    cells_[begin] = cell;
}

/// The run that begins at `at`, made by cutting the one that holds it. Before the first reset there is nothing to cut.
Shadow::Cells::iterator Shadow::cut(int64_t at) {
    auto next = cells_.lower_bound(at);
    if (next != cells_.end() && next->first == at) return next;
    if (next == cells_.begin()) return cells_.emplace_hint(next, at, Cell{});
    auto before = std::prev(next);
    return cells_.emplace_hint(next, at, before->second);
}

/// [begin, end) got one history: keep one run.
void Shadow::merge(int64_t begin, int64_t end) {
    auto first = cells_.find(begin);
    cells_.erase(std::next(first), cells_.find(end));
}

/// Checks one access run by run and writes it into the shadow.
struct Checker {
    CoreState& core;
    Pipe pipe;
    const Clock& clock;
    Ref me;
    const Access& access;
    const char* name;
    Site at;
    CoreState* owner;  // whose local memory, nullptr for global

    bool known(const Ref& ref, bool write_after_read) const {
        if (ref.core == HOST) return true;
        if (ref.core == core.number) {
            if (ref.pipe == me.pipe && (pipe == Pipe::S || write_after_read || access.in_order || ref.seq == me.seq)) return true;
            if (ref.pipe != me.pipe && ref.unit && me.unit) return true;
            return clock.own[ref.pipe] >= ref.seq;
        }
        return clock.remote && (*clock.remote)[ref.core * PIPES + ref.pipe] >= ref.seq;
    }

    std::string place(int64_t begin, int64_t end) const {
        char text[160];
        if (access.space == Space::GM) {
            auto buffer = std::prev(machine->buffers.upper_bound(static_cast<uint64_t>(begin)));
            const long long base = static_cast<long long>(buffer->second.address);
            snprintf(text, sizeof text, "bytes [%lld, %lld) of %s", static_cast<long long>(begin) - base,
                     static_cast<long long>(end) - base, buffer->second.name.c_str());
        } else {
            snprintf(text, sizeof text, "bytes [%lld, %lld) of %s", static_cast<long long>(begin),
                     static_cast<long long>(end), name_of(access.space));
        }
        return text;
    }

    std::string remedy(const Ref& ref) const {
        const Pipe other = static_cast<Pipe>(ref.pipe);
        if (ref.core != core.number) {
            if (machine->cores[ref.core]->face.block == core.face.block)
                return "nothing orders the two cores: CrossCoreSetFlag after the first and CrossCoreWaitFlag before the second, or SyncAll between them";
            return "nothing orders the two cores: SyncAll (or a cross-core flag) between them";
        }
        if (other == pipe) return std::string("PipeBarrier<PIPE_") + name_of(pipe) + "> between them is missing";
        return std::string("SetFlag and WaitFlag<HardEvent::") + name_of(other) + "_" + name_of(pipe) + "> between them are missing";
    }

    void race(const char* what, const char* before, const Ref& ref, int64_t begin, int64_t end) const {
        const auto& [site, call] = machine->sites[ref.site];
        std::string other = std::string(call) + " at " + site.file + ":" + std::to_string(site.line) + " (pipe " +
                            name_of(static_cast<Pipe>(ref.pipe));
        if (ref.core != core.number) {
            const Core& face = machine->cores[ref.core]->face;
            other += std::string(" of ") + (face.role == Role::AIC ? "AIC " : "AIV ") + std::to_string(face.block_index);
        }
        hazard("race", at,
               std::string(what) + ": " + name + " (pipe " + name_of(pipe) + ", " + access.operand + ") " +
                   (access.kind == Access::Kind::Read ? "reads " : "writes ") + place(begin, end) + " that " + other + ") " + before +
                   "; " + remedy(ref) + ".",
               std::string(what) + std::to_string(ref.site) + access.operand + (ref.core == core.number ? "" : "x"));
    }

    void unwritten(const Cell& cell, int64_t begin, int64_t end) const {
        std::string history = "nothing has written";
        if (cell.writer.seq != 0) {
            const auto& [site, call] = machine->sites[cell.writer.site];
            history = std::string(call) + " at " + site.file + ":" + std::to_string(site.line) + " used as working memory";
        }
        hazard("uninitialised", at, std::string(name) + " (" + access.operand + ") reads " + place(begin, end) + ", which " + history + ".",
               access.operand);
    }

    void read(Cell& cell, int64_t begin, int64_t end) {
        if (((!cell.written && cell.atomics.empty()) || cell.undefined) && !access.carries) unwritten(cell, begin, end);
        if (cell.written && !known(cell.writer, false)) race("read after write", "wrote", cell.writer, begin, end);
        cell.atomics.each([&](const Ref& ref) {
            if (!known(ref, false)) race("read after write", "added to", ref, begin, end);
        });
        cell.readers.put(me);
    }

    void write(Cell& cell, int64_t begin, int64_t end) {
        if (cell.written && !known(cell.writer, false)) race("write after write", "wrote", cell.writer, begin, end);
        cell.atomics.each([&](const Ref& ref) {
            if (!known(ref, false)) race("write after write", "added to", ref, begin, end);
        });
        cell.readers.each([&](const Ref& ref) {
            if (!known(ref, true)) race("write after read", "reads", ref, begin, end);
        });
    }

    void add(Cell& cell, int64_t begin, int64_t end) {
        if ((!cell.written && cell.atomics.empty()) || cell.undefined) unwritten(cell, begin, end);
        if (cell.written && !known(cell.writer, false)) race("atomic after write", "wrote", cell.writer, begin, end);
        cell.readers.each([&](const Ref& ref) {
            if (!known(ref, true)) race("atomic after read", "reads", ref, begin, end);
        });
        cell.atomics.put(me);
    }

    void run(Shadow& shadow, int64_t begin, int64_t end) {
        if (access.kind == Access::Kind::Read) {
            shadow.each(begin, end, [this](Cell& cell, int64_t b, int64_t e) { read(cell, b, e); });
        } else if (access.kind == Access::Kind::Atomic) {
            shadow.each(begin, end, [this](Cell& cell, int64_t b, int64_t e) { add(cell, b, e); });
        } else {
            shadow.each(begin, end, [this](Cell& cell, int64_t b, int64_t e) { write(cell, b, e); });
            shadow.merge(begin, end);
            Cell cell;
            cell.written = !access.scratch;
            cell.writer = me;
            shadow.cells_[begin] = cell;
        }
    }

    void all() {
        Shadow& shadow = owner ? owner->shadows[index(access.space)] : machine->global_shadow;
        const bool runs_touch = access.pitch == access.bytes;
        for (int64_t group = 0; group < access.groups; ++group) {
            const int64_t begin = access.begin + group * access.group_pitch;
            if (runs_touch) {
                run(shadow, begin, begin + access.runs * access.bytes);
            } else {
                for (int64_t i = 0; i < access.runs; ++i)
                    run(shadow, begin + i * access.pitch, begin + i * access.pitch + access.bytes);
            }
        }
    }
};

static CoreState* owner_of(CoreState& core, const Access& access) {
    if (access.owner < 0) return &core;
    for (auto& other : machine->cores) {
        const int number = other->face.role == Role::AIC ? 0 : 1 + static_cast<int>(other->face.sub);
        if (other->face.block == core.face.block && number == access.owner) return other.get();
    }
    return nullptr;
}

void check_order(CoreState& core, Pipe pipe, const Clock& clock, uint32_t seq, const Access& access, const char* name,
                 Site at) {
    if (access.bytes <= 0 || access.runs <= 0 || access.groups <= 0) return;
    Ref me;
    me.core = static_cast<uint16_t>(core.number);
    me.pipe = static_cast<uint8_t>(pipe);
    me.seq = seq;
    me.site = site_number(at, name);
    me.unit = access.unit;
    Checker{core, pipe, clock, me, access, name, at, access.space == Space::GM ? nullptr : owner_of(core, access)}.all();
}

std::vector<std::pair<int64_t, int64_t>> unwritten(Space space, int64_t begin, int64_t end) {
    std::vector<std::pair<int64_t, int64_t>> parts;
    if (!machine->check) return parts;
    current().shadows[index(space)].look(begin, end, [&parts](const Cell& cell, int64_t b, int64_t e) {
        if ((cell.written && !cell.undefined) || (!cell.written && !cell.atomics.empty())) return;
        if (!parts.empty() && parts.back().second == b)
            parts.back().second = e;
        else
            parts.push_back({b, e});
    });
    return parts;
}

void forget(const Access& access) {
    CoreState* owner = access.space == Space::GM ? nullptr : owner_of(current(), access);
    if (!machine->check || (access.space != Space::GM && owner == nullptr)) return;
    Shadow& shadow = owner ? owner->shadows[index(access.space)] : machine->global_shadow;
    for (int64_t group = 0; group < access.groups; ++group)
        for (int64_t run = 0; run < access.runs; ++run) {
            const int64_t begin = access.begin + group * access.group_pitch + run * access.pitch;
            shadow.each(begin, begin + access.bytes, [](Cell& cell, int64_t, int64_t) { cell.undefined = true; });
        }
}

bool check_bounds(CoreState& core, const Access& access, const char* name, Site at) {
    if (access.bytes <= 0 || access.runs <= 0 || access.groups <= 0) return true;
    const auto far = [](int64_t pitch, int64_t count) { return pitch * (count - 1); };
    int64_t low = access.begin, high = access.begin + access.bytes;
    for (const int64_t reach : {far(access.pitch, access.runs), far(access.group_pitch, access.groups)})
        (reach < 0 ? low : high) += reach;
    const std::string what = std::string(name) + " (" + access.operand + ")";
    if (access.align > 1 && access.begin % access.align != 0) {
        hazard("alignment", at,
               what + " starts at byte " + std::to_string(access.space == Space::GM ? access.begin & 0xffffffff : access.begin) + " of " +
                   name_of(access.space) + "; its address has to be a multiple of " + std::to_string(access.align) + ".",
               access.operand);
        return false;
    }
    if (access.space == Space::GM) {
        auto buffer = machine->buffers.upper_bound(static_cast<uint64_t>(low));
        if (buffer == machine->buffers.begin()) {
            hazard("out_of_bounds", at, what + " is at a global address that belongs to no tensor of the launch.", access.operand);
            return false;
        }
        const GlobalBuffer& b = std::prev(buffer)->second;
        const int64_t base = static_cast<int64_t>(b.address);
        int64_t begin = base, end = base + b.bytes;
        const char* limit = "";
        if (access.high >= 0 && (access.low > begin || access.high < end)) {
            begin = std::max(begin, access.low), end = std::min(end, access.high);
            limit = " as SetGlobalBuffer gave it";
        }
        if (low >= begin && high <= end) return true;
        hazard("out_of_bounds", at,
               what + " touches bytes [" + std::to_string(low - base) + ", " + std::to_string(high - base) + ") of " + b.name + ", which has bytes [" +
                   std::to_string(begin - base) + ", " + std::to_string(end - base) + ")" + limit + ".",
               access.operand);
        return false;
    }
    CoreState* owner = owner_of(core, access);
    if (owner == nullptr) {
        hazard("wrong_core", at, what + " is in a memory of another core, which a block of this kernel type does not have.", access.operand);
        return false;
    }
    const int64_t capacity = owner->face.capacity[index(access.space)];
    if (capacity == 0) {
        hazard("wrong_core", at,
               what + " is in " + name_of(access.space) + ", which this core does not have: check the tensor's position and the core type.",
               access.operand);
        return false;
    }
    if (low < 0 || high > capacity) {
        hazard("out_of_bounds", at,
               what + " touches bytes [" + std::to_string(low) + ", " + std::to_string(high) + ") of " + name_of(access.space) + ", which has " +
                   std::to_string(capacity) + ".",
               access.operand);
        return false;
    }
    if (access.high >= 0 && (low < access.low || high > access.high)) {
        hazard("out_of_bounds", at,
               what + " touches bytes [" + std::to_string(low) + ", " + std::to_string(high) + ") of " + name_of(access.space) +
                   ", beyond its buffer [" + std::to_string(access.low) + ", " + std::to_string(access.high) + ").",
               access.operand);
        return false;
    }
    if (access.allocation != 0 && !machine->allocations[access.allocation - 1].live)
        hazard("use_after_free", at, what + " is a tensor that FreeTensor or EnQue gave away before.", access.operand);
    return true;
}

// ---- Global memory and the scalar's way to it ----

uint8_t* global(uint64_t address, int64_t* bytes) {
    auto buffer = machine->buffers.upper_bound(address);
    if (buffer == machine->buffers.begin()) return nullptr;
    const GlobalBuffer& b = std::prev(buffer)->second;
    const int64_t offset = static_cast<int64_t>(address - b.address);
    if (offset >= b.bytes) return nullptr;
    if (bytes) *bytes = b.bytes - offset;
    return b.host + offset;
}

void poison(Space space) {
    CoreState& core = current();
    auto& memory = core.memory[index(space)];
    std::fill(memory.begin(), memory.end(), uint8_t{0xff});
    core.shadows[index(space)].reset(0, static_cast<int64_t>(memory.size()), false);
}

constexpr uint64_t LINE = 64;

/// The line of the core's scalar cache that holds `address`, read from global memory when it is not there.
static Line& line_of(CoreState& core, uint64_t address) {
    const uint64_t base = address / LINE * LINE;
    auto [found, added] = core.cache.try_emplace(base);
    if (added) {
        for (uint64_t i = 0; i < LINE; ++i) {
            const uint8_t* host = global(base + i, nullptr);
            found->second.bytes[i] = host ? *host : 0;
        }
    }
    return found->second;
}

bool scalar_global(uint64_t address, void* value, int bytes, bool store, Site at, const char* name) {
    CoreState& core = current();
    Access access;
    access.space = Space::GM;
    access.kind = store ? Access::Kind::Write : Access::Kind::Read;
    access.operand = store ? "dst" : "src";
    access.begin = static_cast<int64_t>(address);
    access.bytes = bytes;
    core.last_site = at;
    if (!check_bounds(core, access, name, at)) return false;
    if (!store) {
        auto cached = core.cache.find(address / LINE * LINE);
        const uint64_t bit = 1ull << (address % LINE);
        if (cached != core.cache.end() && (cached->second.dirty & bit)) {  // its own store, not yet written back
            std::copy_n(cached->second.bytes + address % LINE, bytes, static_cast<uint8_t*>(value));
            scalar_work(1);
            return true;
        }
        // A flag in global memory: who reads a line that another core stored and cleaned knows what that core did before.
        auto news = machine->published.find(address / LINE * LINE);
        if (cached == core.cache.end() && news != machine->published.end())
            receive(core, core.pipes[index(Pipe::S)].clock, news->second);
        if (!scalar_access(access, name, at)) return false;
        Line& line = line_of(core, address);
        std::copy_n(line.bytes + address % LINE, bytes, static_cast<uint8_t*>(value));
        count_scalar_bytes(address, bytes, false);
        return true;
    }
    for (auto& other : machine->cores) {
        if (other.get() == &core) continue;
        auto line = other->cache.find(address / LINE * LINE);
        if (line != other->cache.end() && line->second.dirty != 0)
            hazard("cache_line", at,
                   std::string(name) + ": another core's scalar stores are in the same cache line of 64 bytes; one of the two will be lost. "
                                       "Keep scalar results of different cores 64 bytes apart.");
    }
    if (!scalar_access(access, name, at)) return false;
    Line& line = line_of(core, address);
    std::copy_n(static_cast<const uint8_t*>(value), bytes, line.bytes + address % LINE);
    for (int i = 0; i < bytes; ++i) line.dirty |= 1ull << ((address + static_cast<uint64_t>(i)) % LINE);
    line.site = at;
    count_scalar_bytes(address, bytes, true);
    return true;
}

void count_scalar_bytes(uint64_t address, int bytes, bool store) {
    auto buffer = std::prev(machine->buffers.upper_bound(address));
    (store ? buffer->second.written : buffer->second.read) += static_cast<uint64_t>(bytes);
}

void clean_cache(uint64_t address, bool whole, Site at) {
    CoreState& core = current();
    core.last_site = at;
    if (mutated("clean", at)) return;
    const uint64_t base = address / LINE * LINE;
    for (auto line = core.cache.begin(); line != core.cache.end();) {
        if (!whole && line->first != base) {
            ++line;
            continue;
        }
        for (uint64_t i = 0; i < LINE; ++i)
            if (line->second.dirty >> i & 1)
                if (uint8_t* host = global(line->first + i, nullptr)) *host = line->second.bytes[i];
        if (line->second.dirty != 0) {
            PipeState& scalar = core.pipes[index(Pipe::S)];
            Clock clock = scalar.clock;
            clock.own[index(Pipe::S)] = scalar.seq;
            machine->published[line->first] = everything(core, clock);
        }
        line = core.cache.erase(line);
        ++machine->progress;
    }
    scalar_work(1);
    if (machine->cores.size() > 1) yield_core();  // a program that polls a flag lets the others run
}

}  // namespace emulator
