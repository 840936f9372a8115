// SPDX-License-Identifier: Apache-2.0
// exp, log and their kin, tanh, erf, sigmoid on f32 lanes: branch-free, in f32 arithmetic throughout.
// Polynomials: least squares on Chebyshev nodes with Lawson's reweighting, each coefficient rounded to
// float from the lowest power up and the others refitted (scripts/fit_prelude.py prints every table of
// these files).
// Source: W. J. Cody, W. Waite, Software Manual for the Elementary Functions (1980), for the argument
// reductions.
#pragma once

#include "cpu_target.h"
#include "cpu_vec.h"
#include "polynomial.h"

namespace kn {
namespace detail {

/// 2^k for the integer k held in the low bits of `shifted` = k + kRound (see split_ln2), -126 <= k <= 127.
template <class V> KN_FN V pow2_f32(Like<V, u32> k) { return bits<V>((k + 127u) << 23); }

/// Adding 1.5 * 2^23 rounds a float to an integer (half to even) and leaves the integer in its low bits.
inline constexpr f32 kRoundF32 = 0x1.8p23f;

/// x = k ln 2 + r, |r| <= ln 2 / 2. For |k| < 2^8 the first step is exact, the second rounds once.
template <class V> struct Reduced {
  V k;         ///< as a float
  V shifted;   ///< k + kRound
  V r;
  V low;       ///< what rounding r lost, for who needs it
};
template <class V> KN_FN Reduced<V> split_ln2_f32(V x) {
  const V shifted = fma(x, (V)(0x1.715476p+0f), (V)(kRoundF32));
  const V k = shifted - kRoundF32;
  const V high = fma(k, (V)(-0x1.62e43p-1f), x);
  const V lo = (V)(0x1.05c61p-29f);
  const V r = fma(k, lo, high);
  return {k, shifted, r, fma(k, lo, V(high - r))};
}

/// e^r for |r| <= ln 2 / 2: relative error of the polynomial 2^-28.
template <class V> KN_FN V exp_poly_f32(V r) {
  return horner(r, 1.0f, 1.0f, 0x1.fffffcp-2f, 0x1.55548cp-3f, 0x1.55589ap-5f, 0x1.123da6p-7f,
                0x1.6a6ac2p-10f);
}
/// e^r - 1: relative error 2^-31.
template <class V> KN_FN V expm1_poly_f32(V r) {
  const V q = horner(r, 0.5f, 0x1.555554p-3f, 0x1.5554eep-5f, 0x1.111304p-7f, 0x1.6d468p-10f,
                     0x1.9e21b2p-13f);
  return fma(V(r * r), q, r);
}

/// p 2^k for -252 <= k <= 254, rounded once: the first of the two steps is exact.
template <class V> KN_FN V scale_f32(V p, const Reduced<V>& s) {
  if constexpr (target::has_scalef<V>) {
    return target::scalef(p, s.k);
  } else {
    const Like<V, i32> k = i32_of(u32_of(s.shifted) - u32_of((V)(kRoundF32)));
    const Like<V, i32> half = k >> 1;
    return p * pow2_f32<V>(u32_of(half)) * pow2_f32<V>(u32_of(k - half));
  }
}

/// e^x where e^x is a normal number: one scaling step.
template <class V> KN_FN V exp_normal_f32(V x) {
  const Reduced<V> s = split_ln2_f32(x);
  return exp_poly_f32(s.r) * pow2_f32<V>(u32_of(s.shifted));
}

template <class V> KN_FN V exp_f32(V x) {
  // Beyond these the result is inf or 0; a NaN fails both comparisons and goes through.
  V c = x > 89.0f ? (V)(89.0f) : x;
  c = c < -104.0f ? (V)(-104.0f) : c;
  const Reduced<V> s = split_ln2_f32(c);
  return scale_f32(exp_poly_f32(s.r), s);
}

/// 2^k 2^r with k the nearest integer, r exact.
template <class V> KN_FN V exp2_f32(V x) {
  V c = x > 129.0f ? (V)(129.0f) : x;
  c = c < -151.0f ? (V)(-151.0f) : c;
  const V shifted = c + kRoundF32;
  const V k = shifted - kRoundF32;
  const V p = horner(V(c - k), 1.0f, 0x1.62e43p-1f, 0x1.ebfbep-3f, 0x1.c6b072p-5f, 0x1.3b2a6ep-7f,
                     0x1.5da112p-10f, 0x1.43fbdp-13f, 0x1.e56a92p-17f);
  return scale_f32(p, Reduced<V>{k, shifted, c, c});
}

/// 2 (2^(k-1) (e^r - 1) + (2^(k-1) - 1/2)), so that k = 128 needs no 2^128. Tiny x is its own result.
template <class V> KN_FN V expm1_f32(V x) {
  V c = x > 89.0f ? (V)(89.0f) : x;
  c = c < -20.0f ? (V)(-20.0f) : c;
  const Reduced<V> s = split_ln2_f32(c);
  const V up = pow2_f32<V>(u32_of(s.shifted) - 1u);
  const V t = fma(up, expm1_poly_f32(s.r), V(up - 0.5f));
  return abs(x) < 0x1p-25f ? x : V(t + t);
}

/// x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x > 0; subnormals are scaled up first.
template <class V> struct Split {
  V e;
  V f;
};
template <class V> KN_FN Split<V> split_pow2_f32(V x) {
  const auto tiny = x < 0x1p-126f;
  const V y = tiny ? V(x * 0x1p23f) : x;
  const Like<V, u32> i = u32_of(y) - 0x3f3504f3u;
  const V m = f32_of((i & 0x7fffffu) + 0x3f3504f3u);
  const V e = convert<f32>(Like<V, i32>(i32_of(i) >> 23));
  return {tiny ? V(e - 23.0f) : e, m - 1.0f};
}
/// What log gives outside (0, inf): log(inf) = inf, log(+-0) = -inf, NaN below zero and for NaN.
template <class V> KN_FN V log_edges(V x, V inside) {
  using E = Elem<V>;
  const V inf = (V)(E(__builtin_inf())), nan = (V)(E(__builtin_nan("")));
  const V edge = x == (V)(E(0)) ? V(-inf) : nan;
  const V low = x > (V)(E(0)) ? inside : edge;
  return x == inf ? inf : low;
}
/// log(1 + f) - f + f^2 / 2, relative to log(1 + f) to 2^-30.
template <class V> KN_FN V log1p_tail_f32(V f) {
  const V p = horner(f, 0x1.555546p-2f, -0x1.000002p-2f, 0x1.99a54p-3f, -0x1.555ddap-3f, 0x1.232f92p-3f,
                     -0x1.fbf30ep-4f, 0x1.e72c68p-4f, -0x1.df28b6p-4f, 0x1.14d46p-4f);
  return p * f * (f * f);
}
template <class V> KN_FN V log_f32(V x) {
  const Split<V> s = split_pow2_f32(x);
  V y = fma(s.e, (V)(0x1.7f7d1cp-20f), log1p_tail_f32(s.f));
  y = fma(V(s.f * -0.5f), s.f, y);
  return log_edges(x, fma(s.e, (V)(0x1.62e4p-1f), V(s.f + y)));
}

/// log(1 + f) = f c + f^2 Q(f) in the base of c = high + low, so that f near zero keeps its digits.
template <class V> KN_FN V log2_f32(V x) {
  const Split<V> s = split_pow2_f32(x);
  const V q = horner(s.f, -0x1.715476p-1f, 0x1.ec7088p-2f, -0x1.7154c2p-2f, 0x1.277f38p-2f, -0x1.ec6a1p-3f,
                     0x1.a409e8p-3f, -0x1.6f5eaep-3f, 0x1.609a4ap-3f, -0x1.55402p-3f, 0x1.80e5b8p-4f);
  const V small = fma(s.f, (V)(0x1.4ae0cp-26f), V(V(s.f * s.f) * q));
  return log_edges(x, V(s.e + fma(s.f, (V)(0x1.715476p+0f), small)));
}
template <class V> KN_FN V log10_f32(V x) {
  const Split<V> s = split_pow2_f32(x);
  const V q = horner(s.f, -0x1.bcb7bp-3f, 0x1.287a6ap-3f, -0x1.bcb8c2p-4f, 0x1.63d042p-4f, -0x1.28607cp-4f,
                     0x1.f9ac24p-5f, -0x1.bc83a6p-5f, 0x1.ab1a46p-5f, -0x1.9167c6p-5f, 0x1.b0c4ap-6f);
  V small = fma(s.f, (V)(-0x1.5b235ep-27f), V(V(s.f * s.f) * q));
  small = fma(s.e, (V)(-0x1.95ec1p-19f), small);
  return log_edges(x, fma(s.e, (V)(0x1.3442p-2f), fma(s.f, (V)(0x1.bcb7b2p-2f), small)));
}

/// 1 + x = 2^e (1 + f) with f = x 2^-e + (2^-e - 1) rounded once; where 2^-e is no normal number, x + 1 = x.
template <class V> KN_FN V log1p_f32(V x) {
  const V u = x + 1.0f;
  const Like<V, u32> i = u32_of(u) - 0x3f3504f3u;
  const Like<V, u32> e = i & 0xff800000u;
  const V down = f32_of(0x3f800000u - e);
  const V m = f32_of((i & 0x7fffffu) + 0x3f3504f3u);
  const V f = x > 0x1p30f ? V(m - 1.0f) : fma(x, down, V(down - 1.0f));
  const V k = convert<f32>(Like<V, i32>(i32_of(e) >> 23));
  V y = fma(k, (V)(0x1.7f7d1cp-20f), log1p_tail_f32(f));
  y = fma(V(f * -0.5f), f, y);
  return copysign(log_edges(u, fma(k, (V)(0x1.62e4p-1f), V(f + y))), x);
}

/// With t = e^2|x| - 1: for |x| < 0.35 h (1 - t / (t + 2)), h = t / 2; above, 1 - 2 / (t + 2).
template <class V> KN_FN V tanh_f32(V x) {
  const V a = abs(x);
  const V twice = a + a;
  const Reduced<V> s = split_ln2_f32(twice > 20.0f ? (V)(20.0f) : twice);
  const V up = pow2_f32<V>(u32_of(s.shifted));
  const V t = fma(up, expm1_poly_f32(s.r), V(up - 1.0f));
  const auto small = a < 0.55f;
  const V h = small ? V(t * 0.5f) : (V)(1.0f);
  const V q = (small ? t : (V)(2.0f)) / (t + 2.0f);
  return copysign(fma(V(-h), q, h), x);
}

/// With z = e^-|x| and u = z / (1 + z): 1 - u for x >= 0 and z (1 - u) below. The far left tail keeps its
/// digits, and the roundings of u reach the result halved.
template <class V> KN_FN V sigmoid_f32(V x) {
  const V z = exp_f32(V(-abs(x)));
  const V u = z / (1.0f + z);
  const V m = x < 0.0f ? z : (V)(1.0f);
  return fma(V(-m), u, m);
}

/// |x| < 1: x + x P(x^2). Above: 1 - e^L(|x|), L a polynomial for log(erfc).
/// Source: the split is N. Juffa's (public posts on a vectorisable erff); coefficients are ours.
template <class V> KN_FN V erf_f32(V x) {
  const V a = abs(x);
  const V near = fma(horner(V(a * a), 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2cfp-4f, -0x1.b7f858p-6f,
                            0x1.53ff92p-8f, -0x1.a3c95cp-11f, 0x1.48edeep-14f), a, a);
  const V t = a > 4.0f ? (V)(4.0f) : a;
  const V log_erfc = horner(t, -0x1.6396f6p-12f, -0x1.20898ep+0f, -0x1.46b8cep-1f, -0x1.a662p-4f,
                            0x1.65e7e2p-6f, -0x1.82947cp-9f, 0x1.873cf8p-13f);
  const V far = 1.0f - exp_normal_f32(log_erfc);
  return copysign(a < 1.0f ? near : far, x);
}

}  // namespace detail
}  // namespace kn
