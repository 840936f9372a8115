// SPDX-License-Identifier: Apache-2.0
// Loop IR -> one CUDA kernel: a block for each task, threads on neighbouring columns, rows on groups of
// threads. Says what the layout decided in the words of prelude/cuda.h. Must not know graphs.
#pragma once

#include <string>

#include "codegen/cuda_target.h"
#include "codegen/schedule.h"
#include "ir/kernel_image.h"
#include "ir/loop.h"

namespace kiln {

/// A kernel as source, and what a launch of it needs.
struct CudaLoopKernel {
  CudaKernel kernel;  ///< symbol: k_<hash of the text>
  std::string text;   ///< includes "kiln_cuda.h" and nothing else
  Dim tasks;
  Dim scratch_bytes;      ///< dynamic shared memory
  bool in_place = false;  ///< every element is loaded, by the thread that then stores its place
  int64_t per_task = 1;   ///< elements of a task of a flat kernel
};

/// Throws: unsupported, for an op without a body.
CudaLoopKernel write_cuda_kernel(const loop::Kernel& kernel, const CudaTarget& target,
                                 const RowSchedule& schedule = {});
/// A kernel made by loop::any_size, for launches of up to CudaKernel::parts parts, of which two must have
/// room.
CudaLoopKernel write_cuda_parts(const loop::Kernel& kernel, const CudaTarget& target);

}  // namespace kiln
