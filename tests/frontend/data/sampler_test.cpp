// SPDX-License-Identifier: Apache-2.0
#include "frontend/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace kiln::data {
namespace KILN_FILE {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Order = std::vector<int64_t>;

TEST(Sampler, PermutationsAreFixedBySeedAndEpoch) {
  EXPECT_THAT(permutation(8, 1, 0), ElementsAre(2, 4, 5, 6, 1, 0, 7, 3));
  EXPECT_EQ(permutation(100, 1, 2), permutation(100, 1, 2));
  EXPECT_NE(permutation(100, 1, 2), permutation(100, 1, 3));
  EXPECT_NE(permutation(100, 1, 2), permutation(100, 2, 2));
  EXPECT_THAT(permutation(0, 1, 0), IsEmpty());
  Order p = permutation(1000, 7, 9), all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NE(p, all);
  std::sort(p.begin(), p.end());
  EXPECT_EQ(p, all);
}

TEST(Sampler, EveryPlaceIsEquallyLikely) {
  std::array<std::array<int, 4>, 4> seen{};
  constexpr int kDraws = 8000;
  for (int seed = 0; seed < kDraws; ++seed) {
    const Order p = permutation(4, static_cast<uint64_t>(seed), 0);
    for (size_t i = 0; i < 4; ++i) ++seen[i][static_cast<size_t>(p[i])];
  }
  for (const auto& row : seen)
    for (const int n : row) EXPECT_NEAR(n, kDraws / 4, 5 * std::sqrt(kDraws * 3.0 / 16));
}

TEST(Sampler, RanksShareAnEpoch) {
  EXPECT_THAT(epoch_order(5, {}, 3), ElementsAre(0, 1, 2, 3, 4));
  // What torch.utils.data.DistributedSampler gives without shuffling.
  EXPECT_THAT(epoch_order(5, {.num_replicas = 2, .rank = 0}, 0), ElementsAre(0, 2, 4));
  EXPECT_THAT(epoch_order(5, {.num_replicas = 2, .rank = 1}, 0), ElementsAre(1, 3, 0));
  EXPECT_THAT(epoch_order(5, {.num_replicas = 2, .rank = 1, .drop_last = true}, 0), ElementsAre(1, 3));
  EXPECT_THAT(epoch_order(2, {.num_replicas = 5, .rank = 4}, 0), ElementsAre(0));
  EXPECT_THAT(epoch_order(2, {.num_replicas = 5, .rank = 4, .drop_last = true}, 0), IsEmpty());
  EXPECT_THAT(epoch_order(0, {.num_replicas = 2}, 0), IsEmpty());
}

TEST(Sampler, ShuffledRanksAreDisjoint) {
  Order all;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Order part = epoch_order(30, {.shuffle = true, .seed = 4, .num_replicas = 3, .rank = rank}, 1);
    EXPECT_EQ(part.size(), 10u);
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

}  // namespace KILN_FILE
}  // namespace kiln::data
