// SPDX-License-Identifier: Apache-2.0
// The words of values, each with what it means written in plain C++; bounds of the functions on a GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tests/codegen/prelude/special_truth.h"

namespace kiln::testing {

/// An expression of a and c, packs of W lanes of T, and the same for one lane.
template <typename T, typename Out = T>
struct Meaning {
  const char* text;
  Out (*host)(T a, T c);
};

// What PyTorch says; integers wrap, and a quotient of them by zero is zero before it is rounded down.
template <typename T>
struct Plain {
  using U =
      typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
  static constexpr bool kReal = std::is_floating_point_v<T>;

  static T quotient(T a, T b) {
    if (b == 0) return 0;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U(0) - static_cast<U>(a));
    return static_cast<T>(a / b);
  }
  static T fmod(T a, T b) {
    if constexpr (kReal) return std::fmod(a, b);
    else return b == 0 ? a : std::is_signed_v<T> && b == static_cast<T>(-1) ? T(0) : static_cast<T>(a % b);
  }
  static T remainder(T a, T b) {
    const T m = fmod(a, b);
    return m != 0 && (b < 0) != (m < 0) ? static_cast<T>(m + b) : m;
  }
  static T floor_divide(T a, T b) {
    const T m = fmod(a, b);
    const bool turns = m != 0 && (b < 0) != (m < 0);
    if constexpr (!kReal) return b == 0 ? T(0) : static_cast<T>(quotient(a, b) - (turns ? 1 : 0));
    else {
      if (b == 0) return a / b;
      const T q = (a - m) / b - (turns ? 1 : 0);
      if (q == 0) return std::copysign(T(0), a / b);
      const T whole = std::floor(q);
      return q - whole > T(0.5) ? whole + 1 : whole;
    }
  }
  static T power(T x, T n) {
    if (std::is_signed_v<T> && n < 0)
      return x == 1 ? T(1) : x == static_cast<T>(-1) ? static_cast<T>(n % 2 ? -1 : 1) : T(0);
    U r = 1, base = static_cast<U>(x);
    for (U left = static_cast<U>(n); left; left = static_cast<U>(left >> 1)) {
      if (left & 1) r = static_cast<U>(r * base);
      base = static_cast<U>(base * base);
    }
    return static_cast<T>(r);
  }
  static bool in(T n) { return n >= 0 && static_cast<uint64_t>(n) < sizeof(T) * 8; }
};

template <typename T>
std::vector<Meaning<T>> numbers() {
  using P = Plain<T>;
  using U = typename P::U;
  std::vector<Meaning<T>> w = {
      {"add(a, c)", [](T a, T c) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(c)); }},
      {"sub(a, c)", [](T a, T c) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(c)); }},
      {"mul(a, c)", [](T a, T c) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(c)); }},
      {"add(mul_rounded(a, c), a)",
       [](T a, T c) {
         const U product = static_cast<U>(static_cast<U>(a) * static_cast<U>(c));
         return static_cast<T>(product + static_cast<U>(a));
       }},
      {"neg(a)",
       [](T a, T) { return P::kReal ? static_cast<T>(-a) : static_cast<T>(U(0) - static_cast<U>(a)); }},
      {"abs(a)",
       [](T a, T) {
         return P::kReal ? static_cast<T>(std::fabs(a))
                : a < 0  ? static_cast<T>(U(0) - static_cast<U>(a))
                         : a;
       }},
      {"sign(a)", [](T a, T) { return static_cast<T>((a > 0) - (a < 0)); }},
      {"max(a, c)", [](T a, T c) { return a != a || a > c ? a : c; }},
      {"min(a, c)", [](T a, T c) { return a != a || a < c ? a : c; }},
      {"fmod(a, c)", P::fmod},
      {"remainder(a, c)", P::remainder},
      {"floor_divide(a, c)", P::floor_divide},
      {"select(lt(a, c), a, c)", [](T a, T c) { return a < c ? a : c; }},
      {"broadcast<W>(T(3))", [](T, T) { return T(3); }}};
  if constexpr (P::kReal) {
    const Meaning<T> more[] = {{"a + c", [](T a, T c) { return a + c; }},
                               {"a - c", [](T a, T c) { return a - c; }},
                               {"a * c", [](T a, T c) { return a * c; }},
                               {"a / c", [](T a, T c) { return a / c; }},
                               {"-a", [](T a, T) { return -a; }},
                               {"trunc_divide(a, c)", [](T a, T c) { return std::trunc(a / c); }},
                               {"copysign(V(kn::inf<T>), a)",
                                [](T a, T) { return std::copysign(std::numeric_limits<T>::infinity(), a); }},
                               {"fma(a, c, a)", [](T a, T c) { return std::fma(a, c, a); }}};
    w.insert(w.end(), std::begin(more), std::end(more));
  } else {
    const Meaning<T> more[] = {
        {"V(a & c)", [](T a, T c) { return static_cast<T>(a & c); }},
        {"V(a | c)", [](T a, T c) { return static_cast<T>(a | c); }},
        {"V(a ^ c)", [](T a, T c) { return static_cast<T>(a ^ c); }},
        {"V(~a)", [](T a, T) { return static_cast<T>(~a); }},
        {"trunc_divide(a, c)", P::quotient},
        {"pow(a, c)", P::power},
        {"pow_integer(a, c)", P::power},
        {"shift_left(a, c)",
         [](T a, T c) { return P::in(c) ? static_cast<T>(static_cast<U>(a) << c) : T(0); }},
        {"shift_right(a, c)",
         [](T a, T c) { return P::in(c) ? static_cast<T>(a >> c) : static_cast<T>(a < 0 ? -1 : 0); }}};
    w.insert(w.end(), std::begin(more), std::end(more));
  }
  return w;
}

/// Masks, as numbers of i32.
template <typename T>
std::vector<Meaning<T, int32_t>> masks() {
  return {
      {"eq(a, c)", [](T a, T c) { return int32_t{a == c}; }},
      {"ne(a, c)", [](T a, T c) { return int32_t{a != c}; }},
      {"lt(a, c)", [](T a, T c) { return int32_t{a < c}; }},
      {"le(a, c)", [](T a, T c) { return int32_t{a <= c}; }},
      {"gt(a, c)", [](T a, T c) { return int32_t{a > c}; }},
      {"ge(a, c)", [](T a, T c) { return int32_t{a >= c}; }},
      {"isnan(a)", [](T a, T) { return int32_t{a != a}; }},
      {"isinf(abs(convert<f64>(a)))", [](T a, T) { return int32_t{std::isinf(static_cast<double>(a))}; }},
      {"isfinite(convert<f64>(a))", [](T a, T) { return int32_t{std::isfinite(static_cast<double>(a))}; }},
      {"isnan(max(convert<f32>(a), kn::nan<f32>))", [](T, T) { return 1; }},
      {"to_mask(a)", [](T a, T) { return int32_t{a != 0}; }},
      {"!to_mask(a)", [](T a, T) { return int32_t{a == 0}; }},
      {"to_mask(a) & to_mask(c)", [](T a, T c) { return int32_t{a != 0 && c != 0}; }},
      {"to_mask(a) | to_mask(c)", [](T a, T c) { return int32_t{a != 0 || c != 0}; }},
      {"to_mask(a) ^ to_mask(c)", [](T a, T c) { return int32_t{(a != 0) != (c != 0)}; }},
      {"select(to_mask(a), to_mask(c), ge(a, c))",
       [](T a, T c) { return int32_t{a != 0 ? c != 0 : a >= c}; }},
      {"lt(to_mask(a), to_mask(c))", [](T a, T c) { return int32_t{a == 0 && c != 0}; }},
      {"broadcast_mask<W>(true)", [](T, T) { return 1; }}};
}

/// What the CUDA C++ Programming Guide says a GPU's function is at most away from the rounded value, in units
/// in the last place, and the function itself. Source: "Mathematical Functions", tables of standard
/// functions.
struct GpuBound {
  std::string_view name;
  double f32, f64;
  long double (*true_value)(long double, long double);
};
#define KILN_GPU_BOUND(name, f32, f64)                                                      \
  {                                                                                         \
#name, f32, f64, [](long double x, long double) -> long double { return std::name(x); } \
  }
inline const GpuBound kGpuBounds[] = {
    KILN_GPU_BOUND(acos, 2, 2),
    KILN_GPU_BOUND(acosh, 4, 2),
    KILN_GPU_BOUND(asin, 2, 2),
    KILN_GPU_BOUND(asinh, 3, 3),
    KILN_GPU_BOUND(atan, 2, 2),
    KILN_GPU_BOUND(atanh, 3, 2),
    KILN_GPU_BOUND(cos, 2, 2),
    KILN_GPU_BOUND(cosh, 2, 1),
    KILN_GPU_BOUND(erf, 2, 2),
    KILN_GPU_BOUND(erfc, 4, 5),
    KILN_GPU_BOUND(exp, 2, 1),
    KILN_GPU_BOUND(exp2, 2, 1),
    KILN_GPU_BOUND(expm1, 1, 1),
    KILN_GPU_BOUND(log, 1, 1),
    KILN_GPU_BOUND(log10, 2, 1),
    KILN_GPU_BOUND(log1p, 1, 1),
    KILN_GPU_BOUND(log2, 1, 1),
    KILN_GPU_BOUND(sin, 2, 2),
    KILN_GPU_BOUND(sinh, 3, 2),
    KILN_GPU_BOUND(tan, 4, 2),
    KILN_GPU_BOUND(tanh, 2, 1),
    // Those of negative numbers near its zeros are not bounded; the test leaves them out.
    {"lgamma", 6, 4,
     [](long double x, long double) {
       int sign;
       return lgammal_r(x, &sign);
     }},
    // Ours, of a logarithm, quotients and sums.
    {"digamma", 1, 8, [](long double x, long double) { return digamma(x); }},
    {"trigamma", 1, 5, [](long double x, long double) { return trigamma(x); }},
    {"erfinv", 1, 4, [](long double x, long double) { return erfinv(x); }},
    {"atan2", 3, 2, [](long double x, long double y) { return std::atan2(x, y); }},
    {"pow", 4, 2, [](long double x, long double y) { return std::pow(x, y); }},
    // Of exp, a sum, a quotient and a product.
    {"sigmoid", 4, 4, [](long double x, long double) {
       const long double z = std::exp(-std::fabs(x));
       return (x < 0 ? z : 1) / (1 + z);
     }}};
#undef KILN_GPU_BOUND

}  // namespace kiln::testing
