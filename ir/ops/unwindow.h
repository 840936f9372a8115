// SPDX-License-Identifier: Apache-2.0
// Gradients of windows without the windows. What a contraction gives to the places of windows is added up
// where windows overlap; where the contraction is known, the sums are a contraction of their own, over
// windows of its operand: nothing is stored for each place, and nothing is added up in memory.
#pragma once

#include "ir/op.h"

namespace kiln::detail {

/// Element t of the result is the sum over k of g[i, k] with i * step + k * dilation == t; dims `dim` and
/// dim + 1 of `g` become one of `n` elements. Step or dilation must be 1. Invalid where `g` does not come
/// from a contraction of two such dims, where windows do not overlap, or where columns of the new product
/// would fill no vector. Source: implicit GEMM of cuDNN's backward data convolution, one product for each
/// phase of the step.
Value unwindowed(Builder& b, Value g, size_t dim, int64_t step, int64_t dilation, const Dim& n);

/// Elements [low, low + size) of dim `dim`, computed alone where `x` comes from a contraction that they can
/// be followed to, from unwindowed() among them. Else invalid.
Value narrowed(Builder& b, Value x, size_t dim, int64_t low, int64_t size);

}  // namespace kiln::detail
