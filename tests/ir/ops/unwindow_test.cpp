// SPDX-License-Identifier: Apache-2.0
// Input gradients of convolutions as contractions over windows of the result's gradient: the values that
// adding up windows gives, for steps, dilations, paddings and groups, and no value with a place of a window
// in it.
#include "ir/ops/unwindow.h"

#include <gtest/gtest.h>

#include "ir/autodiff.h"
#include "ir/interpret.h"
#include "ir/passes.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

using Ints = std::vector<int64_t>;

/// One dim that is convolved.
struct Space {
  int64_t size, places, step = 1, dilation = 1, low = 0, high = 0;
};
struct Conv {
  std::vector<Space> spaces;
  int64_t n = 2, groups = 1, in = 16, out = 3;
};

/// Does not say how values came about: windows are added up.
struct Unknowing : GraphBuilder {
  using GraphBuilder::GraphBuilder;
  std::optional<Made> made(Value) const override { return std::nullopt; }
};

/// The gradient of a convolution's input x, for given x, weights and gradient of the result, as the frontend
/// writes it.
template <typename B>
Graph gradient_of(const Conv& c) {
  Graph g;
  B b(g);
  Shape xs{Dim(c.n), Dim(c.groups * c.in)}, ws{Dim(c.groups), Dim(c.out), Dim(c.in)};
  for (const Space& s : c.spaces) xs.push_back(s.size), ws.push_back(s.places);
  const Value x = g.add_input({DType::f32, xs}, InputKind::arg, "x");
  const Value w = g.add_input({DType::f32, ws}, InputKind::param, "w");
  Shape low(xs.size(), Dim(0)), high = low;
  for (size_t i = 0; i < c.spaces.size(); ++i) low[2 + i] = c.spaces[i].low, high[2 + i] = c.spaces[i].high;
  Value t = b.emit(op("pad"), {x}, {low, high, Ints(xs.size(), 0), 0.0});
  for (size_t i = c.spaces.size(); i-- > 0;) {
    const Space& s = c.spaces[i];
    t = b.emit(op("window"), {t}, {static_cast<int64_t>(2 + i), s.places, s.step, s.dilation});
  }
  Shape grouped = b.type(t).shape;
  grouped[1] = c.in;
  grouped.insert(grouped.begin() + 1, Dim(c.groups));
  t = b.reshape(t, grouped);
  Ints of_w{2}, of_x{2};
  for (size_t i = 0; i < c.spaces.size(); ++i)
    of_w.push_back(static_cast<int64_t>(3 + i)), of_x.push_back(static_cast<int64_t>(4 + 2 * i));
  const Value y = b.emit(op("dot_general"), {w, t}, {Ints{0}, Ints{1}, of_w, of_x});
  const Value by = g.add_input(g.type(y), InputKind::arg, "by");
  const std::vector<Node> nodes = g.nodes;
  std::vector<TapeEntry> tape;
  for (const Node& n : nodes) tape.push_back({n.op, n.in, n.out, &n.attrs, {}});
  const auto wanted = [&](Value v) { return v == x || g.producer(v) >= 0; };
  for (const auto& [v, gradient] : differentiate(b, {tape, {{y, by}}, wanted, {}, {}}))
    if (v == x) g.add_output(gradient);
  verify(g);
  return eliminate_dead_code(g);
}

int count(const Graph& g, Op o) {
  return static_cast<int>(
      std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == o; }));
}

/// The gradient is made of so many products, and equals the sums of windows.
void check(const Conv& c, int products, const char* what) {
  SCOPED_TRACE(what);
  const Graph g = gradient_of<GraphBuilder>(c), plain = gradient_of<Unknowing>(c);
  EXPECT_EQ(count(g, op("dot_general")), products) << print(g);
  EXPECT_EQ(count(g, op("add")) + count(g, op("sum")), 0) << print(g);
  EXPECT_GT(count(plain, op("add")) + count(plain, op("sum")), 0);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 3);
  for (const Graph& same : {g, optimize(g)}) {
    const HostTensor got = contiguous(interpret(same, inputs).at(0)),
                     want = contiguous(interpret(plain, inputs).at(0));
    ASSERT_EQ(got.ref.shape, want.ref.shape);
    for (int64_t i = 0; i < got.ref.numel(); ++i)
      ASSERT_NEAR(static_cast<const float*>(got.ref.data)[i], static_cast<const float*>(want.ref.data)[i],
                  1e-4)
          << i << " of\n"
          << print(same);
  }
}

TEST(Unwindow, OneProductForEachPhaseOfTheStep) {
  const Space padded{9, 3, 1, 1, 1, 1};
  check({{padded}}, 1, "a line");
  check({{padded, padded}}, 1, "an image");
  check({{{7, 3, 1, 1, 1, 1}, {6, 2}, {5, 3, 1, 2, 2, 2}}}, 1, "a volume, a dim of it dilated");
  check({{{16, 3, 2, 1, 1, 1}}}, 2, "step 2");
  check({{{16, 3, 2, 1, 1, 1}, {16, 3, 2, 1, 1, 1}}}, 4, "step 2 twice");
  check({{{16, 3, 2, 1, 1, 1}, padded}}, 2, "one of two steps");
  check({{{14, 5, 3, 1, 2, 2}, {9, 3, 2}}}, 6, "steps 3 and 2");
}

TEST(Unwindow, WindowsSideBySideAreOneProduct) {
  const Graph g = gradient_of<GraphBuilder>({{{16, 2, 2}, {16, 4, 4}}});
  EXPECT_EQ(count(g, op("dot_general")), 1);
  EXPECT_EQ(count(g, op("add")) + count(g, op("sum")), 0) << "nothing overlaps";
}

TEST(Unwindow, PaddingsOfAllKinds) {
  for (const int64_t low : {0, 1, 2})
    for (const int64_t high : {0, 1, 3})
      for (const int64_t size : {5, 8})
        for (const int64_t step : {1, 2}) {
          check({{{size, 3, step, 1, low, high}}}, static_cast<int>(step),
                fmt::format("{} + {} + {} by {}", low, size, high, step).c_str());
        }
  check({{{6, 3, 1, 1, 4, 4}}}, 1, "more padding than a window");
  check({{{13, 3, 2}}}, 2, "elements behind the last window");
  check({{{12, 3, 2}}}, 2, "elements that no window has");
}

TEST(Unwindow, Groups) { check({{{8, 3, 1, 1, 1, 1}, {8, 3, 2, 1, 1, 1}}, 2, 3}, 2, "three groups"); }

TEST(Unwindow, WhatFillsNoVectorOrCannotBeSplitIsAddedUp) {
  const auto products = [](const Conv& c) {
    const Graph g = gradient_of<GraphBuilder>(c);
    EXPECT_GT(count(g, op("add")) + count(g, op("sum")), 0);
    return count(g, op("dot_general"));
  };
  EXPECT_EQ(products({{{8, 3}}, 2, 1, 3}), 1) << "three channels";
  EXPECT_EQ(products({{{20, 3, 2, 2}}}), 1) << "a step and a dilation";
  EXPECT_EQ(count(gradient_of<GraphBuilder>({{{8, 1, 2}}}), op("dot_general")), 1) << "windows of one place";
}

}  // namespace KILN_FILE
}  // namespace kiln
