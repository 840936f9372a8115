// SPDX-License-Identifier: Apache-2.0
// Text in, text out: graphs to fused kernels.
#include "ir/fuse.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

std::string fused(std::string_view text) {
  const Graph g = parse_graph(text);
  verify(g);
  return print(fuse(g), g);
}
size_t kernels(std::string_view text) {
  const Graph g = parse_graph(text);
  return fuse(g).kernels.size();
}

constexpr const char* kSoftmax = R"(graph g {
  %0 = input f32[64,1000] arg
  %1 = f32[64] amax %0 {dims=(1)}
  %2 = f32[64,1] reshape %1 {shape=[64,1]}
  %3 = f32[64,1000] expand %2 {shape=[64,1000]}
  %4 = f32[64,1000] sub %0, %3
  %5 = f32[64,1000] exp %4
  %6 = f32[64] sum %5 {dims=(1)}
  %7 = f32[64,1] reshape %6 {shape=[64,1]}
  %8 = f32[64,1000] expand %7 {shape=[64,1000]}
  %9 = f32[64,1000] div %5, %8
  output %9
})";

TEST(Fuse, SoftmaxIsOneKernel) {
  EXPECT_EQ(fused(kSoftmax), R"(kernel a0:row[64] a1:col[1000]
  p0 f32 read
  p1 f32 write
  %0 = f32 load p0[a0*1000 + a1]
  %1 = f32 reduce amax %0
  %2 = f32 sub %0, %1
  %3 = f32 exp %2
  %4 = f32 reduce sum %3
  %5 = f32 div %3, %4
  store p1[a0*1000 + a1] = %5
  p0 = %0
  p1 = %9
)");
}

TEST(Fuse, PartitionNamesTheNodesOfEachStep) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[8,4] arg
  %1 = input f32[6,4] param
  %2 = f32[8,6] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %3 = f32[8,6] tanh %2
  %4 = f32[8] sum %3 {dims=(1)}
  output %3
  output %4
})");
  EXPECT_EQ(print_partition(fuse(g), g), R"(step 0
 node
  %2 = f32[8,6] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
step 1
  %3 = f32[8,6] tanh %2
  %4 = f32[8] sum %3 {dims=(1)}
  reads %2
  writes %3 %4
)");
}

TEST(Fuse, WithoutFusionEachNodeHasItsKernel) {
  const Graph g = parse_graph(kSoftmax);
  EXPECT_EQ(fuse(g, {.fuse = false}).kernels.size(), 9u);
}

// An index is computed where it is read, unless a reshape has taken its dims apart: then it lies in memory.
TEST(Fuse, WithoutFusionIndicesBehindAReshapeHaveAKernel) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input i64[4,8,3] arg
  %1 = i64[4,3,8] iota {dim=2, shape=[4,3,8]}
  %2 = i64[4,8,3] reshape %1 {shape=[4,8,3]}
  %3 = i64[4,8,3] maximum %2, %0
  output %3
})");
  EXPECT_EQ(fuse(g, {.fuse = false}).kernels.size(), 3u);
}

TEST(Fuse, MseAndItsBackwardAreOneKernelAndACombine) {
  EXPECT_EQ(fused(R"(graph g {
  %0 = input f32[4096,512] arg
  %1 = input f32[4096,512] arg
  %2 = f32[4096,512] sub %0, %1
  %3 = f32[4096,512] mul %2, %2
  %4 = f32[] sum %3 {dims=(0,1)}
  %5 = f32[4096,512] constant {value=0.5, dtype=f32, shape=[4096,512]}
  %6 = f32[4096,512] mul %2, %5
  output %4
  output %6
})"),
            R"(kernel a0:row[4096] a1:col[512]
  p0 f32 read
  p1 f32 read
  p2 f32 write
  p3 f32 write
  %0 = f32 load p0[a0*512 + a1]
  %1 = f32 load p1[a0*512 + a1]
  %2 = f32 sub %0, %1
  %3 = f32 mul %2, %2
  partial sum p2 = %3 over all
  %5 = f32 constant 0.5
  %6 = f32 mul %2, %5
  store p3[a0*512 + a1] = %6
  p0 = %0
  p1 = %1
  p2 = partial 0
  p3 = %6
kernel
  p0 f32 read
  p1 f32 write
  %0 = f32 fold sum p0[0] + i*1, i < 64
  store p1[0] = %0
  p0 = partial 0
  p1 = %4
)");
}

TEST(Fuse, ColumnSumGoesIntoTheUpdateThatReadsIt) {
  // The gradient of a bias and its SGD step: partials, then one kernel that combines and updates.
  EXPECT_EQ(fused(R"(graph g {
  %0 = input f32[2048,256] arg
  %1 = input f32[256] param
  %2 = f32[256] sum %0 {dims=(0)}
  %3 = f32[256] constant {value=0.1, dtype=f32, shape=[256]}
  %4 = f32[256] mul %2, %3
  %5 = f32[256] sub %1, %4
  output %5 alias=1
})"),
            R"(kernel a0:row[2048] a1:col[256]
  p0 f32 read
  p1 f32 write
  %0 = f32 load p0[a0*256 + a1]
  partial sum p1 = %0 by column
  p0 = %0
  p1 = partial 0
kernel a0:col[d0]
  p0 f32 read
  p1 f32 read
  p2 f32 write
  %0 = f32 load p0[a0]
  %1 = f32 fold sum p1[a0] + i*d0, i < 32
  %2 = f32 constant 0.1
  %3 = f32 mul %1, %2
  %4 = f32 sub %0, %3
  store p2[a0] = %4
  p0 = %1
  p1 = partial 0
  p2 = %5
)");
}

TEST(Fuse, EmbeddingReadsTheRowItsIndexNames) {
  const std::string s = fused(R"(graph g {
  %0 = input i64[8] arg
  %1 = input f32[100,16] param
  %2 = f32[8,16] take %1, %0 {dim=0}
  output %2
})");
  EXPECT_NE(s.find("load p1[a1 + %5*16] if 0 <= %5 < 100"), std::string::npos) << s;
}

TEST(Fuse, ViewsMakeNoKernels) {
  EXPECT_EQ(kernels(R"(graph g {
  %0 = input f32[6,4] arg
  %1 = f32[4,6] permute %0 {dims=(1,0)}
  %2 = f32[2,6] slice %1 {starts=[1,0], stops=[3,6], steps=(1,1)}
  %3 = f32[2,6] flip %2 {dims=(1)}
  %4 = f32[3,6] pad %3 {low=[1,0], high=[0,0], interior=(0,0), value=0.}
  %5 = f32[3,6] exp %4
  output %5
})"),
            1u);
}

TEST(Fuse, WindowsAndSkewsMakeNoKernels) {
  // A pool and its gradient.
  EXPECT_EQ(kernels(R"(graph g {
  %0 = input f32[6,40] arg
  %1 = f32[6,19,3] window %0 {dim=1, size=3, step=2, dilation=1}
  %2 = f32[6,19] amax %1 {dims=(2)}
  output %2
})"),
            1u);
  EXPECT_EQ(kernels(R"(graph g {
  %0 = input f32[6,38,3] arg
  %1 = f32[6,40,3] skew %0 {dim=1, by=1, size=[40]}
  %2 = f32[6,40] sum %1 {dims=(2)}
  output %2
})"),
            1u);
}

TEST(Fuse, ScansSortsAndScattersStandAlone) {
  const std::string s = fused(R"(graph g {
  %0 = input f32[6,4] arg
  %1 = input i64[6,4] arg
  %2 = f32[6,4] exp %0
  %3 = f32[6,4] cumsum %2 {dim=1}
  %4 = i64[6,4] argsort %3 {dim=1, descending=true}
  %5 = f32[6,4] scatter_amax %3, %1, %2 {dim=1}
  %6 = f32[6,4] neg %5
  output %4
  output %6
})");
  EXPECT_NE(s.find("node cumsum -> %3\nnode argsort -> %4\nnode scatter_amax -> %5\n"), std::string::npos)
      << s;
}

TEST(Fuse, WorkAcrossAMatmulIsNotMerged) {
  const std::string s = fused(R"(graph g {
  %0 = input f32[8,8] arg
  %1 = f32[8,8] exp %0
  %2 = f32[8,8] dot_general %1, %0 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %3 = f32[8,8] add %2, %1
  output %3
})");
  const size_t first = s.find("exp"), node = s.find("node dot_general"), last = s.find("add");
  EXPECT_LT(first, node);
  EXPECT_LT(node, last);
}

TEST(Fuse, UpdatesThatShareOnlyNumbersStayApart) {
  // Both read the rate, spread over one shape and scaled. As one kernel they would wait for both gradients
  // and keep them alive.
  EXPECT_EQ(kernels(R"(graph g {
  %0 = input f32[] scalar
  %1 = input f32[64,64] param
  %2 = input f32[64,64] param
  %3 = input f32[64,64] arg
  %4 = input f32[64,64] arg
  %5 = f32[64,64] expand %0 {shape=[64,64]}
  %6 = f32[64,64] exp %5
  %7 = f32[64,64] permute %6 {dims=(1,0)}
  %8 = f32[64,64] mul %3, %7
  %9 = f32[64,64] sub %1, %8
  %10 = f32[64,64] mul %4, %7
  %11 = f32[64,64] sub %2, %10
  output %9 alias=1
  output %11 alias=2
})"),
            2u);
}

// Indices that the first axis alone walks come into a kernel whose last axis is summed over: the one between
// does not become a second that is.
TEST(Fuse, AxesBesideASumStayRows) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input i64[2] arg
  %1 = input i64[2] arg
  %2 = input f32[17,5] arg
  %3 = input f32[2,5,10] arg
  %4 = i64[2] remainder %0, %1
  %5 = f32[2,5] take %2, %4 {dim=0}
  %6 = f32[2,5] sum %3 {dims=(2)}
  %7 = f32[2,5] mul %5, %6
  output %7
  output %4
})");
  int sums = 0;
  for (const FusedKernel& k : fuse(g).kernels) {
    if (!k.kernel.has(loop::InstrKind::reduce)) continue;
    ++sums;
    EXPECT_TRUE(k.kernel.extent(loop::AxisRole::col).is(10)) << loop::print(k.kernel);
  }
  EXPECT_EQ(sums, 1);
}

TEST(Fuse, ReadersOfOneTensorAreOneKernel) {
  // Not one number: padded with another, random, or two side by side.
  for (const char* shared : {"pad %5 {low=[1], high=[0], interior=(0), value=0.}",
                             "random_uniform %6, %6 {shape=[8]}", "cat %5, %7 {dim=0}"})
    EXPECT_EQ(kernels(fmt::format(R"(graph g {{
  %0 = input f32[8] arg
  %1 = input f32[8] arg
  %2 = input f32[] scalar
  %3 = input i64[] scalar
  %4 = input f32[] scalar
  %5 = f32[7] expand %2 {{shape=[7]}}
  %6 = i64[] neg %3
  %7 = f32[1] expand %4 {{shape=[1]}}
  %8 = f32[8] {}
  %9 = f32[8] exp %8
  %10 = f32[8] mul %9, %0
  %11 = f32[8] mul %9, %1
  output %10
  output %11
}})",
                                  shared)),
              1u)
        << shared;
}

/// Behind a cat each element would compute the pieces that it does not read, too: costly ones are made apart.
TEST(Fuse, CostlyPiecesOfACatAreMadeApart) {
  const auto cat_of = [](const char* name) {
    return kernels(fmt::format(R"(graph g {{
  %0 = input f32[64,8] arg
  %1 = input f32[32,8] arg
  %2 = f32[64,8] {0} %0
  %3 = f32[32,8] {0} %1
  %4 = f32[96,8] cat %2, %3 {{dim=0}}
  output %4
}})",
                               name));
  };
  EXPECT_EQ(cat_of("neg"), 1u);
  EXPECT_EQ(cat_of("tanh"), 3u);
}

TEST(Fuse, CheapProducersAreComputedAgain) {
  // x * 2 is read on both sides of a matmul: it is no tensor of its own.
  const std::string s = fused(R"(graph g {
  %0 = input f32[64,64] arg
  %1 = f32[64,64] constant {value=2., dtype=f32, shape=[64,64]}
  %2 = f32[64,64] mul %0, %1
  %3 = f32[64,64] exp %2
  %4 = f32[64,64] dot_general %3, %0 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %5 = f32[64,64] add %4, %2
  output %5
})");
  EXPECT_EQ(s.find("= %2\n"), std::string::npos) << s;
}

}  // namespace KILN_FILE
}  // namespace kiln
