// SPDX-License-Identifier: Apache-2.0
#include "frontend/program_cuda.h"

#include "codegen/target.h"
#include "frontend/compile.h"
#include "frontend/context.h"
#include "frontend/late.h"
#include "frontend/program_parts.h"
#include "frontend/state.h"
#include "ir/base/options.h"
#include "runtime/cuda/executor.h"
#include "runtime/thread_pool.h"

namespace kiln::detail {

namespace {

/// A plan on the compute stream of a GPU. What its guards hold comes to the host later, by CudaGuards.
class CudaProgram : public Program {
 public:
  CudaProgram(const Graph& g, std::shared_ptr<CudaExecutable> executable, const StageOptions& options)
      : executable_(std::move(executable)), calls_(g, options) {}

  void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> outputs) override {
    PlanArguments arguments = calls_.arguments(inputs, outputs);
    CudaDevice& device = executable_->device();
    CudaMemory memory;
    std::vector<int64_t*> answers;
    if (!arguments.guards.empty()) memory = device.allocate(kGuardBytes * arguments.guards.size(), "guards");
    for (const size_t i : arguments.guards) {
      void*& output = arguments.outputs[i];
      answers.push_back(static_cast<int64_t*>(output));
      output = reinterpret_cast<void*>(memory.address() + kGuardBytes * (answers.size() - 1));
    }
    if (!executable_->plan().collectives.empty()) return run_among_ranks(arguments, memory, answers);
    const auto turn = device.guards().turn();
    executable_->run(calls_.invocation(arguments));
    if (memory) device.guards().follow(std::move(memory), kGuardBytes, std::move(answers));
  }

 private:
  static constexpr size_t kGuardBytes = 16;  ///< of each: where a kernel's buffer may start

  /// What one rank does not run others cannot run either: it knows of its failures before it communicates.
  void run_among_ranks(const PlanArguments& arguments, const CudaMemory& memory,
                       const std::vector<int64_t*>& answers) {
    CudaDevice& device = executable_->device();
    settle(Device::cuda(device.index()));
    executable_->run(calls_.invocation(arguments));
    std::vector<int64_t> guards(kGuardBytes / sizeof(int64_t) * answers.size());
    device.copy_to_host(guards.data(), memory.address(), kGuardBytes * answers.size());
    for (size_t i = 0; i < answers.size(); ++i) *answers[i] = guards[kGuardBytes / sizeof(int64_t) * i];
  }

  const std::shared_ptr<CudaExecutable> executable_;
  const PlanCalls calls_;
};

/// The user's line of each launch, for errors.
std::vector<std::string> places_of(const Graph& g, const Plan& plan) {
  std::vector<std::string> places;
  for (const ProfileRow& row : plan.profile) places.push_back(lines_of(g, row));
  return places;
}

CudaTarget target_of(const CudaDevice& device) {
  try {
    return parse_cuda_target(device.arch());
  } catch (const Error& e) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: Kiln does not know this GPU's limits (a newer Kiln may): {}", device.name(),
                            e.what()));
  }
}

}  // namespace

std::unique_ptr<Program> build_cuda(const Graph& g, std::span<const Sizes> input_strides,
                                    const StageOptions& options, BuildRecord& record) {
  const std::vector<ExternalLayout> layouts = layouts_of(g, input_strides);
  CudaDevice& device = cuda_device(options.device.index);
  LowerOptions lower;
  lower.tf32 = options.tf32;
  lower.library = option("KILN_CUDA_MATMUL") == "cublaslt";
  record_job(g, layouts, lower, options, record);
  const int threads = options.threads > 0 ? options.threads : default_threads();
  CompiledProgram compiled = compile_program(g, layouts, target_of(device), lower, &context().cache, threads,
                                             options.go_on, !device.simulated());
  CudaOptions run{.graphs = options.graphed != nullptr,
                  .places = places_of(g, compiled.plan),
                  .word = device.guards().word()};
  run.name = g.name + (options.loc.known() ? fmt::format(" ({})", options.loc.str()) : "");
  if (options.profiler) name_lines(g, compiled.plan);
  count_build(compiled.stats, record);
  const int before = state().sim_compiled;
  const auto built =
      std::make_shared<CudaExecutable>(std::move(compiled.plan), compiled.image, device, std::move(run));
  if (const int sources = state().sim_compiled - before; sources > 0) {
    record.compiled += sources;
    record.from_cache = false;
  }
  if (options.graphed)
    options.graphed->add([built, name = g.name] {
      const CudaGraphStats s = built->graph_stats();
      return GraphedProgram{name, s.recordings, s.replays};
    });
  record.arena_bytes = std::max(record.arena_bytes, built->arena_bytes({}));
  for (const auto& w : work_of(built->plan(), built->dims({}))) record.work.push_back(w);
  return std::make_unique<CudaProgram>(g, built, options);
}

}  // namespace kiln::detail
