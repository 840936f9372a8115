// SPDX-License-Identifier: Apache-2.0
// Random numbers as a pure function of (seed, offset, element): the same bits in every kernel, fused or
// not, and on the host (ir/base/philox.h, which a test compares).
// Source: J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011 (Philox4x32-10).
#pragma once

#include "cpu_vec.h"

namespace kn {
namespace detail {

/// A scalar or a vector as W lanes of u64.
template <int W, class T> KN_FN Vec<u64, W> as_u64(T x) {
  if constexpr (width<T> == 1) return (Vec<u64, W>)(u64(x));
  else return convert<u64>(x);
}

}  // namespace detail

/// 32 random bits for each element j (i64 lanes, j >= 0): word j % 4 of the block with counter
/// (j / 4 low, j / 4 high, offset low, offset high) under the key (seed low, seed high).
template <class S, class O, class J> KN_FN Like<J, u32> philox_bits(S seed, O offset, J j) {
  constexpr int W = width<J>;
  using U = Vec<u64, W>;
  const U element = detail::as_u64<W>(j), block = element >> 2;
  const U low = (U)(0xfffffffful);
  const U s = detail::as_u64<W>(seed), o = detail::as_u64<W>(offset);
  U c0 = block & low, c1 = block >> 32, c2 = o & low, c3 = o >> 32;
  U k0 = s & low, k1 = s >> 32;
  for (int round = 0; round < 10; ++round) {
    const U p0 = c0 * 0xD2511F53ul, p1 = c2 * 0xCD9E8D57ul;
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1 & low;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0 & low;
    k0 = (k0 + 0x9E3779B9ul) & low;
    k1 = (k1 + 0xBB67AE85ul) & low;
  }
  const auto second = (element & 1ul) != 0ul, upper = (element & 2ul) != 0ul;
  const U head = second ? c1 : c0, tail = second ? c3 : c2;
  return convert<u32>(U(upper ? tail : head));
}

/// Uniform in [0, 1): the upper 24 of those bits.
template <class S, class O, class J> KN_FN Like<J, f32> philox_uniform(S seed, O offset, J j) {
  const auto top = detail::i32_of(Like<J, u32>(philox_bits(seed, offset, j) >> 8));
  return convert<f32>(top) * 0x1p-24f;
}
/// The op's word for it.
template <class S, class O, class J> KN_FN Like<J, f32> random_uniform(S seed, O offset, J j) {
  return philox_uniform(seed, offset, j);
}

}  // namespace kn
