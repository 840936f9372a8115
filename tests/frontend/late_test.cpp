// SPDX-License-Identifier: Apache-2.0
// Checks of calls on a GPU: the host does not wait for them, and sees what they say once, with nothing
// written meanwhile.
#include "frontend/late.h"

#include <cstdlib>

#include "frontend/cuda.h"
#include "frontend/kiln.h"
#include "runtime/cuda/sim.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace testing;  // NOLINT

const Device kGpu = Device::cuda();

class Late : public ::testing::TestWithParam<Mode> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    o.mode = GetParam();
    return o;
  }
};

struct Net : nn::Sequential {
  Net() {
    emplace_back<nn::Linear>(6, 16);
    emplace_back<nn::GELU>();
    emplace_back<nn::Dropout>(0.25);
    emplace_back<nn::Linear>(16, 4);
  }
};

/// A step of training with checks of the classes.
struct Training {
  explicit Training(Device device) {
    net.to(device);
    opt.emplace(net.parameters(), optim::AdamWOptions{.lr = 0.05});
  }
  Tensor step(const Tensor& x, const Tensor& y) {
    opt->zero_grad();
    const Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    opt->step();
    return loss;
  }
  Floats parameters() const {
    Floats all;
    for (const auto& [name, t] : net.state_dict())
      for (float v : values(t)) all.push_back(v);
    return all;
  }
  const bool seeded = (manual_seed(3), true);  // before the parameters are made
  Net net;
  std::optional<optim::AdamW> opt;
};

Tensor input(int i) { return full({2, 6}, 0.1 * (i + 1), {.device = Device::cpu()}); }

TEST_P(Late, ATrainingStepDoesNotWait) {
  Training t(kGpu);
  const auto step = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, options());
  const Tensor x = input(0).to(kGpu), y = ids({1, 3}).to(kGpu);
  for (int i = 0; i < 3; ++i) step(x, y);
  cuda::synchronize();
  const uint64_t before = cuda::sim::host_waits();
  Tensor loss;
  for (int i = 0; i < 40; ++i) loss = step(x, y);
  EXPECT_EQ(cuda::sim::host_waits(), before);
  EXPECT_TRUE(std::isfinite(loss.item<float>()));
}

/// Whether a step is skipped is known to the device alone.
TEST_P(Late, AStepWithAGradScalerDoesNotWait) {
  Training t(kGpu);
  GradScaler scaler({.init_scale = 1024}, kGpu);
  CompileOptions o = options();
  o.full_graph = true;
  const auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        t.opt->zero_grad();
        Tensor loss;
        {
          const Autocast guard(DType::f16);
          loss = cross_entropy(t.net(x), y);
        }
        scaler.scale(loss).backward();
        scaler.unscale_(*t.opt);
        optim::clip_grad_norm_(t.net.parameters(), 1);
        scaler.step(*t.opt);
        scaler.update();
        return loss;
      },
      o);
  const Tensor x = input(0).to(kGpu), y = ids({1, 3}).to(kGpu), bad = (input(0) * INFINITY).to(kGpu);
  const auto run = [&](int i) { return step(i % 4 == 2 ? bad : x, y); };
  for (int i = 0; i < 5; ++i) run(i);  // a graph is recorded again when an input is elsewhere
  cuda::synchronize();
  const uint64_t before = cuda::sim::host_waits();
  Tensor loss;
  for (int i = 5; i < 18; ++i) {
    loss = run(i);
    EXPECT_EQ(cuda::sim::host_waits(), before) << i;
  }
  EXPECT_EQ(step.stats().builds.size(), 1u);
  EXPECT_TRUE(std::isfinite(loss.item<float>()));
  EXPECT_EQ(scaler.get_scale(), 1024 / 16);  // of calls 2, 6, 10 and 14
}

TEST_P(Late, IsToldOnceAndNothingIsWrittenMeanwhile) {
  Training gpu(kGpu);
  const auto step = compile([&](const Tensor& x, const Tensor& y) { return gpu.step(x, y); }, options());
  const auto run = [&](int i, std::vector<int64_t> y) { return step(input(i).to(kGpu), ids(y).to(kGpu)); };
  for (int i = 0; i < 3; ++i) run(i, {0, 3});
  run(7, {0, 9});
  for (int i = 0; i < 4; ++i) run(8 + i, {1, 1});
  const Tensor loss = run(6, {1, 2});
  const std::string text = error_of([&] { loss.item(); });
  EXPECT_EQ(text.find("invalid: cross_entropy (late_test.cpp:"), 0u) << text;
  EXPECT_NE(
      text.find(
          "target 9 is out of range; expected 0 to 3 or ignore_index (reported late, from call 4 of step)"),
      std::string::npos)
      << text;
  cuda::synchronize();  // told once
  const Floats after = gpu.parameters();
  run(3, {2, 3}).item();
  const Floats further = gpu.parameters();

  // Nothing of it has been: not in the parameters, nor in what Adam counts, nor in dropout's numbers.
  Training cpu(Device::cpu());
  for (int i = 0; i < 3; ++i) cpu.step(input(i), ids({0, 3}));
  const Floats expected = cpu.parameters();
  cpu.step(input(3), ids({2, 3}));
  const Floats expected_further = cpu.parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(after[i], expected[i], 2e-4f) << i;
    EXPECT_NEAR(further[i], expected_further[i], 2e-4f) << i;
  }
}

TEST_P(Late, TheNextCallTellsWhatHasCome) {
  const Tensor table = vec({1, 2, 3}).to(kGpu);
  const auto f = compile([&](const Tensor& i) { return index_select(table, 0, i); }, options());
  f(ids({1}).to(kGpu));
  f(ids({5}).to(kGpu));
  std::string text = "no error";
  int calls = 0;
  const Tensor good = ids({2}).to(kGpu);
  for (; calls < 1000 && text == "no error"; ++calls) text = error_of([&] { f(good); });
  EXPECT_NE(text.find("index 5 is out of range; expected 0 to 2 (reported late, from call 2 of step)"),
            std::string::npos)
      << text;
  EXPECT_EQ(values(f(good)), (Floats{3}));
}

TEST_P(Late, WhatReadsAResultDoesNotRunEither) {
  const Tensor table = vec({1, 2, 3}).to(kGpu);
  Tensor sum = zeros({1}, {.device = kGpu}), copied = zeros({1}, {.device = kGpu});
  const auto f = compile([&](const Tensor& i) { return index_select(table, 0, i); }, options());
  const auto add = compile([&](const Tensor& x) { sum.add_(x); }, options());
  for (int i = 0; i < 3; ++i) add(f(ids({i}).to(kGpu)));
  const Tensor nothing = f(ids({5}).to(kGpu));
  for (int i = 0; i < 3; ++i) add(nothing);
  EXPECT_NE(error_of([&] { copied.copy_(nothing); }).find("from call 4 of step"), std::string::npos);
  EXPECT_EQ(values(sum), (Floats{6}));
  EXPECT_EQ(values(copied), (Floats{0}));
  add(f(ids({2}).to(kGpu)));
  EXPECT_EQ(values(sum), (Floats{9}));
}

TEST_P(Late, WhatTheCallableReadsItselfIsToldThere) {
  const Tensor table = vec({1, 2, 3}).to(kGpu);
  Tensor sum = zeros({1}, {.device = kGpu});
  const auto f = compile(
      [&](const Tensor& i) {
        const Tensor row = index_select(table, 0, i);
        sum.add_(row);
        return row.item() > 1;
      },
      options());
  EXPECT_FALSE(f(ids({0}).to(kGpu)));
  EXPECT_NE(error_of([&] { f(ids({7}).to(kGpu)); }).find("index 7 is out of range"), std::string::npos);
  EXPECT_TRUE(f(ids({1}).to(kGpu)));
  EXPECT_EQ(values(sum), (Floats{3}));
}

TEST_P(Late, AProgramThatEndsIsTold) {
  // In a fork the thread sanitizer looks away from the main thread, but not from its fibers.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor table = vec({1, 2, 3}).to(kGpu);
  const auto f = compile([&](const Tensor& i) { return index_select(table, 0, i); }, options());
  const Tensor good = ids({0}).to(kGpu), bad = ids({4}).to(kGpu);
  f(good);
  f(good);
  cuda::synchronize();
  EXPECT_EXIT(
      {
        f(bad);
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "a call failed, and nobody has waited for it: .*index 4 is out of range");
}

INSTANTIATE_TEST_SUITE_P(Ways, Late, ::testing::Values(Mode::standard, Mode::reduce_overhead),
                         [](const auto& info) {
                           return std::string(info.param == Mode::standard ? "kernels" : "graphs");
                         });

}  // namespace KILN_FILE
}  // namespace kiln
