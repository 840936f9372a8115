// SPDX-License-Identifier: Apache-2.0
// Functions that training seldom calls: on f32 lanes in f64 arithmetic, where plain formulas keep their
// digits, rounded once at the end; on f64 lanes by the C library.
#pragma once

#include "cpu_libm.h"
#include "cpu_math_f64.h"

namespace kn::detail {

inline constexpr f64 kPi = 0x1.921fb54442d18p+1, kHalfPi = 0x1.921fb54442d18p+0;

/// asin s for 0 <= s <= 1/2, z = s^2.
template <class D> KN_FN D asin_poly(D s, D z) {
  const D p = horner(z, 0x1.55555547dec46p-3, 0x1.33334081cad9p-4, 0x1.6db25f27f1168p-5, 0x1.f2814580b1e27p-6,
                     0x1.664745c2a19aap-6, 0x1.521cfad87a5c4p-6, 0x1.06b875f22e404p-9, 0x1.0d649dcf5d57p-5);
  return fma(D(p * z), s, s);
}
/// |x| > 1/2: asin x = pi/2 - 2 asin sqrt((1 - x)/2), and acos likewise.
template <class V> KN_FN V asin_f32(V x) {
  using D = Like<V, f64>;
  const D d = convert<f64>(x), a = abs(d);
  const auto big = a > 0.5;
  const D z = big ? (1.0 - a) * 0.5 : a * a;
  const D p = asin_poly(big ? sqrt(z) : a, z);
  return convert<f32>(copysign(big ? kHalfPi - (p + p) : p, d));
}
template <class V> KN_FN V acos_f32(V x) {
  using D = Like<V, f64>;
  const D d = convert<f64>(x), a = abs(d);
  const auto big = a > 0.5;
  const D z = big ? (1.0 - a) * 0.5 : a * a;
  const D p = asin_poly(big ? sqrt(z) : a, z);
  const D far = d < 0.0 ? kPi - (p + p) : p + p;
  return convert<f32>(big ? far : kHalfPi - copysign(p, d));
}

/// atan t for 0 <= t <= 1.
template <class D> KN_FN D atan_poly(D t) {
  const D z = t * t;
  const D p = horner(z, -0x1.5555552edaf89p-2, 0x1.9999843ca1ee7p-3, -0x1.249034e1bb138p-3,
                     0x1.c6e7fea3d42b7p-4, -0x1.72d3f7f6a8825p-4, 0x1.3398ed3d6095ap-4, -0x1.f0055843ac6fbp-5,
                     0x1.69a4df66f61a3p-5, -0x1.b25fb8e3770c2p-6, 0x1.812aa3b5e5cb5p-7, -0x1.b2c5005f5c973p-9,
                     0x1.cc6a712518e6p-12);
  return fma(D(p * z), t, t);
}
template <class V> KN_FN V atan_f32(V x) {
  const auto d = convert<f64>(x);
  const auto a = abs(d);
  const auto big = a > 1.0;
  const auto p = atan_poly(big ? 1.0 / a : a);
  return convert<f32>(copysign(big ? kHalfPi - p : p, d));
}
/// The angle of (x, y) by the octant: the smaller side over the larger, then mirrored.
template <class V> KN_FN V atan2_f32(V y, V x) {
  using D = Like<V, f64>;
  const D dx = convert<f64>(x), dy = convert<f64>(y);
  const D ax = abs(dx), ay = abs(dy);
  const auto steep = ay > ax;
  const D high = steep ? ay : ax, low = steep ? ax : ay;
  // 0/0 is 0 and inf/inf is 1 here; a NaN on either side stays one.
  D t = low / high;
  t = high == 0.0 ? low : t;
  t = low == (D)(__builtin_inf()) ? (D)(1.0) : t;
  const D p = atan_poly(t);
  const D first = steep ? kHalfPi - p : p;
  // The sign of x counts, also of its zero.
  const D turned = copysign((D)(1.0), dx) < 0.0 ? kPi - first : first;
  const D angle = copysign(turned, dy);
  return convert<f32>(dx != dx ? dx : angle);
}

/// With e = e^|x| - 1: sinh = (e + e / (e + 1)) / 2, cosh = (E + 1 / E) / 2 with E = e^|x|.
template <class V> KN_FN V sinh_f32(V x) {
  using D = Like<V, f64>;
  const D d = convert<f64>(x);
  const D a = abs(d);
  const auto e = expm1_f64(a > 100.0 ? (D)(100.0) : a);
  const auto half = (e + e / (e + 1.0)) * 0.5;
  return convert<f32>(copysign(a < 0x1p-20 ? a : half, d));
}
template <class V> KN_FN V cosh_f32(V x) {
  const auto a = abs(convert<f64>(x));
  const auto e = exp_f64(a);
  return convert<f32>((e + 1.0 / e) * 0.5);
}
template <class V> KN_FN V asinh_f32(V x) {
  using D = Like<V, f64>;
  const D d = convert<f64>(x), a = abs(d);
  const D y = log1p_f64(D(a + a * a / (1.0 + sqrt(D(a * a + 1.0)))));
  return convert<f32>(copysign(a == (D)(__builtin_inf()) ? a : y, d));
}
/// NaN below 1, where t + 2 hides it below -1.
template <class V> KN_FN V acosh_f32(V x) {
  const auto t = convert<f64>(x) - 1.0;
  const auto y = log1p_f64(t + sqrt(t * (t + 2.0)));
  return convert<f32>(t < 0.0 ? y * __builtin_nan("") : y);
}
template <class V> KN_FN V atanh_f32(V x) {
  const auto d = convert<f64>(x);
  const auto a = abs(d);
  return convert<f32>(copysign(log1p_f64((a + a) / (1.0 - a)) * 0.5, d));
}

/// v e^(P(v) - x^2) with v = 2 / (2 + |x|); its mirror below zero.
/// Source: the form is W. Press et al., Numerical Recipes, section 6.2; coefficients are ours.
template <class V> KN_FN V erfc_f32(V x) {
  using D = Like<V, f64>;
  const D d = convert<f64>(x);
  const D b = abs(d), a = b > 12.0 ? (D)(12.0) : b;
  const auto v = 2.0 / (a + 2.0);
  const auto p = horner(v, -0x1.43f8334a96204p+0, 0x1.ffe2d3daf1e4p-1, 0x1.83ab317c0dc9ap-2,
                        0x1.954e827de33d3p-5, 0x1.f904021280ddbp-4, -0x1.08b67312f1d62p+0,
                        0x1.49d07bf2a664fp+1, -0x1.674ecb08781e8p+2, 0x1.0c2bab58cdab5p+3,
                        -0x1.f07125429d8c6p+2, 0x1.1559ed4cddae9p+2, -0x1.5abc05ddc7ff2p+0,
                        0x1.776bd83c6aea6p-3);
  const auto r = v * exp_normal_f64(p - a * a);
  return convert<f32>(d < 0.0 ? 2.0 - r : r);
}

/// 2^(y log2 |x|), then the cases of IEEE 754.
template <class V> KN_FN V pow_f32(V x, V y) {
  using D = Like<V, f64>;
  const D dx = convert<f64>(x), dy = convert<f64>(y);
  const D a = abs(dx);
  const D size = exp2_f64(D(log_f64(a) * 0x1.71547652b82fep+0 * dy));
  const D whole = __builtin_elementwise_trunc(dy), half = __builtin_elementwise_trunc(dy * 0.5);
  const auto odd = (dy == whole) & (half + half != whole);
  const auto negative = copysign((D)(1.0), dx) < 0.0;
  const auto flip = negative & odd;
  D r = flip ? D(-size) : size;
  // A negative number to a power that is no integer; -0 and -inf are no such numbers.
  const auto unreal = (dx < 0.0) & (dy != whole) & (a != (D)(__builtin_inf()));
  r = unreal ? (D)(__builtin_nan("")) : r;
  const D one = flip ? (D)(-1.0) : (D)(1.0);
  const auto unit = (a == 1.0) & ((dx > 0.0) | (dy == whole));
  r = unit ? one : r;
  return convert<f32>(dy == 0.0 ? (D)(1.0) : r);
}

template <class V> KN_FN V lgamma_f64(V x) {
  for (int i = 0; i < width<V>; ++i) {
    int sign;
    set_lane(x, i, libm::lgamma_r(lane(x, i), &sign));
  }
  return x;
}
template <class V> KN_FN V lgamma_f32(V x) { return convert<f32>(lgamma_f64(convert<f64>(x))); }

template <class V> KN_FN V acos_f64(V x) { return each<libm::acos>(x); }
template <class V> KN_FN V acosh_f64(V x) { return each<libm::acosh>(x); }
template <class V> KN_FN V asin_f64(V x) { return each<libm::asin>(x); }
template <class V> KN_FN V asinh_f64(V x) { return each<libm::asinh>(x); }
template <class V> KN_FN V atan_f64(V x) { return each<libm::atan>(x); }
template <class V> KN_FN V atan2_f64(V y, V x) { return each<libm::atan2>(y, x); }
template <class V> KN_FN V atanh_f64(V x) { return each<libm::atanh>(x); }
template <class V> KN_FN V cosh_f64(V x) { return each<libm::cosh>(x); }
template <class V> KN_FN V erfc_f64(V x) { return each<libm::erfc>(x); }
template <class V> KN_FN V log10_f64(V x) { return each<libm::log10>(x); }
template <class V> KN_FN V log2_f64(V x) { return each<libm::log2>(x); }
template <class V> KN_FN V pow_f64(V x, V y) { return each<libm::pow>(x, y); }
template <class V> KN_FN V sinh_f64(V x) { return each<libm::sinh>(x); }

}  // namespace kn::detail
