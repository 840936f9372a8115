// SPDX-License-Identifier: Apache-2.0
// Pooling, by windows of a given size or into a given number of bins. Names, arguments and numerics are
// those of torch.nn.functional. Shapes: x [n, c, space...] or [c, space...] -> the same with the output's
// space. Throws: invalid, unless x is floating and has its dims of space, none empty.
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
// Windows. Throws: invalid, on a padding of more than half the kernel, and a window that does not fit.
/// The largest element of each window; the first of equals gets the gradient. NaN wins. Output size: floor
/// or ceil of (l + 2 padding - dilation (k - 1) - 1) / stride, plus 1.
Tensor max_pool1d(const Tensor& x, const SpatialArg& kernel_size, const MaxPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor max_pool2d(const Tensor& x, const SpatialArg& kernel_size, const MaxPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor max_pool3d(const Tensor& x, const SpatialArg& kernel_size, const MaxPoolOptions& options = {},
                  Loc loc = Loc::current());
/// The largest element of each window, and where it is: i64, row-major places within the space of x.
/// Shapes: as max_pool1d, both. Source: torch.nn.functional.max_pool1d(return_indices=True).
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const SpatialArg& kernel_size,
                                                  const MaxPoolOptions& options = {},
                                                  Loc loc = Loc::current());
/// As max_pool1d_with_indices, of two dims. Shapes: as max_pool2d, both. Source:
/// torch.nn.functional.max_pool2d(return_indices=True).
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const SpatialArg& kernel_size,
                                                  const MaxPoolOptions& options = {},
                                                  Loc loc = Loc::current());
/// As max_pool1d_with_indices, of three dims. Shapes: as max_pool3d, both. Source:
/// torch.nn.functional.max_pool3d(return_indices=True).
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
// Windows. Throws: invalid, on a padding of more than half the kernel, a window that does not fit, and a
// divisor of 0.
/// The mean of each window: its sum over the number of its elements. Output size: as of max_pool1d, with
/// dilation 1.
Tensor avg_pool1d(const Tensor& x, const SpatialArg& kernel_size, const AvgPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor avg_pool2d(const Tensor& x, const SpatialArg& kernel_size, const AvgPoolOptions& options = {},
                  Loc loc = Loc::current());
Tensor avg_pool3d(const Tensor& x, const SpatialArg& kernel_size, const AvgPoolOptions& options = {},
                  Loc loc = Loc::current());

// Bins. Shapes: x [n, c, space...] or [c, space...] -> the same with output_size, where -1 keeps a size.
// Throws: invalid, on an output size below 1 that is not -1.
/// The mean of each bin: output i covers floor(i l / out) up to ceil((i + 1) l / out).
Tensor adaptive_avg_pool1d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_avg_pool2d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_avg_pool3d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
/// The largest element of each bin, the bins as of adaptive_avg_pool1d. The first of equals gets the
/// gradient.
Tensor adaptive_max_pool1d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_max_pool2d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
Tensor adaptive_max_pool3d(const Tensor& x, const SpatialArg& output_size, Loc loc = Loc::current());
/// The largest element of each bin, and where it is: i64, row-major places within the space of x. Source:
/// torch.nn.functional.adaptive_max_pool2d(return_indices=True).
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const SpatialArg& output_size,
                                                           Loc loc = Loc::current());

}  // namespace kiln
