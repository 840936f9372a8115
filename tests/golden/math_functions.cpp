// SPDX-License-Identifier: Apache-2.0
// The rows of torch's arithmetic.
#include <cmath>
#include <limits>

#include "frontend/elementwise.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

Value add_scaled(const Bound& b) {
  const Value y = b["alpha"].none() ? b["y"] : binary_operator("*", b["y"], b["alpha"]);
  return binary_operator("+", b["x"], y);
}

Value divide(const Bound& b) {
  if (!b.given("rounding_mode")) return binary_operator("/", b["x"], b["y"]);
  const bool down = b["rounding_mode"].text() == "floor";
  return div(operand(b["x"]), operand(b["y"]), down ? RoundingMode::floor : RoundingMode::trunc);
}

Value limit(const Bound& b) {
  if (b["min"].is<Tensor>() || b["max"].is<Tensor>())
    return clamp(b["x"].tensor(), b["min"].tensor_or_undefined(), b["max"].tensor_or_undefined());
  std::optional<double> lo, hi;
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

constexpr Function kMathFunctions[] = {
    {"float", "x", to_float},
    {"math.sqrt", "x", [](const Bound& b) -> Value { return std::sqrt(b["x"].real()); }},
    {"torch.abs", "x", unary<abs>},
    {"torch.acos", "x", unary<acos>},
    {"torch.add", "x y alpha=None", add_scaled},
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
    {"torch.lt", "x y", binary<lt>},
    {"torch.maximum", "x y", binary<maximum>},
    {"torch.minimum", "x y", binary<minimum>},
    {"torch.ne", "x y", binary<ne>},
    {"torch.pow", "x y", binary<pow>},
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
    {"torch.tan", "x", unary<tan>},
    {"torch.tanh", "x", unary<tanh>},
    {"torch.trunc", "x", unary<trunc>},
    {"torch.where", "c x y", choose},
};

}  // namespace

std::span<const Function> math_functions() { return kMathFunctions; }

}  // namespace kiln::golden
