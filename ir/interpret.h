// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: runs a graph node by node through the rows' evaluations. It defines results.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "ir/graph.h"

namespace kiln {

/// What `ir` needs from above: set once by the runtime library.
struct HostFunctions {
  /// c[b,m,n] = sum_k a[b,m,k] * b[b,k,n]; all strided, rank 3, same dtype.
  void (*matmul)(const TensorRef& a, const TensorRef& b, const TensorRef& c) = nullptr;
  /// f(begin, end) over [0, n) in chunks of at least `grain`, on the pool.
  void (*parallel_for)(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) = nullptr;
  /// Sums `t` (contiguous) over the ranks of a group, in place; or leaves their mean, made in `wire`, if that
  /// is not the dtype of `t`. `group` is a place in the list of groups of whoever evaluates on this thread.
  void (*all_reduce)(int64_t group, DType wire, const TensorRef& t) = nullptr;
};
/// The installed functions; without a runtime, plain loops on the caller's thread, the only rank.
HostFunctions& host_functions();
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

/// A tensor that owns (or shares) its memory.
struct HostTensor {
  TensorRef ref;
  std::shared_ptr<void> storage;
};
/// Bytes of a tensor in row-major order; the largest size_t when they are more: nobody can allocate that.
size_t byte_count(DType dtype, std::span<const int64_t> shape);
/// Contiguous, uninitialised (filled with NaN or the dtype's marker under KILN_POISON).
HostTensor make_host_tensor(DType dtype, std::vector<int64_t> shape);
std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape);
/// Whether elements lie in row-major order without gaps.
bool is_contiguous(const TensorRef& t);
/// `t` itself, sharing its storage, when contiguous, else a contiguous copy.
HostTensor contiguous(const HostTensor& t);

/// Evaluates one op; a view shares its input's storage where its layout allows.
HostTensor evaluate(Op o, std::span<const HostTensor> in, const Attrs& attrs);
/// dst[i] = src[i] over equal shapes, any strides, same dtype.
void copy_elements(const TensorRef& src, const TensorRef& dst);

/// Runs `g` on `inputs` (one per graph input). `observe` (may be empty) sees every node's result.
/// Values are freed after their last use. Static shapes only: symbols take their values from the inputs'
/// shapes. Stops after a node whose guard output is not kNothingWrong: results not made by then are empty.
std::vector<HostTensor> interpret(const Graph& g, std::span<const HostTensor> inputs,
                                  const std::function<void(int node, const HostTensor&)>& observe = {});
/// Whether all guard outputs that were made say that nothing is wrong.
bool guards_hold(const Graph& g, std::span<const HostTensor> outputs);

}  // namespace kiln
