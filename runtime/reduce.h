// SPDX-License-Identifier: Apache-2.0
// The arithmetic of reducing collectives, the same for every backend: the order of the operands is the
// caller's, and so are the bits of the result.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/base/dtype.h"
#include "runtime/collective.h"

namespace kiln {

/// out[i] = parts[0][i] op parts[1][i] op ..., from left to right, for `count` elements; f16 and bf16 are
/// reduced in f32 and rounded once, integers wrap around, min and max keep a NaN. `out` may be one of the
/// parts, but not overlap one otherwise. There is at least one part. Not for bool.
void reduce_parts(const std::vector<const void*>& parts, void* out, int64_t count, DType dtype, ReduceOp op);

}  // namespace kiln
