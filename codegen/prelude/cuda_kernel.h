// SPDX-License-Identifier: Apache-2.0
// What a kernel is given, and whether it runs: for the kernel macros of cuda_device.h and cuda_sim.h.
#pragma once

#include "cuda_vec.h"
#include "cuda_words.h"

namespace kn::device {

/// The parameter block of ir/kernel_image.h.
template <int Buffers, int Dims> struct Parameters {
  void* buffers[Buffers > 0 ? Buffers : 1];
  i64 dims[Dims > 0 ? Dims : 1];
  const i64* guard;
};
/// That of a kernel of several parts.
template <int Buffers, int Dims> struct Parts {
  static constexpr int kBuffers = Buffers > 0 ? Buffers : 1, kDims = Dims > 0 ? Dims : 1;
  static constexpr int kMost = (4096 / 8 - 1) / (kBuffers + kDims + 1);
  i64 first[kMost];
  void* buffers[kMost][kBuffers];
  i64 dims[kMost][kDims];
  const i64* guard;
};
/// The last of N parts that begins with `block` or before it: the same for all threads of a block.
template <int N> KN_FN int part_of(const i64 (&first)[N], i64 block) {
  static_assert(N < 256, "each has a word of its own, a buffer and a dim at least");
  int part = 0;
#pragma unroll
  for (int step = 128; step > 0; step /= 2)
    if (part + step < N && first[part + step] <= block) part += step;
  return part;
}
KN_FN bool runs(const i64* guard) {
  return guard == nullptr || load_global<i64>(guard) == -9223372036854775807l - 1;
}

}  // namespace kn::device
