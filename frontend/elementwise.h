// SPDX-License-Identifier: Apache-2.0
// Elementwise functions made of those of ops.h. Names, arguments and numerics are those of the torch
// functions; operands broadcast and are promoted, and numbers are run-time values of a compiled callable.
#pragma once

#include <optional>

#include "frontend/ops.h"

namespace kiln {

/// x - trunc(x).
Tensor frac(const Tensor& x, Loc loc = Loc::current());
/// sign(x).
Tensor sgn(const Tensor& x, Loc loc = Loc::current());
Tensor isfinite(const Tensor& x, Loc loc = Loc::current());
Tensor isinf(const Tensor& x, Loc loc = Loc::current());
Tensor isposinf(const Tensor& x, Loc loc = Loc::current());
Tensor isneginf(const Tensor& x, Loc loc = Loc::current());
/// Whether the sign is negative, that of -0.0 too; false for NaN.
Tensor signbit(const Tensor& x, Loc loc = Loc::current());
/// NaN, inf and -inf become numbers: those given, else 0, the largest and the lowest of the dtype. They get
/// no gradient.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {}, Loc loc = Loc::current());
// Inverse hyperbolic functions: NaN below 1 for acosh, beyond -1 and 1 for atanh.
Tensor asinh(const Tensor& x, Loc loc = Loc::current());
Tensor acosh(const Tensor& x, Loc loc = Loc::current());
Tensor atanh(const Tensor& x, Loc loc = Loc::current());
/// log |gamma(x)|, and its derivative, NaN at negative integers.
Tensor lgamma(const Tensor& x, Loc loc = Loc::current());
Tensor digamma(const Tensor& x, Loc loc = Loc::current());
/// Inverse of erf: infinite at -1 and 1, NaN beyond.
Tensor erfinv(const Tensor& x, Loc loc = Loc::current());
/// log(x / (1 - x)), of x limited to [eps, 1 - eps] if it is given.
Tensor logit(const Tensor& x, std::optional<double> eps = {}, Loc loc = Loc::current());
/// sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Tensor& x, Loc loc = Loc::current());
Tensor deg2rad(const Tensor& x, Loc loc = Loc::current());
Tensor rad2deg(const Tensor& x, Loc loc = Loc::current());

enum class RoundingMode : uint8_t { trunc, floor };
/// The quotient rounded, in the operands' dtype. Throws: invalid, on integer division by zero.
Tensor div(const TensorArg& a, const TensorArg& b, RoundingMode mode);
/// b - alpha * a.
Tensor rsub(const TensorArg& a, const TensorArg& b, Scalar alpha = 1);
/// Limits with bounds that broadcast to x; an undefined one does not limit. Where lo > hi the result is hi.
/// NaN of any operand stays.
Tensor clamp(const Tensor& x, const Tensor& lo, const Tensor& hi, Loc loc = Loc::current());
Tensor clamp_min(const Tensor& x, double lo, Loc loc = Loc::current());
Tensor clamp_max(const Tensor& x, double hi, Loc loc = Loc::current());
/// Like maximum and minimum, but a NaN gives way to a number.
Tensor fmax(const TensorArg& a, const TensorArg& b);
Tensor fmin(const TensorArg& a, const TensorArg& b);
/// sqrt(x^2 + y^2) without overflow.
Tensor hypot(const TensorArg& x, const TensorArg& y);
/// log(exp(x) + exp(y)); in base 2 for the second.
Tensor logaddexp(const TensorArg& x, const TensorArg& y);
Tensor logaddexp2(const TensorArg& x, const TensorArg& y);
/// x log(y), 0 where x is 0 (but for y NaN).
Tensor xlogy(const TensorArg& x, const TensorArg& y);
/// 0, `values` or 1 where x is below, at or above zero. No gradient.
Tensor heaviside(const TensorArg& x, const TensorArg& values);
/// |x| with the sign of y.
Tensor copysign(const TensorArg& x, const TensorArg& y);
/// x + value * a * b, and x + value * a / b. Throws: invalid, on integers for the second.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1, Loc loc = Loc::current());
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1, Loc loc = Loc::current());
/// start + weight * (end - start).
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

// Bits of integers and bool. Throws: invalid, on floating operands (shifts: on bool too).
Tensor bitwise_not(const Tensor& x, Loc loc = Loc::current());
Tensor bitwise_and(const TensorArg& a, const TensorArg& b);
Tensor bitwise_or(const TensorArg& a, const TensorArg& b);
Tensor bitwise_xor(const TensorArg& a, const TensorArg& b);
Tensor bitwise_left_shift(const TensorArg& a, const TensorArg& b);
/// Keeps the sign.
Tensor bitwise_right_shift(const TensorArg& a, const TensorArg& b);

/// |a - b| <= atol + rtol * |b|, or equal (infinities are only if equal); NaN is close to NaN if `equal_nan`.
/// Throws: invalid, on different dtypes or negative tolerances.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false, Loc loc = Loc::current());
/// Whether all are close: a host read.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false, Loc loc = Loc::current());
/// Whether shapes and all elements are equal: a host read. Throws: invalid, on different dtypes.
bool equal(const Tensor& a, const Tensor& b, Loc loc = Loc::current());

}  // namespace kiln
