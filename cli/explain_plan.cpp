// SPDX-License-Identifier: Apache-2.0
#include "cli/explain_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/text.h"
#include "ir/base/error.h"

namespace kiln::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOpKinds[] = {"elementwise", "reduce", "view",     "gather", "scatter",
                                    "scan",        "sort",   "contract", "effect"};
static_assert(std::size(kOpKinds) == static_cast<size_t>(OpKind::effect) + 1, "a name for each kind");
constexpr size_t kMostRegions = 8, kMostBuffers = 5, kMostAlive = 8;

int64_t bytes_of(const Type& t) { return numel(t.shape).value() * static_cast<int64_t>(dtype_size(t.dtype)); }
std::string size_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

/// "5 elementwise, 2 view"; most frequent first where `by_count`, else in the order of the names.
using Counts = std::vector<std::pair<std::string, int64_t>>;
Counts by_count(const std::map<std::string, int64_t>& counts) {
  Counts out(counts.begin(), counts.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}
std::string counts_text(const Counts& counts, size_t most) {
  std::string out;
  for (size_t i = 0; i < counts.size() && i < most; ++i)
    out += fmt::format("{}{} {}", i ? ", " : "", counts[i].second, counts[i].first);
  return counts.size() > most ? out + fmt::format(", and {} others", counts.size() - most) : out;
}
Json counts_json(const Counts& counts) {
  Json out = Json::object();
  for (const auto& [name, n] : counts) out[name] = n;
  return out;
}

Counts ops_by_kind(const Graph& g) {
  std::map<std::string, int64_t> counts;
  for (const Node& n : g.nodes) ++counts[kOpKinds[static_cast<size_t>(def(n.op).kind)]];
  return by_count(counts);
}
/// The innermost module path or composite that a node came from; "" for none.
std::string region_of(const Graph& g, const Node& n) {
  if (n.origin.scope < 0) return "";
  const std::string& path = g.scopes[static_cast<size_t>(n.origin.scope)];
  return path.substr(path.rfind('/') + 1);
}
Counts ops_by_region(const Graph& g) {
  std::map<std::string, int64_t> counts;
  for (const Node& n : g.nodes)
    if (n.origin.scope >= 0) ++counts[region_of(g, n)];
  return by_count(counts);
}
Counts inputs_by_kind(const Graph& g, bool in_bytes) {
  Counts out;
  for (int k = 0; k <= static_cast<int>(InputKind::captured); ++k) {
    int64_t n = 0;
    for (const GraphInput& in : g.inputs)
      if (static_cast<int>(in.kind) == k) n += in_bytes ? bytes_of(g.type(in.value)) : 1;
    if (n) out.emplace_back(to_string(static_cast<InputKind>(k)), n);
  }
  return out;
}

}  // namespace

ExplainedPlan::ExplainedPlan(const JobProgram& p, Plan plan) : program_(p), plan_(std::move(plan)) {
  KILN_CHECK(plan_.symbols.empty(), unsupported, "explain: the sizes of {} are known only at a call ({})",
             p.name, fmt::join(plan_.symbols, ", "));
  bound_ = bind_plan(plan_, {});
  find_buffers();
  find_peak();
}

LaunchFacts ExplainedPlan::facts(const Launch& l) const {
  LaunchFacts f;
  f.tasks = value(l.tasks);
  f.computes = l.kind == LaunchKind::kernel;
  if (l.profile < 0) return f;
  const ProfileRow& p = plan_.profile[static_cast<size_t>(l.profile)];
  const char* what = l.kind == LaunchKind::start ? "start" : "wait for";
  f.name = f.computes ? p.name : fmt::format("{} bucket {}", what, l.kernel);
  f.ops = p.ops;
  f.bytes = static_cast<double>(value(p.bytes));
  f.flops = static_cast<double>(value(p.flops));
  std::set<std::string> lines;
  for (const int32_t n : p.sources) lines.insert(program_.lines[static_cast<size_t>(n)]);
  lines.erase("");
  f.lines = fmt::format("{}", fmt::join(lines, " "));
  return f;
}

int64_t ExplainedPlan::wire_bytes(const PlanCollective& c) const {
  return value(c.count) * static_cast<int64_t>(dtype_size(c.wire));
}

void ExplainedPlan::find_buffers() {
  constexpr const char* kNames[] = {"external", "scalar", "arena", "output", "constant"};
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    if (b.kind == BufferKind::output) handed_out_ += bound_->sizes[i];
    largest_.push_back({name_of(b), kNames[static_cast<size_t>(b.kind)], bound_->sizes[i]});
  }
  std::stable_sort(largest_.begin(), largest_.end(),
                   [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; });
  largest_.resize(std::min(largest_.size(), kMostBuffers));
}

void ExplainedPlan::find_peak() {
  struct Life {
    size_t first = 0, last = 0;  // phases
  };
  std::map<size_t, Life> lives;  // by buffer of the arena
  std::vector<size_t> begins;    // per phase, its first launch
  for (size_t i = 0; i < plan_.launches.size(); ++i) {
    const Launch& l = plan_.launches[i];
    if (begins.empty() || l.barrier_before) begins.push_back(i);
    const size_t phase = begins.size() - 1;
    for (const int32_t b : l.buffers)
      if (plan_.buffers[static_cast<size_t>(b)].kind == BufferKind::arena)
        lives.try_emplace(static_cast<size_t>(b), Life{phase, phase}).first->second.last = phase;
  }
  std::vector<int64_t> used(begins.size(), 0);
  for (const auto& [b, life] : lives)
    for (size_t phase = life.first; phase <= life.last; ++phase) used[phase] += bound_->sizes[b];
  const auto most = std::max_element(used.begin(), used.end());
  if (most == used.end() || *most == 0) return;
  const auto phase = static_cast<size_t>(most - used.begin());
  peak_ = {begins[phase], *most, {}};
  for (const auto& [b, life] : lives)
    if (life.first <= phase && phase <= life.last)
      peak_.alive.push_back({name_of(plan_.buffers[b]), "arena", bound_->sizes[b]});
  std::stable_sort(peak_.alive.begin(), peak_.alive.end(),
                   [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; });
}

/// Temporaries are named by what computes them: "%12 of gelu at net.cpp:7".
std::string ExplainedPlan::name_of(const PlanBuffer& b) const {
  if (b.name.empty()) return fmt::format("#{}", b.index);
  if (b.kind != BufferKind::arena || b.name[0] != '%') return b.name;
  const int node = program_.graph.producer(Value{std::stoi(b.name.substr(1))});
  if (node < 0) return b.name;
  const Node& n = program_.graph.nodes[static_cast<size_t>(node)];
  const std::string region = region_of(program_.graph, n), &line = program_.lines[static_cast<size_t>(node)];
  return fmt::format("{} of {}{}{}", b.name, region.empty() ? def(n.op).name : region,
                     line.empty() ? "" : " at ", line);
}

std::vector<ExplainedPlan::Stored> ExplainedPlan::stored() const {
  std::map<size_t, Stored> by_buffer;
  for (size_t i = 0; i < plan_.launches.size(); ++i) {
    const Launch& l = plan_.launches[i];
    for (size_t place = 0; place < l.buffers.size(); ++place) {
      const auto b = static_cast<size_t>(l.buffers[place]);
      if (plan_.buffers[b].kind != BufferKind::arena || plan_.buffers[b].name.empty()) continue;
      const bool writes =
          std::find(l.writes.begin(), l.writes.end(), static_cast<int32_t>(place)) != l.writes.end();
      Stored& s = by_buffer.try_emplace(b, Stored{name_of(plan_.buffers[b]), "", bound_->sizes[b], i, {}})
                      .first->second;
      if (!writes && (s.readers.empty() || s.readers.back() != i)) s.readers.push_back(i);
    }
  }
  std::vector<Stored> out;
  for (auto& [b, s] : by_buffer) {
    if (s.readers.empty()) continue;
    s.why = why_stored(plan_.buffers[b], s);
    out.push_back(std::move(s));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Stored& a, const Stored& b) { return a.bytes > b.bytes; });
  return out;
}

std::vector<ExplainedPlan::Repeated> ExplainedPlan::repeated() const {
  const Graph& g = program_.graph;
  std::map<int32_t, std::set<size_t>> by;
  for (size_t i = 0; i < plan_.launches.size(); ++i)
    if (const int32_t row = plan_.launches[i].profile; row >= 0)
      for (const int32_t n : plan_.profile[static_cast<size_t>(row)].sources) by[n].insert(i);
  std::vector<Repeated> out;
  for (auto& [n, launches] : by) {
    const Node& node = g.nodes[static_cast<size_t>(n)];
    const OpKind kind = def(node.op).kind;
    if (launches.size() < 2 || node.in.empty() || kind == OpKind::view) continue;
    const std::string region = region_of(g, node), &line = program_.lines[static_cast<size_t>(n)];
    const bool same = region.empty() || region == def(node.op).name;
    out.push_back({fmt::format("%{} {}{}{}", node.out.id, def(node.op).name, same ? "" : " of " + region,
                               line.empty() ? "" : " at " + line),
                   bytes_of(g.type(node.out)), std::move(launches)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Repeated& a, const Repeated& b) { return a.bytes > b.bytes; });
  return out;
}

/// In what a kernel ends, or what it must read from memory; else how many read it.
std::string ExplainedPlan::why_stored(const PlanBuffer& b, const Stored& s) const {
  const Graph& g = program_.graph;
  const auto ends_kernels = [](OpKind k) {
    return k == OpKind::contract || k == OpKind::scan || k == OpKind::sort || k == OpKind::scatter;
  };
  if (b.name[0] != '%') return "";
  const int made = g.producer(Value{std::stoi(b.name.substr(1))});
  if (made < 0) return "";
  const Node& n = g.nodes[static_cast<size_t>(made)];
  if (def(n.op).kind == OpKind::contract)
    return fmt::format("only what is elementwise is fused behind {}", def(n.op).name);
  if (ends_kernels(def(n.op).kind)) return fmt::format("{} ends a kernel", def(n.op).name);
  std::set<int> same{n.out.id};  // the value and its views
  for (const Node& reader : g.nodes) {
    if (std::none_of(reader.in.begin(), reader.in.end(), [&](Value v) { return same.count(v.id) > 0; }))
      continue;
    if (def(reader.op).view) same.insert(reader.out.id);
    else if (ends_kernels(def(reader.op).kind))
      return fmt::format("{} reads its operands from memory", def(reader.op).name);
  }
  if (def(n.op).kind == OpKind::reduce) return "a reduction, complete only behind its launch";
  if (s.readers.size() > 1) return fmt::format("{} launches would compute it again", s.readers.size());
  return "read in another order than it is made, or too much for one kernel";
}

// ---- text ----

std::string ExplainedPlan::graph_text() const {
  const Graph& g = program_.graph;
  const auto in_place = std::count_if(g.outputs.begin(), g.outputs.end(),
                                      [](const GraphOutput& o) { return o.alias_input >= 0; });
  std::string out = fmt::format("  graph: {}: {}\n", count_text(static_cast<int64_t>(g.nodes.size()), "op"),
                                counts_text(ops_by_kind(g), std::size(kOpKinds)));
  out += fmt::format("  inputs: {}; outputs: {}, {} in place\n", counts_text(inputs_by_kind(g, false), 8),
                     g.outputs.size(), in_place);
  if (!program_.ends.empty())
    out += fmt::format("  ends at {}, which costs {}: what it hands out\n", program_.ends,
                       size_text(handed_out_));
  const Counts regions = ops_by_region(g);
  if (!regions.empty()) out += fmt::format("  ops by region: {}\n", counts_text(regions, kMostRegions));
  return out;
}

std::string ExplainedPlan::collectives_text() const {
  std::string out;
  for (size_t c = 0; c < plan_.collectives.size(); ++c) {
    const PlanCollective& p = plan_.collectives[c];
    size_t at[2] = {0, 0};
    for (size_t i = 0; i < plan_.launches.size(); ++i) {
      const Launch& l = plan_.launches[i];
      if (l.kind != LaunchKind::kernel && l.kernel == static_cast<int32_t>(c))
        at[l.kind == LaunchKind::wait] = i;
    }
    out += fmt::format(
        "  bucket {}: {} of {}, {}, sent as {} of {}, group {}; started by launch {}, awaited by launch "
        "{}\n",
        c, p.kind, count_text(static_cast<int64_t>(p.pieces.size()), "tensor"),
        size_text(buffer_bytes(p.buffer)), size_text(wire_bytes(p)), dtype_name(p.wire), p.group, at[0],
        at[1]);
  }
  return out;
}

std::string ExplainedPlan::stored_text() const {
  constexpr size_t kMost = 8;
  const std::vector<Stored> all = stored();
  std::string out;
  for (size_t i = 0; i < all.size() && i < kMost; ++i)
    out += fmt::format("    {} {}: of launch {} for {}{}{}\n", size_text(all[i].bytes), all[i].name,
                       all[i].writer, fmt::join(all[i].readers, ", "), all[i].why.empty() ? "" : ": ",
                       all[i].why);
  const auto heading = [](const char* what, size_t n) {
    return fmt::format("  {}: {}{}\n", what, count_text(static_cast<int64_t>(n), "value"),
                       n > kMost ? ", the largest" : "");
  };
  if (!all.empty()) out = heading("between launches", all.size()) + out;
  const std::vector<Repeated> again = repeated();
  if (!again.empty()) out += heading("computed again, for less than reading costs", again.size());
  for (size_t i = 0; i < again.size() && i < kMost; ++i)
    out += fmt::format("    {} {}: by launches {}\n", size_text(again[i].bytes), again[i].name,
                       fmt::join(again[i].launches, ", "));
  return out;
}

std::string ExplainedPlan::memory_text(std::optional<int64_t> scratch) const {
  std::string out = "  memory:";
  for (const auto& [kind, n] : inputs_by_kind(program_.graph, true))
    out += fmt::format(" {} {},", kind, size_text(n));
  out += fmt::format(" handed out {}, arena {}, {}constants {}\n", size_text(handed_out_),
                     size_text(bound_->arena_bytes),
                     scratch ? fmt::format("scratch {} a thread, ", size_text(*scratch)) : "",
                     size_text(static_cast<int64_t>(plan_.constants.size())));
  out += "    largest:";
  for (size_t i = 0; i < largest_.size(); ++i)
    out += fmt::format("{} {} ({}) {}", i ? "," : "", largest_[i].name, largest_[i].kind,
                       size_text(largest_[i].bytes));
  out += "\n";
  if (peak_.alive.empty()) return out;
  out += fmt::format("    peak: {} of the arena, at launch {}:", size_text(peak_.bytes), peak_.launch);
  int64_t rest = 0;
  for (size_t i = 0; i < peak_.alive.size(); ++i) {
    if (i < kMostAlive)
      out += fmt::format("{} {} {}", i ? "," : "", peak_.alive[i].name, size_text(peak_.alive[i].bytes));
    else rest += peak_.alive[i].bytes;
  }
  if (rest > 0) out += fmt::format(", and {} others {}", peak_.alive.size() - kMostAlive, size_text(rest));
  return out + "\n";
}

std::string_view ExplainedPlan::not_counted() const {
  return plan_.collectives.empty() ? "" : "; communication is not counted";
}

// ---- JSON ----

Json ExplainedPlan::graph_json() const {
  const Graph& g = program_.graph;
  return {{"ops", g.nodes.size()},
          {"by_kind", counts_json(ops_by_kind(g))},
          {"by_region", counts_json(ops_by_region(g))},
          {"inputs", counts_json(inputs_by_kind(g, false))},
          {"outputs", g.outputs.size()}};
}

Json ExplainedPlan::collectives_json() const {
  Json out = Json::array();
  for (const PlanCollective& c : plan_.collectives)
    out.push_back({{"kind", c.kind},
                   {"group", c.group},
                   {"tensors", c.pieces.size()},
                   {"bytes", buffer_bytes(c.buffer)},
                   {"wire", dtype_name(c.wire)},
                   {"wire_bytes", wire_bytes(c)}});
  return out;
}

Json ExplainedPlan::stored_json() const {
  Json out = Json::array();
  for (const Stored& s : stored())
    out.push_back(
        {{"name", s.name}, {"bytes", s.bytes}, {"writer", s.writer}, {"readers", s.readers}, {"why", s.why}});
  return out;
}

Json ExplainedPlan::repeated_json() const {
  Json out = Json::array();
  for (const Repeated& r : repeated())
    out.push_back({{"name", r.name}, {"bytes", r.bytes}, {"launches", r.launches}});
  return out;
}

Json ExplainedPlan::memory_json(std::optional<int64_t> scratch) const {
  Json out = {{"inputs", counts_json(inputs_by_kind(program_.graph, true))},
              {"handed_out", handed_out_},
              {"arena", bound_->arena_bytes}};
  if (scratch) out["scratch"] = *scratch;
  out["constants"] = plan_.constants.size();
  for (const Buffer& b : largest_)
    out["largest"].push_back({{"name", b.name}, {"kind", b.kind}, {"bytes", b.bytes}});
  if (!peak_.alive.empty()) {
    Json alive = Json::array();
    for (const Buffer& b : peak_.alive) alive.push_back({{"name", b.name}, {"bytes", b.bytes}});
    out["peak"] = {{"launch", peak_.launch}, {"bytes", peak_.bytes}, {"alive", alive}};
  }
  return out;
}

}  // namespace kiln::cli
