// SPDX-License-Identifier: Apache-2.0
// One case of ops.json: the expression that PyTorch evaluated, forward and backward.
#pragma once

#include <string>

#include "tests/golden/support.h"

namespace kiln::golden {

/// What differs from what the case expects, or "". Throws: what the expression throws.
std::string run_ops_eagerly(const Json& one);
/// The same, compiled: built, then followed twice more.
std::string run_ops_compiled(const Json& one);

}  // namespace kiln::golden
