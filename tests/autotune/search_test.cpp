// SPDX-License-Identifier: Apache-2.0
// Searches with a made-up clock: what is tried, around what, and which numeric parts may win.
#include "autotune/search.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/autotune/graphs.h"

namespace kiln {
namespace KILN_FILE {

std::vector<TunableKernel> kernels(const char* graph) {
  return tunable_kernels(parse_graph(graph), {}, parse_target("x86-64-v4"));
}

/// Runs a search in which `seconds` says how long a schedule takes. Returns how many trials there were.
int run(Search& search, const std::function<double(const std::string&)>& seconds) {
  int trials = 0;
  for (; search.trial().schedules.size() > 1; ++trials) {
    const std::vector<std::string>& all = search.trial().schedules;
    TrialResult r;
    r.compared = static_cast<int>(all.size());
    for (int i = 1; i < r.compared; ++i)
      if (seconds(all[static_cast<size_t>(i)]) < seconds(all[static_cast<size_t>(r.winner)])) r.winner = i;
    r.seconds = seconds(all[static_cast<size_t>(r.winner)]);
    r.default_seconds = seconds(all[0]);
    search.note(r);
  }
  return trials;
}

TEST(Search, FewIsOneTrialThatChangesNoBit) {
  for (const char* graph : {testing::kLayer, testing::kDeep})
    for (const TunableKernel& k : kernels(graph)) {
      Search search(k, SpaceSize::few, "");
      for (const std::string& s : search.trial().schedules)
        EXPECT_EQ(numeric_part(s), numeric_part(default_schedule(k)));
      EXPECT_LE(run(search, [](const std::string& s) { return static_cast<double>(s.size()); }), 1);
    }
}

/// A schedule is good for each choice that is as wished: only step by step is the best one reached.
TEST(Search, WideGoesOnAroundEachWinner) {
  const TunableKernel k = kernels(testing::kDeep).at(0);
  Search search(k, SpaceSize::wide, "");
  const auto seconds = [](const std::string& text) {
    if (parse_blis_schedule(text)) return 1.0;
    const MatmulSchedule s = *parse_matmul_schedule(text);
    return 1e-3 * (1 + (s.nv != 1) + (s.split_k != 1) + (s.kc > 256) + (s.pack_a != PackA::rows));
  };
  EXPECT_GE(run(search, seconds), 3);
  const auto found = search.found();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->wide);
  const MatmulSchedule s = *parse_matmul_schedule(found->schedule);
  EXPECT_EQ(s.nv, 1);
  EXPECT_EQ(s.split_k, 1) << "of another numeric part";
  EXPECT_LE(s.kc, 256);
  EXPECT_NEAR(found->default_seconds, seconds(default_schedule(k)), 1e-12);
}

TEST(Search, TriesNothingTwiceAndComesToAnEnd) {
  for (const char* graph : {testing::kLayer, testing::kDeep})
    for (const TunableKernel& k : kernels(graph)) {
      Search search(k, SpaceSize::wide, "");
      std::set<std::string> seen;
      int number = 0;
      const auto newest_wins = [&](const std::string& s) {
        seen.insert(s);
        return 1.0 / (1 + ++number);
      };
      for (int trial = 0; search.trial().schedules.size() > 1 && trial < 1000; ++trial) {
        const std::vector<std::string> all = search.trial().schedules;
        for (size_t i = 1; i < all.size(); ++i) EXPECT_FALSE(seen.count(all[i])) << all[i];
        for (const std::string& s : all) newest_wins(s);
        const int n = static_cast<int>(all.size());
        search.note({n - 1, 1e-3, 2e-3, n});
      }
      EXPECT_EQ(search.trial().schedules.size(), 1u);
    }
}

TEST(Search, KeepsANumericPartThatIsSettled) {
  const TunableKernel k = kernels(testing::kDeep).at(0);
  const std::string settled = "matmul split_k=1";
  ASSERT_NE(numeric_part(default_schedule(k)), settled);
  for (const SpaceSize size : {SpaceSize::few, SpaceSize::wide}) {
    Search search(k, size, settled);
    EXPECT_GT(search.trial().schedules.size(), 1u);
    run(search, [](const std::string& s) { return 1.0 / static_cast<double>(s.size()); });
    ASSERT_TRUE(search.found());
    EXPECT_EQ(numeric_part(search.found()->schedule), settled);
  }
}

TEST(Search, NothingComparedIsNothingFound) {
  const TunableKernel k = kernels(testing::kDeep).at(0);
  Search search(k, SpaceSize::wide, "");
  search.note({});
  EXPECT_FALSE(search.found());
  EXPECT_EQ(search.trial().schedules.size(), 1u);
}

// Where it has won, it is searched on for tiles, and other numbers of threads are given the same.
TEST(Search, ALibraryMayWin) {
  const TunableKernel k = kernels(testing::kWide).at(0);
  Search search(k, SpaceSize::wide, "");
  run(search, [](const std::string& text) {
    const auto s = parse_blis_schedule(text);
    return !s ? 1.0 : s->tile_n == 512 ? 0.5 : 0.6;
  });
  ASSERT_TRUE(search.found());
  const std::string found = search.found()->schedule;
  ASSERT_TRUE(parse_blis_schedule(found)) << found;
  EXPECT_EQ(parse_blis_schedule(found)->tile_n, 512);
  Search other(k, SpaceSize::few, std::string(numeric_part(found)));
  EXPECT_EQ(other.trial().schedules, std::vector{found});
}

}  // namespace KILN_FILE
}  // namespace kiln
