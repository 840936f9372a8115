// SPDX-License-Identifier: Apache-2.0
// The bytes that plans say their launches move: what is touched of a tensor, and not all of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/lower.h"
#include "ir/graph.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::Each;
using ::testing::ElementsAre;

Plan plan_of(std::string_view text, const std::vector<ExternalLayout>& layouts = {}) {
  const Graph g = parse_graph(text);
  verify(g);
  return lower(g, layouts, host_target(), {}).plan;
}

/// One number of each launch.
std::vector<int64_t> of_launches(const Plan& p, DimIndex ProfileRow::*what) {
  std::vector<int64_t> out;
  for (const Launch& l : p.launches)
    out.push_back(p.dims[static_cast<size_t>(p.profile[static_cast<size_t>(l.profile)].*what)].value());
  return out;
}
std::vector<int64_t> bytes_of(std::string_view text, const std::vector<ExternalLayout>& layouts = {}) {
  return of_launches(plan_of(text, layouts), &ProfileRow::bytes);
}

TEST(LowerTraffic, SlicesAndWholes) {
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[100,64] arg
  %1 = f32[5,64] slice %0 {starts=[10,0], stops=[15,64], steps=(1,1)}
  %2 = f32[5,64] exp %1
  output %2
})"),
              ElementsAre(4 * 2 * 5 * 64));
  // Three columns of blocks, of which two are read: one twice.
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[100,48] arg
  %1 = f32[100,16] slice %0 {starts=[0,0], stops=[100,16], steps=(1,1)}
  %2 = f32[100,16] slice %0 {starts=[0,32], stops=[100,48], steps=(1,1)}
  %3 = f32[100,16] mul %1, %2
  %4 = f32[100,16] add %3, %1
  output %4
})"),
              ElementsAre(4 * 3 * 100 * 16));
}

TEST(LowerTraffic, AnUpdateReadsAndWrites) {
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[64] param
  %1 = input f32[64] arg
  %2 = f32[64] sub %0, %1
  output %2 alias=0
})"),
              ElementsAre(4 * 3 * 64));
}

TEST(LowerTraffic, BroadcastsAndStridedInputsAreReadOnce) {
  const ExternalLayout row{{Dim(0), Dim(1)}, Dim(0)};
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[100,64] arg
  %1 = f32[100,64] exp %0
  output %1
})",
                       {row}),
              ElementsAre(4 * (64 + 100 * 64)));
}

/// The rows that indices pick, and not the table; the whole table where there are more indices than rows.
TEST(LowerTraffic, AGatherReadsWhatItsIndicesPick) {
  constexpr auto kTaken = R"(graph g {{
  %0 = input f32[{},64] param
  %1 = input i64[5] arg
  %2 = f32[5,64] take %0, %1 {{dim=0}}
  output %2
}})";
  EXPECT_THAT(bytes_of(fmt::format(kTaken, 1000)), ElementsAre(8 * 5 + 4 * 2 * 5 * 64));
  EXPECT_THAT(bytes_of(fmt::format(kTaken, 3)), ElementsAre(8 * 5 + 4 * (3 + 5) * 64));
}

/// Each kernel that makes or uses a gradient moves its piece of the bucket.
TEST(LowerTraffic, PiecesOfABucket) {
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[64] param
  %1 = input f32[1024] param
  %2 = f32[64] exp %0
  %3 = f32[1024] sin %1
  %4 = f32[1088] all_reduce %2, %3 {group=0, wire=f32}
  %5 = f32[64] slice %4 {starts=[0], stops=[64], steps=(1)}
  %6 = f32[64] sub %0, %5
  output %6 alias=0
})"),
              ElementsAre(4 * 2 * 64, 4 * 2 * 1024, 0, 0, 4 * 3 * 64));
}

TEST(LowerTraffic, AMatmulOfASlice) {
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[32,96] arg
  %1 = input f32[32,24] param
  %2 = f32[32,32] slice %0 {starts=[0,32], stops=[32,64], steps=(1,1)}
  %3 = f32[32,24] dot_general %2, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %4 = f32[32,24] exp %3
  output %4
})"),
              ElementsAre(4 * (32 * 32 + 32 * 24 + 32 * 24)));
}

/// Ranges of k go through a workspace: the operands move in one launch, the result in the other.
TEST(LowerTraffic, ASplitMatmul) {
  const std::vector<int64_t> bytes = bytes_of(R"(graph g {
  %0 = input f32[8,65536] arg
  %1 = input f32[65536,8] param
  %2 = f32[8,8] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  output %2
})");
  ASSERT_EQ(bytes.size(), 2u);
  const int64_t workspace = bytes[1] - 4 * 8 * 8;
  EXPECT_GT(workspace, 0);
  EXPECT_EQ(workspace % (4 * 8 * 8), 0);
  EXPECT_EQ(bytes[0], 4 * 2 * 8 * 65536 + workspace);
}

/// What sums the parts up computes no more than their number.
TEST(LowerTraffic, ASumInParts) {
  const Plan p = plan_of(R"(graph g {
  %0 = input f32[1000,200] arg
  %1 = f32[1000,200] mul %0, %0
  %2 = f32[200] sum %1 {dims=(0)}
  output %2
})");
  const std::vector<int64_t> flops = of_launches(p, &ProfileRow::flops);
  ASSERT_EQ(flops.size(), 2u);
  EXPECT_EQ(flops[0], 2 * 1000 * 200);
  const std::vector<int64_t> bytes = of_launches(p, &ProfileRow::bytes);
  const int64_t parts = (bytes[1] - 4 * 200) / (4 * 200);
  EXPECT_GT(parts, 1);
  EXPECT_LT(parts, 100);
  EXPECT_EQ(flops[1], parts * 200);
  EXPECT_EQ(bytes[0], 4 * (1000 * 200 + parts * 200));
}

/// An epilogue computes, too.
TEST(LowerTraffic, WhatIsFusedIntoAMatmul) {
  const Plan p = plan_of(R"(graph g {
  %0 = input f32[32,64] arg
  %1 = input f32[64,24] param
  %2 = f32[32,24] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %3 = f32[32,24] add %2, %2
  output %3
})");
  EXPECT_THAT(of_launches(p, &ProfileRow::flops), ElementsAre(2 * 32 * 24 * 64 + 32 * 24));
}

/// Of a tensor that lies strided a plan says how far it reaches.
TEST(LowerTraffic, HowFarInputsReach) {
  const char* text = R"(graph g {
  %0 = input f32[3,5] arg
  %1 = input f32[3,5] arg
  %2 = f32[3,5] add %0, %1
  output %2
})";
  const Plan p = plan_of(text, {{{Dim(1), Dim(16)}, Dim(2)}, {{Dim(5), Dim(1)}, Dim(0)}});
  EXPECT_EQ(p.dims[static_cast<size_t>(p.buffers[0].bytes)].value(), 4 * (2 + 2 * 1 + 4 * 16 + 1));
  EXPECT_EQ(p.dims[static_cast<size_t>(p.buffers[1].bytes)].value(), 4 * 15);
}

/// Nothing of the arena is named by a launch before one has written it; outputs may be named, and left alone.
TEST(LowerTraffic, LaunchesSayWhatTheyWrite) {
  const char* graphs[] = {R"(graph split {
  %0 = input f32[8,65536] arg
  %1 = input f32[65536,8] param
  %2 = f32[8,8] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  output %2
})",
                          R"(graph parts {
  %0 = input f32[1000,200] arg
  %1 = f32[200] sum %0 {dims=(0)}
  output %1
})",
                          R"(graph update {
  %0 = input f32[64] param
  %1 = f32[64] exp %0
  output %1
  output %1 alias=0
})"};
  for (const char* text : graphs) {
    const Plan p = plan_of(text);
    std::vector<bool> made;
    for (const PlanBuffer& b : p.buffers)
      made.push_back(b.kind != BufferKind::arena && b.kind != BufferKind::output);
    std::vector<bool> written(p.buffers.size());
    for (const Launch& l : p.launches) {
      EXPECT_FALSE(l.writes.empty());
      for (size_t i = 0; i < l.buffers.size(); ++i) {
        const bool writes = std::count(l.writes.begin(), l.writes.end(), static_cast<int32_t>(i)) > 0;
        const bool unused = p.buffers[static_cast<size_t>(l.buffers[i])].kind == BufferKind::output;
        EXPECT_TRUE(writes || unused || made[static_cast<size_t>(l.buffers[i])]) << print(p);
        if (writes)
          written[static_cast<size_t>(l.buffers[i])] = made[static_cast<size_t>(l.buffers[i])] = true;
      }
    }
    EXPECT_THAT(made, Each(true)) << print(p);
    for (size_t b = 0; b < p.buffers.size(); ++b) {
      const bool in_place = std::string_view(text).starts_with("graph update") && b == 0;
      EXPECT_EQ(written[b], in_place || p.buffers[b].kind != BufferKind::external) << print(p);
    }
  }
}

/// Equal constants are one node, wherever they were written: they name no launch that does something else.
TEST(LowerTraffic, ConstantsAreNoSource) {
  const Plan p = plan_of(R"(graph g {
  %0 = input f32[64] arg
  %1 = f32[64] constant {value=2., dtype=f32, shape=[64]}
  %2 = f32[64] mul %0, %1
  output %2
})");
  ASSERT_EQ(p.profile.size(), 1u);
  EXPECT_THAT(p.profile[0].sources, ElementsAre(1));
}

/// Slices are copied before a scatter reads them.
TEST(LowerTraffic, AScatterOfSlices) {
  EXPECT_THAT(bytes_of(R"(graph g {
  %0 = input f32[16,8] arg
  %1 = input i64[100] arg
  %2 = input f32[100,8] arg
  %3 = i64[4] slice %1 {starts=[50], stops=[54], steps=(1)}
  %4 = f32[4,8] slice %2 {starts=[10,0], stops=[14,8], steps=(1,1)}
  %5 = f32[16,8] index_add %0, %3, %4 {dim=0}
  output %5
})"),
              ElementsAre(8 * 2 * 4, 4 * 2 * 4 * 8, 4 * (2 * 16 * 8 + 4 * 8) + 8 * 4));
}

}  // namespace KILN_FILE
}  // namespace kiln
