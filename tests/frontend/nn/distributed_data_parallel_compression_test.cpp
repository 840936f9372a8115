// SPDX-License-Identifier: Apache-2.0
// Gradients that are sent as halves: to the bit what PyTorch's hooks leave, eager and compiled, and an error
// where ranks would send different ones..
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/frontend/nn/ranks.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::kiln::testing::fill;
using ::kiln::testing::Net;
using ::kiln::testing::numbers;
using ::kiln::testing::on_ranks;
using ::testing::Each;
using Floats = std::vector<float>;

const std::vector<Sizes> kShapes = {{7, 3}, {0, 4}, {1}, {33}, {129, 5}};

/// The gradient of each parameter is the argument in its place: exact in every program.
struct Given : Module {
  Given() {
    for (const Sizes& s : kShapes) parameters.push_back(numbers(s, 3).requires_grad_());
    for (size_t i = 0; i < parameters.size(); ++i) register_parameter(fmt::format("p{}", i), parameters[i]);
  }
  Tensor forward(const Tensor& x) override {
    Tensor total;
    int64_t at = 0;
    for (const Tensor& p : parameters) {
      const Tensor part = sum(p * slice(x, 0, at, at + p.numel()).view(p.sizes()));
      total = total.defined() ? total + part : part;
      at += p.numel();
    }
    return total;
  }
  std::vector<Tensor> parameters;
};

int64_t element_count() {
  int64_t n = 0;
  for (const Sizes& s : kShapes) n += numbers(s, 0).numel();
  return n;
}

/// Gradients of a rank in a step: small and large, subnormal in f16, infinite there, NaN.
float value_of(int64_t i, int rank, int step) {
  if (i == 5) return rank == 0 ? std::numeric_limits<float>::infinity() : 1;
  if (i == 6) return rank == 0 ? std::nanf("") : 1;
  const float x = static_cast<float>((i * 37 + rank * 101 + step * 13) % 61 - 30) * 0.0123f;
  return i % 11 == 0 ? x * 1e6f : i % 11 == 1 ? x * 1e-6f : x;
}

Tensor batch(int rank, int step) {
  Floats v;
  for (int64_t i = 0; i < element_count(); ++i) v.push_back(value_of(i, rank, step));
  return Tensor::from_vector(v, {element_count()});
}

/// As the hooks do it, but for the sum, which is rounded once.
template <typename W>
float mean_of(const Floats& ranks) {
  const auto n = static_cast<float>(ranks.size());
  float total = -0.f;
  for (float x : ranks) total += static_cast<float>(W(static_cast<float>(W(x)) / n));
  return static_cast<float>(W(total));
}
float mean_of(const Floats& ranks, GradientCompression c) {
  return c == GradientCompression::fp16 ? mean_of<Half>(ranks) : mean_of<BFloat16>(ranks);
}

/// The first element whose bits differ, but for the kind of NaN.
std::string difference(const Floats& got, const Floats& want) {
  if (got.size() != want.size()) return fmt::format("{} elements, not {}", got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::isnan(got[i]) && std::isnan(want[i])) &&
        std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(want[i]))
      return fmt::format("element {}: {:a}, not {:a}", i, got[i], want[i]);
  return "";
}

struct Case {
  int world;
  GradientCompression compression;
  bool compiled;
  double bucket_mb;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.world << " ranks, " << to_string(c.compression) << (c.compiled ? ", compiled" : ", eager") << ", "
       << c.bucket_mb << " MiB";
}

/// Two steps, each of a backward under no_sync and one that reduces; what differs from the mean of the sums.
std::string train(const Case& c, int rank, const std::shared_ptr<ProcessGroup>& group) {
  Given model;
  DistributedDataParallel ddp(model, group, {.bucket_cap_mb = c.bucket_mb, .compression = c.compression});
  const auto part = [&](const Tensor& x) { ddp(x).backward(); };
  const auto compiled = compile(part);
  const auto backward = [&](const Tensor& x) { c.compiled ? compiled(x) : part(x); };
  for (int step = 0; step < 4; step += 2) {
    ddp.zero_grad();
    {
      const auto guard = ddp.no_sync();
      backward(batch(rank, step));
    }
    backward(batch(rank, step + 1));
    Floats got, want;
    for (const Tensor& p : model.parameters)
      for (float g : p.grad().to_vector<float>()) got.push_back(g);
    for (int64_t i = 0; i < element_count(); ++i) {
      Floats ranks;
      for (int r = 0; r < c.world; ++r) ranks.push_back(value_of(i, r, step) + value_of(i, r, step + 1));
      want.push_back(mean_of(ranks, c.compression));
    }
    const std::string d = difference(got, want);
    if (!d.empty()) return fmt::format("rank {}, step {}: {}", rank, step, d);
  }
  return "";
}

class Compressed : public ::testing::TestWithParam<Case> {};

TEST_P(Compressed, GradientsAreMeansOfHalvesToTheBit) {
  const Case& c = GetParam();
  EXPECT_THAT(on_ranks(c.world, [&](int r, auto group) { return train(c, r, group); }), Each(""));
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int world : {1, 2, 4})
    for (GradientCompression c : {GradientCompression::fp16, GradientCompression::bf16})
      for (bool compiled : {false, true})
        for (double mb : {1e-6, 25.0}) out.push_back({world, c, compiled, mb});
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Compressed, ::testing::ValuesIn(cases()));

/// Gradients of one step and parameters after three, of a network whose gradients kernels make.
std::string trained(GradientCompression compression, bool compiled, int rank,
                    const std::shared_ptr<ProcessGroup>& group) {
  Net net;
  fill(net, 1);
  DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 1e-3, .compression = compression});
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    sgd.zero_grad();
    mse_loss(ddp(x), y).backward();
    sgd.step();
  };
  const auto fast = compile(step);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = numbers({5, 6}, rank + i), y = numbers({5, 3}, rank + 7);
    compiled ? fast(x, y) : step(x, y);
  }
  std::string out;
  for (const Tensor& p : net.parameters()) {
    for (float g : p.grad().to_vector<float>())
      if (g != static_cast<float>(BFloat16(g))) out += fmt::format("{:a} is no bf16; ", g);
    out += fmt::format("{:.3f} ", fmt::join(p.to_vector<float>(), " "));
  }
  return out;
}

TEST(Compression, ANetworkTrainsAlikeEagerAndCompiled) {
  const auto run = [](GradientCompression c, bool compiled) {
    return on_ranks(2, [&](int r, auto group) { return trained(c, compiled, r, group); });
  };
  const auto eager = run(GradientCompression::bf16, false);
  EXPECT_EQ(eager[0].find("is no bf16"), std::string::npos) << eager[0];
  EXPECT_EQ(eager[0], eager[1]);
  EXPECT_EQ(run(GradientCompression::bf16, true), eager);
  EXPECT_NE(run(GradientCompression::none, true)[0].find("is no bf16"), std::string::npos);
}

TEST(Compression, OfAnotherRankIsAnErrorOnBoth) {
  EXPECT_THAT(on_ranks(2,
                       [](int r, auto group) -> std::string {
                         Net net;
                         DistributedDataParallel ddp(
                             net, group,
                             {.compression = r == 0 ? GradientCompression::none : GradientCompression::bf16});
                         return "no error";
                       }),
              Each(::testing::AnyOf(
                  ::testing::HasSubstr("the models differ: rank 0 has compression = none, rank 1 has "
                                       "compression = bf16"),
                  ::testing::HasSubstr("the models differ: rank 1 has compression = bf16, rank 0 has "
                                       "compression = none"))));
}

/// As PyTorch, which casts whatever it is given.
TEST(Compression, DoublesAreSentAsHalves) {
  EXPECT_THAT(on_ranks(2,
                       [](int r, auto group) -> std::string {
                         Net net;
                         net.to(DType::f64);
                         fill(net, 1);
                         DistributedDataParallel ddp(net, group, {.compression = GradientCompression::fp16});
                         sum(ddp(numbers({5, 6}, r).to(DType::f64))).backward();
                         for (const Tensor& p : net.parameters())
                           for (double g : p.grad().to_vector<double>())
                             if (g != static_cast<double>(static_cast<float>(Half(static_cast<float>(g)))))
                               return fmt::format("{} is no f16", g);
                         return "";
                       }),
              Each(""));
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
