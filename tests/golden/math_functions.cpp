// SPDX-License-Identifier: Apache-2.0
// The rows of torch's arithmetic and reductions.
#include <cmath>
#include <limits>

#include "frontend/ops.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

template <Tensor (*F)(const Tensor&, Loc)>
Value unary(const Bound& b) {
  return F(b["x"].tensor(), Loc::current());
}

TensorArg operand(const Value& v) {
  if (v.is<Tensor>()) return TensorArg(std::get<Tensor>(v.v));
  if (v.is<double>()) return TensorArg(std::get<double>(v.v));
  return TensorArg(v.integer());
}

template <Tensor (*F)(const TensorArg&, const TensorArg&)>
Value binary(const Bound& b) {
  return F(operand(b["x"]), operand(b["y"]));
}

template <Tensor (*F)(const Tensor&, Sizes, bool, Loc)>
Value reduction(const Bound& b) {
  return F(b["x"].tensor(), b["dim"].integers(), b["keepdim"].flag(), Loc::current());
}

Value variance(const Bound& b) {
  return var(b["x"].tensor(), b["dim"].integers(), b["correction"].integer(), b["keepdim"].flag());
}

template <Tensor (*F)(const Tensor&, int64_t, bool, Loc)>
Value arg_extreme(const Bound& b) {
  if (!b.given("dim")) return F(flatten(b["x"].tensor()), 0, false, Loc::current());
  return F(b["x"].tensor(), b["dim"].integer(), b["keepdim"].flag(), Loc::current());
}

Value add_scaled(const Bound& b) {
  const Value y = b["alpha"].none() ? b["y"] : binary_operator("*", b["y"], b["alpha"]);
  return binary_operator("+", b["x"], y);
}

Value divide(const Bound& b) {
  if (!b.given("rounding_mode")) return binary_operator("/", b["x"], b["y"]);
  if (b["rounding_mode"].text() == "floor") return binary_operator("//", b["x"], b["y"]);
  throw Unsupported("torch.div: rounding_mode " + b["rounding_mode"].text());
}

Value limit(const Bound& b) {
  std::optional<double> lo, hi;
  for (const char* name : {"min", "max"})
    if (b[name].is<Tensor>()) throw Unsupported("torch.clamp: bounds that are tensors");
  if (b.given("min")) lo = b["min"].real();
  if (b.given("max")) hi = b["max"].real();
  return clamp(b["x"].tensor(), lo, hi);
}

Value choose(const Bound& b) { return where(b["c"].tensor(), operand(b["x"]), operand(b["y"])); }

Value to_float(const Bound& b) {
  if (!b["x"].is<std::string>()) return b["x"].real();
  const std::string& s = b["x"].text();
  const double inf = std::numeric_limits<double>::infinity();
  if (s == "inf") return inf;
  if (s == "-inf") return -inf;
  if (s == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw Unsupported("float('" + s + "')");
}

constexpr Function kFunctions[] = {
    {"float", "x", to_float},
    {"math.sqrt", "x", [](const Bound& b) -> Value { return std::sqrt(b["x"].real()); }},
    {"torch.abs", "x", unary<abs>},
    {"torch.acos", "x", unary<acos>},
    {"torch.add", "x y alpha=None", add_scaled},
    {"torch.all", "x", unary<all>},
    {"torch.amax", "x dim=None keepdim=False", reduction<amax>},
    {"torch.amin", "x dim=None keepdim=False", reduction<amin>},
    {"torch.any", "x", unary<any>},
    {"torch.argmax", "x dim=None keepdim=False", arg_extreme<argmax>},
    {"torch.argmin", "x dim=None keepdim=False", arg_extreme<argmin>},
    {"torch.asin", "x", unary<asin>},
    {"torch.atan", "x", unary<atan>},
    {"torch.atan2", "x y", binary<atan2>},
    {"torch.ceil", "x", unary<ceil>},
    {"torch.clamp", "x min=None max=None", limit},
    {"torch.cos", "x", unary<cos>},
    {"torch.cosh", "x", unary<cosh>},
    {"torch.div", "x y rounding_mode=None", divide},
    {"torch.eq", "x y", binary<eq>},
    {"torch.erf", "x", unary<erf>},
    {"torch.erfc", "x", unary<erfc>},
    {"torch.exp", "x", unary<exp>},
    {"torch.exp2", "x", unary<exp2>},
    {"torch.expm1", "x", unary<expm1>},
    {"torch.floor", "x", unary<floor>},
    {"torch.fmod", "x y", binary<fmod>},
    {"torch.ge", "x y", binary<ge>},
    {"torch.gt", "x y", binary<gt>},
    {"torch.isnan", "x", unary<isnan>},
    {"torch.le", "x y", binary<le>},
    {"torch.log", "x", unary<log>},
    {"torch.log10", "x", unary<log10>},
    {"torch.log1p", "x", unary<log1p>},
    {"torch.log2", "x", unary<log2>},
    {"torch.logical_and", "x y", binary<logical_and>},
    {"torch.logical_not", "x", unary<logical_not>},
    {"torch.logical_or", "x y", binary<logical_or>},
    {"torch.logical_xor", "x y", binary<logical_xor>},
    {"torch.logsumexp", "x dim keepdim=False", reduction<logsumexp>},
    {"torch.lt", "x y", binary<lt>},
    {"torch.maximum", "x y", binary<maximum>},
    {"torch.mean", "x dim=None keepdim=False", reduction<mean>},
    {"torch.minimum", "x y", binary<minimum>},
    {"torch.ne", "x y", binary<ne>},
    {"torch.pow", "x y", binary<pow>},
    {"torch.prod", "x dim=None keepdim=False", reduction<prod>},
    {"torch.reciprocal", "x", unary<reciprocal>},
    {"torch.remainder", "x y", binary<remainder>},
    {"torch.round", "x", unary<round>},
    {"torch.rsqrt", "x", unary<rsqrt>},
    {"torch.sigmoid", "x", unary<sigmoid>},
    {"torch.sign", "x", unary<sign>},
    {"torch.sin", "x", unary<sin>},
    {"torch.sinh", "x", unary<sinh>},
    {"torch.sqrt", "x", unary<sqrt>},
    {"torch.square", "x", unary<square>},
    {"torch.sum", "x dim=None keepdim=False", reduction<sum>},
    {"torch.tan", "x", unary<tan>},
    {"torch.tanh", "x", unary<tanh>},
    {"torch.trunc", "x", unary<trunc>},
    {"torch.var", "x dim=None correction=1 keepdim=False", variance},
    {"torch.where", "c x y", choose},
};

}  // namespace

std::span<const Function> math_functions() { return kFunctions; }

}  // namespace kiln::golden
