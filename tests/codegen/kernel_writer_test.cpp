// SPDX-License-Identifier: Apache-2.0
// The seam between lowering and targets: plans are the same for all, and what targets share names none.
#include "codegen/kernel_writer.h"

#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "ir/passes.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

/// All of a plan but kernels, tasks, scratch and workspaces, which are the targets' own.
std::string shared_text(const Plan& p) {
  const auto dim = [&](DimIndex i) {
    return i < 0 ? std::string("-") : p.dims[static_cast<size_t>(i)].str();
  };
  std::string s;
  std::vector<int> number(p.buffers.size(), -1);
  int next = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const PlanBuffer& b = p.buffers[i];
    if (b.name == "split_k") continue;
    number[i] = next++;
    s += fmt::format("{} {} {} {} {}\n", static_cast<int>(b.kind), dtype_name(b.dtype), b.index, dim(b.bytes),
                     b.name);
  }
  for (size_t at = 0; at < p.launches.size(); ++at) {
    const Launch& l = p.launches[at];
    if (static_cast<int32_t>(at) == p.guarded_from) s += "guarded from here\n";
    const ProfileRow& row = p.profile[static_cast<size_t>(l.profile)];
    const bool split =
        std::any_of(l.buffers.begin(), l.buffers.end(), [&](int32_t b) { return number[b] < 0; });
    if (split) continue;  // one launch here may be two there
    s += fmt::format("{}{} {}", l.barrier_before ? "barrier, " : "", static_cast<int>(l.kind), row.ops);
    for (size_t i = 0; i < l.buffers.size(); ++i)
      s += fmt::format(" b{}+{}", number[l.buffers[i]], l.start(i));
    s += fmt::format(" writes {}, {} parts, {} bytes {} flops\n", fmt::join(l.writes, " "), l.parts.size(),
                     dim(row.bytes), dim(row.flops));
  }
  for (const int32_t g : p.guards) s += fmt::format("guard b{}\n", number[g]);
  return s;
}

std::string plan_for(const Graph& g, const Target& target) { return shared_text(lower(g, {}, target).plan); }

constexpr const char* kStep = R"(graph g {
  %0 = input f32[64,40] arg "x"
  %1 = input f32[40,48] param "w"
  %2 = input f32[48] param "b"
  %3 = input f32[] scalar "lr"
  %4 = f32[64,48] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %5 = f32[64,48] expand %2 {shape=[64,48]}
  %6 = f32[64,48] add %4, %5
  %7 = f32[64,48] tanh %6
  %8 = f32[48] sum %7 {dims=(0)}
  %9 = f32[64] amax %7 {dims=(1)}
  %10 = f32[48] expand %3 {shape=[48]}
  %11 = f32[48] mul %8, %10
  %12 = f32[48] sub %2, %11
  %13 = f32[40,48] dot_general %0, %7 {batch_a=(), batch_b=(), contract_a=(0), contract_b=(0)}
  %14 = f32[40,48] expand %3 {shape=[40,48]}
  %15 = f32[40,48] mul %13, %14
  %16 = f32[40,48] sub %1, %15
  output %9
  output %12 alias=2 "b"
  output %16 alias=1 "w"
})";

TEST(KernelWriter, PlansOfAllTargetsAreOne) {
  const Graph g = parse_graph(kStep);
  const std::string cpu = plan_for(g, parse_target("x86-64-v4"));
  EXPECT_THAT(cpu, ::testing::HasSubstr("tanh"));
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a"})
    EXPECT_EQ(plan_for(g, parse_cuda_target(arch)), cpu);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    testing::RandomGraphOptions o = testing::fuzz_options(seed);
    o.updates = false;  // what may be in place is each target's to say
    const Graph random = optimize(testing::random_graph(seed, o));
    EXPECT_EQ(plan_for(random, parse_cuda_target("sm_90a")), plan_for(random, parse_target("x86-64-v3")))
        << "seed " << seed;
  }
}

TEST(KernelWriter, SourcesForCudaSayWhatALaunchMustKnow) {
  const LoweredProgram p = lower(parse_graph(kStep), {}, parse_cuda_target("sm_90a"));
  for (const KernelSource& k : p.kernels) {
    ASSERT_EQ(k.cuda.size(), k.symbols.size());
    for (size_t i = 0; i < k.symbols.size(); ++i) {
      EXPECT_EQ(k.cuda[i].symbol, k.symbols[i]);
      EXPECT_EQ(k.cuda[i].threads % 32, 0);
      EXPECT_THAT(k.text,
                  ::testing::HasSubstr(fmt::format("({}, {}, {}, {})", k.symbols[i], k.cuda[i].threads,
                                                   k.cuda[i].buffer_count, k.cuda[i].dim_count)));
    }
  }
}

TEST(KernelWriter, WhatTargetsShareNamesNone) {
  for (const char* name :
       {"source_values", "source_region", "source_phases", "source_kernel", "fused_text", "wide_access"})
    for (const char* ending : {".h", ".cpp"}) {
      const std::string path = fmt::format("codegen/{}{}", name, ending);
      std::stringstream text;
      text << std::ifstream(path).rdbuf();
      ASSERT_FALSE(text.str().empty()) << path;
      EXPECT_FALSE(std::regex_search(text.str(), std::regex("cuda|nvrtc|CpuTarget", std::regex::icase)))
          << path;
    }
}

}  // namespace KILN_FILE
}  // namespace kiln
