// SPDX-License-Identifier: Apache-2.0
// What the training goldens share: optimizers and schedules by name and arguments of the file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frontend/optim/optimizer.h"
#include "tests/golden/support.h"

namespace kiln::golden {

/// torch.optim's class of that name. Throws: Unsupported, for another class or an argument it does not take.
std::unique_ptr<optim::Optimizer> make_optimizer(const std::string& name, const Json& args,
                                                 std::vector<Tensor> params);

/// A scheduler of any kind; `step` takes a metric, which most do not look at.
struct Schedule {
  std::function<void(double)> step;
  std::function<std::vector<double>()> rates;
};
/// torch.optim.lr_scheduler's class of that name. Throws: Unsupported, for another one.
Schedule make_schedule(const std::string& name, const Json& args, optim::Optimizer& optimizer);

}  // namespace kiln::golden
