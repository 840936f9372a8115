// SPDX-License-Identifier: Apache-2.0
// Averages of weights, eagerly and compiled, and moving them in and out of a model.
#include "frontend/optim/swa_utils.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::doubles;
using kiln::testing::error_of;

struct Net : nn::Module {
  Net() {
    register_parameter("w", w);
    register_buffer("mean", mean);
    register_buffer("seen", seen);
  }
  void set(double v) {
    NoGrad guard;
    w.fill_(v);
    mean.fill_(10 * v);
    seen.fill_(v);
  }
  Tensor w = zeros({2}, {DType::f64}).requires_grad_();
  Tensor mean = zeros({2}, {DType::f64}), seen = zeros({}, {DType::i64});
};

double value_of(const AveragedModel& a, const std::string& name) {
  for (const auto& [n, t] : a.state_dict())
    if (n == name) return doubles(t)[0];
  return NAN;
}

class Averaged : public ::testing::TestWithParam<bool> {};

TEST_P(Averaged, ExponentiallyWithADecayAtRunTime) {
  Net net;
  AveragedModel ema(net, {.ema_decay = 0.75});
  auto step = compile([&] { ema.update_parameters(net); });
  double expected = 0;
  for (int t = 1; t <= 5; ++t) {
    if (t == 4) ema.options.ema_decay = 0.5;
    net.set(t);
    if (GetParam()) step();
    else ema.update_parameters(net);
    expected = t == 1 ? 1 : expected + (1 - *ema.options.ema_decay) * (t - expected);
    EXPECT_NEAR(value_of(ema, "module.w"), expected, 1e-12);
    EXPECT_EQ(value_of(ema, "module.mean"), 10 * t);
    EXPECT_EQ(value_of(ema, "n_averaged"), t);
  }
  EXPECT_EQ(step.stats().builds.size(), GetParam() ? 1u : 0u);
}

TEST_P(Averaged, EquallyWithBuffers) {
  Net net;
  AveragedModel swa(net, {.use_buffers = true});
  auto step = compile([&] { swa.update_parameters(net); });
  for (int t = 1; t <= 4; ++t) {
    net.set(t * t);
    if (GetParam()) step();
    else swa.update_parameters(net);
  }
  EXPECT_NEAR(value_of(swa, "module.w"), 7.5, 1e-12);
  EXPECT_NEAR(value_of(swa, "module.mean"), 75, 1e-11);
  EXPECT_EQ(swa.n_averaged(), 4);
}

INSTANTIATE_TEST_SUITE_P(Modes, Averaged, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "compiled" : "eager"; });

TEST(AveragedModel, ADroppedUpdateIsTakenBack) {
  Net net;
  AveragedModel ema(net, {.ema_decay = 0.5});
  net.set(4);
  auto step = compile([&] {
    ema.update_parameters(net);
    throw std::runtime_error("stop");
  });
  EXPECT_THROW(step(), std::runtime_error);
  EXPECT_EQ(ema.n_averaged(), 0);
  EXPECT_EQ(value_of(ema, "module.w"), 0);
}

TEST(AveragedModel, GoesIntoAModelAndOut) {
  Net net, other;
  AveragedModel ema(net, {.ema_decay = 0.5});
  net.set(2);
  ema.update_parameters(net);
  net.set(4);
  ema.update_parameters(net);
  ema.copy_to(other);
  EXPECT_EQ(doubles(other.w)[0], 3);
  EXPECT_EQ(doubles(other.mean)[1], 40);
  EXPECT_TRUE(other.w.is_leaf() && other.w.requires_grad());
  ema.swap(net);
  EXPECT_EQ(doubles(net.w)[0], 3);
  EXPECT_EQ(value_of(ema, "module.w"), 4);
  ema.swap(net);
  EXPECT_EQ(doubles(net.w)[0], 4);
  EXPECT_EQ(value_of(ema, "module.w"), 3);
}

TEST(AveragedModel, StateRoundTrip) {
  Net net;
  AveragedModel a(net), b(net);
  for (int t = 0; t < 3; ++t) {
    net.set(t);
    a.update_parameters(net);
  }
  b.load_state_dict(a.state_dict());
  net.set(9);
  a.update_parameters(net);
  b.update_parameters(net);
  EXPECT_EQ(value_of(b, "module.w"), 3);
  EXPECT_EQ(value_of(a, "module.w"), 3);
  EXPECT_EQ(b.n_averaged(), 4);
}

TEST(AveragedModel, Mistakes) {
  Net net;
  nn::Module empty;
  AveragedModel a(net);
  EXPECT_EQ(error_of([&] { AveragedModel(net, {.ema_decay = 2}); }),
            "invalid: AveragedModel: ema_decay is 2, expected 0 to 1");
  EXPECT_ERROR(a.update_parameters(empty),
               "invalid: AveragedModel::update_parameters (@): the model has 0 parameters and buffers, the "
               "averaged one had 3");
  Net wide;
  wide.w = zeros({3}, {DType::f64}).requires_grad_();
  EXPECT_ERROR(a.copy_to(wide),
               "invalid: AveragedModel::copy_to (@): the model has w f64[3], the averaged one had w f64[2]");
  NamedTensors state = a.state_dict();
  state[1].first = "w";
  EXPECT_ERROR(a.load_state_dict(state),
               "invalid: AveragedModel::load_state_dict (@): the state does not fit\n  missing: module.w "
               "f64[2]\n  unexpected: w f64[2]");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
