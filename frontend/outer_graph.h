// SPDX-License-Identifier: Apache-2.0
// The speculated backward of what a call returns, as a graph, and what the call must keep for it. Knows
// nothing of memory: frontend/outer.h runs it.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "frontend/trace.h"

namespace kiln::detail {

/// The path's graph with the derivative of `roots` appended. Nodes that the path already has are not
/// repeated.
struct OuterGraph {
  Graph graph;
  std::vector<Value> grad_inputs;                  ///< gradient of each root
  std::vector<std::pair<Slot, Value>> leaf_grads;  ///< external slots that receive a gradient
};
OuterGraph outer_backward(const Recorder& r, std::span<const Value> roots);

/// Values of the path that the stage being ended must keep so that the backward of `roots` can run later:
/// a minimum cut, and where that runs through a derivative, nodes added to the path. `live` are values in
/// memory that somebody holds anyway.
std::vector<Value> keep_for_backward(Recorder& r, std::span<const Value> roots, const std::set<int>& live);

}  // namespace kiln::detail
