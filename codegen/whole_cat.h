// SPDX-License-Identifier: Apache-2.0
// What the kernels of a cat have in common: operands that are alike share the code that copies them. Included
// by whole_cat*.cpp only.
#pragma once

#include <vector>

#include "codegen/whole_text.h"

namespace kiln::detail {

/// Operands of one shape that lie in memory in one way.
struct CatClass {
  Shape shape;
  TensorLayout layout;
  std::vector<size_t> operands;
};

inline std::vector<CatClass> cat_classes(const Graph& g, const Node& n,
                                         const std::vector<Operand>& operands) {
  std::vector<CatClass> all;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = g.type(n.in[i]).shape;
    auto at = all.begin();
    while (at != all.end() && !(at->shape == shape && at->layout == operands[i].layout)) ++at;
    if (at == all.end()) at = all.insert(at, {shape, operands[i].layout, {}});
    at->operands.push_back(i);
  }
  return all;
}

/// Where each operand begins along the dim of the cat, and where the last one ends.
inline std::vector<Dim> cat_starts(const Graph& g, const Node& n) {
  const auto dim = static_cast<size_t>(std::get<int64_t>(n.attrs[0]));
  std::vector<Dim> starts = {Dim(0)};
  for (const Value v : n.in) starts.push_back(starts.back() + g.type(v).shape[dim]);
  return starts;
}

}  // namespace kiln::detail
