// SPDX-License-Identifier: Apache-2.0
// The rows of torch.nn.functional.
#include "tests/golden/eval.h"

namespace kiln::golden {

std::span<const Function> nn_functions() { return {}; }

}  // namespace kiln::golden
