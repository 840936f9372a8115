// SPDX-License-Identifier: Apache-2.0
#include "ir/interpret.h"

#include <gtest/gtest.h>

#include "ir/plan.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Numbers = std::vector<double>;

HostTensor vec(const Numbers& v) { return tensor(DType::f32, {static_cast<int64_t>(v.size())}, v); }

TEST(Interpret, RunsNodesInOrderAndShowsEach) {
  const Graph g = parse_graph(
      "graph t {\n  %0 = input f32[2] arg\n  %1 = f32[2] neg %0\n  %2 = f32[2] mul %1, %0\n  output %2\n  "
      "output %0\n}\n");
  std::vector<Numbers> seen;
  const auto out = interpret(g, std::vector<HostTensor>{vec({1, 2})}, [&](int node, const HostTensor& t) {
    EXPECT_EQ(node, static_cast<int>(seen.size()));
    seen.push_back(numbers(t));
  });
  EXPECT_EQ(numbers(out[0]), (Numbers{-1, -4}));
  EXPECT_EQ(numbers(out[1]), (Numbers{1, 2}));
  EXPECT_EQ(seen, (std::vector<Numbers>{{-1, -2}, {-1, -4}}));
}

TEST(Interpret, SymbolsTakeTheInputsSizes) {
  const Graph g = parse_graph(
      "graph t {\n  %0 = input f32[B] arg\n  %1 = input f32[2*B] arg\n  %2 = f32[2*B] cat %0, %0 {dim=0}\n"
      "  %3 = f32[2*B] mul %2, %1\n  %4 = f32[B,2] reshape %3 {shape=[B,2]}\n  output %4\n}\n");
  for (int64_t b : {1, 3}) {
    std::vector<HostTensor> in = {vec(Numbers(static_cast<size_t>(b), 2)),
                                  vec(Numbers(static_cast<size_t>(2 * b), 3))};
    const HostTensor out = interpret(g, in)[0];
    EXPECT_EQ(out.ref.shape, (std::vector<int64_t>{b, 2}));
    EXPECT_EQ(numbers(out), Numbers(static_cast<size_t>(2 * b), 6));
  }
}

std::string fault(const Graph& g, const std::vector<HostTensor>& in) {
  try {
    interpret(g, in);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Interpret, WrongInputsAndFailingNodesAreNamed) {
  const Graph g = parse_graph("graph t {\n  %0 = input f32[B,B] arg \"x\"\n  output %0\n}\n");
  EXPECT_EQ(fault(g, {}), "interpret: t takes 1 inputs, got 0");
  EXPECT_EQ(fault(g, {tensor(DType::f32, {1, 2}, {1, 2})}),
            "interpret: input 0 'x' has the wrong type; got f32[1,2], expected f32[B,B]");
  EXPECT_EQ(fault(g, {tensor(DType::f64, {1, 1}, {1})}),
            "interpret: input 0 'x' has the wrong type; got f64[1,1], expected f32[B,B]");
  Graph h;
  const Value x = h.add_input({DType::f32, {2}}, InputKind::arg, "x"),
              i = h.add_input({DType::i64, {}}, InputKind::arg, "i");
  h.add_output(h.add_node(op("take"), {{x, i}}, {int64_t{0}}, {{"net.cpp", 7}, -1}));
  EXPECT_EQ(fault(h, {vec({1, 2}), scalar(DType::i64, 2)}),
            "take: index out of range; got 2 at position 0, expected -2 to 1 (at net.cpp:7)");
}

TEST(Interpret, StopsAtAGuardThatDoesNotHold) {
  Graph g = parse_graph(R"(graph g {
    %0 = input i64[] arg
    %1 = i64[] neg %0
    %2 = i64[] neg %1
    output %2
    output %1 guard
  })");
  int nodes = 0;
  const auto run = [&](int64_t v) {
    nodes = 0;
    return interpret(g, {{scalar(DType::i64, static_cast<double>(v))}},
                     [&](int, const HostTensor&) { ++nodes; });
  };
  std::vector<HostTensor> results = run(5);
  EXPECT_EQ(nodes, 1);
  EXPECT_EQ(results[0].ref.data, nullptr);
  EXPECT_EQ(numbers(results[1]), Numbers{-5});
  EXPECT_FALSE(guards_hold(g, results));
  results = run(kNothingWrong);  // its negative is itself
  EXPECT_EQ(nodes, 2);
  EXPECT_TRUE(guards_hold(g, results));
}

TEST(Interpret, DenseCopiesKeepTheStorageTheyShare) {
  HostTensor dense = contiguous(evaluate(op("cast"), {{vec({1, 2})}}, {DType::f64}));
  EXPECT_NE(dense.storage, nullptr);
  EXPECT_EQ(numbers(dense), (Numbers{1, 2}));
  const HostTensor turned = evaluate(op("flip"), {{vec({1, 2})}}, {std::vector<int64_t>{0}});
  EXPECT_FALSE(is_contiguous(turned.ref));
  EXPECT_EQ(numbers(contiguous(turned)), (Numbers{2, 1}));
}

TEST(Interpret, ZeroSizesAndScalarsHaveStrides) {
  EXPECT_EQ(contiguous_strides(std::vector<int64_t>{2, 0, 3}), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_TRUE(contiguous_strides(std::vector<int64_t>{}).empty());
  EXPECT_EQ(make_host_tensor(DType::f32, {}).ref.numel(), 1);
  EXPECT_NE(make_host_tensor(DType::f32, {0}).ref.data, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(make_host_tensor(DType::u8, {3}).ref.data) % 64, 0u);
}

TEST(Interpret, OutOfMemoryIsAnError) {
  try {
    make_host_tensor(DType::f32, {int64_t{1} << 30, int64_t{1} << 20});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
    EXPECT_EQ(std::string(e.what()), "out of memory: no 4503599627370496 bytes for f32[1073741824,1048576]");
  }
}

TEST(Interpret, SizesThatOverflowAreOutOfMemory) {
  EXPECT_THROW(make_host_tensor(DType::f64, {int64_t{1} << 32, int64_t{1} << 31}), Error);
  EXPECT_EQ(make_host_tensor(DType::f64, {int64_t{1} << 32, int64_t{1} << 31, 0}).ref.numel(), 0);
}

TEST(Interpret, MatmulOfTheRuntimeIsUsed) {
  const HostFunctions saved = host_functions();
  host_functions().matmul = [](const TensorRef& a, const TensorRef& b, const TensorRef& c) {
    EXPECT_EQ(a.shape, (std::vector<int64_t>{1, 1, 2}));
    EXPECT_EQ(b.shape, (std::vector<int64_t>{1, 2, 1}));
    static_cast<float*>(c.data)[0] = 42;
  };
  using Ints = std::vector<int64_t>;
  const HostTensor out =
      evaluate(op("dot_general"), {{vec({1, 2}), vec({3, 4})}}, {Ints{}, Ints{}, Ints{0}, Ints{0}});
  host_functions() = saved;
  EXPECT_EQ(numbers(out), Numbers{42});
}

}  // namespace KILN_FILE
}  // namespace kiln
