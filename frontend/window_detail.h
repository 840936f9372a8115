// SPDX-License-Identifier: Apache-2.0
// What convolutions, pools and unfold are written in: padding, windows of a dim, and their adjoint. Bodies
// only, never events.
#pragma once

#include <array>
#include <initializer_list>

#include "frontend/ops_detail.h"

namespace kiln {

/// One number for every dim of space, or one for each.
struct SpatialArg {
  template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) SpatialArg(T all)  // NOLINT: as in PyTorch
      : values{static_cast<int64_t>(all)} {}
  SpatialArg(std::initializer_list<int64_t> each) : values(each) {}  // NOLINT
  SpatialArg(Sizes each) : values(std::move(each)) {}                // NOLINT
  Sizes values;
};

namespace detail {

/// `arg` as `n` numbers of at least `least`. Throws: invalid, with the op's and the argument's name.
Sizes spatial(const SpatialArg& arg, int64_t n, int64_t least, const char* what, const char* name, Loc loc);

/// x with low[i] and high[i] elements of `value` around dim first + i; negative ones cut away.
Tensor pad_dims(const Tensor& x, int64_t first, const Sizes& low, const Sizes& high, double value);
/// [begin, begin + size) of dim `dim`.
Tensor cut(const Tensor& x, int64_t dim, int64_t begin, int64_t size);
/// Dim `dim` becomes two: windows, and places in one: x[i * step + k * dilation].
Tensor windows(const Tensor& x, int64_t dim, int64_t size, int64_t step, int64_t dilation);
/// The adjoint: dims `dim` (windows) and dim + 1 (places) become one of `size` elements, each the sum of what
/// windows hold at its place.
Tensor overlap_add(const Tensor& x, int64_t dim, int64_t size, int64_t step, int64_t dilation);

}  // namespace detail
}  // namespace kiln
