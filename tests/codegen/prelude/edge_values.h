// SPDX-License-Identifier: Apache-2.0
// Operands for words of arithmetic: the edges of a type, numbers around them, and random ones of all sizes.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace kiln::testing {

/// `random`: how many random ones there are. Floats stand with both signs.
template <typename T>
std::vector<T> edge_values(int random) {
  using L = std::numeric_limits<T>;
  std::vector<T> v;
  std::mt19937_64 draw(5);
  if constexpr (std::is_floating_point_v<T>) {
    v = {0, L::denorm_min(), L::min(), L::max(), L::infinity(), L::quiet_NaN()};
    for (const double x :
         {0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 1e-3, 1e10, 1e30, 7.0, 255.0, 256.0, 16777216.0})
      v.push_back(T(x));
    for (int i = 0; i < random; ++i) v.push_back(std::ldexp(T(1 + draw() % 1000000), int(draw() % 60) - 40));
    for (size_t i = 0, n = v.size(); i < n; ++i) v.push_back(-v[i]);
  } else {
    v = {0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, L::max(), T(L::max() - 1), T(L::max() / 2)};
    if (L::is_signed)
      for (const int x : {-1, -2, -3, -7, -8, -100}) v.push_back(T(x));
    if (L::is_signed) v.insert(v.end(), {L::min(), T(L::min() + 1), T(L::min() / 3)});
    for (int i = 0; i < random; ++i) v.push_back(T(draw() >> (draw() % 60)));
  }
  return v;
}

}  // namespace kiln::testing
