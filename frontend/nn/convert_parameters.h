// SPDX-License-Identifier: Apache-2.0
// All parameters as one vector, and back. Source: torch.nn.utils.
#pragma once

#include <vector>

#include "frontend/tensor.h"

namespace kiln::nn {

/// The elements of all parameters one after the other, with their history. Shapes: -> [number of elements].
/// Throws: invalid, without parameters, and where devices or dtypes differ.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters, Loc loc = Loc::current());
/// Writes the elements of `vector` into the parameters, without being recorded for backward. Throws: invalid,
/// unless it has as many elements as they have together.
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters,
                          Loc loc = Loc::current());

}  // namespace kiln::nn
