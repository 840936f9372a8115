// SPDX-License-Identifier: Apache-2.0
// The one place with target intrinsics. Each entry has a portable version in the other headers that gives
// the same bits; an entry that is not there for a target or width is reported by `has_...` and the portable
// version is used.
#pragma once

#include "cpu_vec.h"

namespace kn::target {

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

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

#else

template <class V> inline constexpr bool has_scalef = false;
template <class V> KN_FN V scalef(V p, V) { return p; }

#endif

}  // namespace kn::target
