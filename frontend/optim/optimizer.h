// SPDX-License-Identifier: Apache-2.0
// Optimizers with torch.optim's arguments. A step is one event of a compiled callable: all hyper-parameters
// are run-time values, and all parameters of a group are updated by a few fused kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "frontend/tensor.h"

namespace kiln::optim {

/// Base: the parameters, their state tensors, and their step counts.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient.
  virtual void step(Loc loc = Loc::current()) = 0;
  /// Drops the gradients (set_to_none), or zeroes them in place.
  void zero_grad(bool set_to_none = true);
  /// Learning rate, that of the options; may change between steps without a rebuild.
  double& lr;
  const std::vector<Tensor>& params() const { return params_; }
  /// Steps that parameter number `param` has taken: those at which it had a gradient.
  int64_t step_count(size_t param) const { return steps_->at(param); }

  /// State tensors as "<parameter index>.<name>"; a parameter's step count is the 0-d f64 tensor
  /// "<index>.step".
  NamedTensors state_dict() const;
  /// Inverse of state_dict. Throws: invalid, listing missing and unexpected names and misfits.
  void load_state_dict(const NamedTensors& state, Loc loc = Loc::current());

 protected:
  /// `rate` is the lr of the subclass's options.
  Optimizer(std::vector<Tensor> params, double& rate);
  using StepCounts = std::vector<int64_t>;
  /// Names of the state tensors, and their creation. Called once by the subclass.
  void make_state(std::vector<std::string> names);
  /// One event that updates every parameter with a gradient. `scalars` are those of all parameters;
  /// `at_step(t)` gives those that depend on the step t = 1, 2, ... that a parameter takes. `update(row, all
  /// scalars)` gets the parameter, its gradient and its state tensors.
  using Update = std::function<void(const std::vector<Tensor>& row, std::span<const Tensor> scalars)>;
  void update_all(const char* name, Loc loc, std::vector<int64_t> ints, std::vector<double> scalars,
                  const std::function<std::vector<double>(int64_t)>& at_step, const Update& update);

  std::vector<Tensor> params_;
  std::vector<std::string> state_names_;
  std::vector<std::vector<Tensor>> state_;
  std::shared_ptr<StepCounts> steps_;  ///< shared with a compiled call that may have to take steps back
};

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
/// Source: torch.optim.SGD (Sutskever et al. 2013).
class SGD : public Optimizer {
 public:
  SGD(std::vector<Tensor> params, const SGDOptions& options);
  void step(Loc loc = Loc::current()) override;
  SGDOptions options;
};

struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
};
/// Decoupled weight decay, bias-corrected. Source: torch.optim.AdamW (Loshchilov & Hutter 2019).
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<Tensor> params, const AdamWOptions& options);
  void step(Loc loc = Loc::current()) override;
  AdamWOptions options;
};

/// Scales all gradients in place so that their joint 2-norm is at most `max_norm`; returns the norm before.
/// Source: torch.nn.utils.clip_grad_norm_.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, Loc loc = Loc::current());

}  // namespace kiln::optim
