// SPDX-License-Identifier: Apache-2.0
// Small matrices that a warp holds in registers: loads of 8 x 8 tiles, products with f32 sums on tensor
// cores, packing of 16-bit pairs. Which lane holds what: PTX ISA, "Warp-level matrix instructions".
#pragma once

#include "cuda_memory.h"

namespace kn {

/// Four 8 x 8 matrices of 16-bit elements: lane l names row l % 8 of matrix l / 8, 16 bytes; r[i] is this
/// lane's pair of matrix i, or of its transpose.
template <class S> KN_FN void ldmatrix4(u32 (&r)[4], Shared<S> row) {
  static_assert(sizeof(S) == 2, "16-bit elements");
  device::ldmatrix4(r, row.at);
}
template <class S> KN_FN void ldmatrix4_transposed(u32 (&r)[4], Shared<S> row) {
  static_assert(sizeof(S) == 2, "16-bit elements");
  device::ldmatrix4_transposed(r, row.at);
}

/// d += a b. 16 x 8 x 16, and 16 x 8 x 8 for tf32.
KN_FN void mma_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { device::mma_bf16(d, a, b); }
KN_FN void mma_f16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { device::mma_f16(d, a, b); }
KN_FN void mma_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { device::mma_tf32(d, a, b); }

/// x to 10 bits of mantissa, halves away from zero.
KN_FN u32 tf32(f32 x) { return device::to_tf32(x); }
/// Two elements in one register, the first in its low half.
KN_FN u32 pack_bf16(f32 low, f32 high) { return device::pack_bf16(low, high); }
KN_FN u32 pack_f16(f32 low, f32 high) { return device::pack_f16(low, high); }

}  // namespace kn
