// The report of a launch as JSON.
#include "state.h"

#include <cstdio>

namespace emulator {

static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", c);
            out += code;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

static std::string number(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    return text;
}

template <class Items, class F>
static std::string list(const Items& items, F one) {
    std::string out = "[";
    for (const auto& item : items) out += (out.size() > 1 ? "," : "") + one(item);
    return out + "]";
}

static const char* unit_name(Cost::Unit unit) {
    static const char* const names[] = {"none", "move", "vector", "cube", "scalar"};
    return names[static_cast<int>(unit)];
}

static std::string core_json(const std::unique_ptr<CoreState>& core) {
    std::string pipes, counters;
    for (int i = 0; i < PIPES; ++i) {
        const PipeState& pipe = core->pipes[static_cast<size_t>(i)];
        pipes += (i ? "," : "") + quoted(name_of(static_cast<Pipe>(i))) + ":{\"instructions\":" + std::to_string(pipe.seq) + ",\"busy\":" + number(pipe.busy) +
                 ",\"end\":" + number(pipe.time) + "}";
    }
    for (const auto& [name, counter] : core->counters)
        counters += (counters.empty() ? "" : ",") + quoted(name) + ":{\"unit\":" + quoted(unit_name(counter.unit)) + ",\"pipe\":" + quoted(name_of(counter.pipe)) +
                    ",\"amount\":" + std::to_string(counter.amount) + ",\"repeats\":" + std::to_string(counter.repeats) + ",\"calls\":" + std::to_string(counter.calls) + "}";
    const Core& face = core->face;
    return std::string("{\"role\":") + quoted(face.role == Role::AIC ? "AIC" : "AIV") + ",\"block\":" + std::to_string(face.block) + ",\"sub\":" + std::to_string(face.sub) +
           ",\"scalar_operations\":" + std::to_string(core->scalar_operations) + ",\"pipes\":{" + pipes + "},\"counters\":{" + counters + "}}";
}

std::string report_json() {
    const Machine& m = *machine;
    std::string out = "{\"hazards\":" + list(m.hazards, [](const Hazard& h) {
                          return "{\"kind\":" + quoted(h.kind) + ",\"message\":" + quoted(h.message) + ",\"file\":" + quoted(h.file) + ",\"line\":" +
                                 std::to_string(h.line) + ",\"count\":" + std::to_string(h.count) + "}";
                      });
    out += ",\"cores\":" + list(m.cores, core_json);
    out += ",\"buffers\":" + list(m.buffers, [](const auto& entry) {
               const GlobalBuffer& b = entry.second;
               return "{\"name\":" + quoted(b.name) + ",\"use\":" + std::to_string(static_cast<int>(b.use)) + ",\"bytes\":" + std::to_string(b.bytes) +
                      ",\"read\":" + std::to_string(b.read) + ",\"written\":" + std::to_string(b.written) + "}";
           });
    out += ",\"timeline\":" + list(m.timeline, [](const Slice& s) {
               return "[" + std::to_string(s.core) + "," + quoted(name_of(s.pipe)) + "," + number(s.begin) + "," + number(s.end) + "," + quoted(s.name) + "," +
                      quoted(s.at.file) + "," + std::to_string(s.at.line) + "]";
           });
    out += ",\"mutation_points\":" + list(m.mutation_points, [](const auto& entry) {
               const MutationPoint& p = entry.first;
               return "[" + quoted(p.kind) + "," + quoted(p.file) + "," + std::to_string(p.line) + "," + std::to_string(p.detail) + "," + std::to_string(entry.second) + "]";
           });
    return out + ",\"mutation_hits\":" + std::to_string(m.mutation_hits) + "}";
}

}  // namespace emulator
