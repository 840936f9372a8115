// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/sgd.h"

#include <algorithm>
#include <cmath>

#include "frontend/optim/step.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: formulas are written in its vocabulary

std::vector<Hyper> SGDOptions::hypers() {
  return {{"lr", &lr},
          {"momentum", &momentum},
          {"dampening", &dampening},
          {"weight_decay", &weight_decay},
          {"nesterov", &nesterov},
          {"maximize", &maximize}};
}

void SGDOptions::check(std::span<const Tensor>) const {
  expect_not_negative("SGD", "lr", lr);
  expect_not_negative("SGD", "momentum", momentum);
  expect_not_negative("SGD", "weight_decay", weight_decay);
  KILN_CHECK(!nesterov || (momentum > 0 && dampening == 0), invalid,
             "SGD: nesterov needs momentum > 0 and dampening 0; got {} and {}", momentum, dampening);
}

std::vector<StateSpec> SGD::specs(size_t group, const Tensor&) const {
  return {{"momentum_buffer", options(group).momentum != 0}};
}

std::vector<int64_t> SGD::modes(size_t group) const {
  const SGDOptions& o = options(group);
  return {o.momentum != 0, o.nesterov, o.maximize, o.weight_decay != 0};
}

std::vector<Number> SGD::take_step(size_t group, Pace& p) const {
  const SGDOptions& o = options(group);
  // What the buffer holds from its first step on is all that the step's number decides.
  return {p(o.lr), p(o.weight_decay), p(o.momentum), 1 - p(o.dampening), equal(p.with_state, 1)};
}

void SGD::update(size_t group, Update& u) const {
  const SGDOptions& o = options(group);
  const auto& n = u.numbers;
  Tensor g = direction(u, o.maximize);
  // Not a number like the others: without decay a gradient of few rows updates these alone.
  if (o.weight_decay != 0) g = add2(g, mul2(u.param, n[1]));
  if (o.momentum != 0) {
    Tensor& buffer = u.state[0];
    buffer = pick(n[4], g, add2(mul2(buffer, n[2]), mul2(g, n[3])));
    g = o.nesterov ? add2(g, mul2(buffer, n[2])) : buffer;
  }
  u.param = sub2(u.param, mul2(g, n[0]));
}

std::vector<Hyper> ASGDOptions::hypers() {
  return {{"lr", &lr},
          {"lambd", &lambd},
          {"alpha", &alpha},
          {"t0", &t0},
          {"weight_decay", &weight_decay},
          {"maximize", &maximize}};
}

void ASGDOptions::check(std::span<const Tensor>) const {
  expect_not_negative("ASGD", "lr", lr);
  expect_not_negative("ASGD", "weight_decay", weight_decay);
}

std::vector<StateSpec> ASGD::specs(size_t, const Tensor&) const { return {{"ax"}}; }
std::vector<int64_t> ASGD::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> ASGD::take_step(size_t group, Pace& p) const {
  const ASGDOptions& o = options(group);
  const Number lr = p(o.lr), lambd = p(o.lambd), first = equal(p.step, 1);
  const Number eta = either(first, lr, p.numbers[0]), mu = either(first, 1, p.numbers[1]);
  p.numbers = {lr / pow(1 + lambd * lr * p.step, p(o.alpha)), 1 / larger(1, p.step - p(o.t0))};
  return {eta, 1 - lambd * eta, p(o.weight_decay), mu, equal(mu, 1)};
}

void ASGD::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = with_decay(direction(u, options(group).maximize), u.param, n[2]);
  u.param = sub2(mul2(u.param, n[1]), mul2(g, n[0]));
  u.state[0] = pick(n[4], u.param, lerp(u.state[0], u.param, n[3]));
}

std::vector<Hyper> RpropOptions::hypers() {
  return {{"lr", &lr},
          {"eta_minus", &eta_minus},
          {"eta_plus", &eta_plus},
          {"step_size_min", &step_size_min},
          {"step_size_max", &step_size_max},
          {"maximize", &maximize}};
}

void RpropOptions::check(std::span<const Tensor>) const {
  expect_not_negative("Rprop", "lr", lr);
  expect(eta_minus > 0 && eta_minus < 1, "Rprop", "eta_minus", eta_minus, "above 0 and below 1");
  expect(eta_plus > 1, "Rprop", "eta_plus", eta_plus, "above 1");
}

std::vector<StateSpec> Rprop::specs(size_t group, const Tensor&) const {
  return {{"prev"}, {"step_size", true, options(group).lr}};
}
std::vector<int64_t> Rprop::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> Rprop::take_step(size_t group, Pace& p) const {
  const RpropOptions& o = options(group);
  // Steps begin at the rate of the first step that counts, not of the one that made the state.
  return {p(o.eta_minus),     p(o.eta_plus), p(o.step_size_min),
          p(o.step_size_max), p(o.lr),       equal(p.with_state, 1)};
}

void Rprop::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = direction(u, options(group).maximize), agreement = mul2(g, u.state[0]);
  const Tensor zero = constant_like(g, 0), one = constant_like(g, 1);
  const Tensor back = less(agreement, zero);
  const Tensor factor = select3(less(zero, agreement), n[1], select3(back, n[0], one));
  const Tensor begun = pick(n[5], expand_to(n[4], g.sizes()), u.state[1]);
  const Tensor size = smaller(larger(mul2(begun, factor), n[2]), n[3]);
  const Tensor taken = select3(back, zero, g);  // where it has turned round, this step is left out
  u.param = sub2(u.param, mul2(unary(op("sign"), taken), size));
  u.state = {taken, size};
}

std::vector<Hyper> LionOptions::hypers() {
  return {{"lr", &lr},
          {"beta1", &beta1},
          {"beta2", &beta2},
          {"weight_decay", &weight_decay},
          {"maximize", &maximize}};
}

void LionOptions::check(std::span<const Tensor>) const {
  expect_not_negative("Lion", "lr", lr);
  expect_share("Lion", "beta1", beta1);
  expect_share("Lion", "beta2", beta2);
  expect_not_negative("Lion", "weight_decay", weight_decay);
}

std::vector<StateSpec> Lion::specs(size_t, const Tensor&) const { return {{"exp_avg"}}; }
std::vector<int64_t> Lion::modes(size_t group) const { return {options(group).maximize}; }

std::vector<Number> Lion::take_step(size_t group, Pace& p) const {
  const LionOptions& o = options(group);
  return {p(o.lr), 1 - p(o.lr) * p(o.weight_decay), 1 - p(o.beta1), 1 - p(o.beta2)};
}

void Lion::update(size_t group, Update& u) const {
  const auto& n = u.numbers;
  const Tensor g = direction(u, options(group).maximize);
  const Tensor way = unary(op("sign"), lerp(u.state[0], g, n[2]));
  u.param = sub2(mul2(u.param, n[1]), mul2(way, n[0]));
  u.state[0] = lerp(u.state[0], g, n[3]);
}

std::vector<Hyper> MuonOptions::hypers() {
  return {{"lr", &lr},
          {"weight_decay", &weight_decay},
          {"momentum", &momentum},
          {"nesterov", &nesterov},
          {"ns_a", &ns_a},
          {"ns_b", &ns_b},
          {"ns_c", &ns_c},
          {"eps", &eps},
          {"ns_steps", &ns_steps}};
}

void MuonOptions::check(std::span<const Tensor> params) const {
  expect_not_negative("Muon", "lr", lr);
  expect_not_negative("Muon", "momentum", momentum);
  expect_not_negative("Muon", "weight_decay", weight_decay);
  expect(ns_steps > 0 && ns_steps < 100, "Muon", "ns_steps", static_cast<double>(ns_steps), "1 to 99");
  for (const Tensor& p : params)
    KILN_CHECK(!p.defined() || p.dim() == 2, invalid,
               "Muon: parameter {} '{}' is no matrix (give it to another optimizer, such as AdamW)",
               p.type_str(), p.name());
}

std::vector<StateSpec> Muon::specs(size_t, const Tensor&) const { return {{"momentum_buffer"}}; }

std::vector<int64_t> Muon::modes(size_t group) const {
  const MuonOptions& o = options(group);
  return {o.nesterov, o.ns_steps, static_cast<int64_t>(o.adjust_lr_fn)};
}

std::vector<Number> Muon::take_step(size_t group, Pace& p) const {
  const MuonOptions& o = options(group);
  const Number lr = p(o.lr), momentum = p(o.momentum);
  return {lr, 1 - lr * p(o.weight_decay), momentum, 1 - momentum, p(o.ns_a), p(o.ns_b), p(o.ns_c), p(o.eps)};
}

namespace {
/// As if stored in bf16: rounded to 8 bits, half to even, by adding and taking off a number whose last bit
/// stands where x's is to. In f32 alone, since compiled kernels store no bf16. Exact also where a
/// multiplication and an addition become one step.
Tensor rounded(const Tensor& given) {
  const Tensor x = cast_to(given, DType::f32);
  const auto number = [&](double v) { return lit(x, v); };
  const Tensor exponent = unary(op("floor"), unary(op("log2"), unary(op("abs"), x)));
  const Tensor limited = smaller(larger(exponent, number(-126)), number(110));
  const Tensor shift = mul2(unary(op("exp2"), limited), number(1.5 * 65536));
  return sub2(add2(x, shift), shift);
}

Tensor product(const Tensor& a, const Tensor& b, int64_t contract_b) {
  using Ints = std::vector<int64_t>;
  return apply(op("dot_general"), {&a, &b}, {Ints{}, Ints{}, Ints{1}, Ints{contract_b}});
}

Tensor transposed(const Tensor& x) { return apply(op("permute"), {&x}, {std::vector<int64_t>{1, 0}}); }

/// The nearest matrix with orthogonal rows or columns, roughly: a quintic iteration on the singular values.
Tensor orthogonalised(const Tensor& x, const std::vector<Tensor>& n, int64_t steps) {
  const bool tall = x.size(0) > x.size(1);
  Tensor m = rounded(tall ? transposed(x) : x);
  const auto number = [&](size_t k) { return cast_to(n[k], DType::f32); };
  const Tensor a = number(4), b = number(5), c = number(6);
  m = rounded(div2(m, rounded(larger(rounded(norm2(m)), number(7)))));
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor gram = rounded(product(m, m, 1));
    const Tensor poly = rounded(add2(mul2(gram, b), mul2(product(gram, gram, 0), c)));
    m = rounded(add2(mul2(m, a), product(poly, m, 0)));
  }
  return tall ? transposed(m) : m;
}
}  // namespace

void Muon::update(size_t group, Update& u) const {
  const MuonOptions& o = options(group);
  const auto& n = u.numbers;
  const auto rows = static_cast<double>(u.param.size(0)), columns = static_cast<double>(u.param.size(1));
  const double ratio = o.adjust_lr_fn == AdjustLr::original ? std::sqrt(std::max(1.0, rows / columns))
                                                            : 0.2 * std::sqrt(std::max(rows, columns));
  Tensor& buffer = u.state[0];
  buffer = lerp(buffer, u.grad, n[3]);
  const Tensor way = orthogonalised(o.nesterov ? lerp(u.grad, buffer, n[2]) : buffer, n, o.ns_steps);
  const Tensor rate = mul2(n[0], lit(n[0], ratio));
  u.param = sub2(mul2(u.param, n[1]), mul2(cast_to(way, u.param.dtype()), rate));
}

}  // namespace kiln::optim
