// SPDX-License-Identifier: Apache-2.0
// How reference evaluations walk memory. Inputs of any strides are read in blocks of their compute type
// (halves as float, integers and bool as int64, wrapping on store), so each op has one dense loop per compute
// type. Must not know any op.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/interpret.h"

namespace kiln::loops {

/// Elements of a block; blocks start at multiples of it, whatever the thread count.
inline constexpr int64_t kBlock = 512;
/// Most inputs of an elementwise op.
inline constexpr int kMaxIn = 3;

template <typename S>
using compute_t = std::conditional_t<std::is_same_v<S, double>, double,
                                     std::conditional_t<is_floating(dtype_of<S>()), float, int64_t>>;
/// f32, f64 or i64: the type in which arithmetic on `t` is done.
constexpr DType compute_dtype(DType t) {
  return t == DType::f64 ? DType::f64 : is_floating(t) ? DType::f32 : DType::i64;
}

/// How elements of one tensor become elements of a block, or back: a strided loop, and the two element sizes.
struct Move {
  void (*loop)(const void* src, int64_t src_stride, void* dst, int64_t n) = nullptr;
  size_t from = 0, to = 0;
  bool same = false;  ///< the types are equal, so that a dense run needs no copy
};
Move load_of(DType t);
/// Moves bits: for ops that do no arithmetic.
Move raw_of(DType t);
/// From the compute type of `t` back to `t`.
Move store_of(DType t);

/// Merged dims of several tensors of one shape: fewer, longer loops. strides[i] belongs to tensor i.
struct Loops {
  std::vector<int64_t> shape;
  std::vector<std::vector<int64_t>> strides;
};
Loops collapse(std::span<const int64_t> shape, std::span<const std::vector<int64_t>* const> strides);

/// Elements [first, first + n) in row-major order of a strided tensor, as a dense block: a pointer into the
/// tensor where it is dense there, else `buffer` filled through `move`.
const void* read_block(const char* data, std::span<const int64_t> shape, std::span<const int64_t> strides,
                       const Move& move, int64_t first, int64_t n, void* buffer);

/// Copies elements of `size` bytes; strides[0] is the source's, strides[1] the target's.
void copy(const char* src, char* dst, const Loops& l, size_t size);

/// A dense loop over blocks.
using Kernel = void (*)(const void* const* in, void* out, int64_t n);
/// out = kernel(in...) over equal shapes; `out` is contiguous.
void run(std::span<const TensorRef> in, std::span<const Move> loads, const TensorRef& out, const Move& store,
         Kernel k);

template <typename F, typename C, int N>
void kernel(const void* const* in, void* out, int64_t n) {
  const C* a = static_cast<const C*>(in[0]);
  if constexpr (N == 1) {
    using O = decltype(F::f(C{}));
    O* o = static_cast<O*>(out);
    for (int64_t i = 0; i < n; ++i) o[i] = F::f(a[i]);
  } else {
    using O = decltype(F::f(C{}, C{}));
    const C* b = static_cast<const C*>(in[1]);
    O* o = static_cast<O*>(out);
    for (int64_t i = 0; i < n; ++i) o[i] = F::f(a[i], b[i]);
  }
}

template <typename F, typename C, int N>
Kernel kernel_or_null() {
  if constexpr (N == 1) {
    if constexpr (requires(C c) { F::f(c); }) return kernel<F, C, N>;
  } else {
    if constexpr (requires(C c) { F::f(c, c); }) return kernel<F, C, N>;
  }
  return nullptr;
}

/// Whether F gives bool.
template <typename F>
constexpr bool tests() {
  if constexpr (requires { F::f(0.0, 0.0); }) return std::is_same_v<decltype(F::f(0.0, 0.0)), bool>;
  else if constexpr (requires { F::f(int64_t{}, int64_t{}); })
    return std::is_same_v<decltype(F::f(int64_t{}, int64_t{})), bool>;
  else if constexpr (requires { F::f(0.0); }) return std::is_same_v<decltype(F::f(0.0)), bool>;
  else return std::is_same_v<decltype(F::f(int64_t{})), bool>;
}

/// Evaluation of an elementwise op whose inputs share a dtype: F::f on float, double and int64_t. A result of
/// type bool stores bools.
template <typename F, int N>
void eval(const EvalArgs& a) {
  const DType t = a.in[0].dtype;
  const DType c = compute_dtype(t);
  const Kernel k = c == DType::f64   ? kernel_or_null<F, double, N>()
                   : c == DType::f32 ? kernel_or_null<F, float, N>()
                                     : kernel_or_null<F, int64_t, N>();
  KILN_ASSERT(k, "no evaluation for {}", dtype_name(t));
  std::array<Move, N> loads;
  loads.fill(load_of(t));
  run(a.in, loads, a.out[0], tests<F>() ? raw_of(DType::boolean) : store_of(a.out[0].dtype), k);
}

}  // namespace kiln::loops
