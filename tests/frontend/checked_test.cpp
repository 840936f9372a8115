// SPDX-License-Identifier: Apache-2.0
// KILN_COMPILE=check and check_numerics among ranks: what they ask of the others, all ranks do alike.
#include "frontend/checked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/nn/distributed_data_parallel.h"
#include "frontend/state.h"
#include "ir/base/options.h"
#include "ir/graph.h"
#include "tests/frontend/nn/ranks.h"
#include "tests/runtime/doubling_group.h"

namespace kiln {
namespace KILN_FILE {

using ::kiln::testing::fill;
using ::kiln::testing::Net;
using ::kiln::testing::numbers;
using ::kiln::testing::on_ranks;
using ::testing::Each;
using ::testing::HasSubstr;

struct Checked : ::testing::Test {
  void SetUp() override { set_option("KILN_COMPILE", "check"); }
  void TearDown() override { set_option("KILN_COMPILE", ""); }
};

/// What was computed in f32 and is f64 is as exact as f32.
TEST_F(Checked, CoarseValuesInAFineType) {
  const auto f = compile([](const Tensor& x) {
    const Tensor y = tanh(matmul(x, x)).to(DType::f64);
    return sum(exp(y) * y);
  });
  f(numbers({40, 40}, 3));
}

TEST_F(Checked, SumsOfUnequalPieces) {
  const auto got = on_ranks(2, [](int r, auto group) -> std::string {
    Net net;
    fill(net, 1);
    nn::DistributedDataParallel ddp(net, group);
    optim::SGD sgd(net.parameters(), {.lr = 0.1});
    const auto step = compile([&](const Tensor& x) {
      sgd.zero_grad();
      sum(square(ddp(x))).backward();
      sgd.step();
    });
    for (int s = 0; s < 3; ++s) step(numbers({5, 6}, 10 * s + r));
    return "ok";
  });
  EXPECT_THAT(got, Each("ok"));
}

/// Where a compiled gradient and an interpreted one lie on both sides of a tie, a half has two values.
TEST_F(Checked, GradientsThatAreSentAsHalves) {
  const auto got = on_ranks(2, [](int r, auto group) -> std::string {
    nn::Linear net(300, 300);
    fill(net, 1);
    nn::DistributedDataParallel ddp(net, group, {.compression = nn::GradientCompression::bf16});
    const auto step = compile([&](const Tensor& x) {
      ddp.zero_grad();
      sum(tanh(ddp(x))).backward();
    });
    for (int s = 0; s < 4; ++s) step(numbers({50, 300}, 10 * s + r));
    return "ok";
  });
  EXPECT_THAT(got, Each("ok"));
}

/// The interpreter, wrong by one in the first output.
struct Wrong : detail::Program {
  explicit Wrong(const Graph& graph) : g(graph) {}
  void run(std::span<const detail::DeviceTensor> inputs,
           std::span<const detail::DeviceTensor> outputs) override {
    std::vector<HostTensor> in;
    for (const detail::DeviceTensor& t : inputs) in.push_back(fetch(t));
    const std::vector<HostTensor> results = interpret(g, in);
    for (size_t i = 0; i < results.size(); ++i) copy_elements(results[i].ref, outputs[i].ref);
    *static_cast<float*>(outputs[0].ref.data) += 1;
  }
  const Graph& g;
};

/// Other ranks may have found nothing: a sum is made once by the program, and once to know what is right.
TEST(Check, BlamingAsksNoOtherRank) {
  full({1}, 0.);  // the library is ready
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[3] arg
  %1 = f32[3] exp %0
  %2 = f32[32] all_reduce %1, %1 {group=0, wire=f32}
  %3 = f32[32] exp %2
  %4 = f32[3] slice %3 {starts=[16], stops=[19], steps=(1)}
  output %4
})");
  testing::DoublingGroup group;
  detail::state().groups = {&group};
  const detail::DeviceTensor x = detail::make_device_tensor({}, DType::f32, {3}),
                             y = detail::make_device_tensor({}, DType::f32, {3});
  for (int i = 0; i < 3; ++i) static_cast<float*>(x.ref.data)[i] = 0.1f * static_cast<float>(i);
  try {
    detail::check_against_reference(std::make_unique<Wrong>(g), g, {})->run({&x, 1}, {&y, 1});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "check: output 0 of g differs from eager, but no single op does when each is "
                 "computed apart: fusion or memory planning is wrong (please report this)");
  }
  detail::state().groups.clear();
  EXPECT_EQ(group.counts.size(), 2u);
}

/// One rank has something to blame, the others go with it instead of waiting for it in their next step.
TEST(CheckNumerics, AnOpOfOneRankIsNamedOnIt) {
  const auto got = on_ranks(
      3,
      [](int r, auto group) -> std::string {
        Net net;
        fill(net, 1);
        nn::DistributedDataParallel ddp(net, group);
        const auto step = compile(
            [&](const Tensor& x, const Tensor& z) {
              sum(square(ddp(x))).backward();
              return log(z);
            },
            {.check_numerics = true});
        for (int s = 0; s < 3; ++s) step(numbers({5, 6}, 10 * s + r), full({1}, r == 1 && s == 1 ? 0. : 1.));
        return "ok";
      },
      600);
  EXPECT_THAT(got[1], HasSubstr("check_numerics: `log` (checked_test.cpp:"));
  for (int r : {0, 2})
    EXPECT_THAT(got[static_cast<size_t>(r)],
                HasSubstr("check_numerics: a result of another rank is not finite"));
}

// Terms that cancel leave the rounding of the terms. Results of such sums are no faults, whatever they are
// divided by.

template <typename F>
void train_checked(const std::vector<Tensor>& params, F&& loss_of) {
  optim::SGD sgd(params, {.lr = 0.1});
  const auto step = compile([&](const Tensor& x, const Tensor& y) {
    sgd.zero_grad();
    const Tensor loss = loss_of(x, y);
    loss.backward();
    sgd.step();
    return loss;
  });
  for (int i = 0; i < 3; ++i) {
    manual_seed(static_cast<uint64_t>(i));
    step(randn({16, 8}), randint(0, 3, {16}));
  }
}

TEST_F(Checked, ABiasBeforeABatchNorm) {
  manual_seed(0);
  nn::Sequential net;
  net.emplace_back<nn::Linear>(8, 8);
  net.emplace_back<nn::BatchNorm1d>(8);
  net.emplace_back<nn::ReLU>();
  net.emplace_back<nn::Linear>(8, 3);
  train_checked(net.parameters(), [&](const Tensor& x, const Tensor& y) { return cross_entropy(net(x), y); });
}

TEST_F(Checked, HalvesThatAFusedProgramKeepsWide) {
  for (const DType half : {DType::f16, DType::bf16}) {
    manual_seed(0);
    nn::Linear a(8, 8), b(8, 3);
    nn::BatchNorm1d norm(8);
    std::vector<Tensor> params = a.parameters();
    for (const nn::Module* m : std::initializer_list<nn::Module*>{&b, &norm})
      for (const Tensor& p : m->parameters()) params.push_back(p);
    train_checked(params, [&](const Tensor& x, const Tensor& y) {
      const autocast guard(half);
      return cross_entropy(b(gelu(norm(a(x)))), y);
    });
  }
}

/// The interpreter, with output `at` scaled.
struct Scaled : detail::Program {
  Scaled(const Graph& graph, size_t i, float factor) : g(graph), at(i), by(factor) {}
  void run(std::span<const detail::DeviceTensor> inputs,
           std::span<const detail::DeviceTensor> outputs) override {
    std::vector<HostTensor> in;
    for (const detail::DeviceTensor& t : inputs) in.push_back(fetch(t));
    const std::vector<HostTensor> results = interpret(g, in);
    for (size_t i = 0; i < results.size(); ++i) copy_elements(results[i].ref, outputs[i].ref);
    for (int64_t k = 0; k < outputs[at].ref.numel(); ++k) static_cast<float*>(outputs[at].ref.data)[k] *= by;
  }
  const Graph& g;
  size_t at;
  float by;
};

/// A sum whose terms cancel may be anything that small; one whose terms do not may not, however small.
TEST(Check, OnlyRoundingIsForgiven) {
  full({1}, 0.);  // the library is ready
  const Graph g = parse_graph(R"(graph g {
  %0 = input f32[4] arg
  %1 = f32[] sum %0 {dims=(0)}
  %2 = f32[4] mul %0, %0
  %3 = f32[] sum %2 {dims=(0)}
  output %1
  output %3
})");
  const detail::DeviceTensor x = detail::make_device_tensor({}, DType::f32, {4}),
                             a = detail::make_device_tensor({}, DType::f32, {}),
                             b = detail::make_device_tensor({}, DType::f32, {});
  const float values[] = {0.1f, 0.2f, -0.1f, -0.2000001f};
  std::copy(std::begin(values), std::end(values), static_cast<float*>(x.ref.data));
  const auto run = [&](size_t at, float by) {
    const std::vector<detail::DeviceTensor> outputs{a, b};
    detail::check_against_reference(std::make_unique<Scaled>(g, at, by), g, {})->run({&x, 1}, outputs);
  };
  run(0, 2);  // 1e-7 of terms of 0.2
  run(1, 1);
  EXPECT_THROW(run(0, 1000), Error);
  EXPECT_THROW(run(1, 1.001f), Error);
}

}  // namespace KILN_FILE
}  // namespace kiln
