// SPDX-License-Identifier: Apache-2.0
#include "ir/rounding.h"

#include <gtest/gtest.h>

#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

/// Of the only node of a graph, over these operands.
double terms(std::string_view text, const std::vector<HostTensor>& in) {
  const Graph g = parse_graph(text);
  const Node& n = g.nodes[0];
  const HostTensor t = rounding_terms(n, in, evaluate(n.op, in, n.attrs));
  return static_cast<const double*>(t.ref.data)[0];
}
HostTensor numbers(std::vector<double> v) {
  HostTensor t = make_host_tensor(DType::f64, {static_cast<int64_t>(v.size())});
  std::copy(v.begin(), v.end(), static_cast<double*>(t.ref.data));
  return t;
}

TEST(Rounding, SumsAreJudgedByWhatCancels) {
  EXPECT_EQ(
      terms("graph g {\n %0 = input f64[3] arg\n %1 = f64[] sum %0 {dims=(0)}\n}", {numbers({5, -5, 1})}),
      11);
  EXPECT_EQ(terms("graph g {\n %0 = input f64[1] arg\n %1 = input f64[1] arg\n %2 = f64[1] sub %0, %1\n}",
                  {numbers({3}), numbers({2})}),
            5);
  EXPECT_EQ(terms("graph g {\n %0 = input f64[1] arg\n %1 = input f64[1] arg\n %2 = f64[1] mul %0, %1\n}",
                  {numbers({3}), numbers({-2})}),
            -6);
}

}  // namespace KILN_FILE
}  // namespace kiln
