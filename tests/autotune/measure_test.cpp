// SPDX-License-Identifier: Apache-2.0
// The choice among timings, by clocks that the test makes up.
#include "autotune/measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace kiln {
namespace KILN_FILE {

/// Times that are given, with a disturbance every so often.
struct Clocks {
  std::vector<double> seconds;
  double jitter = 0;
  std::vector<int> calls;
  std::map<int, int> count;
  double operator()(int i) {
    calls.push_back(i);
    const int n = count[i]++;
    const double t = seconds[static_cast<size_t>(i)];
    return t < 0 ? t : t * (1 + jitter * (n * 2 % 5 - 2) / 2.0);
  }
};

Comparison run(Clocks& c, MeasureLimits limits = {}) {
  return compare(
      static_cast<int>(c.seconds.size()), [&](int i) { return c(i); }, limits);
}

TEST(Measure, FastestWins) {
  Clocks c{{1.0, 0.9, 0.8, 0.95}};
  const Comparison r = run(c);
  EXPECT_EQ(r.winner, 2);
  EXPECT_DOUBLE_EQ(r.median[2], 0.8);
}

TEST(Measure, DefaultStaysWithinTheNoise) {
  Clocks close{{1.0, 0.99}};
  EXPECT_EQ(run(close).winner, 0);
  Clocks noisy{{1.0, 0.93}, 0.2};
  EXPECT_EQ(run(noisy).winner, 0);
  Clocks calm{{1.0, 0.93}, 0.005};
  EXPECT_EQ(run(calm).winner, 1);
}

// The best of many is also the luckiest.
TEST(Measure, LuckIsNoWin) {
  std::map<int, int> count;
  const auto time = [&](int i) { return ++count[i] <= 9 && i == 3 ? 0.9 : 1.0; };
  const Comparison r = compare(5, time, {.rounds = 9, .seconds = 1000});
  EXPECT_EQ(r.winner, 0);
  EXPECT_EQ(count[3], 18);
  EXPECT_EQ(count[2], 9);
}

TEST(Measure, OneDisturbedTimingDecidesNothing) {
  int calls = 0;
  const Comparison r = compare(2, [&](int i) { return ++calls == 6 ? 100.0 : i == 0 ? 1.0 : 0.9; });
  EXPECT_EQ(r.winner, 1);
  EXPECT_DOUBLE_EQ(r.median[1], 0.9);
}

// those that fail are out; when all do, the default.
TEST(Measure, FailingCandidatesAreOut) {
  Clocks some{{1.0, -1, 0.5}};
  EXPECT_EQ(run(some).winner, 2);
  EXPECT_EQ(some.count[1], 1);
  Clocks first{{-1, 2.0, 3.0}};
  EXPECT_EQ(run(first).winner, 1);
  Clocks all{{-1, -1}};
  EXPECT_EQ(run(all).winner, 0);
  EXPECT_TRUE(std::isinf(run(all).median[0]));
  Clocks one{{1.0}};
  EXPECT_EQ(run(one).winner, 0);
}

TEST(Measure, RoundsAreInterleavedAndHopelessOnesLeftOut) {
  Clocks c{{1.0, 2.0, 0.9}};
  EXPECT_EQ(run(c, {.rounds = 5, .seconds = 1000}).winner, 2);
  EXPECT_EQ(c.count[1], 2);
  EXPECT_EQ(c.count[0], 10);
  EXPECT_EQ((std::vector<int>(c.calls.begin(), c.calls.begin() + 8)),
            (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 2}));
}

TEST(Measure, TimeLimitEndsAfterThreeRounds) {
  Clocks c{{1.0, 0.5}};
  EXPECT_EQ(run(c, {.rounds = 100, .seconds = 0}).winner, 1);
  EXPECT_EQ(c.count[1], 6);
}

}  // namespace KILN_FILE
}  // namespace kiln
