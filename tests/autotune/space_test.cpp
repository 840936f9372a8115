// SPDX-License-Identifier: Apache-2.0
// Candidates: the default first, each once, all of them printable kernels, and numeric parts moved only on
// purpose.
#include "autotune/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/autotune/graphs.h"

namespace kiln {
namespace KILN_FILE {

std::vector<TunableKernel> kernels(const char* graph, const char* target = "x86-64-v4") {
  return tunable_kernels(parse_graph(graph), {}, parse_target(target));
}

TEST(Space, DefaultFirstEachOnceAndAllFit) {
  for (const char* graph : {testing::kLayer, testing::kDeep})
    for (const char* target : {"x86-64-v3", "x86-64-v4"})
      for (const TunableKernel& k : kernels(graph, target)) {
        const std::vector<std::string> all = candidate_schedules(k);
        EXPECT_EQ(all.front(), default_schedule(k));
        EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
        EXPECT_GT(all.size(), 1u) << all.front();
        EXPECT_LT(all.size(), 24u);
        EXPECT_EQ(all, candidate_schedules(k));
        for (const std::string& s : all) EXPECT_NO_THROW(lower_alone(k, s, parse_target(target))) << s;
      }
}

TEST(Space, SplitsVaryOnlyWhereTheRulesSplit) {
  const auto numbers = [](const TunableKernel& k) {
    std::set<std::string> out;
    for (const std::string& s : candidate_schedules(k)) out.insert(std::string(numeric_part(s)));
    return out;
  };
  for (const TunableKernel& k : kernels(testing::kLayer)) {
    if (!std::holds_alternative<MatmulCase>(k.what)) continue;
    EXPECT_EQ(numbers(k).size(), 1u);
  }
  const auto deep = kernels(testing::kDeep);
  ASSERT_EQ(deep.size(), 1u);
  EXPECT_GT(numbers(deep[0]).size(), 2u);
  EXPECT_TRUE(numbers(deep[0]).count("matmul split_k=1"));
}

// Partial results have one place per task, whose number is the plan's.
TEST(Space, RowsPerTaskStayWhereResultsArePartial) {
  for (const TunableKernel& k : kernels(testing::kLayer)) {
    const auto* rows = std::get_if<loop::Kernel>(&k.what);
    if (!rows || !rows->has(loop::InstrKind::partial)) continue;
    for (const std::string& s : candidate_schedules(k)) EXPECT_EQ(parse_row_schedule(s)->rows, 0);
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
