// SPDX-License-Identifier: Apache-2.0
#include "ir/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace kiln {

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

Hash128 hash128(std::string_view bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

}  // namespace kiln
