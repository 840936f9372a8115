// SPDX-License-Identifier: Apache-2.0
// Polynomials, for all targets. Included after the words for values and fma.
#pragma once

namespace kn::detail {

/// c0 + x (c1 + x (c2 + ...)), every step fused.
template <class V> KN_FN V horner(V, Elem<V> last) { return (V)(last); }
template <class V, class... C> KN_FN V horner(V x, Elem<V> c0, C... rest) {
  return fma(horner(x, Elem<V>(rest)...), x, (V)(c0));
}

}  // namespace kn::detail
