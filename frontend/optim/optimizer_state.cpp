// SPDX-License-Identifier: Apache-2.0
// state_dict and load_state_dict of optimizers.
#include <cmath>
#include <map>
#include <set>

#include "frontend/ops.h"
#include "frontend/optim/optimizer.h"

namespace kiln::optim {

namespace {
Tensor number(double v) { return Tensor::from_vector<double>({v}, {}); }

std::string key_of_group(size_t group, std::string_view name) {
  return fmt::format("param_groups.{}.{}", group, name);
}
std::string key_of_param(size_t param, std::string_view name) { return fmt::format("{}.{}", param, name); }

std::vector<int64_t> indices(size_t first, size_t count) {
  std::vector<int64_t> out;
  for (size_t i = first; i < first + count; ++i) out.push_back(static_cast<int64_t>(i));
  return out;
}
}  // namespace

/// What load_state_dict was given, by name.
struct Optimizer::Saved {
  std::map<std::string, Tensor> all;
  std::set<std::string> left;  ///< not asked for

  /// An entry of that type, or none; what is missing or does not fit is among the faults.
  Tensor take(const std::string& name, DType dtype, const Sizes& sizes, bool required, std::string& faults) {
    left.erase(name);
    const auto it = all.find(name);
    const std::string expected = fmt::format("{}[{}]", dtype_name(dtype), fmt::join(sizes, ","));
    if (it == all.end()) {
      if (required) faults += fmt::format("\n  missing: {} {}", name, expected);
      return {};
    }
    const Tensor& t = it->second;
    if (t.defined() && t.sizes() == sizes && t.dtype() == dtype) return t;
    faults += fmt::format("\n  {}: got {}, expected {}", name, t.type_str(), expected);
    return {};
  }
  double number(const std::string& name) const { return all.at(name).item<double>(); }
};

NamedTensors Optimizer::state_dict() const {
  read_counts();
  NamedTensors out;
  const std::vector<const char*> host = host_state();
  for (size_t i = 0; i < params_.size(); ++i) {
    const Progress& p = (*progress_)[i];
    out.emplace_back(key_of_param(i, "step"), number(static_cast<double>(p.step)));
    for (size_t k = 0; k < host.size() && p.step > 0; ++k)
      out.emplace_back(key_of_param(i, host[k]), number(p.numbers.at(k)));
    const std::vector<StateSpec> all = specs(group_of(i), params_[i]);
    for (size_t k = 0; k < state_of(i).size(); ++k)
      if (const Tensor& t = state_of(i)[k]; t.defined()) out.emplace_back(key_of_param(i, all[k].name), t);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const Hyper& h : const_hypers(g)) out.emplace_back(key_of_group(g, h.name), number(h.get()));
    if (groups_[g].initial_lr)
      out.emplace_back(key_of_group(g, "initial_lr"), number(*groups_[g].initial_lr));
    const auto own = indices(groups_[g].first, groups_[g].count);
    out.emplace_back(key_of_group(g, "params"), Tensor::from_vector(own, {static_cast<int64_t>(own.size())}));
  }
  return out;
}

/// Reads the hyper-parameters, on which depends what state is needed.
void Optimizer::load_hypers(Saved& saved, std::string& faults) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto entry = [&](std::string_view name, bool required) {
      return saved.take(key_of_group(g, name), DType::f64, {}, required, faults);
    };
    for (const Hyper& h : hypers(g))
      if (const Tensor t = entry(h.name, true); t.defined()) {
        const double value = t.item<double>();
        if (h.takes(value)) h.set(value);
        else
          faults += fmt::format("\n  {}: got {}, expected {}", key_of_group(g, h.name), value, h.expected());
      }
    if (const Tensor t = entry("initial_lr", false); t.defined()) groups_[g].initial_lr = t.item<double>();
    try {
      check_options(g);
    } catch (const Error& e) {
      faults += fmt::format("\n  param_groups.{}: {}", g, e.what());
    }
    const auto own = indices(groups_[g].first, groups_[g].count);
    const std::string key = key_of_group(g, "params");
    const Tensor t = saved.take(key, DType::i64, {static_cast<int64_t>(own.size())}, true, faults);
    if (t.defined() && t.to_vector<int64_t>() != own)
      faults += fmt::format("\n  {}: got [{}], expected [{}]", key, fmt::join(t.to_vector<int64_t>(), ","),
                            fmt::join(own, ","));
  }
}

void Optimizer::check_param(size_t param, Saved& saved, std::string& faults) const {
  const Tensor& p = params_[param];
  const std::string key = key_of_param(param, "step");
  const Tensor t = saved.take(key, DType::f64, {}, true, faults);
  const double steps = t.defined() ? t.item<double>() : 0;
  if (!(steps >= 0 && steps < 0x1p53 && steps == std::floor(steps)))
    faults += fmt::format("\n  {}: got {}, expected a count", key, steps);
  for (const char* name : host_state())
    saved.take(key_of_param(param, name), DType::f64, {}, steps > 0, faults);
  for (const StateSpec& s : specs(group_of(param), p))
    saved.take(key_of_param(param, s.name), p.dtype(), s.sizes.value_or(p.sizes()), s.needed && steps > 0,
               faults);
}

void Optimizer::load_param(size_t param, const Saved& saved) {
  Progress& progress = (*progress_)[param];
  progress = {};
  progress.step = static_cast<int64_t>(saved.number(key_of_param(param, "step")));
  const std::vector<const char*> host = host_state();
  for (size_t k = 0; k < host.size() && progress.step > 0; ++k)
    progress.numbers.at(k) = saved.number(key_of_param(param, host[k]));
  const Tensor& p = params_[param];
  const std::vector<StateSpec> all = specs(group_of(param), p);
  std::vector<Tensor>& own = state_of(param);
  own.resize(all.size());
  for (size_t k = 0; k < all.size(); ++k) {
    const auto it = saved.all.find(key_of_param(param, all[k].name));
    if (it == saved.all.end()) own[k] = {};
    else if (own[k].defined() && own[k].device() == p.device()) own[k].copy_(it->second);
    else own[k] = it->second.to(p.device()).clone();
    if (own[k].defined()) progress.with_state = progress.step;
  }
}

void Optimizer::load_state_dict(const NamedTensors& given, Loc loc) {
  read_counts();
  const NoGrad guard;
  Saved saved;
  std::string faults, in_groups;
  std::set<std::string> twice;
  for (const auto& [name, t] : given)
    if (!saved.all.emplace(name, t).second) twice.insert(name);
  for (const auto& [name, t] : saved.all) saved.left.insert(name);
  // What state is needed depends on the options: they are set first, and back if anything does not fit.
  std::vector<std::vector<double>> before;
  std::vector<Group> groups = groups_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    before.emplace_back();
    for (const Hyper& h : hypers(g)) before.back().push_back(h.get());
  }
  load_hypers(saved, in_groups);
  for (size_t i = 0; i < params_.size(); ++i) check_param(i, saved, faults);
  faults += in_groups;
  for (const std::string& name : twice) faults += fmt::format("\n  given twice: {}", name);
  for (const std::string& name : saved.left)
    faults += fmt::format("\n  unexpected: {} {}", name, saved.all[name].type_str());
  if (!faults.empty()) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::vector<Hyper> own = hypers(g);
      for (size_t k = 0; k < own.size(); ++k) own[k].set(before[g][k]);
    }
    groups_ = std::move(groups);
  }
  KILN_CHECK(faults.empty(), invalid, "Optimizer::load_state_dict ({}): the state does not fit{}", loc.str(),
             faults);
  for (size_t i = 0; i < params_.size(); ++i) load_param(i, saved);
  counts_->clear();  // they are the host's again
}

}  // namespace kiln::optim
