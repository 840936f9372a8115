// SPDX-License-Identifier: Apache-2.0
// The narrow form in which a mean over ranks travels: the two ends of all_reduce_mean. The sum between them
// is any engine's.
#pragma once

#include <cstdint>

#include "ir/base/dtype.h"

namespace kiln {

/// to[i] = from[i] / ranks, rounded to `wire` before the division and after it: what a rank adds to the mean.
/// NaN and infinities stay; what f16 cannot hold becomes infinite. `dtype` is a floating one; f64 is rounded
/// to f32 first.
/// Source: torch.distributed.algorithms.ddp_comm_hooks.default_hooks, _compress_hook.
void encode_mean(const void* from, DType dtype, void* to, DType wire, int64_t count, int ranks);

/// to[i] = from[i], which is exact.
void decode(const void* from, DType wire, void* to, DType dtype, int64_t count);

}  // namespace kiln
