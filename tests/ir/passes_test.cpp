// SPDX-License-Identifier: Apache-2.0
#include "ir/passes.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

using Pass = Graph (*)(const Graph&);

/// `nodes` and outputs over inputs %0: f32[2,3], %1: f32[2,3], %2: i64[4], %3: bool[2,3], %4: f32[1,3]; the
/// nodes of the result in its canonical text.
std::string through(Pass pass, const std::string& body) {
  const std::string head =
      "graph t {\n  %0 = input f32[2,3] arg\n  %1 = input f32[2,3] arg\n  %2 = input i64[4] arg\n"
      "  %3 = input bool[2,3] arg\n  %4 = input f32[1,3] arg\n";
  const Graph g = pass(parse_graph(head + body + "}\n"));
  verify(g);
  const std::string text = print(g, {.canonical = true});
  const size_t from = text.find("%4 = input");
  const size_t start = text.find('\n', from) + 1;
  return text.substr(start, text.size() - start - 2);
}

TEST(Passes, DeadCodeGoesInputsStay) {
  EXPECT_EQ(through(eliminate_dead_code,
                    "%5 = f32[2,3] exp %0\n%6 = f32[2,3] tanh %0\n%7 = f32[2,3] neg %5\noutput %6\n"),
            "  %5 = f32[2,3] tanh %0\n  output %5\n");
}

TEST(Passes, EqualNodesMerge) {
  EXPECT_EQ(through(eliminate_common_subexpressions,
                    "%5 = f32[2,3] exp %0\n%6 = f32[2,3] exp %0\n%7 = f32[2,3] add %5, %6\noutput %7\n"),
            "  %5 = f32[2,3] exp %0\n  %6 = f32[2,3] add %5, %5\n  output %6\n");
}

TEST(Passes, UnequalNodesStay) {
  const std::string body =
      "  %5 = f32[2] sum %0 {dims=(1)}\n  %6 = f32[3] sum %0 {dims=(0)}\n"
      "  %7 = f32[] constant {value=0., dtype=f32, shape=[]}\n"
      "  %8 = f32[] constant {value=-0., dtype=f32, shape=[]}\n  output %5\n  output %6\n  output %7\n  "
      "output %8\n";
  EXPECT_EQ(through(eliminate_common_subexpressions, body), body);
}

TEST(Passes, RandomOpsMergeOnlyWithEqualOffsets) {
  const std::string body =
      "  %5 = i64[] constant {value=1., dtype=i64, shape=[]}\n  %6 = i64[] constant {value=2., dtype=i64, "
      "shape=[]}\n"
      "  %7 = f32[2] random_uniform %5, %5 {shape=[2]}\n  %8 = f32[2] random_uniform %5, %6 {shape=[2]}\n"
      "  output %7\n  output %8\n";
  EXPECT_EQ(through(optimize, body), body);
}

struct Rule {
  const char *name, *before, *after;
};
// What simplify makes of `before`; dead producers are removed for reading.
const Rule kRules[] = {
    {"cast to own dtype", "%5 = f32[2,3] cast %0 {dtype=f32}\noutput %5\n", "  output %0\n"},
    {"widening cast and back",
     "%5 = f64[2,3] cast %0 {dtype=f64}\n%6 = f32[2,3] cast %5 {dtype=f32}\noutput %6\n", "  output %0\n"},
    {"narrowing cast and back stays",
     "%5 = f16[2,3] cast %0 {dtype=f16}\n%6 = f32[2,3] cast %5 {dtype=f32}\noutput %6\n",
     "  %5 = f16[2,3] cast %0 {dtype=f16}\n  %6 = f32[2,3] cast %5 {dtype=f32}\n  output %6\n"},
    {"times one",
     "%5 = f32[2,3] constant {value=1., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] mul %5, %0\noutput %6\n",
     "  output %0\n"},
    {"times zero stays",
     "%5 = f32[2,3] constant {value=0., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] mul %0, %5\noutput %6\n",
     "  %5 = f32[2,3] constant {value=0., dtype=f32, shape=[2,3]}\n  %6 = f32[2,3] mul %0, %5\n  output "
     "%6\n"},
    {"integers times zero",
     "%5 = i64[4] constant {value=0., dtype=i64, shape=[4]}\n%6 = i64[4] mul %2, %5\noutput %6\n",
     "  %5 = i64[4] constant {value=0., dtype=i64, shape=[4]}\n  output %5\n"},
    {"plus zero stays: -0 + 0 is 0",
     "%5 = f32[2,3] constant {value=0., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] add %0, %5\noutput %6\n",
     "  %5 = f32[2,3] constant {value=0., dtype=f32, shape=[2,3]}\n  %6 = f32[2,3] add %0, %5\n  output "
     "%6\n"},
    {"plus -0",
     "%5 = f32[2,3] constant {value=-0., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] add %0, %5\noutput %6\n",
     "  output %0\n"},
    {"minus zero",
     "%5 = f32[2,3] constant {value=0., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] sub %0, %5\noutput %6\n",
     "  output %0\n"},
    {"integers plus zero",
     "%5 = i64[4] constant {value=0., dtype=i64, shape=[4]}\n%6 = i64[4] add %5, %2\noutput %6\n",
     "  output %2\n"},
    {"over one",
     "%5 = f32[2,3] constant {value=1., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] div %0, %5\noutput %6\n",
     "  output %0\n"},
    {"double negation", "%5 = f32[2,3] neg %0\n%6 = f32[2,3] neg %5\noutput %6\n", "  output %0\n"},
    {"plus negative", "%5 = f32[2,3] neg %1\n%6 = f32[2,3] add %0, %5\noutput %6\n",
     "  %5 = f32[2,3] sub %0, %1\n  output %5\n"},
    {"not of a condition", "%5 = bool[2,3] logical_not %3\n%6 = f32[2,3] where %5, %0, %1\noutput %6\n",
     "  %5 = f32[2,3] where %3, %1, %0\n  output %5\n"},
    {"known condition",
     "%5 = bool[2,3] constant {value=1., dtype=bool, shape=[2,3]}\n%6 = f32[2,3] where %5, %0, %1\noutput "
     "%6\n",
     "  output %0\n"},
    {"constants fold",
     "%5 = f32[2,3] constant {value=3., dtype=f32, shape=[2,3]}\n%6 = f32[2,3] mul %5, %5\n%7 = f32[2,3] "
     "sqrt %6\n"
     "%8 = f64[2,3] cast %7 {dtype=f64}\noutput %8\n",
     "  %5 = f64[2,3] constant {value=3., dtype=f64, shape=[2,3]}\n  output %5\n"},
    {"integers beyond 2^53 do not fold",
     "%5 = i64[4] constant {value=9007199254740992., dtype=i64, shape=[4]}\n%6 = i64[4] add %5, %5\noutput "
     "%6\n",
     "  %5 = i64[4] constant {value=9007199254740992., dtype=i64, shape=[4]}\n  %6 = i64[4] add %5, %5\n  "
     "output %6\n"},
    {"a division by zero stays",
     "%5 = i64[4] constant {value=0., dtype=i64, shape=[4]}\n%6 = i64[4] remainder %5, %5\noutput %6\n",
     "  %5 = i64[4] constant {value=0., dtype=i64, shape=[4]}\n  %6 = i64[4] remainder %5, %5\n  output "
     "%6\n"},
    {"sum over nothing", "%5 = f32[2,3] sum %0 {dims=()}\noutput %5\n", "  output %0\n"},
    {"amax of a constant",
     "%5 = f32[2,3] constant {value=4., dtype=f32, shape=[2,3]}\n%6 = f32[3] amax %5 {dims=(0)}\noutput %6\n",
     "  %5 = f32[3] constant {value=4., dtype=f32, shape=[3]}\n  output %5\n"},
    {"expand of a constant",
     "%5 = f32[] constant {value=2., dtype=f32, shape=[]}\n%6 = f32[7] expand %5 {shape=[7]}\noutput %6\n",
     "  %5 = f32[7] constant {value=2., dtype=f32, shape=[7]}\n  output %5\n"},
    {"expand of expand",
     "%5 = f32[2,3] expand %4 {shape=[2,3]}\n%6 = f32[5,2,3] expand %5 {shape=[5,2,3]}\noutput %6\n",
     "  %5 = f32[5,2,3] expand %4 {shape=[5,2,3]}\n  output %5\n"},
    {"expand of a reshape that adds ones",
     "%5 = f32[3] reshape %4 {shape=[3]}\n%6 = f32[1,1,3] reshape %5 {shape=[1,1,3]}\n"
     "%7 = f32[2,5,3] expand %6 {shape=[2,5,3]}\noutput %7\n",
     "  %5 = f32[2,5,3] expand %4 {shape=[2,5,3]}\n  output %5\n"},
    {"reshape of reshape, back",
     "%5 = f32[6] reshape %0 {shape=[6]}\n%6 = f32[2,3] reshape %5 {shape=[2,3]}\noutput %6\n",
     "  output %0\n"},
    {"permute of permute, back",
     "%5 = f32[3,2] permute %0 {dims=(1,0)}\n%6 = f32[2,3] permute %5 {dims=(1,0)}\noutput %6\n",
     "  output %0\n"},
    {"permute that moves a one", "%5 = f32[3,1] permute %4 {dims=(1,0)}\noutput %5\n",
     "  %5 = f32[3,1] reshape %4 {shape=[3,1]}\n  output %5\n"},
    {"whole slice", "%5 = f32[2,3] slice %0 {starts=[0,0], stops=[2,3], steps=(1,1)}\noutput %5\n",
     "  output %0\n"},
    {"slice of slice",
     "%5 = f32[2,2] slice %0 {starts=[0,1], stops=[2,3], steps=(1,1)}\n"
     "%6 = f32[1,1] slice %5 {starts=[1,1], stops=[2,2], steps=(1,1)}\noutput %6\n",
     "  %5 = f32[1,1] slice %0 {starts=[1,2], stops=[2,3], steps=(1,1)}\n  output %5\n"},
    {"slice of cat",
     "%5 = f32[4,3] cat %0, %1 {dim=0}\n%6 = f32[2,3] slice %5 {starts=[2,0], stops=[4,3], "
     "steps=(1,1)}\noutput %6\n",
     "  output %1\n"},
    {"flips cancel", "%5 = f32[2,3] flip %0 {dims=(1,0)}\n%6 = f32[2,3] flip %5 {dims=(0)}\noutput %6\n",
     "  %5 = f32[2,3] flip %0 {dims=(1)}\n  output %5\n"},
    {"flip of a one", "%5 = f32[1,3] flip %4 {dims=(0)}\noutput %5\n", "  output %4\n"},
    {"empty pad", "%5 = f32[2,3] pad %0 {low=[0,0], high=[0,0], interior=(0,0), value=1.}\noutput %5\n",
     "  output %0\n"},
    {"windows of one element", "%5 = f32[2,3,1] window %0 {dim=1, size=1, step=1, dilation=4}\noutput %5\n",
     "  %5 = f32[2,3,1] reshape %0 {shape=[2,3,1]}\n  output %5\n"},
    {"windows of every second element stay",
     "%5 = f32[2,2,1] window %0 {dim=1, size=1, step=2, dilation=1}\noutput %5\n",
     "  %5 = f32[2,2,1] window %0 {dim=1, size=1, step=2, dilation=1}\n  output %5\n"},
    {"windows of a constant",
     "%5 = f32[4] constant {value=2., dtype=f32, shape=[4]}\n"
     "%6 = f32[3,2] window %5 {dim=0, size=2, step=1, dilation=1}\noutput %6\n",
     "  %5 = f32[3,2] constant {value=2., dtype=f32, shape=[3,2]}\n  output %5\n"},
    {"skew by nothing", "%5 = f32[2,3] skew %0 {dim=0, by=0, size=[2]}\noutput %5\n", "  output %0\n"},
    {"skew of a constant stays",
     "%5 = f32[2,3] constant {value=2., dtype=f32, shape=[2,3]}\n"
     "%6 = f32[2,3] skew %5 {dim=0, by=1, size=[2]}\noutput %6\n",
     "  %5 = f32[2,3] constant {value=2., dtype=f32, shape=[2,3]}\n"
     "  %6 = f32[2,3] skew %5 {dim=0, by=1, size=[2]}\n  output %6\n"},
    {"cat of one", "%5 = f32[2,3] cat %0 {dim=1}\noutput %5\n", "  output %0\n"},
};

TEST(Passes, SimplifyTextInTextOut) {
  for (const Rule& r : kRules) {
    SCOPED_TRACE(r.name);
    EXPECT_EQ(through([](const Graph& g) { return eliminate_dead_code(simplify(g)); }, r.before), r.after);
  }
}

TEST(Passes, SymbolicSizesSurvive) {
  const Graph g = parse_graph(
      "graph s {\n  %0 = input f32[B,4] arg\n  %1 = f32[4*B] reshape %0 {shape=[4*B]}\n"
      "  %2 = f32[B,4] reshape %1 {shape=[B,4]}\n  %3 = f32[B] sum %2 {dims=(1)}\n  output %3\n}\n");
  EXPECT_EQ(print(optimize(g)),
            "graph s {\n  %0 = input f32[B,4] arg\n  %1 = f32[B] sum %0 {dims=(1)}\n  output %1\n}\n");
}

TEST(Passes, OutputsAndNamesStay) {
  const Graph g = parse_graph(
      "graph s {\n  %0 = input f32[4] param \"w\"\n  %1 = f32[4] neg %0\n  %2 = f32[4] neg %1\n"
      "  output %2 alias=0 \"w\"\n}\n");
  EXPECT_EQ(print(optimize(g)), "graph s {\n  %0 = input f32[4] param \"w\"\n  output %0 alias=0 \"w\"\n}\n");
}

RandomGraphOptions options_for(uint64_t seed) {
  RandomGraphOptions o;
  o.chain = seed % 3 == 1;
  o.halves = seed % 5 == 2;
  o.empty_percent = seed % 7 == 3 ? 15 : 2;
  o.nodes = 6 + static_cast<int>(seed % 20);
  return o;
}

TEST(PassesFuzz, OptimizeKeepsEveryBit) {
  size_t elements = 0, strange = 0, before = 0, after = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Graph g = random_graph(seed, options_for(seed));
    const Graph h = optimize(g);
    verify(h);
    before += g.nodes.size(), after += h.nodes.size();
    const std::vector<HostTensor> in = random_inputs(g, seed);
    const std::vector<HostTensor> want = interpret(g, in), got = interpret(h, in);
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(bit_difference(want[i], got[i]), "") << "seed " << seed << " output " << i << "\n"
                                                     << print(g) << print(h);
      for (double v : numbers(want[i])) ++elements, strange += !std::isfinite(v) || v == 0;
    }
    ASSERT_EQ(print(optimize(h)), print(h)) << "seed " << seed << ": not a fixed point";
  }
  EXPECT_LT(after, before * 9 / 10);
  EXPECT_LT(strange, elements / 2) << "the fuzzer computes mostly zeros, NaN and infinities";
}

TEST(PassesFuzz, EveryOpOccursAndEveryGraphReadsBack) {
  std::map<std::string_view, int> seen;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Graph g = random_graph(seed, options_for(seed));
    for (const Node& n : g.nodes) ++seen[def(n.op).name];
    const std::string text = print(g);
    ASSERT_EQ(print(parse_graph(text)), text) << "seed " << seed;
    const std::string key = print(g, {.canonical = true});
    ASSERT_EQ(print(parse_graph(key), {.canonical = true}), key) << "seed " << seed;
  }
  for (const OpDef* d : all_ops()) EXPECT_GT(seen[d->name], 0) << d->name;
}

}  // namespace KILN_FILE
}  // namespace kiln
