// SPDX-License-Identifier: Apache-2.0
// What NCCLs of tests have in common: a call of a collective, and what it makes of operands on the host.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/cuda/nccl_comm.h"
#include "runtime/reduce.h"

namespace kiln::testing {

struct NcclCall {
  CollectiveKind kind = CollectiveKind::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  nccl::Type type = 0;
  nccl::Op op = 0;
  int root = 0;
  cuda::Stream stream = nullptr;
};

inline DType dtype_of(const NcclCall& c) {
  for (int d = 1; d < kDTypeCount; ++d)
    if (nccl_type(static_cast<DType>(d)) == c.type) return static_cast<DType>(d);
  return DType::u8;
}
inline ReduceOp op_of(const NcclCall& c) {
  for (const ReduceOp r : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max})
    if (nccl_op(r) == c.op) return r;
  return ReduceOp::sum;
}

inline size_t in_bytes(const NcclCall& c, size_t rank, size_t size) {
  if (c.kind == CollectiveKind::broadcast && rank != static_cast<size_t>(c.root)) return 0;
  return c.count * dtype_size(dtype_of(c)) * (c.kind == CollectiveKind::reduce_scatter ? size : 1);
}
inline size_t out_bytes(const NcclCall& c, size_t size) {
  return c.count * dtype_size(dtype_of(c)) * (c.kind == CollectiveKind::all_gather ? size : 1);
}

/// The result of `rank`, from everybody's operands, reduced in the order of the ranks.
inline void run_call(const NcclCall& c, size_t rank, const std::vector<const std::byte*>& operands,
                     std::byte* to) {
  const size_t bytes = c.count * dtype_size(dtype_of(c));
  std::vector<const void*> parts;
  switch (c.kind) {
    case CollectiveKind::broadcast: std::memcpy(to, operands[static_cast<size_t>(c.root)], bytes); return;
    case CollectiveKind::all_gather:
      for (size_t r = 0; r < operands.size(); ++r) std::memcpy(to + r * bytes, operands[r], bytes);
      return;
    default:
      for (const std::byte* const o : operands)
        parts.push_back(o + (c.kind == CollectiveKind::reduce_scatter ? rank * bytes : 0));
      reduce_parts(parts, to, static_cast<int64_t>(c.count), dtype_of(c), op_of(c));
  }
}

/// The library's collectives, all begun by `start`.
template <nccl::Result (*start)(nccl::Comm, const NcclCall&)>
void set_calls(nccl::Library& l) {
  using nccl::Comm, nccl::Type, nccl::Op, cuda::Stream;
  l.all_reduce = [](const void* in, void* out, size_t n, Type t, Op op, Comm c, Stream s) {
    return start(c, {CollectiveKind::all_reduce, in, out, n, t, op, 0, s});
  };
  l.broadcast = [](const void* in, void* out, size_t n, Type t, int root, Comm c, Stream s) {
    return start(c, {CollectiveKind::broadcast, in, out, n, t, 0, root, s});
  };
  l.all_gather = [](const void* in, void* out, size_t n, Type t, Comm c, Stream s) {
    return start(c, {CollectiveKind::all_gather, in, out, n, t, 0, 0, s});
  };
  l.reduce_scatter = [](const void* in, void* out, size_t n, Type t, Op op, Comm c, Stream s) {
    return start(c, {CollectiveKind::reduce_scatter, in, out, n, t, op, 0, s});
  };
}

}  // namespace kiln::testing
