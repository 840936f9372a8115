// SPDX-License-Identifier: Apache-2.0
// Adagrad, RMSprop, Adadelta and Adafactor against their formulas in double.
#include "frontend/optim/adagrad.h"

#include "tests/frontend/optim/all.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

TEST(Adagrad, FollowsItsFormula) {
  Tensor p = weights({3});
  Adagrad o({p}, {.lr = 0.1, .lr_decay = 0.5, .initial_accumulator_value = 0.3, .eps = 1e-3});
  std::vector<double> w = elements(p), sum(3, 0.3);
  for (int t = 0; t < 4; ++t) {
    p.set_grad(gradient(p, t));
    o.step();
    for (size_t i = 0; i < 3; ++i) {
      const double g = elements(gradient(p, t))[i];
      sum[i] += g * g;
      w[i] -= 0.1 / (1 + t * 0.5) * g / (std::sqrt(sum[i]) + 1e-3);
    }
  }
  expect_near(p, w);
}

TEST(RMSprop, CenteredWithMomentum) {
  Tensor p = weights({3});
  RMSprop o({p}, {.lr = 0.1, .alpha = 0.8, .eps = 1e-3, .momentum = 0.5, .centered = true});
  std::vector<double> w = elements(p), square(3), mean(3), buffer(3);
  for (int t = 0; t < 4; ++t) {
    p.set_grad(gradient(p, t));
    o.step();
    for (size_t i = 0; i < 3; ++i) {
      const double g = elements(gradient(p, t))[i];
      square[i] = 0.8 * square[i] + 0.2 * g * g;
      mean[i] = 0.8 * mean[i] + 0.2 * g;
      buffer[i] = 0.5 * buffer[i] + g / (std::sqrt(square[i] - mean[i] * mean[i]) + 1e-3);
      w[i] -= 0.1 * buffer[i];
    }
  }
  expect_near(p, w);
}

TEST(Adadelta, FollowsItsFormula) {
  Tensor p = weights({3});
  Adadelta o({p}, {.lr = 0.7, .rho = 0.8, .eps = 1e-3});
  std::vector<double> w = elements(p), square(3), acc(3);
  for (int t = 0; t < 4; ++t) {
    p.set_grad(gradient(p, t));
    o.step();
    for (size_t i = 0; i < 3; ++i) {
      const double g = elements(gradient(p, t))[i];
      square[i] = 0.8 * square[i] + 0.2 * g * g;
      const double delta = std::sqrt((acc[i] + 1e-3) / (square[i] + 1e-3)) * g;
      acc[i] = 0.8 * acc[i] + 0.2 * delta * delta;
      w[i] -= 0.7 * delta;
    }
  }
  expect_near(p, w);
}

double rms(const std::vector<double>& v) {
  double s = 0;
  for (double x : v) s += x * x;
  return std::sqrt(s / static_cast<double>(v.size()));
}

/// Algorithm 4 of the paper for [2,3], with relative steps and clipped updates.
TEST(Adafactor, KeepsRowsAndColumns) {
  Tensor p = weights({2, 3});
  Adafactor o({p}, {.lr = 0.5, .eps1 = 1e-8, .eps2 = 1e-3, .d = 1, .weight_decay = 0.1});
  std::vector<double> w = elements(p), row(2), column(3);
  for (int t = 1; t <= 4; ++t) {
    const std::vector<double> g = elements(gradient(p, t));
    p.set_grad(gradient(p, t));
    o.step();
    const double fresh = std::pow(t, -0.8), alpha = std::max(1e-3, rms(w)) * std::min(0.5, 1 / std::sqrt(t));
    for (size_t i = 0; i < 2; ++i) {
      const double mean =
          (g[3 * i] * g[3 * i] + g[3 * i + 1] * g[3 * i + 1] + g[3 * i + 2] * g[3 * i + 2]) / 3;
      row[i] += fresh * (mean - row[i]);
    }
    for (size_t j = 0; j < 3; ++j) column[j] += fresh * ((g[j] * g[j] + g[3 + j] * g[3 + j]) / 2 - column[j]);
    std::vector<double> way(6);
    for (size_t i = 0; i < 6; ++i)
      way[i] = g[i] / std::sqrt(row[i / 3] * column[i % 3] / ((row[0] + row[1]) / 2));
    const double excess = std::max(1.0, rms(way));
    for (size_t i = 0; i < 6; ++i) w[i] = w[i] * (1 - 0.5 * 0.1) - alpha / excess * way[i];
  }
  expect_near(p, w, 1e-10);
  std::map<std::string, Sizes> state;
  for (const auto& [name, t] : o.state_dict()) state[name] = t.sizes();
  EXPECT_EQ(state.at("0.row_var"), (Sizes{2, 1}));
  EXPECT_EQ(state.at("0.col_var"), (Sizes{1, 3}));
  EXPECT_FALSE(state.contains("0.variance"));
}

TEST(Adafactor, VectorsHaveAWholeSecondMoment) {
  Tensor p = weights({3});
  Adafactor o({p}, {.lr = 0.1});
  std::vector<double> w = elements(p), v(3);
  for (int t = 1; t <= 3; ++t) {
    const std::vector<double> g = elements(gradient(p, t));
    p.set_grad(gradient(p, t));
    o.step();
    std::vector<double> way(3);
    for (size_t i = 0; i < 3; ++i) {
      v[i] += std::pow(t, -0.8) * (g[i] * g[i] - v[i]);
      way[i] = g[i] / std::sqrt(v[i]);
    }
    const double alpha = rms(w) * 0.1 / std::max(1.0, rms(way));
    for (size_t i = 0; i < 3; ++i) w[i] -= alpha * way[i];
  }
  expect_near(p, w, 1e-10);
}

TEST(AdagradFamily, Refusals) {
  const Tensor p = weights({3});
  EXPECT_EQ(error_of([&] { Adagrad({p}, {.lr_decay = -1}); }),
            "invalid: Adagrad: lr_decay is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { RMSprop({p}, {.alpha = -1}); }),
            "invalid: RMSprop: alpha is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { Adadelta({p}, {.rho = 2}); }), "invalid: Adadelta: rho is 2, expected 0 to 1");
  EXPECT_EQ(error_of([&] { Adafactor({p}, {.beta2_decay = 0.5}); }),
            "invalid: Adafactor: beta2_decay is 0.5, expected at most 0");
  EXPECT_EQ(error_of([&] { Adafactor({p}, {.d = 0.5}); }),
            "invalid: Adafactor: d is 0.5, expected at least 1");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
