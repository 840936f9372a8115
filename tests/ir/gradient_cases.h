// SPDX-License-Identifier: Apache-2.0
// Uses of every differentiable row: what tests of derivatives check, and the page of ops tells.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace kiln::testing {

/// One use of an op: the shapes of its float operands, their range, and how it is emitted.
struct GradientCase {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;
  std::function<Value(GraphBuilder&, const std::vector<Value>&)> emit;
  double lo = -2, hi = 2;
};

/// The pattern repeated over the elements of an i64 tensor in row-major order.
Value index_pattern(GraphBuilder& b, const Shape& s, std::initializer_list<double> pattern);

/// Emits `o` with those attributes on all operands.
std::function<Value(GraphBuilder&, const std::vector<Value>&)> with(Op o, Attrs attrs);

/// Every differentiable op, in the forms that matter.
std::vector<GradientCase> gradient_cases();

}  // namespace kiln::testing
