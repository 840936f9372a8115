// SPDX-License-Identifier: Apache-2.0
// Builds the program of a stage: the interpreter, or kernels through codegen and the runtime's executor.
#include "codegen/program.h"
#include "frontend/checked.h"
#include "frontend/communication.h"
#include "frontend/context.h"
#include "frontend/stage.h"
#include "frontend/state.h"
#include "ir/base/dump.h"
#include "ir/passes.h"
#include "runtime/executor.h"
#include "runtime/image.h"
#include "runtime/thread_pool.h"

namespace kiln::detail {

namespace {

/// The reference: every node by its row's evaluation; in-place outputs are copied at the end.
class InterpretedProgram : public Program {
 public:
  explicit InterpretedProgram(Graph g) : graph_(std::move(g)), checks_(graph_) {
    std::erase_if(checks_.outputs, [](const GraphOutput& o) { return !o.guard; });
    checks_ = eliminate_dead_code(checks_);
    if (!communicates(graph_) || communicates(checks_)) checks_.outputs.clear();
  }
  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    std::vector<HostTensor> in(inputs.begin(), inputs.end());
    for (size_t i = 0; i < in.size(); ++i) in[i].ref.dtype = graph_.type(graph_.inputs[i].value).dtype;
    if (!checks_.outputs.empty() && fails(checks_, interpret(checks_, in), outputs)) return;
    const std::vector<HostTensor> results = interpret(graph_, in);
    if (fails(graph_, results, outputs)) return;
    // A result may share memory with an input that another result replaces: read all before writing any.
    std::vector<HostTensor> copies;
    for (const HostTensor& r : results) {
      copies.push_back(make_host_tensor(r.ref.dtype, r.ref.shape));
      copy_elements(r.ref, copies.back().ref);
    }
    for (size_t i = 0; i < outputs.size(); ++i) copy_elements(copies[i].ref, outputs[i].ref);
  }

 private:
  static bool communicates(const Graph& g) {
    return std::any_of(g.nodes.begin(), g.nodes.end(),
                       [](const Node& n) { return n.op == op("all_reduce"); });
  }
  /// Whether a guard of `g` does not hold; then what the guards hold is given out.
  bool fails(const Graph& g, const std::vector<HostTensor>& results,
             std::span<const HostTensor> outputs) const {
    if (guards_hold(g, results)) return false;
    size_t out = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!g.outputs[i].guard) continue;
      while (!graph_.outputs[out].guard) ++out;
      if (results[i].ref.data) copy_elements(results[i].ref, outputs[out].ref);
      ++out;
    }
    return true;
  }

  Graph graph_;
  Graph checks_;  ///< the guards alone, where they are made before ranks communicate; else without outputs
};

/// Compiled kernels. Inputs of kind scalar and outputs in place are known to the plan by position.
class NativeProgram : public Program {
 public:
  NativeProgram(const Graph& g, CompiledProgram compiled, const StageOptions& options)
      // A program of views and constants alone has no kernel, and so no image.
      : image_(compiled.image.bytes.empty() ? nullptr : std::make_shared<LoadedImage>(compiled.image.bytes)),
        executable_(
            std::move(compiled.plan), [this](const PlanKernel& k) { return image_->kernel(k.symbol); },
            image_),
        max_threads_(options.threads),
        profiler_(options.profiler) {
    for (const GraphInput& in : g.inputs) scalar_.push_back(in.kind == InputKind::scalar);
    for (const GraphOutput& out : g.outputs) in_place_.push_back(out.alias_input >= 0);
    sites_ = communication_of(g).sites;
    label_ = g.name + (options.loc.known() ? fmt::format(" ({})", options.loc.str()) : "");
  }

  void run(std::span<const HostTensor> inputs, std::span<const HostTensor> outputs) override {
    std::vector<void*> externals, fresh;
    std::vector<uint64_t> scalars;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (scalar_[i]) scalars.push_back(*static_cast<const uint64_t*>(inputs[i].ref.data));
      else externals.push_back(inputs[i].ref.data);
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!in_place_[i]) fresh.push_back(outputs[i].ref.data);
    executable_.run({.externals = externals,
                     .outputs = fresh,
                     .scalars = scalars,
                     .symbols = {},
                     .max_threads = max_threads_,
                     .profiler = profiler_.get(),
                     .timeline = context().timeline(),
                     .name = label_,
                     .number = state().call,
                     .groups = state().groups,
                     .sites = sites_,
                     .announce = &state().announce});
  }
  int64_t arena_bytes() const { return executable_.arena_bytes({}); }
  /// Bytes to move and FLOPs of each launch.
  std::vector<std::pair<double, double>> work() const {
    const Plan& plan = executable_.plan();
    const std::vector<int64_t> dims = executable_.dims({});
    const auto value = [&](DimIndex i) {
      return i < 0 ? 0.0 : static_cast<double>(dims[static_cast<size_t>(i)]);
    };
    std::vector<std::pair<double, double>> out;
    for (const Launch& l : plan.launches) {
      if (l.profile < 0) continue;
      const ProfileRow& row = plan.profile[static_cast<size_t>(l.profile)];
      out.emplace_back(value(row.bytes), value(row.flops));
    }
    return out;
  }

 private:
  std::shared_ptr<LoadedImage> image_;
  Executable executable_;
  int max_threads_;
  std::shared_ptr<Profiler> profiler_;
  std::vector<bool> scalar_, in_place_;
  std::vector<CollectiveSite> sites_;
  std::string label_;  // of its calls in a trace: "step (train.cpp:22)"
};

/// Adds the user's lines to the names in the profile table.
void name_user_lines(const Graph& g, Plan& plan) {
  for (ProfileRow& row : plan.profile) {
    std::string lines;
    for (int32_t node : row.sources) {
      if (node < 0 || node >= static_cast<int32_t>(g.nodes.size())) continue;
      const std::string line = g.nodes[static_cast<size_t>(node)].origin.loc.str();
      if (!line.empty() && lines.find(line) == std::string::npos) lines += " " + line;
    }
    row.name += lines;
  }
}

/// What does not communicate is tuned with the ranks that happen to build it, too.
void share_with_others(TuneOptions& tune) {
  const auto group = tune.store || tune.level == TuneLevel::off ? nullptr : process_group();
  if (!group || group->size() == 1) return;
  tune.store = group->store();
  tune.rank = group->rank();
  tune.size = group->size();
  tune.prefix = "programs";
  tune.all_build = false;
}

/// What tuning finds for the kernels of `g`; nothing when it is off.
ScheduleChoices choose(const Graph& g, const std::vector<ExternalLayout>& layouts,
                       const StageOptions& options, int threads, BuildRecord& record) {
  TuneOptions tune = options.tune;
  tune.threads = threads;
  tune.go_on = options.go_on;
  share_with_others(tune);
  TuneStats stats;
  ScheduleChoices choices = choose_schedules(g, layouts, context().target, &context().cache, tune, &stats);
  record.tuned += stats.tuned;
  record.tune_found += stats.found;
  record.tune_received += stats.received;
  record.tune_seconds += stats.seconds;
  return choices;
}

std::unique_ptr<Program> build_native(const Graph& g, std::span<const Sizes> input_strides,
                                      const StageOptions& options, BuildRecord& record) {
  std::vector<ExternalLayout> layouts;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.inputs[i].kind == InputKind::scalar) continue;
    layouts.push_back({std::vector<Dim>(input_strides[i].begin(), input_strides[i].end()), Dim(0)});
  }
  Context& c = context();
  check_runs_here(c.target);
  const int threads = options.threads > 0 ? options.threads : default_threads();
  LowerOptions lower;
  // A job holds no schedules: they are one machine's.
  if (c.recorder.active())
    c.recorder.record({options.name, {threads}, record.ends, lower, layouts, g, node_lines(g)});
  lower.schedules = choose(g, layouts, options, threads, record);
  CompiledProgram compiled = compile_program(g, layouts, c.target, lower, &c.cache, threads, options.go_on);
  if (options.profiler) name_user_lines(g, compiled.plan);
  const bool earlier = record.kernels == 0 || record.from_cache;  // the other stages of the build
  record.from_cache = earlier && compiled.stats.from_cache;
  record.kernels += compiled.stats.kernels;
  record.compiled += compiled.stats.compiled;
  auto program = std::make_unique<NativeProgram>(g, std::move(compiled), options);
  record.arena_bytes = std::max(record.arena_bytes, program->arena_bytes());
  for (const auto& w : program->work()) record.work.push_back(w);
  return program;
}

}  // namespace

std::unique_ptr<Program> build_program(const Graph& g, std::span<const Sizes> input_strides,
                                       const StageOptions& options, BuildRecord& record) {
  if (options.go_on) options.go_on();
  verify(g);
  check_graph(g, "recording");
  dump("trace", [&] { return print(g); });
  Graph optimised = optimize(g);
  record.nodes += static_cast<int>(optimised.nodes.size());
  std::unique_ptr<Program> program;
  if (options.reference) program = std::make_unique<InterpretedProgram>(optimised);
  else program = build_native(optimised, input_strides, options, record);
  if (options.check) program = check_against_reference(std::move(program), optimised, options);
  if (options.check_numerics) program = check_for_nonfinite(std::move(program), optimised);
  program->communication = communication_of(optimised);
  return program;
}

}  // namespace kiln::detail
