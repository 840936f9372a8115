// SPDX-License-Identifier: Apache-2.0
// Optimizer: parameters in groups with hyper-parameters of their own, their state, and one event per step.
// What a class of torch.optim adds is its options (adam.h, adagrad.h, sgd.h) and its formula.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/optim/number.h"
#include "frontend/tensor.h"

namespace kiln::optim {

class Optimizer;

/// The learning rate of all groups: assigning sets each of them. Throws when read: invalid, if they differ.
class LearningRate {
 public:
  explicit LearningRate(Optimizer& owner) : owner_(owner) {}
  LearningRate(const LearningRate&) = delete;
  LearningRate& operator=(const LearningRate&) = delete;
  LearningRate& operator=(double rate);
  operator double() const;  // NOLINT: reads like the number it is

 private:
  Optimizer& owner_;
};

/// A member of some options, under its name.
struct Hyper {
  const char* name;
  std::variant<double*, bool*, int64_t*> member;
  double get() const;
  /// Whether the member can be `value`: flags are 0 or 1, counts whole. expected() says what can be.
  bool takes(double value) const;
  const char* expected() const;
  void set(double value) const;
};

/// How far a parameter has come. `numbers` are what its class keeps on the host.
struct Progress {
  int64_t step = 0;        ///< steps taken: those at which it had a gradient
  int64_t with_state = 0;  ///< of those, since it has state tensors
  std::array<double, 2> numbers{};
  bool operator==(const Progress&) const = default;
};

/// A state tensor that a parameter may have: as the parameter, or of a shape of its own.
struct StateSpec {
  const char* name;
  bool needed = true;  ///< by the options as they are
  double initial = 0;
  std::optional<Sizes> sizes = {};
};

/// What one parameter's formula reads, and where it leaves its results. Halves are computed in f32.
struct Update {
  Tensor param, grad;
  std::vector<Tensor> state;    ///< by place among the specs; undefined where it is not needed
  std::vector<Tensor> numbers;  ///< 0-d, as take_step() gave them
};

/// Base. A step is one event of a compiled callable, in which every hyper-parameter is a run-time number:
/// schedules never rebuild. Threads: one at a time.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient. State tensors are made at a parameter's first step.
  /// Throws: invalid, when a parameter no longer fits its state; unsupported, in a frozen callable.
  void step(Loc loc = Loc::current());
  /// step(), but where `skip` (0-d f32) is not 0 all stays as it is: selected on the device. From then on the
  /// device counts the steps, and computes from the counts what the host does for step(): no value is read,
  /// until the counts are asked for.
  void step_unless(const Tensor& skip, Loc loc = Loc::current());
  /// Drops the gradients (set_to_none), or zeroes them in place.
  void zero_grad(bool set_to_none = true);

  LearningRate lr{*this};

  /// Of all groups, in order: their places are the indices of state_dict().
  const std::vector<Tensor>& params() const { return params_; }
  size_t group_count() const { return groups_.size(); }
  std::span<const Tensor> group_params(size_t group, Loc loc = Loc::current()) const;
  /// A hyper-parameter of a group by PyTorch's name, where pairs are "beta1" and "beta2"; flags are 0 or 1.
  /// Throws: invalid, listing the names, or when set() gives what the constructor refuses: nothing changes.
  double get(size_t group, std::string_view name, Loc loc = Loc::current()) const;
  void set(size_t group, std::string_view name, double value, Loc loc = Loc::current());
  /// Whether groups have a hyper-parameter of that name.
  bool has(std::string_view name) const;
  /// Where schedulers start from: the group's learning rate when the first of them was made.
  std::optional<double>& initial_lr(size_t group, Loc loc = Loc::current());
  /// Steps that parameter number `param` has taken: those at which it had a gradient.
  int64_t step_count(size_t param, Loc loc = Loc::current()) const;
  /// Calls of step(), also those at which nothing had a gradient.
  uint64_t step_calls() const { return step_calls_; }

  /// State as "<parameter>.<name>"; hyper-parameters as "param_groups.<group>.<name>", with the indices of
  /// the group's parameters as "param_groups.<group>.params". Numbers are 0-d f64 tensors.
  NamedTensors state_dict() const;
  /// Inverse of state_dict. Throws: invalid, listing missing and unexpected names and misfits.
  void load_state_dict(const NamedTensors& state, Loc loc = Loc::current());

 protected:
  /// `event`: "AdamW.step", static storage.
  explicit Optimizer(const char* event);
  void add_group(std::vector<Tensor> params);
  /// "AdamW".
  std::string_view name() const;

  virtual std::vector<Hyper> hypers(size_t group) = 0;
  /// Throws: invalid, for options of the group that are out of range.
  virtual void check_options(size_t group) const = 0;
  /// Throws: invalid, "Optimizer::<what> (<loc>): no group <group>; there are <count>".
  void check_group(size_t group, const char* what, Loc loc) const;
  void check_options_of(size_t group, const char* what, Loc loc) const;
  /// All state tensors that parameters of the group may have; the same names for each.
  virtual std::vector<StateSpec> specs(size_t group, const Tensor& param) const = 0;
  /// Names of Progress::numbers.
  virtual std::vector<const char*> host_state() const { return {}; }
  /// What in the options selects another formula.
  virtual std::vector<int64_t> modes(size_t group) const = 0;
  /// The numbers of a step. May change p.numbers.
  virtual std::vector<Number> take_step(size_t group, Pace& p) const = 0;
  /// Whether parameters that have come as far as `a` and `b` take a step by the same numbers.
  virtual bool alike(size_t /*group*/, const Progress& a, const Progress& b) const { return a == b; }
  /// The formula. Replaces what it changes in `u`.
  virtual void update(size_t group, Update& u) const = 0;
  /// Whether a replay of a recorded step does the same as a step.
  virtual bool may_freeze(size_t /*group*/) const { return false; }

 private:
  struct Group {
    size_t first, count;
    std::optional<double> initial_lr;
  };
  struct Row;
  struct Paced;
  struct Step;
  /// 0-d f64 on the device: Progress::step, with_state, and those of its numbers that the class has.
  using DeviceCounts = std::shared_ptr<const std::vector<Tensor>>;
  std::vector<Tensor>& state_of(size_t param) const { return (*state_)[param]; }
  struct Saved;
  /// Makes what state the step needs, and checks what is there.
  void make_state(size_t group, size_t param, Loc loc);
  void take(const Tensor& skip, Loc loc);
  void gather(size_t group, Step& step, Loc loc);
  void pace_on_host(size_t group, size_t begin, Step& step) const;
  void pace_on_device(size_t group, size_t begin, Step& step);
  Pace pace_of(const Paced& paced, const std::vector<Tensor>& scalars) const;
  void run(const Step& step, const std::vector<Tensor>& scalars) const;
  void apply_update(const Row& row, const Step& step, const std::vector<Tensor>& numbers,
                    const Tensor& skipped) const;
  void count_on_device();
  /// Brings the host's counts up to the device's, where that counts: also in replays, of which the host
  /// knows nothing.
  void read_counts() const;
  size_t group_of(size_t param) const;
  std::vector<Hyper> const_hypers(size_t group) const;
  void load_hypers(Saved& saved, std::string& faults);
  void check_param(size_t param, Saved& saved, std::string& faults) const;
  void load_param(size_t param, const Saved& saved);

  const char* event_;
  std::vector<Tensor> params_;
  std::vector<Group> groups_;
  // Shared with compiled calls, which may have to take steps back.
  std::shared_ptr<std::vector<std::vector<Tensor>>> state_;  ///< per parameter, by place among its specs
  std::shared_ptr<std::vector<Progress>> progress_;
  uint64_t step_calls_ = 0;
  /// Per parameter, where the device counts: one object for those that have always taken steps together.
  std::shared_ptr<std::vector<DeviceCounts>> counts_;
};

/// An optimizer with options of one kind for each group.
template <typename Options>
class OptimizerWith : public Optimizer {
 public:
  /// Further parameters, with hyper-parameters of their own. Source: torch.optim.Optimizer.add_param_group.
  /// Throws: invalid, for options out of range or parameters that are there already.
  void add_param_group(std::vector<Tensor> params, const Options& options) {
    options.check(params);
    add_group(std::move(params));
    options_.push_back(options);
  }
  /// Those of a group: may change between steps.
  Options& options(size_t group = 0, Loc loc = Loc::current()) {
    check_group(group, "options", loc);
    return options_[group];
  }
  const Options& options(size_t group = 0, Loc loc = Loc::current()) const {
    check_group(group, "options", loc);
    return options_[group];
  }

 protected:
  OptimizerWith(const char* event, std::vector<Tensor> params, const Options& options) : Optimizer(event) {
    add_param_group(std::move(params), options);
  }
  std::vector<Hyper> hypers(size_t group) override { return options_.at(group).hypers(); }
  void check_options(size_t group) const override { options_.at(group).check(group_params(group)); }

 private:
  std::deque<Options> options_;  // others hold addresses of members
};

}  // namespace kiln::optim
