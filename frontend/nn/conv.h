// SPDX-License-Identifier: Apache-2.0
// Convolution modules, with torch.nn's constructor arguments, names and initialisation: weight and bias are
// uniform in +-1/sqrt(channels of a group * elements of the kernel).
#pragma once

#include <optional>
#include <utility>

#include "frontend/conv.h"
#include "frontend/nn/module.h"
#include "frontend/vision.h"

namespace kiln::nn {

struct ConvOptions {
  SpatialArg stride = 1;
  ConvPadding padding = 0;
  SpatialArg dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::constant;  ///< constant: zeros
};
struct ConvTransposeOptions {
  SpatialArg stride = 1;
  SpatialArg padding = 0;
  SpatialArg output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  SpatialArg dilation = 1;
};

/// What the convolutions share. Source: torch.nn.Conv1d, Conv2d, Conv3d.
class ConvNd : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias;  ///< [out, in / groups, kernel...], [out]

 protected:
  /// Without in_channels there are no parameters before define() is called.
  ConvNd(int64_t space, std::optional<int64_t> in_channels, int64_t out_channels,
         const SpatialArg& kernel_size, ConvOptions options);
  void define(int64_t in_channels, Loc loc);

 private:
  /// First values of weight and bias.
  std::pair<Tensor, Tensor> start(int64_t in_channels) const;
  int64_t space_, out_;
  Sizes kernel_;
  Sizes around_;  ///< pads of a padding mode other than constant
  ConvOptions options_;
};
/// Shapes: [n, in, l] -> [n, out, l']; see kiln::conv1d.
class Conv1d : public ConvNd {
 public:
  Conv1d(int64_t in_channels, int64_t out_channels, const SpatialArg& kernel_size, ConvOptions options = {})
      : ConvNd(1, in_channels, out_channels, kernel_size, std::move(options)) {}
};
/// Shapes: [n, in, h, w] -> [n, out, h', w']; see kiln::conv2d.
class Conv2d : public ConvNd {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, const SpatialArg& kernel_size, ConvOptions options = {})
      : ConvNd(2, in_channels, out_channels, kernel_size, std::move(options)) {}
};
/// Shapes: [n, in, d, h, w] -> [n, out, d', h', w']; see kiln::conv3d.
class Conv3d : public ConvNd {
 public:
  Conv3d(int64_t in_channels, int64_t out_channels, const SpatialArg& kernel_size, ConvOptions options = {})
      : ConvNd(3, in_channels, out_channels, kernel_size, std::move(options)) {}
};

/// What the transposed convolutions share. Source: torch.nn.ConvTranspose1d, ConvTranspose2d,
/// ConvTranspose3d.
class ConvTransposeNd : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias;  ///< [in, out / groups, kernel...], [out]

 protected:
  /// Without in_channels there are no parameters before define() is called.
  ConvTransposeNd(int64_t space, std::optional<int64_t> in_channels, int64_t out_channels,
                  const SpatialArg& kernel_size, ConvTransposeOptions options);
  void define(int64_t in_channels, Loc loc);

 private:
  std::pair<Tensor, Tensor> start(int64_t in_channels) const;
  int64_t space_, out_;
  Sizes kernel_;
  ConvTransposeOptions options_;
};
class ConvTranspose1d : public ConvTransposeNd {
 public:
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, const SpatialArg& kernel_size,
                  ConvTransposeOptions options = {})
      : ConvTransposeNd(1, in_channels, out_channels, kernel_size, std::move(options)) {}
};
class ConvTranspose2d : public ConvTransposeNd {
 public:
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, const SpatialArg& kernel_size,
                  ConvTransposeOptions options = {})
      : ConvTransposeNd(2, in_channels, out_channels, kernel_size, std::move(options)) {}
};
class ConvTranspose3d : public ConvTransposeNd {
 public:
  ConvTranspose3d(int64_t in_channels, int64_t out_channels, const SpatialArg& kernel_size,
                  ConvTransposeOptions options = {})
      : ConvTransposeNd(3, in_channels, out_channels, kernel_size, std::move(options)) {}
};

}  // namespace kiln::nn
