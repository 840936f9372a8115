// SPDX-License-Identifier: Apache-2.0
#include "ir/loop.h"

#include <gtest/gtest.h>

namespace kiln::loop {
namespace KILN_FILE {

/// store p1[at] = load p0[at] over the axes.
Kernel copy(std::vector<Axis> axes, const Index& at) {
  Kernel k;
  k.axes = std::move(axes);
  k.params = {{DType::f32, true, false}, {DType::f32, false, true}};
  Instr load, store;
  load.kind = InstrKind::load;
  load.param = 0;
  load.index = at;
  store.kind = InstrKind::store;
  store.param = 1;
  store.args = {0};
  store.index = at;
  k.body = {load, store};
  infer_axes(k);
  return k;
}
Index index(std::vector<std::pair<int, int>> terms) {
  Index x;
  for (auto [axis, stride] : terms) x.add_axis(axis, Dim(stride));
  return x;
}

TEST(Loop, MergesAxesThatEveryIndexWalksAsOne) {
  Kernel k =
      copy({{AxisRole::row, 3}, {AxisRole::row, 1}, {AxisRole::col, 5}}, index({{0, 5}, {1, 5}, {2, 1}}));
  canonicalize(k);
  EXPECT_EQ(
      print(k),
      "kernel a0:col[15]\n  p0 f32 read\n  p1 f32 write\n  %0 = f32 load p0[a0]\n  store p1[a0] = %0\n");
}

TEST(Loop, KeepsAxesThatAreWalkedApart) {
  Kernel k = copy({{AxisRole::row, 3}, {AxisRole::col, 5}}, index({{0, 7}, {1, 1}}));
  canonicalize(k);
  EXPECT_EQ(print(k),
            "kernel a0:row[3] a1:col[5]\n  p0 f32 read\n  p1 f32 write\n  %0 = f32 load p0[a0*7 + a1]\n"
            "  store p1[a0*7 + a1] = %0\n");
}

TEST(Loop, LargeFlatKernelsShareTheirText) {
  Kernel a = copy({{AxisRole::col, 100}}, index({{0, 1}})),
         b = copy({{AxisRole::col, 5000}}, index({{0, 1}}));
  canonicalize(a);
  canonicalize(b);
  EXPECT_EQ(print(a), print(b));
  EXPECT_EQ(a.dims, (std::vector<Dim>{Dim(100)}));
}

TEST(Loop, KernelsOfSingleElementsAreCasesOfOneForAnySize) {
  Kernel small = copy({{AxisRole::col, 5}}, index({{0, 1}})),
         large = copy({{AxisRole::col, Dim::symbol("B")}}, index({{0, 1}})), one = copy({}, {});
  for (Kernel* k : {&small, &large, &one}) canonicalize(*k);
  const AnySize a = *any_size(small), b = *any_size(large), c = *any_size(one);
  const char* text =
      "kernel a0:col[d0]\n  p0 f32 read\n  p1 f32 write\n  %0 = f32 load p0[a0]\n  store p1[a0] = %0\n";
  EXPECT_EQ(print(a.kernel), text);
  EXPECT_EQ(print(b.kernel), text);
  EXPECT_EQ(print(c.kernel), print(one_element(a.kernel)));
  EXPECT_NE(print(c.kernel), text);
  EXPECT_EQ(a.sizes, (std::vector<Dim>{Dim(5)}));
  EXPECT_EQ(b.sizes, (std::vector<Dim>{Dim::symbol("B")}));
  EXPECT_TRUE(c.sizes.empty());
  Kernel rows = copy({{AxisRole::row, 3}, {AxisRole::col, 5}}, index({{0, 7}, {1, 1}}));
  canonicalize(rows);
  EXPECT_FALSE(any_size(rows));
}

TEST(Loop, CountsOfFoldsAreSizesOfAKernelForAnySize) {
  const auto fold = [](int count, int step) {
    Kernel k = copy({{AxisRole::col, 10}}, index({{0, 1}}));
    k.body[0].kind = InstrKind::fold;
    k.body[0].op = op("sum");
    k.body[0].count = Dim(count);
    k.body[0].step = Dim(step);
    canonicalize(k);
    return *any_size(k);
  };
  EXPECT_EQ(print(fold(4, 10).kernel), print(fold(10, 10).kernel));
  EXPECT_NE(print(fold(4, 10).kernel), print(fold(4, 11).kernel));  // the extent, or not
  EXPECT_EQ(fold(4, 10).sizes, (std::vector<Dim>{Dim(10), Dim(4)}));
  EXPECT_EQ(fold(10, 10).sizes, (std::vector<Dim>{Dim(10), Dim(10)}));
}

TEST(Loop, SymbolsAreNumberedNotNamed) {
  const Dim b = Dim::symbol("B"), t = Dim::symbol("T");
  Kernel x = copy({{AxisRole::col, b}}, index({{0, 1}})), y = copy({{AxisRole::col, t}}, index({{0, 1}}));
  canonicalize(x);
  canonicalize(y);
  EXPECT_EQ(print(x), print(y));
  EXPECT_NE(print(x).find("a0:col[d0]"), std::string::npos);
}

TEST(Loop, ChunksDependOnSizesAlone) {
  Kernel k;
  k.axes = {{AxisRole::row, 4096}, {AxisRole::col, 4096}};
  EXPECT_TRUE(rows_per_task(k).is(64));
  EXPECT_TRUE(row_chunks(k).is(64));
  k.axes = {{AxisRole::row, 32}, {AxisRole::col, 64}};
  EXPECT_TRUE(row_chunks(k).is(1));
  k.axes = {{AxisRole::row, Dim::symbol("B")}, {AxisRole::col, 64}};
  EXPECT_TRUE(rows_per_task(k).is_const());
}

TEST(Loop, IndexMergesTermsOfOneAxis) {
  Index x = index({{0, 4}, {1, 1}});
  x.add(index({{0, -4}}), Dim(1));
  ASSERT_EQ(x.terms.size(), 1u);
  EXPECT_EQ(x.terms[0].axis, 1);
}

TEST(Loop, VerifyNamesTheFault) {
  Kernel k = copy({{AxisRole::col, 5}}, index({{0, 1}}));
  k.body[1].args = {1};
  EXPECT_THROW(verify(k), Error);
  k = copy({{AxisRole::col, 5}}, index({{0, 1}}));
  k.body[0].dtype = DType::i64;
  EXPECT_THROW(verify(k), Error);
  k = copy({{AxisRole::col, 5}, {AxisRole::row, 2}}, index({{0, 1}}));
  EXPECT_THROW(verify(k), Error);
}

TEST(Loop, KernelsOfOtherPartsOfABufferAreOne) {
  const auto at = [](int64_t offset) {
    Kernel k = copy({{AxisRole::col, 64}}, index({{0, 1}}));
    k.body[0].index.offset = Dim(offset);
    canonicalize(k);
    return k;
  };
  Kernel first = at(128), second = at(64), odd = at(66);
  EXPECT_NE(print(first), print(second));
  EXPECT_EQ(rebase(first), (std::vector<int64_t>{128, 0}));
  EXPECT_EQ(rebase(second), (std::vector<int64_t>{64, 0}));
  EXPECT_EQ(print(first), print(second));
  EXPECT_EQ(rebase(odd), (std::vector<int64_t>{64, 0}));  // pointers stay multiples of 16 bytes
  EXPECT_NE(print(odd), print(second));
  Kernel kept = at(128);
  EXPECT_EQ(rebase(kept, 0), (std::vector<int64_t>{0, 0}));
}

}  // namespace KILN_FILE
}  // namespace kiln::loop
