// SPDX-License-Identifier: Apache-2.0
// Text in, text out: which operands of contractions are computed while they are packed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/fuse.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;
using ::testing::Not;

std::string fused(std::string_view text) {
  const Graph g = parse_graph(text);
  verify(g);
  return print(fuse(g), g);
}

TEST(FusePrologue, PointwiseProducersOfBothOperands) {
  EXPECT_EQ(fused(R"(graph g {
  %0 = input f32[6,128,64] arg
  %1 = input f32[32,64] param
  %2 = f32[6,128,64] sigmoid %0
  %3 = f32[6,128,64] mul %0, %2
  %4 = f32[32,64] abs %1
  %5 = f32[6,128,32] dot_general %3, %4 {batch_a=(), batch_b=(), contract_a=(2), contract_b=(1)}
  output %5
})"),
            R"(prologue of operand 0:
kernel a0:row[768] a1:col[64]
  p0 f32 read
  p1 f32 write
  %0 = f32 load p0[a0*64 + a1]
  %1 = f32 sigmoid %0
  %2 = f32 mul %0, %1
  store p1[a0*64 + a1] = %2
  p0 = %0
  p1 = %3
prologue of operand 1:
kernel a0:row[64] a1:col[32]
  p0 f32 read
  p1 f32 write
  %0 = f32 load p0[a0 + a1*64]
  %1 = f32 abs %0
  store p1[a0*32 + a1] = %1
  p0 = %1
  p1 = %4
node dot_general -> %5
)");
}

TEST(FusePrologue, AnOperandThatIsAnOutputIsReadFromThere) {
  EXPECT_THAT(fused(R"(graph g {
  %0 = input f32[2,32,4,16] arg
  %1 = input f32[2,4,32,32] arg
  %2 = f32[2,32,4,16] exp %0
  %3 = f32[2,4,32,16] permute %2 {dims=(0,2,1,3)}
  %4 = f32[2,4,32,16] dot_general %1, %3 {batch_a=(0,1), batch_b=(0,1), contract_a=(3), contract_b=(2)}
  output %4
  output %3
})"),
              Not(HasSubstr("prologue")));
}

/// x normalized by row statistics made here, times w of n rows; `more` are further nodes and outputs.
std::string normalized(int n, std::string_view more) {
  return fmt::format(R"(graph g {{
  %0 = input f32[64,128] arg
  %1 = input f32[{0},128] param
  %2 = f32[64] sum %0 {{dims=(1)}}
  %3 = f32[64,1] reshape %2 {{shape=[64,1]}}
  %4 = f32[64,128] expand %3 {{shape=[64,128]}}
  %5 = f32[64,128] sub %0, %4
  %6 = f32[64,{0}] dot_general %5, %1 {{batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}}
  output %6
{1}}})",
                     n, more);
}

TEST(FusePrologue, StatisticsOfRowsAreStoredInstead) {
  EXPECT_EQ(fused(normalized(96, "")), R"(kernel a0:row[64] a1:col[128]
  p0 f32 read
  p1 f32 write
  %0 = f32 load p0[a0*128 + a1]
  %1 = f32 reduce sum %0
  store p1[a0] = %1
  p0 = %0
  p1 = %2
prologue of operand 0:
kernel a0:row[64] a1:col[128]
  p0 f32 read
  p1 f32 read
  p2 f32 write
  %0 = f32 load p0[a0*128 + a1]
  %1 = f32 load p1[a0]
  %2 = f32 sub %0, %1
  store p2[a0*128 + a1] = %2
  p0 = %0
  p1 = %2
  p2 = %5
node dot_general -> %6
)");
}

TEST(FusePrologue, ManyPackingsDoNotPay) {
  EXPECT_THAT(fused(normalized(96, "")), HasSubstr("prologue"));
  EXPECT_THAT(fused(normalized(8192, "")), Not(HasSubstr("prologue")));
}

TEST(FusePrologue, WhatIsPutOutIsInMemoryAnyway) {
  EXPECT_THAT(fused(normalized(96, "  output %5\n")), Not(HasSubstr("prologue")));
}

TEST(FusePrologue, BackwardReadsTheSameProducer) {
  // The weight's gradient packs it again, transposed; nothing stores %5.
  const std::string s = fused(normalized(
      96,
      "  %7 = input f32[64,96] arg\n"
      "  %8 = f32[128,96] dot_general %5, %7 {batch_a=(), batch_b=(), contract_a=(0), contract_b=(0)}\n"
      "  output %8\n"));
  EXPECT_THAT(s, HasSubstr("kernel a0:row[64] a1:col[128]\n  p0 f32 read\n  p1 f32 write\n"));
  EXPECT_THAT(s, HasSubstr("prologue of operand 0:\nkernel a0:row[128] a1:col[64]\n"));
  EXPECT_THAT(s, HasSubstr("%0 = f32 load p0[a0 + a1*128]"));
  EXPECT_EQ(s.find("node dot_general -> %6, "), std::string::npos);
}

TEST(FusePrologue, PointwiseReadersComputeItAgain) {
  const std::string s = fused(normalized(
      96,
      "  %7 = f32[64,128] dot_general %6, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}\n"
      "  %8 = f32[64,128] mul %7, %5\n  output %8\n"));
  EXPECT_THAT(s, HasSubstr("prologue of operand 0"));
  EXPECT_THAT(s, HasSubstr(R"(node dot_general -> %7, epilogue:
kernel a0:row[64] a1:col[128]
  p0 f32 read
  p1 f32 read
  p2 f32 read
  p3 f32 write
  %0 = f32 load p0[a0*128 + a1]
  %1 = f32 load p1[a0*128 + a1]
  %2 = f32 load p2[a0]
  %3 = f32 sub %1, %2
  %4 = f32 mul %0, %3
)"));
}

/// A matmul of `rows` rows, gelu-like behind it, and a later kernel that reads the same erf.
std::string erf_of_a_matmul(int rows) {
  return fused(fmt::format(R"(graph g {{
  %0 = input f32[{0},64] arg
  %1 = input f32[64,512] param
  %2 = input f32[512,512] param
  %3 = f32[{0},512] dot_general %0, %1 {{batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}}
  %4 = f32[{0},512] erf %3
  %5 = f32[{0},512] mul %3, %4
  %6 = f32[{0},512] dot_general %5, %2 {{batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}}
  %7 = f32[{0},512] add %4, %3
  %8 = f32[{0},512] mul %6, %7
  %9 = f32[{0}] sum %8 {{dims=(1)}}
  output %5
  output %9
}})",
                           rows));
}

TEST(FusePrologue, LargeValuesAreComputedAgainByKernelsThatHaveTheirOperands) {
  const auto count = [](std::string text) {
    int n = 0;
    for (size_t at = 0; (at = text.find("f32 erf", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  EXPECT_EQ(count(erf_of_a_matmul(1024)), 2);  // 2 MiB
  EXPECT_EQ(count(erf_of_a_matmul(128)), 1);   // near: reading it costs less
}

TEST(FusePrologue, EpiloguesThatKeepNothingStay) {
  // As a prologue the second matmul would read what now only registers hold.
  const std::string s = fused(R"(graph g {
  %0 = input f32[64,32] arg
  %1 = input f32[64,32] param
  %2 = input f32[48,64] param
  %3 = f32[64,64] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %4 = f32[64,64] abs %3
  %5 = f32[64,48] dot_general %4, %2 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  output %5
})");
  EXPECT_THAT(s, HasSubstr("node dot_general -> %3, epilogue:"));
  EXPECT_THAT(s, Not(HasSubstr("prologue")));
}

TEST(FusePrologue, RowsThatDoNotWalkAsOneStayInMemory) {
  // The table is the same for all batch elements: rows of the matmul are two axes of it.
  EXPECT_THAT(fused(R"(graph g {
  %0 = input f32[8,16,32] arg
  %1 = input f32[16,32] param
  %2 = input f32[24,32] param
  %3 = f32[8,16,32] expand %1 {shape=[8,16,32]}
  %4 = f32[8,16,32] add %0, %3
  %5 = f32[8,16,24] dot_general %4, %2 {batch_a=(), batch_b=(), contract_a=(2), contract_b=(1)}
  output %5
})"),
              Not(HasSubstr("prologue")));
}

}  // namespace KILN_FILE
}  // namespace kiln
