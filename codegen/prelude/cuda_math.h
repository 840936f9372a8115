// SPDX-License-Identifier: Apache-2.0
// The functions that kernels call: one name for f32 and f64, scalars and packs, by way of the C names that
// NVRTC builds in and the simulated device takes from the C library.
#pragma once

#include "cuda_vec.h"
#include "cuda_words.h"

namespace kn {

// KN_BY_TYPE(exp, ::expf, ::exp): kn::exp(x) is ::expf(x) or ::exp(x) in each lane, for scalars alone
// detail::exp.
#define KN_BY_TYPE(name, f32_name, f64_name)                                                  \
  namespace detail {                                                                          \
  KN_FN f32 name(f32 x) { return f32_name(x); }                                               \
  KN_FN f64 name(f64 x) { return f64_name(x); }                                               \
  }                                                                                           \
  template <class V> KN_FN V name(V v) {                                                      \
    static_assert(is_float<V>, #name " takes f32 or f64");                                    \
    return detail::each<V>([](Elem<V> x) KN_LAMBDA { return detail::name(x); }, v);           \
  }
#define KN_BY_TYPE_2(name, f32_name, f64_name)                                                               \
  namespace detail {                                                                                         \
  KN_FN f32 name(f32 x, f32 y) { return f32_name(x, y); }                                                    \
  KN_FN f64 name(f64 x, f64 y) { return f64_name(x, y); }                                                    \
  }                                                                                                          \
  template <class V> KN_FN V name(V a, Same<V> b) {                                                          \
    static_assert(is_float<V>, #name " takes f32 or f64");                                                   \
    return detail::each<V>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return detail::name(x, y); }, a, b);         \
  }

KN_BY_TYPE(acos, ::acosf, ::acos)
KN_BY_TYPE(acosh, ::acoshf, ::acosh)
KN_BY_TYPE(asin, ::asinf, ::asin)
KN_BY_TYPE(asinh, ::asinhf, ::asinh)
KN_BY_TYPE(atan, ::atanf, ::atan)
KN_BY_TYPE(atanh, ::atanhf, ::atanh)
KN_BY_TYPE(ceil, ::ceilf, ::ceil)
KN_BY_TYPE(cos, ::cosf, ::cos)
KN_BY_TYPE(cosh, ::coshf, ::cosh)
KN_BY_TYPE(erf, ::erff, ::erf)
KN_BY_TYPE(erfc, ::erfcf, ::erfc)
KN_BY_TYPE(exp, ::expf, ::exp)
KN_BY_TYPE(exp2, ::exp2f, ::exp2)
KN_BY_TYPE(expm1, ::expm1f, ::expm1)
KN_BY_TYPE(floor, ::floorf, ::floor)
KN_BY_TYPE(lgamma, device::log_gamma, device::log_gamma)
KN_BY_TYPE(log, ::logf, ::log)
KN_BY_TYPE(log10, ::log10f, ::log10)
KN_BY_TYPE(log1p, ::log1pf, ::log1p)
KN_BY_TYPE(log2, ::log2f, ::log2)
KN_BY_TYPE(round, ::rintf, ::rint)  // halves to even (torch.round)
KN_BY_TYPE(sin, ::sinf, ::sin)
KN_BY_TYPE(sinh, ::sinhf, ::sinh)
KN_BY_TYPE(sqrt, ::sqrtf, ::sqrt)
KN_BY_TYPE(tan, ::tanf, ::tan)
KN_BY_TYPE(tanh, ::tanhf, ::tanh)
KN_BY_TYPE(trunc, ::truncf, ::trunc)
KN_BY_TYPE_2(atan2, ::atan2f, ::atan2)  // the angle of the point (b, a)
KN_BY_TYPE_2(copysign, ::copysignf, ::copysign)

namespace detail {
KN_FN f32 power(f32 x, f32 y) { return ::powf(x, y); }
KN_FN f64 power(f64 x, f64 y) { return ::pow(x, y); }
KN_FN f32 remainder_cut(f32 x, f32 y) { return ::fmodf(x, y); }
KN_FN f64 remainder_cut(f64 x, f64 y) { return ::fmod(x, y); }
KN_FN f32 magnitude(f32 x) { return ::fabsf(x); }
KN_FN f64 magnitude(f64 x) { return ::fabs(x); }
KN_FN u8 magnitude(u8 x) { return x; }
KN_FN i32 magnitude(i32 x) { return x < 0 ? i32(0u - u32(x)) : x; }
KN_FN i64 magnitude(i64 x) { return x < 0 ? i64(0ul - u64(x)) : x; }
KN_FN f32 fused(f32 x, f32 y, f32 z) { return ::fmaf(x, y, z); }
KN_FN f64 fused(f64 x, f64 y, f64 z) { return ::fma(x, y, z); }
/// z = e^-|x|; the result is z / (1 + z), or one minus it.
template <class E> KN_FN E sigmoid(E x) {
  const E z = exp(-magnitude(x));
  const E u = z / (E(1) + z);
  const E m = x < E(0) ? z : E(1);
  return fused(-m, u, m);
}
}  // namespace detail

#undef KN_BY_TYPE
#undef KN_BY_TYPE_2

template <class V> KN_FN V abs(V v) {
  return detail::each<V>([](Elem<V> x) KN_LAMBDA { return detail::magnitude(x); }, v);
}
template <class V> KN_FN V sigmoid(V v) {
  static_assert(is_float<V>, "sigmoid takes f32 or f64");
  return detail::each<V>([](Elem<V> x) KN_LAMBDA { return detail::sigmoid(x); }, v);
}
/// 1 / sqrt(x), both steps rounded.
template <class V> KN_FN V rsqrt(V v) { return Elem<V>(1) / sqrt(v); }
/// a * b + c with one rounding.
template <class V> KN_FN V fma(V a, Same<V> b, Same<V> c) {
  using E = Elem<V>;
  return detail::each<V>([](E x, E y, E z) KN_LAMBDA { return detail::fused(x, y, z); }, a, b, c);
}
template <class V> KN_FN Mask<width<V>> isinf(V a) { return eq(abs(a), V(inf<Elem<V>>)); }
template <class V> KN_FN Mask<width<V>> isfinite(V a) { return lt(abs(a), V(inf<Elem<V>>)); }

}  // namespace kn
