// SPDX-License-Identifier: Apache-2.0
// CPUs among ranks: disjoint while there are enough, all of them used, shared evenly beyond that.
#include "cli/cpu_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>

namespace kiln::cli {
namespace KILN_FILE {

using ::testing::ElementsAre;

TEST(CpuSets, RunsAreDisjointAndOfEqualLength) {
  EXPECT_THAT(share_cpus({0, 4, 1, 5}, 2), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5)));
  EXPECT_THAT(share_cpus({7, 8, 9, 3, 2}, 2), ElementsAre(ElementsAre(7, 8), ElementsAre(9, 3, 2)));
  EXPECT_THAT(share_cpus({6}, 1), ElementsAre(ElementsAre(6)));
  for (int ranks = 1; ranks <= 17; ++ranks) {
    std::vector<int> cpus(17);
    for (int i = 0; i < 17; ++i) cpus[static_cast<size_t>(i)] = i * 3;
    std::set<int> seen;
    for (const auto& own : share_cpus(cpus, ranks)) {
      EXPECT_GE(own.size(), static_cast<size_t>(17 / ranks));
      EXPECT_LE(own.size(), static_cast<size_t>(17 / ranks + 1));
      for (int cpu : own) EXPECT_TRUE(seen.insert(cpu).second) << ranks << " ranks, CPU " << cpu;
    }
    EXPECT_EQ(seen.size(), 17u) << ranks;
  }
}

TEST(CpuSets, MoreRanksThanCpusShareThem) {
  EXPECT_THAT(share_cpus({5, 6}, 5),
              ElementsAre(ElementsAre(5), ElementsAre(5), ElementsAre(5), ElementsAre(6), ElementsAre(6)));
}

TEST(CpuSets, OnlyTheCpusThisProcessMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const std::vector<int> all = usable_cpus();
  EXPECT_EQ(static_cast<int>(all.size()), CPU_COUNT(&before));
  for (int cpu : all) EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &before)) << cpu;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_THAT(usable_cpus(), ElementsAre(all.back()));
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace KILN_FILE
}  // namespace kiln::cli
