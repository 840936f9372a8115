// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/adagrad.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/optim/step.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: formulas are written in its vocabulary

std::vector<Hyper> AdagradOptions::hypers() {
  return {{"lr", &lr},
          {"lr_decay", &lr_decay},
          {"weight_decay", &weight_decay},
          {"initial_accumulator_value", &initial_accumulator_value},
          {"eps", &eps},
          {"maximize", &maximize}};
}

void AdagradOptions::check(std::span<const Tensor>) const {
  expect_not_negative("Adagrad", "lr", lr);
  expect_not_negative("Adagrad", "lr_decay", lr_decay);
  expect_not_negative("Adagrad", "weight_decay", weight_decay);
  expect_not_negative("Adagrad", "initial_accumulator_value", initial_accumulator_value);
  expect_not_negative("Adagrad", "eps", eps);
}

std::vector<StateSpec> Adagrad::specs(size_t group, const Tensor&) const {
  return {{"sum", true, options(group).initial_accumulator_value}};
}
std::vector<int64_t> Adagrad::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> Adagrad::take_step(size_t group, Pace& p) const {
  const AdagradOptions& o = options(group);
  return {p(o.lr) / (1 + (p.step - 1) * p(o.lr_decay)), p(o.weight_decay), p(o.eps)};
}

void Adagrad::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = with_decay(direction(u, options(group).maximize), u.param, n[1]);
  u.state[0] = add2(u.state[0], mul2(g, g));
  u.param = sub2(u.param, mul2(n[0], div2(g, add2(root(u.state[0]), n[2]))));
}

std::vector<Hyper> RMSpropOptions::hypers() {
  return {{"lr", &lr},
          {"alpha", &alpha},
          {"eps", &eps},
          {"weight_decay", &weight_decay},
          {"momentum", &momentum},
          {"centered", &centered},
          {"maximize", &maximize}};
}

void RMSpropOptions::check(std::span<const Tensor>) const {
  expect_not_negative("RMSprop", "lr", lr);
  expect_not_negative("RMSprop", "eps", eps);
  expect_not_negative("RMSprop", "momentum", momentum);
  expect_not_negative("RMSprop", "weight_decay", weight_decay);
  expect_not_negative("RMSprop", "alpha", alpha);
}

std::vector<StateSpec> RMSprop::specs(size_t group, const Tensor&) const {
  const RMSpropOptions& o = options(group);
  return {{"square_avg"}, {"momentum_buffer", o.momentum > 0}, {"grad_avg", o.centered}};
}

std::vector<int64_t> RMSprop::modes(size_t group) const {
  const RMSpropOptions& o = options(group);
  return {o.momentum > 0, o.centered, o.maximize};
}

std::vector<Number> RMSprop::take_step(size_t group, Pace& p) const {
  const RMSpropOptions& o = options(group);
  return {p(o.lr), p(o.alpha), 1 - p(o.alpha), p(o.eps), p(o.weight_decay), p(o.momentum)};
}

void RMSprop::update(size_t group, Update& u) const {
  const RMSpropOptions& o = options(group);
  const auto& n = u.numbers;
  const Tensor g = with_decay(direction(u, o.maximize), u.param, n[4]);
  Tensor &square = u.state[0], &buffer = u.state[1], &mean = u.state[2];
  square = add2(mul2(square, n[1]), mul2(mul2(g, g), n[2]));
  Tensor spread = square;
  if (o.centered) {
    mean = lerp(mean, g, n[2]);
    spread = sub2(square, mul2(mean, mean));
  }
  Tensor way = div2(g, add2(root(spread), n[3]));
  if (o.momentum > 0) way = buffer = add2(mul2(buffer, n[5]), way);
  u.param = sub2(u.param, mul2(way, n[0]));
}

std::vector<Hyper> AdadeltaOptions::hypers() {
  return {
      {"lr", &lr}, {"rho", &rho}, {"eps", &eps}, {"weight_decay", &weight_decay}, {"maximize", &maximize}};
}

void AdadeltaOptions::check(std::span<const Tensor>) const {
  expect_not_negative("Adadelta", "lr", lr);
  expect(rho >= 0 && rho <= 1, "Adadelta", "rho", rho, "0 to 1");
  expect_not_negative("Adadelta", "eps", eps);
  expect_not_negative("Adadelta", "weight_decay", weight_decay);
}

std::vector<StateSpec> Adadelta::specs(size_t, const Tensor&) const {
  return {{"square_avg"}, {"acc_delta"}};
}
std::vector<int64_t> Adadelta::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> Adadelta::take_step(size_t group, Pace& p) const {
  const AdadeltaOptions& o = options(group);
  return {p(o.lr), p(o.rho), 1 - p(o.rho), p(o.eps), p(o.weight_decay)};
}

void Adadelta::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = with_decay(direction(u, options(group).maximize), u.param, n[4]);
  Tensor &square = u.state[0], &acc = u.state[1];
  square = add2(mul2(square, n[1]), mul2(mul2(g, g), n[2]));
  const Tensor delta = mul2(div2(root(add2(acc, n[3])), root(add2(square, n[3]))), g);
  acc = add2(mul2(acc, n[1]), mul2(mul2(delta, delta), n[2]));
  u.param = sub2(u.param, mul2(delta, n[0]));
}

std::vector<Hyper> AdafactorOptions::hypers() {
  return {{"lr", &lr}, {"beta2_decay", &beta2_decay},   {"eps1", &eps1},        {"eps2", &eps2},
          {"d", &d},   {"weight_decay", &weight_decay}, {"maximize", &maximize}};
}

void AdafactorOptions::check(std::span<const Tensor>) const {
  expect_not_negative("Adafactor", "lr", lr);
  expect(beta2_decay <= 0, "Adafactor", "beta2_decay", beta2_decay, "at most 0");
  expect_not_negative("Adafactor", "eps1", eps1);
  expect_not_negative("Adafactor", "eps2", eps2);
  expect(d >= 1, "Adafactor", "d", d, "at least 1");
  expect_not_negative("Adafactor", "weight_decay", weight_decay);
}

std::vector<StateSpec> Adafactor::specs(size_t, const Tensor& p) const {
  const bool factored = p.dim() > 1;
  Sizes rows = p.sizes(), columns = p.sizes();
  if (factored) {
    rows.back() = 1;
    columns[columns.size() - 2] = 1;
  }
  return {{"row_var", factored, 0, rows}, {"col_var", factored, 0, columns}, {"variance", !factored}};
}
std::vector<int64_t> Adafactor::modes(size_t group) const { return {options(group).maximize}; }

namespace {
double epsilon_of(DType t) {
  switch (t) {
    case DType::f64: return std::numeric_limits<double>::epsilon();
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    default: return std::numeric_limits<float>::epsilon();
  }
}

/// Mean of the squares along one dim, which stays as 1.
Tensor mean_square(const Tensor& g, int64_t dim) {
  const Tensor sum = reduce(op("sum"), mul2(g, g), {dim}, true);
  return div2(sum, lit(sum, static_cast<double>(g.size(dim))));
}
}  // namespace

std::vector<Number> Adafactor::take_step(size_t group, Pace& p) const {
  const AdafactorOptions& o = options(group);
  const Number lr = p(o.lr), given = p(o.eps1);
  const Number eps1 = either(equal(given, 0), epsilon_of(group_params(group)[0].dtype()), given);
  return {1 - lr * p(o.weight_decay),
          pow(p.step, p(o.beta2_decay)),
          smaller(lr, 1 / sqrt(p.step)),
          eps1,
          eps1 * eps1,
          p(o.eps2),
          p(o.d)};
}

void Adafactor::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = direction(u, options(group).maximize);
  const double count = std::sqrt(static_cast<double>(g.numel()));
  const Tensor scale = norm2(u.param);
  const Tensor alpha = mul2(larger(div2(scale, lit(scale, count)), n[5]), n[2]);
  Tensor estimate;
  if (g.dim() > 1) {
    const int64_t last = g.dim() - 1;
    Tensor &row = u.state[0], &column = u.state[1];
    row = lerp(row, mean_square(g, last), n[1]);
    column = lerp(column, mean_square(g, last - 1), n[1]);
    const Tensor sum = reduce(op("sum"), row, {last - 1}, true);
    const Tensor mean = div2(sum, lit(sum, static_cast<double>(g.size(last - 1))));
    estimate = div2(mul2(row, column), larger(mean, n[3]));
  } else {
    u.state[2] = lerp(u.state[2], mul2(g, g), n[1]);
    estimate = u.state[2];
  }
  const Tensor way = mul2(unary(op("rsqrt"), larger(estimate, n[4])), g);
  const Tensor length = norm2(way), limit = mul2(lit(length, count), n[6]);
  const Tensor excess = larger(div2(length, limit), lit(length, 1));
  u.param = sub2(mul2(u.param, n[0]), mul2(way, div2(alpha, excess)));
}

}  // namespace kiln::optim
