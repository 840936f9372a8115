// SPDX-License-Identifier: Apache-2.0
// Puts the launches of a plan on the streams of a device. Knows where every buffer lies, not whose it is.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/executor.h"
#include "runtime/cuda/module.h"
#include "runtime/plan_call.h"

namespace kiln {

/// The collectives of one call. Those of host groups go through host memory.
class CudaCollectives;
class CudaProducts;

/// A plan with its kernels. Threads: any number of calls at once.
class CudaLaunches {
 public:
  /// Where a call's buffers are, and what else its launches need.
  struct Call {
    const BoundPlan& bound;
    std::span<const cuda::Address> buffers;  ///< by plan buffer, each a multiple of 16
    cuda::Address guard = 0;                 ///< 8 bytes, where the plan has several guards and no word
    const Invocation& invocation;
  };

  /// `plan` is looked at until this is destroyed. Throws: as CudaExecutable.
  CudaLaunches(const Plan& plan, const KernelImage& image, CudaDevice& device, const CudaOptions& options);
  ~CudaLaunches();

  /// Independent launches that leave processors idle go side by side where that pays, to streams that are
  /// forked from the compute stream and joined to it.
  void run(const Call& call);
  /// One after the other, with the time of each; waits for the end. Fills in the call's profiler and
  /// timeline.
  void run_timed(const Call& call);
  /// Whether run() puts work on streams and does nothing else.
  bool only_streams(std::span<ProcessGroup* const> groups) const;

 private:
  void find_kernels(const KernelImage& image);
  void run_interval(const Call& call, size_t from, size_t to, cuda::Address guard, CudaCollectives& works);
  void launch(const Call& call, size_t at, cuda::Stream stream, cuda::Address guard, CudaCollectives& works);
  void launch_kernel(const Call& call, size_t at, cuda::Stream stream, cuda::Address guard);
  void launch_parts(const Call& call, size_t at, cuda::Stream stream, cuda::Address guard);
  /// What the kernel of the launch is given for its buffer i.
  static cuda::Address address_of(const Call& call, const Launch& l, size_t i);
  std::vector<cuda::DeclaredAccess> accesses_of(const Call& call, const Launch& l, size_t from, size_t to,
                                                cuda::Address guard) const;
  void launch_builtin(const Call& call, size_t at, cuda::Stream stream, cuda::Address guard);
  void launch_product(const Call& call, size_t at);
  void launch_own(const char* name, const Launch& like, std::span<const uint64_t> buffers,
                  std::span<const uint64_t> sizes, int64_t number, int64_t blocks, cuda::Address guard,
                  cuda::Stream stream);
  bool guards_hold(const Call& call) const;
  cuda::Address first_guard() const;
  cuda::Address combined_guard(const Call& call, cuda::Address first);
  bool worth_forking(const Call& call, size_t from, size_t to) const;
  const char* place(const Launch& l) const;

  const Plan& plan_;
  CudaDevice& device_;
  const CudaOptions& options_;
  std::unique_ptr<CudaModules> modules_, own_;  // the image's, and the runtime's where it is needed
  std::unique_ptr<CudaProducts> products_;      // where the plan has such builtins
  std::vector<CudaFunction*> functions_;        // by Plan::kernels; null for builtins
  std::vector<std::string> names_;              // by launch
  bool host_guards_ = false;                    // ranks agree on what a guard decides
};

}  // namespace kiln
