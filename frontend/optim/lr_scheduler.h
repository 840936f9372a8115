// SPDX-License-Identifier: Apache-2.0
// Learning rate schedules with torch.optim.lr_scheduler's names and arguments. A schedule changes numbers of
// an optimizer's groups, which are run-time values of a compiled step: no schedule rebuilds one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/optim/optimizer.h"

namespace kiln::optim {

/// One value for all groups, or one for each.
class PerGroup {
 public:
  PerGroup(double all) : values_{all} {}                            // NOLINT
  PerGroup(std::vector<double> each) : values_(std::move(each)) {}  // NOLINT
  double operator[](size_t group) const { return values_[values_.size() == 1 ? 0 : group]; }
  /// Throws: invalid, unless there are as many values as groups, or one.
  void check(const Optimizer& optimizer, const char* who, const char* name) const;

 private:
  std::vector<double> values_;
};

/// What schedulers of all kinds can do. They refer to the optimizer, which must outlive them.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// The rates that the last step() set, by group.
  const std::vector<double>& get_last_lr() const { return last_lr_; }
  int64_t last_epoch() const { return last_epoch_; }
  Optimizer& optimizer() const { return optimizer_; }
  /// What step() goes on from, as f64 tensors, and what the schedule moves (the rates; the momentum) as it
  /// stands in the optimizer: load_state_dict puts it back there, since making a schedule has changed it.
  NamedTensors state_dict() const;
  /// Throws: invalid, listing missing and unexpected names and misfits; then nothing has changed.
  void load_state_dict(const NamedTensors& state, Loc loc = Loc::current());

 protected:
  explicit Scheduler(Optimizer& optimizer, const char* name) : name_(name), optimizer_(optimizer) {}
  /// Named numbers of the state; a loaded one has as many.
  using Numbers = std::map<std::string, std::vector<double>>;
  virtual Numbers save() const;
  virtual void load(const Numbers& numbers);
  /// A hyper-parameter of all groups, and what puts it back.
  std::vector<double> current(const char* hyper) const;
  void put_back(const char* hyper, const Numbers& numbers);
  /// The optimizer's rates are the last ones.
  void note_rates();

  const char* name_;
  Optimizer& optimizer_;
  int64_t last_epoch_ = 0;
  std::vector<double> last_lr_;
};

/// One rate per group and epoch. Making one sets the rates of epoch 0.
class LRScheduler : public Scheduler {
 public:
  /// The next epoch. Warns once if the optimizer has not taken a step before.
  virtual void step(Loc loc = Loc::current());

 protected:
  LRScheduler(Optimizer& optimizer, const char* name);
  /// Sets the rates of epoch 0, from those that the groups have: the last thing that a constructor does.
  void start();
  /// Epoch 0 again, from the base rates.
  virtual void restart();
  /// The rate of a group at last_epoch_ (0: where lr() is the base rate), from the one before.
  virtual double rate(size_t group) const = 0;
  /// Sets what a schedule changes beside the rate.
  virtual void set_others(size_t /*group*/) {}
  double lr(size_t group) const { return optimizer_.get(group, "lr"); }
  double base_lr(size_t group) const { return base_lrs_[group]; }
  /// The epoch is last_epoch_: sets the rates.
  void apply();
  void warn_early(Loc loc);
  Numbers save() const override;
  void load(const Numbers& numbers) override;

  std::vector<double> base_lrs_;
  bool stepped_ = false;
  friend class ChainedScheduler;
  friend class SequentialLR;
};

/// base_lr * factor(epoch).
class LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda);
  /// One for each group. Throws: invalid, when their numbers differ.
  LambdaLR(Optimizer& optimizer, std::vector<std::function<double(int64_t)>> lr_lambdas);

 protected:
  double rate(size_t group) const override;

 private:
  std::vector<std::function<double(int64_t)>> lambdas_;
};

/// Times gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 protected:
  double rate(size_t group) const override;

 private:
  int64_t step_size_;
  double gamma_;
};

/// Times gamma at each milestone; one that is given twice counts twice.
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);

 protected:
  double rate(size_t group) const override;

 private:
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// Times factor until total_iters epochs have passed.
class ConstantLR : public LRScheduler {
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total_iters = 5);

 protected:
  double rate(size_t group) const override;

 private:
  double factor_;
  int64_t total_iters_;
};

/// The factor goes from start_factor to end_factor in total_iters epochs.
class LinearLR : public LRScheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    int64_t total_iters = 5);

 protected:
  double rate(size_t group) const override;

 private:
  double start_factor_, end_factor_;
  int64_t total_iters_;
};

class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 protected:
  double rate(size_t group) const override;

 private:
  double gamma_;
};

/// base_lr * (1 - epoch / total_iters)^power, 0 from then on.
class PolynomialLR : public LRScheduler {
 public:
  explicit PolynomialLR(Optimizer& optimizer, int64_t total_iters = 5, double power = 1);

 protected:
  double rate(size_t group) const override;

 private:
  int64_t total_iters_;
  double power_;
};

/// Source: Loshchilov & Hutter 2017, without restarts.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0);

 protected:
  double rate(size_t group) const override;

 private:
  int64_t t_max_;
  double eta_min_;
};

enum class PlateauMode : uint8_t { min, max };
enum class ThresholdMode : uint8_t { rel, abs };

struct PlateauOptions {
  PlateauMode mode = PlateauMode::min;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::rel;
  int64_t cooldown = 0;
  PerGroup min_lr = 0;
  double eps = 1e-8;
};
/// Times `factor` when a metric has not become better for more than `patience` epochs.
class ReduceLROnPlateau : public Scheduler {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options = {});
  /// A tensor's value is read by its item(): inside a compiled callable that is a host read.
  void step(double metrics);

 protected:
  Numbers save() const override;
  void load(const Numbers& numbers) override;

 private:
  bool is_better(double metrics) const;
  PlateauOptions options_;
  double best_;
  int64_t bad_epochs_ = 0, cooldown_ = 0;
};

}  // namespace kiln::optim
