// SPDX-License-Identifier: Apache-2.0
// `kiln explain`: what the programs of a job become: graph, kernels, memory, the time that bytes and FLOPs
// take at least, and, with --run, the time that they take. Without it, runs nothing and compiles for CUDA
// alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/explain_cuda.h"
#include "cli/explain_plan.h"
#include "cli/explain_run.h"
#include "cli/text.h"
#include "cli/tuning.h"
#include "codegen/job.h"
#include "codegen/program.h"
#include "ir/base/error.h"
#include "runtime/bound_plan.h"
#include "runtime/machine.h"
#include "runtime/thread_pool.h"

namespace kiln::cli {

namespace {

using Json = nlohmann::ordered_json;
using TuneRows = decltype(TuneStats::rows);

struct ExplainOptions {
  std::string job, target = "host";
  TuneArguments tune;
  int program = -1, threads = 0, run = 0;
  bool measure = false, json = false;
};

constexpr size_t kMostName = 64;

/// One launch and the time below which it cannot go.
struct Row : LaunchFacts {
  double seconds = 0;
  bool by_memory = true;

  const char* bound_by() const { return !computes ? "-" : by_memory ? "memory" : "arithmetic"; }
};

/// A program lowered for a CPU, its sizes known.
class CpuExplained {
 public:
  CpuExplained(const JobProgram& p, const LowerOptions& lower, const NamedTarget& target,
               const MachineLimits& limits, bool measured, TuneRows tuned)
      : CpuExplained(p, kiln::lower(p.graph, p.layouts, target.target, lower), target, limits, measured,
                     std::move(tuned)) {}

  std::string text(size_t index) const {
    return fmt::format("stage {}: {} for {}, {}\n", index, program_.name, target_.name,
                       count_text(limits_.threads, "thread")) +
           plan_.graph_text() + launches_text() + plan_.collectives_text() + plan_.stored_text() +
           plan_.memory_text(plan_.bound().scratch_bytes) + schedules_text() + predicted_text() +
           (run_ ? measured_text() : "");
  }

  /// Runs it on this CPU for so long.
  void run(const KernelImage& image, double seconds) {
    run_ = measure_run(plan_, image, limits_.threads, seconds);
  }

  Json json() const {
    Json out = {{"name", program_.name},
                {"ends", program_.ends},
                {"target", target_.name},
                {"threads", limits_.threads},
                {"graph", plan_.graph_json()},
                {"kernels", kernels_},
                {"phases", plan_.bound().phase_count()},
                {"launches", Json::array()},
                {"collectives", plan_.collectives_json()},
                {"stored", plan_.stored_json()},
                {"repeated", plan_.repeated_json()},
                {"memory", plan_.memory_json(plan_.bound().scratch_bytes)},
                {"schedules", Json::object()}};
    for (const auto& [id, row] : tuned_) out["schedules"][id] = Json::parse(row.str());
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& r = rows_[i];
      out["launches"].push_back({{"name", r.name},
                                 {"ops", r.ops},
                                 {"lines", r.lines},
                                 {"tasks", r.tasks},
                                 {"bytes", r.bytes},
                                 {"flops", r.flops},
                                 {"seconds", r.seconds},
                                 {"bound", r.bound_by()}});
      if (run_) out["launches"].back()["measured_seconds"] = measured(i) ? Json(run_->launch_s[i]) : Json();
    }
    if (run_) out["measured"] = {{"seconds", run_->call_s}, {"calls", run_->calls}};
    out["predicted"] = {{"seconds", seconds(true) + seconds(false)},
                        {"by_memory", seconds(true)},
                        {"by_arithmetic", seconds(false)},
                        {"bytes_per_s", limits_.bytes_per_s},
                        {"flops_per_s", limits_.flops_per_s}};
    return out;
  }

 private:
  CpuExplained(const JobProgram& p, LoweredProgram lowered, const NamedTarget& target,
               const MachineLimits& limits, bool measured, TuneRows tuned)
      : program_(p),
        target_(target),
        limits_(limits),
        measured_(measured),
        tuned_(std::move(tuned)),
        kernels_(static_cast<int64_t>(lowered.kernels.size())),
        plan_(p, named(p.graph, std::move(lowered.plan))) {
    for (const Launch& l : plan_.plan().launches) rows_.push_back(row_of(l));
  }

  static Plan named(const Graph& g, Plan plan) {
    name_plan(g, plan);
    return plan;
  }

  Row row_of(const Launch& l) const {
    Row r{plan_.facts(l)};
    r.seconds = limits_.seconds(r.bytes, r.flops);
    r.by_memory = r.bytes / limits_.bytes_per_s >= r.flops / limits_.flops_per_s;
    return r;
  }

  double seconds(bool by_memory) const {
    double sum = 0;
    for (const Row& r : rows_) sum += r.by_memory == by_memory ? r.seconds : 0;
    return sum;
  }

  std::string launches_text() const {
    std::string out =
        fmt::format("  plan: {} of {} in {}\n", count_text(static_cast<int64_t>(rows_.size()), "launch"),
                    count_text(kernels_, "kernel"), count_text(plan_.bound().phase_count(), "phase"));
    size_t width = std::string_view("launch").size();
    for (const Row& r : rows_) width = std::max(width, std::min(r.name.size(), kMostName));
    out += fmt::format("    {:>3}  {:<{}} {:>6} {:>11} {:>12} {:>10}  {:<10}  {}\n", "", "launch", width,
                       "tasks", "bytes", "FLOP", "us", "bound by", "lines");
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& r = rows_[i];
      out += fmt::format("    {:>3}  {:<{}} {:>6} {:>11} {:>12} {:>10.3f}  {:<10}  {}", i,
                         shortened(r.name, kMostName), width, r.tasks, bytes_text(r.bytes),
                         flops_text(r.flops), r.seconds * 1e6, r.bound_by(), r.lines);
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n";
    }
    return out;
  }
  std::string schedules_text() const {
    if (tuned_.empty()) return "";
    std::string out = fmt::format("  schedules: {} by tuning\n    {:12}  {:>8} {:>10} {:>10} {:>6}  {}\n",
                                  count_text(static_cast<int64_t>(tuned_.size()), "kernel"), "kernel",
                                  "compared", "default", "time", "gain", "schedule");
    for (const auto& [id, row] : tuned_)
      out +=
          fmt::format("    {:12.12}  {:>8} {:>10} {:>10} {:>4.0f} %  {}\n", id, row.compared,
                      time_text(row.default_seconds), time_text(row.seconds), 100 * gain(row), row.schedule);
    return out;
  }
  bool measured(size_t i) const { return run_->launch_s[i] >= 0; }
  /// Launches by time.
  std::string measured_text() const {
    std::vector<size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), 0);
    const std::vector<double>& s = run_->launch_s;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return s[a] > s[b]; });
    const double sum =
        std::accumulate(s.begin(), s.end(), 0.0, [](double a, double b) { return a + std::max(b, 0.0); });
    std::string out = fmt::format(
        "  measured: {} a call, the median of {}; launch by launch {}, of which\n"
        "    {:>3}  {:>10} {:>6} {:>8} {:>9} {:>10}  {}\n",
        time_text(run_->call_s), count_text(run_->calls, "call"), time_text(sum), "", "us", "share", "GB/s",
        "GFLOP/s", "of limit", "launch");
    for (const size_t i : order) {
      const Row& r = rows_[i];
      if (!measured(i)) continue;
      out += fmt::format("    {:>3}  {:>10.3f} {:>5.1f}% {:>8.2f} {:>9.2f} {:>9.0f}%  {} {}", i, s[i] * 1e6,
                         100 * s[i] / sum, r.bytes / s[i] * 1e-9, r.flops / s[i] * 1e-9,
                         100 * r.seconds / s[i], shortened(r.name, kMostName), r.lines);
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n";
    }
    if (const auto left_out = std::count_if(s.begin(), s.end(), [](double t) { return t < 0; }))
      out += fmt::format("    {} not run: a check of indices failed for those that were made up\n",
                         count_text(left_out, "launch"));
    return out;
  }
  std::string predicted_text() const {
    return fmt::format(
        "  at least {}, at {:.1f} GB/s and {:.1f} GFLOP/s, {}\n"
        "    {} where memory is the limit, {} where arithmetic is{}\n",
        time_text(seconds(true) + seconds(false)), limits_.bytes_per_s * 1e-9, limits_.flops_per_s * 1e-9,
        measured_ ? "as measured here" : "which are assumed (--measure: what this machine does)",
        time_text(seconds(true)), time_text(seconds(false)), plan_.not_counted());
  }

  const JobProgram& program_;
  const NamedTarget& target_;
  MachineLimits limits_;
  bool measured_;
  TuneRows tuned_;
  std::optional<MeasuredRun> run_;
  int64_t kernels_ = 0;
  ExplainedPlan plan_;
  std::vector<Row> rows_;
};

/// What the times are made of: measured here, or what choosing thread counts assumes.
MachineLimits limits_of(const ExplainOptions& o, int threads) {
  if (o.measure || o.run > 0) return machine_limits(threads);
  return {threads, threads * WorkModel::kFlopsPerNs * 1e9, threads * WorkModel::kBytesPerNs * 1e9};
}

bool runs_here(const Target& target) {
  const auto* cpu = std::get_if<CpuTarget>(&target);
  try {
    if (cpu) check_runs_here(*cpu);
  } catch (const Error&) {
    return false;
  }
  return cpu != nullptr;
}

void check_for_cpus(const ExplainOptions& o, const std::vector<NamedTarget>& targets) {
  for (const NamedTarget& t : targets) {
    KILN_CHECK(o.run == 0 || runs_here(t.target), invalid,
               "explain: --run runs kernels on this CPU; got --target {}", t.name);
    if (!cuda_target(t.target)) continue;
    KILN_CHECK(!o.measure, invalid, "explain: --measure runs kernels on this CPU; got --target {}", t.name);
    KILN_CHECK(o.threads == 0, invalid, "explain: --threads is a number of CPU threads; got --target {}",
               t.name);
  }
}

void explain(const ExplainOptions& o) {
  const std::vector<NamedTarget> targets = parse_targets(o.target);
  check_for_cpus(o, targets);
  const Job job = read_job(o.job);
  const auto count = static_cast<int>(job.programs.size());
  KILN_CHECK(o.program < count, invalid, "explain: {} has no program {}; got {}, numbered from 0", o.job,
             o.program, count_text(count, "program"));
  Json rows = Json::array();
  DiskCache cache;
  const JobSchedules schedules(o.tune);
  std::string no_compiler;
  const auto show = [&](const auto& explained, int program) {
    if (o.json) rows.push_back(explained.json());
    else fmt::print("{}", explained.text(static_cast<size_t>(program)));
  };
  for (const NamedTarget& t : targets) {
    for (int i = 0; i < count; ++i) {
      if (o.program >= 0 && i != o.program) continue;
      const JobProgram& p = job.programs[static_cast<size_t>(i)];
      LowerOptions lower = p.options;
      const int threads = thread_counts(p, o.threads).back();
      TuneStats found;
      if (o.tune.on()) lower.schedules = schedules.of(p, t.target, cache, false, threads, &found);
      if (const CudaTarget* cuda = cuda_target(t.target)) {
        const CudaExplained explained(p, lower, *cuda, cache);
        no_compiler = explained.no_compiler();
        show(explained, i);
      } else {
        CpuExplained explained(p, lower, t, limits_of(o, threads), o.measure || o.run > 0, found.rows);
        if (o.run > 0)
          explained.run(compile_program(p.graph, p.layouts, t.target, lower, &cache, threads).image, o.run);
        show(explained, i);
      }
    }
  }
  if (o.json) fmt::print("{}\n", rows.dump());
  else if (!no_compiler.empty())
    fmt::print("registers and spills are not known, and occupancy is without them: {}\n", no_compiler);
}

}  // namespace

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Shows what the programs of a recorded job become");
  const auto o = std::make_shared<ExplainOptions>();
  add_job(*command, o->job);
  add_targets(*command, o->target, "What for, of host, x86-64-v3, x86-64-v4, aarch64, sm_80, sm_90a, ...");
  add_number(*command, "--program", o->program, 0, INT32_MAX, "Only this one, numbered from 0");
  add_number(*command, "--threads", o->threads, 0, ThreadPool::kMaxThreads,
             "CPU threads to predict for; 0: the most that a recorded run had");
  add_tune(*command, o->tune, "For a run under this KILN_TUNE, with what it would find");
  add_flag(*command, "--measure", o->measure, "Predict with the measured limits of this machine's CPU");
  add_number(*command, "--run", o->run, 0, 3600,
             "Seconds to run each program on this CPU with made-up operands; 0: not at all", "S");
  add_json(*command, o->json);
  command->callback([o] { explain(*o); });
}

}  // namespace kiln::cli
