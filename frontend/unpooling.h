// SPDX-License-Identifier: Apache-2.0
// The inverse of max pooling, and pools of a power. Names, arguments and numerics are those of
// torch.nn.functional. Shapes: x [n, c, space...] or [c, space...] -> the same with the output's space.
// Throws: invalid, unless x is floating and has its dims of space.
#pragma once

#include <optional>

#include "frontend/ops.h"
#include "frontend/window_detail.h"

namespace kiln {

struct MaxUnpoolOptions {
  std::optional<SpatialArg> stride = {};  ///< the kernel's size when absent
  SpatialArg padding = 0;
};
/// Zeros, and each element of x at its place in `indices`, as max_pool_with_indices gives them: i64,
/// row-major within the space of the result. Where two have one place, the later element in x stays. Space of
/// the result: (l - 1) stride - 2 padding + kernel, or `output_size`, which differs from that by less than
/// the stride. Throws: invalid, on shapes and sizes, and on a place outside (inside a compiled callable when
/// the stage has run).
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const SpatialArg& kernel_size,
                    const MaxUnpoolOptions& options = {}, const Sizes& output_size = {},
                    Loc loc = Loc::current());
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const SpatialArg& kernel_size,
                    const MaxUnpoolOptions& options = {}, const Sizes& output_size = {},
                    Loc loc = Loc::current());
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const SpatialArg& kernel_size,
                    const MaxUnpoolOptions& options = {}, const Sizes& output_size = {},
                    Loc loc = Loc::current());

struct LPPoolOptions {
  std::optional<SpatialArg> stride = {};  ///< the kernel's size when absent
  bool ceil_mode = false;
};
/// (sum of x^norm_type over each window)^(1 / norm_type); NaN where that sum is negative. Where it is zero,
/// so is the gradient (PyTorch's is NaN). As there a window that ceil_mode cuts counts as a whole one of
/// its mean. Output size: as of avg_pool1d. Throws: invalid, when norm_type is 0, and on a window that does
/// not fit.
Tensor lp_pool1d(const Tensor& x, double norm_type, const SpatialArg& kernel_size,
                 const LPPoolOptions& options = {}, Loc loc = Loc::current());
Tensor lp_pool2d(const Tensor& x, double norm_type, const SpatialArg& kernel_size,
                 const LPPoolOptions& options = {}, Loc loc = Loc::current());
Tensor lp_pool3d(const Tensor& x, double norm_type, const SpatialArg& kernel_size,
                 const LPPoolOptions& options = {}, Loc loc = Loc::current());

}  // namespace kiln
