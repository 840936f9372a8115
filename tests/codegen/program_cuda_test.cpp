// SPDX-License-Identifier: Apache-2.0
// Whole programs for CUDA: matmuls with what is fused into them, run on simulated blocks; and what the cache
// keeps with and without machine code.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "codegen/compile_nvrtc.h"
#include "codegen/program.h"
#include "codegen/program_entry.h"
#include "codegen/program_key.h"
#include "tests/codegen/convolutions.h"
#include "tests/codegen/cuda_plan.h"
#include "tests/codegen/kept_source.h"
#include "tests/ir/random_graph.h"

namespace kiln {
namespace KILN_FILE {

using testing::difference;

const Target& target() {
  static const Target t = parse_cuda_target("sm_90a");
  return t;
}

std::string linear(const char* dtype, int m, int n, int k, bool keep) {
  return fmt::format(R"(graph g {{
  %0 = input {0}[{1},{3}] arg
  %1 = input {0}[{2},{3}] param
  %2 = input {0}[{2}] param
  %3 = input {0}[{1},{2}] arg
  %4 = {0}[{1},{2}] dot_general %0, %1 {{batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}}
  %5 = {0}[{1},{2}] expand %2 {{shape=[{1},{2}]}}
  %6 = {0}[{1},{2}] add %4, %5
  %7 = {0}[{1},{2}] sigmoid %6
  %8 = {0}[{1},{2}] add %7, %3
  output %8
{4}}})",
                     dtype, m, n, k, keep ? "  output %4\n" : "");
}

/// Runs `text` fused and apart.
void expect_same(const std::string& text, int64_t length) {
  const Graph g = parse_graph(text);
  verify(g);
  const std::vector<HostTensor> inputs = testing::random_inputs(g, 1);
  const std::vector<HostTensor> want = interpret(g, inputs);
  for (bool fuse : {true, false}) {
    const CompiledProgram p = compile_program(g, {}, target(), {.fuse = fuse}, nullptr, 1);
    const std::vector<HostTensor> got = testing::execute_cuda(g, p.plan, p.image, inputs);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(difference(got[i], want[i], length), "")
          << "output " << i << (fuse ? " fused" : " apart") << text;
  }
}

TEST(ProgramCuda, ContractionsOverWindows) {
  for (const std::string& text : testing::convolutions()) {
    SCOPED_TRACE(text);
    expect_same(text, 64);
  }
}

TEST(ProgramCuda, EpiloguesOfMatmuls) {
  for (const auto& [m, n, k] : {std::array<int, 3>{5, 3, 7}, {70, 66, 40}, {64, 128, 64}, {33, 130, 17}})
    for (const char* dtype : {"f32", "f64"})
      for (const bool keep : {false, true}) expect_same(linear(dtype, m, n, k, keep), k);
}

/// What would have been the epilogue reads its part of %2; the library's product begins where its result
/// does.
TEST(ProgramCuda, ProductsOfTheLibraryWriteTheirWholeResult) {
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[32,32] arg
  %1 = input f32[32,32] arg
  %2 = input f32[64,32] arg
  %3 = f32[32,32] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %4 = f32[32,32] slice %2 {starts=[32,0], stops=[64,32], steps=(1,1)}
  %5 = f32[32,32] add %4, %3
  output %5
})");
  verify(g);
  const Plan p = lower(g, {}, target(), {.library = true}).plan;
  ASSERT_EQ(p.launches.size(), 2u);
  ASSERT_TRUE(p.kernels[static_cast<size_t>(p.launches[0].kernel)].builtin) << print(p);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(p.launches[0].start(i), 0) << print(p);
  EXPECT_THAT(p.launches[1].starts, ::testing::Contains(32 * 32 * 4)) << print(p);
}

TEST(ProgramCuda, ProloguesOfMatmuls) {
  for (const auto& [m, n, k] : {std::array<int, 3>{40, 24, 36}, {17, 9, 70}})
    for (const char* contract : {"contract_a=(1), contract_b=(1)", "contract_a=(0), contract_b=(0)"}) {
      const bool rows = contract[12] == '0';
      expect_same(fmt::format(R"(graph g {{
  %0 = input f32[{0},{1}] arg
  %1 = input f32[{0},{1}] arg
  %2 = input f32[{2},{3}] param
  %3 = f32[{0},{1}] tanh %0
  %4 = f32[{0},{1}] mul %3, %1
  %5 = f32[{2},{3}] exp %2
  %6 = f32[{4},{5}] dot_general %4, %5 {{batch_a=(), batch_b=(), {6}}}
  output %6
}})",
                              rows ? k : m, rows ? m : k, rows ? k : n, rows ? n : k, m, n, contract),
                  k);
    }
}

TEST(ProgramCuda, BatchesOfMatmulsAndSplitSums) {
  expect_same(R"(graph g {
  %0 = input f32[2,3,20,8] arg
  %1 = input f32[2,3,24,8] arg
  %2 = f32[2,3,20,24] dot_general %0, %1 {batch_a=(0,1), batch_b=(0,1), contract_a=(3), contract_b=(3)}
  %3 = f32[2,3,20,24] constant {value=0.25, dtype=f32, shape=[2,3,20,24]}
  %4 = f32[2,3,20,24] mul %2, %3
  %5 = f32[2,3,20] amax %4 {dims=(3)}
  output %4
  output %5
})",
              8);
  expect_same(linear("f32", 8, 16, 3000, true), 3000);
}

/// A cache of its own.
class ProgramCudaCache : public ::testing::Test {
 protected:
  ProgramCudaCache() { std::filesystem::remove_all(folder_); }
  ~ProgramCudaCache() override { std::filesystem::remove_all(folder_); }
  CompiledProgram compile(bool machine_code, const char* arch = "sm_90a") {
    DiskCache cache(folder_, int64_t{1} << 30);
    return compile_program(g_, {}, parse_cuda_target(arch), {}, &cache, 2, {}, machine_code);
  }
  const std::string folder_ = ::testing::TempDir() + "kiln-program-cuda-test-" + std::to_string(getpid());
  Graph g_ = parse_graph(linear("f32", 20, 24, 16, false));
};

TEST_F(ProgramCudaCache, SourcesNeedNoCompiler) {
  const CompiledProgram first = compile(false), second = compile(false);
  EXPECT_FALSE(first.stats.from_cache);
  EXPECT_GT(first.stats.kernels, 0);
  EXPECT_EQ(first.stats.compiled, 0);
  EXPECT_TRUE(second.stats.from_cache);
  EXPECT_EQ(second.image.modules, first.image.modules);
  EXPECT_EQ(second.image.target, "sm_90a");
  EXPECT_TRUE(second.image.modules[0].cubin.empty());
  EXPECT_EQ(print(second.plan), print(first.plan));
  EXPECT_FALSE(compile(false, "sm_80").stats.from_cache);
}

TEST_F(ProgramCudaCache, MachineCodeStartsFromSourcesAndServesTheSimulatedDevice) {
  std::string why;
  if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  const CompiledProgram made = compile(true);
  EXPECT_GT(made.stats.compiled, 0);
  EXPECT_FALSE(made.image.modules[0].cubin.empty());
  EXPECT_GT(made.image.modules[0].kernels[0].registers, 0);
  const CompiledProgram again = compile(true), sources = compile(false);
  EXPECT_TRUE(again.stats.from_cache);
  EXPECT_EQ(again.stats.compiled, 0);
  EXPECT_EQ(again.image.modules, made.image.modules);
  EXPECT_TRUE(sources.stats.from_cache);
  EXPECT_EQ(sources.image.modules[0].source, made.image.modules[0].source);
  // The other way round: what was lowered for the simulated device is not lowered again.
  compile(false, "sm_80");
  const CompiledProgram other = compile(true, "sm_80");
  EXPECT_EQ(other.stats.lower_ms, 0);
  EXPECT_GT(other.stats.compiled, 0);
}

/// A source is found by its text, whoever's lines it computes: an error names those of this program.
TEST_F(ProgramCudaCache, ASourceThatDoesNotCompileNamesTheLinesOfTheProgram) {
  std::string why;
  if (!nvrtc_available(&why)) GTEST_SKIP() << why;
  CompiledProgram broken = compile(false);
  for (CudaModule& m : broken.image.modules) m.source += "oops";
  DiskCache(folder_, int64_t{1} << 30)
      .store(kPlanKind, program_key(g_, {}, target(), {}).str(), detail::pack_program(broken));
  for (const uint32_t line : {3u, 70u}) {
    g_.nodes.front().origin.loc = SourceLoc("net.cpp", line);
    g_.nodes.back().origin.loc = SourceLoc("net.cpp", line + 1);
    try {
      compile(true);
      FAIL();
    } catch (const Error& e) {
      const std::string want = fmt::format("\nit computes net.cpp:{} net.cpp:{} (", line, line + 1);
      EXPECT_THAT(e.what(), ::testing::HasSubstr(want));
      const std::string path = testing::kept_in(e.what());
      EXPECT_TRUE(std::filesystem::remove(path)) << path;
    }
  }
}

TEST(ProgramCuda, KeysNameArchitectureAndPrecision) {
  const Graph g = parse_graph(linear("f32", 2, 2, 2, false));
  const auto key = [&](const Target& t, bool tf32) { return program_key(g, {}, t, {.tf32 = tf32}).str(); };
  EXPECT_NE(key(target(), false), key(parse_cuda_target("sm_90"), false));
  EXPECT_NE(key(target(), false), key(target(), true));
  EXPECT_EQ(key(host_target(), false), key(host_target(), true));
  ProgramKey parsed;
  ASSERT_TRUE(parse_program_key(key(target(), true), parsed));
  EXPECT_EQ(parsed.target, "sm_90a");
  EXPECT_EQ(parsed.options, "fuse=true, tf32");
}

}  // namespace KILN_FILE
}  // namespace kiln
