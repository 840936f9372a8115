// SPDX-License-Identifier: Apache-2.0
// The 128-bit content hash that names cache entries and kernels. Stable across processes and machines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

/// 128-bit hash of bytes. Equality of hashes never replaces comparing the full key.
struct Hash128 {
  uint64_t hi = 0, lo = 0;
  /// 32 lower-case hex digits.
  std::string hex() const;
  auto operator<=>(const Hash128&) const = default;
};

/// Source: XXH3_128bits (xxHash 0.8).
Hash128 hash128(std::string_view bytes);

}  // namespace kiln
