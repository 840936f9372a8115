// SPDX-License-Identifier: Apache-2.0
// exp, log and their kin, tanh, erf, sigmoid on f64 lanes, branch-free. The methods are those of
// cpu_math_f32.h with more terms; log is fdlibm's.
// Source: W. J. Cody, W. Waite (1980); fdlibm e_log.c (Sun Microsystems, 1993) for the form of log.
#pragma once

#include "cpu_math_f32.h"

namespace kn::detail {

inline constexpr f64 kRoundF64 = 0x1.8p52;

template <class V> KN_FN V pow2_f64(Like<V, u64> k) { return bits<V>((k + 1023u) << 52); }

/// x = k ln 2 + r. The first part of ln 2 has 42 bits, so that k times it is exact for |k| < 2^11.
template <class V> KN_FN Reduced<V> split_ln2_f64(V x) {
  const V shifted = fma(x, (V)(0x1.71547652b82fep+0), (V)(kRoundF64));
  const V k = shifted - kRoundF64;
  const V high = fma(k, (V)(-0x1.62e42fefa38p-1), x);
  const V lo = (V)(-0x1.ef35793c7673p-45);
  const V r = fma(k, lo, high);
  return {k, shifted, r, fma(k, lo, V(high - r))};
}

/// e^r for |r| <= ln 2 / 2: relative error of the polynomial 2^-63.
template <class V> KN_FN V exp_poly_f64(V r) {
  return horner(r, 1.0, 1.0, 0.5, 0x1.555555555555bp-3, 0x1.5555555555539p-5, 0x1.111111110edabp-7,
                0x1.6c16c16c2354dp-10, 0x1.a01a01b318e29p-13, 0x1.a01a01645cab2p-16, 0x1.71ddf0edd63b8p-19,
                0x1.27e567f276352p-22, 0x1.af6ac05f8ee9dp-26, 0x1.1e9e598e270e7p-29);
}
/// e^r - 1: relative error 2^-61.
template <class V> KN_FN V expm1_poly_f64(const Reduced<V>& s) {
  const V r = s.r;
  const V q = horner(r, 0.5, 0x1.5555555555559p-3, 0x1.555555555554cp-5, 0x1.111111110f64bp-7,
                     0x1.6c16c16c1b327p-10, 0x1.a01a01b00a52p-13, 0x1.a01a018b482d1p-16,
                     0x1.71ddf7f822582p-19,
                     0x1.27e51969ca95fp-22, 0x1.af5f5e1a5c2d3p-26, 0x1.1f107bca3074ep-29);
  return fma(V(r * r), q, s.low) + r;
}

/// p 2^k, rounded once: the first of the two steps is exact.
template <class V> KN_FN V scale_f64(V p, const Reduced<V>& s) {
  if constexpr (target::has_scalef<V>) {
    return target::scalef(p, s.k);
  } else {
    const Like<V, i64> k = i64_of(u64_of(s.shifted) - u64_of((V)(kRoundF64)));
    const Like<V, i64> half = k >> 1;
    return p * pow2_f64<V>(u64_of(half)) * pow2_f64<V>(u64_of(k - half));
  }
}
/// e^x where e^x is a normal number.
template <class V> KN_FN V exp_normal_f64(V x) {
  const Reduced<V> s = split_ln2_f64(x);
  return exp_poly_f64(s.r) * pow2_f64<V>(u64_of(s.shifted));
}
template <class V> KN_FN V exp_f64(V x) {
  V c = x > 710.0 ? (V)(710.0) : x;
  c = c < -746.0 ? (V)(-746.0) : c;
  const Reduced<V> s = split_ln2_f64(c);
  return scale_f64(exp_poly_f64(s.r), s);
}

/// 2^k 2^r with k the nearest integer, r exact.
template <class V> KN_FN V exp2_f64(V x) {
  V c = x > 1025.0 ? (V)(1025.0) : x;
  c = c < -1076.0 ? (V)(-1076.0) : c;
  const V shifted = c + kRoundF64;
  const V k = shifted - kRoundF64;
  const V p = horner(V(c - k), 1.0, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58ep-3, 0x1.c6b08d704a185p-5,
                     0x1.3b2ab6fba514p-7, 0x1.5d87fe788897fp-10, 0x1.430912f79301dp-13,
                     0x1.ffcbfcdb2a4ecp-17, 0x1.62c025c039c97p-20, 0x1.b5242511fc196p-24,
                     0x1.e4c2264ad24a7p-28, 0x1.eaf88df480b8bp-32, 0x1.d64bb07c8f6bap-36);
  return scale_f64(p, Reduced<V>{k, shifted, c, c});
}

/// x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x > 0.
template <class V> KN_FN Split<V> split_pow2_f64(V x) {
  const auto tiny = x < 0x1p-1022;
  const V y = tiny ? V(x * 0x1p52) : x;
  const Like<V, u64> i = u64_of(y) - 0x3fe6a09e667f3bcdul;
  const V m = f64_of((i & 0xffffffffffffful) + 0x3fe6a09e667f3bcdul);
  const V e = convert<f64>(Like<V, i64>(i64_of(i) >> 52));
  return {tiny ? V(e - 52.0) : e, m - 1.0};
}
/// With s = f / (2 + f): log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)), relative error 2^-59.
template <class V> struct LogParts {
  V half_square;
  V tail;  ///< s (f^2/2 + R)
};
template <class V> KN_FN LogParts<V> log1p_parts_f64(V f) {
  const V s = f / (f + 2.0);
  const V z = s * s;
  const V r = z * horner(z, 0x1.5555555555592p-1, 0x1.999999997ff48p-2, 0x1.24924941ddb5p-2,
                         0x1.c71c5217a56b8p-3,
                         0x1.74663c34b05a3p-3, 0x1.39a1fbe3a2cedp-3, 0x1.2f02f799909e5p-3);
  const V h = V(f * 0.5) * f;
  return {h, s * (h + r)};
}
template <class V> KN_FN V log_f64(V x) {
  const Split<V> s = split_pow2_f64(x);
  const LogParts<V> p = log1p_parts_f64(s.f);
  const V low = fma(s.e, (V)(0x1.ef35793c7673p-45), p.tail);
  return log_edges(x, fma(s.e, (V)(0x1.62e42fefa38p-1), V(s.f - (p.half_square - low))));
}

/// See log1p_f32.
template <class V> KN_FN V log1p_f64(V x) {
  const V u = x + 1.0;
  const Like<V, u64> i = u64_of(u) - 0x3fe6a09e667f3bcdul;
  const Like<V, u64> e = i & 0xfff0000000000000ul;
  const V down = f64_of(0x3ff0000000000000ul - e);
  const V m = f64_of((i & 0xffffffffffffful) + 0x3fe6a09e667f3bcdul);
  const V f = x > 0x1p60 ? V(m - 1.0) : fma(x, down, V(down - 1.0));
  const V k = convert<f64>(Like<V, i64>(i64_of(e) >> 52));
  const LogParts<V> p = log1p_parts_f64(f);
  const V low = fma(k, (V)(0x1.ef35793c7673p-45), p.tail);
  const V y = fma(k, (V)(0x1.62e42fefa38p-1), V(f - (p.half_square - low)));
  return copysign(log_edges(u, y), x);
}

/// expm1 where neither the result overflows nor x is tiny: 2^k (e^r - 1) + (2^k - 1).
template <class V> KN_FN V expm1_normal_f64(V x) {
  const Reduced<V> s = split_ln2_f64(x);
  const V up = pow2_f64<V>(u64_of(s.shifted));
  return fma(up, expm1_poly_f64(s), V(up - 1.0));
}

/// See expm1_f32.
template <class V> KN_FN V expm1_f64(V x) {
  V c = x > 710.0 ? (V)(710.0) : x;
  c = c < -40.0 ? (V)(-40.0) : c;
  const Reduced<V> s = split_ln2_f64(c);
  const V up = pow2_f64<V>(u64_of(s.shifted) - 1u);
  const V t = fma(up, expm1_poly_f64(s), V(up - 0.5));
  return abs(x) < 0x1p-54 ? x : V(t + t);
}

/// With t = e^2|x| - 1: for |x| < 0.35 h (1 - t / (t + 2)), h = t / 2; above, 1 - 2 / (t + 2).
template <class V> KN_FN V tanh_f64(V x) {
  const V a = abs(x);
  const V twice = a + a;
  const V t = expm1_normal_f64(twice > 44.0 ? (V)(44.0) : twice);
  const auto small = a < 0.55;
  const V h = small ? V(t * 0.5) : (V)(1.0);
  const V q = (small ? t : (V)(2.0)) / (t + 2.0);
  return copysign(fma(V(-h), q, h), x);
}

template <class V> KN_FN V sigmoid_f64(V x) {
  const V z = exp_f64(V(-abs(x)));
  const V u = z / (1.0 + z);
  const V m = x < 0.0 ? z : (V)(1.0);
  return fma(V(-m), u, m);
}

/// |x| < 1: x + x P(x^2). Above: 1 - e^L(|x|), L a polynomial for log(erfc).
template <class V> KN_FN V erf_f64(V x) {
  const V a = abs(x);
  const V near = fma(horner(V(a * a), 0x1.06eba8214db69p-3, -0x1.812746b037a15p-2, 0x1.ce2f21a044643p-4,
                            -0x1.b82ce312ee1b5p-6, 0x1.565bcd1b8bf55p-8, -0x1.c02db60f30204p-11,
                            0x1.f9a35c18edb4fp-14, -0x1.f4d5e7a50cb7ep-17, 0x1.ba0efa7adbe64p-20,
                            -0x1.609a5f1a334c5p-23, 0x1.035d3d408ff18p-26, -0x1.64934bc24d46p-30,
                            0x1.7715198d69bc4p-34), a, a);
  const V t = a > 6.0 ? (V)(6.0) : a;
  const V log_erfc =
      horner(t, -0x1.dadd7598640a4p-26, -0x1.20dd70d3a8ebap+0, -0x1.45f326dd9e44fp-1, -0x1.a4f30940b89b4p-4,
             0x1.39650be4d31a7p-6, 0x1.a8195ee9bb81bp-13, -0x1.b70eb50ef845p-10, 0x1.218ca8e50ff18p-11,
             0x1.725e2eae49479p-16, -0x1.d0d5763950ab1p-14, 0x1.0fb69a6781ba6p-14, -0x1.977d96726edabp-16,
             0x1.c772cbcd9b7fbp-18, -0x1.8ab1cf3e489fbp-20, 0x1.0a9311712415ap-22, -0x1.14b7861e0782bp-25,
             0x1.ab7bd04f687b3p-29, -0x1.cf536fadb5a4p-33, 0x1.3a722282b1f66p-37, -0x1.921e3bc201a89p-43);
  const V far = 1.0 - exp_normal_f64(log_erfc);
  return copysign(a < 1.0 ? near : far, x);
}

}  // namespace kn::detail
