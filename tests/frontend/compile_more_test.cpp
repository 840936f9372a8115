// SPDX-License-Identifier: Apache-2.0
// What a compiled callable says about itself.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "frontend/kiln.h"
#include "ir/base/options.h"

namespace kiln {
namespace {

TEST(CompileStats, WorkAndLimit) {
  const Tensor a = ones({64, 128}), b = ones({128, 32});
  auto f = compile([&] { return matmul(a, b); });
  EXPECT_TRUE(f.stats().builds.empty());
  f();
  const CallableStats stats = f.stats();
  ASSERT_EQ(stats.builds.size(), 1u);
  double bytes = 0, flops = 0;
  for (const auto& [moved, done] : stats.builds[0].work) {
    bytes += moved;
    flops += done;
  }
  EXPECT_DOUBLE_EQ(flops, 2.0 * 64 * 128 * 32);
  EXPECT_GE(bytes, 4.0 * (64 * 128 + 128 * 32 + 64 * 32));
  const double limit = limit_seconds(stats.builds[0], 1);
  EXPECT_GT(limit, 1e-7);
  EXPECT_LT(limit, 1e-3);
  EXPECT_EQ(limit_seconds(Build{}, 1), 0);
}

TEST(CompileStats, SwitchedOffThereAreNone) {
  set_option("KILN_COMPILE", "off");
  auto f = compile([](const Tensor& x) { return x + 1; });
  set_option("KILN_COMPILE", "");
  EXPECT_EQ(f(ones({2})).sum().item(), 4);
  EXPECT_EQ(f.stats().calls, 0u);
  EXPECT_TRUE(f.stats().builds.empty());
}

TEST(CompileTune, MeasuredOnceAndTheSameBits) {
  const Tensor a = ones({96, 128}) * 0.3, b = ones({128, 160}) * 0.7;
  const auto fn = [](const Tensor& x, const Tensor& y) { return softmax(matmul(x, y), 1); };
  auto off = compile(fn, {.tune = Tune::off});
  const std::vector<float> want = off(a, b).to_vector<float>();
  EXPECT_EQ(off.stats().builds[0].tuned + off.stats().builds[0].tune_found, 0);
  auto first = compile(fn, {.tune = Tune::fast});
  const std::vector<float> got = first(a, b).to_vector<float>();
  const Build build = first.stats().builds[0];
  EXPECT_GT(build.tuned + build.tune_found, 0);  // found, when this test ran before
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]);
  set_option("KILN_TUNE", "fast");
  auto second = compile(fn);
  set_option("KILN_TUNE", "");
  EXPECT_EQ(second(a, b).to_vector<float>(), got);
  EXPECT_EQ(second.stats().builds[0].tuned, 0);
  EXPECT_EQ(second.stats().builds[0].tune_found, build.tuned + build.tune_found);
  EXPECT_EQ(second.stats().builds[0].tune_received, 0);
  EXPECT_TRUE(second.stats().builds[0].from_cache);
  EXPECT_GT(second.stats().builds[0].tune_seconds, 0);
}

/// What KILN_DUMP writes for one build, by the name of the file without its number.
std::map<std::string, std::string> dumps(const std::string& tokens) {
  namespace fs = std::filesystem;
  const fs::path folder = testing::TempDir() + fmt::format("kiln-dump-test-{}", getpid());
  fs::remove_all(folder);
  set_option("KILN_DUMP", tokens);
  set_option("KILN_DUMP_DIR", folder.string());
  auto f = compile([](const Tensor& x) { return exp(softmax(matmul(x, x) * 2, 1)); });
  f(ones({20, 20}));
  set_option("KILN_DUMP", "");
  set_option("KILN_DUMP_DIR", "");
  std::map<std::string, std::string> found;
  if (!fs::exists(folder)) return found;
  for (const fs::directory_entry& file : fs::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    found[file.path().filename().string().substr(4)] = {std::istreambuf_iterator<char>(in), {}};
  }
  fs::remove_all(folder);
  return found;
}

TEST(CompileDump, EveryStageIsAFileOfItsOwn) {
  for (const char* start : {"cold", "warm"}) {
    auto d = dumps("trace,grad,partition,loops,source,plan,image");
    EXPECT_EQ(d.size(), 8u) << start;
    EXPECT_THAT(d["trace.txt"], testing::HasSubstr("dot_general %0, %0")) << start;
    EXPECT_THAT(d["trace.txt"], testing::HasSubstr("compile_more_test.cpp:")) << start;
    EXPECT_THAT(d["grad.txt"], testing::HasSubstr("amax")) << start;
    EXPECT_LT(d["grad.txt"].size(), d["trace.txt"].size()) << start;
    EXPECT_THAT(d["partition.txt"], testing::HasSubstr("step 0")) << start;
    EXPECT_THAT(d["partition.txt"], testing::ContainsRegex("= f32\\[20,20\\] exp %[0-9]+")) << start;
    EXPECT_THAT(d["partition.txt"], testing::HasSubstr("\n  writes %")) << start;
    EXPECT_THAT(d["loops.txt"], testing::HasSubstr("f32 reduce amax")) << start;
    EXPECT_THAT(d["source.txt"], testing::HasSubstr("KILN_KERNEL void k_")) << start;
    EXPECT_THAT(d["plan.txt"], testing::HasSubstr("arena")) << start;
    EXPECT_THAT(d["image.txt"], testing::HasSubstr("\nk_")) << start;
    EXPECT_EQ(d["image.so"].substr(1, 3), "ELF") << start;
  }
}

TEST(CompileDump, OnlyWhatIsAskedFor) {
  for (const char* stage : {"trace", "grad", "partition", "loops", "source", "plan"}) {
    const auto d = dumps(stage);
    ASSERT_EQ(d.size(), 1u) << stage;
    EXPECT_EQ(d.begin()->first, fmt::format("{}.txt", stage));
  }
  EXPECT_EQ(dumps("image").size(), 2u);
  EXPECT_EQ(dumps("").size(), 0u);
}

}  // namespace
}  // namespace kiln
