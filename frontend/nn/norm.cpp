// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/norm.h"

#include <limits>

#include "frontend/dispatch.h"

namespace kiln::nn {

using detail::caller_loc;

RunningNorm::RunningNorm(const char* name, std::optional<int64_t> features, int64_t least, int64_t most,
                         NormOptions options)
    : name_(name), features_(features), least_(least), most_(most), options_(options) {
  KILN_CHECK(!features || *features >= 0, invalid, "{}: num_features is {}, expected at least 0", name,
             *features);
  if (features && options.affine) {
    weight = ones({*features});
    bias = zeros({*features});
  }
  if (features && options.track_running_stats) {
    running_mean = zeros({*features});
    running_var = ones({*features});
  }
  if (options.track_running_stats) num_batches_tracked = full({}, int64_t{0}, {.dtype = DType::i64});
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  register_buffer("running_mean", running_mean);
  register_buffer("running_var", running_var);
  register_buffer("num_batches_tracked", num_batches_tracked);
}

void RunningNorm::define(int64_t features, Loc loc) {
  if (options_.affine) {
    define_parameter("weight", ones({features}), loc);
    define_parameter("bias", zeros({features}), loc);
  }
  if (options_.track_running_stats) {
    define_buffer("running_mean", zeros({features}), loc);
    define_buffer("running_var", ones({features}), loc);
  }
  features_ = features;
}

void RunningNorm::check_input(const Tensor& x, int64_t channel_dim, Loc loc) const {
  KILN_CHECK(x.defined() && x.dim() >= least_ && x.dim() <= most_, invalid,
             "{} ({}): got x {}, expected {} to {} dims", name_, loc.str(), x.type_str(), least_, most_);
  KILN_CHECK(x.size(channel_dim) == features_, invalid, "{} ({}): got {} channels in x {}, expected {}",
             name_, loc.str(), x.size(channel_dim), x.type_str(), features_.value_or(0));
}

double RunningNorm::next_momentum(Loc loc) {
  num_batches_tracked.copy_(num_batches_tracked + 1, loc);
  if (options_.momentum) return *options_.momentum;
  return 1 / static_cast<double>(num_batches_tracked.item<int64_t>());
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  const Loc loc = caller_loc();
  check_input(x, 1, loc);
  const bool tracked = running_mean.defined(), of_batch = is_training() || !tracked;
  const double momentum = is_training() && tracked ? next_momentum(loc) : 0;
  const Tensor none;
  const bool updates = tracked && (is_training() || !of_batch);
  return batch_norm(x, updates ? running_mean : none, updates ? running_var : none, weight, bias,
                    {of_batch, momentum, options_.eps}, loc);
}

Tensor InstanceNorm1d::forward(const Tensor& x) {
  const Loc loc = caller_loc();
  const bool batched = x.defined() && x.dim() == most_;
  check_input(x, batched ? 1 : 0, loc);
  const bool tracked = running_mean.defined(), of_input = is_training() || !tracked;
  const double momentum = is_training() && tracked ? next_momentum(loc) : 0;
  const Tensor in = batched ? x : unsqueeze(x, 0, loc);
  const Tensor y =
      instance_norm(in, running_mean, running_var, weight, bias, {of_input, momentum, options_.eps}, loc);
  return batched ? y : squeeze(y, 0, loc);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps, bool affine) : groups_(groups), eps_(eps) {
  KILN_CHECK(groups > 0 && channels % groups == 0, invalid,
             "GroupNorm: {} channels do not divide into {} groups", channels, groups);
  if (affine) {
    weight = ones({channels});
    bias = zeros({channels});
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}
Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, groups_, weight, bias, eps_, caller_loc());
}

RMSNorm::RMSNorm(Sizes shape, std::optional<double> eps, bool affine) : shape_(std::move(shape)), eps_(eps) {
  if (affine) weight = ones(shape_);
  register_parameter("weight", weight);
}
Tensor RMSNorm::forward(const Tensor& x) {
  const double eps = eps_.value_or(x.dtype() == DType::f64 ? std::numeric_limits<double>::epsilon()
                                                           : std::numeric_limits<float>::epsilon());
  return rms_norm(x, shape_, weight, eps, caller_loc());
}

Tensor LocalResponseNorm::forward(const Tensor& x) {
  return local_response_norm(x, size_, alpha_, beta_, k_, caller_loc());
}

}  // namespace kiln::nn
