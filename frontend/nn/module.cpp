// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/module.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "frontend/device.h"
#include "frontend/dispatch.h"
#include "frontend/ops.h"
#include "frontend/state.h"

namespace kiln::nn {

namespace {
std::atomic<uint64_t> next_hook{1};

template <typename Map, typename F>
HookHandle add_hook(const std::shared_ptr<Map>& map, F hook, const char* what) {
  KILN_CHECK(hook, invalid, "{}: the hook is an empty function", what);
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

Tensor& first_of(Tensor& output) { return output; }
Tensor& first_of(std::vector<Tensor>& outputs) { return outputs.at(0); }

/// What a list of names and things has, without the names.
template <typename T>
std::vector<T> without_names(const std::vector<std::pair<std::string, T>>& all) {
  std::vector<T> out;
  for (const auto& [name, x] : all) out.push_back(x);
  return out;
}

/// Parameters and buffers.
NamedTensors all_tensors(const Module& m) {
  NamedTensors all = m.named_parameters();
  const NamedTensors buffers = m.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

void move(detail::TensorImpl& t, Device device, Loc loc) {
  if (t.device == device) return;
  detail::materialise(t, "Module::to", loc);
  const detail::ImplPtr moved = detail::transferred(t, device);
  t.storage = moved->storage;
  t.device = device;
  t.strides = moved->strides;
  t.offset = 0;
}

std::string names_in(const NamedTensors& tensors) {
  std::string out;
  for (const auto& [name, t] : tensors) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "none" : out;
}

/// The last element of a dotted name, and what stands before it.
std::pair<std::string, std::string> parted(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

/// The tensors of `to` take the values of those of `from`, which have the same names.
void copy_values(const NamedTensors& from, NamedTensors to, const char* what, Loc loc) {
  std::map<std::string, Tensor> given(from.begin(), from.end());
  std::string faults;
  for (const auto& [name, t] : to) {
    const auto it = given.find(name);
    if (it == given.end()) faults += fmt::format("\n  missing: {} {}", name, t.type_str());
    else if (it->second.sizes() != t.sizes() || it->second.dtype() != t.dtype())
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second.type_str(), t.type_str());
  }
  KILN_CHECK(faults.empty() && from.size() == to.size(), invalid,
             "copy_state_from ({}): the {} differ, {} and {} of them{}", loc.str(), what, from.size(),
             to.size(), faults);
  NoGrad guard;
  for (auto& [name, t] : to) {
    t.copy_(given[name]);
    if (t.is_leaf() && is_floating(t.dtype())) t.requires_grad_(given[name].requires_grad());
  }
}
}  // namespace

Tensor Module::forward(const Tensor&) { no_forward(1); }
Tensor Module::forward(const Tensor&, const Tensor&) { no_forward(2); }
Tensor Module::forward(const Tensor&, const Tensor&, const Tensor&) { no_forward(3); }

template <typename F>
auto Module::call(std::vector<Tensor> inputs, Loc loc, F&& run) {
  detail::Scope scope(path_.c_str(), loc, true);
  if (!pre_hooks_->empty()) {
    const size_t count = inputs.size();
    for (auto& [id, hook] : PreHooks(*pre_hooks_)) hook(*this, inputs);
    KILN_CHECK(inputs.size() == count, invalid, "forward ({}): a pre-hook left {} inputs of {}", loc.str(),
               inputs.size(), count);
  }
  decltype(run(inputs)) output;
  try {
    output = run(inputs);
  } catch (const Error& e) {
    if (path_.empty()) throw;
    throw e.in(path_);
  }
  if (!hooks_->empty())
    for (auto& [id, hook] : Hooks(*hooks_)) {
      hook(*this, inputs, first_of(output));
      KILN_CHECK(first_of(output).defined(), invalid, "forward ({}): a hook left the output undefined",
                 loc.str());
    }
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

std::vector<Tensor> Module::call_many(std::vector<Tensor> inputs, Loc loc, const Run& run) {
  return call(std::move(inputs), loc, run);
}

template <bool kNamed, typename F>
void Module::visit(const std::string& prefix, F&& f) const {
  f(prefix, *this);
  for (const auto& [name, m] : modules_) m->template visit<kNamed>(kNamed ? join(prefix, name) : prefix, f);
}

template <bool kNamed, typename F>
void Module::for_each_parameter(bool recurse, F&& f) const {
  std::set<const void*> seen;
  visit<kNamed>("", [&](const std::string& prefix, const Module& m) {
    if (!recurse && &m != this) return;
    for (const auto& [name, t] : m.parameters_)
      if (t->defined() && seen.insert(t->impl().get()).second) f(prefix, name, *t);
  });
}

NamedTensors Module::named_parameters(bool recurse) const {
  NamedTensors out;
  for_each_parameter<true>(recurse, [&](const std::string& prefix, const std::string& name, const Tensor& t) {
    out.emplace_back(join(prefix, name), t);
  });
  return out;
}

std::vector<Tensor> Module::parameters(bool recurse) const {
  std::vector<Tensor> out;
  for_each_parameter<false>(recurse, [&](auto&, auto&, const Tensor& t) { out.push_back(t); });
  return out;
}
std::vector<Tensor> Module::buffers(bool recurse) const { return without_names(named_buffers(recurse)); }

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

std::vector<Module*> Module::modules() { return without_names(named_modules()); }
std::vector<Module*> Module::children() const { return without_names(modules_); }

Module& Module::get_submodule(const std::string& name, Loc loc) {
  Module* at = this;
  for (size_t from = 0; !name.empty() && from <= name.size();) {
    const size_t dot = std::min(name.find('.', from), name.size());
    const std::string element = name.substr(from, dot - from);
    const auto it = std::find_if(at->modules_.begin(), at->modules_.end(),
                                 [&](const auto& m) { return m.first == element; });
    std::string there;
    for (const auto& [n, m] : at->modules_) there += (there.empty() ? "" : ", ") + n;
    KILN_CHECK(it != at->modules_.end(), invalid, "get_submodule ({}): no module '{}'; {} has {}", loc.str(),
               name, from == 0 ? "this module" : "'" + name.substr(0, from - 1) + "'",
               there.empty() ? "none" : there);
    at = it->second;
    from = dot + 1;
  }
  return *at;
}

Tensor Module::get_parameter(const std::string& name, Loc loc) {
  const auto [module, last] = parted(name);
  const NamedTensors own = get_submodule(module, loc).named_parameters(false);
  for (const auto& [n, t] : own)
    if (n == last) return t;
  throw Error(ErrorKind::invalid,
              fmt::format("get_parameter ({}): no parameter '{}'; {} has {}", loc.str(), name,
                          module.empty() ? "this module" : "'" + module + "'", names_in(own)));
}

Tensor Module::get_buffer(const std::string& name, Loc loc) {
  const auto [module, last] = parted(name);
  const NamedTensors own = get_submodule(module, loc).named_buffers(false);
  for (const auto& [n, t] : own)
    if (n == last) return t;
  throw Error(ErrorKind::invalid,
              fmt::format("get_buffer ({}): no buffer '{}'; {} has {}", loc.str(), name,
                          module.empty() ? "this module" : "'" + module + "'", names_in(own)));
}

void Module::copy_state_from(const Module& other, Loc loc) {
  copy_values(other.named_parameters(), named_parameters(), "parameters", loc);
  copy_values(other.named_buffers(), named_buffers(), "buffers", loc);
  std::map<std::string, bool> modes;
  other.visit("", [&](const std::string& path, const Module& m) { modes[path] = m.training_; });
  for (auto& [path, m] : named_modules()) {
    KILN_CHECK(modes.count(path), invalid, "copy_state_from ({}): the other module has no '{}'", loc.str(),
               path);
    m->training_ = modes[path];
  }
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

void Module::to(Device device, Loc loc) {
  KILN_CHECK(!detail::tracing(), unsupported,
             "Module::to ({}): a module cannot move inside a compiled callable (move it before)", loc.str());
  detail::require_device(device, "Module::to", loc);
  for (auto& [name, t] : all_tensors(*this)) {
    move(*t.impl(), device, loc);
    if (t.impl()->grad) move(*t.impl()->grad, device, loc);
  }
}

void Module::move_like(const Module& other, Loc loc) {
  std::map<std::string, Device> devices;
  for (const auto& [name, t] : all_tensors(other)) devices[name] = t.device();
  for (auto& [name, t] : all_tensors(*this))
    if (const auto at = devices.find(name); at != devices.end()) move(*t.impl(), at->second, loc);
}

void Module::zero_grad() {
  visit<false>("", [](auto&, const Module& m) {
    for (const auto& [name, t] : m.parameters_)
      if (t->defined()) t->set_grad({});
  });
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

IncompatibleKeys Module::load_state_dict(const NamedTensors& state, bool strict, Loc loc) {
  std::map<std::string, Tensor> given;
  std::string twice, faults;
  for (const auto& [name, t] : state)
    if (!given.emplace(name, t).second) twice += fmt::format("\n  given twice: {}", name);
  std::map<std::string, std::map<std::string, Tensor>> by_module;
  for (const auto& [name, t] : given) {
    const auto [module, last] = parted(name);
    by_module[module][last] = t;
  }
  for (auto& [path, m] : named_modules())
    if (const auto it = by_module.find(path); it != by_module.end()) m->prepare_to_load(it->second, loc);
  NamedTensors own = state_dict(), fitting;
  std::set<std::string> known;
  IncompatibleKeys keys;
  for (const auto& [name, t] : own) {
    known.insert(name);
    const auto it = given.find(name);
    if (it == given.end()) {
      keys.missing_keys.push_back(name);
      faults += fmt::format("\n  missing: {} {}", name, t.type_str());
    } else if (!it->second.defined() || it->second.sizes() != t.sizes() || it->second.dtype() != t.dtype()) {
      keys.mismatched_keys.push_back(name);
      faults += fmt::format("\n  {}: got {}, expected {}", name, it->second.type_str(), t.type_str());
    } else {
      fitting.emplace_back(name, t);
    }
  }
  for (const auto& [name, t] : given) {
    if (known.contains(name)) continue;
    keys.unexpected_keys.push_back(name);
    faults += fmt::format("\n  unexpected: {} {}", name, t.type_str());
  }
  if (!strict) faults.clear();
  KILN_CHECK(twice.empty() && faults.empty(), invalid,
             "load_state_dict ({}): the state does not fit the module{}{}{}", loc.str(),
             faults.empty() ? "" : advice_on_prefix(own, given), twice, faults);
  NoGrad guard;
  for (auto& [name, t] : fitting) t.copy_(given[name]);
  return keys;
}

HookHandle Module::register_forward_pre_hook(PreHook hook) {
  return add_hook(pre_hooks_, std::move(hook), "register_forward_pre_hook");
}
HookHandle Module::register_forward_hook(Hook hook) {
  return add_hook(hooks_, std::move(hook), "register_forward_hook");
}

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

namespace {
void refuse_to_define(const std::string& name, Loc loc) {
  KILN_CHECK(!detail::tracing(), invalid,
             "{} ({}): this is made at the first call, which must be outside a compiled callable (call the "
             "module once before, or load its state)",
             name, loc.str());
}
}  // namespace

void Module::define_parameter(const std::string& name, const Tensor& tensor, Loc loc) {
  refuse_to_define(join(path_, name), loc);
  const auto it =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const auto& p) { return p.first == name; });
  KILN_ASSERT(it != parameters_.end() && !it->second->defined(), "a parameter to define");
  *it->second = tensor;
  it->second->requires_grad_(true);
  it->second->set_name(join(path_, name));
}

void Module::define_buffer(const std::string& name, const Tensor& tensor, Loc loc) {
  refuse_to_define(join(path_, name), loc);
  const auto it =
      std::find_if(buffers_.begin(), buffers_.end(), [&](const auto& b) { return b.first == name; });
  KILN_ASSERT(it != buffers_.end() && !it->second.tensor->defined(), "a buffer to define");
  *it->second.tensor = tensor;
  it->second.tensor->set_name(join(path_, name));
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
