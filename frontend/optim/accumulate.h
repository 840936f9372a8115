// SPDX-License-Identifier: Apache-2.0
// Gradient accumulation: one optimizer step for several micro-batches.
#pragma once

#include <memory>

#include "frontend/optim/optimizer.h"

namespace kiln::optim {

/// An optimizer that steps at every `steps`-th micro-batch, with the mean of their gradients. In a compiled
/// callable, a call of which is one micro-batch,
///
///     accumulate.backward(loss(x, y));
///     if (accumulate.ready()) clip_grad_norm_(optimizer.params(), 1);
///     accumulate.step();
///
/// builds three times, however many micro-batches there are: without gradients to add to, with them, and
/// with the step (twice for 2, once for 1). A callable that loops over all of them builds once.
class GradientAccumulation {
 public:
  /// Throws: invalid, for steps < 1. The optimizer must outlive this.
  GradientAccumulation(Optimizer& optimizer, int64_t steps);

  /// Adds the gradients of loss / steps.
  void backward(const Tensor& loss, Loc loc = Loc::current()) const;
  /// Whether step() will step the optimizer: this micro-batch is the last one.
  bool ready() const { return *done_ + 1 == steps_; }
  /// Counts a micro-batch. With the last one, steps the optimizer, drops the gradients and returns true.
  bool step(Loc loc = Loc::current());
  /// A step with what has been gathered, if there is anything: at the end of an epoch that does not divide.
  bool flush(Loc loc = Loc::current());

 private:
  void count(int64_t done);

  Optimizer& optimizer_;
  int64_t steps_;
  std::shared_ptr<int64_t> done_;  ///< micro-batches since the last step; calls may have to take some back
};

}  // namespace kiln::optim
