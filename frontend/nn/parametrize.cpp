// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/parametrize.h"

#include <algorithm>
#include <vector>

#include "frontend/dispatch.h"
#include "frontend/nn/conv.h"
#include "frontend/ops.h"

namespace kiln::nn {

namespace {

constexpr const char* kPlace = "parametrizations";

Tensor times(const Tensor& a, const Tensor& b, Loc loc) { return mul({a, loc}, {b, loc}); }
Tensor over(const Tensor& a, const Tensor& b, Loc loc) { return div({a, loc}, {b, loc}); }
Tensor length(const Tensor& x, const Sizes& dims, Loc loc) {
  return sqrt(sum(times(x, x, loc), dims, !dims.empty(), loc), loc);
}

class WeightNorm : public Parametrization {
 public:
  WeightNorm(const Tensor& weight, std::optional<int64_t> dim, Loc loc) : v_(weight) {
    const int64_t rank = weight.dim(), d = dim && *dim < 0 ? *dim + rank : dim.value_or(0);
    KILN_CHECK(!dim || (d >= 0 && d < rank), invalid, "weight_norm ({}): dim is {}, but the weight is {}",
               loc.str(), *dim, weight.type_str());
    if (dim)
      for (int64_t i = 0; i < rank; ++i)
        if (i != d) dims_.push_back(i);
    // Of a vector every element is a row of its own.
    single_ = dim && dims_.empty();
    {
      NoGrad guard;
      g_ = norm(loc).clone(loc);
    }
    register_parameter("original0", g_);
    register_parameter("original1", v_);
  }
  Tensor value(Loc loc) override { return times(v_, over(g_, norm(loc), loc), loc); }

 private:
  Tensor norm(Loc loc) const { return single_ ? abs(v_, loc) : length(v_, dims_, loc); }
  Tensor g_, v_;
  Sizes dims_;  ///< that the norm is over; none: all
  bool single_ = false;
};

/// The vectors of a spectral norm: what PyTorch has as the first module of a list of parametrizations.
class PowerVectors : public Module {
 public:
  PowerVectors() {
    register_buffer("_u", u);
    register_buffer("_v", v);
  }
  Tensor u, v;
};

class SpectralNorm : public Parametrization {
 public:
  SpectralNorm(const Tensor& weight, int64_t dim, const SpectralNormOptions& o, Loc loc)
      : original_(weight), dim_(dim < 0 ? dim + weight.dim() : dim), options_(o) {
    KILN_CHECK(o.n_power_iterations > 0, invalid,
               "spectral_norm ({}): n_power_iterations is {}, expected at least 1", loc.str(),
               o.n_power_iterations);
    KILN_CHECK(weight.dim() > 0 && dim_ >= 0 && dim_ < weight.dim(), invalid,
               "spectral_norm ({}): dim is {}, but the weight is {}", loc.str(), dim, weight.type_str());
    if (weight.dim() > 1) {
      NoGrad guard;
      const Tensor m = matrix(loc);
      const TensorOptions like{.dtype = weight.dtype() == DType::f64 ? DType::f64 : DType::f32,
                               .device = weight.device()};
      vectors_.u = normalized(randn({m.size(0)}, like, loc).to(weight.dtype(), loc), loc);
      vectors_.v = normalized(randn({m.size(1)}, like, loc).to(weight.dtype(), loc), loc);
      iterate(15, loc);
    }
    register_parameter("original", original_);
    register_module("0", vectors_);
  }

  Tensor value(Loc loc) override {
    if (!vectors_.u.defined()) return over(original_, limited(length(original_, {}, loc), loc), loc);
    if (is_training()) {
      NoGrad guard;
      iterate(options_.n_power_iterations, loc);
    }
    // Copies: the buffers may be written again before the backward of this value.
    const Tensor u = vectors_.u.clone(loc), v = vectors_.v.clone(loc);
    return over(original_, sum(times(u, matmul(matrix(loc), v, loc), loc), {}, false, loc), loc);
  }

 private:
  Tensor limited(const Tensor& norm, Loc loc) const { return clamp(norm, options_.eps, std::nullopt, loc); }
  Tensor normalized(const Tensor& x, Loc loc) const { return over(x, limited(length(x, {}, loc), loc), loc); }
  Tensor matrix(Loc loc) const {
    Sizes order{dim_};
    for (int64_t i = 0; i < original_.dim(); ++i)
      if (i != dim_) order.push_back(i);
    return flatten(permute(original_, order, loc), 1, -1, loc);
  }
  void iterate(int64_t count, Loc loc) {
    const Tensor m = matrix(loc).detach(loc);
    Tensor u = vectors_.u, v = vectors_.v;
    for (int64_t i = 0; i < count; ++i) {
      u = normalized(matmul(m, v, loc), loc);
      v = normalized(matmul(u, m, loc), loc);
    }
    vectors_.u.copy_(u, loc);
    vectors_.v.copy_(v, loc);
  }
  Tensor original_;
  PowerVectors vectors_;
  int64_t dim_;
  SpectralNormOptions options_;
};

}  // namespace

/// The module "parametrizations" of a module: its parametrizations by name, and the members they stand for.
struct Parametrization::All : Module {
  struct Entry {
    std::string name;
    Tensor* member;
    std::shared_ptr<Parametrization> parametrization;
  };
  std::vector<Entry> entries;
  HookHandle before, after;

  void add(Entry entry) {
    register_module(entry.name, *entry.parametrization);
    entries.push_back(std::move(entry));
  }
};

Parametrization::All* Parametrization::all_of(Module& module) {
  for (const auto& [name, m] : module.modules_)
    if (name == kPlace) return dynamic_cast<All*>(m);
  return nullptr;
}

Tensor Parametrization::original(Module& module, const std::string& name, Loc loc) {
  const NamedTensors own = module.named_parameters(false);
  const auto it = std::find_if(own.begin(), own.end(), [&](const auto& p) { return p.first == name; });
  std::string there;
  for (const auto& [n, t] : own) there += (there.empty() ? "" : ", ") + n;
  KILN_CHECK(it != own.end(), invalid,
             "parametrization of '{}' ({}): the module has no such parameter; it has {}", name, loc.str(),
             there.empty() ? "none" : there);
  KILN_CHECK(!detail::tracing(), invalid,
             "parametrization of '{}' ({}): this is inside a compiled callable (do it before)", name,
             loc.str());
  return it->second;
}

void Parametrization::install(Module& module, const std::string& name, std::shared_ptr<Parametrization> p,
                              Loc loc) {
  original(module, name, loc);
  auto& own = module.parameters_;
  const auto it = std::find_if(own.begin(), own.end(), [&](const auto& e) { return e.first == name; });
  Tensor* member = it->second;
  own.erase(it);
  All* all = all_of(module);
  if (!all) {
    const auto made = std::make_shared<All>();
    module.owned_.push_back(made);
    module.register_module(kPlace, *made);
    all = made.get();
    all->before = module.register_forward_pre_hook([all](Module&, std::vector<Tensor>&) {
      for (All::Entry& e : all->entries) *e.member = e.parametrization->value(detail::caller_loc());
    });
    all->after = module.register_forward_hook([all](Module&, const std::vector<Tensor>&, Tensor&) {
      for (All::Entry& e : all->entries) *e.member = {};
    });
  }
  p->training_ = module.training_;
  all->add({name, member, std::move(p)});
  *member = {};
}

Parametrization& Parametrization::of(Module& module, const std::string& name, Loc loc) {
  if (All* all = all_of(module))
    for (All::Entry& e : all->entries)
      if (e.name == name) return *e.parametrization;
  throw Error(ErrorKind::invalid,
              fmt::format("parametrization of '{}' ({}): the module has none of it", name, loc.str()));
}

bool Parametrization::exists(Module& module, const std::string& name) {
  All* all = all_of(module);
  return all && std::any_of(all->entries.begin(), all->entries.end(),
                            [&](const All::Entry& e) { return e.name == name; });
}

void Parametrization::remove(Module& module, const std::string& name, Loc loc) {
  Tensor now;
  {
    NoGrad guard;
    now = of(module, name, loc).value(loc).detach(loc).clone(loc);
  }
  All& all = *all_of(module);
  const auto it = std::find_if(all.entries.begin(), all.entries.end(),
                               [&](const All::Entry& e) { return e.name == name; });
  Tensor* member = it->member;
  *member = now;
  std::erase_if(all.modules_, [&](const auto& m) { return m.first == name; });
  all.entries.erase(it);
  module.register_parameter(name, *member);
  if (!all.entries.empty()) return;
  all.before.remove();
  all.after.remove();
  std::erase_if(module.modules_, [](const auto& m) { return m.first == kPlace; });
  std::erase_if(module.owned_, [&](const auto& m) { return m.get() == &all; });
}

Module& weight_norm(Module& module, const std::string& name, std::optional<int64_t> dim, Loc loc) {
  const Tensor weight = Parametrization::original(module, name, loc);
  Parametrization::install(module, name, std::make_shared<WeightNorm>(weight, dim, loc), loc);
  return module;
}

Module& spectral_norm(Module& module, const std::string& name, const SpectralNormOptions& o, Loc loc) {
  const Tensor weight = Parametrization::original(module, name, loc);
  const int64_t dim = o.dim.value_or(dynamic_cast<ConvTransposeNd*>(&module) ? 1 : 0);
  Parametrization::install(module, name, std::make_shared<SpectralNorm>(weight, dim, o, loc), loc);
  return module;
}

bool is_parametrized(Module& module, const std::string& name) {
  return Parametrization::exists(module, name);
}

Tensor parametrized_value(Module& module, const std::string& name, Loc loc) {
  return Parametrization::of(module, name, loc).value(loc);
}

Module& remove_parametrizations(Module& module, const std::string& name, Loc loc) {
  Parametrization::remove(module, name, loc);
  return module;
}

}  // namespace kiln::nn
