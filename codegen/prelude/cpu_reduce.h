// SPDX-License-Identifier: Apache-2.0
// Reductions over the lanes of one value, as a fixed tree: lane i meets lane i + W/2, then W/4, ... 1. The
// bits depend on W alone, never on the instruction set.
#pragma once

#include "cpu_vec.h"

namespace kn {
namespace detail {

template <int... I> struct Ints {};
template <class T, T... I> using IntsOf = Ints<I...>;

template <class V, int... I> KN_FN Vec<Elem<V>, sizeof...(I)> low_half(V v, Ints<I...>) {
  return __builtin_shufflevector(v, v, I...);
}
template <class V, int... I> KN_FN Vec<Elem<V>, sizeof...(I)> high_half(V v, Ints<I...>) {
  return __builtin_shufflevector(v, v, (I + int(sizeof...(I)))...);
}

/// Lane i of the result is lane i + H of v; those without one keep their value.
template <int H, class V, int... I> KN_FN V moved_down(V v, Ints<I...>) {
  return __builtin_shufflevector(v, v, (I + H < width<V> ? I + H : I)...);
}
/// The tree over the first 2 * H lanes, in whole registers: a vector of 8 bytes travels between functions as
/// a double, and LLVM 19 selects instructions for sums of AVX-512 masks through one forever.
template <int H, class V, class F> KN_FN Elem<V> tree_in_place(V v, F f) {
  const V r = f(v, moved_down<H>(v, __make_integer_seq<IntsOf, int, width<V>>{}));
  if constexpr (H == 1) return r[0];
  else return tree_in_place<H / 2>(r, f);
}

template <class V, class F> KN_FN Elem<V> tree(V v, F f) {
  if constexpr (width<V> == 1) {
    return v;
  } else if constexpr (width<V> == 2) {
    return f(v[0], v[1]);
  } else if constexpr (sizeof(V) <= 16) {
    return tree_in_place<width<V> / 2>(v, f);
  } else {
    using Half = __make_integer_seq<IntsOf, int, width<V> / 2>;
    return tree(f(low_half(v, Half{}), high_half(v, Half{})), f);
  }
}

}  // namespace detail

template <class V> KN_FN Elem<V> reduce_sum(V v) {
  return detail::tree(v, [](auto a, auto b) __attribute__((always_inline)) { return add(a, b); });
}
template <class V> KN_FN Elem<V> reduce_prod(V v) {
  return detail::tree(v, [](auto a, auto b) __attribute__((always_inline)) { return mul(a, b); });
}
/// NaN in any lane gives NaN.
template <class V> KN_FN Elem<V> reduce_max(V v) {
  return detail::tree(v, [](auto a, auto b) __attribute__((always_inline)) { return max(a, b); });
}
template <class V> KN_FN Elem<V> reduce_min(V v) {
  return detail::tree(v, [](auto a, auto b) __attribute__((always_inline)) { return min(a, b); });
}
template <int W> KN_FN bool any(Mask<W> m) {
  if constexpr (W == 1) return m.lanes;
  else return __builtin_reduce_or(m.lanes) != 0;
}
template <int W> KN_FN bool all(Mask<W> m) {
  if constexpr (W == 1) return m.lanes;
  else return __builtin_reduce_and(m.lanes) != 0;
}
/// How many lanes hold.
template <int W> KN_FN i64 count(Mask<W> m) { return reduce_sum(convert<i64>(m)); }

}  // namespace kn
