// SPDX-License-Identifier: Apache-2.0
// How the tensors of one collective lie in its flat memory: what the op's type rule, whoever reads the
// result, and the lowering agree on.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"

namespace kiln {

/// Units: elements. Each piece is row-major at its offset, a multiple of 64 bytes; what lies between is
/// padding.
struct BucketLayout {
  std::vector<Dim> offsets;
  Dim total = 0;
};
/// `pieces` have one dtype.
BucketLayout bucket_layout(std::span<const Type> pieces);

}  // namespace kiln
