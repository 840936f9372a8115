// SPDX-License-Identifier: Apache-2.0
// Unary functions of floating values: exponentials, trigonometry, rounding. Evaluation is std::'s.
#include <cmath>
#include <concepts>
#include <numbers>

#include "ir/base/special.h"
#include "ir/ops/loops.h"
#include "ir/ops/rules.h"

namespace kiln {

namespace {

using namespace rules;  // NOLINT: the rows are written in terms of its words

/// glibc's tanhf takes four times as long; by way of double the result is as good.
float tanh_of(float x) {
  if (std::fabs(x) < 1e-4f) return x * (1 - x * x / 3);
  return static_cast<float>(1 - 2 / (std::exp(2.0 * x) + 1));
}
double tanh_of(double x) { return std::tanh(x); }

// clang-format off
struct Exp { template <std::floating_point T> static T f(T x) { return std::exp(x); } };
struct Exp2 { template <std::floating_point T> static T f(T x) { return std::exp2(x); } };
struct Expm1 { template <std::floating_point T> static T f(T x) { return std::expm1(x); } };
struct Log { template <std::floating_point T> static T f(T x) { return std::log(x); } };
struct Log1p { template <std::floating_point T> static T f(T x) { return std::log1p(x); } };
struct Log2 { template <std::floating_point T> static T f(T x) { return std::log2(x); } };
struct Sqrt { template <std::floating_point T> static T f(T x) { return std::sqrt(x); } };
struct Rsqrt { template <std::floating_point T> static T f(T x) { return T(1) / std::sqrt(x); } };
struct Reciprocal { template <std::floating_point T> static T f(T x) { return T(1) / x; } };
struct Sin { template <std::floating_point T> static T f(T x) { return std::sin(x); } };
struct Cos { template <std::floating_point T> static T f(T x) { return std::cos(x); } };
struct Tan { template <std::floating_point T> static T f(T x) { return std::tan(x); } };
struct Asin { template <std::floating_point T> static T f(T x) { return std::asin(x); } };
struct Acos { template <std::floating_point T> static T f(T x) { return std::acos(x); } };
struct Atan { template <std::floating_point T> static T f(T x) { return std::atan(x); } };
struct Sinh { template <std::floating_point T> static T f(T x) { return std::sinh(x); } };
struct Cosh { template <std::floating_point T> static T f(T x) { return std::cosh(x); } };
struct Asinh { template <std::floating_point T> static T f(T x) { return std::asinh(x); } };
struct Acosh { template <std::floating_point T> static T f(T x) { return std::acosh(x); } };
struct Atanh { template <std::floating_point T> static T f(T x) { return std::atanh(x); } };
struct Lgamma { template <std::floating_point T> static T f(T x) { return T(special::log_gamma(x)); } };
struct Digamma { template <std::floating_point T> static T f(T x) { return T(special::digamma(x)); } };
struct Trigamma { template <std::floating_point T> static T f(T x) { return T(special::trigamma(x)); } };
struct Erfinv { template <std::floating_point T> static T f(T x) { return T(special::erfinv(x)); } };
struct Tanh { template <std::floating_point T> static T f(T x) { return tanh_of(x); } };
struct Sigmoid { template <std::floating_point T> static T f(T x) { return T(1) / (T(1) + std::exp(-x)); } };
struct Erf { template <std::floating_point T> static T f(T x) { return std::erf(x); } };
struct Erfc { template <std::floating_point T> static T f(T x) { return std::erfc(x); } };
struct Floor { template <std::floating_point T> static T f(T x) { return std::floor(x); } };
struct Ceil { template <std::floating_point T> static T f(T x) { return std::ceil(x); } };
struct Round { template <std::floating_point T> static T f(T x) { return std::nearbyint(x); } };
struct Trunc { template <std::floating_point T> static T f(T x) { return std::trunc(x); } };
// clang-format on

/// d is the derivative at the input, as a value.
std::vector<Value> times(const GradArgs& a, Value d) { return {mul(a.b, a.grad[0], d)}; }

std::vector<Value> exp_grad(const GradArgs& a) { return times(a, a.out[0]); }
std::vector<Value> exp2_grad(const GradArgs& a) { return times(a, scale(a.b, a.out[0], std::numbers::ln2)); }
std::vector<Value> expm1_grad(const GradArgs& a) { return times(a, plus(a.b, a.out[0], 1)); }
std::vector<Value> log_grad(const GradArgs& a) { return {div(a.b, a.grad[0], a.in[0])}; }
std::vector<Value> log1p_grad(const GradArgs& a) { return {div(a.b, a.grad[0], plus(a.b, a.in[0], 1))}; }
std::vector<Value> log2_grad(const GradArgs& a) {
  return {div(a.b, a.grad[0], scale(a.b, a.in[0], std::numbers::ln2))};
}
std::vector<Value> sqrt_grad(const GradArgs& a) { return {div(a.b, scale(a.b, a.grad[0], 0.5), a.out[0])}; }
std::vector<Value> rsqrt_grad(const GradArgs& a) {
  const Value y = a.out[0];
  return times(a, scale(a.b, mul(a.b, mul(a.b, y, y), y), -0.5));
}
std::vector<Value> reciprocal_grad(const GradArgs& a) {
  return times(a, neg(a.b, mul(a.b, a.out[0], a.out[0])));
}
std::vector<Value> sin_grad(const GradArgs& a) { return times(a, a.b.emit(op("cos"), {a.in[0]})); }
std::vector<Value> cos_grad(const GradArgs& a) { return times(a, neg(a.b, a.b.emit(op("sin"), {a.in[0]}))); }
std::vector<Value> tan_grad(const GradArgs& a) {
  return times(a, plus(a.b, mul(a.b, a.out[0], a.out[0]), 1));
}
/// 1 / sqrt(1 - x^2).
Value arc(const GradArgs& a) {
  const Value x = a.in[0];
  return a.b.emit(op("rsqrt"), {sub(a.b, a.b.constant_like(1, x), mul(a.b, x, x))});
}
std::vector<Value> asin_grad(const GradArgs& a) { return times(a, arc(a)); }
std::vector<Value> acos_grad(const GradArgs& a) { return times(a, neg(a.b, arc(a))); }
std::vector<Value> atan_grad(const GradArgs& a) {
  return {div(a.b, a.grad[0], plus(a.b, mul(a.b, a.in[0], a.in[0]), 1))};
}
std::vector<Value> sinh_grad(const GradArgs& a) { return times(a, a.b.emit(op("cosh"), {a.in[0]})); }
std::vector<Value> cosh_grad(const GradArgs& a) { return times(a, a.b.emit(op("sinh"), {a.in[0]})); }
std::vector<Value> asinh_grad(const GradArgs& a) {
  return times(a, a.b.emit(op("rsqrt"), {plus(a.b, mul(a.b, a.in[0], a.in[0]), 1)}));
}
std::vector<Value> acosh_grad(const GradArgs& a) {
  return times(a, a.b.emit(op("rsqrt"), {plus(a.b, mul(a.b, a.in[0], a.in[0]), -1)}));
}
std::vector<Value> atanh_grad(const GradArgs& a) {
  const Value x = a.in[0];
  return {div(a.b, a.grad[0], sub(a.b, a.b.constant_like(1, x), mul(a.b, x, x)))};
}
std::vector<Value> lgamma_grad(const GradArgs& a) { return times(a, a.b.emit(op("digamma"), {a.in[0]})); }
std::vector<Value> digamma_grad(const GradArgs& a) { return times(a, a.b.emit(op("trigamma"), {a.in[0]})); }
/// -2 sum 1 / (x + k)^3, the first ten one by one and the others by their asymptotic series; mirrored below
/// zero. Source: Abramowitz & Stegun 6.4.1, 6.4.7 and 6.4.13.
std::vector<Value> trigamma_grad(const GradArgs& a) {
  Builder& b = a.b;
  const Value x = a.in[0], one = b.constant_like(1, x);
  const auto e = [&](Op o, Value v) { return b.emit(o, {v}); };
  const Value negative = b.emit(op("le"), {x, zeros_like(b, x)});
  const Value y = where(b, negative, sub(b, one, x), x);
  Shape apart = b.type(x).shape, terms = apart;
  const auto dim = static_cast<int64_t>(apart.size());
  apart.push_back(1), terms.push_back(10);
  const Value k = b.cast(b.emit(op("iota"), {}, {dim, terms}), b.type(x).dtype);
  const Value each = e(op("reciprocal"), add(b, b.expand(b.reshape(y, apart), terms), k));
  const Value first = b.sum(mul(b, each, mul(b, each, each)), {dim});
  const Value r = e(op("reciprocal"), plus(b, y, 10)), z = mul(b, r, r);
  Value tail = b.constant_like(-691.0 / 210, z);
  for (const double c : {5.0 / 6, -0.3, 1.0 / 6, -1.0 / 6, 0.5, 1.0}) tail = plus(b, mul(b, tail, z), c);
  const Value right = neg(b, add(b, scale(b, first, 2), mul(b, z, add(b, tail, r))));
  const Value angle = scale(b, sub(b, x, e(op("round"), x)), std::numbers::pi);
  const Value s = e(op("reciprocal"), e(op("sin"), angle));
  const Value mirror = scale(b, mul(b, e(op("cos"), angle), mul(b, s, mul(b, s, s))),
                             -2 * std::numbers::pi * std::numbers::pi * std::numbers::pi);
  return times(a, where(b, negative, add(b, mirror, right), right));
}
/// sqrt(pi) / 2 e^(y^2).
std::vector<Value> erfinv_grad(const GradArgs& a) {
  const Value e = a.b.emit(op("exp"), {mul(a.b, a.out[0], a.out[0])});
  return times(a, scale(a.b, e, 0.5 / std::numbers::inv_sqrtpi));
}
std::vector<Value> tanh_grad(const GradArgs& a) {
  const Value y = a.out[0];
  return times(a, sub(a.b, a.b.constant_like(1, y), mul(a.b, y, y)));
}
std::vector<Value> sigmoid_grad(const GradArgs& a) {
  const Value y = a.out[0];
  return times(a, mul(a.b, sub(a.b, a.b.constant_like(1, y), y), y));
}
/// c * exp(-x^2), c = 2 / sqrt(pi) for erf.
std::vector<Value> gauss(const GradArgs& a, double c) {
  const Value e = a.b.emit(op("exp"), {neg(a.b, mul(a.b, a.in[0], a.in[0]))});
  return times(a, scale(a.b, e, c));
}
std::vector<Value> erf_grad(const GradArgs& a) { return gauss(a, 2 * std::numbers::inv_sqrtpi); }
std::vector<Value> erfc_grad(const GradArgs& a) { return gauss(a, -2 * std::numbers::inv_sqrtpi); }

// clang-format off
constinit const OpDef rows[] = {
    {.name = "exp", .infer = same_floating, .grad = exp_grad, .eval = loops::eval<Exp, 1>,
     .body = "kn::exp({0})", .flops = 10, .lo = -4, .hi = 4,
     .doc = "e^x.", .source = "torch.exp"},
    {.name = "exp2", .infer = same_floating, .grad = exp2_grad, .eval = loops::eval<Exp2, 1>,
     .body = "kn::exp2({0})", .flops = 10, .lo = -4, .hi = 4,
     .doc = "2^x.", .source = "torch.exp2"},
    {.name = "expm1", .infer = same_floating, .grad = expm1_grad, .eval = loops::eval<Expm1, 1>,
     .body = "kn::expm1({0})", .flops = 12, .lo = -4, .hi = 4,
     .doc = "e^x - 1, exact near 0.", .source = "torch.expm1"},
    {.name = "log", .infer = same_floating, .grad = log_grad, .eval = loops::eval<Log, 1>,
     .body = "kn::log({0})", .flops = 10, .lo = 0.1, .hi = 4,
     .doc = "Natural logarithm.", .source = "torch.log"},
    {.name = "log1p", .infer = same_floating, .grad = log1p_grad, .eval = loops::eval<Log1p, 1>,
     .body = "kn::log1p({0})", .flops = 12, .lo = -0.9, .hi = 4,
     .doc = "log(1 + x), exact near 0.", .source = "torch.log1p"},
    {.name = "log2", .infer = same_floating, .grad = log2_grad, .eval = loops::eval<Log2, 1>,
     .body = "kn::log2({0})", .flops = 10, .lo = 0.1, .hi = 4,
     .doc = "Logarithm to base 2.", .source = "torch.log2"},
    {.name = "sqrt", .infer = same_floating, .grad = sqrt_grad, .eval = loops::eval<Sqrt, 1>,
     .body = "kn::sqrt({0})", .flops = 4, .lo = 0.1, .hi = 4,
     .doc = "Square root.", .source = "torch.sqrt"},
    {.name = "rsqrt", .infer = same_floating, .grad = rsqrt_grad, .eval = loops::eval<Rsqrt, 1>,
     .body = "kn::rsqrt({0})", .flops = 5, .lo = 0.1, .hi = 4,
     .doc = "1 / sqrt(x).", .source = "torch.rsqrt"},
    {.name = "reciprocal", .infer = same_floating, .grad = reciprocal_grad,
     .eval = loops::eval<Reciprocal, 1>, .body = "{T}(1) / {0}", .flops = 4, .lo = 0.2, .hi = 3,
     .doc = "1 / x.", .source = "torch.reciprocal"},
    {.name = "sin", .infer = same_floating, .grad = sin_grad, .eval = loops::eval<Sin, 1>,
     .body = "kn::sin({0})", .flops = 15, .lo = -4, .hi = 4,
     .doc = "Sine.", .source = "torch.sin"},
    {.name = "cos", .infer = same_floating, .grad = cos_grad, .eval = loops::eval<Cos, 1>,
     .body = "kn::cos({0})", .flops = 15, .lo = -4, .hi = 4,
     .doc = "Cosine.", .source = "torch.cos"},
    {.name = "tan", .infer = same_floating, .grad = tan_grad, .eval = loops::eval<Tan, 1>,
     .body = "kn::tan({0})", .flops = 20, .lo = -1.2, .hi = 1.2,
     .doc = "Tangent.", .source = "torch.tan"},
    {.name = "asin", .infer = same_floating, .grad = asin_grad, .eval = loops::eval<Asin, 1>,
     .body = "kn::asin({0})", .flops = 15, .lo = -0.9, .hi = 0.9,
     .doc = "Inverse sine.", .source = "torch.asin"},
    {.name = "acos", .infer = same_floating, .grad = acos_grad, .eval = loops::eval<Acos, 1>,
     .body = "kn::acos({0})", .flops = 15, .lo = -0.9, .hi = 0.9,
     .doc = "Inverse cosine.", .source = "torch.acos"},
    {.name = "atan", .infer = same_floating, .grad = atan_grad, .eval = loops::eval<Atan, 1>,
     .body = "kn::atan({0})", .flops = 15, .lo = -3, .hi = 3,
     .doc = "Inverse tangent.", .source = "torch.atan"},
    {.name = "sinh", .infer = same_floating, .grad = sinh_grad, .eval = loops::eval<Sinh, 1>,
     .body = "kn::sinh({0})", .flops = 15, .lo = -3, .hi = 3,
     .doc = "Hyperbolic sine.", .source = "torch.sinh"},
    {.name = "cosh", .infer = same_floating, .grad = cosh_grad, .eval = loops::eval<Cosh, 1>,
     .body = "kn::cosh({0})", .flops = 15, .lo = -3, .hi = 3,
     .doc = "Hyperbolic cosine.", .source = "torch.cosh"},
    {.name = "asinh", .infer = same_floating, .grad = asinh_grad, .eval = loops::eval<Asinh, 1>,
     .body = "kn::asinh({0})", .flops = 20, .lo = -3, .hi = 3,
     .doc = "Inverse hyperbolic sine.", .source = "torch.asinh"},
    {.name = "acosh", .infer = same_floating, .grad = acosh_grad, .eval = loops::eval<Acosh, 1>,
     .body = "kn::acosh({0})", .flops = 20, .lo = 1.1, .hi = 4,
     .doc = "Inverse hyperbolic cosine; NaN below 1.", .source = "torch.acosh"},
    {.name = "atanh", .infer = same_floating, .grad = atanh_grad, .eval = loops::eval<Atanh, 1>,
     .body = "kn::atanh({0})", .flops = 20, .lo = -0.9, .hi = 0.9,
     .doc = "Inverse hyperbolic tangent.", .source = "torch.atanh"},
    {.name = "lgamma", .infer = same_floating, .grad = lgamma_grad, .eval = loops::eval<Lgamma, 1>,
     .body = "kn::lgamma({0})", .flops = 60, .lo = 0.3, .hi = 4,
     .doc = "log |gamma(x)|.", .source = "torch.lgamma"},
    {.name = "digamma", .infer = same_floating, .grad = digamma_grad, .eval = loops::eval<Digamma, 1>,
     .body = "kn::digamma({0})", .flops = 80, .lo = 0.3, .hi = 4,
     .doc = "Derivative of lgamma; NaN at negative integers.", .source = "torch.digamma"},
    {.name = "trigamma", .infer = same_floating, .grad = trigamma_grad, .eval = loops::eval<Trigamma, 1>,
     .body = "kn::trigamma({0})", .flops = 80, .lo = 0.3, .hi = 4,
     .doc = "Derivative of digamma; infinite at 0 and negative integers.",
     .source = "torch.polygamma(1, x)"},
    {.name = "erfinv", .infer = same_floating, .grad = erfinv_grad, .eval = loops::eval<Erfinv, 1>,
     .body = "kn::erfinv({0})", .flops = 60, .lo = -0.9, .hi = 0.9,
     .doc = "Inverse of erf; infinite at -1 and 1, NaN beyond.", .source = "torch.erfinv"},
    {.name = "tanh", .infer = same_floating, .grad = tanh_grad, .eval = loops::eval<Tanh, 1>,
     .body = "kn::tanh({0})", .flops = 15, .lo = -3, .hi = 3,
     .doc = "Hyperbolic tangent.", .source = "torch.tanh"},
    {.name = "sigmoid", .infer = same_floating, .grad = sigmoid_grad,
     .eval = loops::eval<Sigmoid, 1>, .body = "kn::sigmoid({0})", .flops = 14, .lo = -5, .hi = 5,
     .doc = "1 / (1 + e^-x).", .source = "torch.sigmoid"},
    {.name = "erf", .infer = same_floating, .grad = erf_grad, .eval = loops::eval<Erf, 1>,
     .body = "kn::erf({0})", .flops = 20, .lo = -3, .hi = 3,
     .doc = "Error function.", .source = "torch.erf"},
    {.name = "erfc", .infer = same_floating, .grad = erfc_grad, .eval = loops::eval<Erfc, 1>,
     .body = "kn::erfc({0})", .flops = 20, .lo = -3, .hi = 3,
     .doc = "1 - erf(x), exact in the tail.", .source = "torch.erfc"},
    {.name = "floor", .infer = same_floating, .grad = zero_grad,
     .eval = loops::eval<Floor, 1>, .body = "kn::floor({0})", .flops = 1, .lo = -4, .hi = 4,
     .doc = "Largest integer not above x.", .source = "torch.floor"},
    {.name = "ceil", .infer = same_floating, .grad = zero_grad,
     .eval = loops::eval<Ceil, 1>, .body = "kn::ceil({0})", .flops = 1, .lo = -4, .hi = 4,
     .doc = "Smallest integer not below x.", .source = "torch.ceil"},
    {.name = "round", .infer = same_floating, .grad = zero_grad,
     .eval = loops::eval<Round, 1>, .body = "kn::round({0})", .flops = 1, .lo = -4, .hi = 4,
     .doc = "Nearest integer, halves to even.", .source = "torch.round"},
    {.name = "trunc", .infer = same_floating, .grad = zero_grad,
     .eval = loops::eval<Trunc, 1>, .body = "kn::trunc({0})", .flops = 1, .lo = -4, .hi = 4,
     .doc = "Integer part, towards zero.", .source = "torch.trunc"},
};
// clang-format on

}  // namespace

std::span<const OpDef> math_ops() { return rows; }

}  // namespace kiln
