// SPDX-License-Identifier: Apache-2.0
// The functions of the C library that kernels may call, one lane at a time: f64 functions that no training
// step spends its time in, and huge angles.
#pragma once

#include "cpu_vec.h"

namespace kn {

namespace libm {
extern "C" {
double acos(double);
double acosh(double);
double asin(double);
double asinh(double);
double atan(double);
double atan2(double, double);
double atanh(double);
double cos(double);
double cosh(double);
double erfc(double);
double fmod(double, double);
double lgamma_r(double, int*);
double log10(double);
double log2(double);
double pow(double, double);
double sin(double);
double sinh(double);
double tan(double);
}
}  // namespace libm

namespace detail {

/// F on each lane.
template <f64 (*F)(f64), class V> KN_FN V each(V x) {
  for (int i = 0; i < width<V>; ++i) set_lane(x, i, F(lane(x, i)));
  return x;
}
template <f64 (*F)(f64, f64), class V> KN_FN V each(V x, V y) {
  for (int i = 0; i < width<V>; ++i) set_lane(x, i, F(lane(x, i), lane(y, i)));
  return x;
}

}  // namespace detail
}  // namespace kn
