// SPDX-License-Identifier: Apache-2.0
// What `kiln explain` says of a program for CUDA: kernels as the compiler made them, how many blocks of each
// run side by side, and how long they take on GPUs that are not here.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/explain_plan.h"
#include "codegen/job.h"
#include "codegen/program.h"

namespace kiln::cli {

/// One launch in numbers; registers and spills are -1 where no machine code was made.
struct CudaRow : LaunchFacts {
  std::string symbol;
  int64_t shared_bytes = 0;
  int threads = 0, registers = -1, spill_bytes = -1;
  double occupancy = 0;    ///< share of the warps that a processor could run
  std::string limit;       ///< of the occupancy
  std::vector<double> us;  ///< on each GPU of gpu_specs()
  std::string bound;       ///< on the GPU of the target's own architecture, else the last
  std::string unit = "-";  ///< that computes: f32, f64, tf32 or half
};

/// A program compiled for a GPU architecture, its sizes known.
class CudaExplained {
 public:
  /// Makes machine code if NVRTC is there. Throws: unsupported, for sizes that are known only at a call; what
  /// compile_program throws.
  CudaExplained(const JobProgram& p, const LowerOptions& lower, const CudaTarget& target, DiskCache& cache);
  std::string text(size_t index) const;
  nlohmann::ordered_json json() const;
  /// Why no machine code was made; "" if it was.
  const std::string& no_compiler() const { return no_compiler_; }

 private:
  CudaExplained(const JobProgram& p, const LowerOptions& lower, const CudaTarget& target,
                CompiledProgram compiled);
  CudaRow row_of(const Launch& l) const;
  void judge(CudaRow& row, const Launch& l) const;
  std::string launches_text() const;
  std::string row_text(const CudaRow& row) const;
  std::string predicted_text() const;
  std::vector<double> sums() const;

  const JobProgram& program_;
  LowerOptions options_;
  CudaTarget target_;
  KernelImage image_;
  int kernels_ = 0;
  ExplainedPlan plan_;
  std::vector<CudaRow> rows_;
  std::string compiler_, no_compiler_;  ///< "NVRTC 13.0", or why there is none
};

}  // namespace kiln::cli
