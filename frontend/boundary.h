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
  using Give = std::function<void(int input, const Tensor& gradient)>;
  /// Runs the compiled backward for gradients of results, calling the hooks of values made in the forward and
  /// of its results; gives the gradient of each input as soon as it is complete.
  virtual void backward(const BoundaryGrads& grads, const Give& give, SourceLoc loc) = 0;
  /// A backward without retain_graph has used up the history of these results.
  virtual void consume(const std::vector<int>& outputs) = 0;
  /// Whether a part of the history of result `output` is used up.
  virtual bool consumed(int output) const = 0;
};

}  // namespace kiln::detail
