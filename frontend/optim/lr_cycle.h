// SPDX-License-Identifier: Apache-2.0
// Schedules that rise again: warm restarts, one cycle, many cycles.
#pragma once

#include <functional>

#include "frontend/optim/lr_scheduler.h"

namespace kiln::optim {

/// Periods of T_0, T_0 * T_mult, ... epochs. Source: Loshchilov & Hutter 2017.
class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0, int64_t T_mult = 1, double eta_min = 0);
  void step(Loc loc = Loc::current()) override;
  /// At `epoch`, which may lie between two, such as epoch + batch / batches. Throws: invalid, below 0.
  void step(double epoch, Loc loc = Loc::current());

 protected:
  void restart() override;
  double rate(size_t group) const override;
  Numbers save() const override;
  void load(const Numbers& numbers) override;

 private:
  int64_t t_0_, t_mult_;
  double eta_min_, t_cur_ = 0, t_i_;
};

enum class Anneal : uint8_t { cos, linear };

struct OneCycleOptions {
  PerGroup max_lr = 0;      ///< must be given
  int64_t total_steps = 0;  ///< or epochs and steps_per_epoch
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;
  Anneal anneal_strategy = Anneal::cos;
  bool cycle_momentum = true;  ///< of "momentum", or else "beta1"
  double base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;
  bool three_phase = false;
};
/// Up to max_lr and down again once, in total_steps batches. Source: Smith & Topin 2018.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options);
  void step(Loc loc = Loc::current()) override;

 protected:
  double rate(size_t group) const override;
  void set_others(size_t group) override;
  Numbers save() const override;
  void load(const Numbers& numbers) override;

 private:
  struct Phase {
    double end, from_lr, to_lr;  ///< rates as shares of max_lr
    double from_momentum, to_momentum;
  };
  double annealed(double Phase::*from, double Phase::*to) const;
  OneCycleOptions options_;
  std::vector<Phase> phases_;
  const char* momentum_ = nullptr;
};

enum class CyclicMode : uint8_t { triangular, triangular2, exp_range };

struct CyclicOptions {
  PerGroup base_lr = 0, max_lr = 0;  ///< must be given
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;  ///< 0: as step_size_up
  CyclicMode mode = CyclicMode::triangular;
  double gamma = 1;                             ///< of exp_range
  std::function<double(double)> scale_fn = {};  ///< in place of the mode's
  bool scale_by_iterations = false;             ///< scale_fn gets the iteration, not the cycle
  bool cycle_momentum = true;
  double base_momentum = 0.8, max_momentum = 0.9;
};
/// Between base_lr and max_lr, by batches. Source: Smith 2017.
class CyclicLR : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, const CyclicOptions& options);

 protected:
  double rate(size_t group) const override;
  void set_others(size_t group) override;
  Numbers save() const override;
  void load(const Numbers& numbers) override;

 private:
  /// Where in its cycle the epoch is, times the scale of the cycle: 0 is the base.
  double height() const;
  CyclicOptions options_;
  const char* momentum_ = nullptr;
};

}  // namespace kiln::optim
