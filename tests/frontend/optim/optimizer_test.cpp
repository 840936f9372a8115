// SPDX-License-Identifier: Apache-2.0
// Optimizers against their formulas in double, written out here from the papers that the header names.
#include "frontend/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frontend/ops.h"

namespace kiln::optim {
namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

Tensor parameter(std::vector<double> v) {
  Tensor t = Tensor::from_vector(v, {static_cast<int64_t>(v.size())});
  t.requires_grad_();
  return t;
}

/// Gradient number `step` of a made-up problem.
std::vector<double> gradient(int step) { return {0.5 - step, 0.25 * step, -1.0}; }

void give(Tensor& p, int step) { p.set_grad(Tensor::from_vector(gradient(step), {3})); }

void expect_near(const Tensor& t, const std::vector<double>& expected) {
  const std::vector<double> got = t.to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << i;
}

struct SgdCase {
  double momentum, dampening, weight_decay;
  bool nesterov;
};

TEST(Sgd, FollowsItsFormula) {
  for (const SgdCase& c : {SgdCase{0, 0, 0, false}, SgdCase{0, 0, 0.1, false}, SgdCase{0.9, 0, 0, false},
                           SgdCase{0.9, 0.5, 0.1, false}, SgdCase{0.9, 0, 0.1, true}}) {
    Tensor p = parameter({1, -2, 3});
    SGD sgd({p}, {.lr = 0.1,
                  .momentum = c.momentum,
                  .dampening = c.dampening,
                  .weight_decay = c.weight_decay,
                  .nesterov = c.nesterov});
    std::vector<double> w = {1, -2, 3}, buffer(3);
    for (int step = 0; step < 4; ++step) {
      sgd.lr = 0.1 / (step + 1);
      give(p, step);
      sgd.step();
      for (size_t i = 0; i < 3; ++i) {
        double g = gradient(step)[i] + c.weight_decay * w[i];
        buffer[i] = step == 0 ? g : c.momentum * buffer[i] + (1 - c.dampening) * g;
        if (c.momentum != 0) g = c.nesterov ? g + c.momentum * buffer[i] : buffer[i];
        w[i] -= sgd.lr * g;
      }
      expect_near(p, w);
    }
  }
}

TEST(AdamW, FollowsItsFormula) {
  Tensor p = parameter({1, -2, 3});
  const AdamWOptions o{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.05};
  AdamW adam({p}, o);
  std::vector<double> w = {1, -2, 3}, m(3), v(3);
  for (int step = 0; step < 4; ++step) {
    adam.lr = 0.1 / (step + 1);
    give(p, step);
    adam.step();
    for (size_t i = 0; i < 3; ++i) {
      const double g = gradient(step)[i];
      w[i] *= 1 - adam.lr * o.weight_decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      const double mean = m[i] / (1 - std::pow(o.beta1, step + 1));
      const double square = v[i] / (1 - std::pow(o.beta2, step + 1));
      w[i] -= adam.lr * mean / (std::sqrt(square) + o.eps);
    }
    expect_near(p, w);
  }
  EXPECT_EQ(adam.step_count(0), 4);
}

TEST(Optimizer, ParametersWithoutGradientStay) {
  Tensor p = parameter({1, 2, 3}), q = parameter({4, 5, 6});
  AdamW adam({p, q}, {.lr = 0.1});
  give(p, 0);
  adam.step();
  expect_near(q, {4, 5, 6});
  EXPECT_NE(p.to_vector<double>()[0], 1);
}

TEST(Optimizer, StateIsSavedAndResumedExactly) {
  auto run = [](int save_at) {
    Tensor p = parameter({1, -2, 3});
    auto adam = std::make_unique<AdamW>(std::vector<Tensor>{p}, AdamWOptions{.lr = 0.1});
    for (int step = 0; step < 4; ++step) {
      if (step == save_at) {
        std::vector<std::pair<std::string, Tensor>> saved;
        for (auto& [name, t] : adam->state_dict()) saved.emplace_back(name, t.clone());
        adam = std::make_unique<AdamW>(std::vector<Tensor>{p}, AdamWOptions{.lr = 0.1});
        adam->load_state_dict(saved);
      }
      give(p, step);
      adam->step();
    }
    return p.to_vector<double>();
  };
  EXPECT_EQ(run(-1), run(2));
  EXPECT_EQ(run(-1), run(0));
}

TEST(Optimizer, ZeroGradDropsOrClears) {
  Tensor p = parameter({1, 2, 3});
  SGD sgd({p}, {});
  give(p, 1);
  const Tensor held = p.grad();
  sgd.zero_grad(false);
  expect_near(held, {0, 0, 0});
  sgd.zero_grad();
  EXPECT_FALSE(p.grad().defined());
}

TEST(ClipGradNorm, ScalesToTheLimitAndReturnsTheNormBefore) {
  Tensor p = parameter({0, 0, 0}), q = parameter({0, 0, 0});
  p.set_grad(Tensor::from_vector<double>({3, 0, 0}, {3}));
  q.set_grad(Tensor::from_vector<double>({0, 4, 0}, {3}));
  EXPECT_NEAR(clip_grad_norm_({p, q}, 10).item(), 5, 1e-12);
  expect_near(p.grad(), {3, 0, 0});
  EXPECT_NEAR(clip_grad_norm_({p, q}, 1).item(), 5, 1e-12);
  const double factor = 1 / (5 + 1e-6);
  expect_near(p.grad(), {3 * factor, 0, 0});
  expect_near(q.grad(), {0, 4 * factor, 0});
  EXPECT_EQ(clip_grad_norm_({parameter({1})}, 1).item(), 0);
}

TEST(Optimizer, Mistakes) {
  Tensor p = parameter({1, 2, 3});
  p.set_name("w");
  EXPECT_EQ(message_of([&] { SGD({p, p}, {}); }), "invalid: Optimizer: parameter f64[3] 'w' is given twice");
  EXPECT_EQ(message_of([&] { SGD({p * 2}, {}); }),
            "invalid: Optimizer: got f64[3], expected leaf tensors of a floating dtype");
  EXPECT_EQ(message_of([&] { SGD({Tensor()}, {}); }),
            "invalid: Optimizer: got undefined, expected leaf tensors of a floating dtype");
  EXPECT_EQ(message_of([&] { SGD({p}, {.nesterov = true}); }),
            "invalid: SGD: nesterov needs momentum > 0 and dampening 0; got 0 and 0");
  EXPECT_EQ(message_of([&] { AdamW({p}, {.beta1 = 1}); }),
            "invalid: AdamW: got betas 1 0.999 and eps 1e-08, expected betas in [0, 1) and eps >= 0");
  AdamW adam({p}, {});
  EXPECT_EQ(
      message_of([&] { adam.load_state_dict({}, Loc("net.cpp", 42)); }),
      "invalid: Optimizer::load_state_dict (net.cpp:42): the state does not fit\n  missing: 0.step f64[]"
      "\n  missing: 0.exp_avg f64[3]\n  missing: 0.exp_avg_sq f64[3]");
}

}  // namespace
}  // namespace kiln::optim
