// SPDX-License-Identifier: Apache-2.0
// The rows of torch.nn.functional that work on images: convolutions, pools, norms, resampling.
#include "frontend/conv.h"
#include "frontend/norm.h"
#include "frontend/pooling.h"
#include "frontend/vision.h"
#include "tests/golden/eval.h"

namespace kiln::golden {

namespace {

ConvOptions conv_options(const Bound& b) {
  ConvOptions o;
  o.stride = b["stride"].integers();
  o.padding =
      b["padding"].is<std::string>() ? ConvPadding::same_size() : ConvPadding(b["padding"].integers());
  o.dilation = b["dilation"].integers();
  o.groups = b["groups"].integer();
  return o;
}
template <Tensor (*F)(const Tensor&, const Tensor&, const Tensor&, const ConvOptions&, Loc)>
Value run_conv(const Bound& b) {
  return F(b["x"].tensor(), b["w"].tensor(), b["b"].tensor_or_undefined(), conv_options(b), Loc::current());
}
template <Tensor (*F)(const Tensor&, const Tensor&, const Tensor&, const ConvTransposeOptions&, Loc)>
Value run_transposed(const Bound& b) {
  ConvTransposeOptions o;
  o.stride = b["stride"].integers();
  o.padding = b["padding"].integers();
  o.output_padding = b["output_padding"].integers();
  o.groups = b["groups"].integer();
  o.dilation = b["dilation"].integers();
  return F(b["x"].tensor(), b["w"].tensor(), b["b"].tensor_or_undefined(), o, Loc::current());
}

UnfoldOptions unfold_options(const Bound& b) {
  return {b["dilation"].integers(), b["padding"].integers(), b["stride"].integers()};
}

template <std::pair<Tensor, Tensor> (*F)(const Tensor&, const SpatialArg&, const MaxPoolOptions&, Loc)>
Value run_max_pool(const Bound& b) {
  MaxPoolOptions o;
  if (b.given("stride")) o.stride = b["stride"].integers();
  o.padding = b["padding"].integers();
  o.dilation = b["dilation"].integers();
  o.ceil_mode = b["ceil_mode"].flag();
  const auto [values, places] = F(b["x"].tensor(), b["kernel"].integers(), o, Loc::current());
  if (!b["return_indices"].flag()) return values;
  return List{values, places};
}
template <Tensor (*F)(const Tensor&, const SpatialArg&, const AvgPoolOptions&, Loc)>
Value run_avg_pool(const Bound& b) {
  AvgPoolOptions o;
  if (b.given("stride")) o.stride = b["stride"].integers();
  o.padding = b["padding"].integers();
  o.ceil_mode = b["ceil_mode"].flag();
  o.count_include_pad = b["count_include_pad"].flag();
  if (b.given("divisor_override")) o.divisor_override = b["divisor_override"].integer();
  return F(b["x"].tensor(), b["kernel"].integers(), o, Loc::current());
}
template <Tensor (*F)(const Tensor&, const SpatialArg&, Loc)>
Value run_adaptive(const Bound& b) {
  return F(b["x"].tensor(), b["out"].integers(), Loc::current());
}
Value run_adaptive_max2d(const Bound& b) {
  if (!b["return_indices"].flag()) return adaptive_max_pool2d(b["x"].tensor(), b["out"].integers());
  const auto [values, places] = adaptive_max_pool2d_with_indices(b["x"].tensor(), b["out"].integers());
  return List{values, places};
}

Value run_batch_norm(const Bound& b) {
  const BatchNormOptions o{b["training"].flag(), b["momentum"].real(), b["eps"].real()};
  return batch_norm(b["x"].tensor(), b["rm"].tensor_or_undefined(), b["rv"].tensor_or_undefined(),
                    b["w"].tensor_or_undefined(), b["b"].tensor_or_undefined(), o);
}
Value run_instance_norm(const Bound& b) {
  const InstanceNormOptions o{b["use_input_stats"].flag(), b["momentum"].real(), b["eps"].real()};
  return instance_norm(b["x"].tensor(), b["rm"].tensor_or_undefined(), b["rv"].tensor_or_undefined(),
                       b["w"].tensor_or_undefined(), b["b"].tensor_or_undefined(), o);
}

Value run_interpolate(const Bound& b) {
  InterpolateOptions o;
  if (b.given("size")) o.size = b["size"].integers();
  if (b["scale_factor"].is<List>())
    for (const Value& v : std::get<List>(b["scale_factor"].v)) o.scale_factor.push_back(v.real());
  else if (b.given("scale_factor")) o.scale_factor = {b["scale_factor"].real()};
  if (b.given("align_corners")) o.align_corners = b["align_corners"].flag();
  const std::string& mode = b["mode"].text();
  if (mode == "nearest") o.mode = InterpolateMode::nearest;
  else if (mode == "nearest-exact") o.mode = InterpolateMode::nearest_exact;
  else if (mode == "bicubic") o.mode = InterpolateMode::bicubic;
  else if (mode == "area") o.mode = InterpolateMode::area;
  else if (mode == "linear" || mode == "bilinear" || mode == "trilinear") o.mode = InterpolateMode::linear;
  else throw Unsupported("interpolation mode " + mode);
  return interpolate(b["x"].tensor(), o);
}
Value run_pad(const Bound& b) {
  const std::string& mode = b["mode"].text();
  const PadMode m = mode == "reflect"     ? PadMode::reflect
                    : mode == "replicate" ? PadMode::replicate
                    : mode == "circular"  ? PadMode::circular
                                          : PadMode::constant;
  return pad(b["x"].tensor(), b["pads"].integers(), m, b.given("value") ? b["value"].real() : 0);
}

constexpr Function kImageFunctions[] = {
    {"F.adaptive_avg_pool1d", "x out", run_adaptive<adaptive_avg_pool1d>},
    {"F.adaptive_avg_pool2d", "x out", run_adaptive<adaptive_avg_pool2d>},
    {"F.adaptive_max_pool2d", "x out return_indices=False", run_adaptive_max2d},
    {"F.avg_pool1d",
     "x kernel stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None",
     run_avg_pool<avg_pool1d>},
    {"F.avg_pool2d",
     "x kernel stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None",
     run_avg_pool<avg_pool2d>},
    {"F.batch_norm", "x rm rv w=None b=None training=False momentum=0.1 eps=1e-5", run_batch_norm},
    {"F.conv1d", "x w b=None stride=1 padding=0 dilation=1 groups=1", run_conv<conv1d>},
    {"F.conv2d", "x w b=None stride=1 padding=0 dilation=1 groups=1", run_conv<conv2d>},
    {"F.conv3d", "x w b=None stride=1 padding=0 dilation=1 groups=1", run_conv<conv3d>},
    {"F.conv_transpose1d", "x w b=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
     run_transposed<conv_transpose1d>},
    {"F.conv_transpose2d", "x w b=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
     run_transposed<conv_transpose2d>},
    {"F.fold", "x size kernel dilation=1 padding=0 stride=1",
     [](const Bound& b) -> Value {
       return fold(b["x"].tensor(), b["size"].integers(), b["kernel"].integers(), unfold_options(b));
     }},
    {"F.group_norm", "x groups w=None b=None eps=1e-5",
     [](const Bound& b) -> Value {
       return group_norm(b["x"].tensor(), b["groups"].integer(), b["w"].tensor_or_undefined(),
                         b["b"].tensor_or_undefined(), b["eps"].real());
     }},
    {"F.instance_norm", "x rm=None rv=None w=None b=None use_input_stats=True momentum=0.1 eps=1e-5",
     run_instance_norm},
    {"F.interpolate", "x size=None scale_factor=None mode='nearest' align_corners=None", run_interpolate},
    {"F.max_pool1d", "x kernel stride=None padding=0 dilation=1 ceil_mode=False return_indices=False",
     run_max_pool<max_pool1d_with_indices>},
    {"F.max_pool2d", "x kernel stride=None padding=0 dilation=1 ceil_mode=False return_indices=False",
     run_max_pool<max_pool2d_with_indices>},
    {"F.pad", "x pads mode='constant' value=None", run_pad},
    {"F.pixel_shuffle", "x factor",
     [](const Bound& b) -> Value { return pixel_shuffle(b["x"].tensor(), b["factor"].integer()); }},
    {"F.pixel_unshuffle", "x factor",
     [](const Bound& b) -> Value { return pixel_unshuffle(b["x"].tensor(), b["factor"].integer()); }},
    {"F.unfold", "x kernel dilation=1 padding=0 stride=1",
     [](const Bound& b) -> Value {
       return unfold(b["x"].tensor(), b["kernel"].integers(), unfold_options(b));
     }},
    {"torch.unfold", "x dim size step",
     [](const Bound& b) -> Value {
       return unfold_dim(b["x"].tensor(), b["dim"].integer(), b["size"].integer(), b["step"].integer());
     }},
};

}  // namespace

std::span<const Function> image_functions() { return kImageFunctions; }

}  // namespace kiln::golden
