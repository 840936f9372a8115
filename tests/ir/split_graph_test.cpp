// SPDX-License-Identifier: Apache-2.0
#include "ir/split_graph.h"

#include <gtest/gtest.h>

#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Graph parse(const std::string& body) { return parse_graph("graph t {\n" + body + "}\n"); }

/// The parts as text, one after the other.
std::string text(const std::vector<GraphPart>& parts) {
  std::string out;
  for (const GraphPart& p : parts) {
    verify(p.graph);
    out += fmt::format("part {}:", p.index);
    for (Value v : p.inputs) out += fmt::format(" %{}", v.id);
    out += " ->";
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      const GraphOutput& o = p.graph.outputs[i];
      out += fmt::format(" %{}", p.outputs[i].id);
      if (p.output_of[i] >= 0) out += fmt::format("={}", p.output_of[i]);
      if (o.alias_input >= 0) out += fmt::format(" in %{}", p.inputs[static_cast<size_t>(o.alias_input)].id);
      if (o.guard) out += " guard";
    }
    out += "\n";
  }
  return out;
}

/// Runs the parts one after the other by the interpreter.
std::vector<HostTensor> run_parts(const Graph& g, const std::vector<GraphPart>& parts,
                                  std::span<const HostTensor> inputs) {
  std::map<int, HostTensor> values;
  for (size_t i = 0; i < g.inputs.size(); ++i) values[g.inputs[i].value.id] = inputs[i];
  std::vector<HostTensor> out(g.outputs.size());
  for (const GraphPart& p : parts) {
    std::vector<HostTensor> in;
    for (Value v : p.inputs) in.push_back(values.at(v.id));
    const std::vector<HostTensor> results = interpret(p.graph, in);
    for (size_t i = 0; i < results.size(); ++i) {
      values[p.outputs[i].id] = results[i];
      if (p.output_of[i] >= 0) out[static_cast<size_t>(p.output_of[i])] = results[i];
    }
  }
  return out;
}

TEST(SplitGraph, B32_CrossingValuesAreResultsAndInputs) {
  const Graph g = parse(
      "%0 = input f32[4] arg\n%1 = input f32[4] param \"w\"\n%2 = f32[4] exp %0\n%3 = f32[4] mul %2, %1\n"
      "%4 = f32[4] add %3, %2\n%5 = f32[4] mul %4, %1\noutput %5\noutput %3\n");
  const std::vector<GraphPart> parts = split_graph(g, std::vector<int>{0, 0, 1, 1});
  EXPECT_EQ(text(parts), "part 0: %0 %1 -> %3=1 %2\npart 1: %1 %2 %3 -> %5=0\n");
  EXPECT_EQ(parts[0].graph.inputs[1].name, "w") << "B-42";
  EXPECT_EQ(parts[1].graph.inputs[0].kind, InputKind::param);
}

TEST(SplitGraph, B39_PartsRunInTheOrderOfTheirResults) {
  const Graph g =
      parse("%0 = input f32[4] arg\n%1 = f32[4] exp %0\n%2 = f32[4] neg %1\n%3 = f32[4] exp %2\noutput %3\n");
  EXPECT_EQ(text(split_graph(g, std::vector<int>{2, 0, 1})),
            "part 2: %0 -> %1\npart 0: %1 -> %2\npart 1: %2 -> %3=0\n");
  try {
    split_graph(g, std::vector<int>{0, 1, 0});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "split_graph: partitions 0, 1 need each other's results; expected an order in which they can run");
  }
}

TEST(SplitGraph, PartsThatNobodyReadsAreLeftOut) {
  const Graph g = parse(
      "%0 = input f32[4] arg\n%1 = f32[4] exp %0\n%2 = f32[4] neg %1\n%3 = f32[4] exp %0\n"
      "output %3\n");
  EXPECT_EQ(text(split_graph(g, std::vector<int>{0, 1, 2})), "part 2: %0 -> %3=0\n");
  const Graph none = parse("%0 = input f32[4] arg\noutput %0\n");
  EXPECT_EQ(text(split_graph(none, {})), "part 0: %0 -> %0=0\n");
}

TEST(SplitGraph, OnlyTheLastPartWritesInPlace) {
  const Graph g = parse(
      "%0 = input f32[4] state\n%1 = input f32[4] param\n%2 = f32[4] exp %0\n%3 = f32[4] neg %2\n"
      "output %2 alias=0\noutput %3 alias=1\n");
  EXPECT_EQ(text(split_graph(g, std::vector<int>{0, 1})),
            "part 0: %0 -> %2=0\npart 1: %2 %1 -> %3=1 in %1\n");
}

TEST(SplitGraph, GuardsStayGuards) {
  const Graph g = parse(
      "%0 = input i64[] arg\n%1 = input f32[4] arg\n%2 = i64[] neg %0\n%3 = f32[4] exp %1\noutput %3\n"
      "output %2 guard\n");
  EXPECT_EQ(text(split_graph(g, std::vector<int>{0, 1})), "part 0: %0 -> %2=1 guard\npart 1: %1 -> %3=0\n");
}

TEST(SplitGraph, B33_B34_SizesComeWithAnInputThatBindsThem) {
  // Part 1 sees 2*B only: x, the first value with a dim B, comes along. Symbols in the order of their names.
  const Graph g = parse(
      "%0 = input f32[B] arg \"x\"\n%1 = input f32[A] arg \"y\"\n"
      "%2 = f32[2*B] cat %0, %0 {dim=0}\n%3 = f32[2*A] cat %1, %1 {dim=0}\n"
      "%4 = f32[2*B] exp %2\n%5 = f32[2*A] exp %3\noutput %4\noutput %5\n");
  const std::vector<GraphPart> parts = split_graph(g, std::vector<int>{0, 0, 1, 1});
  EXPECT_EQ(text(parts), "part 0: %0 %1 -> %2 %3\npart 1: %2 %3 %1 %0 -> %4=0 %5=1\n");
  const std::vector<HostTensor> inputs = {tensor(DType::f32, {3}, {0, 1, 2}), tensor(DType::f32, {1}, {3})};
  const std::vector<HostTensor> whole = interpret(g, inputs), got = run_parts(g, parts, inputs);
  EXPECT_EQ(numbers(got[0]), numbers(whole[0]));
  EXPECT_EQ(numbers(got[1]), numbers(whole[1]));
}

TEST(SplitGraph, B35_ASizeThatANodeBindsIsAResultOfItsPart) {
  const Graph g = parse(
      "%0 = input f32[1] arg\n%1 = f32[u0] expand %0 {shape=[u0]}\n%2 = f32[2*u0] expand %0 {shape=[2*u0]}\n"
      "output %2\n");
  EXPECT_EQ(text(split_graph(g, std::vector<int>{0, 1})), "part 0: %0 -> %1\npart 1: %0 %1 -> %2=0\n");
  const Graph unbound = parse("%0 = input f32[1] arg\n%1 = f32[2*u0] expand %0 {shape=[2*u0]}\noutput %1\n");
  try {
    split_graph(unbound, std::vector<int>{0});
    FAIL() << "B-36";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "split_graph: partition 0 uses the size u0, which is a whole dim of no value (give the graph an "
        "input with a dim of that size)");
  }
}

TEST(SplitGraph, RandomGraphsGiveWhatTheyGiveWhole) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng{seed};
    const Graph g = random_graph(seed, {.updates = true, .derivative = true});
    const std::vector<HostTensor> inputs = random_inputs(g, seed);
    std::vector<int> part_of;
    int part = 0;
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      part += rng.chance(25);
      part_of.push_back(part);
    }
    const std::vector<GraphPart> parts = split_graph(g, part_of);
    for (const GraphPart& p : parts) verify(p.graph);
    const auto whole = interpret(g, inputs), got = run_parts(g, parts, inputs);
    for (size_t i = 0; i < whole.size(); ++i) {
      const std::vector<double> a = numbers(whole[i]), b = numbers(got[i]);
      ASSERT_EQ(a.size(), b.size());
      if (a.empty()) continue;  // no memory to compare
      ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(double)), 0) << "seed " << seed;
    }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
