// SPDX-License-Identifier: Apache-2.0
// Elementwise functions made of those of ops.h. Names, arguments and numerics are those of the torch
// functions; operands broadcast and are promoted, and numbers are run-time values of a compiled callable.
#pragma once

#include <optional>

#include "frontend/ops.h"

namespace kiln {

// One operand. Shapes: x [...] -> [...].
/// x - trunc(x). Throws: invalid, on a dtype that is not floating.
Tensor frac(const Tensor& x, Loc loc = Loc::current());
/// sign(x). Throws: invalid, on bool.
Tensor sgn(const Tensor& x, Loc loc = Loc::current());
/// Whether x is neither infinite nor NaN; bool. Throws: nothing else.
Tensor isfinite(const Tensor& x, Loc loc = Loc::current());
/// Whether x is infinite, of either sign; bool. Throws: nothing else.
Tensor isinf(const Tensor& x, Loc loc = Loc::current());
/// Whether x is inf (-inf); bool. Throws: nothing else.
Tensor isposinf(const Tensor& x, Loc loc = Loc::current());
Tensor isneginf(const Tensor& x, Loc loc = Loc::current());
/// Whether the sign is negative, that of -0.0 too; false for NaN. Throws: nothing else.
Tensor signbit(const Tensor& x, Loc loc = Loc::current());
/// NaN, inf and -inf become numbers: those given, else 0, the largest and the lowest of the dtype. They get
/// no gradient. Throws: nothing else.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {}, Loc loc = Loc::current());

// One operand; integers and bool become f32. Shapes: x [...] -> [...]. Throws: nothing else.
/// Inverse hyperbolic function: NaN below 1 for acosh, beyond -1 and 1 for atanh.
Tensor asinh(const Tensor& x, Loc loc = Loc::current());
Tensor acosh(const Tensor& x, Loc loc = Loc::current());
Tensor atanh(const Tensor& x, Loc loc = Loc::current());
/// log |gamma(x)|.
Tensor lgamma(const Tensor& x, Loc loc = Loc::current());
/// The derivative of lgamma, NaN at negative integers.
Tensor digamma(const Tensor& x, Loc loc = Loc::current());
/// Inverse of erf: infinite at -1 and 1, NaN beyond.
Tensor erfinv(const Tensor& x, Loc loc = Loc::current());
/// log(x / (1 - x)), of x limited to [eps, 1 - eps] if it is given.
Tensor logit(const Tensor& x, std::optional<double> eps = {}, Loc loc = Loc::current());
/// sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Tensor& x, Loc loc = Loc::current());
/// x pi / 180.
Tensor deg2rad(const Tensor& x, Loc loc = Loc::current());
/// x 180 / pi.
Tensor rad2deg(const Tensor& x, Loc loc = Loc::current());

enum class RoundingMode : uint8_t { trunc, floor };
// Two operands and more. Shapes: all broadcast; dtypes are promoted.
/// The quotient rounded, in the operands' dtype. Throws: invalid, on integer division by zero (inside a
/// compiled callable when the stage has run).
Tensor div(const TensorArg& a, const TensorArg& b, RoundingMode mode);
/// b - alpha * a. Throws: invalid, on bool.
Tensor rsub(const TensorArg& a, const TensorArg& b, Scalar alpha = 1);
/// Limits with bounds, of which an undefined one does not limit. Where lo > hi the result is hi. NaN of any
/// operand stays. Throws: invalid, without a bound.
Tensor clamp(const Tensor& x, const Tensor& lo, const Tensor& hi, Loc loc = Loc::current());
/// clamp with one bound. Shapes: x [...] -> [...]. Throws: invalid, on a NaN, and on a bound with a
/// fraction for integers.
Tensor clamp_min(const Tensor& x, double lo, Loc loc = Loc::current());
Tensor clamp_max(const Tensor& x, double hi, Loc loc = Loc::current());

// Two operands and more. Shapes: all broadcast; dtypes are promoted. Throws: invalid, on two numbers.
/// Like maximum and minimum, but a NaN gives way to a number.
Tensor fmax(const TensorArg& a, const TensorArg& b);
Tensor fmin(const TensorArg& a, const TensorArg& b);
/// sqrt(x^2 + y^2) without overflow.
Tensor hypot(const TensorArg& x, const TensorArg& y);
/// log(exp(x) + exp(y)); in base 2 for logaddexp2.
Tensor logaddexp(const TensorArg& x, const TensorArg& y);
Tensor logaddexp2(const TensorArg& x, const TensorArg& y);
/// x log(y), 0 where x is 0 (but for y NaN).
Tensor xlogy(const TensorArg& x, const TensorArg& y);
/// 0, `values` or 1 where x is below, at or above zero. No gradient.
Tensor heaviside(const TensorArg& x, const TensorArg& values);
/// |x| with the sign of y.
Tensor copysign(const TensorArg& x, const TensorArg& y);

// Three operands. Shapes: all broadcast; dtypes are promoted.
/// x + value * a * b. Throws: invalid, on bool.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1, Loc loc = Loc::current());
/// x + value * a / b. Throws: invalid, unless a or b is floating.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1, Loc loc = Loc::current());
/// start + weight * (end - start). Throws: invalid, unless start is floating.
Tensor lerp(const Tensor& start, const Tensor& end, const TensorArg& weight);

// In place, as add_, sub_, mul_ and div_.
Tensor& operator+=(Tensor& x, const TensorArg& y);
Tensor& operator-=(Tensor& x, const TensorArg& y);
Tensor& operator*=(Tensor& x, const TensorArg& y);
Tensor& operator/=(Tensor& x, const TensorArg& y);
// The same of a view that is no variable: x[0] += y.
inline void operator+=(Tensor&& x, const TensorArg& y) { x += y; }
inline void operator-=(Tensor&& x, const TensorArg& y) { x -= y; }
inline void operator*=(Tensor&& x, const TensorArg& y) { x *= y; }
inline void operator/=(Tensor&& x, const TensorArg& y) { x /= y; }

// Bits of integers and bool. Shapes: operands broadcast; dtypes are promoted. Throws: invalid, on floating
// operands (shifts: on bool too).
/// All bits flipped; bool: whether x is false.
Tensor bitwise_not(const Tensor& x, Loc loc = Loc::current());
/// Of each bit whether it is set in both (and), in any (or), in one of them (xor).
Tensor bitwise_and(const TensorArg& a, const TensorArg& b);
Tensor bitwise_or(const TensorArg& a, const TensorArg& b);
Tensor bitwise_xor(const TensorArg& a, const TensorArg& b);
/// a * 2^b, without the bits that leave the dtype.
Tensor bitwise_left_shift(const TensorArg& a, const TensorArg& b);
/// a / 2^b rounded down, with the sign of a.
Tensor bitwise_right_shift(const TensorArg& a, const TensorArg& b);

// Closeness. Throws: invalid, on different dtypes, and on tolerances below 0.
/// |a - b| <= atol + rtol * |b|, or equal (infinities are only if equal); NaN is close to NaN if
/// `equal_nan`. Shapes: a and b broadcast.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false, Loc loc = Loc::current());
/// Whether all are close: a host read. Shapes: a and b broadcast.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false, Loc loc = Loc::current());

/// Whether shapes and all elements are equal: a host read. Shapes: any. Throws: invalid, on different
/// dtypes.
bool equal(const Tensor& a, const Tensor& b, Loc loc = Loc::current());

}  // namespace kiln
