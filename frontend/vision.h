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
/// `pads` counts elements before and after the last dim, then of the one before it, and so on; negative
/// ones are cut away. Shapes: [.., l] -> [.., before + l + after]. Throws: invalid, on an odd number of
/// pads or more than dims, when more is cut than there is, when reflect needs more elements than there are
/// beside the edge, or circular more than there are.
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
/// Resamples the dims behind n and c: output i is the input at the scaled index, by `mode`. Shapes: x [n,
/// c, space...] -> [n, c, size] or floor(space * scale_factor). Throws: invalid, unless x is floating and
/// has one to three dims of space (two for bicubic), unless one of size and scale_factor is given and
/// positive, and on align_corners with a mode that has none.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options, Loc loc = Loc::current());

/// Channels become space. Shapes: [..., c r^2, h, w] -> [..., c, h r, w r]. Throws: invalid, on channels
/// that do not divide, and on a factor below 1. Source: Shi et al. 2016.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor, Loc loc = Loc::current());
/// The inverse of pixel_shuffle. Shapes: [..., c, h r, w r] -> [..., c r^2, h, w]. Throws: invalid, on a
/// space that does not divide, and on a factor below 1.
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor, Loc loc = Loc::current());
/// Channels of `groups` groups take turns. Shapes: x [n, c, space...] -> same. Throws: invalid, on channels
/// that do not divide, and without space. Source: Zhang et al. 2018.
Tensor channel_shuffle(const Tensor& x, int64_t groups, Loc loc = Loc::current());

}  // namespace kiln
