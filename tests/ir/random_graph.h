// SPDX-License-Identifier: Apache-2.0
// Random graphs over every op of the table, for fuzzers. Values stay tame unless asked for: an operand that
// may be large, or that an op has no value for, is clamped to the op's domain first.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "ir/interpret.h"

namespace kiln::testing {

struct RandomGraphOptions {
  int nodes = 16;  ///< ops drawn; helpers such as casts and clamps come on top
  int max_rank = 3;
  int max_outputs = 3;
  bool f64 = true;       ///< also double
  bool halves = false;   ///< also f16 and bf16
  bool integers = true;  ///< also i64, i32, u8 arithmetic (indices are always there)
  bool chain = false;    ///< prefer the newest value: one deep chain
  std::vector<int64_t> sizes = {1, 2, 3, 4, 5, 8, 17};  ///< sizes of dims
  int empty_percent = 3;                                ///< chance that a dim is 0
  int pattern_percent = 0;  ///< chance that a step is a layer or the like instead of an op
  bool updates = false;     ///< also outputs that alias inputs
  bool derivative = false;  ///< also the derivative of a late value, as outputs
  bool clamped = true;  ///< operands of elementwise ops are in their domains; else floats are as they come
  /// Ops that may occur; empty means all.
  std::vector<std::string_view> only = {};
};

/// The same graph for the same seed and options, on every platform. It verifies.
Graph random_graph(uint64_t seed, const RandomGraphOptions& options = {});
/// What fuzzers of code generation draw from: all of the above, by the seed.
RandomGraphOptions fuzz_options(uint64_t seed);
/// Values for its inputs.
std::vector<HostTensor> random_inputs(const Graph& g, uint64_t seed);

}  // namespace kiln::testing
