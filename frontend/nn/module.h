// SPDX-License-Identifier: Apache-2.0
// Module: a tree of parameters, buffers and submodules with PyTorch's names, modes and hooks. Modules are
// members of their parents and register themselves by reference, so they are neither copied nor moved.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/nn/incompatible_keys.h"
#include "frontend/tensor.h"

namespace kiln::nn {

using kiln::NamedTensors;

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Override the one with the module's operand count. Throws: unsupported, when called with another.
  virtual Tensor forward(const Tensor& x);
  virtual Tensor forward(const Tensor& a, const Tensor& b);
  virtual Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c);

  /// Runs pre-hooks, forward and hooks; ops inside report this line and the module's path.
  Tensor operator()(const Tensor& x, Loc loc = Loc::current());
  Tensor operator()(const Tensor& a, const Tensor& b, Loc loc = Loc::current());
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& c, Loc loc = Loc::current());

  /// Own and inherited names, dotted: "blocks.0.ln1.weight". A tensor that appears twice is listed once.
  NamedTensors named_parameters(bool recurse = true) const;
  std::vector<Tensor> parameters(bool recurse = true) const;
  NamedTensors named_buffers(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  /// This module as "", then all below, in registration order.
  std::vector<std::pair<std::string, Module*>> named_modules();
  std::vector<Module*> modules();
  /// Those registered in this module itself.
  std::vector<std::pair<std::string, Module*>> named_children() const { return modules_; }
  std::vector<Module*> children() const;
  /// By dotted name; "" is this module. Throws: invalid, naming what there is where the name goes wrong.
  Module& get_submodule(const std::string& name, Loc loc = Loc::current());
  Tensor get_parameter(const std::string& name, Loc loc = Loc::current());
  Tensor get_buffer(const std::string& name, Loc loc = Loc::current());

  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  /// Casts floating parameters and buffers in place; handles held elsewhere see it.
  void to(DType dtype);
  /// Moves parameters, their gradients and buffers, in place: handles held elsewhere, optimizers among them,
  /// see it. Optimizers with state are to be made afterwards. Throws: device, when there is no such GPU;
  /// unsupported, inside a compiled callable.
  void to(Device device, Loc loc = Loc::current());
  void cuda(int index = 0, Loc loc = Loc::current()) { to(Device::cuda(index, loc), loc); }
  void cpu(Loc loc = Loc::current()) { to(Device::cpu(), loc); }
  void zero_grad();
  void requires_grad_(bool on = true);
  /// Calls `fn` on this module and all below, children first.
  void apply(const std::function<void(Module&)>& fn);

  /// Parameters and buffers by dotted name, tied ones under every name. Shares memory with the module.
  NamedTensors state_dict() const;
  /// Copies values in. Throws: invalid, before anything is copied, listing missing and unexpected names and
  /// misfits in shape or dtype, and saying so when only a prefix of all names is wrong, such as the "module."
  /// of DistributedDataParallel. Without `strict` these are returned, and keep their values; only a name
  /// given twice is an error.
  IncompatibleKeys load_state_dict(const NamedTensors& state, bool strict = true, Loc loc = Loc::current());

  /// Makes this module what `other`, built by the same constructor, is: values of parameters and of all
  /// buffers, which parameters are frozen, and the modes of all modules. Memory is not shared, and hooks stay
  /// where they are; see deep_copy. Throws: invalid, where names, shapes or dtypes differ.
  void copy_state_from(const Module& other, Loc loc = Loc::current());
  /// Moves each parameter and buffer to the device that the one of its name in `other` is on.
  void move_like(const Module& other, Loc loc = Loc::current());

  using PreHook = std::function<void(Module&, std::vector<Tensor>& inputs)>;
  using Hook = std::function<void(Module&, const std::vector<Tensor>& inputs, Tensor& output)>;
  /// Called before forward; may replace inputs.
  HookHandle register_forward_pre_hook(PreHook hook);
  /// Called after forward; may replace the output.
  HookHandle register_forward_hook(Hook hook);

  /// Last element of the module's name, e.g. "fc1"; "" for a root.
  const std::string& name() const { return name_; }

 protected:
  /// Registers a member tensor as a parameter. An undefined tensor stands for "none" (no bias).
  void register_parameter(std::string name, Tensor& tensor);
  void register_buffer(std::string name, Tensor& tensor, bool persistent = true);
  void register_module(std::string name, Module& module);
  /// Gives a parameter or buffer, registered undefined, its tensor. Throws: invalid, inside a compiled
  /// callable.
  void define_parameter(const std::string& name, const Tensor& tensor, Loc loc);
  void define_buffer(const std::string& name, const Tensor& tensor, Loc loc);
  /// Called by load_state_dict with what it has for this module, by the last element of the names: a module
  /// whose parameters are not defined yet can define them.
  virtual void prepare_to_load(const std::map<std::string, Tensor>&, Loc) {}

  using Run = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  /// For modules that take and give more than forward() does: like operator(), where forward hooks get the
  /// first of the results as the output.
  std::vector<Tensor> call_many(std::vector<Tensor> inputs, Loc loc, const Run& run);

 private:
  friend class Parametrization;  // stands in for a parameter
  friend std::ostream& operator<<(std::ostream& out, const Module& m);
  std::string text(size_t indent) const;
  /// Throws: invalid, for a name that is taken or cannot be part of a dotted one.
  void check_name(const char* what, const std::string& name) const;
  template <typename T>
  using Entries = std::vector<std::pair<std::string, T>>;
  struct BufferEntry {
    Tensor* tensor;
    bool persistent;
  };
  template <typename F>
  auto call(std::vector<Tensor> inputs, Loc loc, F&& run);
  /// Calls f(path, module) for this and all below; without kNamed every path is `prefix`.
  template <bool kNamed = true, typename F>
  void visit(const std::string& prefix, F&& f) const;
  /// Calls f(path of its module, name, tensor) for each parameter, each once.
  template <bool kNamed, typename F>
  void for_each_parameter(bool recurse, F&& f) const;

  std::string name_, path_;  ///< last element, and dotted from the root
  bool training_ = true;
  Entries<Tensor*> parameters_;
  Entries<BufferEntry> buffers_;
  Entries<Module*> modules_;
  using PreHooks = std::map<uint64_t, PreHook>;
  using Hooks = std::map<uint64_t, Hook>;
  std::shared_ptr<PreHooks> pre_hooks_ = std::make_shared<PreHooks>();
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  std::vector<std::shared_ptr<Module>> owned_;  ///< those below that are no members of their parent
};

/// The tree, each module with its class and its own parameters and buffers:
/// "Net(\n  (fc0): Linear(weight f32[16,6], bias f32[16])\n  (act): relu()\n)". Neighbours that print alike
/// are one line, "(0-3): 4 x Block(...)". Source: torch.nn.Module.__repr__.
std::ostream& operator<<(std::ostream& out, const Module& m);

/// Another module like `module`, built from `args` (the arguments that module was built from), on the same
/// devices, sharing nothing with it. Source: copy.deepcopy of a torch.nn.Module.
template <typename M, typename... Args>
std::unique_ptr<M> deep_copy(const M& module, Args&&... args) {
  auto copy = std::make_unique<M>(std::forward<Args>(args)...);
  copy->move_like(module);
  copy->copy_state_from(module);
  return copy;
}

}  // namespace kiln::nn
