// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "frontend/ops.h"

namespace kiln::nn {
namespace KILN_FILE {

Tensor vec(std::vector<float> v, Sizes sizes) { return Tensor::from_vector(v, std::move(sizes)); }

TEST(Layers, LinearIsXTimesWTransposedPlusB) {
  Linear fc(3, 2);
  fc.load_state_dict({{"weight", vec({1, 2, 3, 4, 5, 6}, {2, 3})}, {"bias", vec({10, 20}, {2})}});
  EXPECT_EQ(fc(vec({1, 0, -1, 2, 2, 2}, {2, 3})).to_vector<float>(), (std::vector<float>{8, 18, 22, 50}));
  EXPECT_EQ(fc(zeros({4, 5, 3})).sizes(), (Sizes{4, 5, 2}));
  EXPECT_EQ(fc(zeros({0, 3})).sizes(), (Sizes{0, 2}));
}

TEST(Layers, LinearWithoutBiasHasOneParameter) {
  Linear fc(3, 2, false);
  EXPECT_EQ(fc.named_parameters().size(), 1u);
  EXPECT_FALSE(fc.bias.defined());
  EXPECT_EQ(sum(fc(zeros({1, 3}))).item(), 0);
}

TEST(Layers, LinearStartsUniformInTheRootOfItsInputs) {
  manual_seed(1);
  Linear fc(100, 200);
  const std::vector<float> w = fc.weight.to_vector<float>();
  const auto [low, high] = std::minmax_element(w.begin(), w.end());
  EXPECT_GE(*low, -0.1f);
  EXPECT_LE(*high, 0.1f);
  EXPECT_LT(*low, -0.0999f);
  EXPECT_GT(*high, 0.0999f);
  double mean = 0;
  for (const float x : w) mean += x;
  EXPECT_NEAR(mean / static_cast<double>(w.size()), 0, 0.002);  // 5 sigma of a mean of 20000
  EXPECT_TRUE(fc.weight.requires_grad());
}

TEST(Layers, LayerNormNormalisesRows) {
  LayerNorm norm(4, 0.0);
  const std::vector<float> y = norm(vec({1, 2, 3, 4, -5, -5, 5, 5}, {2, 4})).to_vector<float>();
  const float a = 1.5f / std::sqrt(1.25f), b = 0.5f / std::sqrt(1.25f);
  const std::vector<float> expected = {-a, -b, b, a, -1, -1, 1, 1};
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-6) << i;
  EXPECT_EQ(LayerNorm(Sizes{4}, 1e-5, false).parameters().size(), 0u);
  EXPECT_EQ(LayerNorm(Sizes{4}, 1e-5, true, false).parameters().size(), 1u);
}

TEST(Layers, EmbeddingTakesRowsAndAddsUpTheirGradients) {
  Embedding table(3, 2);
  table.load_state_dict({{"weight", vec({0, 1, 10, 11, 20, 21}, {3, 2})}});
  const Tensor ids = Tensor::from_vector<int64_t>({2, 0, 2}, {3});
  const Tensor y = table(ids);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{20, 21, 0, 1, 20, 21}));
  sum(y).backward();
  EXPECT_EQ(table.weight.grad().to_vector<float>(), (std::vector<float>{1, 1, 0, 0, 2, 2}));
}

TEST(Layers, EmbeddingsPaddingRowIsZeroAndGetsNoGradient) {
  Embedding table(3, 2, -1);
  EXPECT_EQ(select(table.weight, 0, 2).to_vector<float>(), (std::vector<float>{0, 0}));
  sum(table(Tensor::from_vector<int64_t>({2, 0, 2}, {3}))).backward();
  EXPECT_EQ(table.weight.grad().to_vector<float>(), (std::vector<float>{1, 1, 0, 0, 0, 0}));
}

TEST(Layers, EmbeddingBagsCombineRows) {
  EmbeddingBag bags(3, 2, {.mode = BagMode::sum});
  bags.load_state_dict({{"weight", vec({0, 1, 10, 11, 20, 21}, {3, 2})}});
  const Tensor ids = Tensor::from_vector<int64_t>({2, 0, 2, 1}, {2, 2});
  EXPECT_EQ(bags(ids).to_vector<float>(), (std::vector<float>{20, 22, 30, 32}));
  const Tensor line = ids.reshape({4}), offsets = Tensor::from_vector<int64_t>({0, 3}, {2});
  EXPECT_EQ(bags(line, offsets).to_vector<float>(), (std::vector<float>{40, 43, 10, 11}));
  EXPECT_EQ(bags(ids, {}, vec({1, 0, 0, 2}, {2, 2})).to_vector<float>(),
            (std::vector<float>{20, 21, 20, 22}));
  EmbeddingBag mean(3, 2);
  mean.load_state_dict(bags.state_dict());
  EXPECT_EQ(mean(ids).to_vector<float>(), (std::vector<float>{10, 11, 15, 16}));
  EmbeddingBag padded(3, 2, {.mode = BagMode::max, .padding_idx = -1});
  EXPECT_EQ(select(padded.weight, 0, 2).to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_THROW(EmbeddingBag(3, 2, {.padding_idx = 3}), Error);
}

TEST(Layers, BilinearIsAFormOfBothInputs) {
  Bilinear form(2, 3, 2);
  EXPECT_EQ(form.weight.sizes(), (Sizes{2, 2, 3}));
  const Tensor x = vec({1, 2, 3, 4}, {2, 2}), y = vec({1, 0, -1, 2, 5, 1}, {2, 3});
  const std::vector<float> w = form.weight.to_vector<float>(), b = form.bias.to_vector<float>(),
                           a = x.to_vector<float>(), c = y.to_vector<float>(),
                           got = form(x, y).to_vector<float>();
  ASSERT_EQ(got.size(), 4u);
  for (size_t n = 0; n < 2; ++n)
    for (size_t o = 0; o < 2; ++o) {
      float sum = b[o];
      for (size_t i = 0; i < 2; ++i)
        for (size_t j = 0; j < 3; ++j) sum += a[n * 2 + i] * w[(o * 2 + i) * 3 + j] * c[n * 3 + j];
      EXPECT_NEAR(got[n * 2 + o], sum, 1e-5f);
    }
  EXPECT_EQ(form(zeros({4, 5, 2}), zeros({4, 5, 3})).sizes(), (Sizes{4, 5, 2}));
  EXPECT_EQ(Bilinear(2, 3, 2, false).parameters().size(), 1u);
  EXPECT_THROW(form(x, x), Error);
}

TEST(Layers, DropoutScalesWhatItKeepsAndRestsInEval) {
  manual_seed(5);
  Dropout drop(0.25);
  const Tensor x = ones({10000});
  int64_t kept = 0;
  for (const float v : drop(x).to_vector<float>()) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75f) < 1e-6f) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept), 7500, 5 * std::sqrt(10000 * 0.25 * 0.75));
  drop.eval();
  EXPECT_EQ(drop(x).to_vector<float>(), x.to_vector<float>());
}

TEST(Layers, Activations) {
  const Tensor x = vec({-1, 0, 2}, {3});
  EXPECT_EQ(ReLU()(x).to_vector<float>(), (std::vector<float>{0, 0, 2}));
  const std::vector<float> exact = GELU()(x).to_vector<float>();
  EXPECT_NEAR(exact[0], -0.15865525f, 1e-6);
  EXPECT_NEAR(exact[2], 1.9544997f, 1e-6);
  EXPECT_NEAR(GELU(GeluApproximate::tanh)(x).to_vector<float>()[0], -0.15880801f, 1e-6);
}

TEST(Layers, SequentialRunsInOrderWithNumberedNames) {
  Sequential net;
  net.emplace_back<Linear>(2, 3);
  net.emplace_back<ReLU>();
  net.emplace_back<Linear>(3, 1);
  std::vector<std::string> names;
  for (const auto& [name, t] : net.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  const Tensor x = ones({5, 2});
  EXPECT_EQ(net(x).to_vector<float>(), net[2](relu(net[0](x))).to_vector<float>());
  EXPECT_EQ(net.size(), 3u);
  EXPECT_EQ(net.at<Linear>(0).weight.sizes(), (Sizes{3, 2}));
}

TEST(Layers, ErrorsNameTheUsersLineInsideAModule) {
  Sequential net;
  net.emplace_back<Linear>(2, 3);
  int line = 0;
  try {
    line = __LINE__ + 1;
    net(ones({1, 5}));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layers_test.cpp:" + std::to_string(line)), std::string::npos)
        << e.what();
  }
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
