// SPDX-License-Identifier: Apache-2.0
// Runs plans on a CUDA device: the same plans, calls and errors as runtime/executor.h, on the device's
// streams. run() puts work on the compute stream and returns; nobody waits but where a plan asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/kernel_image.h"
#include "ir/plan.h"
#include "runtime/cuda/device.h"
#include "runtime/executor.h"

namespace kiln {

/// How a plan is run on a device.
struct CudaOptions {
  /// Record the second call of a plan as a CUDA graph, and replay it from then on (runtime/cuda/graph.h).
  bool graphs = false;
  int max_graphs = 8;                        ///< of one plan: one for each set of sizes
  size_t max_graph_bytes = size_t{8} << 30;  ///< that the graphs of a device may hold beside the plan's own
  std::string name = "plan";                 ///< who holds the arena, for the out-of-memory text
  std::vector<std::string> places = {};      ///< the user's lines by row of Plan::profile, for errors
  /// CudaGuards' word, or 0. With it, no launch of the plan runs while it is not kNothingWrong, and it
  /// becomes what the first guard is that does not hold.
  cuda::Address word = 0;
};

/// Counters of one plan.
struct CudaGraphStats {
  int64_t recordings = 0, replays = 0, plain_calls = 0;
  size_t graphs = 0, bytes = 0;  ///< that it has now
};

/// A plan with its kernels on a device. Threads: any number of calls at once.
class CudaExecutable {
 public:
  /// Loads the kernels of `image`. Throws: device, if the device does not take them; internal, if the plan is
  /// unsound or a kernel is missing.
  CudaExecutable(Plan plan, const KernelImage& image, CudaDevice& device, CudaOptions options = {});
  ~CudaExecutable();
  CudaExecutable(const CudaExecutable&) = delete;
  CudaExecutable& operator=(const CudaExecutable&) = delete;

  /// Puts the whole plan on the compute stream. Externals and outputs are addresses of the device, scalars
  /// are values; all spans are read before it returns. Launches from Plan::guarded_from on do nothing where a
  /// guard does not hold: then no external has been written, which the caller sees in the guards. A plan with
  /// collectives behind guards waits for the guards, because ranks must agree on starting. With a profiler or
  /// a timeline it waits for the end. `threads` and `max_threads` mean nothing here. KILN_POISON as on the
  /// CPU. Throws: as Executable::run; device, with kernel and line, if a launch fails.
  void run(const Invocation& call);

  const Plan& plan() const;
  CudaDevice& device() const;
  /// Bytes of the arena for these sizes.
  int64_t arena_bytes(std::span<const int64_t> symbols) const;
  /// The evaluated table of Plan::dims for these sizes.
  std::vector<int64_t> dims(std::span<const int64_t> symbols) const;
  CudaGraphStats graph_stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
