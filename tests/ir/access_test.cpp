// SPDX-License-Identifier: Apache-2.0
#include "ir/access.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

using loop::Axis;
using loop::AxisRole;

/// What the first node of the graph reads for its result at (a0, a1, ...), as text.
std::string through(std::string_view text, int operand = 0, AxisSplit* split = nullptr) {
  const Graph g = parse_graph(text);
  std::vector<Axis> axes;
  Access at;
  for (const Dim& d : g.type(g.nodes[0].out).shape) {
    loop::Index x;
    if (!d.is(1)) {
      x.add_axis(static_cast<int>(axes.size()), Dim(1));
      axes.push_back({AxisRole::col, d});
    }
    at.idx.push_back(x);
  }
  const auto in = through_view(g, g.nodes[0], operand, at, axes, split);
  return in ? in->str() : "none";
}

TEST(Access, ExpandDropsBroadcastDims) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[1,3] arg\n %1 = f32[4,5,3] expand %0 {shape=[4,5,3]}\n}"),
            "0;0+a2*1;");
}
TEST(Access, PermuteReorders) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[2,3] arg\n %1 = f32[3,2] permute %0 {dims=(1,0)}\n}"),
            "0+a1*1;0+a0*1;");
}
TEST(Access, FlipCountsDown) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[4] arg\n %1 = f32[4] flip %0 {dims=(0)}\n}"), "3+a0*-1;");
}
TEST(Access, SliceScalesAndMoves) {
  EXPECT_EQ(
      through(
          "graph g {\n %0 = input f32[9] arg\n %1 = f32[3] slice %0 {starts=[2], stops=[8], steps=(2)}\n}"),
      "2+a0*2;");
}
TEST(Access, PadBounds) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[4] arg\n"
                    " %1 = f32[7] pad %0 {low=[1], high=[2], interior=(0), value=0.}\n}"),
            "-1+a0*1;|-1+a0*1<4");
}
TEST(Access, WindowsAddPlaceAndStep) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[2,9] arg\n"
                    " %1 = f32[2,3,3] window %0 {dim=1, size=3, step=2, dilation=2}\n}"),
            "0+a0*1;0+a1*2+a2*2;");
  EXPECT_EQ(through("graph g {\n %0 = input f32[N] arg\n"
                    " %1 = f32[1+div(N-3,2),3] window %0 {dim=0, size=3, step=2, dilation=1}\n}"),
            "0+a0*2+a1*1;");
}
TEST(Access, SkewBoundsWhatItMoves) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[4,3] arg\n"
                    " %1 = f32[6,3] skew %0 {dim=0, by=1, size=[6]}\n}"),
            "0+a0*1+a1*-1;0+a1*1;|0+a0*1+a1*-1<4");
}
TEST(Access, CatBoundsEachOperand) {
  const char* text =
      "graph g {\n %0 = input f32[2] arg\n %1 = input f32[3] arg\n %2 = f32[5] cat %0, %1 {dim=0}\n}";
  EXPECT_EQ(through(text, 0), "0+a0*1;|0+a0*1<2");
  EXPECT_EQ(through(text, 1), "-2+a0*1;|-2+a0*1<3");
}
TEST(Access, ReshapeMergesDims) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[12] arg\n %1 = f32[3,4] reshape %0 {shape=[3,4]}\n}"),
            "0+a0*4+a1*1;");
}
TEST(Access, ReshapeAsksForACutOfTheAxis) {
  AxisSplit split;
  EXPECT_EQ(
      through("graph g {\n %0 = input f32[3,4] arg\n %1 = f32[12] reshape %0 {shape=[12]}\n}", 0, &split),
      "none");
  EXPECT_EQ(split.axis, 0);
  EXPECT_TRUE(split.inner.is(4));
}
TEST(Access, ReshapeOfDimsThatDoNotNestCountsElements) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[2,3] arg\n %1 = f32[3,2] reshape %0 {shape=[3,2]}\n}"),
            "flat0+a0*2+a1*1;");
}
TEST(Access, ReshapeIgnoresDimsOfOne) {
  EXPECT_EQ(through("graph g {\n %0 = input f32[1,5] arg\n %1 = f32[5,1,1] reshape %0 {shape=[5,1,1]}\n}"),
            "0;0+a0*1;");
}

/// A dim that is walked backwards is cut and merged like one that is walked forwards.
TEST(Access, ReshapeOfADimWalkedBackwards) {
  const auto through_reshape = [](std::string_view text, const loop::Index& x, const std::vector<Axis>& axes,
                                  AxisSplit* split) {
    const Graph g = parse_graph(text);
    const auto in = through_view(g, g.nodes[0], 0, {{x}, {}}, axes, split);
    return in ? in->str() : "none";
  };
  constexpr std::string_view kSquare =
      "graph g {\n %0 = input f32[2,2] arg\n %1 = f32[4] reshape %0 {shape=[4]}\n}";
  loop::Index back;
  back.offset = Dim(3);
  back.add_axis(0, Dim(-1));
  AxisSplit split;
  EXPECT_EQ(through_reshape(kSquare, back, {{AxisRole::col, Dim(4)}}, &split), "none");
  EXPECT_EQ(split.axis, 0);
  EXPECT_TRUE(split.inner.is(2));
  loop::Index cut;
  cut.offset = Dim(3);
  cut.add_axis(0, Dim(-2));
  cut.add_axis(1, Dim(-1));
  EXPECT_EQ(through_reshape(kSquare, cut, {{AxisRole::row, Dim(2)}, {AxisRole::col, Dim(2)}}, nullptr),
            "1+a0*-1;1+a1*-1;");
  // Of the last part of a roll, which begins before the tensor: its bounds are another's.
  loop::Index beyond;
  beyond.offset = Dim(9);
  beyond.add_axis(0, Dim(-1));
  EXPECT_EQ(through_reshape("graph g {\n %0 = input f32[1,9] arg\n %1 = f32[9] reshape %0 {shape=[9]}\n}",
                            beyond, {{AxisRole::col, Dim(9)}}, nullptr),
            "flat9+a0*-1;");
}

TEST(Access, CoversWantsEveryElementOnce) {
  const std::vector<Axis> axes = {{AxisRole::row, 3}, {AxisRole::col, 4}};
  loop::Index x;
  x.add_axis(0, Dim(4));
  x.add_axis(1, Dim(1));
  std::vector<int> order;
  EXPECT_TRUE(covers(x, Dim(12), axes, order));
  EXPECT_EQ(order, (std::vector<int>{0, 1}));
  EXPECT_FALSE(covers(x, Dim(24), axes, order));
  x.offset = Dim(1);
  EXPECT_FALSE(covers(x, Dim(12), axes, order));
}

}  // namespace KILN_FILE
}  // namespace kiln
