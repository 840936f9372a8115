// SPDX-License-Identifier: Apache-2.0
// Values of CPU kernels: a scalar or a generic vector of W lanes behind the same names, masks, selection,
// comparison, conversion. No target intrinsics, no system headers: compiles for every target of clang.
#pragma once

#include "types.h"

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;

// Everything here is inlined, so that how vectors are passed between functions is of no matter.
#pragma clang diagnostic ignored "-Wpsabi"

#define KN_FN static inline __attribute__((always_inline))

namespace kn {

namespace detail {
template <class T, int W> struct VecOf { typedef T type __attribute__((ext_vector_type(W))); };
template <class T> struct VecOf<T, 1> { using type = T; };
template <class V> struct Lane { using type = V; static constexpr int width = 1; };
template <class T, int N> struct Lane<T __attribute__((ext_vector_type(N)))> {
  using type = T;
  static constexpr int width = N;
};
}  // namespace detail

/// W lanes of T; one lane is T itself.
template <class T, int W> using Vec = typename detail::VecOf<T, W>::type;
/// The element type and the number of lanes of a value.
template <class V> using Elem = typename detail::Lane<V>::type;
template <class V> inline constexpr int width = detail::Lane<V>::width;
/// The same number of lanes, of T.
template <class V, class T> using Like = Vec<T, width<V>>;

template <class V> inline constexpr bool is_f32 = detail::same<Elem<V>, f32>;
template <class V> inline constexpr bool is_f64 = detail::same<Elem<V>, f64>;
template <class V> inline constexpr bool is_float = is_f32<V> || is_f64<V>;

/// Of f32 and f64.
template <class T> inline constexpr T inf = T(__builtin_inf());
template <class T> inline constexpr T nan = T(__builtin_nan(""));

/// One truth value per lane: all bits or none of an i32. A type of its own, so that a mask is never added
/// as -1.
template <int W> struct Mask { Vec<i32, W> lanes; };
template <> struct Mask<1> { bool lanes; };

template <int W> KN_FN Mask<W> operator&(Mask<W> a, Mask<W> b) {
  if constexpr (W == 1) return {a.lanes && b.lanes};
  else return {a.lanes & b.lanes};
}
template <int W> KN_FN Mask<W> operator|(Mask<W> a, Mask<W> b) {
  if constexpr (W == 1) return {a.lanes || b.lanes};
  else return {a.lanes | b.lanes};
}
template <int W> KN_FN Mask<W> operator^(Mask<W> a, Mask<W> b) {
  if constexpr (W == 1) return {a.lanes != b.lanes};
  else return {a.lanes ^ b.lanes};
}
template <int W> KN_FN Mask<W> operator!(Mask<W> a) {
  if constexpr (W == 1) return {!a.lanes};
  else return {~a.lanes};
}

namespace detail {
/// The result of a vector comparison (lanes as wide as what was compared) or a bool, as a mask.
template <int W, class C> KN_FN Mask<W> mask(C c) {
  if constexpr (W == 1) return {bool(c)};
  else return {__builtin_convertvector(c, Vec<i32, W>)};
}
template <class V, class T> KN_FN Like<V, T> lanes_as(V v) {
  if constexpr (width<V> == 1) return static_cast<T>(v);
  else return __builtin_convertvector(v, Like<V, T>);
}
/// A mask with lanes as wide as V's, for `?:`.
template <class V> KN_FN auto wide(Mask<width<V>> m) {
  if constexpr (width<V> == 1) return m.lanes;
  else if constexpr (sizeof(Elem<V>) == 8) return lanes_as<Vec<i32, width<V>>, i64>(m.lanes);
  else if constexpr (sizeof(Elem<V>) == 1) return lanes_as<Vec<i32, width<V>>, i8>(m.lanes);
  else return m.lanes;
}
template <class R> KN_FN void set_lane(R& v, int i, Elem<R> x) {
  if constexpr (width<R> == 1) v = x;
  else v[i] = x;
}
template <class R> KN_FN Elem<R> lane(R v, int i) {
  if constexpr (width<R> == 1) return v;
  else return v[i];
}
template <class To, class From> KN_FN To bits(From v) { return __builtin_bit_cast(To, v); }
template <class V> KN_FN Like<V, u32> u32_of(V v) { return bits<Like<V, u32>>(v); }
template <class V> KN_FN Like<V, i32> i32_of(V v) { return bits<Like<V, i32>>(v); }
template <class V> KN_FN Like<V, u64> u64_of(V v) { return bits<Like<V, u64>>(v); }
template <class V> KN_FN Like<V, i64> i64_of(V v) { return bits<Like<V, i64>>(v); }
template <class V> KN_FN Like<V, f32> f32_of(V v) { return bits<Like<V, f32>>(v); }
template <class V> KN_FN Like<V, f64> f64_of(V v) { return bits<Like<V, f64>>(v); }
}  // namespace detail

/// A value with every lane x: broadcast<W>(x), and the same for masks.
template <int W, class T> KN_FN Vec<T, W> broadcast(T x) { return (Vec<T, W>)(x); }
template <int W> KN_FN Mask<W> broadcast_mask(bool x) {
  if constexpr (W == 1) return {x};
  else return {Vec<i32, W>(x ? -1 : 0)};
}
/// start, start + 1, ...: the indices of W neighbours.
template <int W, class T> KN_FN Vec<T, W> iota(T start) {
  if constexpr (W == 1) return start;
  else {
    Vec<T, W> v;
    for (int i = 0; i < W; ++i) v[i] = T(i);
    return v + start;
  }
}
/// Lanes [0, n) true.
template <int W> KN_FN Mask<W> first(i64 n) {
  return detail::mask<W>(iota<W>(i32(0)) < i32(n < W ? n : W));
}

template <class V> KN_FN Mask<width<V>> eq(V a, Same<V> b) { return detail::mask<width<V>>(a == b); }
template <class V> KN_FN Mask<width<V>> ne(V a, Same<V> b) { return detail::mask<width<V>>(a != b); }
template <class V> KN_FN Mask<width<V>> lt(V a, Same<V> b) { return detail::mask<width<V>>(a < b); }
template <class V> KN_FN Mask<width<V>> le(V a, Same<V> b) { return detail::mask<width<V>>(a <= b); }
template <class V> KN_FN Mask<width<V>> gt(V a, Same<V> b) { return detail::mask<width<V>>(a > b); }
template <class V> KN_FN Mask<width<V>> ge(V a, Same<V> b) { return detail::mask<width<V>>(a >= b); }
template <int W> KN_FN Mask<W> eq(Mask<W> a, Mask<W> b) { return !(a ^ b); }
template <int W> KN_FN Mask<W> ne(Mask<W> a, Mask<W> b) { return a ^ b; }
template <int W> KN_FN Mask<W> lt(Mask<W> a, Mask<W> b) { return !a & b; }
template <int W> KN_FN Mask<W> le(Mask<W> a, Mask<W> b) { return !a | b; }
template <int W> KN_FN Mask<W> gt(Mask<W> a, Mask<W> b) { return a & !b; }
template <int W> KN_FN Mask<W> ge(Mask<W> a, Mask<W> b) { return a | !b; }
template <class V> KN_FN Mask<width<V>> isnan(V a) { return ne(a, a); }
template <class V> KN_FN Mask<width<V>> isinf(V a) {
  return eq(V(__builtin_elementwise_abs(a)), (V)(inf<Elem<V>>));
}
template <class V> KN_FN Mask<width<V>> isfinite(V a) {
  return lt(V(__builtin_elementwise_abs(a)), (V)(inf<Elem<V>>));
}

/// m ? a : b in each lane.
template <class V> KN_FN V select(Mask<width<V>> m, V a, Same<V> b) {
  return detail::wide<V>(m) ? a : b;
}
template <int W> KN_FN Mask<W> select(Mask<W> m, Mask<W> a, Mask<W> b) { return (m & a) | (!m & b); }

namespace detail {
/// f32/f64 cut towards zero. NaN and what T does not hold are T's lowest, as x86 and the interpreter have it:
/// a cast alone would leave them to the compiler.
template <class T, class V> KN_FN Like<V, T> to_integer(V v) {
  constexpr T lowest = T(T(1) << (8 * sizeof(T) - 1));
  constexpr Elem<V> low = Elem<V>(lowest);
  const Mask<width<V>> held = ge(v, (V)(low)) & lt(v, (V)(-low));
  return select(held, lanes_as<V, T>(select(held, v, (V)(0))), (Like<V, T>)(lowest));
}
}  // namespace detail

/// Numbers to numbers as a C++ cast does; f32/f64 out of an integer's range is what x86 gives (PyTorch).
template <class T, class V> KN_FN Like<V, T> convert(V v) {
  if constexpr (detail::same<Elem<V>, T>) return v;
  // By way of i32, so that a negative float wraps into u8 as in PyTorch instead of being undefined.
  else if constexpr (detail::same<T, u8> && is_float<V>)
    return detail::lanes_as<Like<V, i32>, u8>(detail::to_integer<i32>(v));
  else if constexpr (is_float<V> && !is_float<Like<V, T>>) return detail::to_integer<T>(v);
  else return detail::lanes_as<V, T>(v);
}
/// A mask as numbers 1 and 0.
template <class T, int W> KN_FN Vec<T, W> convert(Mask<W> m) {
  return select(m, (Vec<T, W>)(T(1)), (Vec<T, W>)(T(0)));
}
/// Numbers as a mask: nonzero (NaN too) is true.
template <class V> KN_FN Mask<width<V>> to_mask(V v) { return ne(v, (V)(Elem<V>(0))); }
template <int W> KN_FN Mask<W> to_mask(Mask<W> m) { return m; }

/// PyTorch's maximum and minimum: a NaN on either side is the result.
template <class V> KN_FN V max(V a, Same<V> b) {
  V m = a > b ? a : b;
  if constexpr (is_float<V>) return a != a ? a : m;
  else return m;
}
template <class V> KN_FN V min(V a, Same<V> b) {
  V m = a < b ? a : b;
  if constexpr (is_float<V>) return a != a ? a : m;
  else return m;
}

template <int W> KN_FN Mask<W> max(Mask<W> a, Mask<W> b) { return a | b; }
template <int W> KN_FN Mask<W> min(Mask<W> a, Mask<W> b) { return a & b; }

template <class V> KN_FN V abs(V x) {
  if constexpr (detail::same<Elem<V>, u8>) return x;
  else return __builtin_elementwise_abs(x);
}
template <class V> KN_FN V floor(V x) { return __builtin_elementwise_floor(x); }
template <class V> KN_FN V ceil(V x) { return __builtin_elementwise_ceil(x); }
template <class V> KN_FN V trunc(V x) { return __builtin_elementwise_trunc(x); }
/// To nearest, halves to even (torch.round).
template <class V> KN_FN V round(V x) { return __builtin_elementwise_roundeven(x); }
template <class V> KN_FN V sqrt(V x) { return __builtin_elementwise_sqrt(x); }
/// 1 / sqrt(x), both steps rounded.
template <class V> KN_FN V rsqrt(V x) { return Elem<V>(1) / __builtin_elementwise_sqrt(x); }
/// a * b + c with one rounding.
template <class V> KN_FN V fma(V a, Same<V> b, Same<V> c) { return __builtin_elementwise_fma(a, b, c); }
template <class V> KN_FN V copysign(V a, Same<V> b) { return __builtin_elementwise_copysign(a, b); }
/// -1, 0 or 1; 0 for NaN, as torch.sign.
template <class V> KN_FN V sign(V x) {
  const V zero = (V)(Elem<V>(0)), one = (V)(Elem<V>(1));
  V pos = x > zero ? one : zero;
  if constexpr (detail::same<Elem<V>, u8>) return pos;
  else return x < zero ? V(-one) : pos;
}

/// Sums and products that wrap for integers, also where C++ leaves overflow undefined.
template <class V> KN_FN V add(V a, Same<V> b) {
  if constexpr (detail::same<V, i32> || detail::same<V, i64>) {
    V r;
    return __builtin_add_overflow(a, b, &r), r;
  } else {
    return V(a + b);
  }
}
template <class V> KN_FN V sub(V a, Same<V> b) {
  if constexpr (detail::same<V, i32> || detail::same<V, i64>) {
    V r;
    return __builtin_sub_overflow(a, b, &r), r;
  } else {
    return V(a - b);
  }
}
template <class V> KN_FN V mul(V a, Same<V> b) {
  if constexpr (detail::same<V, i32> || detail::same<V, i64>) {
    V r;
    return __builtin_mul_overflow(a, b, &r), r;
  } else {
    return V(a * b);
  }
}
/// A product that no sum takes unrounded.
template <class V> KN_FN V mul_rounded(V a, Same<V> b) {
#pragma clang fp contract(off)
  if constexpr (is_float<V>) return V(a * b);
  else return mul(a, b);
}
template <class V> KN_FN V neg(V a) {
  if constexpr (is_float<V>) return -a;
  else return sub((V)(Elem<V>(0)), a);
}

}  // namespace kn
