// SPDX-License-Identifier: Apache-2.0
// A module tree in words.
#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ostream>
#include <typeinfo>

#include <fmt/format.h>

#include "frontend/nn/module.h"

namespace kiln::nn {

namespace {

/// "Linear" of kiln::nn::Linear, and of a class inside a function; "relu" of a template that has it as its
/// argument, such as ReLU.
std::string class_name(const Module& m) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> full(
      abi::__cxa_demangle(typeid(m).name(), nullptr, nullptr, &status), std::free);
  const std::string name = full ? full.get() : typeid(m).name();
  const auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == ':'; };
  const auto last = [](const std::string& path) { return path.substr(path.rfind(':') + 1); };
  if (const size_t function = name.find('&'); function != std::string::npos) {
    const auto from = name.begin() + static_cast<ptrdiff_t>(function) + 1;
    return last(std::string(from, std::find_if_not(from, name.end(), is_part)));
  }
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' || name[i] == '(';
    depth -= name[i] == '>' || name[i] == ')';
    if (depth == 0 && name[i] == ':') begin = i + 1;
  }
  return name.substr(begin, name.find('<', begin) - begin);
}

/// "3" after "2".
bool follows(const std::string& name, const std::string& before) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c); };
  return !before.empty() && before.size() < 10 && std::all_of(before.begin(), before.end(), is_digit) &&
         name == std::to_string(std::stoll(before) + 1);
}

}  // namespace

std::string Module::text(size_t indent) const {
  std::string own;
  for (const auto& tensors : {named_parameters(false), named_buffers(false)})
    for (const auto& [name, t] : tensors)
      own += fmt::format("{}{} {}", own.empty() ? "" : ", ", name, t.type_str());
  if (modules_.empty()) return fmt::format("{}({})", class_name(*this), own);
  std::vector<std::string> texts;
  for (const auto& [name, m] : modules_) texts.push_back(m->text(indent + 2));
  std::string out = fmt::format("{}({}\n", class_name(*this), own);
  for (size_t i = 0, next = 0; i < modules_.size(); i = next) {
    const std::string& name = modules_[i].first;
    for (next = i + 1; next < modules_.size() && follows(modules_[next].first, modules_[next - 1].first) &&
                       texts[next] == texts[i];)
      ++next;
    out += next == i + 1 ? fmt::format("{:{}}({}): {}\n", "", indent + 2, name, texts[i])
                         : fmt::format("{:{}}({}-{}): {} x {}\n", "", indent + 2, name,
                                       modules_[next - 1].first, next - i, texts[i]);
  }
  return out + fmt::format("{:{}})", "", indent);
}

std::ostream& operator<<(std::ostream& out, const Module& m) { return out << m.text(0); }

}  // namespace kiln::nn
