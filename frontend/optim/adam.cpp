// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/adam.h"

#include <algorithm>
#include <cmath>

#include "frontend/optim/step.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: formulas are written in its vocabulary

namespace {

/// The hyper-parameters that all of them have, first.
template <typename Options>
std::vector<Hyper> common(Options& o, std::vector<Hyper> more) {
  std::vector<Hyper> all = {{"lr", &o.lr},
                            {"beta1", &o.beta1},
                            {"beta2", &o.beta2},
                            {"eps", &o.eps},
                            {"weight_decay", &o.weight_decay},
                            {"maximize", &o.maximize}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

template <typename Options>
void check_common(const char* who, const Options& o) {
  expect_not_negative(who, "lr", o.lr);
  expect_share(who, "beta1", o.beta1);
  expect_share(who, "beta2", o.beta2);
  expect_not_negative(who, "eps", o.eps);
  expect_not_negative(who, "weight_decay", o.weight_decay);
}

Number unbiased(const Number& beta, const Number& step) { return 1 - pow(beta, step); }

std::vector<StateSpec> moments(bool amsgrad) {
  return {{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq", amsgrad}};
}

/// beta * v + (1 - beta) * g^2.
Tensor second_moment(const Tensor& v, const Tensor& g, const Tensor& beta, const Tensor& rest) {
  return add2(mul2(v, beta), mul2(mul2(g, g), rest));
}

/// Weight decay by the first two numbers: of the parameter itself where it is decoupled, else of the
/// gradient.
void decay(bool decoupled, const std::vector<Tensor>& n, Tensor& p, Tensor& g) {
  if (decoupled) p = mul2(p, n[1]);
  else g = with_decay(g, p, n[0]);
}

// Adam and AdamW. Of PyTorch's step, lr / b1 * m / (sqrt(v) / b2 + eps), numerator and denominator are taken
// b2 times, so that each element divides once.
template <typename Options>
std::vector<Number> adam_step(const Options& o, const Pace& p) {
  const Number lr = p(o.lr), decay = p(o.weight_decay), beta1 = p(o.beta1), beta2 = p(o.beta2);
  const Number correction = sqrt(unbiased(beta2, p.step));
  return {decay,
          1 - lr * decay,
          1 - beta1,
          beta2,
          1 - beta2,
          p(o.eps) * correction,
          lr / unbiased(beta1, p.step) * correction};
}

template <typename Options>
void adam_update(const Options& o, bool decoupled, Update& u) {
  const auto& n = u.numbers;
  Tensor g = direction(u, o.maximize), p = u.param;
  decay(decoupled, n, p, g);
  Tensor &m = u.state[0], &v = u.state[1], &peak = u.state[2];
  m = lerp(m, g, n[2]);
  v = second_moment(v, g, n[3], n[4]);
  if (o.amsgrad) peak = larger(peak, v);
  const Tensor denominator = add2(root(o.amsgrad ? peak : v), n[5]);
  u.param = sub2(p, mul2(n[6], div2(m, denominator)));
}

}  // namespace

std::vector<Hyper> AdamOptions::hypers() {
  return common(*this, {{"amsgrad", &amsgrad}, {"decoupled_weight_decay", &decoupled_weight_decay}});
}
void AdamOptions::check(std::span<const Tensor>) const { check_common("Adam", *this); }
std::vector<StateSpec> Adam::specs(size_t group, const Tensor&) const {
  return moments(options(group).amsgrad);
}
std::vector<int64_t> Adam::modes(size_t group) const {
  const AdamOptions& o = options(group);
  return {o.amsgrad, o.maximize, o.decoupled_weight_decay};
}
std::vector<Number> Adam::take_step(size_t group, Pace& p) const { return adam_step(options(group), p); }
void Adam::update(size_t group, Update& u) const {
  adam_update(options(group), options(group).decoupled_weight_decay, u);
}

std::vector<Hyper> AdamWOptions::hypers() { return common(*this, {{"amsgrad", &amsgrad}}); }
void AdamWOptions::check(std::span<const Tensor>) const { check_common("AdamW", *this); }
std::vector<StateSpec> AdamW::specs(size_t group, const Tensor&) const {
  return moments(options(group).amsgrad);
}
std::vector<int64_t> AdamW::modes(size_t group) const {
  return {options(group).amsgrad, options(group).maximize};
}
std::vector<Number> AdamW::take_step(size_t group, Pace& p) const { return adam_step(options(group), p); }
void AdamW::update(size_t group, Update& u) const { adam_update(options(group), true, u); }

std::vector<Hyper> NAdamOptions::hypers() {
  return common(*this,
                {{"momentum_decay", &momentum_decay}, {"decoupled_weight_decay", &decoupled_weight_decay}});
}

void NAdamOptions::check(std::span<const Tensor>) const {
  check_common("NAdam", *this);
  expect_not_negative("NAdam", "momentum_decay", momentum_decay);
}

std::vector<StateSpec> NAdam::specs(size_t, const Tensor&) const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
std::vector<int64_t> NAdam::modes(size_t group) const {
  return {options(group).decoupled_weight_decay, options(group).maximize};
}

std::vector<Number> NAdam::take_step(size_t group, Pace& p) const {
  const NAdamOptions& o = options(group);
  const Number lr = p(o.lr), decay = p(o.weight_decay), beta1 = p(o.beta1), beta2 = p(o.beta2);
  const auto momentum = [&](const Number& t) {
    return beta1 * (1 - 0.5 * pow(0.96, t * p(o.momentum_decay)));
  };
  const Number now = momentum(p.step), next = momentum(p.step + 1);
  const Number product = either(equal(p.step, 1), 1, p.numbers[0]) * now;
  p.numbers[0] = product;
  return {decay,
          1 - lr * decay,
          1 - beta1,
          beta2,
          1 - beta2,
          p(o.eps),
          unbiased(beta2, p.step),
          lr * (1 - now) / (1 - product),
          lr * next / (1 - product * next)};
}

void NAdam::update(size_t group, Update& u) const {
  const NAdamOptions& o = options(group);
  const auto& n = u.numbers;
  Tensor g = direction(u, o.maximize), p = u.param;
  decay(o.decoupled_weight_decay, n, p, g);
  Tensor &m = u.state[0], &v = u.state[1];
  m = lerp(m, g, n[2]);
  v = second_moment(v, g, n[3], n[4]);
  const Tensor denominator = add2(root(div2(v, n[6])), n[5]);
  const Tensor by_gradient = mul2(n[7], div2(g, denominator)), by_mean = mul2(n[8], div2(m, denominator));
  u.param = sub2(sub2(p, by_gradient), by_mean);
}

std::vector<Hyper> RAdamOptions::hypers() {
  return common(*this, {{"decoupled_weight_decay", &decoupled_weight_decay}});
}
void RAdamOptions::check(std::span<const Tensor>) const { check_common("RAdam", *this); }
std::vector<StateSpec> RAdam::specs(size_t, const Tensor&) const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
std::vector<int64_t> RAdam::modes(size_t group) const {
  return {options(group).decoupled_weight_decay, options(group).maximize};
}

std::vector<Number> RAdam::take_step(size_t group, Pace& p) const {
  const RAdamOptions& o = options(group);
  const Number lr = p(o.lr), decay = p(o.weight_decay), beta1 = p(o.beta1), beta2 = p(o.beta2);
  const Number correction = unbiased(beta2, p.step), most = 2 / (1 - beta2) - 1;
  const Number length = most - 2 * p.step * pow(beta2, p.step) / correction;
  const Number rectified = sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
  const Number rate = lr / unbiased(beta1, p.step), known = less(5, length);
  return {decay,     1 - lr * decay, 1 - beta1, beta2,
          1 - beta2, p(o.eps),       known,     either(known, rate * rectified * sqrt(correction), rate)};
}

void RAdam::update(size_t group, Update& u) const {
  const RAdamOptions& o = options(group);
  const auto& n = u.numbers;
  Tensor g = direction(u, o.maximize), p = u.param;
  decay(o.decoupled_weight_decay, n, p, g);
  Tensor &m = u.state[0], &v = u.state[1];
  m = lerp(m, g, n[2]);
  v = second_moment(v, g, n[3], n[4]);
  const Tensor way = pick(n[6], div2(m, add2(root(v), n[5])), m);
  u.param = sub2(p, mul2(way, n[7]));
}

std::vector<Hyper> AdamaxOptions::hypers() { return common(*this, {}); }
void AdamaxOptions::check(std::span<const Tensor>) const { check_common("Adamax", *this); }
std::vector<StateSpec> Adamax::specs(size_t, const Tensor&) const { return {{"exp_avg"}, {"exp_inf"}}; }
std::vector<int64_t> Adamax::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> Adamax::take_step(size_t group, Pace& p) const {
  const AdamaxOptions& o = options(group);
  const Number beta1 = p(o.beta1);
  return {p(o.weight_decay), 1 - beta1, p(o.beta2), p(o.eps), p(o.lr) / unbiased(beta1, p.step)};
}

void Adamax::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = with_decay(direction(u, options(group).maximize), u.param, n[0]);
  Tensor &m = u.state[0], &largest = u.state[1];
  m = lerp(m, g, n[1]);
  largest = larger(mul2(largest, n[2]), add2(unary(op("abs"), g), n[3]));
  u.param = sub2(u.param, mul2(n[4], div2(m, largest)));
}

std::vector<Hyper> LAMBOptions::hypers() { return common(*this, {}); }
void LAMBOptions::check(std::span<const Tensor>) const { check_common("LAMB", *this); }
std::vector<StateSpec> LAMB::specs(size_t, const Tensor&) const { return {{"exp_avg"}, {"exp_avg_sq"}}; }
std::vector<int64_t> LAMB::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> LAMB::take_step(size_t group, Pace& p) const {
  const LAMBOptions& o = options(group);
  const Number beta1 = p(o.beta1), beta2 = p(o.beta2);
  return {p(o.lr),
          1 - beta1,
          beta2,
          1 - beta2,
          p(o.eps),
          p(o.weight_decay),
          unbiased(beta1, p.step),
          unbiased(beta2, p.step)};
}

void LAMB::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = direction(u, options(group).maximize);
  Tensor &m = u.state[0], &v = u.state[1];
  m = lerp(m, g, n[1]);
  v = second_moment(v, g, n[2], n[3]);
  const Tensor adam = div2(div2(m, n[6]), add2(root(div2(v, n[7])), n[4]));
  const Tensor way = with_decay(adam, u.param, n[5]);
  const Tensor size = norm2(u.param), length = norm2(way), zero = lit(size, 0), one = lit(size, 1);
  // A parameter of zeros, or a step of none, is not scaled.
  const Tensor positive = binary(op("logical_and"), less(zero, size), less(zero, length));
  const Tensor trust = select3(positive, div2(size, length), one);
  u.param = sub2(u.param, mul2(way, mul2(n[0], trust)));
}

}  // namespace kiln::optim
