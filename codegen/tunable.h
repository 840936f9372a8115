// SPDX-License-Identifier: Apache-2.0
// The kernels of a program that something may be chosen about, and each of them as a program of its own, so
// that it can be run apart. Chooses nothing.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel_case.h"
#include "codegen/lower.h"

namespace kiln {

/// A kernel of static sizes as one program launches it.
struct TunableKernel {
  /// Memory that the kernel is given.
  struct Buffer {
    DType dtype = DType::f32;
    int64_t bytes = 0;
    bool read = false, written = false;
  };
  KernelCase what;
  std::string key, id;          ///< kernel_key and kernel_id
  std::vector<Buffer> buffers;  ///< each once
  std::vector<int> args;        ///< per parameter, but for a workspace: which buffer
  double bytes = 0, flops = 0;  ///< of one launch
  int launches = 0;             ///< in the program
};

/// The tunable kernels of `g`, each once, in the order of their first launches. Arguments and throws: as of
/// lower.
std::vector<TunableKernel> tunable_kernels(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                           const CpuTarget& target);

/// What the rules choose, as text.
std::string default_schedule(const TunableKernel& k);

/// The kernel with this schedule as a program whose external slots are `k.buffers`: of several launches where
/// the schedule has a library do a matmul, or its epilogue apart.
/// Throws: internal, for a schedule that does not fit the kernel.
LoweredProgram lower_alone(const TunableKernel& k, const std::string& schedule, const CpuTarget& target);

}  // namespace kiln
