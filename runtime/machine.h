// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured: the floor that step times and kernels are compared with.
#pragma once

namespace kiln {

/// Measured limits for a number of threads; 0 means not measured.
struct MachineLimits {
  int threads = 1;
  double flops_per_s = 0;  ///< f32 multiply-adds, two FLOPs each, in the widest vectors that pay
  double bytes_per_s = 0;  ///< copy, bytes read plus bytes written

  /// Seconds that the work cannot go below: the slower of arithmetic and memory, which may overlap.
  double seconds(double bytes, double flops) const;
};

/// Measures (about 0.4 s) on the first call for a number of threads, then remembers. 0 is default_threads().
/// Threads: any. Blocks: others that measure.
MachineLimits machine_limits(int threads = 0);

}  // namespace kiln
