// SPDX-License-Identifier: Apache-2.0
// Optimizers against their formulas, eagerly and compiled: lr changes, state, clipping, missing gradients.
#include "frontend/optim/adam.h"
#include "frontend/optim/clip.h"
#include "frontend/optim/optimizer.h"
#include "frontend/optim/sgd.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/nn/layers.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

enum class Mode { eager, reference, native };

class Optim : public ::testing::TestWithParam<Mode> {
 protected:
  /// Runs `step` for t = 0 .. n-1, compiled unless eager; one build for all.
  template <typename F>
  void loop(int n, int builds, F step) {
    CompileOptions o;
    o.backend = GetParam() == Mode::native ? Backend::native : Backend::reference;
    int t = 0;
    auto body = [&] { step(t); };
    auto compiled = compile(body, o);
    for (; t < n; ++t) {
      if (GetParam() == Mode::eager) body();
      else compiled();
    }
    if (GetParam() != Mode::eager) {
      EXPECT_EQ(compiled.stats().builds.size(), static_cast<size_t>(builds));
    }
  }
};

double gradient(int t, double w) { return std::sin(t + 1.0) + w; }

/// loss with d loss / d w = sin(t + 1) + w.
Tensor loss_of(const Tensor& w, int t) { return sum(w * w * 0.5 + w * std::sin(t + 1.0)); }

Tensor f64(double v) { return full({1}, v, {DType::f64}).requires_grad_(); }

TEST_P(Optim, SgdFormulas) {
  for (const optim::SGDOptions& o :
       {optim::SGDOptions{0.1}, optim::SGDOptions{0.1, 0.9}, optim::SGDOptions{0.1, 0.9, 0.2, 0.05},
        optim::SGDOptions{0.1, 0.9, 0, 0.05, true}, optim::SGDOptions{0.1, 0, 0, 0.5}}) {
    Tensor w = f64(1.5);
    optim::SGD opt({w}, o);
    loop(4, 1, [&](int t) {
      opt.zero_grad();
      loss_of(w, t).backward();
      opt.step();
    });
    double x = 1.5, buffer = 0;
    for (int t = 0; t < 4; ++t) {
      double g = gradient(t, x) + o.weight_decay * x;
      if (o.momentum != 0) {
        buffer = t == 0 ? g : o.momentum * buffer + (1 - o.dampening) * g;
        g = o.nesterov ? g + o.momentum * buffer : buffer;
      }
      x -= o.lr * g;
    }
    EXPECT_NEAR(w.item(), x, 1e-12) << o.momentum << " " << o.weight_decay;
    EXPECT_EQ(opt.step_count(0), 4);
    EXPECT_TRUE(w.is_leaf() && w.requires_grad());
  }
}

TEST_P(Optim, AdamWFormulaWithChangingRate) {
  Tensor w = f64(1.5);
  optim::AdamW opt({w}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.2});
  auto rate = [](int t) { return 0.1 / (t + 1); };
  loop(5, 1, [&](int t) {
    opt.lr = rate(t);
    opt.zero_grad();
    loss_of(w, t).backward();
    opt.step();
  });
  double x = 1.5, m = 0, v = 0;
  for (int t = 0; t < 5; ++t) {
    const double g = gradient(t, x);
    x *= 1 - rate(t) * 0.2;
    m = 0.8 * m + 0.2 * g;
    v = 0.95 * v + 0.05 * g * g;
    x -= rate(t) * (m / (1 - std::pow(0.8, t + 1))) / (std::sqrt(v / (1 - std::pow(0.95, t + 1))) + 1e-3);
  }
  EXPECT_NEAR(w.item(), x, 1e-12);
}

TEST_P(Optim, ScheduleOfAHundredStepsBuildsOnce) {
  Tensor w = f64(1);
  optim::SGD opt({w}, {});
  loop(100, 1, [&](int t) {
    opt.lr = 0.01 * (t + 1);
    opt.zero_grad();
    sum(w).backward();
    opt.step();
  });
  EXPECT_NEAR(w.item(), -49.5, 1e-10);
}

TEST_P(Optim, ParametersWithoutGradientStay) {
  Tensor a = f64(1), b = f64(2);
  optim::AdamW opt({a, b}, {.lr = 0.1});
  loop(4, 2, [&](int t) {
    opt.zero_grad();
    sum(t % 2 ? a + b : a * 1.0).backward();
    opt.step();
  });
  EXPECT_LT(a.item(), 0.7);
  EXPECT_GT(b.item(), 1.7);
  EXPECT_LT(b.item(), 1.9);
}

TEST_P(Optim, ParametersThatStartLateTakeTheirOwnFirstStep) {
  Tensor a = f64(1), b = f64(2), c = f64(1), d = f64(2);
  optim::AdamW adam({a, b}, {.lr = 0.1, .weight_decay = 0});
  optim::SGD sgd({c, d}, {.lr = 1, .momentum = 0.9, .dampening = 0.5});
  loop(3, 2, [&](int t) {
    adam.zero_grad();
    sgd.zero_grad();
    sum(t == 2 ? a + b + c + d : a + c).backward();
    adam.step();
    sgd.step();
  });
  EXPECT_NEAR(a.item(), 0.7, 1e-6);  // bias correction makes each step one learning rate
  EXPECT_NEAR(b.item(), 1.9, 1e-6);
  EXPECT_NEAR(c.item(), 1 - 1 - 1.4 - 1.76, 1e-12);
  EXPECT_NEAR(d.item(), 1, 1e-12);  // the first gradient, not dampened
  EXPECT_EQ(adam.step_count(0), 3);
  EXPECT_EQ(adam.step_count(1), 1);
}

TEST_P(Optim, ZeroGradCanKeepTheTensors) {
  Tensor w = f64(1);
  optim::SGD opt({w}, {.lr = 1});
  loop(3, 2, [&](int) {
    opt.zero_grad(false);
    sum(w * 3.0).backward();
  });
  EXPECT_EQ(w.grad().item(), 3);
}

TEST_P(Optim, ClipScalesToTheNorm) {
  Tensor a = vec({0, 0}, true), b = vec({0}, true), none = vec({1}, true);
  Tensor norm;
  loop(2, 1, [&](int) {
    a.set_grad({});
    b.set_grad({});
    (sum(a * vec({3, 0})) + sum(b * 4.0)).backward();
    norm = optim::clip_grad_norm_({a, b, none}, 2.5);
  });
  EXPECT_FLOAT_EQ(norm.item<float>(), 5);
  EXPECT_NEAR(values(a.grad())[0], 1.5, 1e-5);
  EXPECT_NEAR(values(b.grad())[0], 2, 1e-5);
  Tensor small;
  loop(1, 1, [&](int) {
    a.set_grad({});
    sum(a * vec({3, 0})).backward();
    small = optim::clip_grad_norm_({a}, 100);
  });
  EXPECT_FLOAT_EQ(small.item<float>(), 3);
  EXPECT_EQ(values(a.grad()), (Floats{3, 0}));
}

INSTANTIATE_TEST_SUITE_P(Modes, Optim, ::testing::Values(Mode::eager, Mode::reference, Mode::native),
                         [](const auto& info) {
                           return info.param == Mode::eager       ? "eager"
                                  : info.param == Mode::reference ? "reference"
                                                                  : "native";
                         });

TEST(OptimizerState, RoundTripContinuesTheSameWay) {
  auto train = [](Tensor& w, optim::AdamW& opt, int from, int to) {
    for (int t = from; t < to; ++t) {
      opt.zero_grad();
      loss_of(w, t).backward();
      opt.step();
    }
  };
  Tensor w = f64(1.5), v = f64(0);
  optim::AdamW a({w}, {.lr = 0.1}), b({v}, {.lr = 0.1});
  train(w, a, 0, 3);
  v.detach().copy_(w.detach());
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.step_count(0), 3);
  train(w, a, 3, 6);
  train(v, b, 3, 6);
  EXPECT_EQ(v.item(), w.item());
}

TEST(OptimizerState, LoadListsAllFaultsAndChangesNothing) {
  Tensor w = f64(1);
  optim::AdamW opt({w}, {});
  sum(w).backward();
  opt.step();
  NamedTensors state = opt.state_dict();
  ASSERT_EQ(state[0].first, "0.step");
  ASSERT_EQ(state[1].first, "0.exp_avg");
  ASSERT_EQ(state[2].first, "0.exp_avg_sq");
  state[0].second.fill_(9);
  state[1].first = "7.exp_avg";
  state[2].second = zeros({2});
  for (auto& [name, t] : state) {
    if (name == "param_groups.0.lr") t = full({}, 7, {DType::f64});
    if (name == "param_groups.0.eps") name = "param_groups.0.epsilon";
    if (name == "param_groups.0.params") t = ids({1});
  }
  EXPECT_EQ(error_of([&] { opt.load_state_dict(state, Loc("net.cpp", 42)); }),
            "invalid: Optimizer::load_state_dict (net.cpp:42): the state does not fit\n  missing: 0.exp_avg "
            "f64[1]\n  0.exp_avg_sq: got f32[2], expected f64[1]\n  missing: param_groups.0.eps f64[]\n  "
            "param_groups.0.params: got [1], expected [0]\n  unexpected: 7.exp_avg f64[1]\n  unexpected: "
            "param_groups.0.epsilon f64[]");
  EXPECT_EQ(opt.step_count(0), 1);
  EXPECT_EQ(opt.lr, 1e-3);
}

TEST(OptimizerErrors, ParametersThatChangedTheirType) {
  nn::Linear net(2, 1);
  optim::AdamW opt(net.parameters(), {});
  sum(net(ones({1, 2}))).backward();
  opt.step();
  opt.zero_grad();
  net.to(DType::f64);
  sum(net(ones({1, 2}, {DType::f64}))).backward();
  EXPECT_ERROR(
      opt.step(),
      "invalid: AdamW.step (@): parameter 0 is f64[1,2] 'weight', but its state 'exp_avg' is f32[1,2] (make "
      "the optimizer after Module::to)");
}

TEST(OptimizerOptions, OneLearningRate) {
  Tensor w = f64(1);
  optim::SGD opt({w}, {.lr = 1});
  opt.options().lr = 3;
  EXPECT_EQ(opt.lr, 3);
  opt.lr = 2;
  sum(w).backward();
  opt.step();
  EXPECT_EQ(w.item(), -1);
}

TEST(OptimizerOptions, OutOfRangeAfterTheConstructor) {
  Tensor w = f64(1);
  optim::AdamW opt({w}, {.lr = 1});
  EXPECT_ERROR(opt.set(0, "beta1", 1.5),
               "invalid: Optimizer::set (@): AdamW: beta1 is 1.5, expected at least 0 and below 1");
  EXPECT_ERROR(opt.set(0, "amsgrad", 2), "invalid: Optimizer::set (@): amsgrad is 2, expected 0 or 1");
  EXPECT_EQ(opt.get(0, "beta1"), 0.9);
  opt.options().beta1 = 2;
  sum(w).backward();
  EXPECT_ERROR(opt.step(), "invalid: AdamW.step (@): AdamW: beta1 is 2, expected at least 0 and below 1");
  EXPECT_EQ(w.item(), 1);
  EXPECT_EQ(opt.step_count(0), 0);
  opt.options().beta1 = 0.9;
  NamedTensors state = opt.state_dict();
  for (auto& [name, t] : state)
    if (name == "param_groups.0.lr") t = full({}, -1, {DType::f64});
    else if (name == "param_groups.0.maximize") t = full({}, 0.5, {DType::f64});
  EXPECT_ERROR(opt.load_state_dict(state),
               "invalid: Optimizer::load_state_dict (@): the state does not fit\n  param_groups.0.maximize: "
               "got 0.5, expected 0 or 1\n  param_groups.0: AdamW: lr is -1, expected at least 0");
  EXPECT_EQ(opt.lr, 1);
}

TEST(OptimizerErrors, GroupsAndParametersThatAreNotThere) {
  Tensor w = f64(1);
  optim::SGD opt({w}, {.lr = 1});
  EXPECT_ERROR(opt.options(5), "invalid: Optimizer::options (@): no group 5; there are 1");
  EXPECT_ERROR(opt.group_params(3), "invalid: Optimizer::group_params (@): no group 3; there are 1");
  EXPECT_ERROR(opt.initial_lr(7), "invalid: Optimizer::initial_lr (@): no group 7; there are 1");
  EXPECT_ERROR(opt.step_count(7), "invalid: Optimizer::step_count (@): no parameter 7; there are 1");
}

}  // namespace KILN_FILE
}  // namespace kiln
