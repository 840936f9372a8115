// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/parametrize.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/nn/conv.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Names = std::vector<std::string>;

Names names(const nn::NamedTensors& tensors) {
  Names out;
  for (const auto& [name, t] : tensors) out.push_back(name);
  return out;
}
void expect_close(const Tensor& a, const Tensor& b, float tolerance = 1e-5f) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const Floats x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

TEST(Parametrize, WeightNormPartsLengthAndDirection) {
  manual_seed(1);
  nn::Linear fc(3, 2);
  const Tensor x = randn({4, 3}), before = fc(x).detach(), weight = fc.weight;
  nn::weight_norm(fc);
  EXPECT_EQ(names(fc.state_dict()),
            (Names{"bias", "parametrizations.weight.original0", "parametrizations.weight.original1"}));
  const Tensor g = fc.get_parameter("parametrizations.weight.original0"),
               v = fc.get_parameter("parametrizations.weight.original1");
  EXPECT_EQ(g.sizes(), (Sizes{2, 1}));
  EXPECT_EQ(v.impl(), weight.impl());
  EXPECT_TRUE(nn::is_parametrized(fc));
  expect_close(fc(x), before);
  {
    NoGrad guard;
    Tensor(g).copy_(mat({2, 3}, {2, 1}));
    Tensor(v).mul_(5);
  }
  const Tensor w = nn::parametrized_value(fc);
  expect_close(sqrt(sum(w * w, {1})), vec({2, 3}));
  expect_close(fc(x), linear(x, w, fc.bias));
  // The gradient of the direction stands across it.
  sum(fc(x) * 3.0).backward();
  expect_close(sum(v.grad() * v, {1}), zeros({2}), 1e-4f);
  EXPECT_TRUE(g.grad().defined());
}

TEST(Parametrize, WeightNormOverOtherDims) {
  nn::Conv2d conv(2, 3, 2);
  const Tensor w = conv.weight.detach().clone();
  nn::weight_norm(conv, "weight", 1);
  EXPECT_EQ(conv.get_parameter("parametrizations.weight.original0").sizes(), (Sizes{1, 2, 1, 1}));
  expect_close(nn::parametrized_value(conv), w);
  nn::weight_norm(conv, "bias", std::nullopt);
  EXPECT_EQ(conv.get_parameter("parametrizations.bias.original0").sizes(), (Sizes{}));
  EXPECT_EQ(conv(ones({1, 2, 4, 4})).sizes(), (Sizes{1, 3, 3, 3}));
}

TEST(Parametrize, SpectralNormDividesByTheLargestSingularValue) {
  manual_seed(2);
  nn::Linear fc(2, 2, false);
  {
    NoGrad guard;
    fc.weight.copy_(mat({3, 0, 0, 1}, {2, 2}));
  }
  nn::spectral_norm(fc);
  EXPECT_EQ(names(fc.state_dict()), (Names{"parametrizations.weight.original", "parametrizations.weight.0._u",
                                           "parametrizations.weight.0._v"}));
  expect_close(nn::parametrized_value(fc), mat({1, 0, 0, 1.0f / 3}, {2, 2}));
  const Tensor u = fc.get_buffer("parametrizations.weight.0._u");
  {
    NoGrad guard;
    fc.get_parameter("parametrizations.weight.original").copy_(mat({1, 0, 0, 4}, {2, 2}));
    Tensor(u).copy_(vec({0.6f, 0.8f}));
    fc.get_buffer("parametrizations.weight.0._v").copy_(vec({0.6f, 0.8f}));
  }
  // In evaluation the vectors rest: sigma = u^T W v.
  fc.eval();
  const float sigma = 0.6f * 0.6f + 4 * 0.8f * 0.8f;
  expect_close(fc(mat({1, 1}, {1, 2})), mat({1 / sigma, 4 / sigma}, {1, 2}));
  EXPECT_EQ(values(u), (Floats{0.6f, 0.8f}));
  // A step: u = W v / |W v|, v = W^T u / |W^T u|.
  fc.train();
  fc(mat({1, 1}, {1, 2}));
  const float length = std::sqrt(0.6f * 0.6f + 3.2f * 3.2f);
  expect_close(u, vec({0.6f / length, 3.2f / length}));
}

TEST(Parametrize, SpectralNormOfOtherShapes) {
  nn::ConvTranspose2d conv(2, 3, 2);
  nn::spectral_norm(conv);
  EXPECT_EQ(conv.get_buffer("parametrizations.weight.0._u").sizes(), (Sizes{3}));
  EXPECT_EQ(conv.get_buffer("parametrizations.weight.0._v").sizes(), (Sizes{8}));
  nn::LayerNorm norm(2);
  nn::spectral_norm(norm);
  expect_close(nn::parametrized_value(norm), vec({std::sqrt(0.5f), std::sqrt(0.5f)}));
  EXPECT_EQ(names(norm.state_dict()), (Names{"bias", "parametrizations.weight.original"}));
}

TEST(Parametrize, RemovingLeavesTheValue) {
  nn::Linear fc(3, 2);
  const Tensor x = randn({4, 3});
  nn::weight_norm(fc);
  nn::spectral_norm(fc, "bias");
  fc.eval();
  const Tensor y = fc(x).detach();
  nn::remove_parametrizations(fc);
  EXPECT_EQ(names(fc.state_dict()), (Names{"weight", "parametrizations.bias.original"}));
  nn::remove_parametrizations(fc, "bias");
  EXPECT_EQ(names(fc.state_dict()), (Names{"weight", "bias"}));
  EXPECT_TRUE(fc.children().empty());
  EXPECT_FALSE(nn::is_parametrized(fc));
  EXPECT_TRUE(fc.weight.is_leaf() && fc.weight.requires_grad());
  expect_close(fc(x), y);
}

TEST(Parametrize, Mistakes) {
  nn::Linear fc(3, 2);
  EXPECT_ERROR(
      nn::weight_norm(fc, "wait"),
      "invalid: parametrization of 'wait' (@): the module has no such parameter; it has weight, bias");
  EXPECT_ERROR(nn::weight_norm(fc, "weight", 2),
               "invalid: weight_norm (@): dim is 2, but the weight is f32[2,3]");
  EXPECT_ERROR(nn::remove_parametrizations(fc),
               "invalid: parametrization of 'weight' (@): the module has none of it");
  EXPECT_ERROR(nn::spectral_norm(fc, "weight", {.n_power_iterations = 0}),
               "invalid: spectral_norm (@): n_power_iterations is 0, expected at least 1");
  EXPECT_EQ(fc.state_dict().size(), 2u);
}

class CompiledParametrize : public ::testing::TestWithParam<Backend> {};

TEST_P(CompiledParametrize, TrainsAsEagerAndEvaluates) {
  const auto build = [] {
    manual_seed(4);
    auto net = std::make_unique<nn::Sequential>();
    nn::weight_norm(net->emplace_back<nn::Linear>(3, 4));
    nn::spectral_norm(net->emplace_back<nn::Linear>(4, 2));
    return net;
  };
  const auto eager = build(), compiled = build();
  optim::SGD sgd(eager->parameters(), {.lr = 0.1}), sgd_compiled(compiled->parameters(), {.lr = 0.1});
  const auto body = [](nn::Sequential& net, optim::SGD& optimizer, const Tensor& x) {
    const Tensor y = net(x), loss = sum(y * y);
    if (!net.is_training()) return y;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss;
  };
  CompileOptions o;
  o.backend = GetParam();
  auto step = compile([&](const Tensor& x) { return body(*compiled, sgd_compiled, x); }, o);
  for (int i = 0; i < 6; ++i) {
    eager->train(i % 3 != 2);
    compiled->train(i % 3 != 2);
    const Tensor x = randn({5, 3});
    expect_close(step(x), body(*eager, sgd, x), 1e-4f);
  }
  EXPECT_EQ(step.stats().builds.size(), 2u);
  const nn::NamedTensors a = compiled->state_dict(), b = eager->state_dict();
  for (size_t i = 0; i < a.size(); ++i) expect_close(a[i].second, b[i].second, 1e-4f);
  EXPECT_FALSE(compiled->at<nn::Linear>(0).weight.defined());
}
INSTANTIATE_TEST_SUITE_P(Backends, CompiledParametrize,
                         ::testing::Values(Backend::reference, Backend::native));

}  // namespace KILN_FILE
}  // namespace kiln
