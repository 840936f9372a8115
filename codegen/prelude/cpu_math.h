// SPDX-License-Identifier: Apache-2.0
// The functions that kernels call: one name for f32 and f64, scalars and vectors. Nothing is computed here.
#pragma once

#include "cpu_math_f32.h"
#include "cpu_math_f64.h"
#include "cpu_math_trig.h"
#include "cpu_math_wide.h"

namespace kn {

/// KN_BY_TYPE(exp): kn::exp(x) is detail::exp_f32 or detail::exp_f64.
#define KN_BY_TYPE(name)                                    \
  template <class V> KN_FN V name(V x) {                    \
    static_assert(is_float<V>, #name " takes f32 or f64");  \
    if constexpr (is_f32<V>) return detail::name##_f32(x);  \
    else return detail::name##_f64(x);                      \
  }

KN_BY_TYPE(acos)
KN_BY_TYPE(acosh)
KN_BY_TYPE(asin)
KN_BY_TYPE(asinh)
KN_BY_TYPE(atan)
KN_BY_TYPE(atanh)
KN_BY_TYPE(cos)
KN_BY_TYPE(cosh)
KN_BY_TYPE(erf)
KN_BY_TYPE(erfc)
KN_BY_TYPE(exp)
KN_BY_TYPE(exp2)
KN_BY_TYPE(expm1)
KN_BY_TYPE(lgamma)
KN_BY_TYPE(log)
KN_BY_TYPE(log10)
KN_BY_TYPE(log1p)
KN_BY_TYPE(log2)
KN_BY_TYPE(sigmoid)
KN_BY_TYPE(sin)
KN_BY_TYPE(sinh)
KN_BY_TYPE(tan)
KN_BY_TYPE(tanh)

#undef KN_BY_TYPE

/// The angle of the point (x, y).
template <class V> KN_FN V atan2(V y, Same<V> x) {
  static_assert(is_float<V>, "atan2 takes f32 or f64");
  if constexpr (is_f32<V>) return detail::atan2_f32(y, x);
  else return detail::atan2_f64(y, x);
}

}  // namespace kn
