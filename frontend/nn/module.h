// SPDX-License-Identifier: Apache-2.0
// Module: a tree of parameters, buffers and submodules with PyTorch's names, modes and hooks. Modules are
// members of their parents and register themselves by reference, so they are neither copied nor moved.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

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
  /// This module as "", then all below, in registration order.
  std::vector<std::pair<std::string, Module*>> named_modules();

  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  /// Casts floating parameters and buffers in place; handles held elsewhere see it.
  void to(DType dtype);
  void zero_grad();
  void requires_grad_(bool on = true);
  /// Calls `fn` on this module and all below, children first.
  void apply(const std::function<void(Module&)>& fn);

  /// Parameters and buffers by dotted name, tied ones under every name. Shares memory with the module.
  NamedTensors state_dict() const;
  /// Copies values in. Throws: invalid, listing missing and unexpected names and misfits in shape or dtype,
  /// and saying so when only a prefix of all names is wrong, such as the "module." of
  /// DistributedDataParallel.
  void load_state_dict(const NamedTensors& state, bool strict = true, Loc loc = Loc::current());

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

 private:
  /// Throws: invalid, for a name that is taken or cannot be part of a dotted one.
  void check_name(const char* what, const std::string& name) const;
  template <typename T>
  using Entries = std::vector<std::pair<std::string, T>>;
  struct BufferEntry {
    Tensor* tensor;
    bool persistent;
  };
  template <typename F>
  Tensor call(std::vector<Tensor> inputs, Loc loc, F&& run);
  template <typename F>
  void visit(const std::string& prefix, F&& f) const;

  std::string name_, path_;  ///< last element, and dotted from the root
  bool training_ = true;
  Entries<Tensor*> parameters_;
  Entries<BufferEntry> buffers_;
  Entries<Module*> modules_;
  using PreHooks = std::map<uint64_t, PreHook>;
  using Hooks = std::map<uint64_t, Hook>;
  std::shared_ptr<PreHooks> pre_hooks_ = std::make_shared<PreHooks>();
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
};

}  // namespace kiln::nn
