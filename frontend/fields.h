// SPDX-License-Identifier: Apache-2.0
// The tensors inside a value: of tensors, standard containers, aggregates (up to 16 members, no base classes,
// no C arrays), and structs that list their members by KILN_FIELDS.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "frontend/tensor.h"

/// Inside a struct: names the members that hold its tensors and host numbers.
#define KILN_FIELDS(...)                               \
  auto kiln_fields() { return std::tie(__VA_ARGS__); } \
  auto kiln_fields() const { return std::tie(__VA_ARGS__); }

namespace kiln {
namespace detail {

struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT
};
template <typename T>
struct AnyBase {
  template <typename B>
  requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>) operator B() const;  // NOLINT
};

template <typename T, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { T{((void)I, AnyField{})...}; };
}

/// The most initialisers that T{...} takes, where a C array among the members counts by element.
template <typename T, size_t N>
constexpr size_t initialiser_count() {
  if constexpr (N == 0) return 0;
  else if constexpr (takes<T>(std::make_index_sequence<N>{})) return N;
  else return initialiser_count<T, N - 1>();
}

/// The members and bases that T{{}, ...} takes.
// clang-format off
template <typename T>
constexpr size_t member_count() {
  if constexpr (requires {
                  T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 17;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 16;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 15;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 14;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 13;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 12;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 11;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 10;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 9;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}}; }) return 8;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}}; }) return 7;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}}; }) return 6;
  else
  if constexpr (requires { T{{}, {}, {}, {}, {}}; }) return 5;
  else
  if constexpr (requires { T{{}, {}, {}, {}}; }) return 4;
  else
  if constexpr (requires { T{{}, {}, {}}; }) return 3;
  else
  if constexpr (requires { T{{}, {}}; }) return 2;
  else
  if constexpr (requires { T{{}}; }) return 1;
  else return 0;
}

/// References to the members of an aggregate.
template <size_t N, typename T>
auto tie_members(T& v) {
  if constexpr (N == 1) { auto& [a] = v; return std::tie(a); }
  else if constexpr (N == 2) { auto& [a, b] = v; return std::tie(a, b); }
  else if constexpr (N == 3) { auto& [a, b, c] = v; return std::tie(a, b, c); }
  else if constexpr (N == 4) { auto& [a, b, c, d] = v; return std::tie(a, b, c, d); }
  else if constexpr (N == 5) { auto& [a, b, c, d, e] = v; return std::tie(a, b, c, d, e); }
  else if constexpr (N == 6) { auto& [a, b, c, d, e, f] = v; return std::tie(a, b, c, d, e, f); }
  else if constexpr (N == 7) { auto& [a, b, c, d, e, f, g] = v; return std::tie(a, b, c, d, e, f, g); }
  else if constexpr (N == 8) { auto& [a, b, c, d, e, f, g, h] = v; return std::tie(a, b, c, d, e, f, g, h); }
  else if constexpr (N == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = v;
    return std::tie(a, b, c, d, e, f, g, h, i);
  }
  else if constexpr (N == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  }
  else if constexpr (N == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  }
  else if constexpr (N == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  }
  else if constexpr (N == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  }
  else if constexpr (N == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  }
  else if constexpr (N == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  }
  else if constexpr (N == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  }
}
// clang-format on

inline constexpr size_t kMaxFields = 16;

/// How many members tie_members can bind, or 0.
template <typename T>
constexpr size_t bindable_members() {
  if constexpr (!std::is_aggregate_v<T> || std::is_array_v<T> || std::is_union_v<T>) return 0;
  else if constexpr (requires { T{AnyBase<T>{}}; }) return 0;
  else {
    constexpr size_t n = member_count<T>();
    return n <= kMaxFields && n == initialiser_count<T, kMaxFields + 1>() ? n : 0;
  }
}

template <typename T>
inline constexpr bool kIsList = false;
template <typename T, typename A>
inline constexpr bool kIsList<std::vector<T, A>> = true;
template <typename T, size_t N>
inline constexpr bool kIsList<std::array<T, N>> = true;

template <typename T>
inline constexpr bool kIsTuple = false;
template <typename... T>
inline constexpr bool kIsTuple<std::tuple<T...>> = true;
template <typename A, typename B>
inline constexpr bool kIsTuple<std::pair<A, B>> = true;

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Walks `value` in order: v.tensor(t) per tensor, v.host(data, bytes) per host value, v.opaque() for what
/// cannot be looked into.
template <typename V, typename T>
void visit_fields(V& v, T& value) {
  using Plain = std::remove_cv_t<T>;
  auto each = [&](auto&... x) { (visit_fields(v, x), ...); };
  auto number = [&](const auto& n) { v.host(&n, sizeof(n)); };
  if constexpr (std::is_same_v<Plain, Tensor>) {
    v.tensor(value);
  } else if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain>) {
    number(value);
  } else if constexpr (std::is_same_v<Plain, std::string>) {
    number(value.size());
    v.host(value.data(), value.size());
  } else if constexpr (kIsOptional<Plain>) {
    number(value.has_value());
    if (value) visit_fields(v, *value);
  } else if constexpr (std::is_same_v<Plain, std::vector<bool>>) {
    number(value.size());
    for (const bool b : value) number(b);
  } else if constexpr (kIsList<Plain>) {
    number(value.size());
    for (auto& x : value) visit_fields(v, x);
  } else if constexpr (kIsTuple<Plain>) {
    std::apply(each, value);
  } else if constexpr (requires { value.kiln_fields(); }) {
    std::apply(each, value.kiln_fields());
  } else if constexpr (bindable_members<Plain>() > 0) {
    std::apply(each, tie_members<bindable_members<Plain>()>(value));
  } else if constexpr (!std::is_empty_v<Plain>) {
    v.opaque();
  }
}

}  // namespace detail

/// Calls `f(tensor)` for every tensor inside `value`, in order; what cannot be looked into is passed over.
template <typename T, typename F>
void for_each_tensor(T& value, F&& f) {
  struct Visitor {
    F& f;
    void tensor(std::conditional_t<std::is_const_v<T>, const Tensor, Tensor>& t) { f(t); }
    void host(const void*, size_t) {}
    void opaque() {}
  } visitor{f};
  detail::visit_fields(visitor, value);
}

}  // namespace kiln
