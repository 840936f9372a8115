// SPDX-License-Identifier: Apache-2.0
// Channels move innermost between convolutions, and nothing but the order of sums changes.
#include <gtest/gtest.h>

#include "ir/passes.h"
#include "tests/codegen/convolutions.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

size_t count(const Graph& g, Op o) {
  return static_cast<size_t>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == o; }));
}

/// Both graphs interpreted on the same inputs: equal but for rounding.
void expect_same(const Graph& a, const Graph& b, uint64_t seed) {
  const std::vector<HostTensor> inputs = random_inputs(a, seed);
  const std::vector<HostTensor> x = interpret(a, inputs), y = interpret(b, inputs);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i].ref.shape, y[i].ref.shape) << print(a);
    const std::vector<double> u = numbers(x[i]), v = numbers(y[i]);
    for (size_t j = 0; j < u.size(); ++j) {
      if (std::isnan(u[j]) && std::isnan(v[j])) continue;
      ASSERT_NEAR(u[j], v[j], 1e-3 * std::max(1.0, std::abs(u[j]))) << "output " << i << "\n"
                                                                    << print(a) << print(b);
    }
  }
}

constexpr const char* kTwoLayers = R"(graph g {
  %0 = input f32[2,3,9,8] arg
  %1 = input f32[4,3,3,3] param
  %2 = input f32[5,4,3,3] param
  %3 = f32[2,3,7,3,8] window %0 {dim=2, size=3, step=1, dilation=1}
  %4 = f32[2,3,7,3,6,3] window %3 {dim=4, size=3, step=1, dilation=1}
  %5 = f32[4,2,7,6] dot_general %1, %4 {batch_a=(), batch_b=(), contract_a=(1,2,3), contract_b=(1,3,5)}
  %6 = f32[2,4,7,6] permute %5 {dims=(1,0,2,3)}
  %7 = f32[2,4,7,6] tanh %6
  %8 = f32[4] sum %7 {dims=(0,2,3)}
  %9 = f32[4,1,1] reshape %8 {shape=[4,1,1]}
  %10 = f32[2,4,7,6] expand %9 {shape=[2,4,7,6]}
  %11 = f32[2,4,7,6] sub %7, %10
  %12 = f32[2,4,5,3,6] window %11 {dim=2, size=3, step=1, dilation=1}
  %13 = f32[2,4,5,3,4,3] window %12 {dim=4, size=3, step=1, dilation=1}
  %14 = f32[5,2,5,4] dot_general %2, %13 {batch_a=(), batch_b=(), contract_a=(1,2,3), contract_b=(1,3,5)}
  %15 = f32[2,5,5,4] permute %14 {dims=(1,0,2,3)}
  output %15
})";

TEST(ChannelsLast, OnlyWhatGoesInAndOutIsPermuted) {
  const Graph before = parse_graph(kTwoLayers), after = optimize(before);
  verify(after);
  expect_same(before, after, 1);
  EXPECT_EQ(print(after, {.canonical = true}), R"(graph g {
  %0 = input f32[2,3,9,8] arg
  %1 = input f32[4,3,3,3] param
  %2 = input f32[5,4,3,3] param
  %3 = f32[2,9,8,3] permute %0 {dims=(0,2,3,1)}
  %4 = f32[2,7,3,8,3] window %3 {dim=1, size=3, step=1, dilation=1}
  %5 = f32[2,7,3,6,3,3] window %4 {dim=3, size=3, step=1, dilation=1}
  %6 = f32[3,3,3,4] permute %1 {dims=(1,2,3,0)}
  %7 = f32[2,7,6,4] dot_general %5, %6 {batch_a=(), batch_b=(), contract_a=(2,4,5), contract_b=(1,2,0)}
  %8 = f32[2,7,6,4] tanh %7
  %9 = f32[4] sum %8 {dims=(0,1,2)}
  %10 = f32[4,1,1] reshape %9 {shape=[4,1,1]}
  %11 = f32[2,4,7,6] expand %10 {shape=[2,4,7,6]}
  %12 = f32[2,7,6,4] permute %11 {dims=(0,2,3,1)}
  %13 = f32[2,7,6,4] sub %8, %12
  %14 = f32[2,5,3,6,4] window %13 {dim=1, size=3, step=1, dilation=1}
  %15 = f32[2,5,3,4,3,4] window %14 {dim=3, size=3, step=1, dilation=1}
  %16 = f32[4,3,3,5] permute %2 {dims=(1,2,3,0)}
  %17 = f32[2,5,4,5] dot_general %15, %16 {batch_a=(), batch_b=(), contract_a=(2,4,5), contract_b=(1,2,0)}
  %18 = f32[2,5,5,4] permute %17 {dims=(0,3,1,2)}
  output %18
}
)");
}

TEST(ChannelsLast, ConvolutionsKeepTheirResults) {
  for (const std::string& text : convolutions()) {
    const Graph g = parse_graph(text), moved = place_channels_last(g).value_or(g);
    verify(moved);
    expect_same(g, moved, 2);
  }
}

TEST(ChannelsLast, GraphsWithoutConvolutionsStay) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomGraphOptions o;
    o.pattern_percent = 0;
    const Graph g = random_graph(seed, o);
    if (count(g, op("window")) > 0) continue;
    EXPECT_FALSE(place_channels_last(g));
  }
}

TEST(ChannelsLast, RandomNetworksKeepTheirResults) {
  size_t moved = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomGraphOptions o;
    o.nodes = 8;
    o.pattern_percent = 60;
    o.derivative = seed % 2 == 0;
    const Graph g = random_graph(seed, o);
    const std::optional<Graph> after = place_channels_last(g);
    if (!after) continue;
    verify(*after);
    ++moved;
    expect_same(g, *after, seed);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(moved, 30u);
}

}  // namespace KILN_FILE
}  // namespace kiln
