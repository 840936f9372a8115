// SPDX-License-Identifier: Apache-2.0
// Values of CUDA kernels: a scalar or a pack of W lanes behind the same names, masks, selection, comparison,
// conversion, and the arithmetic that no library is asked for. The same meaning, to the last bit, as
// cpu_vec.h. Read by NVRTC and clang; a pack is a struct whose lanes either keeps in registers.
#pragma once

#include "types.h"

#ifdef __CUDACC_RTC__
#define KN_FN __device__ __forceinline__
#define KN_LAMBDA
#else
#define KN_FN inline __attribute__((always_inline))
#define KN_LAMBDA __attribute__((always_inline))
#endif

using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;

namespace kn {

/// W > 1 lanes of T, as they lie in memory. Aligned as one access of them wants it, up to 16 bytes.
template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Pack {
  T at[W];
  Pack() = default;
  /// Every lane x.
  KN_FN Pack(T x) {
#pragma unroll
    for (int i = 0; i < W; ++i) at[i] = x;
  }
};

/// One truth value per lane. A type of its own, so that a mask is never added as a number.
template <int W> struct Mask { bool lanes[W]; };
template <> struct Mask<1> { bool lanes; };

namespace detail {
template <class T, int W> struct VecOf { using type = Pack<T, W>; };
template <class T> struct VecOf<T, 1> { using type = T; };
template <class V> struct Lane { using type = V; };
template <class T, int W> struct Lane<Pack<T, W>> { using type = T; };
template <int W> struct Lane<Mask<W>> { using type = bool; };
template <class V> inline constexpr int lanes_of = 1;
template <class T, int W> inline constexpr int lanes_of<Pack<T, W>> = W;
template <int W> inline constexpr int lanes_of<Mask<W>> = W;
}  // namespace detail

/// W lanes of T; one lane is T itself.
template <class T, int W> using Vec = typename detail::VecOf<T, W>::type;
/// The element type and the number of lanes of a value.
template <class V> using Elem = typename detail::Lane<V>::type;
template <class V> inline constexpr int width = detail::lanes_of<V>;
/// The same number of lanes, of T.
template <class V, class T> using Like = Vec<T, width<V>>;

template <class V> inline constexpr bool is_f32 = detail::same<Elem<V>, f32>;
template <class V> inline constexpr bool is_f64 = detail::same<Elem<V>, f64>;
template <class V> inline constexpr bool is_float = is_f32<V> || is_f64<V>;

/// Of f32 and f64. NVRTC has no builtins for them.
template <class T> inline constexpr T inf = T(__builtin_bit_cast(f32, 0x7f800000u));
template <class T> inline constexpr T nan = T(__builtin_bit_cast(f32, 0x7fc00000u));

namespace detail {
template <class T> KN_FN T lane(T x, int) { return x; }
template <class T, int W> KN_FN T lane(const Pack<T, W>& x, int i) { return x.at[i]; }
template <int W> KN_FN bool lane(const Mask<W>& m, int i) {
  if constexpr (W == 1) return m.lanes;
  else return m.lanes[i];
}
template <class T> KN_FN void set_lane(T& v, int, T x) { v = x; }
template <class T, int W> KN_FN void set_lane(Pack<T, W>& v, int i, T x) { v.at[i] = x; }
template <int W> KN_FN void set_lane(Mask<W>& m, int i, bool x) {
  if constexpr (W == 1) m.lanes = x;
  else m.lanes[i] = x;
}
template <class To, class From> KN_FN To bits(From v) { return __builtin_bit_cast(To, v); }

/// f in each lane.
template <class R, class F, class... A> KN_FN R each(F f, const A&... a) {
  R r;
#pragma unroll
  for (int i = 0; i < width<R>; ++i) set_lane(r, i, f(lane(a, i)...));
  return r;
}

template <class T> struct UnsignedOf { using type = T; };
template <> struct UnsignedOf<i32> { using type = u32; };
template <> struct UnsignedOf<i64> { using type = u64; };
/// Integers that wrap.
template <class T> using Unsigned = typename UnsignedOf<T>::type;
}  // namespace detail

// The operators of C++ on packs, and between a pack and a scalar.
#define KN_OPERATOR(op)                                                                        \
  template <class T, int W> KN_FN Pack<T, W> operator op(Pack<T, W> a, Same<Pack<T, W>> b) {   \
    return detail::each<Pack<T, W>>([](T x, T y) KN_LAMBDA { return T(x op y); }, a, b);       \
  }                                                                                            \
  template <class T, int W> KN_FN Pack<T, W> operator op(Same<T> a, Pack<T, W> b) {            \
    return detail::each<Pack<T, W>>([](T x, T y) KN_LAMBDA { return T(x op y); }, a, b);       \
  }
KN_OPERATOR(+)
KN_OPERATOR(-)
KN_OPERATOR(*)
KN_OPERATOR(/)
KN_OPERATOR(&)
KN_OPERATOR(|)
KN_OPERATOR(^)
#undef KN_OPERATOR
template <class T, int W> KN_FN Pack<T, W> operator-(Pack<T, W> a) {
  return detail::each<Pack<T, W>>([](T x) KN_LAMBDA { return T(-x); }, a);
}
template <class T, int W> KN_FN Pack<T, W> operator~(Pack<T, W> a) {
  return detail::each<Pack<T, W>>([](T x) KN_LAMBDA { return T(~x); }, a);
}

template <int W> KN_FN Mask<W> operator&(Mask<W> a, Mask<W> b) {
  return detail::each<Mask<W>>([](bool x, bool y) KN_LAMBDA { return x && y; }, a, b);
}
template <int W> KN_FN Mask<W> operator|(Mask<W> a, Mask<W> b) {
  return detail::each<Mask<W>>([](bool x, bool y) KN_LAMBDA { return x || y; }, a, b);
}
template <int W> KN_FN Mask<W> operator^(Mask<W> a, Mask<W> b) {
  return detail::each<Mask<W>>([](bool x, bool y) KN_LAMBDA { return x != y; }, a, b);
}
template <int W> KN_FN Mask<W> operator!(Mask<W> a) {
  return detail::each<Mask<W>>([](bool x) KN_LAMBDA { return !x; }, a);
}

/// A value with every lane x: broadcast<W>(x), and the same for masks.
template <int W, class T> KN_FN Vec<T, W> broadcast(T x) { return Vec<T, W>(x); }
template <int W> KN_FN Mask<W> broadcast_mask(bool x) {
  return detail::each<Mask<W>>([](bool y) KN_LAMBDA { return y; }, x);
}
/// start, start + 1, ...: the indices of W neighbours.
template <int W, class T> KN_FN Vec<T, W> iota(T start) {
  Vec<T, W> v;
#pragma unroll
  for (int i = 0; i < W; ++i) detail::set_lane(v, i, T(start + T(i)));
  return v;
}
/// Lanes [0, n) true.
template <int W> KN_FN Mask<W> first(i64 n) {
  const i32 most = i32(n < W ? n : W);
  Mask<W> m;
#pragma unroll
  for (int i = 0; i < W; ++i) detail::set_lane(m, i, i < most);
  return m;
}

#define KN_COMPARE(name, op)                                                                              \
  template <class V> KN_FN Mask<width<V>> name(V a, Same<V> b) {                                          \
    return detail::each<Mask<width<V>>>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return x op y; }, a, b);     \
  }
KN_COMPARE(eq, ==)
KN_COMPARE(ne, !=)
KN_COMPARE(lt, <)
KN_COMPARE(le, <=)
KN_COMPARE(gt, >)
KN_COMPARE(ge, >=)
#undef KN_COMPARE
template <int W> KN_FN Mask<W> eq(Mask<W> a, Mask<W> b) { return !(a ^ b); }
template <int W> KN_FN Mask<W> ne(Mask<W> a, Mask<W> b) { return a ^ b; }
template <int W> KN_FN Mask<W> lt(Mask<W> a, Mask<W> b) { return !a & b; }
template <int W> KN_FN Mask<W> le(Mask<W> a, Mask<W> b) { return !a | b; }
template <int W> KN_FN Mask<W> gt(Mask<W> a, Mask<W> b) { return a & !b; }
template <int W> KN_FN Mask<W> ge(Mask<W> a, Mask<W> b) { return a | !b; }
template <class V> KN_FN Mask<width<V>> isnan(V a) { return ne(a, a); }

/// m ? a : b in each lane.
template <class V> KN_FN V select(Mask<width<V>> m, V a, Same<V> b) {
  return detail::each<V>([](bool t, Elem<V> x, Elem<V> y) KN_LAMBDA { return t ? x : y; }, m, a, b);
}
template <int W> KN_FN Mask<W> select(Mask<W> m, Mask<W> a, Mask<W> b) { return (m & a) | (!m & b); }

/// Numbers to numbers as a C++ cast does; f32/f64 out of an integer's range is what the machine gives (as
/// in PyTorch).
template <class T, class V> KN_FN Like<V, T> convert(V v) {
  // By way of i32, so that a negative float wraps into u8 as in PyTorch instead of being undefined.
  if constexpr (detail::same<T, u8> && is_float<V>)
    return detail::each<Like<V, T>>([](Elem<V> x) KN_LAMBDA { return T(i32(x)); }, v);
  else return detail::each<Like<V, T>>([](Elem<V> x) KN_LAMBDA { return T(x); }, v);
}
/// A mask as numbers 1 and 0.
template <class T, int W> KN_FN Vec<T, W> convert(Mask<W> m) {
  return detail::each<Vec<T, W>>([](bool t) KN_LAMBDA { return T(t ? 1 : 0); }, m);
}
/// Numbers as a mask: nonzero (NaN too) is true.
template <class V> KN_FN Mask<width<V>> to_mask(V v) { return ne(v, V(Elem<V>(0))); }
template <int W> KN_FN Mask<W> to_mask(Mask<W> m) { return m; }

/// PyTorch's maximum and minimum: a NaN on either side is the result.
template <class V> KN_FN V max(V a, Same<V> b) {
  return detail::each<V>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return x != x || x > y ? x : y; }, a, b);
}
template <class V> KN_FN V min(V a, Same<V> b) {
  return detail::each<V>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return x != x || x < y ? x : y; }, a, b);
}
template <int W> KN_FN Mask<W> max(Mask<W> a, Mask<W> b) { return a | b; }
template <int W> KN_FN Mask<W> min(Mask<W> a, Mask<W> b) { return a & b; }

/// -1, 0 or 1; 0 for NaN, as torch.sign.
template <class V> KN_FN V sign(V v) {
  using E = Elem<V>;
  return detail::each<V>([](E x) KN_LAMBDA { return E((x > E(0)) - (x < E(0))); }, v);
}

// Sums and products that wrap for integers, also where C++ leaves overflow undefined.
#define KN_WRAPPING(name, op)                                                                             \
  template <class V> KN_FN V name(V a, Same<V> b) {                                                       \
    using U = detail::Unsigned<Elem<V>>;                                                                  \
    return detail::each<V>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return Elem<V>(U(x) op U(y)); }, a, b);   \
  }
KN_WRAPPING(add, +)
KN_WRAPPING(sub, -)
KN_WRAPPING(mul, *)
#undef KN_WRAPPING
namespace detail {
template <class E> KN_FN E rounded(E a, E b) { return mul(a, b); }
#ifdef __CUDACC__
KN_FN f32 rounded(f32 a, f32 b) { return __fmul_rn(a, b); }
KN_FN f64 rounded(f64 a, f64 b) { return __dmul_rn(a, b); }
#else
KN_FN f32 rounded(f32 a, f32 b) {
#pragma clang fp contract(off)
  return a * b;
}
KN_FN f64 rounded(f64 a, f64 b) {
#pragma clang fp contract(off)
  return a * b;
}
#endif
}  // namespace detail
/// A product that no sum takes unrounded.
template <class V> KN_FN V mul_rounded(V a, Same<V> b) {
  return detail::each<V>([](Elem<V> x, Elem<V> y) KN_LAMBDA { return detail::rounded(x, y); }, a, b);
}
template <class V> KN_FN V neg(V a) {
  if constexpr (is_float<V>) return -a;
  else return sub(V(Elem<V>(0)), a);
}

}  // namespace kn
