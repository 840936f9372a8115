// SPDX-License-Identifier: Apache-2.0
// The seam between the eager tape and a compiled forward: tensors that a compiled callable returned carry a
// boundary, through which a later backward() enters the compiled graph.
#pragma once

#include <utility>
#include <vector>

#include "frontend/tensor.h"

namespace kiln::detail {

/// (output number of the compiled forward, gradient of that output).
using BoundaryGrads = std::vector<std::pair<int, Tensor>>;

struct GradBoundary {
  virtual ~GradBoundary() = default;
  /// Runs the compiled backward and accumulates into the leaves; goes on into the eager history of operands.
  virtual void backward(const BoundaryGrads& grads, bool retain_graph, SourceLoc loc) = 0;
};

}  // namespace kiln::detail
