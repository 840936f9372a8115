// SPDX-License-Identifier: Apache-2.0
#include "ir/base/special.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace kiln::special {

namespace {
constexpr double kPi = std::numbers::pi;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// c0 + z (c1 + z (...)).
template <typename... C>
double horner(double z, double c0, C... rest) {
  if constexpr (sizeof...(rest) == 0) return c0;
  else return c0 + z * horner(z, static_cast<double>(rest)...);
}
}  // namespace

double log_gamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

double digamma(double x) {
  if (x == 0) return std::copysign(kInf, -x);
  if (x == -kInf || (x < 0 && x == std::floor(x))) return kNaN;
  double sum = 0;
  if (x < 0) {
    sum = -kPi / std::tan(kPi * (x - std::round(x)));  // of period 1; the difference is exact
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x);
  const double tail = z * horner(z, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760,
                                 1.0 / 12, -3617.0 / 8160);
  return sum + std::log(x) - 0.5 / x - tail;
}

double trigamma(double x) {
  if (x == -kInf) return kNaN;
  double sign = 1, sum = 0;
  if (x <= 0) {
    const double rest = x - std::round(x);
    if (rest == 0) return kInf;
    const double s = std::sin(kPi * rest);
    sum = kPi * kPi / (s * s);
    sign = -1;
    x = 1 - x;
  }
  double high = 0;
  for (; x < 10; x += 1) high += 1 / (x * x);
  const double z = 1 / (x * x);
  high +=
      1 / x + 0.5 * z +
      z / x *
          horner(z, 1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510);
  return sum + sign * high;
}

double erfinv(double x) {
  const double a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(kInf, x) : kNaN;
  const double w = -std::log((1 - a) * (1 + a));
  double y;
  if (w < 5) {
    y = a * horner(w - 2.5, 1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087,
                   -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08);
  } else if (w < 16) {
    y = a * horner(std::sqrt(w) - 3, 2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773,
                   -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257);
  } else {
    const double t = -std::log((1 - a) / std::numbers::inv_sqrtpi);
    y = std::sqrt(t - 0.5 * std::log(t));
  }
  for (int i = 0; i < 2; ++i) {
    // By the side on which the difference keeps its digits.
    const double off = a < 0.5 ? std::erf(y) - a : (1 - a) - std::erfc(y);
    const double step = off / (2 * std::numbers::inv_sqrtpi * std::exp(-y * y));
    y -= step / (1 + y * step);
  }
  return std::copysign(y, x);
}

}  // namespace kiln::special
