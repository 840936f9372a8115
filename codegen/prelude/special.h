// SPDX-License-Identifier: Apache-2.0
// digamma, trigamma and erfinv, branch-free in f64 arithmetic, for all targets; f32 is rounded once at the
// end. The formulas are those of ir/base/special.cpp. Included after the words for functions.
// Source: M. Abramowitz, I. Stegun, Handbook of Mathematical Functions (1964), 6.3 and 6.4; M. Giles,
// Approximating the erfinv function (2012), then Halley's method.
#pragma once

#include "polynomial.h"

namespace kn {
namespace detail {

inline constexpr f64 kPiF64 = 0x1.921fb54442d18p+1;

/// sin(pi u) and cos(pi u) for 0 <= u <= 1/4, by their Taylor series.
template <class D> KN_FN D sin_quarter(D u) {
  const D w = u * kPiF64, z = w * w;
  return w * horner(z, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                    1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000);
}
template <class D> KN_FN D cos_quarter(D u) {
  const D w = u * kPiF64, z = w * w;
  return horner(z, 1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                -1.0 / 87178291200, 1.0 / 20922789888000);
}

/// psi(x) = psi(x + n) - sum 1 / (x + k) up to x >= 10, then the asymptotic series; mirrored below zero.
template <class D> KN_FN D digamma_f64(D x) {
  const auto negative = lt(x, (D)(0.0));
  D y = select(negative, D(1.0 - x), x), sum = (D)(0.0);
  for (int i = 0; i < 10; ++i) {
    const auto low = lt(y, (D)(10.0));
    sum = select(low, D(sum - 1.0 / y), sum);
    y = select(low, D(y + 1.0), y);
  }
  const D z = 1.0 / (y * y);
  const D tail = z * horner(z, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760,
                            1.0 / 12, -3617.0 / 8160);
  const D right = sum + log(y) - 0.5 / y - tail;
  // The cotangent has period 1, and x less the nearest integer is exact.
  const D rest = x - round(x), a = abs(rest);
  const auto near = le(a, (D)(0.25));
  const D u = select(near, a, D(0.5 - a));
  const D s = sin_quarter(u), c = cos_quarter(u);
  const D cotangent = copysign(select(near, D(c / s), D(s / c)), rest);
  const D left = select(eq(rest, (D)(0.0)), (D)(nan<f64>), D(right - kPiF64 * cotangent));
  return select(negative, left, right);
}

template <class D> KN_FN D trigamma_f64(D x) {
  const auto negative = le(x, (D)(0.0));
  D y = select(negative, D(1.0 - x), x), sum = (D)(0.0);
  for (int i = 0; i < 10; ++i) {
    const auto low = lt(y, (D)(10.0));
    sum = select(low, D(sum + 1.0 / (y * y)), sum);
    y = select(low, D(y + 1.0), y);
  }
  const D z = 1.0 / (y * y);
  const D tail = z / y * horner(z, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6,
                                -3617.0 / 510);
  const D right = sum + (1.0 / y + 0.5 * z + tail);
  const D a = abs(D(x - round(x)));
  const auto near = le(a, (D)(0.25));
  const D u = select(near, a, D(0.5 - a));
  const D s = select(near, sin_quarter(u), cos_quarter(u));
  return select(negative, D(kPiF64 * kPiF64 / (s * s) - right), right);
}

/// kF32: for a result that is rounded to f32, where 1 - |x| has digits to spare.
template <bool kF32, class D> KN_FN D erfinv_f64(D x) {
  const D a = abs(x);
  const D w = -log(D((1.0 - a) * (1.0 + a)));
  const D near = horner(D(w - 2.5), 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
                        -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08);
  const D far = horner(D(sqrt(w) - 3.0), 2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773,
                       -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257);
  D y = a * select(lt(w, (D)(5.0)), near, far);
  if constexpr (!kF32) {
    const D t = -log(D((1.0 - a) * 0x1.c5bf891b4ef6bp+0));
    y = select(lt(w, (D)(16.0)), y, sqrt(D(t - 0.5 * log(t))));
  }
  for (int i = 0; i < 2; ++i) {
    D off = erf(y) - a;
    if constexpr (!kF32) off = select(lt(a, (D)(0.5)), off, D((1.0 - a) - erfc(y)));
    const D step = off / (0x1.20dd750429b6dp+0 * exp(D(-y * y)));
    y = y - step / (1.0 + y * step);
  }
  const D edge = select(eq(a, (D)(1.0)), (D)(inf<f64>), (D)(nan<f64>));
  return copysign(select(lt(a, (D)(1.0)), y, edge), x);
}

}  // namespace detail

/// The derivative of log |gamma(x)|.
template <class V> KN_FN V digamma(V x) {
  static_assert(is_float<V>, "digamma takes f32 or f64");
  return convert<Elem<V>>(detail::digamma_f64(convert<f64>(x)));
}
/// The derivative of digamma.
template <class V> KN_FN V trigamma(V x) {
  static_assert(is_float<V>, "trigamma takes f32 or f64");
  return convert<Elem<V>>(detail::trigamma_f64(convert<f64>(x)));
}
/// The inverse of erf.
template <class V> KN_FN V erfinv(V x) {
  static_assert(is_float<V>, "erfinv takes f32 or f64");
  return convert<Elem<V>>(detail::erfinv_f64<is_f32<V>>(convert<f64>(x)));
}

}  // namespace kn
