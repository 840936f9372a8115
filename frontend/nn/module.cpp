// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/module.h"

#include <atomic>
#include <set>

#include "frontend/dispatch.h"
#include "frontend/ops.h"
#include "frontend/state.h"

namespace kiln::nn {

namespace {
std::atomic<uint64_t> next_hook{1};

template <typename Map, typename F>
HookHandle add_hook(const std::shared_ptr<Map>& map, F hook) {
  const uint64_t id = next_hook++;
  (*map)[id] = std::move(hook);
  return HookHandle([weak = std::weak_ptr(map), id] {
    if (const auto m = weak.lock()) m->erase(id);
  });
}

[[noreturn]] void no_forward(size_t operands) {
  throw Error(
      ErrorKind::unsupported,
      fmt::format("forward ({}): this module overrides none with {} operand(s) (each is a const Tensor&: "
                  "`Tensor forward(const Tensor& x) override`)",
                  detail::state().user_loc().str(), operands));
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

/// What has to stand before each of `names` for all of them to be among `longer`: "module." of "fc.weight"
/// and "module.fc.weight". Empty: there is no such thing.
std::string prefix_of(const NamedTensors& names, const NamedTensors& longer) {
  if (names.empty()) return "";
  std::set<std::string> all;
  for (const auto& [name, t] : longer) all.insert(name);
  for (const auto& [name, t] : longer) {
    if (!name.ends_with("." + names[0].first)) continue;
    const std::string prefix = name.substr(0, name.size() - names[0].first.size());
    if (std::all_of(names.begin(), names.end(), [&](const auto& n) { return all.count(prefix + n.first); }))
      return prefix;
  }
  return "";
}

/// Where a prefix is all that keeps the names of a state from being the module's.
std::string advice_on_prefix(const NamedTensors& own, const std::map<std::string, Tensor>& given) {
  if (std::any_of(own.begin(), own.end(), [&](const auto& o) { return given.count(o.first); })) return "";
  const NamedTensors state(given.begin(), given.end());
  if (const std::string p = prefix_of(own, state); !p.empty())
    return fmt::format(": before the module's names it has '{}'{}; strip that first (name.substr({}))", p,
                       p == "module." ? ", as the state_dict() of DistributedDataParallel does" : "",
                       p.size());
  if (const std::string p = prefix_of(state, own); !p.empty())
    return fmt::format(": the module's names have '{}' before its own{}; add that first ('{}' + name)", p,
                       p == "module." ? ", being those of DistributedDataParallel" : "", p);
  return "";
}
}  // namespace

Tensor Module::forward(const Tensor&) { no_forward(1); }
Tensor Module::forward(const Tensor&, const Tensor&) { no_forward(2); }
Tensor Module::forward(const Tensor&, const Tensor&, const Tensor&) { no_forward(3); }

template <typename F>
Tensor Module::call(std::vector<Tensor> inputs, Loc loc, F&& run) {
  detail::Scope scope(path_.c_str(), loc, true);
  if (!pre_hooks_->empty())
    for (auto& [id, hook] : PreHooks(*pre_hooks_)) hook(*this, inputs);
  Tensor output;
  try {
    output = run(inputs);
  } catch (const Error& e) {
    if (path_.empty()) throw;
    throw e.in(path_);
  }
  if (!hooks_->empty())
    for (auto& [id, hook] : Hooks(*hooks_)) hook(*this, inputs, output);
  return output;
}

Tensor Module::operator()(const Tensor& x, Loc loc) {
  return call({x}, loc, [&](const auto& in) { return forward(in.at(0)); });
}
Tensor Module::operator()(const Tensor& a, const Tensor& b, Loc loc) {
  return call({a, b}, loc, [&](const auto& in) { return forward(in.at(0), in.at(1)); });
}
Tensor Module::operator()(const Tensor& a, const Tensor& b, const Tensor& c, Loc loc) {
  return call({a, b, c}, loc, [&](const auto& in) { return forward(in.at(0), in.at(1), in.at(2)); });
}

template <typename F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const auto& [name, m] : modules_) m->visit(join(prefix, name), f);
}

NamedTensors Module::named_parameters(bool recurse) const {
  NamedTensors out;
  std::set<const void*> seen;
  visit("", [&](const std::string& prefix, const Module& m) {
    if (!recurse && &m != this) return;
    for (const auto& [name, t] : m.parameters_)
      if (t->defined() && seen.insert(t->impl().get()).second) out.emplace_back(join(prefix, name), *t);
  });
  return out;
}

std::vector<Tensor> Module::parameters(bool recurse) const {
  std::vector<Tensor> out;
  for (auto& [name, t] : named_parameters(recurse)) out.push_back(t);
  return out;
}

NamedTensors Module::named_buffers(bool recurse) const {
  NamedTensors out;
  std::set<const void*> seen;
  visit("", [&](const std::string& prefix, const Module& m) {
    if (!recurse && &m != this) return;
    for (const auto& [name, b] : m.buffers_)
      if (b.tensor->defined() && seen.insert(b.tensor->impl().get()).second)
        out.emplace_back(join(prefix, name), *b.tensor);
  });
  return out;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> out;
  visit("", [&](const std::string& prefix, const Module& m) {
    out.emplace_back(prefix, const_cast<Module*>(&m));
  });
  return out;
}

void Module::train(bool on) {
  for (auto& [name, m] : named_modules()) m->training_ = on;
}

void Module::to(DType dtype) {
  KILN_CHECK(is_floating(dtype), invalid, "Module::to: expected a floating dtype, got {}", dtype_name(dtype));
  NoGrad guard;
  auto convert = [&](const Tensor& t) {
    if (!is_floating(t.dtype()) || t.dtype() == dtype) return;
    const Tensor cast = t.to(dtype).contiguous();
    detail::TensorImpl& impl = *t.impl();
    impl.dtype = dtype;
    impl.storage = cast.impl()->storage;
    impl.strides = cast.strides();
    impl.offset = cast.impl()->offset;
    impl.grad.reset();
  };
  for (auto& [name, t] : named_parameters()) convert(t);
  for (auto& [name, t] : named_buffers()) convert(t);
}

void Module::zero_grad() {
  for (Tensor& p : parameters()) p.set_grad({});
}

void Module::requires_grad_(bool on) {
  for (Tensor& p : parameters()) p.requires_grad_(on);
}

void Module::apply(const std::function<void(Module&)>& fn) {
  for (auto& [name, m] : modules_) m->apply(fn);
  fn(*this);
}

NamedTensors Module::state_dict() const {
  NamedTensors out;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, t] : m.parameters_)
      if (t->defined()) out.emplace_back(join(prefix, name), *t);
    for (const auto& [name, b] : m.buffers_)
      if (b.persistent && b.tensor->defined()) out.emplace_back(join(prefix, name), *b.tensor);
  });
  return out;
}

void Module::load_state_dict(const NamedTensors& state, bool strict, Loc loc) {
  std::map<std::string, Tensor> given;
  std::string faults;
  for (const auto& [name, t] : state)
    if (!given.emplace(name, t).second) faults += fmt::format("\n  given twice: {}", name);
  NamedTensors own = state_dict();
  for (const auto& [name, t] : own) {
    const auto it = given.find(name);
    if (it == given.end()) {
      if (strict) faults += fmt::format("\n  missing: {} {}", name, t.type_str());
    } else if (!it->second.defined() || it->second.sizes() != t.sizes() || it->second.dtype() != t.dtype()) {
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second.type_str(), t.type_str());
    }
  }
  for (const auto& [name, t] : given) {
    const bool known = std::any_of(own.begin(), own.end(), [&](const auto& p) { return p.first == name; });
    if (strict && !known) faults += fmt::format("\n  unexpected: {} {}", name, t.type_str());
  }
  KILN_CHECK(faults.empty(), invalid, "load_state_dict ({}): the state does not fit the module{}{}",
             loc.str(), faults.empty() ? "" : advice_on_prefix(own, given), faults);
  NoGrad guard;
  for (auto& [name, t] : own)
    if (const auto it = given.find(name); it != given.end()) t.copy_(it->second);
}

HookHandle Module::register_forward_pre_hook(PreHook hook) { return add_hook(pre_hooks_, std::move(hook)); }
HookHandle Module::register_forward_hook(Hook hook) { return add_hook(hooks_, std::move(hook)); }

void Module::check_name(const char* what, const std::string& name) const {
  KILN_CHECK(!name.empty() && name.find('.') == std::string::npos, invalid, "{}: bad name '{}'", what, name);
  const auto same = [&](const auto& p) { return p.first == name; };
  const bool taken = std::any_of(parameters_.begin(), parameters_.end(), same) ||
                     std::any_of(buffers_.begin(), buffers_.end(), same) ||
                     std::any_of(modules_.begin(), modules_.end(), same);
  KILN_CHECK(!taken, invalid, "{}: this module already has a member '{}'", what, name);
}

void Module::register_parameter(std::string name, Tensor& tensor) {
  check_name("register_parameter", name);
  if (tensor.defined()) {
    KILN_CHECK(is_floating(tensor.dtype()) && tensor.is_leaf(), invalid,
               "register_parameter: '{}' is {}, expected a leaf tensor of a floating dtype", name,
               tensor.type_str());
    tensor.requires_grad_(true);
    tensor.set_name(join(path_, name));
  }
  parameters_.emplace_back(std::move(name), &tensor);
}

void Module::register_buffer(std::string name, Tensor& tensor, bool persistent) {
  check_name("register_buffer", name);
  if (tensor.defined()) tensor.set_name(join(path_, name));
  buffers_.emplace_back(std::move(name), BufferEntry{&tensor, persistent});
}

void Module::register_module(std::string name, Module& module) {
  check_name("register_module", name);
  module.visit("", [&](const std::string& path, const Module& m) {
    KILN_CHECK(&m != this, invalid, "register_module: '{}' contains the module it is registered in{}", name,
               path.empty() ? std::string() : fmt::format(" (as '{}')", path));
  });
  module.name_ = name;
  module.visit(join(path_, name), [&](const std::string& prefix, const Module& m) {
    const_cast<Module&>(m).path_ = prefix;
    for (const auto& [n, t] : m.parameters_)
      if (t->defined()) t->set_name(prefix + "." + n);
  });
  modules_.emplace_back(std::move(name), &module);
}

}  // namespace kiln::nn
