// SPDX-License-Identifier: Apache-2.0
// Builds the program of a stage: the interpreter, or kernels through codegen and the runtime's executor.
#include <algorithm>

#include "codegen/program.h"
#include "frontend/build_notice.h"
#include "frontend/checked.h"
#include "frontend/communication.h"
#include "frontend/context.h"
#include "frontend/program_cuda.h"
#include "frontend/program_parts.h"
#include "frontend/state.h"
#include "ir/base/dump.h"
#include "ir/passes.h"
#include "runtime/executor.h"
#include "runtime/image.h"
#include "runtime/thread_pool.h"

namespace kiln::detail {

PlanCalls::PlanCalls(const Graph& g, const StageOptions& options)
    : max_threads_(options.threads),
      profiler_(options.profiler),
      sites_(communication_of(g).sites),
      label_(g.name + (options.loc.known() ? fmt::format(" ({})", options.loc.str()) : "")) {
  for (const GraphInput& in : g.inputs) scalar_.push_back(in.kind == InputKind::scalar);
  for (const GraphOutput& out : g.outputs) {
    in_place_.push_back(out.alias_input >= 0);
    guard_.push_back(out.guard);
  }
}

PlanArguments PlanCalls::arguments(std::span<const DeviceTensor> inputs,
                                   std::span<const DeviceTensor> outputs) const {
  PlanArguments a;
  a.scalars.reserve(inputs.size()), a.externals.reserve(inputs.size()), a.outputs.reserve(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (scalar_[i]) a.scalars.push_back(*static_cast<const uint64_t*>(inputs[i].ref.data));
    else a.externals.push_back(inputs[i].ref.data);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (in_place_[i]) continue;
    if (guard_[i]) a.guards.push_back(a.outputs.size());
    a.outputs.push_back(outputs[i].ref.data);
  }
  return a;
}

Invocation PlanCalls::invocation(const PlanArguments& a) const {
  return {.externals = a.externals,
          .outputs = a.outputs,
          .scalars = a.scalars,
          .symbols = {},
          .max_threads = max_threads_,
          .profiler = profiler_.get(),
          .timeline = context().timeline(),
          .name = label_,
          .number = state().call,
          .groups = state().groups,
          .sites = sites_,
          .announce = &state().announce};
}

std::vector<ExternalLayout> layouts_of(const Graph& g, std::span<const Sizes> input_strides) {
  std::vector<ExternalLayout> layouts;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.inputs[i].kind == InputKind::scalar) continue;
    layouts.push_back({std::vector<Dim>(input_strides[i].begin(), input_strides[i].end()), Dim(0)});
  }
  return layouts;
}

void name_lines(const Graph& g, Plan& plan) {
  for (ProfileRow& row : plan.profile)
    if (const std::string lines = lines_of(g, row); !lines.empty()) row.name += " " + lines;
}

std::string largest_results(const Graph& g) {
  std::vector<std::pair<double, const Node*>> sized;
  for (const Node& n : g.nodes) {
    if (def(n.op).view) continue;
    double bytes = static_cast<double>(dtype_size(g.type(n.out).dtype));
    for (const Dim& d : g.type(n.out).shape) bytes *= d.is_const() ? static_cast<double>(d.value()) : 1;
    sized.emplace_back(bytes, &n);
  }
  const size_t count = std::min<size_t>(3, sized.size());
  std::partial_sort(sized.begin(), sized.begin() + static_cast<ptrdiff_t>(count), sized.end(),
                    [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    const Node& n = *sized[i].second;
    const std::string path = n.origin.scope < 0 ? "" : g.scopes[static_cast<size_t>(n.origin.scope)];
    const std::string region = path.substr(path.rfind('/') + 1);
    out +=
        fmt::format("{}`{}`{} {}", i ? ", " : "; largest results: ", def(n.op).name,
                    region.empty() || region == def(n.op).name ? "" : " of " + region, g.type(n.out).str());
    if (n.origin.loc.known()) out += fmt::format(" ({})", n.origin.loc.str());
  }
  return out;
}

/// A job holds no schedules: they are one machine's.
void record_job(const Graph& g, const std::vector<ExternalLayout>& layouts, const LowerOptions& lower,
                const StageOptions& options, const BuildRecord& record) {
  Context& c = context();
  if (!c.recorder.active()) return;
  const int threads = options.threads > 0 ? options.threads : default_threads();
  c.recorder.record({options.name, {threads}, record.ends, lower, layouts, g, node_lines(g)});
}

void count_build(const CompileStats& stats, BuildRecord& record) {
  const bool earlier = record.kernels == 0 || record.from_cache;  // the other stages of the build
  record.from_cache = earlier && stats.from_cache;
  record.kernels += stats.kernels;
  record.compiled += stats.compiled;
}

std::vector<std::pair<double, double>> work_of(const Plan& plan, const std::vector<int64_t>& dims) {
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

namespace {

/// The reference: every node by its row's evaluation; in-place outputs are copied at the end.
class InterpretedProgram : public Program {
 public:
  explicit InterpretedProgram(Graph g) : graph_(std::move(g)), checks_(graph_) {
    std::erase_if(checks_.outputs, [](const GraphOutput& o) { return !o.guard; });
    checks_ = eliminate_dead_code(checks_);
    if (!communicates(graph_) || communicates(checks_)) checks_.outputs.clear();
  }
  void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> outputs) override {
    std::vector<HostTensor> in;
    for (size_t i = 0; i < inputs.size(); ++i) {
      in.push_back(fetch(inputs[i]));
      in[i].ref.dtype = graph_.type(graph_.inputs[i].value).dtype;
    }
    if (!checks_.outputs.empty() && fails(checks_, interpret(checks_, in), outputs)) return;
    const std::vector<HostTensor> results = interpret(graph_, in);
    if (fails(graph_, results, outputs)) return;
    // A result may share memory with an input that another result replaces: read all before writing any.
    std::vector<HostTensor> copies;
    for (const HostTensor& r : results) {
      copies.push_back(make_host_tensor(r.ref.dtype, r.ref.shape));
      copy_elements(r.ref, copies.back().ref);
    }
    for (size_t i = 0; i < outputs.size(); ++i) store(copies[i].ref, outputs[i]);
  }

 private:
  static bool communicates(const Graph& g) {
    return std::any_of(g.nodes.begin(), g.nodes.end(),
                       [](const Node& n) { return n.op == op("all_reduce"); });
  }
  /// Whether a guard of `g` does not hold; then what the guards hold is given out.
  bool fails(const Graph& g, const std::vector<HostTensor>& results,
             std::span<const DeviceTensor> outputs) const {
    if (guards_hold(g, results)) return false;
    size_t out = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!g.outputs[i].guard) continue;
      while (!graph_.outputs[out].guard) ++out;
      if (results[i].ref.data) store(results[i].ref, outputs[out]);
      ++out;
    }
    return true;
  }

  Graph graph_;
  Graph checks_;  ///< the guards alone, where they are made before ranks communicate; else without outputs
};

/// Compiled kernels.
class NativeProgram : public Program {
 public:
  NativeProgram(const Graph& g, CompiledProgram compiled, const StageOptions& options)
      // A program of views and constants alone has no kernel, and so no image.
      : image_(compiled.image.bytes.empty() ? nullptr : std::make_shared<LoadedImage>(compiled.image.bytes)),
        executable_(
            std::move(compiled.plan), [this](const PlanKernel& k) { return image_->kernel(k.symbol); },
            image_),
        calls_(g, options) {}

  void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> outputs) override {
    const PlanArguments arguments = calls_.arguments(inputs, outputs);
    executable_.run(calls_.invocation(arguments));
  }
  const Executable& executable() const { return executable_; }

 private:
  std::shared_ptr<LoadedImage> image_;
  Executable executable_;
  const PlanCalls calls_;
};

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
  const std::vector<ExternalLayout> layouts = layouts_of(g, input_strides);
  Context& c = context();
  if (!c.foreign) check_runs_here(c.target);
  const int threads = options.threads > 0 ? options.threads : default_threads();
  LowerOptions lower;
  record_job(g, layouts, lower, options, record);
  lower.schedules = choose(g, layouts, options, threads, record);
  CompiledProgram compiled = compile_program(g, layouts, c.target, lower, &c.cache, threads, options.go_on);
  if (options.profiler) name_lines(g, compiled.plan);
  count_build(compiled.stats, record);
  if (c.foreign) return c.foreign(g, std::move(compiled), options);
  auto program = std::make_unique<NativeProgram>(g, std::move(compiled), options);
  const Executable& built = program->executable();
  record.arena_bytes = std::max(record.arena_bytes, built.arena_bytes({}));
  for (const auto& w : work_of(built.plan(), built.dims({}))) record.work.push_back(w);
  return program;
}

std::unique_ptr<Program> build_for(const Graph& g, std::span<const Sizes> input_strides,
                                   const StageOptions& options, BuildRecord& record) {
  Graph optimised = optimize(g);
  record.nodes += static_cast<int>(optimised.nodes.size());
  std::unique_ptr<Program> program;
  if (options.reference) program = std::make_unique<InterpretedProgram>(optimised);
  else if (options.device.is_cuda()) program = build_cuda(optimised, input_strides, options, record);
  else program = build_native(optimised, input_strides, options, record);
  if (options.check) program = check_against_reference(std::move(program), optimised, options);
  if (options.check_numerics) program = check_for_nonfinite(std::move(program), optimised, options.device);
  program->communication = communication_of(optimised);
  return program;
}

}  // namespace

std::unique_ptr<Program> build_program(const Graph& g, std::span<const Sizes> input_strides,
                                       const StageOptions& options, BuildRecord& record) {
  if (options.go_on) options.go_on();
  const BuildNotice notice(g);
  verify(g);
  check_graph(g, "recording");
  dump("trace", [&] { return print(g); });
  try {
    return build_for(g, input_strides, options, record);
  } catch (const SizeOverflow& e) {  // beyond all memory: of what?
    throw Error(e.kind(), fmt::format("{}: {}{}", g.name, e.what(), largest_results(g)), options.loc);
  }
}

}  // namespace kiln::detail
