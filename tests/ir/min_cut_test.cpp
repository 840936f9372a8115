// SPDX-License-Identifier: Apache-2.0
// What is kept and what is repeated: text in, the kept values out; and against every cut of random graphs.
#include "ir/min_cut.h"

#include <gtest/gtest.h>

#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// Values kept of a graph whose outputs are what is read: "%3 %5". Scalar inputs are free; of the others,
/// captured ones are gone, state is held, and the rest is free.
std::string kept(const std::string& body) {
  const Graph g = parse_graph("graph t {\n" + body + "}\n");
  std::vector<Holding> holding(static_cast<size_t>(g.value_count()), Holding::none);
  for (const GraphInput& in : g.inputs)
    holding[static_cast<size_t>(in.value.id)] = in.kind == InputKind::captured ? Holding::gone
                                                : in.kind == InputKind::state  ? Holding::held
                                                                               : Holding::free;
  std::vector<Value> reads;
  for (const GraphOutput& o : g.outputs) reads.push_back(o.value);
  std::string text;
  for (Value v : values_to_keep(g, reads, holding))
    text += fmt::format("{}%{}", text.empty() ? "" : " ", v.id);
  return text;
}

TEST(MinCut, ElementwiseOfFreeInputsIsRepeated) {
  EXPECT_EQ(kept("%0 = input f32[8] arg\n%1 = f32[8] exp %0\n%2 = f32[8] neg %1\noutput %1\noutput %2\n"),
            "");
}

TEST(MinCut, MatmulsAndReductionsAreKept) {
  EXPECT_EQ(kept("%0 = input f32[4,4] arg\n%1 = f32[4] sum %0 {dims=(1)}\n%2 = f32[4] exp %1\noutput %2\n"),
            "%2")
      << "of equal cuts the one nearest to the reader";
  EXPECT_EQ(kept("%0 = input f32[4,4] arg\n"
                 "%1 = f32[4,4] dot_general %0, %0 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}\n"
                 "%2 = f32[4,4] exp %1\n%3 = f32[4,4] tanh %1\noutput %2\noutput %3\n"),
            "%1")
      << "one instead of two";
}

TEST(MinCut, FewestBytes) {
  const std::string wide = "%0 = input f32[4,4] arg\n%1 = f32[4] sum %0 {dims=(1)}\n";
  EXPECT_EQ(kept(wide + "%2 = f32[4,1] reshape %1 {shape=[4,1]}\n%3 = f32[4,9] expand %2 {shape=[4,9]}\n"
                        "output %3\n"),
            "%2")
      << "before the broadcast";
  EXPECT_EQ(kept(wide + "%2 = bool[4] isnan %1\n%3 = f32[4] cast %2 {dtype=f32}\noutput %3\n"), "%2")
      << "a mask is a quarter";
}

TEST(MinCut, RandomIsRepeatedFromItsOffset) {
  EXPECT_EQ(kept("%0 = input i64[] scalar\n%1 = input i64[] scalar\n"
                 "%2 = f32[64] random_uniform %0, %1 {shape=[64]}\n%3 = f32[64] neg %2\noutput %3\n"),
            "");
}

TEST(MinCut, HeldInputsCostTheirBytes) {
  EXPECT_EQ(kept("%0 = input f32[8] state\n%1 = f32[8] exp %0\n%2 = f32[8] neg %0\noutput %1\noutput %2\n"),
            "%0");
  EXPECT_EQ(kept("%0 = input f32[8] state\n%1 = f32[8] exp %0\noutput %1\n"), "%1");
}

TEST(MinCut, GoneInputsAreNotReadAgain) {
  EXPECT_EQ(
      kept("%0 = input f32[8] captured\n%1 = f32[8] exp %0\n%2 = f32[8] neg %0\noutput %1\noutput %2\n"),
      "%1 %2");
  EXPECT_EQ(kept("%0 = input f32[8] captured\noutput %0\n"), "%0") << "the caller says that it cannot";
}

TEST(MinCut, ScatterGatherAndCatAreKept) {
  EXPECT_EQ(kept("%0 = input f32[8,4] arg\n%1 = input i64[3] arg\n%2 = f32[3,4] take %0, %1 {dim=0}\n"
                 "%3 = f32[6,4] cat %2, %2 {dim=0}\noutput %2\noutput %3\n"),
            "%2 %3");
}

TEST(MinCut, ScansAndSortsAreKeptWindowsAreNot) {
  EXPECT_EQ(kept("%0 = input f32[8,4] arg\n%1 = f32[8,4] cumsum %0 {dim=0}\n"
                 "%2 = i64[8,4] argsort %0 {dim=0, descending=false}\n"
                 "%3 = f32[7,2,4] window %0 {dim=0, size=2, step=1, dilation=1}\n"
                 "%4 = f32[9,2,4] skew %3 {dim=0, by=1, size=[9]}\noutput %1\noutput %2\noutput %4\n"),
            "%1 %2");
}

/// Bytes of `keep`, or -1 when some read cannot be made from it.
int64_t price(const Graph& g, const std::vector<Value>& reads, const std::vector<Holding>& holding,
              const std::vector<bool>& keep) {
  std::vector<bool> there(static_cast<size_t>(g.value_count()), false);
  int64_t bytes = 0;
  for (int id = 0; id < g.value_count(); ++id) {
    const auto i = static_cast<size_t>(id);
    there[i] = keep[i] || holding[i] == Holding::free;
    if (keep[i]) bytes += numel(g.type(Value{id}).shape).value() * 4;
    const int node = g.producer(Value{id});
    if (there[i] || holding[i] != Holding::none || node < 0) continue;
    const Node& n = g.nodes[static_cast<size_t>(node)];
    there[i] = cheap_to_repeat(n);
    for (Value in : n.in) there[i] = there[i] && there[static_cast<size_t>(in.id)];
  }
  for (Value v : reads)
    if (!there[static_cast<size_t>(v.id)]) return -1;
  return bytes;
}

TEST(MinCut, NoCutOfARandomGraphIsCheaper) {
  Rng rng{7};
  for (int round = 0; round < 60; ++round) {
    Graph g;
    std::vector<Value> values, reads;
    std::vector<Holding> holding;
    for (int i = 0; i < 3; ++i) {
      values.push_back(g.add_input({DType::f32, {1 + rng.below(3)}}, InputKind::arg, ""));
      holding.push_back(rng.chance(50) ? Holding::free : Holding::held);
    }
    while (values.size() < 13) {
      const Value a = values[static_cast<size_t>(rng.below(static_cast<int64_t>(values.size())))];
      const Value b = values[static_cast<size_t>(rng.below(static_cast<int64_t>(values.size())))];
      if (rng.chance(25)) values.push_back(g.add_node(op("cat"), {{a, b}}, {int64_t{0}}));
      else if (g.type(a) == g.type(b)) values.push_back(g.add_node(op("mul"), {{a, b}}, {}));
      else values.push_back(g.add_node(op("exp"), {{a}}, {}));
      holding.push_back(rng.chance(10) ? Holding::free : Holding::none);
      if (rng.chance(30)) reads.push_back(values.back());
    }
    std::vector<bool> found(values.size(), false);
    for (Value v : values_to_keep(g, reads, holding)) found[static_cast<size_t>(v.id)] = true;
    const int64_t got = price(g, reads, holding, found);
    ASSERT_GE(got, 0) << print(g);
    for (uint32_t subset = 0; subset < 1u << values.size(); ++subset) {
      std::vector<bool> keep;
      for (size_t i = 0; i < values.size(); ++i) keep.push_back(subset >> i & 1);
      const int64_t other = price(g, reads, holding, keep);
      ASSERT_TRUE(other < 0 || other >= got) << subset << "\n" << print(g);
    }
  }
}

TEST(MinCut, DeepGraphsDoNotExhaustTheStack) {
  Graph g;
  const Value in = g.add_input({DType::f32, {4}}, InputKind::arg, "");
  std::vector<Holding> holding{Holding::held};
  Value v = in;
  for (int i = 0; i < 100000; ++i) {
    v = g.add_node(op("neg"), {{v}}, {});
    holding.push_back(Holding::none);
  }
  const Value reads[] = {v};
  EXPECT_EQ(values_to_keep(g, reads, holding), (std::vector<Value>{v}));
}

}  // namespace KILN_FILE
}  // namespace kiln
