// SPDX-License-Identifier: Apache-2.0
// Averages of weights over training: exponential (EMA) or equal (SWA).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "frontend/nn/module.h"
#include "frontend/tensor.h"

namespace kiln::optim {

struct AveragedModelOptions {
  /// Of an exponential average; none: the mean of all updates. PyTorch's get_ema_multi_avg_fn(decay).
  std::optional<double> ema_decay = {};
  /// Buffers are averaged, too; else they are those of the last update.
  bool use_buffers = false;
};

/// Averages of a module's parameters, by name. They start as copies; the first update replaces them. An
/// update is one event of a compiled callable, the decay and the count are run-time numbers. Source:
/// torch.optim.swa_utils.AveragedModel.
class AveragedModel {
 public:
  explicit AveragedModel(const nn::Module& model, const AveragedModelOptions& options = {});

  /// Throws: invalid, when `model` has other parameters than the one averaged.
  void update_parameters(const nn::Module& model, Loc loc = Loc::current());
  /// Updates so far.
  int64_t n_averaged() const { return *count_; }
  /// Writes the averages, and the buffers kept with them, into `model`.
  void copy_to(nn::Module& model, Loc loc = Loc::current()) const;
  /// Exchanges them with those of `model`: before an evaluation, and after it.
  void swap(nn::Module& model, Loc loc = Loc::current());

  /// "n_averaged", an i64 number, and "module.<name>" for each average. Shares their memory.
  NamedTensors state_dict() const;
  /// Throws: invalid, listing missing and unexpected names and misfits.
  void load_state_dict(const NamedTensors& state, Loc loc = Loc::current());

  AveragedModelOptions options;

 private:
  NamedTensors own_of(const nn::Module& model, const char* what, Loc loc) const;

  NamedTensors averages_;
  size_t parameters_ = 0;           ///< of those, the first; buffers follow
  std::shared_ptr<int64_t> count_;  ///< shared with calls that may have to take updates back
};

}  // namespace kiln::optim
