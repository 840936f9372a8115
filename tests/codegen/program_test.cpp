// SPDX-License-Identifier: Apache-2.0
// Whole programs: text of a graph -> kernels -> results against the interpreter.
#include "codegen/program.h"

#include <gtest/gtest.h>

#include "tests/codegen/compiled.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace {

using testing::difference;

void expect_same(std::string_view text, int64_t length = 64) {
  const Graph g = parse_graph(text);
  verify(g);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const std::vector<HostTensor> want = interpret(g, inputs);
  for (bool fuse : {true, false}) {
    const CompiledProgram p = compile_program(g, {}, host_target(), {.fuse = fuse}, nullptr, 1);
    const auto loaded = testing::load(p);
    for (int threads : {1, 2}) {
      const std::vector<HostTensor> got = testing::execute(g, *loaded.exe, inputs, threads);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(difference(got[i], want[i], length), "")
            << "output " << i << (fuse ? " fused" : " apart") << "\n"
            << print(p.plan);
    }
  }
}

TEST(Program, Pointwise) {
  expect_same(R"(graph g {
  %0 = input f32[5,7] arg
  %1 = input f32[5,7] arg
  %2 = f32[5,7] mul %0, %1
  %3 = f32[5,7] exp %2
  output %3
})");
}

TEST(Program, Softmax) {
  expect_same(R"(graph g {
  %0 = input f32[6,37] arg
  %1 = f32[6] amax %0 {dims=(1)}
  %2 = f32[6,1] reshape %1 {shape=[6,1]}
  %3 = f32[6,37] expand %2 {shape=[6,37]}
  %4 = f32[6,37] sub %0, %3
  %5 = f32[6,37] exp %4
  %6 = f32[6] sum %5 {dims=(1)}
  %7 = f32[6,1] reshape %6 {shape=[6,1]}
  %8 = f32[6,37] expand %7 {shape=[6,37]}
  %9 = f32[6,37] div %5, %8
  output %9
})");
}

TEST(Program, MatmulBias) {
  expect_same(R"(graph g {
  %0 = input f32[9,33] arg
  %1 = input f32[17,33] param
  %2 = input f32[17] param
  %3 = f32[9,17] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[9,17] expand %2 {shape=[9,17]}
  %5 = f32[9,17] add %3, %4
  %6 = f32[17] sum %5 {dims=(0)}
  output %5
  output %6
})");
}

}  // namespace
}  // namespace kiln
