// SPDX-License-Identifier: Apache-2.0
// SGD, ASGD, Rprop, Lion and Muon against their formulas in double, from the papers that the header names.
#include "frontend/optim/sgd.h"

#include "tests/frontend/optim/all.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

struct SgdCase {
  double momentum, dampening, weight_decay;
  bool nesterov;
};

TEST(Sgd, FollowsItsFormula) {
  for (const SgdCase& c : {SgdCase{0, 0, 0, false}, SgdCase{0, 0, 0.1, false}, SgdCase{0.9, 0, 0, false},
                           SgdCase{0.9, 0.5, 0.1, false}, SgdCase{0.9, 0, 0.1, true}}) {
    Tensor p = weights({3});
    SGD sgd({p}, {.lr = 0.1,
                  .momentum = c.momentum,
                  .dampening = c.dampening,
                  .weight_decay = c.weight_decay,
                  .nesterov = c.nesterov});
    std::vector<double> w = elements(p), buffer(3);
    for (int step = 0; step < 4; ++step) {
      sgd.lr = 0.1 / (step + 1);
      p.set_grad(gradient(p, step));
      sgd.step();
      for (size_t i = 0; i < 3; ++i) {
        double g = elements(gradient(p, step))[i] + c.weight_decay * w[i];
        buffer[i] = step == 0 ? g : c.momentum * buffer[i] + (1 - c.dampening) * g;
        if (c.momentum != 0) g = c.nesterov ? g + c.momentum * buffer[i] : buffer[i];
        w[i] -= sgd.lr * g;
      }
      expect_near(p, w);
    }
  }
}

TEST(Sgd, MomentumThatIsTurnedOnLaterBeginsWithTheGradient) {
  Tensor p = weights({3});
  SGD sgd({p}, {.lr = 1, .dampening = 0.5});
  std::vector<double> w = elements(p);
  for (int step = 0; step < 2; ++step) {
    sgd.options().momentum = step == 1 ? 0.9 : 0;
    p.set_grad(gradient(p, step));
    sgd.step();
    for (size_t i = 0; i < 3; ++i) w[i] -= elements(gradient(p, step))[i];
  }
  expect_near(p, w);
}

TEST(Sgd, RowsThatWereNotLookedUpStay) {
  Tensor eager = weights({40, 4}).requires_grad_(), table = eager.detach().clone().requires_grad_();
  SGD by_op({eager}, {.lr = 0.3}), compiled({table}, {.lr = 0.3});
  const auto train = [](SGD& sgd, const Tensor& t, const Tensor& ids) {
    sgd.zero_grad();
    sum(square(embedding(ids, t))).backward();
    sgd.step();
  };
  auto step = compile([&](const Tensor& ids) { train(compiled, table, ids); });
  for (int t = 0; t < 5; ++t) {
    // Decay, which changes all rows, is turned on and off again.
    by_op.options().weight_decay = compiled.options().weight_decay = t == 2 ? 0.1 : 0;
    const std::vector<double> before = elements(table);
    const Tensor ids = Tensor::from_vector(std::vector<int64_t>{3, 17, 3, int64_t{t}}, {4});
    train(by_op, eager, ids);
    step(ids);
    expect_near(table, elements(eager));
    const std::vector<double> after = elements(table);
    for (size_t row = 20; row < 40; ++row) EXPECT_EQ(after[4 * row] == before[4 * row], t != 2) << row;
  }
}

TEST(Asgd, AveragesFromT0On) {
  Tensor p = weights({3});
  ASGD asgd({p}, {.lr = 0.1, .lambd = 0.01, .alpha = 0.5, .t0 = 2});
  std::vector<double> w = elements(p), ax(3);
  double eta = 0.1, mu = 1;
  for (int t = 1; t <= 6; ++t) {
    p.set_grad(gradient(p, t));
    asgd.step();
    for (size_t i = 0; i < 3; ++i) {
      w[i] = w[i] * (1 - 0.01 * eta) - eta * elements(gradient(p, t))[i];
      ax[i] = mu == 1 ? w[i] : ax[i] + (w[i] - ax[i]) * mu;
    }
    eta = 0.1 / std::sqrt(1 + 0.01 * 0.1 * t);
    mu = 1.0 / std::max(1, t - 2);
  }
  expect_near(p, w);
  const NamedTensors state = asgd.state_dict();
  EXPECT_EQ(state[1].first, "0.eta");
  EXPECT_NEAR(state[1].second.item(), eta, 1e-15);
  EXPECT_EQ(state[2].second.item(), 0.25);
  EXPECT_EQ(state[3].first, "0.ax");
  expect_near(state[3].second, ax);
}

TEST(Rprop, GrowsStepsShrinksThemAndSkipsTheStepAfterATurn) {
  Tensor p = Tensor::from_vector<double>({0, 0, 0}, {3}).requires_grad_();
  Rprop rprop({p}, {.lr = 1, .step_size_max = 1.3});
  const std::vector<std::vector<double>> g = {{1, 1, 0}, {2, -1, 0}, {3, -1, 5}};
  for (const auto& now : g) {
    p.set_grad(Tensor::from_vector(now, {3}));
    rprop.step();
  }
  // Agreeing: 1, 1.2, 1.3 (limited). Turned: 1 down, none while the step is halved, 0.5 up.
  expect_near(p, {-3.5, -1 + 0.5, -1});
}

TEST(Lion, FollowsItsProgram) {
  Tensor p = weights({3});
  Lion lion({p}, {.lr = 0.1, .beta1 = 0.8, .beta2 = 0.7, .weight_decay = 0.3});
  std::vector<double> w = elements(p), m(3);
  for (int t = 0; t < 4; ++t) {
    p.set_grad(gradient(p, t));
    lion.step();
    for (size_t i = 0; i < 3; ++i) {
      const double g = elements(gradient(p, t))[i], c = 0.8 * m[i] + 0.2 * g;
      w[i] -= 0.1 * ((c > 0) - (c < 0) + 0.3 * w[i]);
      m[i] = 0.7 * m[i] + 0.3 * g;
    }
  }
  expect_near(p, w);
}

/// Rows and columns of what is taken off the weights must have singular values of about one.
TEST(Muon, TakesOrthogonalSteps) {
  for (const Sizes& sizes : {Sizes{6, 3}, Sizes{3, 6}}) {
    Tensor p = weights(sizes);
    const std::vector<double> before = elements(p);
    Muon muon({p}, {.lr = 1, .weight_decay = 0, .momentum = 0});
    p.set_grad(weights(sizes));
    muon.step();
    const double scale = sizes[0] > sizes[1] ? std::sqrt(2.0) : 1;
    double squares = 0;
    const std::vector<double> after = elements(p);
    for (size_t i = 0; i < 18; ++i) squares += std::pow((before[i] - after[i]) / scale, 2);
    // Three singular values, each in [0.68, 1.13] by the paper; that matrix has rank two.
    EXPECT_GT(squares, 2 * 0.68 * 0.68 - 0.05);
    EXPECT_LT(squares, 3 * 1.13 * 1.13 + 0.05);
  }
}

TEST(Muon, AdjustsTheRateToMatchAdamW) {
  Tensor p = weights({6, 4}), q = weights({6, 4});
  Muon original({p}, {.lr = 1, .weight_decay = 0});
  Muon matched({q}, {.lr = 1, .weight_decay = 0, .adjust_lr_fn = AdjustLr::match_rms_adamw});
  const std::vector<double> start = elements(p);
  for (Tensor t : {p, q}) t.set_grad(gradient(t, 0));
  original.step();
  matched.step();
  const double ratio = 0.2 * std::sqrt(6.0) / std::sqrt(1.5);
  for (size_t i = 0; i < start.size(); ++i)
    EXPECT_NEAR(elements(q)[i] - start[i], ratio * (elements(p)[i] - start[i]), 1e-9);
}

TEST(SgdFamily, Refusals) {
  const Tensor p = weights({3});
  EXPECT_EQ(error_of([&] { SGD({p}, {.momentum = -1}); }),
            "invalid: SGD: momentum is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { SGD({p}, {.nesterov = true}); }),
            "invalid: SGD: nesterov needs momentum > 0 and dampening 0; got 0 and 0");
  EXPECT_EQ(error_of([&] { ASGD({p}, {.weight_decay = -1}); }),
            "invalid: ASGD: weight_decay is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { Rprop({p}, {.eta_plus = 1}); }),
            "invalid: Rprop: eta_plus is 1, expected above 1");
  EXPECT_EQ(error_of([&] { Lion({p}, {.beta2 = 1}); }),
            "invalid: Lion: beta2 is 1, expected at least 0 and below 1");
  EXPECT_EQ(error_of([&] { Muon({p}, {}); }),
            "invalid: Muon: parameter f64[3] '' is no matrix (give it to another optimizer, such as AdamW)");
  EXPECT_EQ(error_of([&] {
              Muon({weights({2, 2})}, {.ns_steps = 100});
            }),
            "invalid: Muon: ns_steps is 100, expected 1 to 99");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
