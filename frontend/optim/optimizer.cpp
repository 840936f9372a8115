// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "frontend/dispatch.h"
#include "frontend/frozen.h"
#include "frontend/ops_detail.h"
#include "frontend/state.h"

namespace kiln::optim {

using namespace kiln::detail;  // NOLINT: the update bodies are written in its vocabulary

Optimizer::Optimizer(std::vector<Tensor> params, double& rate)
    : lr(rate),
      params_(std::move(params)),
      state_(params_.size()),
      steps_(std::make_shared<StepCounts>(params_.size(), 0)) {
  KILN_CHECK(!params_.empty(), invalid, "Optimizer: no parameters");
  for (const Tensor& p : params_) {
    KILN_CHECK(p.defined() && p.is_leaf() && is_floating(p.dtype()), invalid,
               "Optimizer: got {}, expected leaf tensors of a floating dtype", p.type_str());
    const auto same = [&](const Tensor& q) { return q.impl() == p.impl(); };
    KILN_CHECK(std::count_if(params_.begin(), params_.end(), same) == 1, invalid,
               "Optimizer: parameter {} '{}' is given twice", p.type_str(), p.name());
  }
}

void Optimizer::zero_grad(bool set_to_none) {
  for (Tensor& p : params_) {
    if (set_to_none) p.set_grad({});
    else if (p.grad().defined()) p.grad().zero_();
  }
}

void Optimizer::make_state(std::vector<std::string> names) {
  state_names_ = std::move(names);
  for (size_t i = 0; i < params_.size(); ++i)
    for (size_t k = 0; k < state_names_.size(); ++k)
      state_[i].push_back(zeros(params_[i].sizes(), {params_[i].dtype()}));
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors out;
  for (size_t i = 0; i < params_.size(); ++i) {
    out.emplace_back(fmt::format("{}.step", i),
                     Tensor::from_vector<double>({static_cast<double>((*steps_)[i])}, {}));
    for (size_t k = 0; k < state_names_.size(); ++k)
      out.emplace_back(fmt::format("{}.{}", i, state_names_[k]), state_[i][k]);
  }
  return out;
}

void Optimizer::load_state_dict(const NamedTensors& given, Loc loc) {
  const auto own = state_dict();
  auto find = [](const auto& list, const std::string& name) {
    return std::find_if(list.begin(), list.end(), [&](const auto& p) { return p.first == name; });
  };
  std::string faults;
  for (const auto& [name, t] : own) {
    const auto it = find(given, name);
    if (it == given.end()) faults += fmt::format("\n  missing: {} {}", name, t.type_str());
    else if (!it->second.defined() || it->second.sizes() != t.sizes() || it->second.dtype() != t.dtype())
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second.type_str(), t.type_str());
  }
  std::set<std::string> seen;
  for (const auto& [name, t] : given)
    if (!seen.insert(name).second) faults += fmt::format("\n  given twice: {}", name);
    else if (find(own, name) == own.end()) faults += fmt::format("\n  unexpected: {} {}", name, t.type_str());
  for (size_t i = 0; i < params_.size() && faults.empty(); ++i) {
    const double n = find(given, fmt::format("{}.step", i))->second.item<double>();
    if (!(n >= 0 && n < 0x1p53 && n == std::floor(n)))
      faults += fmt::format("\n  {}.step: got {}, expected a count", i, n);
  }
  KILN_CHECK(faults.empty(), invalid, "Optimizer::load_state_dict ({}): the state does not fit{}", loc.str(),
             faults);
  NoGrad guard;
  for (size_t i = 0; i < params_.size(); ++i) {
    (*steps_)[i] = static_cast<int64_t>(find(given, fmt::format("{}.step", i))->second.item<double>());
    for (size_t k = 0; k < state_names_.size(); ++k)
      state_[i][k].copy_(find(given, fmt::format("{}.{}", i, state_names_[k]))->second);
  }
}

void Optimizer::update_all(const char* name, Loc loc, std::vector<int64_t> ints, std::vector<double> scalars,
                           const std::function<std::vector<double>(int64_t)>& at_step, const Update& update) {
  NoGrad guard;
  std::vector<size_t> active;
  std::vector<std::vector<Tensor>> rows;
  std::vector<std::vector<double>> own;  // distinct scalars of a step
  std::vector<int64_t> own_of;           // per row, which of them
  std::map<int64_t, int64_t> own_at;     // per step count, which of them
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!params_[i].grad().defined()) continue;
    active.push_back(i);
    rows.push_back({params_[i], params_[i].grad()});
    rows.back().insert(rows.back().end(), state_[i].begin(), state_[i].end());
    for (const Tensor& t : state_[i])
      KILN_CHECK(
          t.dtype() == params_[i].dtype() && t.sizes() == params_[i].sizes(), invalid,
          "{} ({}): parameter {} is {}, but was {} when the optimizer was made (make it after Module::to)",
          name, loc.str(), i, describe(*params_[i].impl()), t.type_str());
    const auto [place, first] = own_at.try_emplace((*steps_)[i] + 1);
    if (first) {
      std::vector<double> mine = at_step(place->first);
      const auto at = std::find(own.begin(), own.end(), mine);
      place->second = at - own.begin();
      if (at == own.end()) own.push_back(std::move(mine));
    }
    own_of.push_back(place->second);
  }
  if (rows.empty()) return;
  const size_t common = scalars.size(), each = own[0].size();
  for (const std::vector<double>& x : own) scalars.insert(scalars.end(), x.begin(), x.end());
  if (own.size() > 1) ints.insert(ints.end(), own_of.begin(), own_of.end());
  std::vector<const Tensor*> operands;
  for (const auto& row : rows)
    for (const Tensor& t : row) operands.push_back(&t);
  const std::vector<Scalar> given(scalars.begin(), scalars.end());
  call_many(name, loc, operands, ints, given, [&](const std::vector<Tensor>& s) {
    for (size_t r = 0; r < rows.size(); ++r) {
      std::vector<Tensor> mine(s.begin(), s.begin() + static_cast<ptrdiff_t>(common));
      const auto first = s.begin() + static_cast<ptrdiff_t>(common + each * static_cast<size_t>(own_of[r]));
      mine.insert(mine.end(), first, first + static_cast<ptrdiff_t>(each));
      for (Tensor& x : mine) x = cast_to(x, rows[r][0].dtype());
      update(rows[r], mine);
    }
    return std::vector<Tensor>{};
  });
  note_step(steps_);
  for (size_t i : active) ++(*steps_)[i];
}

SGD::SGD(std::vector<Tensor> params, const SGDOptions& o)
    : Optimizer(std::move(params), options.lr), options(o) {
  KILN_CHECK(o.lr >= 0 && o.momentum >= 0 && o.weight_decay >= 0, invalid,
             "SGD: got lr {}, momentum {} and weight_decay {}, expected none below 0", o.lr, o.momentum,
             o.weight_decay);
  KILN_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0), invalid,
             "SGD: nesterov needs momentum > 0 and dampening 0; got {} and {}", o.momentum, o.dampening);
  make_state(o.momentum != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{});
}

void SGD::step(Loc loc) {
  if (!state_names_.empty()) forbid_frozen("steps of SGD with momentum");
  update_all(
      "SGD.step", loc, {options.nesterov, options.weight_decay != 0},
      {lr, options.weight_decay, options.momentum, 1 - options.dampening},
      [](int64_t t) { return std::vector{t == 1 ? 1.0 : 0.0}; },
      [&](const std::vector<Tensor>& row, std::span<const Tensor> s) {
        const Tensor& p = row[0];
        Tensor g = options.weight_decay != 0 ? add2(row[1], mul2(p, s[1])) : row[1];
        if (row.size() == 3) {
          // The first step stores the gradient itself; which step it is, is a run-time value.
          const Tensor zero = constant_like(p, 0), first = binary(op("ne"), expand_to(s[4], p.sizes()), zero);
          const Tensor later = add2(mul2(row[2], s[2]), mul2(g, s[3])), now = g;
          const Tensor buffer = apply(op("where"), {&first, &now, &later});
          assign(row[2], buffer);
          g = options.nesterov ? add2(g, mul2(buffer, s[2])) : buffer;
        }
        assign(p, sub2(p, mul2(g, s[0])));
      });
}

AdamW::AdamW(std::vector<Tensor> params, const AdamWOptions& o)
    : Optimizer(std::move(params), options.lr), options(o) {
  KILN_CHECK(o.lr >= 0 && o.weight_decay >= 0, invalid,
             "AdamW: got lr {} and weight_decay {}, expected none below 0", o.lr, o.weight_decay);
  KILN_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1 && o.eps >= 0, invalid,
             "AdamW: got betas {} {} and eps {}, expected betas in [0, 1) and eps >= 0", o.beta1, o.beta2,
             o.eps);
  make_state({"exp_avg", "exp_avg_sq"});
}

void AdamW::step(Loc loc) {
  forbid_frozen("steps of AdamW");
  update_all(
      "AdamW.step", loc, {},
      {1 - lr * options.weight_decay, 1 - options.beta1, options.beta2, 1 - options.beta2, options.eps},
      [&](int64_t t) {
        const auto n = static_cast<double>(t);
        return std::vector{std::sqrt(1 - std::pow(options.beta2, n)), lr / (1 - std::pow(options.beta1, n))};
      },
      [&](const std::vector<Tensor>& row, std::span<const Tensor> s) {
        const Tensor &p = row[0], &g = row[1], &m = row[2], &v = row[3];
        const Tensor m1 = add2(m, mul2(sub2(g, m), s[1]));
        const Tensor v1 = add2(mul2(v, s[2]), mul2(mul2(g, g), s[3]));
        const Tensor denominator = add2(div2(unary(op("sqrt"), v1), s[5]), s[4]);
        const Tensor p1 = sub2(mul2(p, s[0]), mul2(s[6], div2(m1, denominator)));
        assign(m, m1);
        assign(v, v1);
        assign(p, p1);
      });
}

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, Loc loc) {
  NoGrad guard;
  std::vector<Tensor> grads;
  for (const Tensor& p : params)
    if (p.grad().defined()) grads.push_back(p.grad());
  if (grads.empty()) return zeros({}, {}, loc);
  std::vector<const Tensor*> operands;
  for (const Tensor& g : grads) operands.push_back(&g);
  const Scalar scalars[] = {max_norm};
  return call_many("clip_grad_norm_", loc, operands, {}, scalars, [&](const std::vector<Tensor>& s) {
    Tensor total;
    for (const Tensor& g : grads) {
      const Tensor part =
          reduce(op("sum"), binary(op("mul"), g, g), wrap_dims({}, g.dim(), "clip_grad_norm_", loc), false);
      total = total.defined() ? add2(total, part) : part;
    }
    const Tensor norm = unary(op("sqrt"), total), limit = cast_to(s[0], norm.dtype());
    const Tensor ratio = div2(limit, add2(norm, constant_like(norm, 1e-6))), one = constant_like(ratio, 1);
    const Tensor factor = apply(op("minimum"), {&ratio, &one});
    for (const Tensor& g : grads) assign(g, mul2(g, cast_to(factor, g.dtype())));
    return std::vector<Tensor>{norm};
  })[0];
}

}  // namespace kiln::optim
