// SPDX-License-Identifier: Apache-2.0
// Padding as modules, with torch.nn's names and constructor arguments: `padding` is one number for all sides,
// or two for each dim of space as of kiln::pad, the last dim first, before and after.
#pragma once

#include "frontend/dispatch.h"
#include "frontend/nn/module.h"
#include "frontend/vision.h"
#include "frontend/window_detail.h"

namespace kiln::nn {

namespace detail_padding {

/// Throws: invalid, unless `padding` is one number, or two for each of `space` dims.
inline Sizes sides(const SpatialArg& padding, int64_t space) {
  const auto n = static_cast<size_t>(2 * space);
  if (padding.values.size() == 1) return Sizes(n, padding.values[0]);
  KILN_CHECK(padding.values.size() == n, invalid, "Pad{}d: got {} numbers of padding, expected 1 or {}",
             space, padding.values.size(), n);
  return padding.values;
}

/// Of the last Space dims.
template <PadMode Mode, int64_t Space>
class Pad : public Module {
 public:
  explicit Pad(const SpatialArg& padding) : pads_(sides(padding, Space)) {}
  /// Shapes: [n, c, space...] or [c, space...]; for zeros any with as many dims of space.
  Tensor forward(const Tensor& x) override {
    const Loc loc = detail::caller_loc();
    const bool fits = x.defined() && x.dim() >= Space &&
                      (Mode == PadMode::constant || x.dim() == Space + 1 || x.dim() == Space + 2);
    KILN_CHECK(fits, invalid, "Pad{}d ({}): got x {}, expected {} or {} dims", Space, loc.str(), x.type_str(),
               Space + 1, Space + 2);
    return pad(x, pads_, Mode, 0, loc);
  }

 private:
  Sizes pads_;
};

template <int64_t Space>
class ConstantPad : public Module {
 public:
  ConstantPad(const SpatialArg& padding, double value) : pads_(sides(padding, Space)), value_(value) {}
  Tensor forward(const Tensor& x) override {
    return pad(x, pads_, PadMode::constant, value_, detail::caller_loc());
  }

 private:
  Sizes pads_;
  double value_;
};

}  // namespace detail_padding

using ConstantPad1d = detail_padding::ConstantPad<1>;  ///< (padding, value)
using ConstantPad2d = detail_padding::ConstantPad<2>;  ///< (padding, value)
using ConstantPad3d = detail_padding::ConstantPad<3>;  ///< (padding, value)
using ZeroPad1d = detail_padding::Pad<PadMode::constant, 1>;
using ZeroPad2d = detail_padding::Pad<PadMode::constant, 2>;
using ZeroPad3d = detail_padding::Pad<PadMode::constant, 3>;
using ReflectionPad1d = detail_padding::Pad<PadMode::reflect, 1>;
using ReflectionPad2d = detail_padding::Pad<PadMode::reflect, 2>;
using ReflectionPad3d = detail_padding::Pad<PadMode::reflect, 3>;
using ReplicationPad1d = detail_padding::Pad<PadMode::replicate, 1>;
using ReplicationPad2d = detail_padding::Pad<PadMode::replicate, 2>;
using ReplicationPad3d = detail_padding::Pad<PadMode::replicate, 3>;
using CircularPad1d = detail_padding::Pad<PadMode::circular, 1>;
using CircularPad2d = detail_padding::Pad<PadMode::circular, 2>;
using CircularPad3d = detail_padding::Pad<PadMode::circular, 3>;

}  // namespace kiln::nn
