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

/// One linked batch of kernels.
struct KernelImage {
  std::string target;                ///< canonical target text, e.g. "x86_64-znver4+avx512f..."
  std::vector<std::string> symbols;  ///< exported kernel names
  std::string bytes;                 ///< an ELF shared object (CPU)
};

}  // namespace kiln
