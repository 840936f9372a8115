// SPDX-License-Identifier: Apache-2.0
// A graph cut into parts that run one after the other and together give what it gives. Values that cross are
// results of the part that makes them and inputs of those that read them. Decides nothing about where to cut.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace kiln {

/// One part of a graph, itself a graph.
struct GraphPart {
  int index = 0;  ///< as the caller numbered it
  Graph graph;
  std::vector<Value> inputs;   ///< per input of `graph`: the value of the whole graph
  std::vector<Value> outputs;  ///< per output of `graph`: the value of the whole graph
  std::vector<int>
      output_of;  ///< per output of `graph`: output of the whole graph, or -1: only read by other parts
};

/// Cuts `g`; `part_of[i]` is the part of node i, from 0 on. Parts are in an order in which they can run, the
/// lowest index first where there is a choice; those that give nothing are left out. An input of `g` is an
/// input of each part that reads it, and an output that an earlier part gives may be read by later ones.
/// Outputs that are inputs of `g` are results of the last part.
///
/// In place: only the last part keeps the aliases of its outputs. Those of others are plain results, for the
/// caller to copy when all parts have run and all guards hold, so that no part reads what another has
/// replaced.
///
/// Shapes: a symbol of a part is bound by an input of which it is a whole dim, as everywhere. Where a part
/// has none, the first value of `g` with such a dim (inputs, then nodes) becomes one more input, in the order
/// of the symbols' names; if a node makes it, one more output of that node's part.
///
/// Throws: invalid, for parts that need each other's results, or a symbol that no value binds.
std::vector<GraphPart> split_graph(const Graph& g, std::span<const int> part_of);

}  // namespace kiln
