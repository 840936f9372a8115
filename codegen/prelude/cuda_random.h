// SPDX-License-Identifier: Apache-2.0
// Random numbers by counter, with the bits of every other target (ir/base/philox.h, which a test compares).
// Source: J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011 (Philox4x32-10).
#pragma once

#include "cuda_arith.h"

namespace kn {
namespace detail {

struct PhiloxBlock {
  u32 word[4];
};
KN_FN PhiloxBlock philox_block(u64 seed, u64 offset, u64 block) {
  u32 c0 = u32(block), c1 = u32(block >> 32), c2 = u32(offset), c3 = u32(offset >> 32);
  u32 k0 = u32(seed), k1 = u32(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = u64(0xD2511F53u) * c0, p1 = u64(0xCD9E8D57u) * c2;
    c0 = u32(p1 >> 32) ^ c1 ^ k0;
    c1 = u32(p1);
    c2 = u32(p0 >> 32) ^ c3 ^ k1;
    c3 = u32(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
KN_FN u32 philox_word(const PhiloxBlock& b, u64 j) {
  const u32 head = (j & 1) != 0 ? b.word[1] : b.word[0], tail = (j & 1) != 0 ? b.word[3] : b.word[2];
  return (j & 2) != 0 ? tail : head;
}
/// All lanes of a scalar or pack are one number.
template <int W, class T> KN_FN bool uniform(const T& x) {
  bool r = true;
#pragma unroll
  for (int i = 1; i < W; ++i) r = r && lane(x, i) == lane(x, 0);
  return r;
}

}  // namespace detail

/// 32 random bits for each element j (i64 lanes, j >= 0): word j % 4 of the block with counter
/// (j / 4 low, j / 4 high, offset low, offset high) under the key (seed low, seed high). Four neighbours from
/// a multiple of 4 on share a block.
template <class S, class O, class J> KN_FN Like<J, u32> philox_bits(S seed, O offset, J j) {
  constexpr int W = width<J>;
  using detail::lane, detail::philox_block;
  Like<J, u32> r;
  if constexpr (W % 4 == 0) {
    bool neighbours = detail::uniform<W>(seed) && detail::uniform<W>(offset) && (lane(j, 0) & 3) == 0;
#pragma unroll
    for (int i = 1; i < W; ++i) neighbours = neighbours && lane(j, i) == lane(j, 0) + i;
    if (neighbours) {
#pragma unroll
      for (int i = 0; i < W; i += 4) {
        const auto b = philox_block(u64(lane(seed, 0)), u64(lane(offset, 0)), u64(lane(j, i)) >> 2);
#pragma unroll
        for (int w = 0; w < 4; ++w) detail::set_lane(r, i + w, b.word[w]);
      }
      return r;
    }
  }
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const u64 element = u64(lane(j, i));
    const auto b = philox_block(u64(lane(seed, i)), u64(lane(offset, i)), element >> 2);
    detail::set_lane(r, i, detail::philox_word(b, element));
  }
  return r;
}

/// Uniform in [0, 1): the upper 24 of those bits.
template <class S, class O, class J> KN_FN Like<J, f32> philox_uniform(S seed, O offset, J j) {
  return detail::each<Like<J, f32>>([](u32 x) KN_LAMBDA { return f32(x >> 8) * 0x1p-24f; },
                                    philox_bits(seed, offset, j));
}
/// The op's word for it.
template <class S, class O, class J> KN_FN Like<J, f32> random_uniform(S seed, O offset, J j) {
  return philox_uniform(seed, offset, j);
}

}  // namespace kn
