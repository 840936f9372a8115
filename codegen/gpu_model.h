// SPDX-License-Identifier: Apache-2.0
// How long a kernel takes on a GPU that is not here, from what it moves, computes and occupies: figures to
// compare kernels and find what limits them, not measurements. Runs nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "codegen/cuda_target.h"

namespace kiln {

/// What one block of a kernel takes of a multiprocessor.
struct BlockNeeds {
  int threads = 0;
  int registers = 0;         ///< of a thread; 0 if they are not known
  int64_t shared_bytes = 0;  ///< static and dynamic
};

/// How many blocks of a kernel a multiprocessor runs at once.
struct Occupancy {
  int blocks = 0;               ///< 0: the kernel cannot run
  double share = 0;             ///< of the warps that it could run
  std::string_view limit = {};  ///< "threads", "blocks", "registers" or "shared memory"
};

/// Source: CUDA's cuda_occupancy.h; the driver keeps 1 KiB of shared memory for each block.
Occupancy occupancy(const BlockNeeds& block, const CudaTarget& target);

/// A GPU by its data sheet. Units: GB/s of 10^9, TFLOP/s of 10^12 without sparsity, us.
struct GpuSpec {
  std::string_view name;
  std::string_view arch;  ///< what its kernels are compiled for
  int multiprocessors;
  double memory_gbs;
  double f32_tflops, f64_tflops;    ///< of the ordinary units
  double tf32_tflops, half_tflops;  ///< of the tensor cores
  double launch_us;                 ///< from the end of a kernel to the start of the next, in a stream
};

/// A100 80 GB SXM, H100 SXM, B200. Source: NVIDIA's data sheets of 2021, 2023 and 2025.
std::span<const GpuSpec> gpu_specs();

/// Which units compute a kernel.
enum class MathUnit : uint8_t { f32, f64, tf32, half };
const char* name_of(MathUnit unit);

/// One launch.
struct KernelWork {
  double bytes = 0, flops = 0;  ///< that must move, and be computed
  int64_t blocks = 0;
  BlockNeeds block;
  MathUnit unit = MathUnit::f32;
};

struct Prediction {
  double us = 0;           ///< infinite: no block of the kernel has room on the GPU
  std::string_view bound;  ///< "memory", "compute" or "launch": what most of the time goes to; "no room"
  double waves = 0;        ///< blocks over those that run at once
};

/// The longer of moving and computing, plus the launch. Both are slowed where blocks are too few to fill the
/// GPU: computing by the idle part of the last wave, moving where the threads that run keep too few loads in
/// flight to cover the memory's latency (Little's law).
Prediction predict(const KernelWork& work, const Occupancy& occupancy, const GpuSpec& gpu);

}  // namespace kiln
