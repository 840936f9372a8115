// SPDX-License-Identifier: Apache-2.0
// What the programs of both targets share: how a stage's memory becomes the arguments of a plan, and what is
// told of its launches.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/program.h"
#include "frontend/stage.h"
#include "ir/plan.h"
#include "runtime/executor.h"

namespace kiln::detail {

/// The arguments of one call.
struct PlanArguments {
  std::vector<void*> externals, outputs;
  std::vector<uint64_t> scalars;
  std::vector<size_t> guards;  ///< which of `outputs` are guards
};

/// Calls of a plan made from a graph. Inputs of kind scalar and outputs in place are known to it by position.
class PlanCalls {
 public:
  PlanCalls(const Graph& g, const StageOptions& options);

  PlanArguments arguments(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> outputs) const;
  /// Reads `arguments` while it is run, and this thread's State.
  Invocation invocation(const PlanArguments& arguments) const;
  const std::string& label() const { return label_; }

 private:
  int max_threads_;
  std::shared_ptr<Profiler> profiler_;
  std::vector<bool> scalar_, in_place_, guard_;
  std::vector<CollectiveSite> sites_;
  std::string label_;  // of its calls in a trace: "step (train.cpp:22)"
};

/// By external slot of the plan of `g`, whose inputs have these strides.
std::vector<ExternalLayout> layouts_of(const Graph& g, std::span<const Sizes> input_strides);
/// Appends the user's lines to what a profile calls the launches: "add net.cpp:3 net.cpp:4".
void name_lines(const Graph& g, Plan& plan);
/// "; largest results: `add` f32[9,9] (net.cpp:3), ...": for errors about memory and sizes.
std::string largest_results(const Graph& g);
/// Keeps the graph for `kiln warm`, if KILN_RECORD asks for it.
void record_job(const Graph& g, const std::vector<ExternalLayout>& layouts, const LowerOptions& lower,
                const StageOptions& options, const BuildRecord& record);
void count_build(const CompileStats& stats, BuildRecord& record);

/// Bytes to move and FLOPs of each launch of a plan with these sizes.
std::vector<std::pair<double, double>> work_of(const Plan& plan, const std::vector<int64_t>& dims);

}  // namespace kiln::detail
