// SPDX-License-Identifier: Apache-2.0
// The speculated backward of what a call returns, as a graph, and what the call must keep for it. Knows
// nothing of memory: frontend/outer.h runs it.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "frontend/trace.h"

namespace kiln::detail {

/// What happens when a gradient is complete, in the order of an eager walk.
struct OuterStep {
  Value gradient;
  Slot input = kAbsent;    ///< the slot that receives it, a leaf or an external; or
  Value hooked;            ///< the value whose hooks see it, and
  Value replaced;          ///< the graph input that takes its place
  size_t nodes = 0;        ///< of the graph, when this happens
  bool ends_part = false;  ///< what comes before runs before what comes after: hooks, and ends of buckets
};

/// The path's graph with the derivative of `roots` appended. Nodes that the path already has are not
/// repeated.
struct OuterGraph {
  Graph graph;
  std::vector<Value> grad_inputs;  ///< gradient of each root
  std::vector<OuterStep> steps;
};
/// The slot that stands for value `v` outside the path: a leaf, or an external as the call found it; or
/// kAbsent.
Slot input_slot(const Recorder& r, Value v);
/// The backward stops at values of `hooked`: their gradient is a result, and what replaces it an input.
/// Throws: unsupported, "backward through <op> (file:line): it has no derivative".
OuterGraph outer_backward(const Recorder& r, std::span<const Value> roots, const std::set<int>& hooked = {});

/// Ends a part where the last gradient of a bucket is complete. `bucket_of`: the bucket of each input slot
/// that has one.
void end_parts_at_buckets(OuterGraph& outer, const std::map<Slot, int>& bucket_of);

/// What each part of the backward gives: gradients, and values that later parts
/// read.
std::vector<std::vector<Value>> results_of_parts(const OuterGraph& outer, size_t path_nodes);

/// Values of the path that the stage being ended must keep so that the backward of `roots` can run later:
/// a minimum cut, and where that runs through a derivative, nodes added to the path. `live` are values in
/// memory that somebody holds anyway.
std::vector<Value> keep_for_backward(Recorder& r, std::span<const Value> roots, const std::set<int>& live);

}  // namespace kiln::detail
