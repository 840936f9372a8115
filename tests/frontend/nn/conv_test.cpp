// SPDX-License-Identifier: Apache-2.0
// Convolution modules: names, initialisation, padding modes, and a compiled step of a small net.
#include "frontend/nn/conv.h"

#include <cmath>

#include "frontend/kiln.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

TEST(ConvModules, WeightsAsPyTorchMakesThem) {
  nn::Conv2d conv(4, 6, Sizes{3, 2}, {.groups = 2});
  EXPECT_EQ(conv.weight.sizes(), (Sizes{6, 2, 3, 2}));
  EXPECT_EQ(conv.bias.sizes(), (Sizes{6}));
  const float bound = 1 / std::sqrt(2.f * 3 * 2);
  for (const Tensor& t : conv.parameters())
    for (float v : values(t)) EXPECT_LE(std::abs(v), bound);
  nn::ConvTranspose1d back(4, 6, 5, {.groups = 2, .bias = false});
  EXPECT_EQ(back.weight.sizes(), (Sizes{4, 3, 5}));
  EXPECT_EQ(back.parameters().size(), 1u);
}

TEST(ConvModules, PaddingModes) {
  nn::Conv1d conv(1, 1, 3, {.padding = 1, .bias = false, .padding_mode = PadMode::circular});
  {
    NoGrad guard;
    conv.weight.fill_(1);
  }
  EXPECT_EQ(values(conv(mat({1, 2, 3, 4}, {1, 1, 4}))), (Floats{7, 6, 9, 8}));
  nn::Conv1d same(1, 1, 4, {.padding = ConvPadding::same_size(), .padding_mode = PadMode::replicate});
  EXPECT_EQ(same(zeros({1, 1, 9})).sizes(), (Sizes{1, 1, 9}));
}

TEST(ConvModules, ASmallNetLearnsCompiledAsEagerly) {
  const auto losses = [](bool compiled) {
    manual_seed(7);
    nn::Sequential net;
    net.emplace_back<nn::Conv2d>(1, 4, 3, nn::ConvOptions{.padding = 1});
    net.emplace_back<nn::BatchNorm2d>(4);
    net.emplace_back<nn::ReLU>();
    net.emplace_back<nn::MaxPool2d>(2);
    net.emplace_back<nn::ConvTranspose2d>(4, 1, 2, nn::ConvTransposeOptions{.stride = 2});
    optim::SGD sgd(net.parameters(), {.lr = 0.05, .momentum = 0.9});
    const Tensor x = sin(arange(2 * 64, {.dtype = DType::f32}) * 0.3).view({2, 1, 8, 8});
    const auto step = [&] {
      sgd.zero_grad();
      const Tensor loss = mse_loss(net(x), x);
      loss.backward();
      sgd.step();
      return loss;
    };
    Floats out;
    if (compiled) {
      auto f = compile(step);
      for (int i = 0; i < 5; ++i) out.push_back(static_cast<float>(f().item()));
    } else {
      for (int i = 0; i < 5; ++i) out.push_back(static_cast<float>(step().item()));
    }
    return out;
  };
  const Floats eager = losses(false), got = losses(true);
  EXPECT_LT(eager.back(), eager.front());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], eager[i], 1e-5) << i;
}

TEST(ConvModules, Refusals) {
  EXPECT_ERROR(nn::Conv2d(3, 4, 3, {.groups = 2}),
               "invalid: Conv2d: got 3 input channels, 4 output channels and 2 groups, expected positive "
               "numbers, both channels multiples of groups");
}

}  // namespace KILN_FILE
}  // namespace kiln
