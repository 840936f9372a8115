// SPDX-License-Identifier: Apache-2.0
// Modules that call one function: activations and losses, and that their arguments arrive.
#include "frontend/nn/activation.h"

#include "frontend/nn/layers.h"
#include "frontend/nn/loss.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

TEST(NnActivation, ModulesCallTheFunctions) {
  const Tensor x = mat({-3, -0.5f, 0, 0.25f, 2, 30}, {2, 3});
  EXPECT_EQ(values(nn::ReLU()(x)), values(relu(x)));
  EXPECT_EQ(values(nn::SiLU()(x)), values(silu(x)));
  EXPECT_EQ(values(nn::Sigmoid()(x)), values(sigmoid(x)));
  EXPECT_EQ(values(nn::Tanh()(x)), values(tanh(x)));
  EXPECT_EQ(values(nn::GELU()(x)), values(gelu(x)));
  EXPECT_EQ(values(nn::GELU(GeluApproximate::tanh)(x)), values(gelu(x, GeluApproximate::tanh)));
  EXPECT_EQ(values(nn::LeakyReLU()(x)), values(leaky_relu(x, 0.01)));
  EXPECT_EQ(values(nn::LeakyReLU(0.2)(x)), values(leaky_relu(x, 0.2)));
  EXPECT_EQ(values(nn::Softplus()(x)), values(softplus(x, 1, 20)));
  EXPECT_EQ(values(nn::Softplus(2, 3)(x)), values(softplus(x, 2, 3)));
  EXPECT_EQ(values(nn::Softmax(0)(x)), values(softmax(x, 0)));
  EXPECT_EQ(values(nn::LogSoftmax(-1)(x)), values(log_softmax(x, 1)));
  nn::Softmax bad(2);
  EXPECT_NE(error_of([&] { bad(x); }).find("activation_test.cpp"), std::string::npos);
}

TEST(NnLoss, ModulesCallTheFunctions) {
  const Tensor x = mat({1, 2, 3, 0, -1, 4}, {2, 3}), y = ones({2, 3}), target = ids({2, 0});
  EXPECT_EQ(values(nn::MSELoss()(x, y)), values(mse_loss(x, y)));
  EXPECT_EQ(values(nn::MSELoss(Reduction::none)(x, y)), values(mse_loss(x, y, Reduction::none)));
  EXPECT_EQ(values(nn::L1Loss(Reduction::sum)(x, y)), values(l1_loss(x, y, Reduction::sum)));
  EXPECT_EQ(values(nn::CrossEntropyLoss()(x, target)), values(cross_entropy(x, target)));
  const CrossEntropyOptions o{.reduction = Reduction::sum, .ignore_index = 0, .label_smoothing = 0.1};
  EXPECT_EQ(values(nn::CrossEntropyLoss(o)(x, target)), values(cross_entropy(x, target, {}, o)));
  const Tensor w = vec({1, 2, 3});
  nn::NLLLoss weighted(w);
  EXPECT_EQ(values(weighted(log_softmax(x, 1), target)), values(cross_entropy(x, target, w)));
  // As in PyTorch the weight is part of the state.
  EXPECT_EQ(weighted.state_dict().size(), 1u);
  EXPECT_EQ(weighted.named_buffers()[0].first, "weight");
  EXPECT_EQ(nn::CrossEntropyLoss().state_dict().size(), 0u);
}

}  // namespace KILN_FILE
}  // namespace kiln
