// SPDX-License-Identifier: Apache-2.0
// What to keep of a graph for a computation that runs later: the cheapest set of values from which all that
// it reads can be made again by cheap ops. Looks at the graph alone; knows nothing of who runs what.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace kiln {

/// Where a value is when the later computation runs.
enum class Holding : uint8_t {
  none,  ///< nowhere: it is kept, at the price of its bytes, or made again
  held,  ///< in memory that is dropped unless the value is kept; never made again
  free,  ///< in memory that stays anyway
  gone,  ///< neither in memory nor to be kept: its memory is written over
};

/// Whether making the result again costs less than storing and loading it: an op that fuses into its readers.
bool cheap_to_repeat(const Node& n);

/// The values to keep so that `reads` can be made: a minimum cut of the graph between what cannot be made
/// again and `reads`, where cutting a value costs its bytes. Of several minimum cuts the one nearest to
/// `reads`, which repeats least. In order of id; free values are not listed. `holding` has one entry per
/// value. Shapes: all static. Source: Ford and Fulkerson; Dinic 1970; Chen et al., Training deep nets with
/// sublinear memory cost, for keeping or repeating; the use of a cut is that of PyTorch's functorch
/// partitioner.
std::vector<Value> values_to_keep(const Graph& g, std::span<const Value> reads,
                                  std::span<const Holding> holding);

}  // namespace kiln
