// SPDX-License-Identifier: Apache-2.0
// Adam and its kin against their formulas in double, from the papers that the header names.
#include "frontend/optim/adam.h"

#include "tests/frontend/optim/all.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

TEST(AdamW, FollowsItsFormula) {
  Tensor p = weights({3});
  const AdamWOptions o{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.05};
  AdamW adam({p}, o);
  std::vector<double> w = elements(p), m(3), v(3);
  for (int step = 0; step < 4; ++step) {
    adam.lr = 0.1 / (step + 1);
    p.set_grad(gradient(p, step));
    adam.step();
    for (size_t i = 0; i < 3; ++i) {
      const double g = elements(gradient(p, step))[i];
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

TEST(Adam, DecoupledIsAdamW) {
  Tensor p = weights({3}), q = weights({3});
  Adam adam({p}, {.lr = 0.1, .weight_decay = 0.1, .amsgrad = true, .decoupled_weight_decay = true});
  AdamW adamw({q}, {.lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
  for (int t = 0; t < 4; ++t) {
    p.set_grad(gradient(p, t));
    q.set_grad(gradient(q, t));
    adam.step();
    adamw.step();
  }
  EXPECT_EQ(elements(p), elements(q));
}

TEST(RAdam, UsesTheSecondMomentOnceItsVarianceIsKnown) {
  Tensor p = weights({1});
  const double beta = 0.9, most = 2 / (1 - beta) - 1;
  RAdam radam({p}, {.lr = 0.1, .beta1 = 0.8, .beta2 = beta, .eps = 0});
  double w = elements(p)[0], m = 0, v = 0;
  int rectified = 0;
  for (int t = 1; t <= 9; ++t) {
    const double g = elements(gradient(p, t))[0];
    p.set_grad(gradient(p, t));
    radam.step();
    m = 0.8 * m + 0.2 * g;
    v = beta * v + (1 - beta) * g * g;
    const double known = std::pow(beta, t), length = most - 2 * t * known / (1 - known);
    double step = m / (1 - std::pow(0.8, t));
    if (length > 5) {
      ++rectified;
      step *= std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
      step /= std::sqrt(v / (1 - known));
    }
    w -= 0.1 * step;
    EXPECT_NEAR(p.item(), w, 1e-12) << t;
  }
  EXPECT_GT(rectified, 0);
  EXPECT_LT(rectified, 9);
}

TEST(NAdam, KeepsTheProductOfItsMomenta) {
  Tensor p = weights({1});
  NAdam nadam({p}, {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.8, .eps = 0, .momentum_decay = 0.5});
  double w = elements(p)[0], m = 0, v = 0, product = 1;
  for (int t = 1; t <= 4; ++t) {
    const double g = elements(gradient(p, t))[0];
    p.set_grad(gradient(p, t));
    nadam.step();
    m = 0.9 * m + 0.1 * g;
    v = 0.8 * v + 0.2 * g * g;
    const double now = 0.9 * (1 - 0.5 * std::pow(0.96, t * 0.5)),
                 next = 0.9 * (1 - 0.5 * std::pow(0.96, (t + 1) * 0.5));
    product *= now;
    const double root = std::sqrt(v / (1 - std::pow(0.8, t)));
    w -= 0.1 * ((1 - now) / (1 - product) * g + next / (1 - product * next) * m) / root;
    EXPECT_NEAR(p.item(), w, 1e-12) << t;
  }
  EXPECT_EQ(nadam.state_dict()[1].first, "0.mu_product");
  EXPECT_NEAR(nadam.state_dict()[1].second.item(), product, 1e-15);
}

TEST(Lamb, ScalesStepsToTheNormOfTheParameter) {
  Tensor p = weights({2, 3}), zero = Tensor::from_vector<double>({0, 0}, {2}).requires_grad_();
  LAMB lamb({p, zero}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.7, .eps = 1e-3, .weight_decay = 0.2});
  std::vector<double> w = elements(p), z(2);
  std::vector<double> m(6), v(6), mz(2), vz(2);
  const auto step = [&](std::vector<double>& x, std::vector<double>& mean, std::vector<double>& square,
                        const std::vector<double>& g, int t) {
    std::vector<double> way(x.size());
    double size = 0, length = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      mean[i] = 0.8 * mean[i] + 0.2 * g[i];
      square[i] = 0.7 * square[i] + 0.3 * g[i] * g[i];
      way[i] = mean[i] / (1 - std::pow(0.8, t)) / (std::sqrt(square[i] / (1 - std::pow(0.7, t))) + 1e-3) +
               0.2 * x[i];
      size += x[i] * x[i];
      length += way[i] * way[i];
    }
    const double trust = size > 0 && length > 0 ? std::sqrt(size / length) : 1;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= 0.1 * trust * way[i];
  };
  for (int t = 1; t <= 3; ++t) {
    p.set_grad(gradient(p, t));
    zero.set_grad(gradient(zero, t));
    lamb.step();
    step(w, m, v, elements(gradient(p, t)), t);
    step(z, mz, vz, elements(gradient(zero, t)), t);
  }
  expect_near(p, w);
  expect_near(zero, z);
}

TEST(AdamFamily, Refusals) {
  const Tensor p = weights({3});
  EXPECT_EQ(error_of([&] { Adam({p}, {.lr = -1}); }), "invalid: Adam: lr is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { Adam({p}, {.eps = -1}); }), "invalid: Adam: eps is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { AdamW({p}, {.beta1 = 1}); }),
            "invalid: AdamW: beta1 is 1, expected at least 0 and below 1");
  EXPECT_EQ(error_of([&] { NAdam({p}, {.momentum_decay = -1}); }),
            "invalid: NAdam: momentum_decay is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { RAdam({p}, {.beta2 = -0.1}); }),
            "invalid: RAdam: beta2 is -0.1, expected at least 0 and below 1");
  EXPECT_EQ(error_of([&] { Adamax({p}, {.weight_decay = -1}); }),
            "invalid: Adamax: weight_decay is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { LAMB({p}, {.lr = NAN}); }), "invalid: LAMB: lr is nan, expected at least 0");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
