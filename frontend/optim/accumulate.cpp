// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/accumulate.h"

#include "frontend/dispatch.h"
#include "frontend/frozen.h"
#include "frontend/ops.h"

namespace kiln::optim {

GradientAccumulation::GradientAccumulation(Optimizer& optimizer, int64_t steps)
    : optimizer_(optimizer), steps_(steps), done_(std::make_shared<int64_t>(0)) {
  KILN_CHECK(steps >= 1, invalid, "GradientAccumulation: steps is {}, expected at least 1", steps);
}

void GradientAccumulation::backward(const Tensor& loss, Loc loc) const {
  const Tensor share = mul(TensorArg(loss, loc), TensorArg(1 / static_cast<double>(steps_), loc));
  share.backward({}, false, loc);
}

void GradientAccumulation::count(int64_t done) {
  detail::note_count([at = done_, before = *done_] { *at = before; });
  *done_ = done;
}

bool GradientAccumulation::step(Loc loc) {
  detail::forbid_frozen("micro-batches of GradientAccumulation");
  count(*done_ + 1);
  return *done_ >= steps_ && flush(loc);
}

bool GradientAccumulation::flush(Loc loc) {
  if (*done_ == 0) return false;
  optimizer_.step(loc);
  optimizer_.zero_grad();
  count(0);
  return true;
}

}  // namespace kiln::optim
