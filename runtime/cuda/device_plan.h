// SPDX-License-Identifier: Apache-2.0
// A plan on a device, for one call after the other: how the memory of a call is laid out, and its launches.
// Knows nothing of where the memory comes from, nor whether streams are recorded.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/executor.h"
#include "runtime/cuda/launches.h"

namespace kiln {

/// What kernels take: addresses of tensors are multiples of it.
inline constexpr cuda::Address kCudaTensorAlign = 16;
/// Parts of a call's memory begin at multiples of it.
inline constexpr size_t kCudaPartAlign = 256;

/// The tensors of a call by slot: its externals, then its outputs.
struct CudaSlots {
  std::vector<cuda::Address> addresses;
  std::vector<size_t> bytes;
};

/// Threads: any.
class CudaDevicePlan {
 public:
  CudaDevicePlan(Plan plan, const KernelImage& image, CudaDevice& device, CudaOptions options);

  const Plan& plan() const { return plan_; }
  CudaDevice& device() const { return device_; }
  const CudaOptions& options() const { return options_; }
  BoundPlans& bounds() { return bounds_; }
  CudaLaunches& launches() { return launches_; }

  /// Bytes of a call's own memory: arena, scalars, and the word of its guards.
  size_t call_bytes(const BoundPlan& bound) const;
  /// What lies where in a call. Throws: invalid, where memory is missing.
  CudaSlots slots(const BoundPlan& bound, const Invocation& call) const;
  /// Whether a slot's memory holds something before the call, and something else after it.
  bool is_read(size_t slot) const { return slot < static_cast<size_t>(plan_.external_count); }
  bool is_written(size_t slot) const { return written_[slot]; }
  /// "x", "output 1": for errors.
  std::string name_of(size_t slot) const;

  /// Puts the values of the call's scalars into its own memory.
  void upload_scalars(const BoundPlan& bound, const Invocation& call, cuda::Address own);
  /// Puts the plan on the streams, with its tensors at `addresses` (multiples of kCudaTensorAlign) and its
  /// own memory.
  void enqueue(const BoundPlan& bound, const Invocation& call, std::span<const cuda::Address> addresses,
               cuda::Address own);

 private:
  size_t scalars_at(const BoundPlan& bound) const;
  size_t guard_at(const BoundPlan& bound) const;
  std::vector<cuda::Address> table(const BoundPlan& bound, std::span<const cuda::Address> addresses,
                                   cuda::Address own) const;
  void poison(const BoundPlan& bound, std::span<const cuda::Address> buffers, cuda::Address own);

  const Plan plan_;
  BoundPlans bounds_;
  CudaDevice& device_;
  const CudaOptions options_;
  CudaLaunches launches_;
  CudaMemory constants_;
  std::vector<bool> written_;  // by slot
  const bool poison_;
};

}  // namespace kiln
