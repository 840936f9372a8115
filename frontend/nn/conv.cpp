// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/conv.h"

#include <tuple>

#include "frontend/dispatch.h"
#include "frontend/index_detail.h"
#include "frontend/nn/init_detail.h"
#include "frontend/state.h"

namespace kiln::nn {

using detail::caller_loc;
using detail::product;
using detail::spatial;
using detail_init::initial;

namespace {

void check_channels(const char* name, int64_t in, int64_t out, int64_t groups) {
  KILN_CHECK(in > 0 && out > 0 && groups > 0 && in % groups == 0 && out % groups == 0, invalid,
             "{}: got {} input channels, {} output channels and {} groups, expected positive numbers, both "
             "channels multiples of groups",
             name, in, out, groups);
}

}  // namespace

ConvNd::ConvNd(int64_t space, std::optional<int64_t> in, int64_t out, const SpatialArg& kernel_size,
               ConvOptions options)
    : space_(space), out_(out), options_(std::move(options)) {
  const std::string name = fmt::format("Conv{}d", space);
  const Sizes kernel = kernel_ = spatial(kernel_size, space, 1, "kernel_size", name.c_str(), {});
  if (in) std::tie(weight, bias) = start(*in);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  if (options_.padding_mode == PadMode::constant) return;
  // The last dim first, before and after.
  const Sizes padding = spatial(options_.padding, space, 0, "padding", name.c_str(), {});
  const Sizes dilation = spatial(options_.dilation, space, 1, "dilation", name.c_str(), {});
  for (size_t i = kernel.size(); i-- > 0;) {
    const int64_t reach = dilation[i] * (kernel[i] - 1);
    const int64_t low = options_.padding.same ? reach / 2 : padding[i];
    around_.insert(around_.end(), {low, options_.padding.same ? reach - low : low});
  }
  options_.padding = 0;
}

std::pair<Tensor, Tensor> ConvNd::start(int64_t in) const {
  check_channels(fmt::format("Conv{}d", space_).c_str(), in, out_, options_.groups);
  Sizes shape{out_, in / options_.groups};
  shape.insert(shape.end(), kernel_.begin(), kernel_.end());
  const int64_t fan_in = shape[1] * product(kernel_);
  return {initial(shape, fan_in), options_.bias ? initial({out_}, fan_in) : Tensor()};
}

void ConvNd::define(int64_t in, Loc loc) {
  const auto [w, b] = start(in);
  define_parameter("weight", w, loc);
  if (b.defined()) define_parameter("bias", b, loc);
}

Tensor ConvNd::forward(const Tensor& x) {
  const kiln::ConvOptions o{options_.stride, options_.padding, options_.dilation, options_.groups};
  const Loc loc = caller_loc();
  const Tensor in = around_.empty() ? x : pad(x, around_, options_.padding_mode, 0, loc);
  if (space_ == 1) return conv1d(in, weight, bias, o, loc);
  return space_ == 2 ? conv2d(in, weight, bias, o, loc) : conv3d(in, weight, bias, o, loc);
}

ConvTransposeNd::ConvTransposeNd(int64_t space, std::optional<int64_t> in, int64_t out,
                                 const SpatialArg& kernel_size, ConvTransposeOptions options)
    : space_(space), out_(out), options_(std::move(options)) {
  kernel_ = spatial(kernel_size, space, 1, "kernel_size", fmt::format("ConvTranspose{}d", space).c_str(), {});
  if (in) std::tie(weight, bias) = start(*in);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

std::pair<Tensor, Tensor> ConvTransposeNd::start(int64_t in) const {
  check_channels(fmt::format("ConvTranspose{}d", space_).c_str(), in, out_, options_.groups);
  Sizes shape{in, out_ / options_.groups};
  shape.insert(shape.end(), kernel_.begin(), kernel_.end());
  const int64_t fan_in = shape[1] * product(kernel_);  // of the weight's second dim, as PyTorch counts it
  const Tensor w = initial(shape, fan_in);
  return {w, options_.bias ? initial({out_}, fan_in) : Tensor()};
}

void ConvTransposeNd::define(int64_t in, Loc loc) {
  const auto [w, b] = start(in);
  define_parameter("weight", w, loc);
  if (b.defined()) define_parameter("bias", b, loc);
}

Tensor ConvTransposeNd::forward(const Tensor& x) {
  const kiln::ConvTransposeOptions o{options_.stride, options_.padding, options_.output_padding,
                                     options_.groups, options_.dilation};
  const Loc loc = caller_loc();
  if (space_ == 1) return conv_transpose1d(x, weight, bias, o, loc);
  return space_ == 2 ? conv_transpose2d(x, weight, bias, o, loc) : conv_transpose3d(x, weight, bias, o, loc);
}

}  // namespace kiln::nn
