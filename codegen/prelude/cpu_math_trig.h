// SPDX-License-Identifier: Apache-2.0
// sin, cos, tan: x = q pi/2 + r, |r| <= pi/4, then polynomials in r chosen by q. Branch-free up to 2^17
// (f32) and 2^20 (f64); beyond, lanes are reduced one by one.
// Source: W. J. Cody, W. Waite (1980) for the split of pi/2; M. Payne, R. Hanek, Radian reduction for
// trigonometric functions, SIGNUM 18 (1983), for huge arguments.
#pragma once

#include "cpu_libm.h"
#include "cpu_math_f64.h"
#include "cpu_reduce.h"

namespace kn {

namespace detail {

/// The quadrant in the low bits of q, and the rest.
template <class V> struct Angle {
  Like<V, u32> q;
  V r;
};

struct Turn {
  u32 q;
  f64 r;
};
/// 2^17 < |x| < inf: the product of the 24 bits of x with 96 bits of 2/pi, picked so that what lies above
/// is a multiple of 4 and what lies below is too small to matter.
static __attribute__((noinline, cold)) Turn reduce_huge(f32 x) {
  // 2/pi / 4 after a word of zeros: the first two bits of a product are the quadrant.
  constexpr u32 kBits[] = {0,          0x28be60db, 0x9391054a, 0x7f09d5f4,
                           0x7d4d3770, 0x36d8a566, 0x4f10e410, 0x7f9458ea};
  const u32 i = bits<u32>(x);
  const u32 e = ((i >> 23) & 255) - 126;  // |x| = m 2^(e - 32)
  const u64 m = (i << 8) | 0x80000000u;
  // The 32 bits just above the point of 2^e times that constant, and 64 below; what is higher gives
  // multiples of 4.
  const u32 at = e >> 5, by = e & 31;
  u32 w[3];
  for (int k = 0; k < 3; ++k)
    w[k] = u32((((u64(kBits[at + k]) << 32) | kBits[at + k + 1]) << by) >> 32);
  u64 p = (m * w[2]) >> 32;
  p += m * w[1];
  p += (m * w[0]) << 32;
  // p counts quadrants in units of 2^-62.
  const i64 rest = i64(p << 2) >> 2;
  const u32 q = u32((p - u64(rest)) >> 62);
  const f64 r = f64(rest) * 0x1.921fb54442d18p-62;
  return (i >> 31) ? Turn{0u - q, -r} : Turn{q, r};
}

/// Puts q and r right in the lanes where |x| > 2^17.
template <class V, class R> KN_FN void reduce_huge_lanes(V x, Like<V, u32>& q, R& r) {
  if (__builtin_expect(!any(mask<width<V>>(abs(x) > 0x1p17f)), 1)) return;
  for (int i = 0; i < width<V>; ++i) {
    const f32 at = lane(x, i);
    if (!(__builtin_fabsf(at) > 0x1p17f)) continue;
    const bool finite = __builtin_fabsf(at) < __builtin_inff();
    // inf - inf is the NaN that sin(inf) is.
    const Turn t = finite ? reduce_huge(at) : Turn{0, f64(at) - f64(at)};
    set_lane(q, i, t.q);
    set_lane(r, i, Elem<R>(t.r));
  }
}

template <class V> KN_FN Angle<V> reduce_f32(V x) {
  const V shifted = fma(x, (V)(0x1.45f306p-1f), (V)(kRoundF32));
  const V n = shifted - kRoundF32;
  V r = fma(n, (V)(-0x1.921fb6p+0f), x);
  r = fma(n, (V)(0x1.777a5cp-25f), r);
  r = fma(n, (V)(0x1.ee59dap-50f), r);
  Like<V, u32> q = u32_of(shifted);
  reduce_huge_lanes(x, q, r);
  return {q, r};
}

template <class V> KN_FN V sin_poly_f32(V r, V z) {
  const V s = horner(z, -0x1.555556p-3f, 0x1.11117p-7f, -0x1.a054a8p-13f, 0x1.7ae9fp-19f);
  return fma(V(s * z), r, r);
}
template <class V> KN_FN V cos_poly_f32(V z) {
  const V c = horner(z, 0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e818p-16f);
  return fma(z, fma(z, c, (V)(-0.5f)), (V)(1.0f));
}
/// sin where q is even, cos where it is odd, negated where q & 2.
template <class V> KN_FN V sin_of_f32(Like<V, u32> q, V r) {
  const V z = r * r;
  const V v = (q & 1u) != 0u ? cos_poly_f32(z) : sin_poly_f32(r, z);
  return f32_of(u32_of(v) ^ ((q & 2u) << 30));
}
template <class V> KN_FN V sin_f32(V x) {
  const Angle<V> a = reduce_f32(x);
  return abs(x) < 0x1p-13f ? x : sin_of_f32(a.q, a.r);
}
template <class V> KN_FN V cos_f32(V x) {
  const Angle<V> a = reduce_f32(x);
  return sin_of_f32(Like<V, u32>(a.q + 1u), a.r);
}
/// tan r where q is even, -1 / tan r where it is odd; in f64, because rounding r to f32 would be doubled.
template <class V> KN_FN V tan_f32(V x) {
  using D = Like<V, f64>;
  const D d = convert<f64>(x);
  const V shifted = fma(x, (V)(0x1.45f306p-1f), (V)(kRoundF32));
  const D n = convert<f64>(V(shifted - kRoundF32));
  D r = fma(n, (D)(-0x1.921fb54442d18p+0), d);
  r = fma(n, (D)(-0x1.1a62633145c07p-54), r);
  Like<V, u32> q = u32_of(shifted);
  reduce_huge_lanes(x, q, r);
  const D z = r * r;
  const D t = horner(z, 0x1.55556p-2, 0x1.110d9ep-3, 0x1.bad9e2p-5, 0x1.5cbe02p-6, 0x1.62e1a4p-7,
                     0x1.892388p-14, 0x1.1ebfb2p-8);
  const D v = fma(D(t * z), r, r);
  const auto odd = wide<D>(mask<width<V>>((q & 1u) != 0u));
  const V y = convert<f32>(odd ? D(-1.0 / v) : v);
  return abs(x) < 0x1p-14f ? x : y;
}

/// r + low, |r| <= pi/4, to twice the precision.
template <class V> struct Angle64 {
  Like<V, u64> q;
  V r, low;
};
template <class V> KN_FN Angle64<V> reduce_f64(V x) {
  const V shifted = fma(x, (V)(0x1.45f306dc9c883p-1), (V)(kRoundF64));
  const V n = shifted - kRoundF64;
  const V high = fma(n, (V)(-0x1.921fb54442d18p+0), x);  // exact
  const V r = fma(n, (V)(-0x1.1a62633145c07p-54), high);
  const V lost = fma(n, (V)(-0x1.1a62633145c07p-54), V(high - r));
  return {u64_of(shifted), r, fma(n, (V)(0x1.f1976b7ed8fbcp-110), lost)};
}
template <class V> KN_FN V sin_of_f64(Like<V, u64> q, V r, V low) {
  const V z = r * r;
  const V s = horner(z, -0x1.5555555555555p-3, 0x1.111111111106fp-7, -0x1.a01a01a00000ep-13,
                     0x1.71de3a364731fp-19, -0x1.ae64301288e63p-26, 0x1.610c3da39e08bp-33,
                     -0x1.a1412d28448ecp-41);
  // sin(r + low) = sin r + low cos r; cos r = 1 - z/2 is near enough.
  const V sin = r + fma(V(s * z), r, fma(V(z * -0.5), low, low));
  const V c = horner(z, 0x1.5555555555555p-5, -0x1.6c16c16c16b35p-10, 0x1.a01a019ffdd63p-16,
                     -0x1.27e4fb5b9e93fp-22, 0x1.1eed7164956bbp-29, -0x1.93769eef31dd9p-37,
                     0x1.9ec24363ee111p-45);
  const V h = z * 0.5, w = 1.0 - h;
  const V cos = w + (((1.0 - w) - h) + fma(V(z * z), c, V(-(r * low))));
  const V v = (q & 1ul) != 0ul ? cos : sin;
  return f64_of(u64_of(v) ^ ((q & 2ul) << 62));
}
/// v, but F(x) in the lanes where |x| > 2^20.
template <f64 (*F)(f64), class V> KN_FN V patch_huge_f64(V x, V v) {
  if (__builtin_expect(any(mask<width<V>>(abs(x) > 0x1p20)), 0)) {
    for (int i = 0; i < width<V>; ++i)
      if (__builtin_fabs(lane(x, i)) > 0x1p20) set_lane(v, i, F(lane(x, i)));
  }
  return v;
}
template <class V> KN_FN V sin_f64(V x) {
  const Angle64<V> a = reduce_f64(x);
  const V v = sin_of_f64(a.q, a.r, a.low);
  return patch_huge_f64<libm::sin>(x, abs(x) < 0x1p-27 ? x : v);
}
template <class V> KN_FN V cos_f64(V x) {
  const Angle64<V> a = reduce_f64(x);
  return patch_huge_f64<libm::cos>(x, sin_of_f64(Like<V, u64>(a.q + 1ul), a.r, a.low));
}
template <class V> KN_FN V tan_f64(V x) { return each<libm::tan>(x); }

}  // namespace detail
}  // namespace kn
