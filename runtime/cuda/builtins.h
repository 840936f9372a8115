// SPDX-License-Identifier: Apache-2.0
// The runtime's own CUDA kernels, for what the driver's copies and fills cannot do: look at a guard, and
// convert.
#pragma once

#include "ir/kernel_image.h"

namespace kiln {

/// "kiln_all_hold": buffers {result, guards...}, up to kMostGuards of them, dims {guards}. The result is
/// kNothingWrong, or what the first guard that does not hold is. One block.
/// "kiln_copy": buffers {from, to}, dims {bytes}. "kiln_fill_zero": buffers {to}, dims {bytes}. Any number of
/// blocks.
CudaModule cuda_builtins();

/// "kiln_cast": buffers {from, to}, dims {elements, dtype of from, dtype of to, ranks}, floating dtypes as
/// DType numbers them. f64 by way of f32. Where ranks > 0, elements are rounded to the second dtype, which is
/// a half, divided by ranks, and rounded again. Any number of blocks.
CudaModule cuda_cast();

inline constexpr int kMostGuards = 15;

}  // namespace kiln
