// SPDX-License-Identifier: Apache-2.0
// Backward outside the callable: what a compiled forward leaves behind so that backward() on a tensor it
// returned runs a compiled backward. One OuterBackward per recorded path, one boundary per call.
#pragma once

#include <map>
#include <mutex>
#include <set>

#include "frontend/boundary.h"
#include "frontend/outer_graph.h"
#include "frontend/stage.h"

namespace kiln::detail {

/// Memory that a call leaves for a backward, and the version that it has then.
struct SavedMemory {
  ImplPtr tensor;  ///< without history; null: no backward reads it
  uint32_t version = 0;
};

/// Left by one call, for all backwards from its results.
struct SavedCall {
  uint64_t number = 0;  ///< among the calls of its callable
  std::vector<SavedMemory> carried, externals;
  std::vector<uint64_t> scalars;
  std::map<int, std::shared_ptr<HookList>> hooks;  ///< value of the path -> hooks that see its gradient
};

class OuterBackward {
 public:
  /// `recorder` is the state at the end of the path; `roots` the slots that can be differentiated.
  OuterBackward(std::shared_ptr<const Recorder> recorder, std::vector<Slot> roots,
                const StageOptions& options);

  const std::vector<Slot>& roots() const { return roots_; }
  Value root_value(int root) const { return root_values_[static_cast<size_t>(root)]; }
  /// Slots that may receive a gradient: leaves, and externals with a history.
  const std::vector<Slot>& inputs() const { return inputs_; }
  /// Numbers of the inputs that root `root` depends on.
  const std::vector<int>& inputs_of(int root) const { return reach_[static_cast<size_t>(root)].inputs; }
  /// Roots that share history with `root`, itself included.
  const std::vector<int>& related(int root) const { return reach_[static_cast<size_t>(root)].related; }
  /// Values with hooks, and the slots that have them.
  const std::map<int, Slot>& hooked() const { return recorder_->hooked; }
  /// Carried buffers and externals that a backward of any roots may read.
  const std::set<int>& carried() const { return carried_; }
  const std::set<int>& externals() const { return externals_; }
  /// Whether another one of `roots` depends on `root`.
  bool inner(int root, const std::vector<int>& roots) const;
  /// Runs the backward of `roots` for the given root gradients. Threads: any.
  void run(const SavedCall& call, const std::vector<int>& roots, const BoundaryGrads& grads,
           const GradBoundary::Caller& caller, SourceLoc loc);

 private:
  /// What root gradients flow through.
  struct Reach {
    std::set<int> history;  ///< values with a producer
    std::vector<int> inputs, related;
  };
  /// A program, and what is done with its results. All results and gradients of a run are numbered.
  struct Part {
    struct Action {
      int result = -1, input = -1;  ///< gives a result to an input, or
      int hooked = -1;  ///< calls the hooks of this value on it: what they return is the next result
    };
    std::vector<StageInput> inputs;
    std::vector<Type> outputs;
    std::unique_ptr<Program> program;  ///< null: there is nothing to compute
    std::string lost;                  ///< text of what it would read, were it not written over by the call
    std::vector<Action> actions;
  };
  using Variant = std::vector<Part>;

  void explore(int root);
  const Variant& variant(const std::vector<int>& with_grad, const std::set<int>& hooked,
                         const std::function<void(bool begins)>& compiles);
  Part part(const OuterGraph& outer, const std::vector<Value>& known, const std::vector<Value>& wanted) const;
  std::vector<DeviceTensor> part_inputs(const Part& part, const SavedCall& call,
                                        std::vector<uint64_t>& scalars, const std::vector<Tensor>& results,
                                        SourceLoc loc) const;

  std::shared_ptr<const Recorder> recorder_;
  std::vector<Slot> roots_, inputs_;
  std::vector<Value> root_values_;
  std::vector<Reach> reach_;  ///< per root
  std::set<int> carried_, externals_;
  StageOptions options_;
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, std::set<int>>, Variant> variants_;
};

/// What one call leaves behind, shared by all tensors it returned.
class CallBoundary : public GradBoundary, public std::enable_shared_from_this<CallBoundary> {
 public:
  CallBoundary(std::shared_ptr<OuterBackward> outer, SavedCall call);
  /// The tape's node of result `root`, which is as `t`; `inputs` are the operands that stand for
  /// outer->inputs().
  std::shared_ptr<GradNode> result(const TensorImpl& t, int root, const std::vector<GradEdge>& inputs,
                                   SourceLoc loc);

  void backward(const std::vector<int>& outputs, const BoundaryGrads& grads, const Caller& caller,
                SourceLoc loc) override;
  bool inner(int output, const std::vector<int>& outputs) const override {
    return outer_->inner(output, outputs);
  }
  void consume(const std::vector<int>& outputs) override;
  bool consumed(int output) const override { return consumed_[static_cast<size_t>(output)]; }

 private:
  std::shared_ptr<OuterBackward> outer_;
  std::shared_ptr<const SavedCall> call_;  ///< gone when nothing can be differentiated any more
  std::vector<bool> consumed_;             ///< per root
};

}  // namespace kiln::detail
