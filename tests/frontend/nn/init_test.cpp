// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/init.h"

#include <algorithm>
#include <cmath>

#include "frontend/conv.h"
#include "frontend/nn/layers.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
namespace init = nn::init;

struct Sample {
  double mean = 0, std = 0, low = 0, high = 0;
};
Sample sampled(const Tensor& t) {
  const std::vector<double> v = doubles(t);
  const auto n = static_cast<double>(v.size());
  Sample s{0, 0, *std::min_element(v.begin(), v.end()), *std::max_element(v.begin(), v.end())};
  for (const double x : v) s.mean += x / n;
  for (const double x : v) s.std += (x - s.mean) * (x - s.mean) / n;
  s.std = std::sqrt(s.std);
  return s;
}

TEST(NnInit, UniformAndNormalFillParametersInPlace) {
  manual_seed(1);
  nn::Linear fc(100, 400);
  const Tensor handle = init::uniform_(fc.weight, -2, 6);
  EXPECT_EQ(handle.impl(), fc.weight.impl());
  EXPECT_TRUE(fc.weight.is_leaf() && fc.weight.requires_grad());
  Sample s = sampled(fc.weight);
  EXPECT_NEAR(s.mean, 2, 0.06);  // 5 sigma of a mean of 40000
  EXPECT_NEAR(s.std, 8 / std::sqrt(12), 0.05);
  EXPECT_GE(s.low, -2);
  EXPECT_LT(s.high, 6.0001);
  s = sampled(init::normal_(fc.weight, 3, 0.5));
  EXPECT_NEAR(s.mean, 3, 0.0125);
  EXPECT_NEAR(s.std, 0.5, 0.01);
  for (const DType t : {DType::f64, DType::bf16}) {
    const Tensor x = zeros({1000}, {.dtype = t});
    EXPECT_NEAR(sampled(init::normal_(x, 0, 2)).std, 2, 0.25);
  }
}

TEST(NnInit, TruncatedNormalStaysInItsBounds) {
  manual_seed(2);
  const Tensor x = zeros({40000});
  const Sample s = sampled(init::trunc_normal_(x));
  EXPECT_GE(s.low, -2);
  EXPECT_LE(s.high, 2);
  EXPECT_LT(s.low, -1.99);
  EXPECT_NEAR(s.mean, 0, 0.022);
  EXPECT_NEAR(s.std, 0.87962566, 0.01);  // of a standard normal cut at +-2
  const Sample tail = sampled(init::trunc_normal_(x, 0, 1, 3, 4));
  EXPECT_GE(tail.low, 3);
  EXPECT_LE(tail.high, 4);
  EXPECT_NEAR(tail.mean, 3.2662, 0.01);
}

TEST(NnInit, Constants) {
  EXPECT_EQ(values(init::constant_(zeros({2}), 4)), (Floats{4, 4}));
  EXPECT_EQ(values(init::ones_(zeros({2}))), (Floats{1, 1}));
  EXPECT_EQ(values(init::zeros_(ones({2}))), (Floats{0, 0}));
  EXPECT_EQ(values(init::eye_(ones({2, 3}))), (Floats{1, 0, 0, 0, 1, 0}));
}

TEST(NnInit, DiracHandsChannelsOn) {
  const Tensor w = init::dirac_(ones({4, 2, 3, 3}), 2), x = randn({1, 4, 5, 5});
  EXPECT_EQ(values(conv2d(x, w, {}, {.padding = 1, .groups = 2})), values(x));
  EXPECT_EQ(values(init::dirac_(ones({3, 2, 1}))), (Floats{1, 0, 0, 1, 0, 0}));
}

TEST(NnInit, GainsAndFansArePyTorchs) {
  using N = init::Nonlinearity;
  EXPECT_EQ(init::calculate_gain(N::linear), 1);
  EXPECT_EQ(init::calculate_gain(N::sigmoid), 1);
  EXPECT_EQ(init::calculate_gain(N::tanh), 5.0 / 3);
  EXPECT_EQ(init::calculate_gain(N::relu), std::sqrt(2.0));
  EXPECT_EQ(init::calculate_gain(N::leaky_relu, 0.5), std::sqrt(2 / 1.25));
  EXPECT_EQ(init::calculate_gain(N::selu), 0.75);
  EXPECT_EQ(init::calculate_fan_in_and_fan_out(zeros({8, 3, 5, 5})), (std::pair<int64_t, int64_t>{75, 200}));
}

TEST(NnInit, XavierAndKaimingHaveTheirVariance) {
  manual_seed(3);
  const Tensor w = zeros({300, 100});
  EXPECT_NEAR(sampled(init::xavier_normal_(w, 2)).std, 2 * std::sqrt(2.0 / 400), 0.003);
  Sample s = sampled(init::xavier_uniform_(w));
  EXPECT_NEAR(s.high, std::sqrt(6.0 / 400), 0.001);
  EXPECT_NEAR(s.low, -std::sqrt(6.0 / 400), 0.001);
  EXPECT_NEAR(sampled(init::kaiming_normal_(w)).std, std::sqrt(2.0 / 100), 0.003);
  EXPECT_NEAR(sampled(init::kaiming_normal_(w, 0, init::FanMode::fan_out, init::Nonlinearity::tanh)).std,
              5.0 / 3 / std::sqrt(300), 0.003);
  // That of Linear: uniform in +-1/sqrt(in).
  s = sampled(init::kaiming_uniform_(w, std::sqrt(5.0)));
  EXPECT_NEAR(s.high, 0.1, 0.001);
  EXPECT_LE(s.high, 0.1);
}

TEST(NnInit, OrthogonalRowsOrColumns) {
  manual_seed(4);
  for (const Sizes& sizes : {Sizes{4, 7}, Sizes{7, 4}, Sizes{5, 5}, Sizes{3, 2, 2}}) {
    const Tensor w = init::orthogonal_(zeros(sizes, {.dtype = DType::f64}), 2).reshape({sizes[0], -1});
    const Tensor wt = w.transpose(0, 1);
    const std::vector<double> gram = doubles(w.size(0) <= w.size(1) ? matmul(w, wt) : matmul(wt, w));
    const auto n = static_cast<size_t>(std::min(w.size(0), w.size(1)));
    for (size_t i = 0; i < n * n; ++i) EXPECT_NEAR(gram[i], i / n == i % n ? 4 : 0, 1e-12) << i;
  }
  EXPECT_EQ(init::orthogonal_(zeros({0, 3})).numel(), 0);
}

TEST(NnInit, SparseColumns) {
  manual_seed(5);
  const Tensor w = init::sparse_(zeros({10, 6}), 0.25, 1);
  for (int64_t c = 0; c < 6; ++c) {
    const Floats column = values(select(w, 1, c));
    EXPECT_EQ(std::count(column.begin(), column.end(), 0.0f), 3) << c;
  }
}

TEST(NnInit, Mistakes) {
  EXPECT_ERROR(init::eye_(zeros({2})), "invalid: eye_ (@): got f32[2], expected a matrix");
  EXPECT_ERROR(init::uniform_(zeros({2}), 1, 0),
               "invalid: uniform_ (@): the bounds 1 and 0 are in the wrong order");
  EXPECT_ERROR(init::normal_(arange(2)), "invalid: normal_ (@): got i64[2], expected a floating tensor");
  EXPECT_ERROR(init::xavier_uniform_(zeros({2})),
               "invalid: calculate_fan_in_and_fan_out (@): got f32[2], expected at least 2 dims");
  EXPECT_ERROR(init::orthogonal_(zeros({2})),
               "invalid: orthogonal_ (@): got f32[2], expected at least 2 dims");
  EXPECT_ERROR(
      init::trunc_normal_(zeros({2}), 0, 0),
      "invalid: trunc_normal_ (@): got std 0 and the bounds -2 and 2, expected std > 0 and bounds in "
      "order");
  EXPECT_ERROR(init::sparse_(zeros({2, 2}), 2),
               "invalid: sparse_ (@): got sparsity 2 and std 0.01, expected 0 to 1, and at least 0");
  EXPECT_ERROR(init::dirac_(zeros({3, 2, 1}), 2),
               "invalid: dirac_ (@): got f32[3,2,1] and 2 groups, expected [out, in, kernel...] of 3 to 5 "
               "dims with out a multiple of groups");
}

}  // namespace KILN_FILE
}  // namespace kiln
