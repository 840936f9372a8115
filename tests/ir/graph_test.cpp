// SPDX-License-Identifier: Apache-2.0
// Building, printing, parsing and verifying graphs. Faults of the parser name line and column.
#include "ir/graph.h"

#include <gtest/gtest.h>

#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using Ints = std::vector<int64_t>;

constexpr const char* kText = R"(graph mlp {
  %0 = input f32[B,784] arg "x"
  %1 = input f32[10,784] param "fc.weight"
  %2 = input i64[] scalar
  %3 = f32[B,10] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[B,10] constant {value=0.1, dtype=f32, shape=[B,10]}
  %5 = f32[B,10] mul %3, %4
  %6 = f32[10,784] neg %1
  %7 = f32[B,7] slice %5 {starts=[0,3], stops=[B,10], steps=(1,1)}
  %8 = bool[B,7] lt %7, %7
  %9 = f32[5] random_uniform %2, %2 {shape=[5]}
  output %8 "mask"
  output %6 alias=1 "fc.weight"
  output %9
}
)";

TEST(Graph, PrintsWhatItParses) {
  const Graph g = parse_graph(kText);
  verify(g);
  EXPECT_EQ(print(g), kText);
  EXPECT_EQ(g.inputs.size(), 3u);
  EXPECT_EQ(g.inputs[1].kind, InputKind::param);
  EXPECT_EQ(g.outputs[1].alias_input, 1);
  EXPECT_EQ(g.producer(g.inputs[0].value), -1);
  EXPECT_EQ(def(g.nodes[static_cast<size_t>(g.producer(g.outputs[0].value))].op).name, "lt");
}

TEST(Graph, GuardsArePrintedAndChecked) {
  const std::string text =
      "graph t {\n  %0 = input i64[] arg\n  %1 = i64[] neg %0\n  output %0 alias=0 \"x\"\n"
      "  output %1 guard\n}\n";
  Graph g = parse_graph(text);
  EXPECT_EQ(print(g), text);
  EXPECT_FALSE(g.outputs[0].guard);
  EXPECT_TRUE(g.outputs[1].guard);
  EXPECT_NE(print(g, {.canonical = true}).find("output %1 guard"), std::string::npos);
  verify(g);
  g.outputs[1].alias_input = 0;
  EXPECT_THROW(verify(g), Error);
  g = parse_graph("graph t {\n  %0 = input f32[] arg\n  output %0 guard\n}\n");
  EXPECT_THROW(verify(g), Error);
}

TEST(Graph, CanonicalTextHasNoNamesOriginsOrNumbersOfOldValues) {
  Graph g;
  g.name = "step";
  const Value x = g.add_input({DType::f32, {2}}, InputKind::param, "w");
  const Origin origin{{"/src/model.cpp", 21}, g.intern_scope("blocks.0/linear")};
  const Value y = g.add_node(op("neg"), {{x}}, {}, origin);
  const Value late = g.add_input({DType::f32, {2}}, InputKind::arg, "late");
  g.add_output(g.add_node(op("add"), {{y, late}}, {}), -1, "out");
  EXPECT_EQ(print(g), R"(graph step {
  %0 = input f32[2] param "w"
  %1 = input f32[2] arg "late"
  %2 = f32[2] neg %0  // model.cpp:21 blocks.0/linear
  %3 = f32[2] add %2, %1
  output %3 "out"
}
)");
  EXPECT_EQ(print(g, {.canonical = true}), R"(graph g {
  %0 = input f32[2] param
  %1 = input f32[2] arg
  %2 = f32[2] neg %0
  %3 = f32[2] add %2, %1
  output %3
}
)");
  const std::string plain = print(g, {.origins = false});
  EXPECT_EQ(plain.find("//"), std::string::npos);
  EXPECT_EQ(print(parse_graph(print(g))), plain);
  EXPECT_EQ(g.intern_scope("blocks.0/linear"), 0);
}

TEST(Graph, RealAttributesReadBackExactly) {
  for (double v : {0.1, -0.0, 1e300, 5e-324, 1. / 3, 123456789.0, -2.5e-7, 9007199254740993.0,
                   double(INFINITY), -double(INFINITY), double(NAN)}) {
    Graph g;
    g.add_output(GraphBuilder(g).constant(v, {DType::f64, {}}));
    const Graph h = parse_graph(print(g));
    const double back = std::get<double>(h.nodes[0].attrs[0]);
    EXPECT_TRUE(std::memcmp(&back, &v, sizeof v) == 0 || (std::isnan(back) && std::isnan(v))) << v;
  }
}

TEST(Graph, NamesMayHoldQuotes) {
  Graph g;
  g.add_output(g.add_input({DType::f32, {}}, InputKind::arg, R"(a "b" \c)"), -1, "\"");
  EXPECT_EQ(print(parse_graph(print(g))), print(g));
  for (const char* name : {"gpt-small", "", "a \"b\"", "one_word2"}) {
    g.name = name;
    EXPECT_EQ(parse_graph(print(g)).name, name) << print(g);
  }
}

std::string parse_fault(const std::string& body) {
  try {
    parse_graph("graph t {\n  %0 = input f32[2,3] arg\n" + body);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid);
    return e.what();
  }
  return "no error";
}

TEST(Graph, ParserNamesLineAndColumn) {
  EXPECT_EQ(parse_fault("  %1 = f32[2,3] expp %0\n}\n"), "parse_graph: line 3, column 17: expected an op");
  EXPECT_EQ(parse_fault("  %1 = f32[2,3] exp %7\n}\n"),
            "parse_graph: line 3, column 21: expected a value that is defined above");
  EXPECT_EQ(parse_fault("  %0 = f32[2,3] exp %0\n}\n"),
            "parse_graph: line 3, column 5: expected a value number not used before");
  EXPECT_EQ(parse_fault("  %1 = f23[2,3] exp %0\n}\n"), "parse_graph: line 3, column 8: expected a dtype");
  EXPECT_EQ(parse_fault("  %1 = f32[2,3] exp %0, %0\n}\n"),
            "parse_graph: line 3, column 17: expected 1 operands of exp");
  EXPECT_EQ(parse_fault("  %1 = f32[3] sum %0 {dim=(0)}\n}\n"),
            "parse_graph: line 3, column 23: expected 'dims'");
  EXPECT_EQ(parse_fault("  %1 = f32[3] sum %0 {dims=(0}\n}\n"),
            "parse_graph: line 3, column 30: expected ')'");
  EXPECT_EQ(parse_fault("  %1 = f32[2] sum %0 {dims=(0)}\n}\n"),
            "parse_graph: line 3, column 8: expected type f32[3] for sum");
  EXPECT_EQ(parse_fault("  output %0 \"x\n"), "parse_graph: line 4, column 1: expected '\"'");
  EXPECT_EQ(parse_fault("  output %0"), "parse_graph: line 3, column 12: expected '%'");
  EXPECT_EQ(parse_fault("}\ngraph u {}"), "parse_graph: line 4, column 1: expected end of text");
  EXPECT_EQ(parse_fault("  %1 = input f32[] argument\n}"),
            "parse_graph: line 3, column 28: expected arg, param, state, scalar or captured");
  EXPECT_EQ(parse_fault("  %1 = f32[3] sum %0 {dims=(5)}\n}\n"),
            "sum: dims out of range; got 5, expected 0 to 1");
}

std::string verify_fault(const Graph& g) {
  try {
    verify(g);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    const std::string what = e.what();
    // "internal error at graph.cpp:LINE: CONDITION does not hold: TEXT (please report this)"
    const size_t at = what.find("does not hold: ") + 15;
    return what.substr(at, what.find(" (please") - at);
  }
  return "no fault";
}

TEST(Graph, VerifierFindsFaults) {
  const Graph good = parse_graph(
      "graph t {\n  %0 = input f32[2] arg\n  %1 = f32[2] exp %0\n  %2 = f32[2] neg %1\n  output %2\n}\n");
  EXPECT_EQ(verify_fault(good), "no fault");
  Graph g = good;
  std::swap(g.nodes[0], g.nodes[1]);
  EXPECT_EQ(verify_fault(g), "neg: value %1 is used before it is defined");
  g = good;
  g.nodes.pop_back();
  EXPECT_EQ(verify_fault(g), "output: value %2 is used before it is defined");
  g = good;
  g.nodes.push_back(g.nodes[0]);
  EXPECT_EQ(verify_fault(g), "%1 is defined twice");
  g = good;
  g.nodes[1].op = op("isnan");
  EXPECT_EQ(verify_fault(g), "isnan: %2 has type f32[2], its rule gives bool[2]");
  g = good;
  g.nodes[1].in.push_back(g.nodes[1].in[0]);
  EXPECT_EQ(verify_fault(g), "neg takes 1 operands, got 2");
  g = good;
  g.nodes[1].attrs = {1.0};
  EXPECT_EQ(verify_fault(g), "neg takes 0 attributes, got 1");
  g = good;
  g.outputs[0].alias_input = 4;
  EXPECT_EQ(verify_fault(g), "output aliases input 4");
  g = good;
  g.outputs[0].alias_input = 0;
  EXPECT_EQ(verify_fault(g), "no fault");
  g.add_input({DType::f64, {2}}, InputKind::state, "s");
  g.outputs[0].alias_input = 1;
  EXPECT_EQ(verify_fault(g), "output of type f32[2] aliases input of type f64[2]");
  g.inputs[1].kind = InputKind::scalar;
  EXPECT_EQ(verify_fault(g), "scalar input s is not 0-d");
}

TEST(Graph, TypesCarrySymbols) {
  const Dim b = Dim::symbol("B");
  Graph g;
  GraphBuilder build(g);
  const Value x = g.add_input({DType::f32, {b, 4}}, InputKind::arg, "x");
  const auto shape = [&](Value v) { return shape_str(g.type(v).shape); };
  EXPECT_EQ(shape(build.reshape(x, {b * Dim(4)})), "[4*B]");
  EXPECT_EQ(shape(build.emit(op("cat"), {x, x}, {int64_t{0}})), "[2*B,4]");
  EXPECT_EQ(shape(build.emit(op("pad"), {x}, {Shape{1, 0}, Shape{b, 0}, Ints{0, 0}, 0.0})), "[2*B+1,4]");
  EXPECT_EQ(shape(build.emit(op("slice"), {x}, {Shape{1, 0}, Shape{b, 4}, Ints{1, 1}})), "[B-1,4]");
  EXPECT_EQ(shape(build.sum_to(x, {1, 4})), "[1,4]");
  EXPECT_THROW(build.reshape(x, {b}), Error);
  EXPECT_THROW(build.emit(op("add"), {x, build.expand(build.constant(0, {DType::f32, {}}), {4, 4})}), Error);
}

}  // namespace KILN_FILE
}  // namespace kiln
