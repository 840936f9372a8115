// SPDX-License-Identifier: Apache-2.0
// For tests of ops along a dim: a tensor's lines as vectors.
#pragma once

#include <functional>
#include <vector>

#include "tests/ir/testing.h"

namespace kiln::testing {

/// f of each line along `dim`, in its place.
inline std::vector<double> by_line(const HostTensor& x, size_t dim,
                                   const std::function<std::vector<double>(const std::vector<double>&)>& f) {
  std::vector<double> v = numbers(x);
  int64_t inner = 1;
  for (size_t d = dim + 1; d < x.ref.shape.size(); ++d) inner *= x.ref.shape[d];
  const int64_t n = x.ref.shape[dim];
  for (int64_t first = 0; first < x.ref.numel();
       first = (first + 1) % inner ? first + 1 : first + 1 + (n - 1) * inner) {
    std::vector<double> line;
    for (int64_t i = 0; i < n; ++i) line.push_back(v[static_cast<size_t>(first + i * inner)]);
    line = f(line);
    for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(first + i * inner)] = line[static_cast<size_t>(i)];
  }
  return v;
}

inline std::string fault_of(Op o, const std::vector<Type>& in, const Attrs& attrs) {
  try {
    infer_type(o, in, attrs);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::invalid ? e.what() : "not invalid";
  }
  return "no error";
}

}  // namespace kiln::testing
