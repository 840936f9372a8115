// SPDX-License-Identifier: Apache-2.0
// Special functions at values known to all digits, by their recurrences, and at their poles.
#include "ir/base/special.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kiln {
namespace KILN_FILE {

constexpr double kInf = std::numeric_limits<double>::infinity();

void expect_close(double got, double want, double relative = 4e-15) {
  EXPECT_NEAR(got, want, relative * std::fabs(want));
}

TEST(Special, KnownValues) {
  const double gamma = 0.57721566490153286061, pi = 3.14159265358979323846;
  expect_close(special::digamma(1), -gamma);
  expect_close(special::digamma(0.5), -gamma - 2 * std::log(2.));
  expect_close(special::digamma(2), 1 - gamma);
  expect_close(special::digamma(-0.5), 2 - gamma - 2 * std::log(2.), 3e-14);
  expect_close(special::digamma(1e-300), -1e300);
  expect_close(special::digamma(-1e-300), 1e300);
  expect_close(special::digamma(1e300), std::log(1e300));
  EXPECT_NEAR(special::digamma(1.4616321449683623413), 0, 5e-16);
  expect_close(special::trigamma(1), pi * pi / 6);
  expect_close(special::trigamma(0.5), pi * pi / 2);
  expect_close(special::trigamma(-0.5), pi * pi / 2 + 4);
  expect_close(special::trigamma(1e10), 1e-10, 1e-9);
  expect_close(special::trigamma(1e-100), 1e200);
  expect_close(special::erfinv(0.5), 0.47693627620446987338);
  expect_close(special::erfinv(1e-300), 1e-300 * std::sqrt(pi) / 2);
}

TEST(Special, DifferencesAndInverses) {
  for (double x = -9.75; x < 30; x += 0.40625) {
    if (x == std::floor(x)) continue;
    EXPECT_NEAR(special::digamma(x + 1) - special::digamma(x), 1 / x, 1e-13 * (1 + std::fabs(1 / x))) << x;
    EXPECT_NEAR(special::trigamma(x) - special::trigamma(x + 1), 1 / (x * x),
                2e-13 * (1 + special::trigamma(x)))
        << x;
  }
  for (double y = -5.5; y < 5.5; y += 0.0625) {
    const double x = std::erf(y);
    if (std::fabs(x) == 1) continue;
    EXPECT_NEAR(std::erf(special::erfinv(x)), x, 2e-16) << y;
    if (std::fabs(y) > 2) continue;
    EXPECT_NEAR(special::erfinv(x), y, 1e-14 * std::fabs(y)) << y;
  }
}

TEST(Special, PolesAndEdges) {
  EXPECT_EQ(special::digamma(0.0), -kInf);
  EXPECT_EQ(special::digamma(-0.0), kInf);
  EXPECT_EQ(special::digamma(kInf), kInf);
  EXPECT_EQ(special::trigamma(kInf), 0);
  EXPECT_EQ(special::trigamma(0), kInf);
  EXPECT_EQ(special::trigamma(-3), kInf);
  EXPECT_EQ(special::erfinv(1), kInf);
  EXPECT_EQ(special::erfinv(-1), -kInf);
  EXPECT_TRUE(std::signbit(special::erfinv(-0.0)));
  for (double x : {-1.0, -2.0, -1e300, -kInf, std::nan("")})
    EXPECT_TRUE(std::isnan(special::digamma(x))) << x;
  for (double x : {-kInf, std::nan("")}) EXPECT_TRUE(std::isnan(special::trigamma(x))) << x;
  for (double x : {1.5, -kInf, std::nan("")}) EXPECT_TRUE(std::isnan(special::erfinv(x))) << x;
  EXPECT_EQ(special::log_gamma(0), kInf);
  expect_close(special::log_gamma(-0.5), std::log(2 * std::sqrt(3.14159265358979323846)));
}

}  // namespace KILN_FILE
}  // namespace kiln
