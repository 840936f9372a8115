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

/// Saved by one call: carried buffers and externals with their versions, and the run-time scalars.
struct SavedCall {
  std::vector<ImplPtr> carried, externals;
  std::vector<uint32_t> versions;
  std::vector<uint64_t> scalars;
  std::string hooked;  ///< text of an intermediate value that has hooks, if any
};

class OuterBackward {
 public:
  /// `recorder` is the state at the end of the path; `roots` the live slots that can be differentiated.
  OuterBackward(std::shared_ptr<const Recorder> recorder, std::vector<Slot> roots,
                const StageOptions& options);

  const std::vector<Slot>& roots() const { return roots_; }
  /// Carried buffers that a backward of any roots may read.
  const std::set<int>& carried() const { return carried_; }
  /// Slots of the path whose values had hooks when it was recorded.
  const std::map<int, Slot>& hooked() const { return recorder_->hooked; }
  /// Runs the backward for the given root gradients. Threads: any.
  std::vector<std::pair<ImplPtr, Tensor>> run(const SavedCall& call, const BoundaryGrads& grads,
                                              SourceLoc loc);

 private:
  struct Variant {
    std::vector<StageInput> inputs;
    std::vector<int> grad_of_input;  ///< root number when the input is a gradient, else -1
    std::vector<Slot> leaves;
    std::vector<Type> leaf_types;
    std::unique_ptr<Program> program;
  };
  Variant& variant(const std::vector<int>& with_grad);
  Extracted cut(OuterGraph& outer) const;

  std::shared_ptr<const Recorder> recorder_;
  std::vector<Slot> roots_;
  std::vector<Value> root_values_;
  std::set<int> carried_;
  StageOptions options_;
  std::mutex mutex_;
  std::map<std::vector<int>, Variant> variants_;
};

/// What one call leaves behind, shared by all tensors it returned.
class CallBoundary : public GradBoundary, public std::enable_shared_from_this<CallBoundary> {
 public:
  CallBoundary(std::shared_ptr<OuterBackward> outer, std::shared_ptr<SavedCall> call)
      : outer_(std::move(outer)), call_(std::move(call)) {}
  /// Makes `t` (root number `root`) differentiable through this boundary.
  void attach(TensorImpl& t, int root, SourceLoc loc);
  void backward(const BoundaryGrads& grads, bool retain_graph, SourceLoc loc) override;

 private:
  std::shared_ptr<OuterBackward> outer_;
  std::shared_ptr<SavedCall> call_;  ///< gone once consumed
};

}  // namespace kiln::detail
