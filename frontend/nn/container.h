// SPDX-License-Identifier: Apache-2.0
// Modules and parameters by name or number, and the modules that only reshape. Sequential and ModuleList are
// in layers.h.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/nn/module.h"

namespace kiln::nn {

/// Submodules by name, in the order in which they came. It owns them. Source: torch.nn.ModuleDict.
class ModuleDict : public Module {
 public:
  /// Constructs a module in place and returns it. Throws: invalid, when the name is taken.
  template <typename M, typename... Args>
  M& emplace(const std::string& name, Args&&... args) {
    auto m = std::make_unique<M>(std::forward<Args>(args)...);
    M& ref = *m;
    register_module(name, ref);
    items_.emplace_back(name, std::move(m));
    return ref;
  }
  size_t size() const { return items_.size(); }
  bool contains(const std::string& name) const;
  std::vector<std::string> keys() const;
  /// Throws: invalid, when there is no such module, or it is not an M.
  Module& operator[](const std::string& name);
  template <typename M>
  M& at(const std::string& name) {
    M* m = dynamic_cast<M*>(&(*this)[name]);
    KILN_CHECK(m, invalid, "ModuleDict: module '{}' is of another type than asked for", name);
    return *m;
  }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> items_;
};

/// Parameters by number: "0", "1", ... Source: torch.nn.ParameterList.
class ParameterList : public Module {
 public:
  ParameterList() = default;
  explicit ParameterList(const std::vector<Tensor>& parameters);
  /// Throws: invalid, unless it is a leaf of a floating dtype.
  Tensor& append(Tensor parameter);
  size_t size() const { return items_.size(); }
  /// Throws: invalid, when there is no parameter `i`.
  Tensor& operator[](size_t i);

 private:
  std::deque<Tensor> items_;
};

/// Parameters by name, in the order in which they came. Source: torch.nn.ParameterDict.
class ParameterDict : public Module {
 public:
  ParameterDict() = default;
  explicit ParameterDict(const NamedTensors& parameters);
  /// Throws: invalid, when the name is taken, or the tensor is no leaf of a floating dtype.
  Tensor& insert(const std::string& name, Tensor parameter);
  size_t size() const { return items_.size(); }
  bool contains(const std::string& name) const;
  std::vector<std::string> keys() const;
  /// Throws: invalid, when there is no such parameter.
  Tensor& operator[](const std::string& name);

 private:
  std::deque<std::pair<std::string, Tensor>> items_;
};

/// Source: torch.nn.Identity.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
};

/// Dims start to end as one. Source: torch.nn.Flatten.
class Flatten : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_(start_dim), end_(end_dim) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t start_, end_;
};

/// Dim `dim` as several; one of their sizes may be -1. Source: torch.nn.Unflatten.
class Unflatten : public Module {
 public:
  Unflatten(int64_t dim, Sizes sizes) : dim_(dim), sizes_(std::move(sizes)) {}
  Tensor forward(const Tensor& x) override;

 private:
  int64_t dim_;
  Sizes sizes_;
};

}  // namespace kiln::nn
