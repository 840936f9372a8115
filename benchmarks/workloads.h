// SPDX-License-Identifier: Apache-2.0
// The workloads of benchmarks/peers, with the same weights, data and losses, as Kiln programs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frontend/kiln.h"

namespace kiln {
class ProcessGroup;
}

namespace kiln::bench {

/// One training step of a workload, eager or compiled.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Runs a step and returns its loss.
  virtual double step() = 0;
  virtual CallableStats stats() const = 0;
  /// Elements of all parameters.
  virtual int64_t parameter_count() const = 0;
  /// Norms of the gradients of the last step (pointwise), else nothing.
  virtual std::vector<std::pair<std::string, double>> gnorm() const { return {}; }
};

const std::vector<std::string>& workload_names();
struct WorkloadOptions {
  bool compiled = true;
  int threads = 1;
  bool profile = false;
  std::shared_ptr<ProcessGroup> group;  ///< null: one process. Ranks have data of their own
  double bucket_cap_mb = 25;
  nn::GradientCompression compression = nn::GradientCompression::none;
  int64_t batches = 1;  ///< in one step: each rank's batch is as many times the workload's
  Device device;        ///< of parameters and data
  bool graphs = false;  ///< compiled steps are replayed as CUDA graphs
  int64_t activation_memory = 0;  ///< as of CompileOptions
  int rank() const;
};
/// Throws: invalid, on an unknown name.
std::unique_ptr<Workload> make_workload(const std::string& name, const WorkloadOptions& options);

}  // namespace kiln::bench
