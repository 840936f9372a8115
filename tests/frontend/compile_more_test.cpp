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
namespace KILN_FILE {

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

/// A net whose weights are large beside all that flows through it.
struct Wide : nn::Module {
  nn::Linear in{1024, 512}, out{512, 1024};
  Wide() {
    register_module("in", in);
    register_module("out", out);
  }
  using Module::forward;
  Tensor forward(const Tensor& x) override { return out(gelu(in(x))); }
  int64_t bytes() const {
    int64_t n = 0;
    for (const Tensor& p : parameters()) n += p.numel() * 4;
    return n;
  }
};

// Sums begin at zero, however they are computed: 0 + -2 * 0 is 0, not -0, and atan2 tells them apart.
TEST(CompileNumbers, ASumOfOneNegativeZeroIsZero) {
  const Tensor a = Tensor::from_vector<float>({-2, -2, 3}, {3, 1}),
               b = Tensor::from_vector<float>({0, 0.5}, {1, 2});
  const auto fn = [](const Tensor& x, const Tensor& y) { return atan2(matmul(x, y), ones({3, 2}) * -1.0); };
  auto fast = compile(fn);
  EXPECT_EQ(fast(a, b).to_vector<float>()[0], fn(a, b).to_vector<float>()[0]);
  EXPECT_GT(fast(a, b).to_vector<float>()[0], 3);
}

// A callable for inference beside a training step: both work on the module's own memory, so that there is no
// second copy of the weights, and each call for inference sees what the steps before it have done.
TEST(CompileShared, InferenceUsesTheWeightsOfATrainingStep) {
  Wide net;
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  std::vector<void*> addresses;
  for (const Tensor& p : net.parameters()) addresses.push_back(p.data_ptr<float>());
  auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        optimizer.zero_grad();
        const Tensor loss = mse_loss(net(x), y);
        loss.backward();
        optimizer.step();
        return loss;
      },
      {.name = "step"});
  const auto forward = [&](const Tensor& x) {
    const NoGrad guard;
    return net(x);
  };
  auto infer = compile(forward, {.name = "infer"});
  auto frozen = compile(forward, {.name = "frozen", .frozen = true});
  const Tensor x = rand({2, 1024}), y = rand({2, 1024});
  std::vector<float> last;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> got = infer(x).to_vector<float>(), expected = forward(x).to_vector<float>();
    EXPECT_EQ(frozen(x).to_vector<float>(), got);
    for (size_t k = 0; k < got.size(); k += 101) EXPECT_NEAR(got[k], expected[k], 1e-5);
    EXPECT_NE(got, last) << "the step before was not seen";
    last = got;
    step(x, y);
  }
  const Build built = infer.stats().builds.at(0);
  EXPECT_EQ(infer.stats().builds.size(), 1u);
  EXPECT_EQ(step.stats().builds.size(), 1u);
  EXPECT_EQ(built.saved_bytes, 0);
  EXPECT_LT(built.arena_bytes, net.bytes() / 4);
  for (size_t i = 0; i < addresses.size(); ++i)
    EXPECT_EQ(net.parameters()[i].data_ptr<float>(), addresses[i]);
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
  const fs::path folder = ::testing::TempDir() + fmt::format("kiln-dump-test-{}", getpid());
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
  const bool cuda = get_default_device().is_cuda();
  for (const char* start : {"cold", "warm"}) {
    auto d = dumps("trace,grad,partition,loops,source,plan,image");
    EXPECT_EQ(d.size(), cuda ? 7u : 8u) << start;
    EXPECT_THAT(d["trace.txt"], ::testing::HasSubstr("dot_general %0, %0")) << start;
    EXPECT_THAT(d["trace.txt"], ::testing::HasSubstr("compile_more_test.cpp:")) << start;
    EXPECT_THAT(d["grad.txt"], ::testing::HasSubstr("amax")) << start;
    EXPECT_LT(d["grad.txt"].size(), d["trace.txt"].size()) << start;
    EXPECT_THAT(d["partition.txt"], ::testing::HasSubstr("step 0")) << start;
    EXPECT_THAT(d["partition.txt"], ::testing::ContainsRegex("= f32\\[20,20\\] exp %[0-9]+")) << start;
    EXPECT_THAT(d["partition.txt"], ::testing::HasSubstr("\n  writes %")) << start;
    EXPECT_THAT(d["loops.txt"], ::testing::HasSubstr("f32 reduce amax")) << start;
    EXPECT_THAT(d["source.txt"], ::testing::HasSubstr(cuda ? "KILN_CUDA_KERNEL(k_" : "KILN_KERNEL void k_"))
        << start;
    EXPECT_THAT(d["plan.txt"], ::testing::HasSubstr("arena")) << start;
    EXPECT_THAT(d["image.txt"], ::testing::HasSubstr(cuda ? "\n  k_" : "\nk_")) << start;
    if (!cuda) {
      EXPECT_EQ(d["image.so"].substr(1, 3), "ELF") << start;
    }
  }
}

TEST(CompileDump, OnlyWhatIsAskedFor) {
  for (const char* stage : {"trace", "grad", "partition", "loops", "source", "plan"}) {
    const auto d = dumps(stage);
    ASSERT_EQ(d.size(), 1u) << stage;
    EXPECT_EQ(d.begin()->first, fmt::format("{}.txt", stage));
  }
  EXPECT_EQ(dumps("image").size(), get_default_device().is_cuda() ? 1u : 2u);  // simulated: no machine code
  EXPECT_EQ(dumps("").size(), 0u);
}

TEST(CompileOptions, OutOfRange) {
  const auto made = [](CompileOptions o) {
    try {
      compile([] { return ones({1}); }, o, Loc("net.cpp", 42));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(made({.threads = -1}), "compile (net.cpp:42): threads is -1, expected at least 0");
  EXPECT_EQ(made({.max_builds = 0}), "compile (net.cpp:42): max_builds is 0, expected at least 1");
}

TEST(CompileErrors, SizesBeyondAllMemoryAreNamed) {
  if (get_default_device().is_cuda()) return;
  for (const int bits : {50, 62}) {
    const auto f = compile([bits](const Tensor& x) { return zeros({int64_t{1} << bits}) + x; });
    try {
      f(ones({1}));
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(
                                fmt::format("`add` f32[{}] (compile_more_test.cpp:", int64_t{1} << bits)));
    }
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
