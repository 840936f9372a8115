// SPDX-License-Identifier: Apache-2.0
// digamma, trigamma and erfinv in long double, for tests of what is computed in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>

#include "ir/base/special.h"
#include "tests/codegen/prelude/kernel.h"

namespace kiln::testing {

inline constexpr long double kPiLong = std::numbers::pi_v<long double>;

inline long double digamma(long double x) {
  if (x == 0 || !std::isfinite(x) || (x < 0 && x == std::floor(x)))
    return special::digamma(static_cast<double>(x));
  long double sum = 0;
  if (x < 0) {
    sum = -kPiLong / std::tan(kPiLong * (x - std::round(x)));
    x = 1 - x;
  }
  for (; x < 40; x += 1) sum -= 1 / x;
  const long double z = 1 / (x * x);
  return sum + (std::log(x) - 0.5L / x -
                z * (1.0L / 12 - z * (1.0L / 120 - z * (1.0L / 252 - z * (1.0L / 240 - z * (1.0L / 132))))));
}
inline long double trigamma(long double x) {
  if (!std::isfinite(x) || (x <= 0 && x == std::floor(x))) return special::trigamma(static_cast<double>(x));
  long double sum = 0, sign = 1;
  if (x < 0) {
    const long double s = std::sin(kPiLong * (x - std::round(x)));
    sum = kPiLong * kPiLong / (s * s);
    sign = -1;
    x = 1 - x;
  }
  long double right = 0;
  for (; x < 40; x += 1) right += 1 / (x * x);
  const long double z = 1 / (x * x);
  right += 1 / x + z / 2 +
           z / x * (1.0L / 6 - z * (1.0L / 30 - z * (1.0L / 42 - z * (1.0L / 30 - z * (5.0L / 66)))));
  return sum + sign * right;
}
inline long double erfinv(long double x) {
  const long double a = std::fabs(x);
  long double y = special::erfinv(static_cast<double>(a));
  if (!(a < 1)) return std::copysign(y, x);
  for (int i = 0; i < 2; ++i)
    y -= (a < 0.5L ? std::erf(y) - a : (1 - a) - std::erfc(y)) * std::sqrt(kPiLong) / 2 * std::exp(y * y);
  return std::copysign(y, x);
}

/// digamma crosses zero where a logarithm and what is added to it are equal: there it has digits of those and
/// not of itself. Their size where the value is smaller, else 0.
inline long double summands_of(std::string_view name, long double x, long double truth) {
  const long double size = std::max(1.0L, std::log1p(std::fabs(x)));
  return name == "digamma" && std::fabs(truth) < size ? size : 0;
}
/// The distance of `y` from the truth in units in the last place, of the truth or of what it is a sum of.
template <typename T>
double units_apart(std::string_view name, T x, T y, long double truth) {
  const long double size = summands_of(name, x, truth);
  if (size == 0) return ulp_distance(y, truth);
  return static_cast<double>(std::fabs(y - truth) / (size * std::numeric_limits<T>::epsilon()));
}

}  // namespace kiln::testing
