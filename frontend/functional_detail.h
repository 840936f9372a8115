// SPDX-License-Identifier: Apache-2.0
// Pieces of the bodies of functional.cpp that others are written in, too. Bodies only, never events.
#pragma once

#include "frontend/ops_detail.h"

namespace kiln::detail {

/// exp(x - max) / sum over the last dim; rows that are -inf all over give zeros, as PyTorch's safe softmax
/// does.
Tensor safe_softmax(const Tensor& scores);
/// Each head of [..., heads, t, d] as often as makes `heads`.
Tensor repeat_heads(const Tensor& x, int64_t heads);

}  // namespace kiln::detail
