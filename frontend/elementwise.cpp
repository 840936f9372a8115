// SPDX-License-Identifier: Apache-2.0
// Elementwise functions in primitives.
#include "frontend/elementwise.h"

#include <cmath>

#include "frontend/ops_detail.h"

namespace kiln {

using namespace detail;  // NOLINT: the bodies are written in its vocabulary

namespace {

template <typename Body>
Tensor unary_call(const char* name, const Tensor& x, Loc loc, Body&& body) {
  require(x, name, loc);
  return call(name, loc, {&x}, {}, {}, [&](const Tensor& x, const auto&) { return body(x); });
}

Tensor compare(Op o, const Tensor& x, double to) { return binary(o, x, lit(x, to)); }
Tensor either(const Tensor& a, const Tensor& b) { return binary(op("logical_or"), a, b); }
Tensor both(const Tensor& a, const Tensor& b) { return binary(op("logical_and"), a, b); }
Tensor no(const Tensor& x) { return unary(op("logical_not"), x); }
/// All false, of x's shape.
Tensor nowhere(const Tensor& x) { return constant_like(cast_to(x, DType::boolean), 0); }
Tensor scaled(const Tensor& x, double by) { return mul2(x, lit(x, by)); }

/// `body(a, b)` on operands of one floating dtype and shape.
template <typename Body>
Tensor floating_pair(const char* name, const TensorArg& a, const TensorArg& b, Body&& body) {
  const auto on_one_shape = [&](const Tensor& x, const Tensor& y) {
    const Sizes shape = broadcast_shapes(x, y, name, a.loc);
    const DType t = result_type(x, y), f = is_floating(t) ? t : DType::f32;
    return body(expand_to(cast_to(x, f), shape), expand_to(cast_to(y, f), shape));
  };
  return binary_call(name, a, b, on_one_shape, {"x", "y"});
}

Tensor infinite(const Tensor& x) { return compare(op("eq"), unary(op("abs"), x), INFINITY); }

Tensor signbit_body(const Tensor& x) {
  const Tensor below = compare(op("lt"), x, 0);
  if (!is_floating(x.dtype())) return below;
  const Tensor minus_zero = both(compare(op("eq"), x, 0), compare(op("lt"), unary(op("reciprocal"), x), 0));
  return either(below, minus_zero);
}

}  // namespace

Tensor frac(const Tensor& x, Loc loc) {
  require_floating(x, "frac", loc);
  return unary_call("frac", x, loc, [](const Tensor& t) { return sub2(t, unary(op("trunc"), t)); });
}

Tensor sgn(const Tensor& x, Loc loc) {
  require(x, "sgn", loc);
  return sign(x, loc);
}

Tensor isfinite(const Tensor& x, Loc loc) {
  return unary_call("isfinite", x, loc, [](const Tensor& t) {
    if (!is_floating(t.dtype())) return no(nowhere(t));
    return compare(op("lt"), unary(op("abs"), t), INFINITY);
  });
}

Tensor isinf(const Tensor& x, Loc loc) {
  return unary_call("isinf", x, loc,
                    [](const Tensor& t) { return is_floating(t.dtype()) ? infinite(t) : nowhere(t); });
}
Tensor isposinf(const Tensor& x, Loc loc) {
  return unary_call("isposinf", x, loc, [](const Tensor& t) {
    return is_floating(t.dtype()) ? compare(op("eq"), t, INFINITY) : nowhere(t);
  });
}
Tensor isneginf(const Tensor& x, Loc loc) {
  return unary_call("isneginf", x, loc, [](const Tensor& t) {
    return is_floating(t.dtype()) ? compare(op("eq"), t, -INFINITY) : nowhere(t);
  });
}

Tensor signbit(const Tensor& x, Loc loc) {
  return unary_call("signbit", x, loc, [](const Tensor& t) { return signbit_body(t); });
}

namespace detail {
double largest_finite(DType t) {
  return t == DType::f16    ? 65504
         : t == DType::bf16 ? 0x1.FEp127
         : t == DType::f32  ? 0x1.FFFFFEp127
                            : 0x1.FFFFFFFFFFFFFp1023;
}
}  // namespace detail

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf,
                  Loc loc) {
  require(x, "nan_to_num", loc);
  const double top = largest_finite(x.dtype());
  return call("nan_to_num", loc, {&x}, {}, {nan, posinf.value_or(top), neginf.value_or(-top)},
              [&](const std::vector<Tensor>& s) {
                const DType t = x.dtype();
                if (!is_floating(t)) return copied(x);
                const Tensor low = select3(compare(op("eq"), x, -INFINITY), cast_to(s[2], t), x);
                const Tensor high = select3(compare(op("eq"), x, INFINITY), cast_to(s[1], t), low);
                return select3(unary(op("isnan"), x), cast_to(s[0], t), high);
              });
}

Tensor asinh(const Tensor& x, Loc loc) {
  return unary_call("asinh", x, loc, [](const Tensor& t) { return unary(op("asinh"), floating(t)); });
}
Tensor acosh(const Tensor& x, Loc loc) {
  return unary_call("acosh", x, loc, [](const Tensor& t) { return unary(op("acosh"), floating(t)); });
}
Tensor atanh(const Tensor& x, Loc loc) {
  return unary_call("atanh", x, loc, [](const Tensor& t) { return unary(op("atanh"), floating(t)); });
}
Tensor lgamma(const Tensor& x, Loc loc) {
  return unary_call("lgamma", x, loc, [](const Tensor& t) { return unary(op("lgamma"), floating(t)); });
}
Tensor digamma(const Tensor& x, Loc loc) {
  return unary_call("digamma", x, loc, [](const Tensor& t) { return unary(op("digamma"), floating(t)); });
}
Tensor erfinv(const Tensor& x, Loc loc) {
  return unary_call("erfinv", x, loc, [](const Tensor& t) { return unary(op("erfinv"), floating(t)); });
}

Tensor logit(const Tensor& x, std::optional<double> eps, Loc loc) {
  require(x, "logit", loc);
  const Tensor* operands[] = {&x};
  std::vector<Scalar> scalars;
  if (eps) scalars.emplace_back(*eps);
  return call({"logit", loc, operands, {}, scalars}, [&](const std::vector<Tensor>& s) {
    const Tensor given = floating(x);
    Tensor p = wide(given);
    const Tensor one = lit(p, 1);
    if (eps) {
      const Tensor lo = cast_to(s[0], p.dtype()), hi = sub2(one, lo);
      p = select3(binary(op("lt"), p, lo), lo, select3(binary(op("gt"), p, hi), hi, p));
    }
    return cast_to(unary(op("log"), div2(p, sub2(one, p))), given.dtype());
  });
}

Tensor sinc(const Tensor& x, Loc loc) {
  return unary_call("sinc", x, loc, [](const Tensor& t) {
    const Tensor given = floating(t), v = wide(given), zero = compare(op("eq"), v, 0), one = lit(v, 1),
                 at = scaled(select3(zero, one, v), M_PI);
    return cast_to(select3(zero, one, div2(unary(op("sin"), at), at)), given.dtype());
  });
}

Tensor deg2rad(const Tensor& x, Loc loc) {
  return unary_call("deg2rad", x, loc, [](const Tensor& t) { return scaled(floating(t), M_PI / 180); });
}
Tensor rad2deg(const Tensor& x, Loc loc) {
  return unary_call("rad2deg", x, loc, [](const Tensor& t) { return scaled(floating(t), 180 / M_PI); });
}

Tensor rsub(const TensorArg& a, const TensorArg& b, Scalar alpha) {
  for (const auto& [t, arg] : {std::pair{a.tensor, "a"}, std::pair{b.tensor, "b"}})
    if (t) require(*t, "rsub", a.loc, arg);
  require_broadcast({{a.tensor, "a"}, {b.tensor, "b"}}, "rsub", a.loc);
  if (alpha.is_int && alpha.i == 1) return sub(b, a);
  return sub(b, TensorArg(mul(a, TensorArg(alpha, a.loc)), a.loc));
}

namespace {
/// `bound` where x is beyond it or it is NaN. The gradient passes inside alone, ends excluded.
Tensor limited(const Tensor& x, const Tensor& bound, Op beyond) {
  Tensor to_bound = apply(beyond, {&x, &bound});
  if (is_floating(bound.dtype())) to_bound = either(to_bound, unary(op("isnan"), bound));
  return apply(op("where"), {&to_bound, &bound, &x});
}
}  // namespace

Tensor clamp(const Tensor& x, const Tensor& lo, const Tensor& hi, Loc loc) {
  require(x, "clamp", loc);
  KILN_CHECK(lo.defined() || hi.defined(), invalid, "clamp ({}): got neither lo nor hi, expected a bound",
             loc.str());
  return call("clamp", loc, {&x, &lo, &hi}, {}, {}, [&](const auto&) {
    require_broadcast({{&x, "x"}, {&lo, "lo"}, {&hi, "hi"}}, "clamp", loc);
    Sizes shape = x.sizes();
    DType t = x.dtype();
    Tensor y = x;
    for (const Tensor* b : {&lo, &hi}) {
      if (!b->defined()) continue;
      shape = broadcast_shapes(expand_to(y, shape), *b, "clamp", loc);
      t = result_type(cast_to(y, t), *b);
      y = expand_to(y, shape);
    }
    y = cast_to(y, t);
    if (lo.defined()) y = limited(y, expand_to(cast_to(lo, t), shape), op("le"));
    if (hi.defined()) y = limited(y, expand_to(cast_to(hi, t), shape), op("ge"));
    return y;
  });
}

Tensor clamp_min(const Tensor& x, double lo, Loc loc) {
  return detail::clamp("clamp_min", x, lo, std::nullopt, loc);
}
Tensor clamp_max(const Tensor& x, double hi, Loc loc) {
  return detail::clamp("clamp_max", x, std::nullopt, hi, loc);
}

namespace {
Tensor number_before_nan(const char* name, Op better, Op whole, const TensorArg& a, const TensorArg& b) {
  return binary_call(name, a, b, [&](const Tensor& x, const Tensor& y) {
    const DType t = result_type(x, y);
    const Sizes shape = broadcast_shapes(x, y, name, a.loc);
    const Tensor p = expand_to(cast_to(x, t), shape), q = expand_to(cast_to(y, t), shape);
    if (!is_floating(t)) return apply(whole, {&p, &q});
    const Tensor first = either(apply(better, {&p, &q}), unary(op("isnan"), q));
    return apply(op("where"), {&first, &p, &q});
  });
}
}  // namespace

Tensor fmax(const TensorArg& a, const TensorArg& b) {
  return number_before_nan("fmax", op("ge"), op("maximum"), a, b);
}
Tensor fmin(const TensorArg& a, const TensorArg& b) {
  return number_before_nan("fmin", op("le"), op("minimum"), a, b);
}

Tensor hypot(const TensorArg& x, const TensorArg& y) {
  return floating_pair("hypot", x, y, [](const Tensor& a, const Tensor& b) {
    // The result does not depend on the scale, so that this has no gradient.
    const Tensor top = constant_of(binary(op("maximum"), unary(op("abs"), a), unary(op("abs"), b)));
    const Tensor odd = either(compare(op("eq"), top, 0), infinite(top)),
                 scale = select3(odd, lit(top, 1), top);
    const Tensor p = div2(a, scale), q = div2(b, scale);
    const Tensor r = mul2(scale, unary(op("sqrt"), add2(mul2(p, p), mul2(q, q))));
    return select3(either(infinite(a), infinite(b)), lit(r, INFINITY), r);
  });
}

namespace {
/// hi + log(1 + base^(lo - hi)), with the operands in order, so that no exponential overflows.
template <typename Body>
Tensor log_add(const Tensor& a, const Tensor& b, Body&& log_1p_power) {
  const Tensor first = binary(op("ge"), a, b), hi = select3(first, a, b), lo = select3(first, b, a);
  const Tensor alike = both(binary(op("eq"), hi, lo), infinite(hi));
  return add2(hi, log_1p_power(select3(alike, lit(hi, 0), sub2(lo, hi))));
}
}  // namespace

Tensor logaddexp(const TensorArg& x, const TensorArg& y) {
  return floating_pair("logaddexp", x, y, [](const Tensor& a, const Tensor& b) {
    return log_add(a, b, [](const Tensor& d) { return unary(op("log1p"), unary(op("exp"), d)); });
  });
}

Tensor logaddexp2(const TensorArg& x, const TensorArg& y) {
  return floating_pair("logaddexp2", x, y, [](const Tensor& a, const Tensor& b) {
    return log_add(
        a, b, [](const Tensor& d) { return scaled(unary(op("log1p"), unary(op("exp2"), d)), 1 / M_LN2); });
  });
}

Tensor xlogy(const TensorArg& x, const TensorArg& y) {
  return floating_pair("xlogy", x, y, [](const Tensor& a, const Tensor& b) {
    const Tensor zero = compare(op("eq"), a, 0), one = lit(b, 1);
    const Tensor inside = both(compare(op("gt"), b, 0), compare(op("lt"), b, INFINITY));
    const Tensor none = both(zero, no(either(inside, unary(op("isnan"), b))));
    const Tensor value = mul2(a, unary(op("log"), select3(none, one, b)));
    // torch's derivative by y is x / y: NaN where both are zero. So is that of 0 * sqrt(y).
    const Tensor root = unary(op("sqrt"), select3(both(zero, compare(op("eq"), b, 0)), b, one));
    return add2(value, mul2(lit(b, 0), root));
  });
}

Tensor heaviside(const TensorArg& x, const TensorArg& values) {
  const auto body = [&](const Tensor& a, const Tensor& b) {
    const DType t = result_type(a, b);
    const Sizes shape = broadcast_shapes(a, b, "heaviside", x.loc);
    const Tensor p = expand_to(cast_to(a, t), shape), at_zero = compare(op("eq"), p, 0);
    return select3(at_zero, constant_of(expand_to(cast_to(b, t), shape)),
                   cast_to(compare(op("gt"), p, 0), t));
  };
  return binary_call("heaviside", x, values, body, {"x", "values"});
}

Tensor copysign(const TensorArg& x, const TensorArg& y) {
  return floating_pair("copysign", x, y, [](const Tensor& a, const Tensor& b) {
    const Tensor size = unary(op("abs"), a);
    // b has a gradient, of zero.
    return select3(nowhere(a), b, select3(signbit_body(b), unary(op("neg"), size), size));
  });
}

namespace {
/// x + value * o(a, b).
Tensor add_scaled(const char* name, Op o, const Tensor& x, const Tensor& a, const Tensor& b, Scalar value,
                  Loc loc) {
  require(x, name, loc);
  require(a, name, loc, "a");
  require(b, name, loc, "b");
  require_fits(value, x.dtype(), name, loc);
  return call(name, loc, {&x, &a, &b}, {}, {value},
              [&](const Tensor& x, const Tensor& a, const Tensor& b, const std::vector<Tensor>& s) {
                require_broadcast({{&x, "x"}, {&a, "a"}, {&b, "b"}}, name, loc);
                const Tensor term = binary(o, a, b, loc);
                return binary(op("add"), x, mul2(term, cast_to(s[0], term.dtype())), loc);
              });
}
}  // namespace

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value, Loc loc) {
  return add_scaled("addcmul", op("mul"), x, a, b, value, loc);
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value, Loc loc) {
  require(x, "addcdiv", loc);
  require(a, "addcdiv", loc, "a");
  require(b, "addcdiv", loc, "b");
  KILN_CHECK(is_floating(result_type(a, b)), invalid,
             "addcdiv ({}): got a {} and b {}, expected a floating one (cast one with to())", loc.str(),
             a.type_str(), b.type_str());
  return add_scaled("addcdiv", op("div"), x, a, b, value, loc);
}

Tensor lerp(const Tensor& start, const Tensor& end, const TensorArg& weight) {
  const Loc loc = weight.loc;
  require_floating(start, "lerp", loc, "start");
  require(end, "lerp", loc, "end");
  if (weight.tensor) require(*weight.tensor, "lerp", loc, "weight");
  const Tensor* operands[] = {&start, &end, weight.tensor};
  std::vector<Scalar> scalars;
  if (!weight.tensor) scalars.push_back(weight.scalar);
  return call({"lerp", loc, operands, {}, scalars}, [&](const std::vector<Tensor>& s) {
    require_broadcast({{&start, "start"}, {&end, "end"}, {weight.tensor, "weight"}}, "lerp", loc);
    const Tensor w = cast_to(weight.tensor ? *weight.tensor : s[0], start.dtype());
    const Tensor way = binary(op("sub"), end, start, loc);
    // From the nearer end: exact at both.
    const Tensor from_start = binary(op("add"), start, binary(op("mul"), w, way, loc), loc);
    const Tensor from_end = binary(op("sub"), end, mul2(way, sub2(lit(w, 1), w)), loc);
    const Tensor near = expand_to(compare(op("lt"), unary(op("abs"), w), 0.5), from_start.sizes());
    return select3(near, from_start, expand_to(from_end, from_start.sizes()));
  });
}

namespace {
Tensor bits(const char* name, Op o, const TensorArg& a, const TensorArg& b, bool shift) {
  for (const auto& [t, arg] : {std::pair{&a, "a"}, std::pair{&b, "b"}}) {
    const bool fits = t->tensor ? !t->tensor->defined() || (!is_floating(t->tensor->dtype()) &&
                                                            !(shift && t->tensor->dtype() == DType::boolean))
                                : t->scalar.is_int;
    KILN_CHECK(fits, invalid, "{} ({}): got {} {}, expected integers{}", name, a.loc.str(), arg,
               t->tensor ? t->tensor->type_str() : fmt::format("{}", t->scalar.d), shift ? "" : " or bool");
  }
  return binary_call(name, a, b, [&](const Tensor& x, const Tensor& y) { return binary(o, x, y, a.loc); });
}
}  // namespace

Tensor bitwise_not(const Tensor& x, Loc loc) {
  require(x, "bitwise_not", loc);
  KILN_CHECK(!is_floating(x.dtype()), invalid, "bitwise_not ({}): got x {}, expected integers or bool",
             loc.str(), x.type_str());
  return unary_call("bitwise_not", x, loc, [](const Tensor& t) {
    return t.dtype() == DType::boolean ? no(t) : unary(op("bitwise_not"), t);
  });
}
Tensor bitwise_and(const TensorArg& a, const TensorArg& b) {
  return bits("bitwise_and", op("bitwise_and"), a, b, false);
}
Tensor bitwise_or(const TensorArg& a, const TensorArg& b) {
  return bits("bitwise_or", op("bitwise_or"), a, b, false);
}
Tensor bitwise_xor(const TensorArg& a, const TensorArg& b) {
  return bits("bitwise_xor", op("bitwise_xor"), a, b, false);
}
Tensor bitwise_left_shift(const TensorArg& a, const TensorArg& b) {
  return bits("bitwise_left_shift", op("shift_left"), a, b, true);
}
Tensor bitwise_right_shift(const TensorArg& a, const TensorArg& b) {
  return bits("bitwise_right_shift", op("shift_right"), a, b, true);
}

namespace {
void check_pair(const char* name, const Tensor& a, const Tensor& b, Loc loc) {
  require(a, name, loc, "a");
  require(b, name, loc, "b");
  require_one_dtype({{&a, "a"}, {&b, "b"}}, name, loc);
}
void check_close(const char* name, const Tensor& a, const Tensor& b, double rtol, double atol, Loc loc) {
  check_pair(name, a, b, loc);
  require_broadcast({{&a, "a"}, {&b, "b"}}, name, loc);
  KILN_CHECK(rtol >= 0 && atol >= 0, invalid, "{} ({}): got rtol {} and atol {}, expected none below 0", name,
             loc.str(), rtol, atol);
}
}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Loc loc) {
  check_close("isclose", a, b, rtol, atol, loc);
  return call("isclose", loc, {&a, &b}, {equal_nan}, {rtol, atol}, [&](const std::vector<Tensor>& s) {
    Tensor same = binary(op("eq"), a, b, loc);
    const DType wide = a.dtype() == DType::f64 || !is_floating(a.dtype()) ? DType::f64 : DType::f32;
    const Tensor x = cast_to(a, wide), y = cast_to(b, wide);
    if (equal_nan && is_floating(a.dtype()))
      same = either(same, both(unary(op("isnan"), x), unary(op("isnan"), y)));
    const Tensor error = unary(op("abs"), sub2(x, y));
    const Tensor allowed = add2(cast_to(s[1], wide), mul2(cast_to(s[0], wide), unary(op("abs"), y)));
    const Tensor near = both(compare(op("lt"), error, INFINITY), binary(op("le"), error, allowed));
    return either(same, near);
  });
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Loc loc) {
  check_close("allclose", a, b, rtol, atol, loc);
  return all(isclose(a, b, rtol, atol, equal_nan, loc), {}, false, loc).item(loc) != 0;
}

bool equal(const Tensor& a, const Tensor& b, Loc loc) {
  check_pair("equal", a, b, loc);
  if (a.sizes() != b.sizes()) return false;
  return all(eq(TensorArg(a, loc), TensorArg(b, loc)), {}, false, loc).item(loc) != 0;
}

}  // namespace kiln
