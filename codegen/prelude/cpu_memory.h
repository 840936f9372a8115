// SPDX-License-Identifier: Apache-2.0
// Loads and stores of CPU kernels: whole, first n lanes, strided, by index. Pointers need only the element's
// alignment. The forms with n touch exactly n elements, so they are safe at the end of a buffer.
#pragma once

#include "cpu_target.h"
#include "cpu_vec.h"

namespace kn {
namespace detail {

template <class S> struct Stored { using type = S; };
template <> struct Stored<bf16> { using type = f32; };
template <> struct Stored<f16> { using type = f32; };

/// bf16 -> f32 is exact; f32 -> bf16 rounds to nearest even in integers (the cast would call a library
/// function).
template <int W> KN_FN Vec<f32, W> from_bf16(Vec<u16, W> h) {
  return bits<Vec<f32, W>>(lanes_as<Vec<u16, W>, u32>(h) << 16);
}
template <int W> KN_FN Vec<u16, W> to_bf16(Vec<f32, W> x) {
  using U = Vec<u32, W>;
  const U u = bits<U>(x);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  return lanes_as<U, u16>(x != x ? quiet : rounded);
}
template <int W> KN_FN Vec<f32, W> from_f16(Vec<u16, W> h) {
  return lanes_as<Vec<_Float16, W>, f32>(bits<Vec<_Float16, W>>(h));
}
template <int W> KN_FN Vec<u16, W> to_f16(Vec<f32, W> x) {
  return bits<Vec<u16, W>>(lanes_as<Vec<f32, W>, _Float16>(x));
}

/// The storage of bf16, f16 and b8 as plain integers.
template <class S> struct Raw { using type = S; };
template <> struct Raw<bf16> { using type = u16; };
template <> struct Raw<f16> { using type = u16; };
template <> struct Raw<b8> { using type = u8; };
template <class S> using RawOf = typename Raw<S>::type;

template <class S, int W> KN_FN auto decode(Vec<RawOf<S>, W> v) {
  if constexpr (same<S, bf16>) return from_bf16<W>(v);
  else if constexpr (same<S, f16>) return from_f16<W>(v);
  else if constexpr (same<S, b8>) return to_mask(v);
  else return v;
}
template <class S, int W, class V> KN_FN Vec<RawOf<S>, W> encode(V v) {
  if constexpr (same<S, bf16>) return to_bf16<W>(v);
  else if constexpr (same<S, f16>) return to_f16<W>(v);
  else if constexpr (same<S, b8>) return convert<u8>(v);
  else return v;
}

/// The value type that a load of W elements of S gives and a store of them takes.
template <class S, int W> struct Value { using type = Vec<typename Stored<S>::type, W>; };
template <int W> struct Value<b8, W> { using type = Mask<W>; };

/// Copies the first n < W elements in pieces of W/2, W/4, ... 1: few branches and never a call of memcpy.
template <int Step, class T> KN_FN void copy_pieces(T* to, const T* from, i64 n) {
  if constexpr (Step > 0) {
    if (n & Step) {
      __builtin_memcpy(to, from, Step * sizeof(T));
      to += Step;
      from += Step;
    }
    copy_pieces<Step / 2>(to, from, n);
  }
}

}  // namespace detail

template <class S, int W> using ValueOf = typename detail::Value<S, W>::type;

/// What is left of v after a store as S, bf16 or f16, and a load.
template <class S, class V> KN_FN V round_to(V v) {
  constexpr int W = width<V>;
  return detail::decode<S, W>(detail::encode<S, W>(v));
}

/// p[0..W).
template <int W, class S> KN_FN ValueOf<S, W> load(const S* p) {
  Vec<detail::RawOf<S>, W> v;
  __builtin_memcpy(&v, p, W * sizeof(S));
  return detail::decode<S, W>(v);
}
template <int W, class S> KN_FN void store(S* p, Same<ValueOf<S, W>> v) {
  const Vec<detail::RawOf<S>, W> r = detail::encode<S, W>(v);
  __builtin_memcpy(p, &r, W * sizeof(S));
}

/// p[0..n) for n >= 0, at most W; the lanes from n on are zero (false).
template <int W, class S> KN_FN ValueOf<S, W> load_n(const S* p, i64 n) {
  using R = detail::RawOf<S>;
  using V = Vec<R, W>;
  n = n < W ? n : W;
  if constexpr (target::has_partial<sizeof(R), W>) {
    return detail::decode<S, W>(__builtin_bit_cast(V, target::load_n<sizeof(R), W>(p, n)));
  } else {
    if (n == W) return load<W>(p);
    R part[W] = {};
    detail::copy_pieces<W / 2>(part, reinterpret_cast<const R*>(p), n);
    V v;
    __builtin_memcpy(&v, part, sizeof(part));
    return detail::decode<S, W>(v);
  }
}
template <int W, class S> KN_FN void store_n(S* p, i64 n, Same<ValueOf<S, W>> v) {
  using R = detail::RawOf<S>;
  n = n < W ? n : W;
  const Vec<R, W> r = detail::encode<S, W>(v);
  if constexpr (target::has_partial<sizeof(R), W>) {
    target::store_n<sizeof(R), W>(p, n, detail::bits<target::Lanes<sizeof(R), W>>(r));
  } else {
    if (n == W) return store<W>(p, v);
    R part[W];
    __builtin_memcpy(part, &r, sizeof(part));
    detail::copy_pieces<W / 2>(reinterpret_cast<R*>(p), part, n);
  }
}

/// p[i * stride] for lanes i (the stride counts elements, may be 0 or negative), all W or the first n.
template <int W, class S> KN_FN ValueOf<S, W> load_strided(const S* p, i64 stride) {
  using R = detail::RawOf<S>;
  const R* q = reinterpret_cast<const R*>(p);
  Vec<R, W> v;
  for (int i = 0; i < W; ++i) detail::set_lane(v, i, q[i * stride]);
  return detail::decode<S, W>(v);
}
template <int W, class S> KN_FN ValueOf<S, W> load_strided_n(const S* p, i64 stride, i64 n) {
  using R = detail::RawOf<S>;
  const R* q = reinterpret_cast<const R*>(p);
  Vec<R, W> v = {};
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < n && i < W; ++i) detail::set_lane(v, i, q[i * stride]);
  return detail::decode<S, W>(v);
}
template <int W, class S> KN_FN void store_strided(S* p, i64 stride, Same<ValueOf<S, W>> v) {
  using R = detail::RawOf<S>;
  R* q = reinterpret_cast<R*>(p);
  const Vec<R, W> r = detail::encode<S, W>(v);
  for (int i = 0; i < W; ++i) q[i * stride] = detail::lane(r, i);
}
template <int W, class S> KN_FN void store_strided_n(S* p, i64 stride, i64 n, Same<ValueOf<S, W>> v) {
  using R = detail::RawOf<S>;
  R* q = reinterpret_cast<R*>(p);
  const Vec<R, W> r = detail::encode<S, W>(v);
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < n && i < W; ++i) q[i * stride] = detail::lane(r, i);
}

/// p[index] in each lane (i32 or i64 indices, checked by nobody here), all lanes or the first n.
template <class S, class I> KN_FN ValueOf<S, width<I>> gather(const S* p, I index) {
  constexpr int W = width<I>;
  using R = detail::RawOf<S>;
  const R* q = reinterpret_cast<const R*>(p);
  Vec<R, W> v;
  for (int i = 0; i < W; ++i) detail::set_lane(v, i, q[detail::lane(index, i)]);
  return detail::decode<S, W>(v);
}
template <class S, class I> KN_FN ValueOf<S, width<I>> gather_n(const S* p, I index, i64 n) {
  constexpr int W = width<I>;
  using R = detail::RawOf<S>;
  const R* q = reinterpret_cast<const R*>(p);
  Vec<R, W> v = {};
#pragma clang loop unroll(disable) vectorize(disable)
  for (int i = 0; i < n && i < W; ++i) detail::set_lane(v, i, q[detail::lane(index, i)]);
  return detail::decode<S, W>(v);
}
/// p[index] where the mask holds, zero (false) elsewhere; masked-off indices are not read through.
template <class S, class I>
KN_FN ValueOf<S, width<I>> gather_if(const S* p, I index, Mask<width<I>> m) {
  constexpr int W = width<I>;
  using R = detail::RawOf<S>;
  const R* q = reinterpret_cast<const R*>(p);
  Vec<R, W> v = {};
  for (int i = 0; i < W; ++i) {
    if (detail::lane(m.lanes, i)) detail::set_lane(v, i, q[detail::lane(index, i)]);
  }
  return detail::decode<S, W>(v);
}
/// p[index] = v where the mask holds. Equal indices: the last lane wins.
template <class S, class I>
KN_FN void scatter_if(S* p, I index, Mask<width<I>> m, Same<ValueOf<S, width<I>>> v) {
  constexpr int W = width<I>;
  using R = detail::RawOf<S>;
  R* q = reinterpret_cast<R*>(p);
  const Vec<R, W> r = detail::encode<S, W>(v);
  for (int i = 0; i < W; ++i) {
    if (detail::lane(m.lanes, i)) q[detail::lane(index, i)] = detail::lane(r, i);
  }
}

}  // namespace kn
