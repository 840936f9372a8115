// SPDX-License-Identifier: Apache-2.0
// Runs a program of a job on this CPU with made-up operands, as a run would, and times it. Prints nothing.
#pragma once

#include <vector>

#include "cli/explain_plan.h"
#include "ir/kernel_image.h"

namespace kiln::cli {

struct MeasuredRun {
  int calls = 0;      ///< that were timed whole
  double call_s = 0;  ///< median of a call
  /// Median of each launch where all threads meet after each; below 0: a guard kept it from running whatever
  /// indices were made up.
  std::vector<double> launch_s;
};

/// For about `seconds`, half of them by calls and half launch by launch.
/// Throws: unsupported, for a program that communicates; device, when memory runs out.
MeasuredRun measure_run(const ExplainedPlan& plan, const KernelImage& image, int threads, double seconds);

}  // namespace kiln::cli
