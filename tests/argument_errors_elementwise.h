// SPDX-License-Identifier: Apache-2.0
// Elementwise functions, reductions and orders: arguments that they take, and what they refuse.
// See argument_errors_test.cpp.
#pragma once

#include "tests/argument_errors.h"

namespace kiln::testing {

using Unary = Tensor (*)(const Tensor&, Loc);
using Binary = Tensor (*)(const TensorArg&, const TensorArg&);

inline Functions unary_functions() {
  Functions all;
  const std::pair<const char*, Unary> any[] = {
      {"neg", neg},       {"abs", abs},         {"sign", sign},         {"exp", exp},
      {"exp2", exp2},     {"expm1", expm1},     {"log", log},           {"log1p", log1p},
      {"log2", log2},     {"log10", log10},     {"sqrt", sqrt},         {"rsqrt", rsqrt},
      {"square", square}, {"sin", sin},         {"cos", cos},           {"tan", tan},
      {"asin", asin},     {"acos", acos},       {"atan", atan},         {"sinh", sinh},
      {"cosh", cosh},     {"tanh", tanh},       {"sigmoid", sigmoid},   {"erf", erf},
      {"erfc", erfc},     {"floor", floor},     {"ceil", ceil},         {"round", round},
      {"trunc", trunc},   {"isnan", isnan},     {"sgn", sgn},           {"isfinite", isfinite},
      {"isinf", isinf},   {"asinh", asinh},     {"acosh", acosh},       {"atanh", atanh},
      {"lgamma", lgamma}, {"digamma", digamma}, {"erfinv", erfinv},     {"sinc", sinc},
      {"relu", relu},     {"signbit", signbit}, {"deg2rad", deg2rad},   {"rad2deg", rad2deg},
      {"clone", clone},   {"nonzero", nonzero}, {"isposinf", isposinf}, {"isneginf", isneginf}};
  for (const auto& [name, f] : any)
    all.push_back({name, {"x"}, {f32({2})}, [f = f](T t) { f(t[0], Loc::current()); }});
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"reciprocal", reciprocal},
                                {"logical_not", logical_not},
                                {"contiguous", contiguous},
                                {"atleast_1d", atleast_1d},
                                {"atleast_2d", atleast_2d},
                                {"atleast_3d", atleast_3d}})
    all.push_back({name, {"x"}, {f32({2})}, [f = f](T t) { f(t[0], Loc::current()); }});
  const std::pair<const char*, Unary> floating[] = {{"frac", frac},           {"silu", silu},
                                                    {"relu6", relu6},         {"hardsigmoid", hardsigmoid},
                                                    {"hardswish", hardswish}, {"softsign", softsign},
                                                    {"selu", selu},           {"tanhshrink", tanhshrink},
                                                    {"mish", mish},           {"logsigmoid", logsigmoid}};
  for (const auto& [name, f] : floating)
    all.push_back({name, {"x"}, {f32({2})}, [f = f](T t) { f(t[0], Loc::current()); }, {{0, i64({2})}}});
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"zeros_like", zeros_like},
                                {"ones_like", ones_like},
                                {"empty_like", empty_like}})
    all.push_back({name, {"t"}, {f32({2})}, [f = f](T t) { f(t[0], Loc::current()); }});
  return all;
}

inline Functions binary_functions() {
  Functions all;
  const Tensor x = f32({2, 3}), n = ones({2, 3}, DType::i64), y = f32({4});
  const std::pair<const char*, Binary> numbers[] = {
      {"add", add},
      {"sub", sub},
      {"mul", mul},
      {"pow", pow},
      {"maximum", maximum},
      {"minimum", minimum},
      {"fmod", fmod},
      {"remainder", remainder},
      {"floor_divide", floor_divide},
      {"atan2", atan2},
      {"eq", eq},
      {"ne", ne},
      {"lt", lt},
      {"le", le},
      {"gt", gt},
      {"ge", ge},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_xor", logical_xor},
      {"fmax", fmax},
      {"fmin", fmin},
      {"div", [](const TensorArg& a, const TensorArg& b) { return div(a, b); }},
      {"div", [](const TensorArg& a, const TensorArg& b) { return div(a, b, RoundingMode::floor); }},
      {"rsub", [](const TensorArg& a, const TensorArg& b) { return rsub(a, b, 2); }}};
  for (const auto& [name, f] : numbers)
    all.push_back({name, {"a", "b"}, {x, x}, [f = f](T t) { f(t[0], t[1]); }, {{0, y}, {1, y}}});
  for (const auto& [name, f] : {std::pair<const char*, Binary>{"hypot", hypot},
                                {"logaddexp", logaddexp},
                                {"logaddexp2", logaddexp2},
                                {"xlogy", xlogy},
                                {"copysign", copysign}})
    all.push_back({name, {"x", "y"}, {x, x}, [f = f](T t) { f(t[0], t[1]); }, {{0, y}, {1, y}}});
  for (const auto& [name, f] : {std::pair<const char*, Binary>{"bitwise_and", bitwise_and},
                                {"bitwise_or", bitwise_or},
                                {"bitwise_xor", bitwise_xor},
                                {"bitwise_left_shift", bitwise_left_shift},
                                {"bitwise_right_shift", bitwise_right_shift}})
    all.push_back({name, {"a", "b"}, {n, n}, [f = f](T t) { f(t[0], t[1]); }, {{0, x}, {1, i64({4})}}});
  return all;
}

inline Functions elementwise_functions() {
  const Tensor x = f32({2, 3}), y = f32({4}), n = i64({2}), m = mask({2, 3});
  Functions all{
      {"where",
       {"condition", "a", "b"},
       {m, x, x},
       [](T t) { where(t[0], t[1], t[2]); },
       {{0, x}, {0, mask({4})}, {1, y}, {2, y}}},
      {"clamp", {"x"}, {x}, [](T t) { clamp(t[0], 0, 1); }},
      {"clamp",
       {"x", "?lo", "?hi"},
       {x, x, x},
       [](T t) { clamp(t[0], t[1], t[2]); },
       {{0, y}, {1, y}, {2, y}}},
      {"clamp_min", {"x"}, {x}, [](T t) { clamp_min(t[0], 0); }},
      {"clamp_max", {"x"}, {x}, [](T t) { clamp_max(t[0], 0); }},
      {"masked_fill",
       {"x", "mask"},
       {x, m},
       [](T t) { masked_fill(t[0], t[1], 0); },
       {{1, x}, {1, mask({4})}}},
      {"nan_to_num", {"x"}, {x}, [](T t) { nan_to_num(t[0]); }},
      {"logit", {"x"}, {x}, [](T t) { logit(t[0]); }},
      {"heaviside", {"x", "values"}, {x, x}, [](T t) { heaviside(t[0], t[1]); }, {{0, y}, {1, y}}},
      {"addcmul",
       {"x", "a", "b"},
       {x, x, x},
       [](T t) { addcmul(t[0], t[1], t[2]); },
       {{0, y}, {1, y}, {2, y}}},
      {"addcdiv",
       {"x", "a", "b"},
       {x, x, x},
       [](T t) { addcdiv(t[0], t[1], t[2]); },
       {{0, y}, {1, y}, {2, y}}},
      {"lerp",
       {"start", "end", "weight"},
       {x, x, x},
       [](T t) { lerp(t[0], t[1], t[2]); },
       {{0, n}, {0, y}, {1, y}, {2, y}}},
      {"bitwise_not", {"x"}, {n}, [](T t) { bitwise_not(t[0]); }, {{0, x}}},
      {"isclose", {"a", "b"}, {x, x}, [](T t) { isclose(t[0], t[1]); }, {{0, y}, {1, y}, {1, f64({2, 3})}}},
      {"allclose", {"a", "b"}, {x, x}, [](T t) { allclose(t[0], t[1]); }, {{0, y}, {1, y}, {1, f64({2, 3})}}},
      {"equal", {"a", "b"}, {x, x}, [](T t) { equal(t[0], t[1]); }, {{1, f64({2, 3})}}},
      {"to", {"x"}, {x}, [](T t) { to(t[0], DType::f64); }}};
  for (const Functions& more : {unary_functions(), binary_functions()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

inline Functions reduction_functions() {
  const Tensor x = f32({2, 3}), n = i64({2, 3}), line = f32({3}), y = f32({4});
  return {
      {"sum", {"x"}, {x}, [](T t) { sum(t[0]); }},
      {"prod", {"x"}, {x}, [](T t) { prod(t[0]); }},
      {"mean", {"x"}, {x}, [](T t) { mean(t[0]); }, {{0, n}}},
      {"amax", {"x"}, {x}, [](T t) { amax(t[0]); }},
      {"amin", {"x"}, {x}, [](T t) { amin(t[0]); }},
      {"var", {"x"}, {x}, [](T t) { var(t[0]); }, {{0, n}}},
      {"std", {"x"}, {x}, [](T t) { kiln::std(t[0]); }, {{0, n}}},
      {"var_mean", {"x"}, {x}, [](T t) { var_mean(t[0]); }, {{0, n}}},
      {"std_mean", {"x"}, {x}, [](T t) { std_mean(t[0]); }, {{0, n}}},
      {"argmax", {"x"}, {x}, [](T t) { argmax(t[0]); }},
      {"argmin", {"x"}, {x}, [](T t) { argmin(t[0]); }},
      {"logsumexp", {"x"}, {x}, [](T t) { logsumexp(t[0], 0); }, {{0, n}}},
      {"all", {"x"}, {x}, [](T t) { kiln::all(t[0]); }},
      {"any", {"x"}, {x}, [](T t) { any(t[0]); }},
      {"max", {"x"}, {x}, [](T t) { max(t[0]); }},
      {"min", {"x"}, {x}, [](T t) { min(t[0]); }},
      {"max", {"x"}, {x}, [](T t) { max(t[0], 0); }},
      {"min", {"x"}, {x}, [](T t) { min(t[0], 0); }},
      {"max", {"x", "y"}, {x, x}, [](T t) { max(t[0], t[1]); }, {{0, y}, {1, y}}},
      {"min", {"x", "y"}, {x, x}, [](T t) { min(t[0], t[1]); }, {{0, y}, {1, y}}},
      {"aminmax", {"x"}, {x}, [](T t) { aminmax(t[0]); }},
      {"nansum", {"x"}, {x}, [](T t) { nansum(t[0]); }, {{0, n}}},
      {"nanmean", {"x"}, {x}, [](T t) { nanmean(t[0]); }, {{0, n}}},
      {"count_nonzero", {"x"}, {x}, [](T t) { count_nonzero(t[0]); }},
      {"vector_norm", {"x"}, {x}, [](T t) { vector_norm(t[0]); }, {{0, n}}},
      {"norm", {"x"}, {x}, [](T t) { norm(t[0]); }, {{0, n}}},
      {"matrix_norm", {"x"}, {x}, [](T t) { matrix_norm(t[0]); }, {{0, n}, {0, line}}},
      {"sort", {"x"}, {x}, [](T t) { sort(t[0]); }},
      {"argsort", {"x"}, {x}, [](T t) { argsort(t[0]); }},
      {"topk", {"x"}, {x}, [](T t) { topk(t[0], 2); }, {{0, f32({2, 1})}}},
      {"kthvalue", {"x"}, {x}, [](T t) { kthvalue(t[0], 2); }, {{0, f32({2, 1})}}},
      {"median", {"x"}, {x}, [](T t) { median(t[0], 1); }, {{0, f32({2, 0})}}},
      {"searchsorted",
       {"sorted", "values"},
       {line, x},
       [](T t) { searchsorted(t[0], t[1]); },
       {{0, full({}, 1.0)}, {0, f32({3, 3})}, {0, f64({3})}, {1, f64({2})}}},
      {"bucketize",
       {"x", "boundaries"},
       {x, line},
       [](T t) { bucketize(t[0], t[1]); },
       {{0, f64({2})}, {1, x}, {1, f64({3})}}},
      {"cumsum", {"x"}, {x}, [](T t) { cumsum(t[0], 0); }},
      {"cumprod", {"x"}, {x}, [](T t) { cumprod(t[0], 0); }},
      {"cummax", {"x"}, {x}, [](T t) { cummax(t[0], 0); }},
      {"cummin", {"x"}, {x}, [](T t) { cummin(t[0], 0); }},
      {"logcumsumexp", {"x"}, {x}, [](T t) { logcumsumexp(t[0], 0); }, {{0, n}}},
  };
}

}  // namespace kiln::testing
