// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "codegen/lower_parts.h"

namespace kiln::detail {
namespace {

Work work(std::vector<int> reads, std::vector<int> writes, bool in_place = false) {
  Work w;
  w.cells = reads;
  w.cells.insert(w.cells.end(), writes.begin(), writes.end());
  w.reads = std::move(reads);
  w.writes = std::move(writes);
  w.in_place = in_place;
  return w;
}
using Intervals = std::vector<std::vector<int>>;

TEST(Schedule, IndependentWorksShareAnInterval) {
  std::vector<int> clashes;
  // 0 -> cell 1, 1 -> cell 2, 2 needs both.
  EXPECT_EQ(schedule({work({0}, {1}), work({0}, {2}), work({1, 2}, {3})}, {}, 4, clashes),
            (Intervals{{0, 1}, {2}}));
}
TEST(Schedule, OverwriteWaitsForReaders) {
  std::vector<int> clashes;
  // Cell 1 replaces input 0, which work 1 still reads.
  EXPECT_EQ(schedule({work({0}, {1}, true), work({0}, {2})}, {{1, 0}}, 3, clashes), (Intervals{{1}, {0}}));
  EXPECT_TRUE(clashes.empty());
}
TEST(Schedule, OverwriteThatIsReadLaterClashes) {
  std::vector<int> clashes;
  // Work 1 reads the new value and the old one.
  schedule({work({0}, {1}, true), work({0, 1}, {2})}, {{1, 0}}, 3, clashes);
  EXPECT_EQ(clashes, std::vector<int>{0});
}
TEST(Schedule, KernelWithSeveralPassesDoesNotWorkInPlace) {
  std::vector<int> clashes;
  schedule({work({0}, {1}, false)}, {{1, 0}}, 2, clashes);
  EXPECT_EQ(clashes, std::vector<int>{0});
}

TEST(Arena, LivesThatMeetDoNotOverlap) {
  std::vector<Dim> at;
  const Dim size = place_arena({{0, Dim(100), 0, 1}, {1, Dim(100), 1, 2}, {2, Dim(100), 2, 3}}, at);
  EXPECT_TRUE(size.is(256));
  EXPECT_TRUE(at[0] == at[2]);
  EXPECT_FALSE(at[0] == at[1]);
}
TEST(Arena, SizesOfTheCallShareEqualPlaces) {
  std::vector<Dim> at;
  const Dim n = Dim::symbol("B") * Dim(64);
  const Dim size = place_arena({{0, n, 0, 1}, {1, n, 1, 2}, {2, n, 2, 3}}, at);
  EXPECT_EQ(size.eval({{"B", 3}}), 2 * 192);
  EXPECT_TRUE(at[0] == at[2]);
}

}  // namespace
}  // namespace kiln::detail
