// SPDX-License-Identifier: Apache-2.0
// What layers begin with unless told otherwise. Bodies only.
#pragma once

#include <cmath>
#include <utility>

#include "frontend/ops.h"

namespace kiln::nn::detail_init {

/// Uniform in +-1/sqrt(fan in); zeros where nothing comes in.
/// Source: torch.nn.init.kaiming_uniform_ with a = sqrt(5).
inline Tensor initial(Sizes sizes, int64_t fan_in) {
  NoGrad guard;
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return (rand(std::move(sizes)) * 2.0 - 1.0) * bound;
}

}  // namespace kiln::nn::detail_init
