// SPDX-License-Identifier: Apache-2.0
// Whole numbers of blocks, for counts that are not negative.
#pragma once

#include <concepts>
#include <type_traits>

namespace kiln {

/// The blocks of `size` that hold `n`. Both >= 0, size > 0, n + size representable.
template <std::integral T>
constexpr T ceil_div(T n, std::type_identity_t<T> size) {
  return (n + size - 1) / size;
}

/// The least multiple of `to` that is not below `n`, in the same range.
template <std::integral T>
constexpr T round_up(T n, std::type_identity_t<T> to) {
  return ceil_div(n, to) * to;
}

}  // namespace kiln
