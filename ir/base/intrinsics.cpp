// SPDX-License-Identifier: Apache-2.0
// The rows. A reference is a lambda that works on double; functions whose f32 result must be exact (bounds of
// zero) are evaluated in their own type, because rounding twice could differ by a bit.
#include "ir/base/intrinsics.h"

#include <algorithm>
#include <cmath>

#include "ir/base/error.h"

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
constexpr auto kSign = [](auto x) { return static_cast<decltype(x)>((x > 0) - (x < 0)); };

double sigmoid(double x) {
  const double z = std::exp(-std::fabs(x));
  return (x < 0 ? z : 1.0) / (1.0 + z);
}

constexpr Intrinsic kRows[] = {
    exact<1, [](auto x) { return std::fabs(x); }>({"abs", "kn::abs", "fabsf", "fabs", "|x|"}),
    exact<1, [](auto x) { return std::ceil(x); }>({"ceil", "kn::ceil", "ceilf", "ceil", "up to an integer"}),
    exact<2, [](auto x, auto y) { return std::copysign(x, y); }>(
        {"copysign", "kn::copysign", "copysignf", "copysign", "|x| with the sign of y"}),
    smooth<1, [](double x) { return std::erf(x); }>({"erf", "kn::erf", "erff", "erf", "error function"},
                                                    1.5, 2),
    smooth<1, [](double x) { return std::exp(x); }>({"exp", "kn::exp", "expf", "exp", "e^x"}, 1, 1),
    exact<1, [](auto x) { return std::floor(x); }>(
        {"floor", "kn::floor", "floorf", "floor", "down to an integer"}),
    exact<3, [](auto x, auto y, auto z) { return std::fma(x, y, z); }>(
        {"fma", "kn::fma", "fmaf", "fma", "x y + z, rounded once"}),
    smooth<1, [](double x) { return std::log(x); }>({"log", "kn::log", "logf", "log", "natural logarithm"},
                                                    1, 1),
    exact<2, kMax>({"max", "kn::max", "kn::max", "kn::max", "the larger; NaN if either is"}),
    exact<2, kMin>({"min", "kn::min", "kn::min", "kn::min", "the smaller; NaN if either is"}),
    exact<1, [](auto x) { return std::nearbyint(x); }>(
        {"round", "kn::round", "rintf", "rint", "to the nearest integer, halves to even"}),
    exact<1, [](auto x) { return 1 / std::sqrt(x); }>(
        {"rsqrt", "kn::rsqrt", "kn::rsqrt", "kn::rsqrt", "1 / sqrt(x), both steps rounded"}),
    smooth<1, sigmoid>({"sigmoid", "kn::sigmoid", "kn::sigmoid", "kn::sigmoid", "1 / (1 + e^-x)"}, 2, 2),
    exact<1, kSign>({"sign", "kn::sign", "kn::sign", "kn::sign", "-1, 0 or 1; 0 for NaN"}),
    exact<1, [](auto x) { return std::sqrt(x); }>({"sqrt", "kn::sqrt", "sqrtf", "sqrt", "square root"}),
    smooth<1, [](double x) { return std::tanh(x); }>(
        {"tanh", "kn::tanh", "tanhf", "tanh", "hyperbolic tangent"}, 2, 2),
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
