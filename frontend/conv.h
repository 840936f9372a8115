// SPDX-License-Identifier: Apache-2.0
// Convolutions (cross-correlations), their transposes, and the columns they are made of. Names, arguments and
// numerics are those of torch.nn.functional.
#pragma once

#include "frontend/ops.h"
#include "frontend/window_detail.h"

namespace kiln {

/// Zeros around the input: numbers, or so many that the output has the input's size ("same", stride 1
/// only).
struct ConvPadding : SpatialArg {
  using SpatialArg::SpatialArg;
  ConvPadding(SpatialArg arg) : SpatialArg(std::move(arg)) {}  // NOLINT: as numbers
  static ConvPadding same_size();
  bool same = false;
};

struct ConvOptions {
  SpatialArg stride = 1;
  ConvPadding padding = 0;
  SpatialArg dilation = 1;
  int64_t groups = 1;
};
// y[n, o, i] = bias[o] + sum over c, k of x[n, c, i stride + k dilation - padding] weight[o, c, k];
// channels of a group see each other alone. Throws: invalid, on shapes, dtypes that differ or are not
// floating, a kernel larger than the padded input, and ConvPadding::same_size with a stride.
/// Convolution (cross-correlation) over one dim of space. Shapes: x [n, c, l] or [c, l], weight
/// [o, c / groups, k], bias [o] -> [n, o, (l + 2 padding - dilation (k - 1) - 1) / stride + 1].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
              Loc loc = Loc::current());
/// conv1d over two dims of space. Shapes: x [n, c, h, w] or [c, h, w], weight [o, c / groups, kh, kw], bias
/// [o] -> [n, o, ...] with sizes as of conv1d.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
              Loc loc = Loc::current());
/// conv1d over three dims of space. Shapes: x [n, c, d, h, w] or [c, d, h, w], weight [o, c / groups, kd,
/// kh, kw], bias [o] -> [n, o, ...] with sizes as of conv1d.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
              Loc loc = Loc::current());

struct ConvTransposeOptions {
  SpatialArg stride = 1;
  SpatialArg padding = 0;         ///< cut from both ends of the output
  SpatialArg output_padding = 0;  ///< added to its far end; less than stride or dilation
  int64_t groups = 1;
  SpatialArg dilation = 1;
};
/// The gradient of a convolution with respect to its input, as an op: adds x[n, c, i] weight[c, o, k] to
/// y[n, o, i stride + k dilation - padding], and the bias. Shapes: for one dim of space x [n, c, l] or [c,
/// l], weight [c, o / groups, k], bias [o] -> [n, o, (l - 1) stride - 2 padding + dilation (k - 1) +
/// output_padding + 1]; for two and three dims the same of each. Throws: invalid, on shapes, dtypes that
/// differ or are not floating, an output_padding that is too large, and an empty output.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {}, Loc loc = Loc::current());
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {}, Loc loc = Loc::current());
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {}, Loc loc = Loc::current());

struct UnfoldOptions {
  SpatialArg dilation = 1, padding = 0, stride = 1;
};
/// The windows of an image as columns. Shapes: x [n, c, h, w] or [c, h, w] -> [n, c kh kw, windows].
/// Throws: invalid, on other ranks, and windows that do not fit.
Tensor unfold(const Tensor& x, const SpatialArg& kernel_size, const UnfoldOptions& options = {},
              Loc loc = Loc::current());
/// Adds columns up to an image, the adjoint of unfold. Shapes: x [n, c kh kw, windows], or without n ->
/// [n, c, output_size]. Throws: invalid, on other shapes, bool, and windows that do not fit.
Tensor fold(const Tensor& x, const SpatialArg& output_size, const SpatialArg& kernel_size,
            const UnfoldOptions& options = {}, Loc loc = Loc::current());
/// Windows of one dim, as a view. Shapes: [.., l, ..] -> [.., (l - size) / step + 1, .., size]. Throws:
/// invalid, on a size or step below 1, and a window larger than the dim. Source: torch.Tensor.unfold.
Tensor unfold_dim(const Tensor& x, int64_t dim, int64_t size, int64_t step, Loc loc = Loc::current());

}  // namespace kiln
