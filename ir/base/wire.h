// SPDX-License-Identifier: Apache-2.0
// What numbers may be sent as between ranks: what the op, the plan and the runtime agree on.
#pragma once

#include "ir/base/dtype.h"

namespace kiln {

/// Whether numbers of another dtype can be sent as `t`: the half formats.
constexpr bool is_wire(DType t) { return t == DType::f16 || t == DType::bf16; }

}  // namespace kiln
