// SPDX-License-Identifier: Apache-2.0
// Loads and stores of CUDA kernels, global and shared: whole, first n lanes, strided, by index. load and
// store are accesses of up to 16 bytes, so their place is a multiple of as many; the other forms go element
// by element, touch exactly what they name, and need the element's alignment only.
#pragma once

#include "cuda_vec.h"
#include "cuda_words.h"

namespace kn {

/// A place in the dynamic shared memory of the block, which holds elements of S.
template <class S> struct Shared {
  u32 at;  ///< bytes from its start
  KN_FN Shared operator+(i32 elements) const { return {at + u32(elements) * u32(sizeof(S))}; }
};
template <class S> KN_FN Shared<S> shared(i32 byte_offset) { return {u32(byte_offset)}; }

namespace detail {

template <class S> struct Stored { using type = S; };
template <> struct Stored<bf16> { using type = f32; };
template <> struct Stored<f16> { using type = f32; };
template <> struct Stored<b8> { using type = bool; };

/// The storage of bf16, f16 and b8 as plain integers.
template <class S> struct Raw { using type = S; };
template <> struct Raw<bf16> { using type = u16; };
template <> struct Raw<f16> { using type = u16; };
template <> struct Raw<b8> { using type = u8; };
template <class S> using RawOf = typename Raw<S>::type;

template <class S> KN_FN auto decode(RawOf<S> r) {
  if constexpr (same<S, bf16>) return bits<f32>(u32(r) << 16);
  else if constexpr (same<S, f16>) return device::from_f16(r);
  else if constexpr (same<S, b8>) return r != 0;
  else return r;
}
template <class S> KN_FN RawOf<S> encode(typename Stored<S>::type v) {
  if constexpr (same<S, bf16>) return device::to_bf16(v);
  else if constexpr (same<S, f16>) return device::to_f16(v);
  else if constexpr (same<S, b8>) return u8(v ? 1 : 0);
  else return v;
}

/// The value type that a load of W elements of S gives and a store of them takes.
template <class S, int W> struct Value { using type = Vec<typename Stored<S>::type, W>; };
template <int W> struct Value<b8, W> { using type = Mask<W>; };

// One access, global or shared.
template <class P> KN_FN P fetch(const void* p) { return device::load_global<P>(p); }
template <class P, class S> KN_FN P fetch(Shared<S> p) { return device::load_shared<P>(p.at); }
template <class P> KN_FN void put(void* p, P x) { device::store_global<P>(p, x); }
template <class P, class S> KN_FN void put(Shared<S> p, P x) { device::store_shared<P>(p.at, x); }

/// Elements of one access.
template <class R, int W> inline constexpr int piece = W * int(sizeof(R)) <= 16 ? W : 16 / int(sizeof(R));

template <class S, int W, class P> KN_FN typename Value<S, W>::type load_pieces(P p) {
  using R = RawOf<S>;
  constexpr int kPiece = piece<R, W>;
  typename Value<S, W>::type v;
#pragma unroll
  for (int i = 0; i < W; i += kPiece) {
    const auto part = fetch<Vec<R, kPiece>>(p + i);
#pragma unroll
    for (int k = 0; k < kPiece; ++k) set_lane(v, i + k, decode<S>(lane(part, k)));
  }
  return v;
}
template <class S, int W, class P> KN_FN void store_pieces(P p, const typename Value<S, W>::type& v) {
  using R = RawOf<S>;
  constexpr int kPiece = piece<R, W>;
#pragma unroll
  for (int i = 0; i < W; i += kPiece) {
    Vec<R, kPiece> part;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) set_lane(part, k, encode<S>(lane(v, i + k)));
    put(p + i, part);
  }
}

/// Element `at(i)` in each lane where `wanted(i)`, zero (false) elsewhere.
template <class S, int W, class At, class If>
KN_FN typename Value<S, W>::type load_each(At at, If wanted) {
  typename Value<S, W>::type v = {};
#pragma unroll
  for (int i = 0; i < W; ++i)
    if (wanted(i)) set_lane(v, i, decode<S>(fetch<RawOf<S>>(at(i))));
  return v;
}
template <class S, int W, class At, class If>
KN_FN void store_each(At at, If wanted, const typename Value<S, W>::type& v) {
#pragma unroll
  for (int i = 0; i < W; ++i)
    if (wanted(i)) put(at(i), encode<S>(lane(v, i)));
}

}  // namespace detail

/// What is left of v after a store as S, bf16 or f16, and a load.
template <class S, class V> KN_FN V round_to(V v) {
  return detail::each<V>([](f32 x) KN_LAMBDA { return detail::decode<S>(detail::encode<S>(x)); }, v);
}

template <class S, int W> using ValueOf = typename detail::Value<S, W>::type;

/// p[0..W).
template <int W, class S> KN_FN ValueOf<S, W> load(const S* p) { return detail::load_pieces<S, W>(p); }
template <int W, class S> KN_FN void store(S* p, Same<ValueOf<S, W>> v) { detail::store_pieces<S, W>(p, v); }
template <int W, class S> KN_FN ValueOf<S, W> load(Shared<S> p) { return detail::load_pieces<S, W>(p); }
template <int W, class S> KN_FN void store(Shared<S> p, Same<ValueOf<S, W>> v) {
  detail::store_pieces<S, W>(p, v);
}

// What follows reads elements one by one: those of the lanes for which `wanted` holds.
#define KN_AT(expression) [=](int i) KN_LAMBDA { return expression; }

/// p[0..n) for n >= 0, at most W; the lanes from n on are zero (false).
template <int W, class S> KN_FN ValueOf<S, W> load_n(const S* p, i64 n) {
  return detail::load_each<S, W>(KN_AT(p + i), KN_AT(i < n));
}
template <int W, class S> KN_FN void store_n(S* p, i64 n, Same<ValueOf<S, W>> v) {
  detail::store_each<S, W>(KN_AT(p + i), KN_AT(i < n), v);
}
template <int W, class S> KN_FN ValueOf<S, W> load_n(Shared<S> p, i64 n) {
  return detail::load_each<S, W>(KN_AT(p + i), KN_AT(i < n));
}
template <int W, class S> KN_FN void store_n(Shared<S> p, i64 n, Same<ValueOf<S, W>> v) {
  detail::store_each<S, W>(KN_AT(p + i), KN_AT(i < n), v);
}

/// p[i * stride] for lanes i (the stride counts elements, may be 0 or negative), all W or the first n.
template <int W, class S> KN_FN ValueOf<S, W> load_strided(const S* p, i64 stride) {
  return detail::load_each<S, W>(KN_AT(p + i * stride), KN_AT(i >= 0));
}
template <int W, class S> KN_FN ValueOf<S, W> load_strided_n(const S* p, i64 stride, i64 n) {
  return detail::load_each<S, W>(KN_AT(p + i * stride), KN_AT(i < n));
}
template <int W, class S> KN_FN void store_strided(S* p, i64 stride, Same<ValueOf<S, W>> v) {
  detail::store_each<S, W>(KN_AT(p + i * stride), KN_AT(i >= 0), v);
}
template <int W, class S> KN_FN void store_strided_n(S* p, i64 stride, i64 n, Same<ValueOf<S, W>> v) {
  detail::store_each<S, W>(KN_AT(p + i * stride), KN_AT(i < n), v);
}

/// p[index] in each lane (i32 or i64 indices, checked by nobody here), all lanes or the first n.
template <class S, class I> KN_FN ValueOf<S, width<I>> gather(const S* p, I index) {
  return detail::load_each<S, width<I>>(KN_AT(p + detail::lane(index, i)), KN_AT(i >= 0));
}
template <class S, class I> KN_FN ValueOf<S, width<I>> gather_n(const S* p, I index, i64 n) {
  return detail::load_each<S, width<I>>(KN_AT(p + detail::lane(index, i)), KN_AT(i < n));
}
/// p[index] where the mask holds, zero (false) elsewhere; masked-off indices are not read through.
template <class S, class I>
KN_FN ValueOf<S, width<I>> gather_if(const S* p, I index, Mask<width<I>> m) {
  return detail::load_each<S, width<I>>(KN_AT(p + detail::lane(index, i)), KN_AT(detail::lane(m, i)));
}
/// p[index] = v where the mask holds. Equal indices: the last lane wins.
template <class S, class I>
KN_FN void scatter_if(S* p, I index, Mask<width<I>> m, Same<ValueOf<S, width<I>>> v) {
  detail::store_each<S, width<I>>(KN_AT(p + detail::lane(index, i)), KN_AT(detail::lane(m, i)), v);
}

#undef KN_AT

}  // namespace kn
