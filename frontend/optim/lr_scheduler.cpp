// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "frontend/optim/step.h"
#include "ir/base/log.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: checks of arguments

void PerGroup::check(const Optimizer& optimizer, const char* who, const char* name) const {
  KILN_CHECK(values_.size() == 1 || values_.size() == optimizer.group_count(), invalid,
             "{}: got {} values of {} for {} groups", who, values_.size(), name, optimizer.group_count());
}

// State.

Scheduler::Numbers Scheduler::save() const {
  return {{"last_epoch", {static_cast<double>(last_epoch_)}}, {"last_lr", last_lr_}, {"lr", current("lr")}};
}

void Scheduler::load(const Numbers& numbers) {
  last_epoch_ = static_cast<int64_t>(numbers.at("last_epoch")[0]);
  last_lr_ = numbers.at("last_lr");
  put_back("lr", numbers);
}

std::vector<double> Scheduler::current(const char* hyper) const {
  std::vector<double> out;
  for (size_t g = 0; g < optimizer_.group_count(); ++g) out.push_back(optimizer_.get(g, hyper));
  return out;
}

void Scheduler::put_back(const char* hyper, const Numbers& numbers) {
  const std::vector<double>& values = numbers.at(hyper);
  for (size_t g = 0; g < values.size(); ++g) optimizer_.set(g, hyper, values[g]);
}

NamedTensors Scheduler::state_dict() const {
  NamedTensors out;
  for (const auto& [name, values] : save())
    out.emplace_back(name, Tensor::from_vector(values, {static_cast<int64_t>(values.size())}));
  return out;
}

void Scheduler::load_state_dict(const NamedTensors& state, Loc loc) {
  Numbers given;
  const Numbers own = save();
  std::string faults;
  for (const auto& [name, t] : state) {
    const auto it = own.find(name);
    if (it == own.end()) {
      faults += fmt::format("\n  unexpected: {} {}", name, t.type_str());
      continue;
    }
    const Sizes sizes = {static_cast<int64_t>(it->second.size())};
    if (given.contains(name)) faults += fmt::format("\n  given twice: {}", name);
    else if (!t.defined() || t.dtype() != DType::f64 || t.sizes() != sizes)
      faults += fmt::format("\n  {}: got {}, expected f64[{}]", name, t.type_str(), sizes[0]);
    given[name] = t.defined() && t.dtype() == DType::f64 ? t.to_vector<double>() : it->second;
  }
  for (const auto& [name, values] : own)
    if (!given.contains(name)) faults += fmt::format("\n  missing: {} f64[{}]", name, values.size());
  KILN_CHECK(faults.empty(), invalid, "{}::load_state_dict ({}): the state does not fit{}", name_, loc.str(),
             faults);
  load(given);
}

void Scheduler::note_rates() { last_lr_ = current("lr"); }

// The base of those that go by epochs.

LRScheduler::LRScheduler(Optimizer& optimizer, const char* name) : Scheduler(optimizer, name) {
  for (size_t g = 0; g < optimizer.group_count(); ++g) {
    std::optional<double>& initial = optimizer.initial_lr(g);
    if (!initial) initial = lr(g);
    base_lrs_.push_back(*initial);
  }
}

void LRScheduler::apply() {
  // Groups that were added later start from what they have.
  while (base_lrs_.size() < optimizer_.group_count()) base_lrs_.push_back(lr(base_lrs_.size()));
  for (size_t g = 0; g < optimizer_.group_count(); ++g) {
    const double next = rate(g);
    // What comes down to 0 by factors may be rounded to less.
    const bool rounded = next < 0 && next > -1e-9 * std::abs(base_lr(g));
    optimizer_.set(g, "lr", rounded ? 0 : next);
    set_others(g);
  }
  note_rates();
}

void LRScheduler::start() {
  last_epoch_ = 0;
  apply();
}

void LRScheduler::restart() {
  last_epoch_ = 0;
  for (size_t g = 0; g < base_lrs_.size(); ++g) optimizer_.set(g, "lr", base_lrs_[g]);
  apply();
}

void LRScheduler::warn_early(Loc loc) {
  if (!stepped_ && optimizer_.step_calls() == 0)
    log(LogLevel::warn,
        "{}.step ({}): called before the optimizer's first step, so the first rate of the schedule is "
        "skipped (call Optimizer::step() first)",
        name_, loc.str());
  stepped_ = true;
}

void LRScheduler::step(Loc loc) {
  warn_early(loc);
  ++last_epoch_;
  apply();
}

Scheduler::Numbers LRScheduler::save() const {
  Numbers out = Scheduler::save();
  out["base_lrs"] = base_lrs_;
  return out;
}

void LRScheduler::load(const Numbers& numbers) {
  Scheduler::load(numbers);
  base_lrs_ = numbers.at("base_lrs");
}

// Schedules.

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda)
    : LambdaLR(optimizer, std::vector(optimizer.group_count(), std::move(lr_lambda))) {}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<std::function<double(int64_t)>> lr_lambdas)
    : LRScheduler(optimizer, "LambdaLR"), lambdas_(std::move(lr_lambdas)) {
  KILN_CHECK(lambdas_.size() == optimizer.group_count(), invalid, "LambdaLR: got {} functions for {} groups",
             lambdas_.size(), optimizer.group_count());
  for (size_t g = 0; g < lambdas_.size(); ++g)
    KILN_CHECK(lambdas_[g], invalid, "LambdaLR: the function of group {} is empty", g);
  start();
}

double LambdaLR::rate(size_t g) const {
  return g < lambdas_.size() ? base_lr(g) * lambdas_[g](last_epoch_) : lr(g);
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer, "StepLR"), step_size_(step_size), gamma_(gamma) {
  expect(step_size > 0, name_, "step_size", static_cast<double>(step_size), "above 0");
  start();
}

double StepLR::rate(size_t g) const {
  return last_epoch_ == 0 || last_epoch_ % step_size_ != 0 ? lr(g) : lr(g) * gamma_;
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer, "MultiStepLR"), milestones_(std::move(milestones)), gamma_(gamma) {
  start();
}

double MultiStepLR::rate(size_t g) const {
  const auto times = std::count(milestones_.begin(), milestones_.end(), last_epoch_);
  return times == 0 ? lr(g) : lr(g) * std::pow(gamma_, static_cast<double>(times));
}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total_iters)
    : LRScheduler(optimizer, "ConstantLR"), factor_(factor), total_iters_(total_iters) {
  expect(factor >= 0 && factor <= 1, name_, "factor", factor, "0 to 1");
  start();
}

double ConstantLR::rate(size_t g) const {
  if (last_epoch_ == 0) return lr(g) * factor_;
  // A factor of 0 cannot be divided out.
  return last_epoch_ != total_iters_ ? lr(g) : factor_ == 0 ? base_lr(g) : lr(g) / factor_;
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters)
    : LRScheduler(optimizer, "LinearLR"),
      start_factor_(start_factor),
      end_factor_(end_factor),
      total_iters_(total_iters) {
  expect(start_factor > 0 && start_factor <= 1, name_, "start_factor", start_factor, "above 0 and at most 1");
  expect(end_factor >= 0 && end_factor <= 1, name_, "end_factor", end_factor, "0 to 1");
  start();
}

double LinearLR::rate(size_t g) const {
  if (last_epoch_ == 0) return lr(g) * start_factor_;
  if (last_epoch_ > total_iters_) return lr(g);
  const double change = end_factor_ - start_factor_;
  return lr(g) * (1 + change / (static_cast<double>(total_iters_) * start_factor_ +
                                static_cast<double>(last_epoch_ - 1) * change));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : LRScheduler(optimizer, "ExponentialLR"), gamma_(gamma) {
  start();
}

double ExponentialLR::rate(size_t g) const { return last_epoch_ == 0 ? lr(g) : lr(g) * gamma_; }

PolynomialLR::PolynomialLR(Optimizer& optimizer, int64_t total_iters, double power)
    : LRScheduler(optimizer, "PolynomialLR"), total_iters_(total_iters), power_(power) {
  expect(total_iters > 0, name_, "total_iters", static_cast<double>(total_iters), "above 0");
  start();
}

double PolynomialLR::rate(size_t g) const {
  if (last_epoch_ == 0 || last_epoch_ > total_iters_) return lr(g);
  const auto left = [&](int64_t epoch) {
    return 1 - static_cast<double>(epoch) / static_cast<double>(total_iters_);
  };
  return lr(g) * std::pow(left(last_epoch_) / left(last_epoch_ - 1), power_);
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min)
    : LRScheduler(optimizer, "CosineAnnealingLR"), t_max_(T_max), eta_min_(eta_min) {
  expect(T_max > 0, name_, "T_max", static_cast<double>(T_max), "above 0");
  start();
}

double CosineAnnealingLR::rate(size_t g) const {
  if (last_epoch_ == 0) return lr(g);
  const auto high = [&](int64_t epoch) {
    return 1 + std::cos(M_PI * static_cast<double>(epoch) / static_cast<double>(t_max_));
  };
  // At the lowest point the ratio below is 0 / 0.
  if ((last_epoch_ - 1 - t_max_) % (2 * t_max_) == 0)
    return lr(g) + (base_lr(g) - eta_min_) * (2 - high(1)) / 2;
  return high(last_epoch_) / high(last_epoch_ - 1) * (lr(g) - eta_min_) + eta_min_;
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauOptions& options)
    : Scheduler(optimizer, "ReduceLROnPlateau"), options_(options) {
  expect(options.factor < 1, name_, "factor", options.factor, "below 1");
  options.min_lr.check(optimizer, name_, "min_lr");
  const double worst = std::numeric_limits<double>::infinity();
  best_ = options.mode == PlateauMode::min ? worst : -worst;
  note_rates();
}

bool ReduceLROnPlateau::is_better(double metrics) const {
  const bool relative = options_.threshold_mode == ThresholdMode::rel;
  if (options_.mode == PlateauMode::min)
    return metrics < (relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold);
  return metrics > (relative ? best_ * (1 + options_.threshold) : best_ + options_.threshold);
}

void ReduceLROnPlateau::step(double metrics) {
  ++last_epoch_;
  const bool better = is_better(metrics);
  if (better) best_ = metrics;
  bad_epochs_ = better ? 0 : bad_epochs_ + 1;
  if (cooldown_ > 0) {
    --cooldown_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ > options_.patience) {
    for (size_t g = 0; g < optimizer_.group_count(); ++g) {
      const double old = optimizer_.get(g, "lr"), next = std::max(old * options_.factor, options_.min_lr[g]);
      if (old - next > options_.eps) optimizer_.set(g, "lr", next);
    }
    cooldown_ = options_.cooldown;
    bad_epochs_ = 0;
  }
  note_rates();
}

Scheduler::Numbers ReduceLROnPlateau::save() const {
  Numbers out = Scheduler::save();
  out["best"] = {best_};
  out["num_bad_epochs"] = {static_cast<double>(bad_epochs_)};
  out["cooldown_counter"] = {static_cast<double>(cooldown_)};
  return out;
}

void ReduceLROnPlateau::load(const Numbers& numbers) {
  Scheduler::load(numbers);
  best_ = numbers.at("best")[0];
  bad_epochs_ = static_cast<int64_t>(numbers.at("num_bad_epochs")[0]);
  cooldown_ = static_cast<int64_t>(numbers.at("cooldown_counter")[0]);
}

}  // namespace kiln::optim
