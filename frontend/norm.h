// SPDX-License-Identifier: Apache-2.0
// Normalisation over batches, groups and instances of images. Names, arguments and numerics are those of
// torch.nn.functional; layer_norm and rms_norm are in functional.h. Throws: invalid, unless x is floating,
// and on other shapes and dtypes of x and the parameters.
#pragma once

#include "frontend/ops.h"

namespace kiln {

struct BatchNormOptions {
  bool training = false;  ///< use and update statistics of this batch, else the running ones
  double momentum = 0.1;  ///< share of this batch in the running statistics
  double eps = 1e-5;
};
/// (x - mean) / sqrt(variance + eps) weight + bias per channel, dim 1. While training, defined running
/// statistics are updated in place: the variance by its unbiased estimate. Shapes: x [n, c, ...] -> same;
/// the others [c] or undefined. Throws: invalid, when training on one value per channel, or evaluating
/// without running statistics. Source: Ioffe & Szegedy 2015.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {},
                  Loc loc = Loc::current());
/// (x - mean) / sqrt(variance + eps) weight + bias, over groups of channels of each sample. Shapes: x [n,
/// c, ...] -> same; weight and bias [c] or undefined. Throws: invalid, unless the channels divide into
/// groups of more than one value. Source: Wu & He 2018.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Loc loc = Loc::current());
struct InstanceNormOptions {
  bool use_input_stats = true;  ///< else the running ones
  double momentum = 0.1;
  double eps = 1e-5;
};
/// (x - mean) / sqrt(variance + eps) weight + bias, over the space of each channel of each sample; running
/// statistics are means over the batch. Shapes: x [n, c, space...] -> same; the others [c] or undefined.
/// Throws: invalid, on a space of one element, and without use_input_stats and running statistics. Source:
/// Ulyanov et al. 2016.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {},
                     const InstanceNormOptions& options = {}, Loc loc = Loc::current());
/// x / (k + alpha / size sum of squares over `size` neighbouring channels)^beta.
/// Shapes: x [n, c, space...] -> same. Throws: invalid, on a size below 1. Source: Krizhevsky et al. 2012.
Tensor local_response_norm(const Tensor& x, int64_t size, double alpha = 1e-4, double beta = 0.75,
                           double k = 1, Loc loc = Loc::current());

}  // namespace kiln
