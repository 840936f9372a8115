// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nccl_mean.h"

#include <algorithm>
#include <array>

#include "runtime/cuda/builtins.h"

namespace kiln {

namespace {

constexpr int64_t kPerBlock = 1024;  // elements, four for each thread
constexpr int64_t kBlocksPerMultiprocessor = 8;

}  // namespace

NcclMean::~NcclMean() {
  if (rooms_.empty()) return;
  try {
    device_.order(device_.collectives(), device_.compute());
  } catch (const Error&) {  // a device that has failed has lost its memory
  }
}

Collective NcclMean::encode(const Collective& c, cuda::Stream stream, bool captured) {
  Collective sum = c;
  sum.kind = CollectiveKind::all_reduce;
  sum.in = sum.out =
      reinterpret_cast<void*>(room(static_cast<size_t>(c.count) * dtype_size(c.dtype), stream, captured));
  cast(c.in, c.given, sum.out, c.dtype, c.count, ranks_, stream);
  return sum;
}

void NcclMean::decode(const Collective& c, const Collective& sum, cuda::Stream stream) {
  cast(sum.out, c.dtype, c.out, c.given, c.count, 0, stream);
}

/// At least twice the last, so that all together are less than twice what is needed.
cuda::Address NcclMean::room(size_t bytes, cuda::Stream stream, bool captured) {
  const size_t had = rooms_.empty() ? 0 : rooms_.back().bytes();
  if (had >= bytes) return rooms_.back().address();
  KILN_CHECK(
      !captured || !device_.capturing(device_.compute()), unsupported,
      "its first {} bytes are not allocated while the compute stream itself is captured (reduce as many "
      "once before)",
      bytes);
  rooms_.push_back(device_.allocate(std::max(bytes, 2 * had), "compressed gradients"));
  // It is there when the compute stream has come so far, as it has when a graph is launched.
  if (!captured) device_.order(device_.compute(), stream);
  return rooms_.back().address();
}

void NcclMean::cast(const void* from, DType is, void* to, DType becomes, int64_t count, int ranks,
                    cuda::Stream stream) {
  if (!kernels_) kernels_ = std::make_unique<CudaModules>(device_, std::vector{cuda_cast()}, "any device");
  CudaFunction& f = *kernels_->find("kiln_cast");
  const auto word = [](const auto& x) { return static_cast<uint64_t>(x); };
  const cuda::Address source = reinterpret_cast<cuda::Address>(from),
                      target = reinterpret_cast<cuda::Address>(to);
  std::array<uint64_t, 7> parameters{source,      target, word(count), word(is), word(becomes),
                                     word(ranks), 0};  // and no guard
  // Nobody writes what lies between the gradients of a bucket.
  const std::array<cuda::DeclaredAccess, 2> accesses{
      cuda::DeclaredAccess{source, word(count) * dtype_size(is), true, false, "from", true},
      cuda::DeclaredAccess{target, word(count) * dtype_size(becomes), true, true, "to"}};
  const int64_t most = kBlocksPerMultiprocessor * std::max(device_.limits().multiprocessors, 1);
  device_.launch({.function = f.get(),
                  .blocks = std::min((count + kPerBlock - 1) / kPerBlock, most),
                  .threads = f.kernel().threads,
                  .parameters = parameters.data(),
                  .name = "kiln_cast",
                  .accesses = accesses},
                 stream);
}

}  // namespace kiln
