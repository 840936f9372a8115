// SPDX-License-Identifier: Apache-2.0
// The simulator's choices: one stream of numbers from one seed, so that a run can be repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::cuda::sim {

class Random {
 public:
  explicit Random(uint64_t seed = 1) : state_(seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u) {}

  uint32_t next() {  // Steele, Lea, Flood: SplitMix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return static_cast<uint32_t>(((z ^ (z >> 27)) * 0x94D049BB133111EBu) >> 32);
  }
  /// In [0, n), n > 0.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(uint64_t{next()} * n >> 32); }
  template <class T>
  void shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(static_cast<uint32_t>(i))]);
  }

 private:
  uint64_t state_;
};

}  // namespace kiln::cuda::sim
