// SPDX-License-Identifier: Apache-2.0
// The rows. A reference is a lambda that works on double; functions whose f32 result must be exact (bounds of
// zero) are evaluated in their own type, because rounding twice could differ by a bit.
#include "ir/base/intrinsics.h"

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"
#include "ir/base/special.h"

namespace kiln {

namespace {

template <int Args, auto Fn, typename T>
T apply(const T* a) {
  if constexpr (Args == 1) return Fn(a[0]);
  else if constexpr (Args == 2) return Fn(a[0], a[1]);
  else return Fn(a[0], a[1], a[2]);
}
template <int Args, auto Fn>
float through_double(const float* a) {
  double wide[Args];
  std::copy(a, a + Args, wide);
  return static_cast<float>(apply<Args, Fn>(wide));
}

struct Text {
  std::string_view name, cpu, cuda_f32, cuda_f64, doc;
};
// A function approximated by polynomials.
template <int Args, auto Fn>
constexpr Intrinsic smooth(const Text& t, double ulp_f32, double ulp_f64) {
  return {t.name, Args, t.cpu, t.cuda_f32, t.cuda_f64, through_double<Args, Fn>, apply<Args, Fn, double>,
          ulp_f32, ulp_f64, t.doc};
}
// A function that every target computes to the last bit.
template <int Args, auto Fn>
constexpr Intrinsic exact(const Text& t) {
  return {t.name, Args, t.cpu, t.cuda_f32, t.cuda_f64, apply<Args, Fn, float>, apply<Args, Fn, double>, 0,
          0, t.doc};
}

constexpr auto kMax = [](auto x, auto y) {
  if (x != x) return x;
  return x > y ? x : y;
};
constexpr auto kMin = [](auto x, auto y) {
  if (x != x) return x;
  return x < y ? x : y;
};
constexpr auto kRemainder = [](auto x, auto y) {
  const auto m = std::fmod(x, y);
  return m != 0 && (y < 0) != (m < 0) ? m + y : m;
};
// Source: c10::div_floor_floating of PyTorch.
constexpr auto kFloorDivide = [](auto x, auto y) {
  using T = decltype(x);
  if (y == 0) return x / y;
  const T m = std::fmod(x, y);
  T q = (x - m) / y;
  if (m != 0 && (y < 0) != (m < 0)) q -= 1;
  if (q == 0) return std::copysign(T(0), x / y);
  const T whole = std::floor(q);
  return q - whole > T(0.5) ? whole + 1 : whole;
};
constexpr auto kSign = [](auto x) { return static_cast<decltype(x)>((x > 0) - (x < 0)); };

double sigmoid(double x) {
  const double z = std::exp(-std::fabs(x));
  return (x < 0 ? z : 1.0) / (1.0 + z);
}

constexpr Intrinsic kRows[] = {
    exact<1, [](auto x) { return std::fabs(x); }>({"abs", "kn::abs", "fabsf", "fabs", "|x|"}),
    smooth<1, [](double x) { return std::acos(x); }>(
        {"acos", "kn::acos", "acosf", "acos", "arc cosine"}, 1, 1),
    smooth<1, [](double x) { return std::acosh(x); }>(
        {"acosh", "kn::acosh", "acoshf", "acosh", "inverse hyperbolic cosine"}, 1, 2),
    smooth<1, [](double x) { return std::asin(x); }>(
        {"asin", "kn::asin", "asinf", "asin", "arc sine"}, 1, 1),
    smooth<1, [](double x) { return std::asinh(x); }>(
        {"asinh", "kn::asinh", "asinhf", "asinh", "inverse hyperbolic sine"}, 1, 2),
    smooth<1, [](double x) { return std::atan(x); }>(
        {"atan", "kn::atan", "atanf", "atan", "arc tangent"}, 1, 1),
    smooth<2, [](double x, double y) { return std::atan2(x, y); }>(
        {"atan2", "kn::atan2", "atan2f", "atan2", "angle of the point (y, x)"}, 1, 1),
    smooth<1, [](double x) { return std::atanh(x); }>(
        {"atanh", "kn::atanh", "atanhf", "atanh", "inverse hyperbolic tangent"}, 1, 2),
    exact<1, [](auto x) { return std::ceil(x); }>({"ceil", "kn::ceil", "ceilf", "ceil", "up to an integer"}),
    exact<2, [](auto x, auto y) { return std::copysign(x, y); }>(
        {"copysign", "kn::copysign", "copysignf", "copysign", "|x| with the sign of y"}),
    smooth<1, [](double x) { return std::cos(x); }>(
        {"cos", "kn::cos", "cosf", "cos", "cosine of radians"}, 1.5, 1),
    smooth<1, [](double x) { return std::cosh(x); }>(
        {"cosh", "kn::cosh", "coshf", "cosh", "hyperbolic cosine"}, 1, 2),
    smooth<1, special::digamma>(
        {"digamma", "kn::digamma", "kn::digamma", "kn::digamma", "derivative of log |gamma(x)|"}, 1, 8),
    smooth<1, [](double x) { return std::erf(x); }>({"erf", "kn::erf", "erff", "erf", "error function"},
                                                    1.5, 2),
    smooth<1, [](double x) { return std::erfc(x); }>(
        {"erfc", "kn::erfc", "erfcf", "erfc", "1 - erf(x), exact far right"}, 1, 3),
    smooth<1, special::erfinv>(
        {"erfinv", "kn::erfinv", "kn::erfinv", "kn::erfinv", "inverse error function"}, 1, 4),
    smooth<1, [](double x) { return std::exp(x); }>({"exp", "kn::exp", "expf", "exp", "e^x"}, 1, 1),
    smooth<1, [](double x) { return std::exp2(x); }>(
        {"exp2", "kn::exp2", "exp2f", "exp2", "2^x"}, 1, 1),
    smooth<1, [](double x) { return std::expm1(x); }>(
        {"expm1", "kn::expm1", "expm1f", "expm1", "e^x - 1, exact near zero"}, 1.5, 1.5),
    exact<1, [](auto x) { return std::floor(x); }>(
        {"floor", "kn::floor", "floorf", "floor", "down to an integer"}),
    exact<2, kFloorDivide>({"floor_divide", "kn::floor_divide", "kn::floor_divide", "kn::floor_divide",
                            "x / y rounded down, as Python's //"}),
    exact<3, [](auto x, auto y, auto z) { return std::fma(x, y, z); }>(
        {"fma", "kn::fma", "fmaf", "fma", "x y + z, rounded once"}),
    exact<2, [](auto x, auto y) { return std::fmod(x, y); }>(
        {"fmod", "kn::fmod", "fmodf", "fmod", "remainder of x / y with the sign of x"}),
    smooth<1, special::log_gamma>(
        {"lgamma", "kn::lgamma", "lgammaf", "lgamma", "log |gamma(x)|"}, 1, 5),
    smooth<1, [](double x) { return std::log(x); }>({"log", "kn::log", "logf", "log", "natural logarithm"},
                                                    1, 1),
    smooth<1, [](double x) { return std::log10(x); }>(
        {"log10", "kn::log10", "log10f", "log10", "logarithm to base 10"}, 1, 2),
    smooth<1, [](double x) { return std::log1p(x); }>(
        {"log1p", "kn::log1p", "log1pf", "log1p", "log(1 + x), exact near zero"}, 1.5, 1.5),
    smooth<1, [](double x) { return std::log2(x); }>(
        {"log2", "kn::log2", "log2f", "log2", "logarithm to base 2"}, 1, 1),
    exact<2, kMax>({"max", "kn::max", "kn::max", "kn::max", "the larger; NaN if either is"}),
    exact<2, kMin>({"min", "kn::min", "kn::min", "kn::min", "the smaller; NaN if either is"}),
    smooth<2, [](double x, double y) { return std::pow(x, y); }>(
        {"pow", "kn::pow", "powf", "pow", "x^y"}, 1, 1),
    exact<2, kRemainder>(
        {"remainder", "kn::remainder", "kn::remainder", "kn::remainder", "x - floor(x / y) y"}),
    exact<1, [](auto x) { return std::nearbyint(x); }>(
        {"round", "kn::round", "rintf", "rint", "to the nearest integer, halves to even"}),
    exact<1, [](auto x) { return 1 / std::sqrt(x); }>(
        {"rsqrt", "kn::rsqrt", "kn::rsqrt", "kn::rsqrt", "1 / sqrt(x), both steps rounded"}),
    smooth<1, sigmoid>({"sigmoid", "kn::sigmoid", "kn::sigmoid", "kn::sigmoid", "1 / (1 + e^-x)"}, 2, 2),
    exact<1, kSign>({"sign", "kn::sign", "kn::sign", "kn::sign", "-1, 0 or 1; 0 for NaN"}),
    smooth<1, [](double x) { return std::sin(x); }>(
        {"sin", "kn::sin", "sinf", "sin", "sine of radians"}, 1.5, 1),
    smooth<1, [](double x) { return std::sinh(x); }>(
        {"sinh", "kn::sinh", "sinhf", "sinh", "hyperbolic sine"}, 1, 2),
    exact<1, [](auto x) { return std::sqrt(x); }>({"sqrt", "kn::sqrt", "sqrtf", "sqrt", "square root"}),
    smooth<1, [](double x) { return std::tan(x); }>(
        {"tan", "kn::tan", "tanf", "tan", "tangent of radians"}, 1, 1),
    smooth<1, [](double x) { return std::tanh(x); }>(
        {"tanh", "kn::tanh", "tanhf", "tanh", "hyperbolic tangent"}, 2, 2),
    smooth<1, special::trigamma>(
        {"trigamma", "kn::trigamma", "kn::trigamma", "kn::trigamma", "derivative of digamma"}, 1, 5),
    exact<1, [](auto x) { return std::trunc(x); }>(
        {"trunc", "kn::trunc", "truncf", "trunc", "toward zero to an integer"}),
};

}  // namespace

std::span<const Intrinsic> intrinsics() { return kRows; }

const Intrinsic& intrinsic(std::string_view name) {
  const auto at = std::lower_bound(std::begin(kRows), std::end(kRows), name,
                                   [](const Intrinsic& row, std::string_view n) { return row.name < n; });
  KILN_CHECK(at != std::end(kRows) && at->name == name, internal, "intrinsic: no function named '{}'", name);
  return *at;
}

}  // namespace kiln
