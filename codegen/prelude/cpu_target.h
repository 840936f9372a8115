// SPDX-License-Identifier: Apache-2.0
// The one place with target intrinsics. Each entry has a portable version in the other headers that gives
// the same bits; an entry that is not there for a target or width is reported by `has_...` and the portable
// version is used. Pairs of bf16 have none: kernels with them are written for targets with them alone.
#pragma once

#include "cpu_vec.h"

namespace kn::target {

using Quad = long long;
/// Integer lanes as the intrinsics want them.
template <int Bytes> struct LaneOf { using type = i32; };
template <> struct LaneOf<2> { using type = short; };
template <> struct LaneOf<8> { using type = Quad; };
template <int Bytes, int W> using Lanes = Vec<typename LaneOf<Bytes>::type, W>;

/// The same vector, of which the compiler knows nothing: where half of it is used, too, it makes no other.
template <class V> KN_FN V whole(V x) {
#if defined(__AVX512F__)
  __asm__("" : "+v"(x));
#endif
  return x;
}

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && defined(__AVX512BW__)

template <class V>
inline constexpr bool has_scalef = (is_f32<V> && (width<V> == 16 || width<V> == 8 || width<V> == 4)) ||
                                   (is_f64<V> && (width<V> == 8 || width<V> == 4));
/// p * 2^k for an integer-valued k, rounded once.
template <class V> KN_FN V scalef(V p, V k) {
  if constexpr (is_f32<V> && width<V> == 16) return __builtin_ia32_scalefps512_mask(p, k, p, 0xffff, 4);
  else if constexpr (is_f32<V> && width<V> == 8) return __builtin_ia32_scalefps256_mask(p, k, p, 0xff);
  else if constexpr (is_f32<V>) return __builtin_ia32_scalefps128_mask(p, k, p, 0xff);
  else if constexpr (width<V> == 8) return __builtin_ia32_scalefpd512_mask(p, k, p, 0xff, 4);
  else return __builtin_ia32_scalefpd256_mask(p, k, p, 0xff);
}

/// Loads and stores of the first n <= W elements of 2, 4 or 8 bytes, as integers; loads give zero beyond.
template <int Bytes, int W>
inline constexpr bool has_partial = (Bytes == 2 && (W == 32 || W == 16 || W == 8)) ||
                                    (Bytes == 4 && (W == 16 || W == 8 || W == 4)) ||
                                    (Bytes == 8 && (W == 8 || W == 4));
template <int Bytes, int W> KN_FN auto load_n(const void* p, i64 n) {
  using L = Lanes<Bytes, W>;
  const u32 m = u32((u64(1) << n) - 1u);
  const L zero = L(0);
  const auto* v = static_cast<const L*>(p);
  if constexpr (Bytes == 2 && W == 32) return __builtin_ia32_loaddquhi512_mask(v, zero, m);
  else if constexpr (Bytes == 2 && W == 16) return __builtin_ia32_loaddquhi256_mask(v, zero, u16(m));
  else if constexpr (Bytes == 2) return __builtin_ia32_loaddquhi128_mask(v, zero, u8(m));
  else if constexpr (Bytes == 4 && W == 16)
    return __builtin_ia32_loaddqusi512_mask(static_cast<const i32*>(p), zero, u16(m));
  else if constexpr (Bytes == 4 && W == 8) return __builtin_ia32_loaddqusi256_mask(v, zero, u8(m));
  else if constexpr (Bytes == 4) return __builtin_ia32_loaddqusi128_mask(v, zero, u8(m));
  else if constexpr (W == 8)
    return __builtin_ia32_loaddqudi512_mask(static_cast<const Quad*>(p), zero, u8(m));
  else return __builtin_ia32_loaddqudi256_mask(v, zero, u8(m));
}
template <int Bytes, int W> KN_FN void store_n(void* p, i64 n, Lanes<Bytes, W> v) {
  const u32 m = u32((u64(1) << n) - 1u);
  auto* q = static_cast<Lanes<Bytes, W>*>(p);
  if constexpr (Bytes == 2 && W == 32) __builtin_ia32_storedquhi512_mask(q, v, m);
  else if constexpr (Bytes == 2 && W == 16) __builtin_ia32_storedquhi256_mask(q, v, u16(m));
  else if constexpr (Bytes == 2) __builtin_ia32_storedquhi128_mask(q, v, u8(m));
  else if constexpr (Bytes == 4 && W == 16)
    __builtin_ia32_storedqusi512_mask(static_cast<i32*>(p), v, u16(m));
  else if constexpr (Bytes == 4 && W == 8) __builtin_ia32_storedqusi256_mask(q, v, u8(m));
  else if constexpr (Bytes == 4) __builtin_ia32_storedqusi128_mask(q, v, u8(m));
  else if constexpr (W == 8) __builtin_ia32_storedqudi512_mask(static_cast<Quad*>(p), v, u8(m));
  else __builtin_ia32_storedqudi256_mask(q, v, u8(m));
}

#else

template <class V> inline constexpr bool has_scalef = false;
template <class V> KN_FN V scalef(V p, V) { return p; }

#if defined(__AVX2__)

template <int Bytes, int W>
inline constexpr bool has_partial = (Bytes == 4 && (W == 8 || W == 4)) || (Bytes == 8 && W == 4);
template <int Bytes, int W> KN_FN auto load_n(const void* p, i64 n) {
  using L = Lanes<Bytes, W>;
  const L m = __builtin_bit_cast(L, iota<W>(Elem<L>(0)) < Elem<L>(n));
  if constexpr (Bytes == 8) return __builtin_ia32_maskloadq256(static_cast<const L*>(p), m);
  else if constexpr (W == 8) return __builtin_ia32_maskloadd256(static_cast<const L*>(p), m);
  else return __builtin_ia32_maskloadd(static_cast<const L*>(p), m);
}
template <int Bytes, int W> KN_FN void store_n(void* p, i64 n, Lanes<Bytes, W> v) {
  using L = Lanes<Bytes, W>;
  const L m = __builtin_bit_cast(L, iota<W>(Elem<L>(0)) < Elem<L>(n));
  if constexpr (Bytes == 8) __builtin_ia32_maskstoreq256(static_cast<L*>(p), m, v);
  else if constexpr (W == 8) __builtin_ia32_maskstored256(static_cast<L*>(p), m, v);
  else __builtin_ia32_maskstored(static_cast<L*>(p), m, v);
}

#else

template <int Bytes, int W> inline constexpr bool has_partial = false;
template <int Bytes, int W> KN_FN Lanes<Bytes, W> load_n(const void*, i64) { return {}; }
template <int Bytes, int W> KN_FN void store_n(void*, i64, Lanes<Bytes, W>) {}

#endif
#endif

#if defined(__AVX512BF16__) && defined(__AVX512VL__)

template <int N> using Bf16 = __bf16 __attribute__((ext_vector_type(N)));
/// In each lane c plus the products of two bf16: first of the high halves, then of the low ones, each fused
/// and rounded to nearest even. Below 2^-126 everything is zero, what goes in and what comes out.
template <class V> KN_FN V dot(V c, Like<V, u32> x, Like<V, u32> y) {
  using B = Bf16<2 * width<V>>;
  const B a = __builtin_bit_cast(B, x), b = __builtin_bit_cast(B, y);
  if constexpr (width<V> == 16) return __builtin_ia32_dpbf16ps_512(c, a, b);
  else if constexpr (width<V> == 8) return __builtin_ia32_dpbf16ps_256(c, a, b);
  else return __builtin_ia32_dpbf16ps_128(c, a, b);
}
/// Bits of bf16, to nearest even; what is below 2^-126 becomes zero. One vector, or two as one.
template <class V> KN_FN auto narrow(V x, V y) {
  using U = Vec<u16, 2 * width<V>>;
  if constexpr (width<V> == 16) return __builtin_bit_cast(U, __builtin_ia32_cvtne2ps2bf16_512(y, x));
  else if constexpr (width<V> == 8) return __builtin_bit_cast(U, __builtin_ia32_cvtne2ps2bf16_256(y, x));
  else return __builtin_bit_cast(U, __builtin_ia32_cvtne2ps2bf16_128(y, x));
}
template <class V> KN_FN auto narrow(V x) {
  using U = Vec<u16, width<V>>;
  const Bf16<width<V>> none = {};
  if constexpr (width<V> == 16)
    return __builtin_bit_cast(U, __builtin_ia32_cvtneps2bf16_512_mask(x, none, 0xffff));
  else if constexpr (width<V> == 8)
    return __builtin_bit_cast(U, __builtin_ia32_cvtneps2bf16_256_mask(x, none, 0xff));
  else return U(narrow(x, x).lo);
}

#endif

}  // namespace kn::target
