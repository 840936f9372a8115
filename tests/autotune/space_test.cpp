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

int count_blis(const std::vector<std::string>& all) {
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [](const std::string& s) { return !!parse_blis_schedule(s); }));
}

// A library and an epilogue apart move numeric parts: they are for a wide search alone.
TEST(Space, WideOnesHaveALibraryAndTheEpilogueApart) {
  for (const char* graph : {testing::kLayer, testing::kDeep})
    for (const TunableKernel& k : kernels(graph)) {
      const auto* c = std::get_if<MatmulCase>(&k.what);
      const std::vector<std::string> all = testing::wide_schedules(k);
      EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
      EXPECT_EQ(count_blis(all) > 0, c != nullptr);
      EXPECT_EQ(std::any_of(all.begin(), all.end(), has_epilogue_apart), c && c->fused.epilogue);
      EXPECT_EQ(count_blis(candidate_schedules(k)), 0);
      for (const std::string& s : all) EXPECT_NO_THROW(lower_alone(k, s, parse_target("x86-64-v4"))) << s;
    }
}

constexpr const char* kHalves = R"(graph halves {
  %0 = input bf16[96,64] arg
  %1 = input bf16[64,128] param
  %2 = bf16[96,128] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %3 = bf16[96,128] tanh %2
  output %3
})";

TEST(Space, HalvesAndComputedOperandsAreLeftToTheTemplate) {
  const std::vector<TunableKernel> halves = kernels(kHalves);
  ASSERT_EQ(halves.size(), 1u);
  ASSERT_TRUE(std::get<MatmulCase>(halves[0].what).fused.epilogue);
  for (const std::string& s : testing::wide_schedules(halves[0]))
    EXPECT_FALSE(parse_blis_schedule(s) || has_epilogue_apart(s)) << s;
  const auto packed = [] {
    TunableKernel k = kernels(testing::kDeep).at(0);
    std::get<MatmulCase>(k.what).fused.prologue[0].emplace();
    return k;
  }();
  ScheduleSpace space(packed, SpaceSize::wide);
  EXPECT_EQ(space.with_numbers("blis tile=64x64"), space.first());
}

// Tiles are numeric part: what is found on one thread must leave work for others.
TEST(Space, TilesOfALibraryAreNeverFew) {
  const TunableKernel k = kernels(testing::kWide).at(0);
  ScheduleSpace space(k, SpaceSize::wide);
  std::vector<std::string> open = {space.with_numbers("blis tile=256x256")};
  EXPECT_EQ(open[0], "blis tile=256x256;");
  size_t seen = 0;
  for (; !open.empty(); ++seen) {
    const BlisSchedule s = *parse_blis_schedule(open.back());
    EXPECT_GE((1024 / s.tile_m) * (1024 / s.tile_n), 8) << open.back();
    const std::string from = open.back();
    open.pop_back();
    for (const std::string& next : space.around(from)) open.push_back(next);
  }
  EXPECT_GT(seen, 4u);
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
