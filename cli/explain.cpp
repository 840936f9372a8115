// SPDX-License-Identifier: Apache-2.0
// `kiln explain`: what the programs of a job become: graph, kernels, memory, and the time that bytes and
// FLOPs take at least. Lowers, but runs nothing, and compiles for CUDA alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/explain_cuda.h"
#include "cli/text.h"
#include "cli/tuning.h"
#include "codegen/job.h"
#include "ir/base/error.h"
#include "runtime/bound_plan.h"
#include "runtime/machine.h"
#include "runtime/thread_pool.h"

namespace kiln::cli {

namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  std::string job, target = "host", tune = "off";
  int program = -1, threads = 0;
  bool measure = false, json = false;
};

constexpr const char* kKinds[] = {"elementwise", "reduce", "view",     "gather", "scatter",
                                  "scan",        "sort",   "contract", "effect"};
static_assert(std::size(kKinds) == static_cast<size_t>(OpKind::effect) + 1, "a name for each kind");
constexpr size_t kMostRegions = 8, kMostBuffers = 5, kMostName = 64;

int64_t bytes_of(const Type& t) { return numel(t.shape).value() * static_cast<int64_t>(dtype_size(t.dtype)); }

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

Counts ops_by_kind(const Graph& g) {
  std::map<std::string, int64_t> counts;
  for (const Node& n : g.nodes) ++counts[kKinds[static_cast<size_t>(def(n.op).kind)]];
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

/// One launch in numbers.
struct Row {
  std::string name, ops, lines;
  int64_t tasks = 0;
  double bytes = 0, flops = 0, seconds = 0;
  bool by_memory = true, computes = true;

  const char* bound_by() const { return !computes ? "-" : by_memory ? "memory" : "arithmetic"; }
};

struct Buffer {
  std::string name, kind;
  int64_t bytes = 0;
};

/// A program lowered for a target, its sizes known.
class Explained {
 public:
  Explained(const JobProgram& p, const LowerOptions& lower, const NamedTarget& target,
            const MachineLimits& limits, bool measured)
      : program_(p), target_(target), limits_(limits), measured_(measured) {
    LoweredProgram lowered = kiln::lower(p.graph, p.layouts, target.target, lower);
    kernels_ = static_cast<int64_t>(lowered.kernels.size());
    plan_ = std::move(lowered.plan);
    name_plan(p.graph, plan_);
    KILN_CHECK(plan_.symbols.empty(), unsupported, "explain: the sizes of {} are known only at a call ({})",
               p.name, fmt::join(plan_.symbols, ", "));
    bound_ = bind_plan(plan_, {});
    for (const Launch& l : plan_.launches) rows_.push_back(row_of(l));
    find_buffers();
  }

  std::string text(size_t index) const {
    const Graph& g = program_.graph;
    const auto in_place = std::count_if(g.outputs.begin(), g.outputs.end(),
                                        [](const GraphOutput& o) { return o.alias_input >= 0; });
    std::string out = fmt::format("stage {}: {} for {}, {}\n", index, program_.name, target_.name,
                                  count_text(limits_.threads, "thread"));
    out += fmt::format("  graph: {}: {}\n", count_text(static_cast<int64_t>(g.nodes.size()), "op"),
                       counts_text(ops_by_kind(g), std::size(kKinds)));
    out += fmt::format("  inputs: {}; outputs: {}, {} in place\n", counts_text(inputs_by_kind(g, false), 8),
                       g.outputs.size(), in_place);
    if (!program_.ends.empty())
      out += fmt::format("  ends at {}, which costs {}: what it hands out\n", program_.ends,
                         bytes_text(static_cast<double>(handed_out_)));
    const Counts regions = ops_by_region(g);
    if (!regions.empty()) out += fmt::format("  ops by region: {}\n", counts_text(regions, kMostRegions));
    return out + launches_text() + collectives_text() + memory_text() + predicted_text();
  }

  Json json() const {
    Json out = {{"name", program_.name},
                {"ends", program_.ends},
                {"target", target_.name},
                {"threads", limits_.threads}};
    out["graph"] = {{"ops", program_.graph.nodes.size()},
                    {"by_kind", object(ops_by_kind(program_.graph))},
                    {"by_region", object(ops_by_region(program_.graph))},
                    {"inputs", object(inputs_by_kind(program_.graph, false))},
                    {"outputs", program_.graph.outputs.size()}};
    out["kernels"] = kernels_;
    out["phases"] = bound_->phase_count();
    out["launches"] = Json::array();
    for (const Row& r : rows_)
      out["launches"].push_back({{"name", r.name},
                                 {"ops", r.ops},
                                 {"lines", r.lines},
                                 {"tasks", r.tasks},
                                 {"bytes", r.bytes},
                                 {"flops", r.flops},
                                 {"seconds", r.seconds},
                                 {"bound", r.bound_by()}});
    out["collectives"] = Json::array();
    for (const PlanCollective& c : plan_.collectives)
      out["collectives"].push_back({{"kind", c.kind},
                                    {"group", c.group},
                                    {"tensors", c.pieces.size()},
                                    {"bytes", buffer_bytes(c.buffer)},
                                    {"wire", dtype_name(c.wire)},
                                    {"wire_bytes", wire_bytes(c)}});
    out["memory"] = {{"inputs", object(inputs_by_kind(program_.graph, true))},
                     {"handed_out", handed_out_},
                     {"arena", bound_->arena_bytes},
                     {"scratch", bound_->scratch_bytes},
                     {"constants", plan_.constants.size()}};
    for (const Buffer& b : largest_)
      out["memory"]["largest"].push_back({{"name", b.name}, {"kind", b.kind}, {"bytes", b.bytes}});
    out["predicted"] = {{"seconds", seconds(true) + seconds(false)},
                        {"by_memory", seconds(true)},
                        {"by_arithmetic", seconds(false)},
                        {"bytes_per_s", limits_.bytes_per_s},
                        {"flops_per_s", limits_.flops_per_s}};
    return out;
  }

 private:
  static Json object(const Counts& counts) {
    Json out = Json::object();
    for (const auto& [name, n] : counts) out[name] = n;
    return out;
  }
  int64_t value(DimIndex i) const { return i < 0 ? 0 : bound_->dims[static_cast<size_t>(i)]; }
  int64_t buffer_bytes(int32_t b) const { return bound_->sizes[static_cast<size_t>(b)]; }
  int64_t wire_bytes(const PlanCollective& c) const {
    return value(c.count) * static_cast<int64_t>(dtype_size(c.wire));
  }

  Row row_of(const Launch& l) const {
    Row r;
    r.tasks = value(l.tasks);
    if (l.profile < 0) return r;
    const ProfileRow& p = plan_.profile[static_cast<size_t>(l.profile)];
    r.computes = l.kind == LaunchKind::kernel;
    r.name = r.computes
                 ? p.name
                 : fmt::format("{} bucket {}", l.kind == LaunchKind::start ? "start" : "wait for", l.kernel);
    r.ops = p.ops;
    r.bytes = static_cast<double>(value(p.bytes));
    r.flops = static_cast<double>(value(p.flops));
    r.seconds = limits_.seconds(r.bytes, r.flops);
    r.by_memory = r.bytes / limits_.bytes_per_s >= r.flops / limits_.flops_per_s;
    std::set<std::string> lines;
    for (int32_t n : p.sources) lines.insert(program_.lines[static_cast<size_t>(n)]);
    lines.erase("");
    r.lines = fmt::format("{}", fmt::join(lines, " "));
    return r;
  }

  void find_buffers() {
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
  /// Temporaries are named by what computes them: "%12 of gelu at net.cpp:7".
  std::string name_of(const PlanBuffer& b) const {
    if (b.name.empty()) return fmt::format("#{}", b.index);
    if (b.kind != BufferKind::arena || b.name[0] != '%') return b.name;
    const int node = program_.graph.producer(Value{std::stoi(b.name.substr(1))});
    if (node < 0) return b.name;
    const Node& n = program_.graph.nodes[static_cast<size_t>(node)];
    const std::string region = region_of(program_.graph, n),
                      &line = program_.lines[static_cast<size_t>(node)];
    return fmt::format("{} of {}{}{}", b.name, region.empty() ? def(n.op).name : region,
                       line.empty() ? "" : " at ", line);
  }
  double seconds(bool by_memory) const {
    double sum = 0;
    for (const Row& r : rows_) sum += r.by_memory == by_memory ? r.seconds : 0;
    return sum;
  }

  std::string launches_text() const {
    std::string out =
        fmt::format("  plan: {} of {} in {}\n", count_text(static_cast<int64_t>(rows_.size()), "launch"),
                    count_text(kernels_, "kernel"), count_text(bound_->phase_count(), "phase"));
    size_t width = std::string_view("launch").size();
    for (const Row& r : rows_) width = std::max(width, std::min(r.name.size(), kMostName));
    out += fmt::format("    {:>3}  {:<{}} {:>6} {:>11} {:>12} {:>10}  {:<10}  {}\n", "", "launch", width,
                       "tasks", "bytes", "FLOP", "us", "bound by", "lines");
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& r = rows_[i];
      const std::string name = r.name.size() > kMostName ? r.name.substr(0, kMostName - 3) + "..." : r.name;
      out +=
          fmt::format("    {:>3}  {:<{}} {:>6} {:>11} {:>12} {:>10.3f}  {:<10}  {}", i, name, width, r.tasks,
                      bytes_text(r.bytes), flops_text(r.flops), r.seconds * 1e6, r.bound_by(), r.lines);
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n";
    }
    return out;
  }
  std::string collectives_text() const {
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
          bytes_text(static_cast<double>(buffer_bytes(p.buffer))),
          bytes_text(static_cast<double>(wire_bytes(p))), dtype_name(p.wire), p.group, at[0], at[1]);
    }
    return out;
  }
  std::string memory_text() const {
    std::string out = "  memory:";
    for (const auto& [kind, n] : inputs_by_kind(program_.graph, true))
      out += fmt::format(" {} {},", kind, bytes_text(static_cast<double>(n)));
    out += fmt::format(" handed out {}, arena {}, scratch {} a thread, constants {}\n",
                       bytes_text(static_cast<double>(handed_out_)),
                       bytes_text(static_cast<double>(bound_->arena_bytes)),
                       bytes_text(static_cast<double>(bound_->scratch_bytes)),
                       bytes_text(static_cast<double>(plan_.constants.size())));
    out += "    largest:";
    for (size_t i = 0; i < largest_.size(); ++i)
      out += fmt::format("{} {} ({}) {}", i ? "," : "", largest_[i].name, largest_[i].kind,
                         bytes_text(static_cast<double>(largest_[i].bytes)));
    return out + "\n";
  }
  std::string predicted_text() const {
    return fmt::format(
        "  at least {}, at {:.1f} GB/s and {:.1f} GFLOP/s, {}\n"
        "    {} where memory is the limit, {} where arithmetic is{}\n",
        time_text(seconds(true) + seconds(false)), limits_.bytes_per_s * 1e-9, limits_.flops_per_s * 1e-9,
        measured_ ? "as measured here" : "which are assumed (--measure: what this machine does)",
        time_text(seconds(true)), time_text(seconds(false)),
        plan_.collectives.empty() ? "" : "; communication is not counted");
  }

  const JobProgram& program_;
  const NamedTarget& target_;
  MachineLimits limits_;
  bool measured_;
  Plan plan_;
  std::shared_ptr<const BoundPlan> bound_;
  int64_t kernels_ = 0, handed_out_ = 0;
  std::vector<Row> rows_;
  std::vector<Buffer> largest_;
};

/// What the times are made of: measured here, or what choosing thread counts assumes.
MachineLimits limits_of(const ExplainOptions& o, int threads) {
  if (o.measure) return machine_limits(threads);
  return {threads, threads * WorkModel::kFlopsPerNs * 1e9, threads * WorkModel::kBytesPerNs * 1e9};
}

void explain(const ExplainOptions& o) {
  const std::vector<NamedTarget> targets = parse_targets(o.target);
  const Job job = read_job(o.job);
  const auto count = static_cast<int>(job.programs.size());
  KILN_CHECK(o.program < count, invalid, "explain: {} has no program {}; got {}, numbered from 0", o.job,
             o.program, count_text(count, "program"));
  Json rows = Json::array();
  DiskCache cache;
  for (const NamedTarget& t : targets) {
    for (int i = 0; i < count; ++i) {
      if (o.program >= 0 && i != o.program) continue;
      const JobProgram& p = job.programs[static_cast<size_t>(i)];
      LowerOptions lower = p.options;
      const int threads = thread_counts(p, o.threads).back();
      if (o.tune == "fast") lower.schedules = schedules_of(p, t.target, cache, TuneLevel::known, threads);
      if (const CudaTarget* cuda = cuda_target(t.target)) {
        const CudaExplained explained(p, lower, *cuda, cache);
        if (o.json) rows.push_back(explained.json());
        else fmt::print("{}", explained.text(static_cast<size_t>(i)));
        continue;
      }
      const Explained explained(p, lower, t, limits_of(o, threads), o.measure);
      if (o.json) rows.push_back(explained.json());
      else fmt::print("{}", explained.text(static_cast<size_t>(i)));
    }
  }
  if (o.json) fmt::print("{}\n", rows.dump());
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Shows what the programs of a recorded job become");
  const auto o = std::make_shared<ExplainOptions>();
  add_job(*command, o->job);
  add_targets(*command, o->target, "What for, of host, x86-64-v3, x86-64-v4, aarch64, sm_80, sm_90a, ...");
  add_number(*command, "--program", o->program, 0, INT32_MAX, "Only this one, numbered from 0");
  add_number(*command, "--threads", o->threads, 0, ThreadPool::kMaxThreads,
             "Threads to predict for; 0: the most that a recorded run had");
  add_tune(*command, o->tune, "fast: for a run under KILN_TUNE=fast, with what it would find");
  add_flag(*command, "--measure", o->measure, "Predict with this machine's measured limits");
  add_json(*command, o->json);
  command->callback([o] { explain(*o); });
}

}  // namespace kiln::cli
