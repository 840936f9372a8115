// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/swa_utils.h"

#include <map>
#include <set>

#include "frontend/frozen.h"
#include "frontend/optim/step.h"

namespace kiln::optim {

using namespace optim::detail;  // NOLINT: the body is written in its vocabulary

namespace {
constexpr const char* kUpdate = "AveragedModel.update_parameters";

NamedTensors all_of(const nn::Module& model) {
  NamedTensors all = model.named_parameters();
  for (auto& named : model.named_buffers()) all.push_back(std::move(named));
  return all;
}

/// Averages of whole numbers are computed in f64 and cut.
Tensor averaged(const Tensor& average, const Tensor& now, const std::vector<Tensor>& s) {
  const DType stored = average.dtype();
  const DType wide = stored == DType::f32 || stored == DType::f64 ? stored
                     : is_floating(stored)                        ? DType::f32
                                                                  : DType::f64;
  const Tensor a = cast_to(average, wide), b = cast_to(now, wide);
  return cast_to(pick(cast_to(s[1], wide), b, lerp(a, b, cast_to(s[0], wide))), stored);
}
}  // namespace

AveragedModel::AveragedModel(const nn::Module& model, const AveragedModelOptions& o)
    : options(o), parameters_(model.named_parameters().size()), count_(std::make_shared<int64_t>(0)) {
  if (o.ema_decay)
    expect(*o.ema_decay >= 0 && *o.ema_decay <= 1, "AveragedModel", "ema_decay", *o.ema_decay, "0 to 1");
  const NoGrad guard;
  for (const auto& [name, t] : all_of(model)) averages_.emplace_back(name, t.detach().clone());
}

NamedTensors AveragedModel::own_of(const nn::Module& model, const char* what, Loc loc) const {
  NamedTensors all = all_of(model);
  KILN_CHECK(all.size() == averages_.size(), invalid,
             "AveragedModel::{} ({}): the model has {} parameters and buffers, the averaged one had {}", what,
             loc.str(), all.size(), averages_.size());
  for (size_t k = 0; k < all.size(); ++k) {
    const auto& [name, t] = all[k];
    const auto& [own_name, own] = averages_[k];
    KILN_CHECK(name == own_name && t.sizes() == own.sizes() && t.dtype() == own.dtype(), invalid,
               "AveragedModel::{} ({}): the model has {} {}, the averaged one had {} {}", what, loc.str(),
               name, t.type_str(), own_name, own.type_str());
  }
  return all;
}

void AveragedModel::update_parameters(const nn::Module& model, Loc loc) {
  forbid_frozen("updates of AveragedModel");
  const NoGrad guard;
  const NamedTensors now = own_of(model, "update_parameters", loc);
  const double n = static_cast<double>(*count_);
  const Scalar scalars[] = {options.ema_decay ? 1 - *options.ema_decay : 1 / (n + 1), n == 0 ? 1.0 : 0.0};
  const int64_t ints[] = {options.use_buffers, static_cast<int64_t>(parameters_)};
  std::vector<const Tensor*> operands;
  for (size_t k = 0; k < now.size(); ++k)
    operands.insert(operands.end(), {&averages_[k].second, &now[k].second});
  call_many(kUpdate, loc, operands, ints, scalars, [&](const std::vector<Tensor>& s) {
    for (size_t k = 0; k < now.size(); ++k) {
      const Tensor &average = averages_[k].second, &t = now[k].second;
      const bool copied = k >= parameters_ && !options.use_buffers;
      assign(average, copied ? clone(t) : averaged(average, t, s));
    }
    return std::vector<Tensor>{};
  });
  note_count([count = count_, before = *count_] { *count = before; });
  ++*count_;
}

void AveragedModel::copy_to(nn::Module& model, Loc loc) const {
  const NoGrad guard;
  NamedTensors own = own_of(model, "copy_to", loc);
  for (size_t k = 0; k < own.size(); ++k) own[k].second.copy_(averages_[k].second, loc);
}

void AveragedModel::swap(nn::Module& model, Loc loc) {
  const NoGrad guard;
  NamedTensors own = own_of(model, "swap", loc);
  for (size_t k = 0; k < own.size(); ++k) {
    const Tensor kept = own[k].second.detach(loc).clone(loc);
    own[k].second.copy_(averages_[k].second, loc);
    averages_[k].second.copy_(kept, loc);
  }
}

NamedTensors AveragedModel::state_dict() const {
  NamedTensors out = {{"n_averaged", Tensor::from_vector<int64_t>({*count_}, {})}};
  for (const auto& [name, t] : averages_) out.emplace_back("module." + name, t);
  return out;
}

void AveragedModel::load_state_dict(const NamedTensors& state, Loc loc) {
  const NamedTensors own = state_dict();
  std::map<std::string, Tensor> given;
  std::string faults;
  for (const auto& [name, t] : state)
    if (!given.emplace(name, t).second) faults += fmt::format("\n  given twice: {}", name);
  for (const auto& [name, t] : own) {
    const auto it = given.find(name);
    if (it == given.end()) faults += fmt::format("\n  missing: {} {}", name, t.type_str());
    else if (!it->second.defined() || it->second.sizes() != t.sizes() || it->second.dtype() != t.dtype())
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second.type_str(), t.type_str());
  }
  std::set<std::string> names;
  for (const auto& [name, t] : own) names.insert(name);
  for (const auto& [name, t] : given)
    if (!names.contains(name)) faults += fmt::format("\n  unexpected: {} {}", name, t.type_str());
  KILN_CHECK(faults.empty(), invalid, "AveragedModel::load_state_dict ({}): the state does not fit{}",
             loc.str(), faults);
  const NoGrad guard;
  for (size_t k = 0; k < averages_.size(); ++k)
    averages_[k].second.copy_(given.at("module." + averages_[k].first), loc);
  *count_ = given.at("n_averaged").item<int64_t>();
}

}  // namespace kiln::optim
