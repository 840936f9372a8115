// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_trial.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

struct Count {
  int alone = 0, team = 0;
};

Count run(ThreadTrial& trial, int calls, double alone_ns, double team_ns) {
  Count c;
  for (int i = 0; i < calls; ++i) {
    const int threads = trial.choose(4);
    EXPECT_TRUE(threads == 1 || threads == 4);
    ++(threads == 1 ? c.alone : c.team);
    trial.note(threads, threads == 1 ? alone_ns : team_ns);
  }
  return c;
}

TEST(ThreadTrial, TakesTheQuickerAndSeldomTheOther) {
  ThreadTrial trial;
  const Count c = run(trial, 10000, 17'000, 34'000);
  EXPECT_GE(c.team, 3 + 100);
  EXPECT_LE(c.team, 3 + 10000 / 50);
  ThreadTrial other;
  EXPECT_LE(run(other, 10000, 34'000, 17'000).alone, 3 + 10000 / 50);
}

TEST(ThreadTrial, ASlowTeamCostsTwoPerCent) {
  ThreadTrial trial;
  run(trial, 100, 17'000, 800'000);
  const Count c = run(trial, 100'000, 17'000, 800'000);
  EXPECT_GT(c.team, 10);
  EXPECT_LT(c.team * 783'000.0, 0.03 * 100'000 * 17'000);
}

TEST(ThreadTrial, FollowsAChange) {
  ThreadTrial trial;
  run(trial, 1000, 20'000, 12'000);
  const Count busy = run(trial, 2000, 20'000, 400'000);  // somebody else takes the other core
  EXPECT_LT(busy.team, 30);
  run(trial, 5000, 20'000, 12'000);
  EXPECT_GT(run(trial, 2000, 20'000, 12'000).team, 1900);
}

TEST(ThreadTrial, TheFirstCallsMayBeCold) {
  ThreadTrial trial;
  for (int i = 0; i < 6; ++i) {
    const int threads = trial.choose(2);
    EXPECT_EQ(threads, i % 2 ? 2 : 1);
    trial.note(threads, i < 2 ? 1e6 : threads == 1 ? 10'000 : 20'000);
  }
  EXPECT_EQ(trial.choose(2), 1);
}

}  // namespace KILN_FILE
}  // namespace kiln
