// SPDX-License-Identifier: Apache-2.0
// Division, remainders, shifts and integer powers as PyTorch defines them, with the bits of cpu_arith.h, and
// reductions over the lanes of one value. An integer divided by zero gives zero here: kernels cannot raise an
// error, a guard of the plan does. The least integer by -1 wraps.
#pragma once

#include "cuda_math.h"

namespace kn {
namespace detail {

/// a / b cut to an integer, without undefined cases.
template <class E> KN_FN E quotient(E a, E b) {
  if constexpr (same<E, u8>) return b == 0 ? E(0) : E(a / b);
  else if (b == -1) return E(Unsigned<E>(0) - Unsigned<E>(a));
  else return b == 0 ? E(0) : E(a / b);
}
/// The remainder of a / b cut to an integer: it has a's sign.
template <class E> KN_FN E fmod(E a, E b) {
  if constexpr (same<E, f32> || same<E, f64>) return remainder_cut(a, b);
  else return E(Unsigned<E>(a) - Unsigned<E>(quotient(a, b)) * Unsigned<E>(b));
}
template <class E> KN_FN bool turns(E m, E b) { return m != E(0) && (b < E(0)) != (m < E(0)); }
template <class E> KN_FN E remainder(E a, E b) {
  const E m = fmod(a, b);
  return turns(m, b) ? E(m + b) : m;
}
/// Source: c10::div_floor_floating of PyTorch.
template <class E> KN_FN E floor_divide(E a, E b) {
  const E m = fmod(a, b);
  if constexpr (same<E, f32> || same<E, f64>) {
    const E plain = a / b;
    const E cut = (a - m) / b;
    const E q = turns(m, b) ? cut - E(1) : cut;
    const E whole = floor(q);
    const E near = q - whole > E(0.5) ? whole + E(1) : whole;
    return b == E(0) ? plain : q == E(0) ? copysign(E(0), plain) : near;
  } else {
    const E q = quotient(a, b);
    return b != E(0) && turns(m, b) ? E(q - E(1)) : q;
  }
}
/// a 2^n that wraps; 0 where n is negative or not below the width.
template <class E> KN_FN E shift_left(E a, E n) {
  const bool in = n >= E(0) && n < E(sizeof(E) * 8);
  return in ? E(Unsigned<E>(a) << n) : E(0);
}
/// a / 2^n rounded down; only the sign is left where n is negative or not below the width.
template <class E> KN_FN E shift_right(E a, E n) {
  const bool in = n >= E(0) && n < E(sizeof(E) * 8);
  return in ? E(a >> n) : same<E, u8> ? E(0) : E(a < E(0) ? -1 : 0);
}
/// x^n by squaring, wrapping. A negative n gives the quotient cut: 0 unless x is 1 or -1.
template <class E> KN_FN E pow_integer(E x, E n) {
  if constexpr (!same<E, u8>)
    if (n < 0) return x == 1 ? E(1) : x == -1 ? E((n & 1) != 0 ? -1 : 1) : E(0);
  Unsigned<E> r = 1, base = Unsigned<E>(x);
  for (Unsigned<E> left = Unsigned<E>(n); left != 0; left = left >> 1) {
    if ((left & 1) != 0) r = r * base;
    base = base * base;
  }
  return E(r);
}

template <class V, class F> KN_FN Elem<V> tree(V v, F f) {
  if constexpr (width<V> == 1) {
    return v;
  } else {
    constexpr int kHalf = width<V> / 2;
    Vec<Elem<V>, kHalf> r;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) set_lane(r, i, f(v.at[i], v.at[i + kHalf]));
    return tree(r, f);
  }
}

}  // namespace detail

#define KN_BINARY(name)                                                                                      \
  template <class V> KN_FN V name(V a, Same<V> b) {                                                          \
    return detail::each<V>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return detail::name(x, y); }, a, b);         \
  }
KN_BINARY(fmod)
KN_BINARY(remainder)
KN_BINARY(floor_divide)
KN_BINARY(shift_left)
KN_BINARY(shift_right)
KN_BINARY(pow_integer)
#undef KN_BINARY

template <class V> KN_FN V pow(V a, Same<V> b) {
  using E = Elem<V>;
  if constexpr (is_float<V>)
    return detail::each<V>([](E x, E y) KN_LAMBDA { return detail::power(x, y); }, a, b);
  else return pow_integer(a, b);
}
/// The quotient cut to an integer.
template <class V> KN_FN V trunc_divide(V a, Same<V> b) {
  using E = Elem<V>;
  if constexpr (is_float<V>)
    return detail::each<V>([](E x, E y) KN_LAMBDA { return detail::trunc(E(x / y)); }, a, b);
  else return detail::each<V>([](E x, E y) KN_LAMBDA { return detail::quotient(x, y); }, a, b);
}

// Over the lanes of one thread, as a fixed tree: lane i meets lane i + W/2, then W/4, ... 1.
#define KN_REDUCE(name, combine)                                                                      \
  template <class V> KN_FN Elem<V> name(V v) {                                                        \
    return detail::tree(v, [](Elem<V> a, Elem<V> b) KN_LAMBDA { return combine(a, b); });             \
  }
KN_REDUCE(reduce_sum, add)
KN_REDUCE(reduce_prod, mul)
KN_REDUCE(reduce_max, max)  // NaN in any lane gives NaN
KN_REDUCE(reduce_min, min)
#undef KN_REDUCE
template <int W> KN_FN bool any(Mask<W> m) {
  bool r = detail::lane(m, 0);
#pragma unroll
  for (int i = 1; i < W; ++i) r = r || detail::lane(m, i);
  return r;
}
template <int W> KN_FN bool all(Mask<W> m) { return !any(!m); }
/// How many lanes hold.
template <int W> KN_FN i64 count(Mask<W> m) { return i64(reduce_sum(convert<i32>(m))); }

}  // namespace kn
