// SPDX-License-Identifier: Apache-2.0
// How a loop kernel lies on the threads of CUDA blocks: elements at once, threads of a row, rows of a block,
// where values wait between passes. All from the kernel's text, the target and the schedule. Prints nothing.
#pragma once

#include <vector>

#include "codegen/cuda_target.h"
#include "codegen/schedule.h"
#include "codegen/source_phases.h"
#include "ir/loop.h"

namespace kiln::detail {

/// Where a value waits that later passes over a row read back. Either way a thread reads what it wrote.
enum class SavedIn : uint8_t { registers, shared };

/// A block is `rows` groups of `group` threads; a group works on one row at a time, thread i of it on chunks
/// i, i + group, ... of `width` neighbouring columns.
struct CudaLayout {
  int width = 1;         ///< a power of two: every access of neighbours is a multiple of so many elements
  int group = 1;         ///< a power of two
  int rows = 1;          ///< a power of two
  int steps = 0;         ///< chunks of a thread, unrolled; 0: a loop, for many or an unknown number
  bool whole = false;    ///< all threads have as many chunks as steps
  int unroll = 1;        ///< of the loop
  int accumulators = 1;  ///< vectors that a reduction sums side by side
  Dim chunks;            ///< of a row
  int tile = 0;          ///< chunks of a row that a block works on; 0: all, else group * steps
  Dim rows_per_task;
  bool wide = true;               ///< indices need 64 bits
  bool sums_in_registers = true;  ///< partial results by column; else in their places in memory
  std::vector<SavedIn> saved;     ///< per instruction
  Phases phases;

  int threads() const { return group * rows; }
};

/// Of a kernel that is not flat.
CudaLayout choose_cuda_layout(const loop::Kernel& k, const CudaTarget& target, const RowSchedule& schedule);
/// Of one that is: `steps` chunks of each of `rows` threads.
CudaLayout choose_flat_layout(const loop::Kernel& k, const RowSchedule& schedule);

}  // namespace kiln::detail
