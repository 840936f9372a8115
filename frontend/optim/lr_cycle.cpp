// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/lr_cycle.h"

#include <cmath>

#include "frontend/optim/step.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: checks of arguments

namespace {
/// The hyper-parameter that stands for momentum, if the schedule moves it.
const char* momentum_of(const Optimizer& optimizer, bool cycled, const char* who) {
  if (!cycled) return nullptr;
  const char* name = optimizer.has("beta1") ? "beta1" : "momentum";
  KILN_CHECK(optimizer.has(name), invalid,
             "{}: the optimizer has neither momentum nor beta1 (set cycle_momentum = false)", who);
  return name;
}
}  // namespace

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0, int64_t T_mult,
                                                         double eta_min)
    : LRScheduler(optimizer, "CosineAnnealingWarmRestarts"),
      t_0_(T_0),
      t_mult_(T_mult),
      eta_min_(eta_min),
      t_i_(static_cast<double>(T_0)) {
  expect(T_0 > 0, name_, "T_0", static_cast<double>(T_0), "above 0");
  expect(T_mult >= 1, name_, "T_mult", static_cast<double>(T_mult), "at least 1");
  start();
}

void CosineAnnealingWarmRestarts::restart() {
  t_cur_ = 0;
  t_i_ = static_cast<double>(t_0_);
  LRScheduler::restart();
}

double CosineAnnealingWarmRestarts::rate(size_t g) const {
  return eta_min_ + (base_lr(g) - eta_min_) * (1 + std::cos(M_PI * t_cur_ / t_i_)) / 2;
}

void CosineAnnealingWarmRestarts::step(Loc loc) {
  warn_early(loc);
  ++last_epoch_;
  t_cur_ += 1;
  if (t_cur_ >= t_i_) {
    t_cur_ -= t_i_;
    t_i_ *= static_cast<double>(t_mult_);
  }
  apply();
}

void CosineAnnealingWarmRestarts::step(double epoch, Loc loc) {
  KILN_CHECK(epoch >= 0 && epoch < 0x1p53, invalid, "{}.step ({}): epoch is {}, expected at least 0", name_,
             loc.str(), epoch);
  warn_early(loc);
  const auto first = static_cast<double>(t_0_), factor = static_cast<double>(t_mult_);
  t_cur_ = epoch;
  t_i_ = first;
  if (t_mult_ == 1) {
    t_cur_ = std::fmod(epoch, first);
  } else if (epoch >= first) {
    const double periods = std::floor(std::log(epoch / first * (factor - 1) + 1) / std::log(factor));
    t_cur_ = epoch - first * (std::pow(factor, periods) - 1) / (factor - 1);
    t_i_ = first * std::pow(factor, periods);
  }
  last_epoch_ = static_cast<int64_t>(std::floor(epoch));
  apply();
}

Scheduler::Numbers CosineAnnealingWarmRestarts::save() const {
  Numbers out = LRScheduler::save();
  out["T_cur"] = {t_cur_};
  out["T_i"] = {t_i_};
  return out;
}

void CosineAnnealingWarmRestarts::load(const Numbers& numbers) {
  LRScheduler::load(numbers);
  t_cur_ = numbers.at("T_cur")[0];
  t_i_ = numbers.at("T_i")[0];
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options)
    : LRScheduler(optimizer, "OneCycleLR"), options_(options) {
  int64_t& total = options_.total_steps;
  if (total == 0) total = options.epochs * options.steps_per_epoch;
  KILN_CHECK(total > 0, invalid,
             "OneCycleLR: got total_steps {}, epochs {} and steps_per_epoch {}, expected the first, or both "
             "others, above 0",
             options.total_steps, options.epochs, options.steps_per_epoch);
  expect(options.pct_start >= 0 && options.pct_start <= 1, name_, "pct_start", options.pct_start, "0 to 1");
  options.max_lr.check(optimizer, name_, "max_lr");
  momentum_ = momentum_of(optimizer, options.cycle_momentum, name_);
  const auto steps = static_cast<double>(total);
  const double start = 1 / options.div_factor, least = start / options.final_div_factor;
  const double low = options.base_momentum, high = options.max_momentum;
  const double up = options.pct_start * steps - 1;
  phases_ = {{up, start, 1, high, low}};
  if (options.three_phase)
    phases_.insert(phases_.end(), {{2 * options.pct_start * steps - 2, 1, start, low, high},
                                   {steps - 1, start, least, high, high}});
  else phases_.push_back({steps - 1, 1, least, low, high});
  for (size_t g = 0; g < optimizer.group_count(); ++g) {
    base_lrs_[g] = options.max_lr[g] * start;
    optimizer.initial_lr(g) = base_lrs_[g];
  }
  LRScheduler::start();
}

double OneCycleLR::annealed(double Phase::*from, double Phase::*to) const {
  const auto epoch = static_cast<double>(last_epoch_);
  double begin = 0;
  size_t k = 0;
  for (; k + 1 < phases_.size() && epoch > phases_[k].end; ++k) begin = phases_[k].end;
  const Phase& p = phases_[k];
  const double done = (epoch - begin) / (p.end - begin);
  if (options_.anneal_strategy == Anneal::linear) return p.*from + (p.*to - p.*from) * done;
  return p.*to + (p.*from - p.*to) / 2 * (1 + std::cos(M_PI * done));
}

double OneCycleLR::rate(size_t g) const {
  return options_.max_lr[g] * annealed(&Phase::from_lr, &Phase::to_lr);
}

void OneCycleLR::set_others(size_t g) {
  if (momentum_) optimizer_.set(g, momentum_, annealed(&Phase::from_momentum, &Phase::to_momentum));
}

Scheduler::Numbers OneCycleLR::save() const {
  Numbers out = LRScheduler::save();
  if (momentum_) out[momentum_] = current(momentum_);
  return out;
}

void OneCycleLR::load(const Numbers& numbers) {
  LRScheduler::load(numbers);
  if (momentum_) put_back(momentum_, numbers);
}

void OneCycleLR::step(Loc loc) {
  KILN_CHECK(last_epoch_ < options_.total_steps, invalid,
             "OneCycleLR.step ({}): all {} steps of the schedule have been taken", loc.str(),
             options_.total_steps);
  LRScheduler::step(loc);
}

CyclicLR::CyclicLR(Optimizer& optimizer, const CyclicOptions& options)
    : LRScheduler(optimizer, "CyclicLR"), options_(options) {
  if (options_.step_size_down == 0) options_.step_size_down = options.step_size_up;
  expect(options.step_size_up > 0, name_, "step_size_up", static_cast<double>(options.step_size_up),
         "above 0");
  expect(options_.step_size_down > 0, name_, "step_size_down", static_cast<double>(options_.step_size_down),
         "above 0");
  options.base_lr.check(optimizer, name_, "base_lr");
  options.max_lr.check(optimizer, name_, "max_lr");
  momentum_ = momentum_of(optimizer, options.cycle_momentum, name_);
  for (size_t g = 0; g < optimizer.group_count(); ++g) base_lrs_[g] = options.base_lr[g];
  start();
}

double CyclicLR::height() const {
  const auto up = static_cast<double>(options_.step_size_up),
             total = up + static_cast<double>(options_.step_size_down),
             epoch = static_cast<double>(last_epoch_);
  const double cycle = std::floor(1 + epoch / total), x = 1 + epoch / total - cycle, top = up / total;
  const double share = x <= top ? x / top : (x - 1) / (top - 1);
  if (options_.scale_fn) return share * options_.scale_fn(options_.scale_by_iterations ? epoch : cycle);
  switch (options_.mode) {
    case CyclicMode::triangular2: return share / std::pow(2, cycle - 1);
    case CyclicMode::exp_range: return share * std::pow(options_.gamma, epoch);
    default: return share;
  }
}

double CyclicLR::rate(size_t g) const { return base_lr(g) + (options_.max_lr[g] - base_lr(g)) * height(); }

void CyclicLR::set_others(size_t g) {
  if (!momentum_) return;
  const double range = options_.max_momentum - options_.base_momentum;
  optimizer_.set(g, momentum_, options_.max_momentum - range * height());
}

Scheduler::Numbers CyclicLR::save() const {
  Numbers out = LRScheduler::save();
  if (momentum_) out[momentum_] = current(momentum_);
  return out;
}

void CyclicLR::load(const Numbers& numbers) {
  LRScheduler::load(numbers);
  if (momentum_) put_back(momentum_, numbers);
}

}  // namespace kiln::optim
