// SPDX-License-Identifier: Apache-2.0
// Normalisation modules, with torch.nn's constructor arguments, names and initialisation.
#pragma once

#include <optional>

#include "frontend/functional.h"
#include "frontend/nn/module.h"
#include "frontend/norm.h"

namespace kiln::nn {

struct NormOptions {
  double eps = 1e-5;
  /// Share of a batch in the running statistics; none: their plain average over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

/// What the batch and instance norms share: weight and bias [features], and, where they are tracked, the
/// buffers running_mean, running_var [features] and num_batches_tracked (i64).
class RunningNorm : public Module {
 public:
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  /// Without num_features there are neither parameters nor statistics before define() is called.
  RunningNorm(const char* name, std::optional<int64_t> num_features, int64_t least_rank, int64_t most_rank,
              NormOptions options);
  void define(int64_t num_features, Loc loc);
  void check_input(const Tensor& x, int64_t channel_dim, Loc loc) const;
  /// Counts a batch and returns its share; without a momentum that reads the count, as PyTorch does.
  double next_momentum(Loc loc);

  const char* name_;
  std::optional<int64_t> features_;
  int64_t least_, most_;
  NormOptions options_;
};

/// Statistics of the batch while training, running ones otherwise (always the batch's when none are tracked).
/// Shapes: [n, c] or [n, c, l]. Source: torch.nn.BatchNorm1d.
class BatchNorm1d : public RunningNorm {
 public:
  explicit BatchNorm1d(int64_t num_features, NormOptions options = {})
      : BatchNorm1d("BatchNorm1d", num_features, 2, 3, std::move(options)) {}
  Tensor forward(const Tensor& x) override;

 protected:
  BatchNorm1d(const char* name, std::optional<int64_t> num_features, int64_t least, int64_t most,
              NormOptions options)
      : RunningNorm(name, num_features, least, most, std::move(options)) {}
};
/// Shapes: [n, c, h, w]. Source: torch.nn.BatchNorm2d.
class BatchNorm2d : public BatchNorm1d {
 public:
  explicit BatchNorm2d(int64_t num_features, NormOptions options = {})
      : BatchNorm1d("BatchNorm2d", num_features, 4, 4, std::move(options)) {}
};
/// Shapes: [n, c, d, h, w]. Source: torch.nn.BatchNorm3d.
class BatchNorm3d : public BatchNorm1d {
 public:
  explicit BatchNorm3d(int64_t num_features, NormOptions options = {})
      : BatchNorm1d("BatchNorm3d", num_features, 5, 5, std::move(options)) {}
};

/// PyTorch's defaults of instance norms: neither weights nor running statistics.
inline NormOptions instance_norm_defaults() { return {1e-5, 0.1, false, false}; }
/// Shapes: [n, c, l] or [c, l]. Source: torch.nn.InstanceNorm1d.
class InstanceNorm1d : public RunningNorm {
 public:
  explicit InstanceNorm1d(int64_t num_features, NormOptions options = instance_norm_defaults())
      : InstanceNorm1d("InstanceNorm1d", num_features, 2, std::move(options)) {}
  Tensor forward(const Tensor& x) override;

 protected:
  InstanceNorm1d(const char* name, std::optional<int64_t> num_features, int64_t least, NormOptions options)
      : RunningNorm(name, num_features, least, least + 1, std::move(options)) {}
};
/// Shapes: [n, c, h, w] or [c, h, w]. Source: torch.nn.InstanceNorm2d.
class InstanceNorm2d : public InstanceNorm1d {
 public:
  explicit InstanceNorm2d(int64_t num_features, NormOptions options = instance_norm_defaults())
      : InstanceNorm1d("InstanceNorm2d", num_features, 3, std::move(options)) {}
};
/// Shapes: [n, c, d, h, w] or [c, d, h, w]. Source: torch.nn.InstanceNorm3d.
class InstanceNorm3d : public InstanceNorm1d {
 public:
  explicit InstanceNorm3d(int64_t num_features, NormOptions options = instance_norm_defaults())
      : InstanceNorm1d("InstanceNorm3d", num_features, 4, std::move(options)) {}
};

/// Source: torch.nn.GroupNorm.
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t num_groups, int64_t num_channels, double eps = 1e-5, bool affine = true);
  Tensor forward(const Tensor& x) override;
  Tensor weight, bias;

 private:
  int64_t groups_;
  double eps_;
};

/// eps: that of the dtype when none. Source: torch.nn.RMSNorm.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(Sizes normalized_shape, std::optional<double> eps = {}, bool elementwise_affine = true);
  explicit RMSNorm(int64_t size, std::optional<double> eps = {}) : RMSNorm(Sizes{size}, eps) {}
  Tensor forward(const Tensor& x) override;
  Tensor weight;

 private:
  Sizes shape_;
  std::optional<double> eps_;
};

/// Source: torch.nn.LocalResponseNorm.
class LocalResponseNorm : public Module {
 public:
  explicit LocalResponseNorm(int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1)
      : size_(size), alpha_(alpha), beta_(beta), k_(k) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t size_;
  double alpha_, beta_, k_;
};

}  // namespace kiln::nn
