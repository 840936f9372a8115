// SPDX-License-Identifier: Apache-2.0
#include "frontend/data/sampler.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "ir/base/philox.h"

namespace kiln::data {

std::vector<int64_t> permutation(int64_t n, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), 0);
  for (size_t i = out.size(); i-- > 1;) {
    const auto words = philox4x32(seed, i, static_cast<uint64_t>(epoch));
    const uint64_t draw = uint64_t{words[0]} << 32 | words[1];
    const auto below = static_cast<size_t>((static_cast<unsigned __int128>(draw) * (i + 1)) >> 64);
    std::swap(out[i], out[below]);
  }
  return out;
}

int64_t share_of(int64_t n, const SamplerOptions& o) {
  return n / o.num_replicas + (n % o.num_replicas != 0 && !o.drop_last ? 1 : 0);
}

std::vector<int64_t> epoch_order(int64_t n, const SamplerOptions& o, int64_t epoch) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  if (o.shuffle) all = permutation(n, o.seed, epoch);
  else std::iota(all.begin(), all.end(), 0);
  const int64_t each = share_of(n, o);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < each; ++i)
    out.push_back(all[static_cast<size_t>((i * o.num_replicas + o.rank) % n)]);
  return out;
}

}  // namespace kiln::data
