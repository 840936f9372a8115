// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 on the host: the reference that every generated kernel's random numbers equal bit for bit.
// Source: J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace kiln {

/// The four words of one block: counter (block low, block high, offset low, offset high), key (seed low,
/// high).
inline std::array<uint32_t, 4> philox4x32(uint64_t seed, uint64_t block, uint64_t offset) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                               static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)};
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
  }
  return c;
}

/// A word of that block as a float in [0, 1): its upper 24 bits.
inline float philox_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Element j of the draw (seed, offset): word j % 4 of block j / 4.
inline float philox_uniform(uint64_t seed, uint64_t offset, uint64_t j) {
  return philox_float(philox4x32(seed, j / 4, offset)[j % 4]);
}

}  // namespace kiln
