// SPDX-License-Identifier: Apache-2.0
#include "ir/shape_profile.h"

#include <algorithm>
#include <charconv>

#include "ir/base/error.h"

namespace kiln {

namespace {

using Kind = ProfileInt::Kind;

ProfileInt joined(const ProfileInt& a, const ProfileInt& b) {
  if (a.kind == Kind::unset) return b;
  if (b.kind == Kind::unset || a == b) return a;
  return {Kind::dynamic, 0};
}

ProfileDims joined(const ProfileDims& a, const ProfileDims& b) {
  if (a.kind == Kind::unset) return b;
  if (b.kind == Kind::unset) return a;
  if (a.kind == Kind::dynamic || b.kind == Kind::dynamic || a.dims.size() != b.dims.size())
    return {Kind::dynamic, {}};
  ProfileDims out{Kind::value, {}};
  for (size_t i = 0; i < a.dims.size(); ++i) out.dims.push_back(joined(a.dims[i], b.dims[i]));
  return out;
}

bool is_dynamic(const ProfileInt& x) { return x.kind == Kind::dynamic; }

}  // namespace

ShapeProfile ShapeProfile::of_tensor(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  KILN_CHECK(sizes.size() == strides.size(), invalid,
             "ShapeProfile: got {} sizes and {} strides, expected as many", sizes.size(), strides.size());
  ShapeProfile p;
  p.scalar.kind = Kind::dynamic;
  p.size.kind = p.stride.kind = Kind::value;
  for (int64_t n : sizes) p.size.dims.push_back({Kind::value, n});
  p.stride.dims.resize(strides.size());
  std::vector<size_t> order(strides.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  std::map<int64_t, size_t> next;  // size * stride of a dim -> the first such dim
  for (size_t i : order) {
    const auto inner = next.find(strides[i]);
    if (inner == next.end()) p.stride.dims[i] = {Kind::value, strides[i]};
    else p.stride.dims[i] = {Kind::contiguous_of, static_cast<int64_t>(inner->second)};
    next.try_emplace(strides[i] * sizes[i], i);
  }
  return p;
}

ShapeProfile ShapeProfile::of_integer(int64_t value) {
  ShapeProfile p;
  p.scalar = {Kind::value, value};
  p.size.kind = p.stride.kind = Kind::dynamic;
  return p;
}

void ShapeProfile::join(const ShapeProfile& later) {
  excluded_scalar.reset();
  if (scalar.kind == Kind::value && later.scalar.kind == Kind::value && scalar != later.scalar)
    excluded_scalar = scalar.value;
  scalar = joined(scalar, later.scalar);
  const ProfileDims before = size;
  size = joined(size, later.size);
  stride = joined(stride, later.stride);
  if (before.kind != Kind::value) return;
  excluded_sizes.reset();
  if (size == before) return;
  excluded_sizes.emplace();
  for (const ProfileInt& n : before.dims)
    excluded_sizes->push_back(n.kind == Kind::value ? std::optional(n.value) : std::nullopt);
}

bool ShapeProfile::is_size_dynamic(size_t dim) const {
  return size.kind == Kind::dynamic || (size.kind == Kind::value && is_dynamic(size.dims.at(dim)));
}

bool ShapeProfile::is_stride_dynamic(size_t dim) const {
  if (size.kind == Kind::dynamic || stride.kind == Kind::dynamic) return true;
  if (std::any_of(size.dims.begin(), size.dims.end(), is_dynamic)) return false;
  return stride.kind == Kind::value && is_dynamic(stride.dims.at(dim));
}

ShapeProfiles merge_profiles(std::span<const ShapeProfiles> ranks) {
  ShapeProfiles out;
  for (const ShapeProfiles& rank : ranks)
    for (const auto& [name, profile] : rank)
      if (const auto [known, first] = out.try_emplace(name, profile); !first) known->second.join(profile);
  return out;
}

namespace {

std::string text(const ProfileInt& x) {
  switch (x.kind) {
    case Kind::unset: return "?";
    case Kind::dynamic: return "*";
    case Kind::contiguous_of: return fmt::format("@{}", x.value);
    default: return std::to_string(x.value);
  }
}

std::string text(const ProfileDims& x) {
  if (x.kind != Kind::value) return x.kind == Kind::unset ? "?" : "*";
  std::string out;
  for (const ProfileInt& n : x.dims) out += (out.empty() ? "" : ",") + text(n);
  return "[" + out + "]";
}

/// Reads what print_profiles writes.
class ProfileReader {
 public:
  explicit ProfileReader(std::string_view text) : text_(text) {}

  ShapeProfiles run() {
    ShapeProfiles out;
    while (at_ < text_.size()) {
      const size_t start = at_;
      const std::string name = quoted();
      const ShapeProfile p = profile();
      if (!out.emplace(name, p).second) {
        at_ = start;
        fail("a name that was not there before");
      }
      take("\n");
    }
    return out;
  }

 private:
  [[noreturn]] void fail(const char* expected) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::count(before.begin(), before.end(), '\n');
    const size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    throw Error(ErrorKind::invalid, fmt::format("parse_profiles: line {}, column {}: expected {}", line + 1,
                                                at_ - start + 1, expected));
  }

  bool takes(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void take(const char* word) {
    if (!takes(word)) fail(*word == '\n' ? "the end of the line" : word);
  }

  std::string quoted() {
    take("\"");
    std::string out;
    while (!takes("\"")) {
      if (takes("\\n")) {
        out += '\n';
        continue;
      }
      takes("\\");
      if (at_ == text_.size() || text_[at_] == '\n') fail("the end of the name");
      out += text_[at_++];
    }
    return out;
  }

  int64_t integer() {
    int64_t v = 0;
    const auto [end, fault] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (fault != std::errc()) fail("a number of 64 bits");
    at_ = static_cast<size_t>(end - text_.data());
    return v;
  }

  ProfileInt number(bool stride) {
    if (takes("?")) return {Kind::unset, 0};
    if (takes("*")) return {Kind::dynamic, 0};
    if (stride && takes("@")) return {Kind::contiguous_of, integer()};
    return {Kind::value, integer()};
  }

  template <typename Element>
  void list(Element&& element) {
    take("[");
    if (takes("]")) return;
    do element();
    while (takes(","));
    take("]");
  }

  ProfileDims dims(bool stride) {
    if (takes("?")) return {Kind::unset, {}};
    if (takes("*")) return {Kind::dynamic, {}};
    ProfileDims out{Kind::value, {}};
    list([&] { out.dims.push_back(number(stride)); });
    return out;
  }

  ShapeProfile profile() {
    ShapeProfile p;
    take(" scalar=");
    p.scalar = number(false);
    take(" size=");
    p.size = dims(false);
    take(" stride=");
    p.stride = dims(true);
    if (takes(" excluded_scalar=")) p.excluded_scalar = integer();
    if (takes(" excluded_sizes=")) {
      p.excluded_sizes.emplace();
      list([&] { p.excluded_sizes->push_back(takes("_") ? std::nullopt : std::optional(integer())); });
    }
    const auto rank = static_cast<int64_t>(p.size.dims.size());
    const bool both = p.size.kind == Kind::value && p.stride.kind == Kind::value;
    if (both && p.stride.dims.size() != p.size.dims.size()) fail("as many strides as sizes");
    for (const ProfileInt& n : p.stride.dims)
      if (n.kind == Kind::contiguous_of && (n.value < 0 || (both && n.value >= rank)))
        fail("strides that are contiguous of a dim");
    return p;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string print_profiles(const ShapeProfiles& profiles) {
  std::string out;
  for (const auto& [name, p] : profiles) {
    out += '"';
    for (const char c : name) {
      if (c == '"' || c == '\\') out += '\\';
      out += c == '\n' ? "\\n" : std::string(1, c);
    }
    out += fmt::format("\" scalar={} size={} stride={}", text(p.scalar), text(p.size), text(p.stride));
    if (p.excluded_scalar) out += fmt::format(" excluded_scalar={}", *p.excluded_scalar);
    if (p.excluded_sizes) {
      std::string sizes;
      for (const auto& n : *p.excluded_sizes)
        sizes += (sizes.empty() ? "" : ",") + (n ? std::to_string(*n) : std::string("_"));
      out += " excluded_sizes=[" + sizes + "]";
    }
    out += '\n';
  }
  return out;
}

ShapeProfiles parse_profiles(std::string_view text) { return ProfileReader(text).run(); }

}  // namespace kiln
