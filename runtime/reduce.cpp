// SPDX-License-Identifier: Apache-2.0
#include "runtime/reduce.h"

#include <algorithm>
#include <type_traits>

#include "ir/base/error.h"

namespace kiln {

namespace {

constexpr int64_t kBlock = 1024;  // the running result stays in the first cache

/// What a T is reduced in: halves in float, integers where overflow wraps.
template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Half> {
  using type = float;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};

struct Sum {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else return a + b;
  }
};
struct Product {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else return a * b;
  }
};
struct Min {
  template <typename A>
  static A apply(A a, A b) {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <typename A>
  static A apply(A a, A b) {
    return a > b || a != a ? a : b;
  }
};

/// One block of `n` elements at `offset`; a block of the constant length is what the compiler vectorises.
template <typename T, typename Op>
void reduce_block(const std::vector<const void*>& parts, void* out, int64_t offset, int64_t n) {
  using A = typename Accumulator<T>::type;
  A sum[kBlock];
  const T* first = static_cast<const T*>(parts[0]) + offset;
  for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
  for (size_t p = 1; p < parts.size(); ++p) {
    const T* next = static_cast<const T*>(parts[p]) + offset;
    if (n == kBlock) {
      for (int64_t i = 0; i < kBlock; ++i) sum[i] = Op::apply(sum[i], static_cast<A>(next[i]));
    } else {
      for (int64_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], static_cast<A>(next[i]));
    }
  }
  T* to = static_cast<T*>(out) + offset;
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sum[i]);
}

template <typename T>
void reduce_typed(const std::vector<const void*>& parts, void* out, int64_t count, ReduceOp op) {
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    switch (op) {
      case ReduceOp::sum: reduce_block<T, Sum>(parts, out, at, n); break;
      case ReduceOp::product: reduce_block<T, Product>(parts, out, at, n); break;
      case ReduceOp::min: reduce_block<T, Min>(parts, out, at, n); break;
      case ReduceOp::max: reduce_block<T, Max>(parts, out, at, n); break;
    }
  }
}

}  // namespace

void reduce_parts(const std::vector<const void*>& parts, void* out, int64_t count, DType dtype, ReduceOp op) {
  KILN_ASSERT(!parts.empty() && dtype != DType::boolean);
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) reduce_typed<T>(parts, out, count, op);
  });
}

}  // namespace kiln
