// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "frontend/optim/lr_cycle.h"
#include "frontend/optim/lr_scheduler.h"
#include "tests/golden/eval.h"
#include "tests/golden/train.h"

namespace kiln::golden {

namespace {

using namespace optim;  // NOLINT: its classes, by name

/// Reads arguments, and knows at the end which were not asked for.
class Arguments {
 public:
  explicit Arguments(const Json& args) : left_(args) {}
  Json take(const std::string& key, Json fallback) {
    if (!left_.contains(key)) return fallback;
    Json v = left_[key];
    left_.erase(key);
    return v;
  }
  double real(const std::string& key, double fallback) { return number(take(key, fallback)); }
  int64_t whole(const std::string& key, int64_t fallback) { return take(key, fallback).get<int64_t>(); }
  void done() const {
    if (!left_.empty()) throw Unsupported("argument " + left_.items().begin().key());
  }

 private:
  Json left_;
};

OneCycleOptions one_cycle(Arguments& a) {
  OneCycleOptions o;
  o.max_lr = a.real("max_lr", 0);
  o.total_steps = a.whole("total_steps", 0);
  o.pct_start = a.real("pct_start", o.pct_start);
  o.anneal_strategy = a.take("anneal_strategy", "cos") == "linear" ? Anneal::linear : Anneal::cos;
  o.three_phase = a.take("three_phase", false).get<bool>();
  return o;
}

CyclicOptions cyclic(Arguments& a) {
  static const std::map<std::string, CyclicMode> kModes = {{"triangular", CyclicMode::triangular},
                                                           {"triangular2", CyclicMode::triangular2},
                                                           {"exp_range", CyclicMode::exp_range}};
  CyclicOptions o;
  o.base_lr = a.real("base_lr", 0);
  o.max_lr = a.real("max_lr", 0);
  o.step_size_up = a.whole("step_size_up", o.step_size_up);
  o.mode = kModes.at(a.take("mode", "triangular").get<std::string>());
  o.cycle_momentum = a.take("cycle_momentum", true).get<bool>();
  return o;
}

PlateauOptions plateau(Arguments& a) {
  PlateauOptions o;
  o.mode = a.take("mode", "min") == "max" ? PlateauMode::max : PlateauMode::min;
  o.factor = a.real("factor", o.factor);
  o.patience = a.whole("patience", o.patience);
  o.threshold = a.real("threshold", o.threshold);
  o.threshold_mode = a.take("threshold_mode", "rel") == "abs" ? ThresholdMode::abs : ThresholdMode::rel;
  o.cooldown = a.whole("cooldown", o.cooldown);
  o.min_lr = a.real("min_lr", 0);
  return o;
}

/// The file's formula, in words: a linear warmup, then linearly to zero.
std::function<double(int64_t)> warmup(Arguments& a) {
  const double up = a.real("warmup", 0), total = a.real("total", 0);
  a.take("formula", "");
  return [=](int64_t epoch) {
    const auto e = static_cast<double>(epoch);
    return e < up ? (e + 1) / up : std::max(0.0, (total - e) / (total - up));
  };
}

std::shared_ptr<LRScheduler> by_epoch(const std::string& name, Arguments& a, Optimizer& o) {
  const auto gamma = [&] { return a.real("gamma", 0.1); };
  if (name == "StepLR") return std::make_shared<StepLR>(o, a.whole("step_size", 0), gamma());
  if (name == "MultiStepLR")
    return std::make_shared<MultiStepLR>(o, a.take("milestones", {}).get<std::vector<int64_t>>(), gamma());
  if (name == "ExponentialLR") return std::make_shared<ExponentialLR>(o, gamma());
  if (name == "CosineAnnealingLR")
    return std::make_shared<CosineAnnealingLR>(o, a.whole("T_max", 0), a.real("eta_min", 0));
  if (name == "CosineAnnealingWarmRestarts")
    return std::make_shared<CosineAnnealingWarmRestarts>(o, a.whole("T_0", 0), a.whole("T_mult", 1),
                                                         a.real("eta_min", 0));
  if (name == "LinearLR")
    return std::make_shared<LinearLR>(o, a.real("start_factor", 1.0 / 3), a.real("end_factor", 1),
                                      a.whole("total_iters", 5));
  if (name == "PolynomialLR")
    return std::make_shared<PolynomialLR>(o, a.whole("total_iters", 5), a.real("power", 1));
  if (name == "LambdaLR") return std::make_shared<LambdaLR>(o, warmup(a));
  if (name == "OneCycleLR") return std::make_shared<OneCycleLR>(o, one_cycle(a));
  if (name == "CyclicLR") return std::make_shared<CyclicLR>(o, cyclic(a));
  throw Unsupported("scheduler " + name);
}

}  // namespace

Schedule make_schedule(const std::string& name, const Json& args, Optimizer& optimizer) {
  Arguments a(args);
  if (name == "ReduceLROnPlateau") {
    const auto s = std::make_shared<ReduceLROnPlateau>(optimizer, plateau(a));
    a.done();
    return {[s](double metric) { s->step(metric); }, [s] { return s->get_last_lr(); }};
  }
  const std::shared_ptr<LRScheduler> s = by_epoch(name, a, optimizer);
  a.done();
  return {[s](double) { s->step(); }, [s] { return s->get_last_lr(); }};
}

}  // namespace kiln::golden
