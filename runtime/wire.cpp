// SPDX-License-Identifier: Apache-2.0
#include "runtime/wire.h"

#include <algorithm>
#include <type_traits>

#include "ir/base/error.h"
#include "ir/base/wire.h"

namespace kiln {

namespace {

constexpr int64_t kBlock = 1024;  // what has been rounded once stays in the first cache

/// In two loops, each of which the compiler can make vectors of.
template <typename T, typename W>
[[gnu::always_inline]] inline void encode_all(const T* __restrict from, W* __restrict to, int64_t count,
                                              float ranks) {
  float quotient[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    for (int64_t i = 0; i < n; ++i)
      quotient[i] = static_cast<float>(W(static_cast<float>(from[at + i]))) / ranks;
    for (int64_t i = 0; i < n; ++i) to[at + i].bits = W(quotient[i]).bits;
  }
}

template <typename T, typename W>
void encode_typed(const T* from, W* to, int64_t count, float ranks) {
  encode_all(from, to, count, ranks);
}

#if defined(__x86_64__)
/// The same bits, some four times as fast: what all x86-64 have cannot narrow vectors of integers.
template <typename T, typename W>
__attribute__((target("avx2"))) void encode_wide(const T* from, W* to, int64_t count, float ranks) {
  encode_all(from, to, count, ranks);
}
#endif

/// f(element of `wire`, element of `dtype`).
template <typename F>
void dispatch_both(DType wire, DType dtype, const F& f) {
  KILN_ASSERT(is_wire(wire) && is_floating(dtype), "{} as {}", dtype_name(dtype), dtype_name(wire));
  dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_integral_v<T>) {
      if (wire == DType::f16) f(Half{}, T{});
      else f(BFloat16{}, T{});
    }
  });
}

}  // namespace

void encode_mean(const void* from, DType dtype, void* to, DType wire, int64_t count, int ranks) {
  dispatch_both(wire, dtype, [&](auto w, auto t) {
    using W = decltype(w);
    using T = decltype(t);
    auto encode = encode_typed<T, W>;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) encode = encode_wide<T, W>;
#endif
    encode(static_cast<const T*>(from), static_cast<W*>(to), count, static_cast<float>(ranks));
  });
}

void decode(const void* from, DType wire, void* to, DType dtype, int64_t count) {
  dispatch_both(wire, dtype, [&](auto w, auto t) {
    const auto* __restrict in = static_cast<const decltype(w)*>(from);
    auto* __restrict out = static_cast<decltype(t)*>(to);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<decltype(t)>(static_cast<float>(in[i]));
  });
}

}  // namespace kiln
