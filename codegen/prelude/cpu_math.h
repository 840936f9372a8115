// SPDX-License-Identifier: Apache-2.0
// The functions that kernels call: one name for f32 and f64, scalars and vectors. Nothing is computed here.
#pragma once

#include "cpu_math_f32.h"
#include "cpu_math_f64.h"

namespace kn {

/// KN_BY_TYPE(exp): kn::exp(x) is detail::exp_f32 or detail::exp_f64.
#define KN_BY_TYPE(name)                                    \
  template <class V> KN_FN V name(V x) {                    \
    static_assert(is_float<V>, #name " takes f32 or f64");  \
    if constexpr (is_f32<V>) return detail::name##_f32(x);  \
    else return detail::name##_f64(x);                      \
  }

KN_BY_TYPE(exp)
KN_BY_TYPE(log)
KN_BY_TYPE(tanh)
KN_BY_TYPE(erf)
KN_BY_TYPE(sigmoid)

#undef KN_BY_TYPE

}  // namespace kn
