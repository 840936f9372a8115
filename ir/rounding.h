// SPDX-License-Identifier: Apache-2.0
// By how much right evaluations of one op may differ.
#pragma once

#include <span>

#include "ir/interpret.h"

namespace kiln {

/// What the rounding of the result of `n` is small against: of sums, the sums of the terms' magnitudes, since
/// terms that cancel leave the rounding of the terms; else the result itself. Shapes: like the result.
HostTensor rounding_terms(const Node& n, std::span<const HostTensor> operands, const HostTensor& result);

}  // namespace kiln
