// SPDX-License-Identifier: Apache-2.0
// Division, remainders, shifts and integer powers as PyTorch defines them. An integer divided by zero gives
// zero here: kernels cannot raise an error, a guard of the plan does. The least integer by -1 wraps.
#pragma once

#include "cpu_libm.h"
#include "cpu_math_wide.h"
#include "cpu_reduce.h"

namespace kn {
namespace detail {

template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<i32> {
  using type = u32;
};
template <>
struct UnsignedOf<i64> {
  using type = u64;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::type;

/// a / b cut to an integer, without the traps of the machine's division.
template <class V>
KN_FN V quotient(V a, V b) {
  using E = Elem<V>;
  const V zero = (V)(E(0)), one = (V)(E(1));
  if constexpr (same<E, u8>) {
    const auto none = b == zero;
    return V(none ? zero : V(a / V(none ? one : b)));
  } else {
    const V minus = (V)(E(-1));
    const auto none = b == zero;
    const auto negate = b == minus;
    const V safe = none ? one : V(negate ? one : b);
    V q;
    // A quotient of 32-bit integers is at least 2^-31 away from the next integer, relatively: f64 cannot
    // reach it.
    if constexpr (same<E, i32> && width < V >> 1)
      q = lanes_as<Like<V, f64>, i32>(lanes_as<V, f64>(a) / lanes_as<V, f64>(safe));
    else q = a / safe;
    return none ? zero : V(negate ? sub(zero, q) : q);
  }
}

/// a - trunc(a / b) b for b > 0. Requires f32 values and |a / b| < 2^52: q is the true quotient cut, or one
/// more, and what is left is a multiple of b's last place that needs 26 bits, so the product and sum are
/// exact.
template <class D>
KN_FN D fmod_step(D a, D b) {
  const D q = __builtin_elementwise_trunc(D(a / b));
  const D r = fma(D(-q), b, a);
  const auto over = (r != 0.0) & ((r < 0.0) != (a < 0.0));
  return over ? D(r + copysign(b, a)) : r;
}
template <class V>
KN_FN V fmod_f32(V x, V y) {
  using D = Like<V, f64>;
  const D a = convert<f64>(x), b = abs(convert<f64>(y));
  const D inf = (D)(__builtin_inf());
  D r = a;
  while (true) {
    const D ratio = abs(r) / b;
    const auto far = (ratio >= 0x1p52) & (ratio < inf);
    if (!any(mask<width<V>>(far))) break;
    const D scaled = b * f64_of((u64_of(ratio) & 0x7ff0000000000000ul) - (50ul << 52));
    r = far ? fmod_step(r, scaled) : r;
  }
  const auto whole = (b == inf) & (abs(a) < inf);
  r = whole ? a : fmod_step(r, b);
  return convert<f32>(copysign(r, a));
}

}  // namespace detail

/// The remainder of a / b cut to an integer: it has a's sign.
template <class V>
KN_FN V fmod(V a, Same<V> b) {
  if constexpr (is_f64<V>) {
    return detail::each<libm::fmod>(a, b);
  } else if constexpr (is_f32<V>) {
    return detail::fmod_f32(a, b);
  } else {
    return sub(a, mul(detail::quotient<V>(a, b), b));
  }
}

/// The remainder with b's sign, as Python's %.
template <class V>
KN_FN V remainder(V a, Same<V> b) {
  const V zero = (V)(Elem<V>(0));
  const V m = fmod(a, b);
  const auto turn = (m != zero) & ((b < zero) != (m < zero));
  return turn ? add(m, b) : m;
}
/// The quotient rounded down, as Python's //.
/// Source: c10::div_floor_floating of PyTorch.
template <class V>
KN_FN V floor_divide(V a, Same<V> b) {
  using E = Elem<V>;
  const V zero = (V)(E(0)), one = (V)(E(1));
  const V m = fmod(a, b);
  const auto down = (m != zero) & ((b < zero) != (m < zero));
  if constexpr (is_float<V>) {
    const V cut = (a - m) / b;
    const V q = down ? V(cut - one) : cut;
    const V whole = floor(q);
    const V near = q - whole > (V)(E(0.5)) ? V(whole + one) : whole;
    const V plain = a / b;
    return b == zero ? plain : V(q == zero ? copysign(zero, plain) : near);
  } else {
    const V q = detail::quotient<V>(a, b);
    return (down & (b != zero)) ? sub(q, one) : q;
  }
}
/// The quotient cut to an integer.
template <class V>
KN_FN V trunc_divide(V a, Same<V> b) {
  if constexpr (is_float<V>) return trunc(V(a / b));
  else return detail::quotient<V>(a, b);
}

/// a 2^n that wraps; 0 where n is negative or not below the width.
template <class V>
KN_FN V shift_left(V a, Same<V> n) {
  using E = Elem<V>;
  using U = Like<V, detail::Unsigned<E>>;
  const V zero = (V)(E(0)), bits = (V)(E(sizeof(E) * 8));
  const auto in = (n >= zero) & (n < bits);
  return in ? detail::bits<V>(U(detail::bits<U>(a) << detail::bits<U>(V(in ? n : zero)))) : zero;
}
/// a / 2^n rounded down; only the sign is left where n is negative or not below the width.
template <class V>
KN_FN V shift_right(V a, Same<V> n) {
  using E = Elem<V>;
  const V zero = (V)(E(0)), last = (V)(E(sizeof(E) * 8 - 1));
  const auto in = (n >= zero) & (n <= last);
  const V r = a >> V(in ? n : last);
  if constexpr (detail::same<E, u8>) return in ? r : zero;
  else return r;
}

/// x^n by squaring, wrapping. A negative n gives the quotient cut: 0 unless x is 1 or -1.
template <class V>
KN_FN V pow_integer(V x, V n) {
  using E = Elem<V>;
  const V zero = (V)(E(0)), one = (V)(E(1));
  V r = one, base = x, left = n;
  while (any(gt(left, zero))) {
    const auto odd = ((left & one) != zero) & (left > zero);
    r = odd ? mul(r, base) : r;
    base = mul(base, base);
    left = left >> one;
  }
  if constexpr (detail::same<E, u8>) {
    return r;
  } else {
    const V minus = (V)(E(-1));
    const V sign = (n & one) != zero ? minus : one;
    const V small = x == one ? one : V(x == minus ? sign : zero);
    return n < zero ? small : r;
  }
}
template <class V>
KN_FN V pow(V x, Same<V> y) {
  if constexpr (is_f32<V>) return detail::pow_f32(x, y);
  else if constexpr (is_f64<V>) return detail::pow_f64(x, y);
  else return pow_integer<V>(x, y);
}

}  // namespace kn
