// SPDX-License-Identifier: Apache-2.0
// The seam between the eager tape and a compiled forward: tensors that a compiled callable returned carry a
// boundary, through which a later backward() enters the compiled graph.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "frontend/tensor.h"

namespace kiln::detail {

/// (number, gradient) of results or inputs of a compiled forward.
using BoundaryGrads = std::vector<std::pair<int, Tensor>>;

struct GradBoundary {
  virtual ~GradBoundary() = default;
  /// Who runs a backward.
  struct Caller {
    std::function<void(int input, const Tensor& gradient)> give;
    std::function<void(bool begins)> compiles;  ///< before and after what runs is compiled
  };
  /// Runs the compiled backward of `outputs` for gradients of some, calling the hooks of values made in the
  /// forward; gives the gradient of each input as soon as it is complete.
  virtual void backward(const std::vector<int>& outputs, const BoundaryGrads& grads, const Caller& caller,
                        SourceLoc loc) = 0;
  /// Whether others of `outputs` depend on result `output`: its gradient is complete only on the way, and its
  /// hooks are called there.
  virtual bool inner(int output, const std::vector<int>& outputs) const = 0;
  /// A backward without retain_graph has used up the history of these results.
  virtual void consume(const std::vector<int>& outputs) = 0;
  /// Whether a part of the history of result `output` is used up.
  virtual bool consumed(int output) const = 0;
};

}  // namespace kiln::detail
