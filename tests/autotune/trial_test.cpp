// SPDX-License-Identifier: Apache-2.0
// Candidates compiled and run for real: which one is fastest is the machine's business, that all give the
// right result and bad ones are left out is ours.
#include "autotune/trial.h"

#include <gtest/gtest.h>

#include "autotune/space.h"
#include "tests/autotune/graphs.h"

namespace kiln {
namespace {

constexpr MeasureLimits kShort{.rounds = 3, .seconds = 0};

TEST(Trials, AllCandidatesOfAProgramAreRight) {
  for (const char* graph : {testing::kLayer, testing::kDeep}) {
    const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(graph), {}, host_target());
    std::vector<Trial> trials;
    for (const TunableKernel& k : kernels) trials.push_back({&k, candidate_schedules(k)});
    Trials compiled(trials, host_target(), 2);
    for (size_t i = 0; i < trials.size(); ++i) {
      const TrialResult r = compiled.run(i, kShort);
      EXPECT_EQ(r.compared, static_cast<int>(trials[i].schedules.size())) << trials[i].schedules[0];
      EXPECT_GT(r.seconds, 0);
      EXPECT_GE(r.default_seconds, r.seconds);
      EXPECT_LT(r.winner, static_cast<int>(trials[i].schedules.size()));
    }
  }
}

// what does not lower or compile is out, alone.
TEST(Trials, BadCandidatesAreLeftOut) {
  const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(testing::kLayer), {}, host_target());
  std::vector<Trial> trials;
  for (const TunableKernel& k : kernels) trials.push_back({&k, {default_schedule(k), "nonsense"}});
  MatmulSchedule s = *parse_matmul_schedule(default_schedule(kernels.at(0)));
  s.width = 1;  // its transposition has no vectors to swap
  trials[0].schedules.push_back(str(s));
  Trials compiled(trials, host_target(), 2);
  for (size_t i = 0; i < trials.size(); ++i) {
    const TrialResult r = compiled.run(i, kShort);
    EXPECT_EQ(r.compared, 1) << i;
    EXPECT_EQ(r.winner, 0);
  }
}

TEST(Trials, WithoutAGoodCandidateTheDefaultStays) {
  const std::vector<TunableKernel> kernels = tunable_kernels(parse_graph(testing::kDeep), {}, host_target());
  Trials none({{&kernels.at(0), {"nonsense", default_schedule(kernels[0])}}}, host_target(), 1);
  const TrialResult r = none.run(0, kShort);
  EXPECT_EQ(r.compared, 0);
  EXPECT_EQ(r.winner, 0);
}

}  // namespace
}  // namespace kiln
