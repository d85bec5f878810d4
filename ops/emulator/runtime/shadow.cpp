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

void Shadow::forget() {
    for (auto& [begin, cell] : cells_) cell.written = false;
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

constexpr uint64_t LINE = 64;

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

    /// The vector pipe of dav-3510 keeps its own instructions in order. Source: the page on automatic synchronization
    /// within a core ("synchronization guaranteed by hardware").
    bool ordered_pipe() const {
        return pipe == Pipe::S || (pipe == Pipe::V && (core.face.arch == Arch::dav3510 || auto_sync(core)));
    }

    bool known(const Ref& ref, bool write_after_read) const {
        if (ref.core == HOST) return true;
        if (ref.core == core.number) {
            if (ref.pipe == me.pipe && (ordered_pipe() || write_after_read || access.in_order || ref.seq == me.seq)) return true;
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
        const bool inserted = access.space == Space::UB && (other == pipe ? pipe == Pipe::V : pipe == Pipe::S || other == Pipe::S);
        const char* const hint = inserted ? " (--cce-auto-sync=on inserts it: launch with auto_sync)" : "";
        if (other == pipe) return std::string("PipeBarrier<PIPE_") + name_of(pipe) + "> between them is missing" + hint;
        return std::string("SetFlag and WaitFlag<HardEvent::") + name_of(other) + "_" + name_of(pipe) + "> between them are missing" + hint;
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
        if (cell.writer.core != HOST) {
            const auto& [site, call] = machine->sites[cell.writer.site];
            history = "holds no defined value; " + std::string(call) + " at " + site.file + ":" + std::to_string(site.line) + " was the last to write it";
        }
        hazard("uninitialised", at, std::string(name) + " (" + access.operand + ") reads " + place(begin, end) + ", which " + history + ".",
               access.operand);
    }

    void read(Cell& cell, int64_t begin, int64_t end) {
        if (((!cell.written && cell.atomics.empty()) || cell.undefined) && !access.carries) unwritten(cell, begin, end);
        if (!known(cell.writer, false)) race("read after write", "wrote", cell.writer, begin, end);
        cell.atomics.each([&](const Ref& ref) {
            if (!known(ref, false)) race("read after write", "added to", ref, begin, end);
        });
        cell.readers.put(me);
    }

    /// A scalar that looks at a line of the cache again and again waits for the other core's store: no race.
    bool polled(const Ref& ref, int64_t begin) const {
        return pipe == Pipe::S && ref.pipe == static_cast<uint8_t>(Pipe::S) && ref.core != core.number && ref.core != HOST &&
               access.space == Space::GM && machine->cores[ref.core]->refreshed.count(static_cast<uint64_t>(begin) / LINE * LINE) != 0;
    }

    void write(Cell& cell, int64_t begin, int64_t end) {
        bool read_before = false;
        cell.readers.each([&](const Ref& ref) {
            if (known(ref, true) || polled(ref, begin)) return;
            race("write after read", "reads", ref, begin, end);
            read_before = true;
        });
        if (read_before) return;  // what orders the two behind a read orders them behind the write that it read
        // Working memory: a call is through with it when the pipe takes the next one.
        const bool through = !cell.written && cell.writer.core == core.number && cell.writer.pipe == me.pipe;
        if (!through && !known(cell.writer, false)) race("write after write", "wrote", cell.writer, begin, end);
        cell.atomics.each([&](const Ref& ref) {
            if (!known(ref, false)) race("write after write", "added to", ref, begin, end);
        });
    }

    void add(Cell& cell, int64_t begin, int64_t end) {
        if ((!cell.written && cell.atomics.empty()) || cell.undefined) unwritten(cell, begin, end);
        if (!known(cell.writer, false)) race("atomic after write", "wrote", cell.writer, begin, end);
        cell.readers.each([&](const Ref& ref) {
            if (!known(ref, true)) race("atomic after read", "reads", ref, begin, end);
        });
        cell.atomics.put(me);
    }

    /// Bytes whose newest value is still in the scalar's cache.
    void cached(int64_t begin, int64_t end) const {
        const uint64_t first = static_cast<uint64_t>(begin) / LINE * LINE;
        for (auto line = core.cache.lower_bound(first); line != core.cache.end() && line->first < static_cast<uint64_t>(end); ++line) {
            bool stored = false;
            for (uint64_t i = 0; i < LINE; ++i) {
                const int64_t address = static_cast<int64_t>(line->first + i);
                stored |= (line->second.dirty >> i & 1) && address >= begin && address < end;
            }
            if (stored)
                hazard("cache_line", at,
                       std::string(name) + " (" + access.operand + ") " + (access.kind == Access::Kind::Read ? "reads " : "writes ") +
                           place(begin, end) + ", of which SetValue at " + line->second.site.file + ":" + std::to_string(line->second.site.line) +
                           " is still in the scalar's data cache; DataCacheCleanAndInvalid between them is missing.",
                       access.operand);
        }
    }

    void run(Shadow& shadow, int64_t begin, int64_t end) {
        if (access.space == Space::GM && pipe != Pipe::S && machine->dirty_lines > 0) cached(begin, end);
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

/// The start of an access as a user counts it: from the start of its tensor or memory.
static const GlobalBuffer* buffer_of(uint64_t address) {
    auto buffer = machine->buffers.upper_bound(address);
    return buffer == machine->buffers.begin() ? nullptr : &std::prev(buffer)->second;
}

static int64_t local_begin(const Access& access) {
    const GlobalBuffer* buffer = access.space == Space::GM ? buffer_of(static_cast<uint64_t>(access.begin)) : nullptr;
    return buffer ? access.begin - static_cast<int64_t>(buffer->address) : access.begin;
}

static std::string owner_name(const Access& access) {
    const GlobalBuffer* buffer = access.space == Space::GM ? buffer_of(static_cast<uint64_t>(access.begin)) : nullptr;
    return buffer ? buffer->name : name_of(access.space);
}

bool check_bounds(CoreState& core, const Access& access, const char* name, Site at) {
    const auto what = [&] { return std::string(name) + " (" + access.operand + ")"; };
    if (access.allocation != 0 && !machine->allocations[access.allocation - 1].live)
        hazard("use_after_free", at, what() + " is a tensor that FreeTensor or EnQue gave away before.", access.operand);
    if (access.bytes <= 0 || access.runs <= 0 || access.groups <= 0) return true;
    const auto far = [](int64_t pitch, int64_t count) { return pitch * (count - 1); };
    int64_t low = access.begin, high = access.begin + access.bytes;
    for (const int64_t reach : {far(access.pitch, access.runs), far(access.group_pitch, access.groups)})
        (reach < 0 ? low : high) += reach;
    if (access.align > 1 && access.begin % access.align != 0) {
        hazard("alignment", at,
               what() + " starts at byte " + std::to_string(local_begin(access)) + " of " + owner_name(access) + "; its address has to be a multiple of " + std::to_string(access.align) + ".",
               access.operand);
        return false;
    }
    if (access.space == Space::GM) {
        // The tensor is the one that SetGlobalBuffer was given a part of, however far an offset went.
        auto buffer = machine->buffers.upper_bound(static_cast<uint64_t>(access.low > 0 ? access.low : low));
        if (buffer == machine->buffers.begin()) {
            hazard("out_of_bounds", at, what() + " is at a global address that belongs to no tensor of the launch.", access.operand);
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
               what() + " touches bytes [" + std::to_string(low - base) + ", " + std::to_string(high - base) + ") of " + b.name + ", which has bytes [" +
                   std::to_string(begin - base) + ", " + std::to_string(end - base) + ")" + limit + ".",
               access.operand);
        return false;
    }
    CoreState* owner = owner_of(core, access);
    if (owner == nullptr) {
        hazard("wrong_core", at, what() + " is in a memory of another core, which a block of this kernel type does not have.", access.operand);
        return false;
    }
    const int64_t capacity = owner->face.capacity[index(access.space)];
    if (capacity == 0) {
        hazard("wrong_core", at,
               what() + " is in " + name_of(access.space) + ", which this core does not have: check the tensor's position and the core type.",
               access.operand);
        return false;
    }
    if (low < 0 || high > capacity) {
        hazard("out_of_bounds", at,
               what() + " touches bytes [" + std::to_string(low) + ", " + std::to_string(high) + ") of " + name_of(access.space) + ", which has " +
                   std::to_string(capacity) + ".",
               access.operand);
        return false;
    }
    if (access.high >= 0 && (low < access.low || high > access.high)) {
        hazard("out_of_bounds", at,
               what() + " touches bytes [" + std::to_string(low) + ", " + std::to_string(high) + ") of " + name_of(access.space) +
                   ", beyond its buffer [" + std::to_string(access.low) + ", " + std::to_string(access.high) + ").",
               access.operand);
        return false;
    }
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
    if (machine->stopped) return;
    CoreState& core = current();
    pump(core);
    // What still waits in a pipe may read or write here: leave it alone.
    if (!drained(core)) return;
    auto& memory = core.memory[index(space)];
    std::fill(memory.begin(), memory.end(), uint8_t{0xff});
    core.shadows[index(space)].forget();
}

// The scalar's data cache. A store reaches memory, and is an access to it, when DataCacheCleanAndInvalid writes its line
// back; a load is one when its line is read. The cache here is as large as needed and drops nothing by itself.

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

static uint64_t bits(uint64_t address, int bytes) {
    return (bytes >= 64 ? ~0ull : (1ull << bytes) - 1) << (address % LINE);
}

static void scalar_load(CoreState& core, const Access& access, uint8_t* value, Site at, const char* name) {
    const uint64_t address = static_cast<uint64_t>(access.begin), base = address / LINE * LINE;
    const int bytes = static_cast<int>(access.bytes);
    auto cached = core.cache.find(base);
    if (cached == core.cache.end()) {
        // A flag in global memory: who reads a line that another core stored and cleaned knows what that core did before.
        auto news = machine->published.find(base);
        if (news != machine->published.end()) receive(core, core.pipes[index(Pipe::S)].clock, news->second);
    }
    Line& line = line_of(core, address);
    const uint64_t wanted = bits(address, bytes);
    if ((line.dirty & wanted) == wanted || (line.checked & wanted) == wanted) {
        scalar_work(1);
        quiet_read(core, access);
    } else if (!scalar_access(access, name, at)) {
        return;
    }
    line.checked |= wanted;
    std::copy_n(line.bytes + address % LINE, bytes, value);
    bool stale = false;
    for (int i = 0; i < bytes; ++i)
        stale |= !(line.dirty >> (address % LINE + static_cast<uint64_t>(i)) & 1) && value[i] != *global(address + static_cast<uint64_t>(i), nullptr);
    if (stale)
        hazard("cache_line", at,
               std::string(name) + ": global memory has changed since the scalar's data cache took this line, and an old value is read; "
                                   "DataCacheCleanAndInvalid before it is missing.");
    count_scalar_bytes(address, bytes, false);
}

/// Another core's stores in the line that `core` does not know of: the line is written back whole, and one of the two is lost.
static bool shared_line(CoreState& core, uint64_t base) {
    for (auto& other : machine->cores) {
        if (other.get() == &core) continue;
        auto line = other->cache.find(base);
        if (line != other->cache.end() && line->second.dirty != 0) return true;
    }
    bool unknown = false;
    const Clock& clock = core.pipes[index(Pipe::S)].clock;
    machine->line_writers[base].each([&](const Ref& ref) {
        if (ref.core == core.number) return;
        unknown |= !clock.remote || (*clock.remote)[static_cast<size_t>(ref.core * PIPES + ref.pipe)] < ref.seq;
    });
    return unknown;
}

static void scalar_store(CoreState& core, const Access& access, const uint8_t* value, Site at, const char* name) {
    const uint64_t address = static_cast<uint64_t>(access.begin);
    const int bytes = static_cast<int>(access.bytes);
    scalar_work(1);
    if (shared_line(core, address / LINE * LINE))
        hazard("cache_line", at,
               std::string(name) + ": another core's scalar stores are in the same cache line of 64 bytes; one of the two will be lost. "
                                   "Keep scalar results of different cores 64 bytes apart.");
    Line& line = line_of(core, address);
    std::copy_n(value, bytes, line.bytes + address % LINE);
    if (line.dirty == 0) ++machine->dirty_lines;
    line.dirty |= bits(address, bytes);
    line.site = at;
    count_scalar_bytes(address, bytes, true);
}

bool scalar_global(uint64_t address, void* value, int bytes, bool store, Site at, const char* name, int64_t low, int64_t high) {
    if (machine->stopped) return false;
    CoreState& core = current();
    Access access;
    access.space = Space::GM;
    access.kind = store ? Access::Kind::Write : Access::Kind::Read;
    access.operand = store ? "dst" : "src";
    access.begin = static_cast<int64_t>(address);
    access.bytes = bytes;
    access.low = low, access.high = high;
    access.align = static_cast<uint32_t>(bytes);
    core.last_site = at;
    if (!check_bounds(core, access, name, at)) return false;
    if (auto_sync(core) && !store) wait_pipes(name, at);
    if (store)
        scalar_store(core, access, static_cast<const uint8_t*>(value), at, name);
    else
        scalar_load(core, access, static_cast<uint8_t*>(value), at, name);
    return true;
}

void count_scalar_bytes(uint64_t address, int bytes, bool store) {
    auto buffer = std::prev(machine->buffers.upper_bound(address));
    (store ? buffer->second.written : buffer->second.read) += static_cast<uint64_t>(bytes);
}

/// Write the bytes of `which` back to memory.
static void write_back(CoreState& core, uint64_t base, Line& line, uint64_t which, Site at) {
    const uint64_t out = line.dirty & which;
    if (out == 0) return;
    bool changed = false;
    for (uint64_t i = 0; i < LINE; ++i) {
        const uint8_t* host = global(base + i, nullptr);
        changed |= host && !(line.dirty >> i & 1) && *host != line.bytes[i];
    }
    if (changed)
        hazard("cache_line", line.site,
               "SetValue: the rest of its cache line of 64 bytes has changed in global memory since the data cache took it, and is overwritten "
               "with old values; call DataCacheCleanAndInvalid before SetValue, or keep what others write 64 bytes apart.");
    PipeState& scalar = core.pipes[index(Pipe::S)];
    ++scalar.seq;
    for (uint64_t i = 0; i < LINE;) {
        uint64_t end = i;
        for (; end < LINE && (out >> end & 1); ++end) *global(base + end, nullptr) = line.bytes[end];
        if (end > i && machine->check) {
            Access access;
            access.space = Space::GM, access.kind = Access::Kind::Write, access.operand = "dst";
            access.begin = static_cast<int64_t>(base + i), access.bytes = static_cast<int64_t>(end - i);
            check_order(core, Pipe::S, scalar.clock, scalar.seq, access, "SetValue", line.site);
        }
        i = std::max(end, i + 1);
    }
    line.dirty &= ~out;
    if (line.dirty == 0) --machine->dirty_lines;
    Clock clock = scalar.clock;
    clock.own[index(Pipe::S)] = scalar.seq;
    join(machine->published[base], everything(core, clock));
    Ref ref;
    ref.core = static_cast<uint16_t>(core.number), ref.pipe = static_cast<uint8_t>(Pipe::S), ref.seq = scalar.seq;
    ref.site = site_number(at, "DataCacheCleanAndInvalid");
    machine->line_writers[base].put(ref);
    ++machine->progress;
}

void clean_cache(uint64_t address, bool whole, Site at) {
    if (machine->stopped) return;
    CoreState& core = current();
    core.last_site = at;
    if (mutated("clean", at)) return;
    scalar_work(1);
    // Of a single line, what lies from the address on. Source: the page of DataCacheCleanAndInvalid.
    const uint64_t base = address / LINE * LINE, which = whole ? ~0ull : ~0ull << (address % LINE);
    if (!whole) core.refreshed.insert(base);
    for (auto line = core.cache.begin(); line != core.cache.end();) {
        if (!whole && line->first != base) {
            ++line;
            continue;
        }
        core.refreshed.insert(line->first);
        write_back(core, line->first, line->second, which, at);
        if (line->second.dirty != 0) {
            line->second.checked &= ~which;
            ++line;
        } else {
            line = core.cache.erase(line);
        }
    }
    yield_core();  // a program that polls a flag lets the others run
}

}  // namespace emulator
