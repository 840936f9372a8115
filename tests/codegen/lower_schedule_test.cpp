// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "codegen/lower_parts.h"
#include "ir/graph.h"

namespace kiln::detail {
namespace KILN_FILE {

Work work(std::vector<int> reads, std::vector<int> writes, bool in_place = false) {
  Work w;
  w.cells = reads;
  w.cells.insert(w.cells.end(), writes.begin(), writes.end());
  w.reads = std::move(reads);
  w.writes = std::move(writes);
  if (in_place)
    for (int r : w.reads)
      for (int c : w.writes) w.in_place.insert({r, c});
  return w;
}
using Intervals = std::vector<std::vector<int>>;

TEST(Schedule, IndependentWorksShareAnInterval) {
  std::vector<int> clashes;
  // 0 -> cell 1, 1 -> cell 2, 2 needs both.
  EXPECT_EQ(schedule({work({0}, {1}), work({0}, {2}), work({1, 2}, {3})}, {}, {}, 4, clashes).intervals,
            (Intervals{{0, 1}, {2}}));
}
TEST(Schedule, OverwriteWaitsForReaders) {
  std::vector<int> clashes;
  // Cell 1 replaces input 0, which work 1 still reads.
  EXPECT_EQ(schedule({work({0}, {1}, true), work({0}, {2})}, {{1, 0}}, {}, 3, clashes).intervals,
            (Intervals{{1}, {0}}));
  EXPECT_TRUE(clashes.empty());
}
TEST(Schedule, OverwriteThatIsReadLaterClashes) {
  std::vector<int> clashes;
  // Work 1 reads the new value and the old one.
  schedule({work({0}, {1}, true), work({0, 1}, {2})}, {{1, 0}}, {}, 3, clashes);
  EXPECT_EQ(clashes, std::vector<int>{0});
}
TEST(Schedule, KernelWithSeveralPassesDoesNotWorkInPlace) {
  std::vector<int> clashes;
  schedule({work({0}, {1}, false)}, {{1, 0}}, {}, 2, clashes);
  EXPECT_EQ(clashes, std::vector<int>{0});
}
TEST(Schedule, OverwriteWaitsForGuards) {
  std::vector<int> clashes;
  // Cell 1 replaces input 0; cell 3 is a guard, made by way of cell 2 from an input of its own.
  const std::vector<Work> works = {work({0}, {1}, true), work({4}, {2}), work({2}, {3})};
  EXPECT_EQ(schedule(works, {{1, 0}}, {3}, 5, clashes).intervals, (Intervals{{1}, {2}, {0}}));
  EXPECT_TRUE(clashes.empty());
  // Not where one kernel makes both, nor where the guard is made from the new value.
  schedule({work({0}, {1, 3}, true)}, {{1, 0}}, {3}, 4, clashes);
  EXPECT_EQ(clashes, std::vector<int>{0});
  clashes.clear();
  schedule({work({0}, {1}, true), work({1}, {3})}, {{1, 0}}, {3}, 4, clashes);
  EXPECT_EQ(clashes, std::vector<int>{0});
}
/// Ranks whose guards do not hold take part in nothing, unless a guard is made from the sum.
TEST(Schedule, CollectivesWaitForGuards) {
  std::vector<int> clashes;
  const auto collective = [](int from, int started, int sum) {
    Work start = work({from}, {started}), wait = work({started}, {sum});
    start.kind = LaunchKind::start;
    wait.kind = LaunchKind::wait;
    return std::vector<Work>{start, wait};
  };
  std::vector<Work> works = collective(0, 1, 2);
  works.push_back(work({5}, {3}));
  works.push_back(work({3}, {4}));  // the guard
  EXPECT_EQ(schedule(works, {}, {4}, 6, clashes).intervals, (Intervals{{2}, {3}, {0}, {1}}));
  works[2] = work({2}, {3});
  EXPECT_EQ(schedule(works, {}, {4}, 6, clashes).intervals, (Intervals{{0}, {1}, {2}, {3}}));
  EXPECT_TRUE(clashes.empty());
}

using Pairs = std::set<std::pair<int, int>>;

void add_access(loop::Kernel& k, loop::InstrKind kind, int param, int64_t row, int64_t col) {
  loop::Instr i;
  i.kind = kind;
  i.param = param;
  i.index.add_axis(0, Dim(row));
  i.index.add_axis(1, Dim(col));
  k.body.push_back(std::move(i));
}

TEST(InPlace, OnlyWhereEveryReadIsAtThePlaceWritten) {
  loop::Kernel k;
  k.axes = {{loop::AxisRole::row, Dim(3)}, {loop::AxisRole::col, Dim(3)}};
  k.params = {{DType::f32, true, false}, {DType::f32, true, false}, {DType::f32, false, true}};
  add_access(k, loop::InstrKind::load, 0, 3, 1);
  add_access(k, loop::InstrKind::load, 1, 1, 3);  // transposed
  add_access(k, loop::InstrKind::store, 2, 3, 1);
  EXPECT_EQ(in_place_pairs(k, {10, 11, 12}), (Pairs{{10, 12}}));
  EXPECT_EQ(in_place_pairs(k, {10, 10, 12}), Pairs{});  // one tensor read in both ways
  k.body[1].index = k.body[0].index;
  EXPECT_EQ(in_place_pairs(k, {10, 11, 12}), (Pairs{{10, 12}, {11, 12}}));
  k.body[1].index.offset = Dim(1);
  EXPECT_EQ(in_place_pairs(k, {10, 11, 12}), (Pairs{{10, 12}}));
}

TEST(InPlace, OnlyWhereEveryReadComesBeforeTheWrite) {
  loop::Kernel k;
  k.axes = {{loop::AxisRole::row, Dim(3)}, {loop::AxisRole::col, Dim(3)}};
  k.params = {{DType::f32, true, false}, {DType::f32, false, true}, {DType::f32, false, true}};
  add_access(k, loop::InstrKind::store, 1, 3, 1);
  add_access(k, loop::InstrKind::load, 0, 3, 1);
  add_access(k, loop::InstrKind::store, 2, 3, 1);
  EXPECT_EQ(in_place_pairs(k, {10, 11, 12}), (Pairs{{10, 12}}));
  add_access(k, loop::InstrKind::load, 0, 3, 1);
  EXPECT_EQ(in_place_pairs(k, {10, 11, 12}), Pairs{});
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

/// The intervals after sinking; cells of 64 bytes but for those in `sizes`.
Intervals sunk(const std::vector<Work>& works, int count, const std::map<int, int64_t>& sizes = {}) {
  std::vector<Cell> cells(static_cast<size_t>(count), Cell{DType::f32, Dim(64)});
  for (const auto& [c, bytes] : sizes) cells[static_cast<size_t>(c)].bytes = Dim(bytes);
  cells[0].buffer = 0;  // the input
  std::vector<int> clashes;
  Order order = schedule(works, {}, {}, count, clashes);
  sink_works(works, cells, order);
  return order.intervals;
}

// Work 0 makes cell 1, which the last of a chain needs; while cell 2 is alive it would be in the way.
TEST(Sink, WhatIsNeededLateIsMadeLate) {
  const std::vector<Work> works = {work({0}, {1}), work({0}, {2}), work({2}, {3}), work({3}, {4}),
                                   work({1, 4}, {5})};
  EXPECT_EQ(sunk(works, 6, {{2, 6400}}), (Intervals{{1}, {2}, {0, 3}, {4}}));
  EXPECT_EQ(sunk(works, 6), (Intervals{{0, 1}, {2}, {3}, {4}})) << "nothing would be won";
}

// What could be done while a sum of ranks is under way is not left for after it.
TEST(Sink, NotPastAWait) {
  std::vector<Work> works = {work({0}, {1}), work({0}, {2}), work({2}, {3}), work({3}, {4}),
                             work({1, 4}, {5})};
  works[1].kind = LaunchKind::start, works[2].kind = LaunchKind::wait;
  EXPECT_EQ(sunk(works, 6, {{2, 6400}}), (Intervals{{0, 1}, {2}, {3}, {4}}));
  works[1].kind = works[2].kind = LaunchKind::kernel;
  EXPECT_EQ(sunk(works, 6, {{2, 6400}}), (Intervals{{1}, {2}, {0, 3}, {4}}));
}

// Work 1 is the last to read cell 1. Later it would keep more than it makes.
TEST(Sink, NotWhereItKeepsMoreAlive) {
  const std::vector<Work> works = {work({0}, {1}), work({1}, {2}), work({1}, {3}), work({3}, {4}),
                                   work({2, 4}, {5})};
  EXPECT_EQ(sunk(works, 6, {{1, 640}, {3, 6400}}), (Intervals{{0}, {1, 2}, {3}, {4}}));
}

/// Where the values of cells 0, 1, ... lie when works run one after the other.
std::vector<int> places(const std::vector<Work>& works, int count, const std::vector<int>& external = {}) {
  std::vector<Cell> cells(static_cast<size_t>(count), Cell{DType::f32, Dim(64)});
  for (int c : external) cells[c].buffer = 0;
  Intervals one_by_one;
  for (size_t w = 0; w < works.size(); ++w) one_by_one.push_back({static_cast<int>(w)});
  take_places(cells, works, one_by_one);
  std::vector<int> out;
  for (const Cell& c : cells) out.push_back(c.inside);
  return out;
}

TEST(TakePlaces, OfValuesReadForTheLastTime) {
  const Work make = work({}, {0});
  EXPECT_EQ(places({make, work({0}, {1}, true), work({1}, {2}, true)}, 3), (std::vector<int>{-1, 0, 0}));
  EXPECT_EQ(places({make, work({0}, {1}), work({1}, {2})}, 3), (std::vector<int>{-1, -1, -1}));
  EXPECT_EQ(places({make, work({0}, {1}, true), work({0, 1}, {2}, true)}, 3), (std::vector<int>{-1, -1, 0}));
  EXPECT_EQ(places({make, work({0}, {1, 2}, true)}, 3), (std::vector<int>{-1, 0, -1})) << "one of the two";
  EXPECT_EQ(places({make, work({0}, {1}, true)}, 2, {0}), (std::vector<int>{-1, -1})) << "not in the arena";
  EXPECT_EQ(places({make, work({0}, {1}, true)}, 2, {1}), (std::vector<int>{-1, -1}));
}

TEST(TakePlaces, NotOfValuesThatOthersReadMeanwhile) {
  const std::vector<Work> works = {work({}, {0}), work({0}, {1}, true), work({0}, {2}, true)};
  std::vector<Cell> cells(3, Cell{DType::f32, Dim(64)});
  take_places(cells, works, {{0}, {1, 2}});
  EXPECT_EQ(cells[1].inside, -1);
  EXPECT_EQ(cells[2].inside, -1);
}

TEST(TakePlaces, OnlyOfTheirOwnKind) {
  for (const Cell& other : {Cell{DType::bf16, Dim(64)}, Cell{DType::f32, Dim(128)}}) {
    std::vector<Cell> cells = {Cell{DType::f32, Dim(64)}, other};
    take_places(cells, {work({}, {0}), work({0}, {1}, true)}, {{0}, {1}});
    EXPECT_EQ(cells[1].inside, -1);
  }
}

// Rows less their largest element are written where they lie, although a first pass has read them, too.
TEST(TakePlaces, RowsTakeTheirOwnPlace) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[64,64] arg
  %1 = f32[64,64] dot_general %0, %0 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %2 = f32[64] amax %1 {dims=(1)}
  %3 = f32[64,1] reshape %2 {shape=[64,1]}
  %4 = f32[64,64] expand %3 {shape=[64,64]}
  %5 = f32[64,64] sub %1, %4
  %6 = f32[64,64] dot_general %5, %5 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  output %6
})");
  LowerOptions options;
  options.prologues = false;
  const Plan p = lower(g, {}, host_target(), options).plan;
  EXPECT_EQ(p.dims[static_cast<size_t>(p.arena_bytes)].value(), 64 * 64 * 4);
}

}  // namespace KILN_FILE
}  // namespace kiln::detail
