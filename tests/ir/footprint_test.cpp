// SPDX-License-Identifier: Apache-2.0
#include "ir/footprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "ir/access.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::ElementsAre;

Reach grid(int64_t offset, std::vector<Reach::Term> terms) {
  return {Reach::Kind::grid, Dim(offset), std::move(terms)};
}

/// Element by element.
int64_t counted(const std::vector<Reach>& reaches) {
  std::set<int64_t> seen;
  for (const Reach& r : reaches) {
    std::vector<int64_t> at = {r.offset.value()};
    for (const Reach::Term& t : r.terms) {
      std::vector<int64_t> next;
      for (const int64_t a : at)
        for (int64_t i = 0; i < t.extent.value(); ++i) next.push_back(a + i * t.stride.value());
      at = std::move(next);
    }
    seen.insert(at.begin(), at.end());
  }
  return static_cast<int64_t>(seen.size());
}

int64_t touched(const std::vector<Reach>& reaches, int64_t size = 1 << 30) {
  return footprint(reaches, Dim(size)).value();
}

TEST(Footprint, OneAccess) {
  EXPECT_EQ(touched({}), 0);
  EXPECT_EQ(touched({grid(5, {})}), 1);
  EXPECT_EQ(touched({grid(0, {{8, 4}, {1, 8}})}), 32) << "all of it";
  EXPECT_EQ(touched({grid(2, {{8, 4}, {1, 3}})}), 12) << "a slice";
  EXPECT_EQ(touched({grid(0, {{0, 100}, {1, 8}})}), 8) << "read again and again";
  EXPECT_EQ(touched({grid(31, {{-8, 4}, {-1, 8}})}), 32) << "backwards";
  EXPECT_EQ(touched({grid(0, {{1, 6}, {1, 3}})}), 8) << "windows";
  EXPECT_EQ(touched({grid(0, {{2, 3}, {1, 3}})}), 7) << "windows two apart";
  EXPECT_EQ(touched({grid(0, {{8, 0}, {1, 8}})}), 0) << "no rows";
  EXPECT_EQ(touched({grid(0, {{8, 4}, {1, 8}})}, 20), 20) << "no more than there is";
}

TEST(Footprint, ManyAccesses) {
  const Reach left = grid(0, {{12, 5}, {1, 4}}), middle = grid(4, {{12, 5}, {1, 4}});
  EXPECT_EQ(touched({left, left}), 20);
  EXPECT_EQ(touched({left, middle}), 40);
  EXPECT_EQ(touched({left, grid(2, {{12, 5}, {1, 4}})}), 30);
  EXPECT_EQ(touched({left, middle, grid(0, {{1, 60}})}), 60) << "and all of it";
  EXPECT_EQ(touched({grid(0, {{2, 8}}), grid(1, {{2, 8}})}), 16) << "even and odd";
  EXPECT_EQ(touched({grid(0, {{1, 10}}), grid(1, {{1, 10}}), grid(2, {{1, 10}})}), 11) << "of 12: too low";
  EXPECT_EQ(touched({left, {Reach::Kind::whole, Dim(0), {}}}, 100), 100);
}

TEST(Footprint, ScatteredPlacesCountOnce) {
  const Reach rows{Reach::Kind::scattered, Dim(0), {{1, 3}, {1, 8}}};
  EXPECT_EQ(touched({rows}), 24);
  EXPECT_EQ(touched({rows}, 16), 16);
}

TEST(Footprint, SymbolsStaySymbols) {
  const Dim n = Dim::symbol("N");
  EXPECT_EQ(footprint({{Reach::Kind::grid, Dim(0), {{Dim(8), n}, {1, 8}}}}, n * Dim(8)), n * Dim(8));
  EXPECT_EQ(footprint({{Reach::Kind::grid, Dim(0), {{Dim(8), n}, {1, 2}}}}, n * Dim(8)).eval({{"N", 5}}), 10);
}

/// Never too high, and exact for boxes of one tensor, however they overlap.
TEST(Footprint, AgreesWithCounting) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 2000; ++i) {
    std::vector<Reach> any, boxes;
    const int64_t rows = 2 + below(6), columns = 2 + below(6);
    for (int64_t n = 1 + below(2); n-- > 0;) {
      Reach r = grid(below(50), {});
      for (int64_t t = below(4); t-- > 0;) r.terms.push_back({below(30) - 10, 1 + below(5)});
      any.push_back(r);
      const int64_t h = 1 + below(rows), w = 1 + below(columns);
      const int64_t y = below(rows - h + 1), x = below(columns - w + 1);
      boxes.push_back(grid(y * columns + x, {{columns, h}, {1, w}}));
    }
    EXPECT_LE(touched(any), counted(any)) << i;
    EXPECT_EQ(touched(boxes), counted(boxes)) << i;
  }
}

TEST(Footprint, AccessesOfAKernel) {
  loop::Kernel k;
  k.axes = {{loop::AxisRole::row, 4}, {loop::AxisRole::col, 10}};
  k.params = {{DType::f32, true, false}, {DType::i64, true, false}, {DType::f32, false, true}};
  loop::Instr padded;  // columns 2..7 of the result are the operand's 6
  padded.kind = loop::InstrKind::load;
  padded.param = 0;
  padded.index = {Dim(-2), {{0, -1, Dim(6)}, {1, -1, Dim(1)}}};
  padded.bounds = {{{Dim(-2), {{1, -1, Dim(1)}}}, Dim(6)}};
  loop::Instr index;
  index.kind = loop::InstrKind::load;
  index.param = 1;
  index.index = {Dim(0), {{0, -1, Dim(1)}}};
  loop::Instr row;
  row.kind = loop::InstrKind::load;
  row.param = 0;
  row.index = {Dim(0), {{-1, 1, Dim(10)}, {1, -1, Dim(1)}}};
  loop::Instr never = padded;
  never.bounds.push_back({{Dim(7), {}}, Dim(7)});
  loop::Instr sums;
  sums.kind = loop::InstrKind::partial;
  sums.param = 2;
  sums.op = op("sum");
  sums.args = {0};
  k.body = {padded, index, row, never, sums};
  loop::infer_axes(k);
  const auto all = reaches(k);
  EXPECT_THAT(
      all, ElementsAre(ElementsAre(grid(0, {{6, 4}, {1, 6}}),
                                   Reach{Reach::Kind::scattered, Dim(0), {{1, 4}, {1, 10}}}),
                       ElementsAre(grid(0, {{1, 4}})), ElementsAre(Reach{Reach::Kind::whole, Dim(0), {}})));
  EXPECT_EQ(flops(k), Dim(4)) << "a sum over the rows";
  EXPECT_EQ(touched({reach_of({{Dim(10), Dim(2)}, Dim(1)}, {4, 3})}), 12);
}

}  // namespace KILN_FILE
}  // namespace kiln
