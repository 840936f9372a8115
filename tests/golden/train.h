// SPDX-License-Identifier: Apache-2.0
// What the training goldens share: optimizers by name and arguments of the file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/optim/optimizer.h"
#include "tests/golden/support.h"

namespace kiln::golden {

/// torch.optim's class of that name. Throws: Unsupported, for another class or an argument it does not take.
std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const Json& args,
                                                 std::vector<Tensor> params);

}  // namespace kiln::golden
