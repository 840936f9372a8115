// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/container.h"

#include <algorithm>

#include "frontend/dispatch.h"
#include "frontend/ops.h"

namespace kiln::nn {

using detail::caller_loc;

namespace {

template <typename Items>
auto find(Items& items, const std::string& name) {
  return std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == name; });
}
template <typename Items>
std::vector<std::string> names_of(const Items& items) {
  std::vector<std::string> out;
  for (const auto& item : items) out.push_back(item.first);
  return out;
}

}  // namespace

bool ModuleDict::contains(const std::string& name) const { return find(items_, name) != items_.end(); }
std::vector<std::string> ModuleDict::keys() const { return names_of(items_); }
Module& ModuleDict::operator[](const std::string& name) {
  const auto it = find(items_, name);
  KILN_CHECK(it != items_.end(), invalid, "ModuleDict: no module '{}'; there are [{}]", name,
             fmt::join(keys(), ", "));
  return *it->second;
}

ParameterList::ParameterList(const std::vector<Tensor>& parameters) {
  for (const Tensor& p : parameters) append(p);
}
Tensor& ParameterList::append(Tensor parameter) {
  items_.push_back(std::move(parameter));
  register_parameter(std::to_string(items_.size() - 1), items_.back());
  return items_.back();
}
Tensor& ParameterList::operator[](size_t i) {
  KILN_CHECK(i < items_.size(), invalid, "ParameterList: no parameter {}; there are {}", i, items_.size());
  return items_[i];
}

ParameterDict::ParameterDict(const NamedTensors& parameters) {
  for (const auto& [name, p] : parameters) insert(name, p);
}
Tensor& ParameterDict::insert(const std::string& name, Tensor parameter) {
  KILN_CHECK(!contains(name), invalid, "ParameterDict: there is a parameter '{}' already", name);
  items_.emplace_back(name, std::move(parameter));
  register_parameter(name, items_.back().second);
  return items_.back().second;
}
bool ParameterDict::contains(const std::string& name) const { return find(items_, name) != items_.end(); }
std::vector<std::string> ParameterDict::keys() const { return names_of(items_); }
Tensor& ParameterDict::operator[](const std::string& name) {
  const auto it = find(items_, name);
  KILN_CHECK(it != items_.end(), invalid, "ParameterDict: no parameter '{}'; there are [{}]", name,
             fmt::join(keys(), ", "));
  return it->second;
}

Tensor Flatten::forward(const Tensor& x) { return flatten(x, start_, end_, caller_loc()); }

Tensor Unflatten::forward(const Tensor& x) {
  const Loc loc = caller_loc();
  const int64_t whole = x.size(dim_, loc), at = dim_ < 0 ? dim_ + x.dim() : dim_;
  int64_t product = 1, open = 0;
  for (const int64_t s : sizes_) s == -1 ? ++open : product *= s;
  KILN_CHECK(open <= 1 && !sizes_.empty() && product > 0 && (open ? whole % product == 0 : whole == product),
             invalid, "Unflatten ({}): dim {} of x {} does not become [{}]", loc.str(), dim_, x.type_str(),
             fmt::join(sizes_, ","));
  Sizes sizes = x.sizes();
  sizes.erase(sizes.begin() + at);
  Sizes parts = sizes_;
  for (int64_t& s : parts)
    if (s == -1) s = whole / product;
  sizes.insert(sizes.begin() + at, parts.begin(), parts.end());
  return reshape(x, sizes, loc);
}

}  // namespace kiln::nn
