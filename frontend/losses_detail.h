// SPDX-License-Identifier: Apache-2.0
// Pieces that the losses share.
#pragma once

#include "frontend/functional.h"
#include "frontend/ops_detail.h"

namespace kiln::detail {

Tensor sum_all(const Tensor& x);
Tensor reduced(const Tensor& x, Reduction r);
/// max(0, x), of which the gradient at 0 is 0.
Tensor hinge(const Tensor& x);

}  // namespace kiln::detail
