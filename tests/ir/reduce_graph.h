// SPDX-License-Identifier: Apache-2.0
// Makes a failing graph small: for fuzzers, so that the report is short enough to read.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"
#include "ir/interpret.h"

namespace kiln::testing {

struct GraphCase {
  Graph graph;
  std::vector<HostTensor> inputs;  ///< one per graph input
};

/// A smaller case for which `fails` still holds: outputs are dropped, the first wrong value becomes the only
/// one, then values become inputs (with what the interpreter gives for them), and what nobody reads goes.
GraphCase reduce_case(GraphCase c, const std::function<bool(const GraphCase&)>& fails);

}  // namespace kiln::testing
