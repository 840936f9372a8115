// SPDX-License-Identifier: Apache-2.0
// Modules of pooling and resampling, with torch.nn's constructor arguments.
#pragma once

#include "frontend/conv.h"
#include "frontend/dispatch.h"
#include "frontend/nn/module.h"
#include "frontend/pooling.h"
#include "frontend/unpooling.h"
#include "frontend/vision.h"

namespace kiln::nn {

namespace detail_pooling {

/// A module without parameters that calls one function with its options.
template <auto F, typename Arg, typename Options>
class WithOptions : public Module {
 public:
  explicit WithOptions(Arg arg, Options options = {}) : arg_(std::move(arg)), options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override { return F(x, arg_, options_, detail::caller_loc()); }

 private:
  Arg arg_;
  Options options_;
};
/// A max pool, which also tells where the elements were.
template <auto F, auto WithIndices>
class MaxPool : public Module {
 public:
  explicit MaxPool(SpatialArg kernel_size, MaxPoolOptions options = {})
      : kernel_size_(std::move(kernel_size)), options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override { return F(x, kernel_size_, options_, detail::caller_loc()); }
  /// Source: return_indices=True of torch.nn's constructors.
  std::pair<Tensor, Tensor> forward_with_indices(const Tensor& x, Loc loc = Loc::current()) {
    const auto run = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const auto [values, at] = WithIndices(in[0], kernel_size_, options_, loc);
      return {values, at};
    };
    const std::vector<Tensor> out = call_many({x}, loc, run);
    return {out[0], out[1]};
  }

 private:
  SpatialArg kernel_size_;
  MaxPoolOptions options_;
};
/// Called with the values and places that a max pool gave; with a size for the result as the third argument
/// of forward_to.
template <auto F>
class MaxUnpool : public Module {
 public:
  explicit MaxUnpool(SpatialArg kernel_size, MaxUnpoolOptions options = {})
      : kernel_size_(std::move(kernel_size)), options_(std::move(options)) {}
  Tensor forward(const Tensor& x, const Tensor& indices) override {
    return F(x, indices, kernel_size_, options_, {}, detail::caller_loc());
  }
  /// To space of `output_size`, which no other tells.
  Tensor forward_to(const Tensor& x, const Tensor& indices, const Sizes& output_size,
                    Loc loc = Loc::current()) {
    const auto run = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {F(in[0], in[1], kernel_size_, options_, output_size, loc)};
    };
    return call_many({x, indices}, loc, run)[0];
  }

 private:
  SpatialArg kernel_size_;
  MaxUnpoolOptions options_;
};
template <auto F>
class LPPool : public Module {
 public:
  LPPool(double norm_type, SpatialArg kernel_size, LPPoolOptions options = {})
      : norm_type_(norm_type), kernel_size_(std::move(kernel_size)), options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override {
    return F(x, norm_type_, kernel_size_, options_, detail::caller_loc());
  }

 private:
  double norm_type_;
  SpatialArg kernel_size_;
  LPPoolOptions options_;
};
template <auto F>
class Adaptive : public Module {
 public:
  explicit Adaptive(SpatialArg output_size) : output_size_(std::move(output_size)) {}
  Tensor forward(const Tensor& x) override { return F(x, output_size_, detail::caller_loc()); }

 private:
  SpatialArg output_size_;
};
template <auto F>
class Factor : public Module {
 public:
  explicit Factor(int64_t factor) : factor_(factor) {}
  Tensor forward(const Tensor& x) override { return F(x, factor_, detail::caller_loc()); }

 private:
  int64_t factor_;
};

}  // namespace detail_pooling

using MaxPool1d = detail_pooling::MaxPool<max_pool1d, max_pool1d_with_indices>;
using MaxPool2d = detail_pooling::MaxPool<max_pool2d, max_pool2d_with_indices>;
using MaxPool3d = detail_pooling::MaxPool<max_pool3d, max_pool3d_with_indices>;
using AvgPool1d = detail_pooling::WithOptions<avg_pool1d, SpatialArg, AvgPoolOptions>;
using AvgPool2d = detail_pooling::WithOptions<avg_pool2d, SpatialArg, AvgPoolOptions>;
using AvgPool3d = detail_pooling::WithOptions<avg_pool3d, SpatialArg, AvgPoolOptions>;
using MaxUnpool1d = detail_pooling::MaxUnpool<max_unpool1d>;
using MaxUnpool2d = detail_pooling::MaxUnpool<max_unpool2d>;
using MaxUnpool3d = detail_pooling::MaxUnpool<max_unpool3d>;
using LPPool1d = detail_pooling::LPPool<lp_pool1d>;  ///< (norm_type, kernel_size, options)
using LPPool2d = detail_pooling::LPPool<lp_pool2d>;  ///< (norm_type, kernel_size, options)
using LPPool3d = detail_pooling::LPPool<lp_pool3d>;  ///< (norm_type, kernel_size, options)
using AdaptiveAvgPool1d = detail_pooling::Adaptive<adaptive_avg_pool1d>;
using AdaptiveAvgPool2d = detail_pooling::Adaptive<adaptive_avg_pool2d>;
using AdaptiveAvgPool3d = detail_pooling::Adaptive<adaptive_avg_pool3d>;
using AdaptiveMaxPool1d = detail_pooling::Adaptive<adaptive_max_pool1d>;
using AdaptiveMaxPool2d = detail_pooling::Adaptive<adaptive_max_pool2d>;
using AdaptiveMaxPool3d = detail_pooling::Adaptive<adaptive_max_pool3d>;
using Unfold = detail_pooling::WithOptions<unfold, SpatialArg, UnfoldOptions>;
using PixelShuffle = detail_pooling::Factor<pixel_shuffle>;
using PixelUnshuffle = detail_pooling::Factor<pixel_unshuffle>;
using ChannelShuffle = detail_pooling::Factor<channel_shuffle>;

/// See kiln::fold. Source: torch.nn.Fold.
class Fold : public Module {
 public:
  Fold(SpatialArg output_size, SpatialArg kernel_size, UnfoldOptions options = {})
      : output_size_(std::move(output_size)),
        kernel_size_(std::move(kernel_size)),
        options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override {
    return fold(x, output_size_, kernel_size_, options_, detail::caller_loc());
  }

 private:
  SpatialArg output_size_, kernel_size_;
  UnfoldOptions options_;
};

/// See kiln::interpolate. Source: torch.nn.Upsample.
class Upsample : public Module {
 public:
  explicit Upsample(InterpolateOptions options) : options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override { return interpolate(x, options_, detail::caller_loc()); }

 private:
  InterpolateOptions options_;
};

/// Source: torch.nn.UpsamplingNearest2d.
class UpsamplingNearest2d : public Upsample {
 public:
  /// To a size, or by factors: mode and align_corners are not the caller's.
  explicit UpsamplingNearest2d(InterpolateOptions options)
      : Upsample(with(std::move(options), InterpolateMode::nearest, false)) {}

 protected:
  UpsamplingNearest2d(InterpolateOptions options, InterpolateMode mode, bool align_corners)
      : Upsample(with(std::move(options), mode, align_corners)) {}

 private:
  static InterpolateOptions with(InterpolateOptions o, InterpolateMode mode, bool align_corners) {
    o.mode = mode;
    o.align_corners = align_corners;
    return o;
  }
};
/// Bilinear, where corners of input and output coincide. Source: torch.nn.UpsamplingBilinear2d.
class UpsamplingBilinear2d : public UpsamplingNearest2d {
 public:
  explicit UpsamplingBilinear2d(InterpolateOptions options)
      : UpsamplingNearest2d(std::move(options), InterpolateMode::linear, true) {}
};

}  // namespace kiln::nn
