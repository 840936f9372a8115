// SPDX-License-Identifier: Apache-2.0
#include "tests/ir/reduce_graph.h"

#include <gtest/gtest.h>

#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

using testing::GraphCase;

bool holds(const Graph& g, Op o) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == o; });
}

TEST(ReduceGraph, LeavesTheNodeThatFails) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    const Graph g = testing::random_graph(seed, testing::fuzz_options(seed));
    const auto fails = [](const GraphCase& c) { return holds(c.graph, op("dot_general")); };
    const GraphCase whole{g, testing::random_inputs(g, seed)};
    if (!fails(whole)) continue;
    ++found;
    const GraphCase small = testing::reduce_case(whole, fails);
    verify(small.graph);
    EXPECT_EQ(small.graph.nodes.size(), 1u) << seed << "\n" << print(small.graph);
    EXPECT_EQ(small.graph.outputs.size(), 1u);
    ASSERT_EQ(small.inputs.size(), small.graph.inputs.size());
    EXPECT_EQ(interpret(small.graph, small.inputs).size(), 1u);
  }
  EXPECT_GT(found, 20);
}

TEST(ReduceGraph, ValuesStayTheSame) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[2,3] arg
  %1 = input f32[2,3] param
  %2 = f32[2,3] exp %0
  %3 = f32[2,3] add %2, %1
  %4 = f32[2] sum %3 {dims=(1)}
  %5 = f32[2] neg %4
  output %5
  output %3 alias=1
})");
  const GraphCase whole{g, testing::random_inputs(g, 1)};
  const double want = static_cast<float*>(interpret(g, whole.inputs)[0].ref.data)[1];
  const GraphCase small = testing::reduce_case(whole, [&](const GraphCase& c) {
    const std::vector<HostTensor> got = interpret(c.graph, c.inputs);
    return !c.graph.nodes.empty() && got[0].ref.numel() == 2 &&
           static_cast<float*>(got[0].ref.data)[1] == want;
  });
  EXPECT_EQ(print(small.graph), R"(graph g {
  %0 = input f32[2] arg "cut"
  %1 = f32[2] neg %0
  output %1
}
)");
}

}  // namespace KILN_FILE
}  // namespace kiln
