// SPDX-License-Identifier: Apache-2.0
// Modules that take the number of their inputs from the first tensor that they see, or from the state that
// they load: their parameters are undefined before, so optimizers are to be made afterwards. That first call
// must be outside compiled callables. Names and arguments are those of torch.nn.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "frontend/dispatch.h"
#include "frontend/nn/conv.h"
#include "frontend/nn/layers.h"
#include "frontend/nn/norm.h"

namespace kiln::nn {

/// Source: torch.nn.LazyLinear.
class LazyLinear : public Linear {
 public:
  explicit LazyLinear(int64_t out_features, bool bias = true)
      : Linear(Lazy{}), out_(out_features), with_bias_(bias) {}
  Tensor forward(const Tensor& x) override {
    KILN_CHECK(weight.defined() || (x.defined() && x.dim() > 0), invalid,
               "LazyLinear ({}): got x {}, expected [..., in]", detail::caller_loc().str(), x.type_str());
    if (!weight.defined()) define(x.size(-1), detail::caller_loc());
    return Linear::forward(x);
  }

 protected:
  void prepare_to_load(const std::map<std::string, Tensor>& state, Loc loc) override {
    const auto it = state.find("weight");
    if (!weight.defined() && it != state.end() && it->second.dim() == 2) define(it->second.size(1), loc);
  }

 private:
  void define(int64_t in, Loc loc) {
    const auto [w, b] = start(in, out_, with_bias_);
    define_parameter("weight", w, loc);
    if (with_bias_) define_parameter("bias", b, loc);
  }
  int64_t out_;
  bool with_bias_;
};

namespace detail_lazy {

template <int64_t Space>
class Conv : public ConvNd {
 public:
  Conv(int64_t out_channels, const SpatialArg& kernel_size, ConvOptions options = {})
      : ConvNd(Space, std::nullopt, out_channels, kernel_size, options), groups_(options.groups) {}
  Tensor forward(const Tensor& x) override {
    const Loc loc = detail::caller_loc();
    KILN_CHECK(weight.defined() || (x.defined() && x.dim() > Space), invalid,
               "LazyConv{}d ({}): got x {}, expected {} dims", Space, loc.str(), x.type_str(), Space + 2);
    if (!weight.defined()) define(x.size(-Space - 1), loc);
    return ConvNd::forward(x);
  }

 protected:
  void prepare_to_load(const std::map<std::string, Tensor>& state, Loc loc) override {
    const auto it = state.find("weight");
    if (!weight.defined() && it != state.end() && it->second.dim() == Space + 2)
      define(it->second.size(1) * groups_, loc);
  }

 private:
  int64_t groups_;
};

template <int64_t Space>
class ConvTranspose : public ConvTransposeNd {
 public:
  ConvTranspose(int64_t out_channels, const SpatialArg& kernel_size, ConvTransposeOptions options = {})
      : ConvTransposeNd(Space, std::nullopt, out_channels, kernel_size, std::move(options)) {}
  Tensor forward(const Tensor& x) override {
    const Loc loc = detail::caller_loc();
    KILN_CHECK(weight.defined() || (x.defined() && x.dim() > Space), invalid,
               "LazyConvTranspose{}d ({}): got x {}, expected {} dims", Space, loc.str(), x.type_str(),
               Space + 2);
    if (!weight.defined()) define(x.size(-Space - 1), loc);
    return ConvTransposeNd::forward(x);
  }

 protected:
  void prepare_to_load(const std::map<std::string, Tensor>& state, Loc loc) override {
    const auto it = state.find("weight");
    if (!weight.defined() && it != state.end() && it->second.dim() == Space + 2)
      define(it->second.size(0), loc);
  }
};

/// Features of a norm's state, or none.
inline std::optional<int64_t> features_of(const std::map<std::string, Tensor>& state) {
  for (const char* name : {"weight", "running_mean"})
    if (const auto it = state.find(name); it != state.end() && it->second.dim() == 1)
      return it->second.size(0);
  return std::nullopt;
}

template <int64_t Least, int64_t Most>
class BatchNorm : public BatchNorm1d {
 public:
  explicit BatchNorm(NormOptions options = {})
      : BatchNorm1d("LazyBatchNorm", std::nullopt, Least, Most, std::move(options)) {}
  Tensor forward(const Tensor& x) override {
    if (!features_ && x.defined() && x.dim() >= Least) define(x.size(1), detail::caller_loc());
    return BatchNorm1d::forward(x);
  }

 protected:
  void prepare_to_load(const std::map<std::string, Tensor>& state, Loc loc) override {
    if (const auto n = features_of(state); !features_ && n) define(*n, loc);
  }
};

template <int64_t Space>
class InstanceNorm : public InstanceNorm1d {
 public:
  explicit InstanceNorm(NormOptions options = instance_norm_defaults())
      : InstanceNorm1d("LazyInstanceNorm", std::nullopt, Space + 1, std::move(options)) {}
  Tensor forward(const Tensor& x) override {
    if (!features_ && x.defined() && x.dim() > Space) define(x.size(-Space - 1), detail::caller_loc());
    return InstanceNorm1d::forward(x);
  }

 protected:
  void prepare_to_load(const std::map<std::string, Tensor>& state, Loc loc) override {
    if (const auto n = features_of(state); !features_ && n) define(*n, loc);
  }
};

}  // namespace detail_lazy

using LazyConv1d = detail_lazy::Conv<1>;                    ///< (out_channels, kernel_size, options)
using LazyConv2d = detail_lazy::Conv<2>;                    ///< (out_channels, kernel_size, options)
using LazyConv3d = detail_lazy::Conv<3>;                    ///< (out_channels, kernel_size, options)
using LazyConvTranspose1d = detail_lazy::ConvTranspose<1>;  ///< (out_channels, kernel_size, options)
using LazyConvTranspose2d = detail_lazy::ConvTranspose<2>;  ///< (out_channels, kernel_size, options)
using LazyConvTranspose3d = detail_lazy::ConvTranspose<3>;  ///< (out_channels, kernel_size, options)
using LazyInstanceNorm1d = detail_lazy::InstanceNorm<1>;    ///< (options)
using LazyInstanceNorm2d = detail_lazy::InstanceNorm<2>;    ///< (options)
using LazyInstanceNorm3d = detail_lazy::InstanceNorm<3>;    ///< (options)
using LazyBatchNorm1d = detail_lazy::BatchNorm<2, 3>;       ///< (options)
using LazyBatchNorm2d = detail_lazy::BatchNorm<4, 4>;       ///< (options)
using LazyBatchNorm3d = detail_lazy::BatchNorm<5, 5>;       ///< (options)

}  // namespace kiln::nn
