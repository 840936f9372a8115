// SPDX-License-Identifier: Apache-2.0
// Compiled kernels as plain data: the contract between codegen (makes them) and runtime (loads them).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln {

/// Signature of every CPU kernel and of every runtime builtin.
/// `buffers`: one pointer per kernel parameter, in order (0-d scalars are pointers too).
/// `dims`: the values of the symbolic sizes the kernel uses, in order.
/// Runs tasks [task_begin, task_end) of the launch. Tasks are independent; which thread runs one never
/// changes a bit of the result. `scratch` is private to the calling thread, 64-byte aligned, and as large
/// as the launch declares.
extern "C" {
typedef void (*KernelFn)(void* const* buffers, const int64_t* dims, int64_t task_begin, int64_t task_end,
                         void* scratch);
}

/// One CUDA kernel as a launch needs to know it. It has one parameter, a block of
///   void* buffers[max(1, buffer_count)]; int64_t dims[max(1, dim_count)]; const int64_t* guard;
/// and does nothing where `guard` is not null and `*guard` is not kNothingWrong (ir/plan.h). A launch has one
/// block for each task, of `threads` threads, and as many bytes of dynamic shared memory as its plan gives
/// for scratch. Buffers start at multiples of 16 bytes.
///
/// A kernel with `parts` does up to so many in one launch, each with blocks, buffers and dims of its own. Its
/// parameter is a block of
///   int64_t first[parts];  // block of each part, increasing from 0; INT64_MAX for those that there are not
///   void* buffers[parts][max(1, buffer_count)]; int64_t dims[parts][max(1, dim_count)];
///   const int64_t* guard;
struct CudaKernel {
  std::string symbol;
  int threads = 0;
  int buffer_count = 0, dim_count = 0;
  int parts = 0;
  // As the compiler printed them; -1 where no machine code was made.
  int registers = -1;
  int spill_bytes = -1;   ///< stored and loaded
  int static_shared = 0;  ///< bytes beside the dynamic ones
  bool operator==(const CudaKernel&) const = default;
};

/// Words of 8 bytes of one part's buffers and dims.
constexpr int words_of_part(int buffers, int dims) {
  return (buffers > 1 ? buffers : 1) + (dims > 1 ? dims : 1);
}
/// How many parts fit into what any device takes as parameters, 4 KiB, with the guard.
constexpr int most_parts(int buffers, int dims) {
  return (4096 / 8 - 1) / (words_of_part(buffers, dims) + 1);
}
/// Words of a kernel's parameter block.
constexpr int parameter_words(const CudaKernel& k) {
  const int part = words_of_part(k.buffer_count, k.dim_count);
  return (k.parts > 0 ? k.parts * (part + 1) : part) + 1;
}

/// The kernels of one CUDA source.
struct CudaModule {
  std::string name;    ///< a file name, for diagnostics
  std::string source;  ///< includes "kiln_cuda.h", and "cuda_matmul.h" if it needs it, and nothing else
  std::string cubin;   ///< machine code; empty where only the simulated device is meant to run it
  std::vector<CudaKernel> kernels;
  bool operator==(const CudaModule&) const = default;
};

/// One linked batch of kernels.
struct KernelImage {
  std::string target;                ///< canonical target text, e.g. "x86_64-znver4+avx512f..." or "sm_90a"
  std::vector<std::string> symbols;  ///< exported kernel names
  std::string bytes;                 ///< an ELF shared object (CPU)
  std::vector<CudaModule> modules;   ///< CUDA
};

}  // namespace kiln
