// SPDX-License-Identifier: Apache-2.0
// A plain SGD step by a gradient of few rows becomes an update of these rows, and nothing else does.
#include <gtest/gtest.h>

#include "ir/passes.h"
#include "tests/ir/random_graph.h"
#include "tests/ir/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// A table of 6 rows, 4 lookups (row 2 twice), and a step down `gradient` of %9 in place.
std::string step(const std::string& gradient, const std::string& outputs = "") {
  return "graph g {\n  %0 = input f32[6,3] param\n  %1 = input i64[4] arg\n  %2 = input f32[4,3] arg\n"
         "  %3 = input f32[] scalar\n  %4 = f32[6,3] constant {value=0., dtype=f32, shape=[6,3]}\n"
         "  %5 = f32[6,3] index_add %4, %1, %2 {dim=0}\n  %6 = f32[6,3] expand %3 {shape=[6,3]}\n" +
         gradient + "  output %8 alias=0\n" + outputs + "}\n";
}
const std::string kPlain = "  %7 = f32[6,3] mul %5, %6\n  %8 = f32[6,3] sub %0, %7\n";

TEST(RowUpdates, PlainStepsTouchTheRowsAlone) {
  const Graph g = parse_graph(step(kPlain)), after = optimize(g);
  verify(after);
  EXPECT_EQ(print(after, {.canonical = true}), R"(graph g {
  %0 = input f32[6,3] param
  %1 = input i64[4] arg
  %2 = input f32[4,3] arg
  %3 = input f32[] scalar
  %4 = f32[4,3] expand %3 {shape=[4,3]}
  %5 = f32[4,3] mul %2, %4
  %6 = f32[4,3] neg %5
  %7 = f32[6,3] index_add %0, %1, %6 {dim=0}
  output %7 alias=0
}
)");
  Rng rng{1};
  const std::vector<HostTensor> in = {random_tensor(DType::f32, {6, 3}, rng, -1, 1),
                                      tensor(DType::i64, {4}, {2, 5, 2, -1}),
                                      random_tensor(DType::f32, {4, 3}, rng, -1, 1), scalar(DType::f32, 0.1)};
  const std::vector<double> x = numbers(interpret(g, in)[0]), y = numbers(interpret(after, in)[0]),
                            p = numbers(in[0]);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x[i], y[i], 1e-6) << i;
    const size_t row = i / 3;
    if (row == 2 || row == 5) continue;
    EXPECT_EQ(y[i], p[i]) << "row " << row << " was not looked up";
  }
}

TEST(RowUpdates, OtherStepsStay) {
  EXPECT_TRUE(update_rows(parse_graph(step(kPlain))));
  EXPECT_FALSE(update_rows(parse_graph(step(kPlain, "  output %5\n")))) << "the gradient is wanted";
  EXPECT_FALSE(update_rows(parse_graph(step(kPlain, "  output %8\n")))) << "another wants the new value";
  EXPECT_FALSE(update_rows(parse_graph(step("  %7 = f32[6,3] mul %5, %6\n  %8 = f32[6,3] add %0, %7\n"))));
  EXPECT_FALSE(update_rows(parse_graph(step("  %7 = f32[6,3] mul %5, %0\n  %8 = f32[6,3] sub %0, %7\n"))))
      << "every row has a rate of its own";
  EXPECT_FALSE(update_rows(parse_graph(step("  %7 = f32[6,3] mul %5, %6\n  %8 = f32[6,3] sub %5, %7\n"))))
      << "nothing of the parameter is left";
}

}  // namespace KILN_FILE
}  // namespace kiln
