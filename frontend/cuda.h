// SPDX-License-Identifier: Apache-2.0
// The GPUs of this process. Names and semantics are torch.cuda's. KILN_CUDA_DRIVER=sim puts a simulated one
// in their place.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/base/device.h"

namespace kiln {

/// What matrix products of f32 tensors are made of in programs of a GPU: "highest" is f32, "high" rounds the
/// factors to tf32, which tensor cores take. "medium", where PyTorch may go down to bf16, is "high": the
/// precision is at least what was asked for. The process's; compiled callables build anew when it changes.
/// Source: torch.set_float32_matmul_precision. Throws: invalid.
void set_float32_matmul_precision(std::string_view precision, SourceLoc loc = SourceLoc::current());
/// "highest" (the default), or "high", also after "medium".
std::string_view get_float32_matmul_precision();

}  // namespace kiln

namespace kiln::cuda {

/// Whether there is a driver and a GPU. Never throws.
bool is_available();
/// 0 where is_available() is false.
int device_count();
/// Blocks: until all that was launched on the GPU is done. Throws: device, when there is no such GPU, or what
/// it ran has failed.
void synchronize(int index = 0, SourceLoc loc = SourceLoc::current());
/// Bytes of tensors and of compiled programs on the GPU: now, and the most there were.
int64_t memory_allocated(int index = 0);
int64_t max_memory_allocated(int index = 0);

}  // namespace kiln::cuda
