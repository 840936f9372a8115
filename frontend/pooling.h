// SPDX-License-Identifier: Apache-2.0
// Pooling, by windows of a given size or into a given number of bins. Names, arguments and numerics are those
// of torch.nn.functional. Shapes: x [n, c, space...] or [c, space...]; the result has the output's space.
#pragma once

#include <optional>
#include <utility>

#include "frontend/ops.h"
#include "frontend/window_detail.h"

namespace kiln {

struct MaxPoolOptions {
  std::optional<SpatialArg> stride = {};  ///< the kernel's size when absent
  SpatialArg padding = 0;                 ///< of -inf; at most half the kernel
  SpatialArg dilation = 1;
  bool ceil_mode = false;  ///< windows that begin inside the input or its left padding count in full
};
/// The largest element of each window; the first of equals gets the gradient. NaN wins.
/// Output size: floor or ceil of (l + 2 padding - dilation (k - 1) - 1) / stride, plus 1.
Tensor max_pool1d(const Tensor& x, const SpatialArg& kernel_size, const MaxPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor max_pool2d(const Tensor& x, const SpatialArg& kernel_size, const MaxPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor max_pool3d(const Tensor& x, const SpatialArg& kernel_size, const MaxPoolOptions& options = {},
                  Loc loc = Loc::current());
/// The same, and where the elements are: i64, row-major places within the space of x.
/// Source: torch.nn.functional.max_pool2d(return_indices=True).
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const SpatialArg& kernel_size,
                                                  const MaxPoolOptions& options = {},
                                                  Loc loc = Loc::current());
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const SpatialArg& kernel_size,
                                                  const MaxPoolOptions& options = {},
                                                  Loc loc = Loc::current());
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const SpatialArg& kernel_size,
                                                  const MaxPoolOptions& options = {},
                                                  Loc loc = Loc::current());

struct AvgPoolOptions {
  std::optional<SpatialArg> stride = {};  ///< the kernel's size when absent
  SpatialArg padding = 0;                 ///< of zeros; at most half the kernel
  bool ceil_mode = false;
  bool count_include_pad = true;                 ///< zeros of the padding count as elements
  std::optional<int64_t> divisor_override = {};  ///< divides instead of the number of elements
};
/// The mean of each window.
Tensor avg_pool1d(const Tensor& x, const SpatialArg& kernel_size, const AvgPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor avg_pool2d(const Tensor& x, const SpatialArg& kernel_size, const AvgPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor avg_pool3d(const Tensor& x, const SpatialArg& kernel_size, const AvgPoolOptions& options = {},
                  Loc loc = Loc::current());

/// Output i covers floor(i l / out) up to ceil((i + 1) l / out); an output size of -1 is the input's.
Tensor adaptive_avg_pool1d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_avg_pool2d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_avg_pool3d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_max_pool1d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_max_pool2d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_max_pool3d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const SpatialArg& output_size,
                                                           Loc loc = Loc::current());

}  // namespace kiln
