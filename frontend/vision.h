// SPDX-License-Identifier: Apache-2.0
// Padding and resampling of images and sequences. Names, arguments and numerics are those of
// torch.nn.functional.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/ops.h"

namespace kiln {

enum class PadMode : uint8_t { constant, reflect, replicate, circular };
/// `pads` counts elements before and after the last dim, then of the one before it, and so on; negative ones
/// are cut away. Throws: invalid, when reflect needs more elements than there are beside the edge, or
/// circular more than there are.
Tensor pad(const Tensor& x, Sizes pads, PadMode mode = PadMode::constant, double value = 0,
           Loc loc = Loc::current());

enum class InterpolateMode : uint8_t {
  nearest,        ///< floor of the scaled index
  nearest_exact,  ///< of its middle, as Pillow and scikit-image
  linear,         ///< linear, bilinear or trilinear by the dims of space
  bicubic,        ///< two dims of space; a = -0.75
  area,           ///< adaptive average
};
struct InterpolateOptions {
  Sizes size = {};                        ///< of the output's space; or
  std::vector<double> scale_factor = {};  ///< one number, or one for each dim: the size is the floor
  InterpolateMode mode = InterpolateMode::nearest;
  bool align_corners = false;  ///< of linear and bicubic: corners of input and output coincide
  /// Whether steps follow from the sizes even where a factor was given.
  bool recompute_scale_factor = false;
};
/// Resamples the dims behind n and c. Shapes: x [n, c, space...].
Tensor interpolate(const Tensor& x, const InterpolateOptions& options, Loc loc = Loc::current());

/// [..., c r^2, h, w] -> [..., c, h r, w r]. Source: Shi et al. 2016.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor, Loc loc = Loc::current());
/// [..., c, h r, w r] -> [..., c r^2, h, w], its inverse.
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor, Loc loc = Loc::current());
/// Channels of `groups` groups take turns. Shapes: x [n, c, ...]. Source: Zhang et al. 2018.
Tensor channel_shuffle(const Tensor& x, int64_t groups, Loc loc = Loc::current());

}  // namespace kiln
