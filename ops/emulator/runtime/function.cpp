// Vector functions: which of their loads and stores wait for which, and what they cost.
//
// Their instructions run out of order. A store and a load of the same bytes keep the program's order when a LocalMemBar is
// between them, when both name the same register, or when the value that is stored derives from the load; so do two stores
// from one register, or with a barrier. A register is the same as long as it holds the same value: which one a variable has
// after that is the compiler's choice. Sources: the page LocalMemBar; "Reg vector computation programming", pipeline
// synchronization ("no synchronization where a computation that depends on the register lies between"). Only the newest load
// of a byte is looked at: loads are taken to read memory in order among themselves.
#include "state.h"

#include <algorithm>
#include <cmath>

namespace emulator {

constexpr size_t KNOWN_BUFFERS = 256;  // tags of pointers end here as well
constexpr int UNALIGNED_REGISTERS = 4;  // page "UnalignRegForLoad & UnalignRegForStore"

// ---- Origins ----

void Origin::add(Range range) {
    int at = 0;
    while (at < count && ranges[at].last + 1 < range.first) ++at;
    int end = at;
    for (; end < count && ranges[end].first <= range.last + 1; ++end) {
        range.first = std::min(range.first, ranges[end].first);
        range.last = std::max(range.last, ranges[end].last);
    }
    if (end == at && count == RANGES) {  // full: the oldest gap is closed, and counts as derived from
        if (at == 0) {
            ranges[0].first = range.first;
            return;
        }
        ranges[0].last = ranges[1].last;
        std::copy(ranges + 2, ranges + count--, ranges + 1);
        if (at-- == 1) return;
        end = at;
    }
    const int more = 1 - (end - at);
    if (more > 0) std::copy_backward(ranges + end, ranges + count, ranges + count + 1);
    if (more < 0) std::copy(ranges + end, ranges + count, ranges + at + 1);
    ranges[at] = range;
    count += more;
}

void Origin::join(const Origin& other) {
    stores = std::max(stores, other.stores);
    if (count == 0) {
        std::copy(other.ranges, other.ranges + other.count, ranges);
        count = other.count;
        return;
    }
    for (int i = 0; i < other.count; ++i)
        if (!(other.ranges[i].first >= ranges[count - 1].first && other.ranges[i].last <= ranges[count - 1].last)) add(other.ranges[i]);
}

bool Origin::has(uint32_t load) const {
    for (int i = 0; i < count; ++i)
        if (load >= ranges[i].first && load <= ranges[i].last) return true;
    return false;
}

// ---- Buffers of pointers ----

void address_taken(const Buffer& buffer) {
    if (machine->stopped) return;
    auto& known = current().buffers;
    const auto same = [&buffer](const Buffer& b) { return b.space == buffer.space && b.low == buffer.low && b.high == buffer.high; };
    known.erase(std::remove_if(known.begin(), known.end(), same), known.end());
    if (known.size() >= KNOWN_BUFFERS) known.erase(known.begin());
    known.push_back(buffer);
}

Buffer buffer_at(Space space, int64_t offset) {
    const auto given_away = [](const Buffer& b) { return b.allocation != 0 && !machine->allocations[b.allocation - 1].live; };
    Buffer found;
    found.space = space;
    for (const Buffer& buffer : current().buffers) {
        if (buffer.space != space || offset < buffer.low || offset >= buffer.high) continue;
        const bool larger = buffer.high - buffer.low >= found.high - found.low, other = given_away(buffer) != given_away(found);
        if (found.high < 0 || (other ? given_away(found) : larger)) found = buffer;
    }
    return found;
}

Buffer argument_buffer(int tag) {
    const auto& buffers = machine->function.buffers;
    return tag > 0 && static_cast<size_t>(tag) <= buffers.size() ? buffers[static_cast<size_t>(tag) - 1] : Buffer{};
}

// ---- The function ----

void function_begin(std::vector<Buffer> buffers, uint64_t ctrl) {
    Function& f = machine->function;
    f.active = true;
    f.buffers = std::move(buffers);
    f.ctrl = ctrl;
    f.before = f.newest;
    f.operations.clear();
    f.load_behind = f.store_behind_loads = f.store_behind_stores = f.newest_load_behind = f.before;
    const size_t bytes = current().face.capacity[index(Space::UB)];
    if (f.loaded.size() < bytes) f.loaded.resize(bytes), f.stored.resize(bytes);
    f.work.clear();
    f.cycles = f.alone = 0;
}

/// Time: every instruction takes the cycles of its row in "theoretical performance of the Reg interfaces"; in a cycle
/// `vector_issue` of them start, of those in the list of single issue ("single and dual issue of the Reg interfaces") one.
/// An assumption: enough independent instructions are at hand. Not counted, since not published: latency, waits at a
/// LocalMemBar, conflicts of banks, the start of the function and of its loops, scalar work in it.
static double duration(const Function& f) {
    auto issue = machine->rates.find("vector_issue");
    const double wide = issue == machine->rates.end() ? 1 : issue->second;
    return std::max(std::ceil(static_cast<double>(f.cycles) / wide), static_cast<double>(f.alone)) / machine->clock_hz;
}

void function_end() {
    Function& f = machine->function;
    f.active = false;
    CoreState& core = *machine->running;
    for (const Function::Work& work : f.work) {
        Counter& counter = core.counters[work.call];
        counter.unit = Cost::Unit::Vector;
        counter.pipe = machine->running_pipe;
        counter.amount += work.elements;
        counter.repeats += work.instructions;
        counter.calls += work.instructions;
    }
    PipeState& pipe = core.pipes[index(machine->running_pipe)];
    const double begin = pipe.time, length = duration(f);
    pipe.time += length, pipe.busy += length;
    if (machine->timeline.empty()) return;
    Slice& slice = machine->timeline.back();  // that of this call, if it is kept, ends where it begins
    if (slice.core == core.number && slice.begin == begin && slice.end == begin) slice.end = pipe.time;
}

bool in_function(const char* call, Site at) {
    if (machine->stopped) return false;
    if (!machine->function.active)
        hazard("argument", at, std::string(call) + " is called outside of a vector function; registers live in functions that asc_vf_call starts.", call);
    return machine->function.active;
}

bool within_function(const char* call, Site at) {
    if (machine->function.active)
        hazard("argument", at, std::string(call) + " is called in a vector function, where only register instructions are possible.", call);
    return machine->function.active;
}

uint32_t new_value() { return machine == nullptr ? 0 : ++machine->function.values; }

uint64_t function_ctrl() { return machine->function.ctrl; }

void register_work(const char* call, uint64_t elements, int cycles, bool alone) {
    Function& f = machine->function;
    f.cycles += static_cast<uint64_t>(cycles);
    if (alone) f.alone += static_cast<uint64_t>(cycles);
    for (Function::Work& work : f.work)
        if (work.call == call) {
            work.elements += elements;
            ++work.instructions;
            return;
        }
    f.work.push_back({call, elements, 1});
}

void unaligned_register(int which, int change, Site at) {
    if (machine == nullptr || machine->stopped) return;
    int& live = machine->function.unaligned[which];
    live += change;
    if (change > 0 && live > UNALIGNED_REGISTERS)
        hazard("capacity", at,
               std::string(which == 0 ? "UnalignRegForLoad" : "UnalignRegForStore") + ": more than " + std::to_string(UNALIGNED_REGISTERS) +
                   " are alive; the device's compiler refuses that.");
}

// ---- Order of loads and stores ----

/// f(number, begin, end) for runs of bytes whose newest operation in `newest` is of this function.
template <class F>
static void each_operation(const std::vector<uint32_t>& newest, uint32_t before, int64_t begin, int64_t end, F f) {
    uint32_t most = 0;
    for (int64_t b = begin; b < end; ++b) most = std::max(most, newest[static_cast<size_t>(b)]);
    if (most <= before) return;
    for (int64_t b = begin; b < end;) {
        const uint32_t number = newest[static_cast<size_t>(b)];
        int64_t next = b + 1;
        while (next < end && newest[static_cast<size_t>(next)] == number) ++next;
        if (number > before) f(number, b, next);
        b = next;
    }
}

static void race(const char* what, uint32_t number, const char* did, const char* barrier, int64_t begin, int64_t end, const char* does, const char* call, Site at) {
    const Function::Operation& other = machine->function.operation(number);
    hazard("race", at,
           std::string(what) + " in a vector function: " + call + " " + does + " bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ") of UB that " +
               other.call + " at " + other.at.file + ":" + std::to_string(other.at.line) + " " + did + "; LocalMemBar<" + barrier + "> between them is missing.",
           std::string(what) + std::to_string(other.at.line));
}

/// Whether the store was of `value`; 0: of none.
static bool same(uint32_t store, uint32_t value) { return value != 0 && machine->function.operation(store).value == value; }

static void check(const Access& access, const char* call, Site at) {
    PipeState& pipe = machine->running->pipes[index(machine->running_pipe)];
    check_order(*machine->running, machine->running_pipe, pipe.clock, pipe.seq, access, call, at);
}

bool register_load(const Access& access, uint32_t replaced, Origin& origin, const char* call, Site at) {
    if (!check_bounds(*machine->running, access, call, at)) return false;
    Function& f = machine->function;
    const uint32_t number = ++f.newest;
    f.operations.push_back({0, at, call});
    const int64_t begin = access.begin, end = access.begin + access.bytes;
    if (machine->check) {
        each_operation(f.stored, f.before, begin, end, [&](uint32_t store, int64_t b, int64_t e) {
            if (store > f.load_behind && !same(store, replaced))
                race("read after write", store, "wrote", "MemType::VEC_STORE, MemType::VEC_LOAD", b, e, "reads", call, at);
        });
        check(access, call, at);
    }
    std::fill(f.loaded.begin() + begin, f.loaded.begin() + end, number);
    f.newest_load_behind = origin.stores = f.load_behind;
    origin.add({number, number});
    return true;
}

bool register_store(const std::vector<Access>& accesses, uint32_t value, const Origin& origin, const char* call, Site at) {
    for (const Access& access : accesses)
        if (!check_bounds(*machine->running, access, call, at)) return false;
    Function& f = machine->function;
    const uint32_t number = ++f.newest;
    f.operations.push_back({value, at, call});
    for (const Access& access : accesses) {
        const int64_t begin = access.begin, end = access.begin + access.bytes;
        if (machine->check) {
            each_operation(f.loaded, f.before, begin, end, [&](uint32_t load, int64_t b, int64_t e) {
                if (load > f.store_behind_loads && !origin.has(load))
                    race("write after read", load, "reads", "MemType::VEC_LOAD, MemType::VEC_STORE", b, e, "writes", call, at);
            });
            each_operation(f.stored, f.before, begin, end, [&](uint32_t store, int64_t b, int64_t e) {
                if (store != number && store > f.store_behind_stores && store > origin.stores && !same(store, value))
                    race("write after write", store, "wrote", "MemType::VEC_STORE, MemType::VEC_STORE", b, e, "writes", call, at);
            });
            check(access, call, at);
        }
        std::fill(f.stored.begin() + begin, f.stored.begin() + end, number);
    }
    return true;
}

void register_barrier(Reach reach, Site at) {
    Function& f = machine->function;
    if (mutated("local_barrier", at, static_cast<int>(reach))) return;
    if (reach == Reach::LoadsAfterStores || reach == Reach::All) f.load_behind = f.newest;
    if (reach == Reach::StoresAfterLoads || reach == Reach::All) {
        f.store_behind_loads = f.newest;
        f.store_behind_stores = std::max(f.store_behind_stores, f.newest_load_behind);  // what those loads waited for
    }
    if (reach == Reach::StoresAfterStores || reach == Reach::All) f.store_behind_stores = f.newest;
}

}  // namespace emulator
