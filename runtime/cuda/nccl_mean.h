// SPDX-License-Identifier: Apache-2.0
// The two ends of a mean over GPUs that travels as halves: what runtime/wire.h does for memory of the host,
// before and after a sum that NCCL makes.
#pragma once

#include <memory>
#include <vector>

#include "runtime/collective_queue.h"
#include "runtime/cuda/module.h"

namespace kiln {

/// Of one group, whose collectives run one after the other: so does what is captured (see DeviceGroup), and
/// all use the same memory on their way. Threads: one at a time.
class NcclMean {
 public:
  NcclMean(CudaDevice& device, int ranks) : device_(device), ranks_(ranks) {}
  /// What was put on the collectives stream ends first.
  ~NcclMean();
  NcclMean(const NcclMean&) = delete;
  NcclMean& operator=(const NcclMean&) = delete;

  /// Puts this rank's part of the mean `c` on the stream. Returns the sum to make of everybody's.
  /// Throws: device.
  Collective encode(const Collective& c, cuda::Stream stream, bool captured);
  /// Puts that sum where `c` wants the mean.
  void decode(const Collective& c, const Collective& sum, cuda::Stream stream);

 private:
  cuda::Address room(size_t bytes, cuda::Stream stream, bool captured);
  void cast(const void* from, DType is, void* to, DType becomes, int64_t count, int ranks,
            cuda::Stream stream);

  CudaDevice& device_;
  const int ranks_;
  std::unique_ptr<CudaModules> kernels_;  ///< once one was asked for
  std::vector<CudaMemory> rooms_;         ///< graphs may know the earlier ones; the last is the largest
};

}  // namespace kiln
