// SPDX-License-Identifier: Apache-2.0
#include "codegen/key_summary.h"

#include <gmock/gmock.h>

#include "codegen/cache_entry.h"
#include "codegen/compile_clang.h"
#include "codegen/kernel_cache.h"
#include "codegen/program_key.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::StartsWith;

TEST(KeySummary, Programs) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[4] arg
  %1 = f32[4] exp %0
  %2 = f32[4] neg %1
  output %1
  output %2
})");
  const CpuTarget target = parse_target("x86-64-v3");
  const KeySummary s = summarize_key(entry_key("plan", program_key(g, {}, target, {}).str()));
  EXPECT_EQ(s.what, "program of 2 ops, 1 inputs, 2 outputs");
  EXPECT_EQ(s.target, host_target() == target ? "host" : "x86-64-v3");
  EXPECT_THAT(s.compiler, StartsWith("clang "));
}

TEST(KeySummary, Objects) {
  const CpuTarget target = parse_target("x86-64-v4");
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"-a", "-b"}}) {
    const KeySummary s =
        summarize_key(entry_key("object", object_key({"k_12.cpp", "int\n\nx;", flags}, target)));
    EXPECT_EQ(s.what, "kernel k_12");
    EXPECT_EQ(s.target, host_target() == target ? "host" : "x86-64-v4");
    EXPECT_THAT(s.compiler, StartsWith("clang "));
  }
}

TEST(KeySummary, MachineCodeOfGpus) {
  const std::string flags = "--gpu-architecture=sm_90a --std=c++20 \nprelude 12ab\n";
  const KeySummary s =
      summarize_key(entry_key("cubin", "nvrtc 13.0\nsm_90a\n" + flags + "m_12.cu\n// a.cu\nint x;"));
  EXPECT_EQ(s.target, "sm_90a");
  EXPECT_EQ(s.compiler, "nvrtc 13.0");
  EXPECT_EQ(s.what, "CUDA source m_12");
}

TEST(KeySummary, CodeForTheSimulatedGpu) {
  const CpuTarget target = parse_target("x86-64-v3");
  const std::string key = compiler_key(target, Prelude::cuda_sim) + "-O1\nkn_sim\nk_34\nm_12.cu\nint x;";
  const KeySummary s = summarize_key(entry_key("sim", key));
  EXPECT_EQ(s.target, host_target() == target ? "host" : "x86-64-v3");
  EXPECT_THAT(s.compiler, StartsWith("clang "));
  EXPECT_EQ(s.what, "CUDA source m_12");
}

TEST(KeySummary, OthersGiveTheirFirstLine) {
  EXPECT_EQ(summarize_key("tune\nmatmul 4x5\nmore").what, "matmul 4x5");
  EXPECT_EQ(summarize_key("plan\nof another Kiln").what, "of another Kiln");
  EXPECT_EQ(summarize_key("").what, "");
}

TEST(KeySummary, TargetsBetweenLevels) {
  CpuTarget t = parse_target("x86-64-v3");
  EXPECT_EQ(target_label(host_target().str()), "host");
  const size_t at = t.features.find("-avxvnni");
  ASSERT_NE(at, std::string::npos);
  t.features[at] = '+';
  if (!(t == host_target())) {
    EXPECT_EQ(target_label(t.str()), "x86-64-v3 +avxvnni");
  }
  EXPECT_EQ(target_label(parse_target("aarch64").str()), "aarch64");
  EXPECT_EQ(target_label("x"), "x");
}

}  // namespace KILN_FILE
}  // namespace kiln
