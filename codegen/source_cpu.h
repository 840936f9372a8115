// SPDX-License-Identifier: Apache-2.0
// Loop IR -> one C++ kernel for the CPU: rows over tasks, column loops of vectors. Decides phases, scratch
// and accumulators, all from the kernel's text and the target, never from a thread count. Must not know
// graphs.
#pragma once

#include <string>

#include "codegen/cpu_target.h"
#include "codegen/schedule.h"
#include "ir/loop.h"

namespace kiln {

/// A kernel as source, and what a launch of it needs.
struct CpuKernel {
  std::string symbol;  ///< k_<hash of the canonical text and the vector width>
  std::string text;    ///< includes "kiln_cpu.h" and nothing else
  Dim tasks;
  Dim scratch_bytes;      ///< per thread
  bool in_place = false;  ///< every element is loaded before its place is stored: may work in place
  int64_t per_task = 1;   ///< elements of a task of a flat kernel
};

/// Throws: unsupported, for an op without a body.
CpuKernel write_cpu_kernel(const loop::Kernel& kernel, const CpuTarget& target,
                           const RowSchedule& schedule = {});

}  // namespace kiln
