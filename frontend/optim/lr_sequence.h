// SPDX-License-Identifier: Apache-2.0
// Schedules made of others: one after the other, or all at once.
#pragma once

#include <memory>
#include <vector>

#include "frontend/optim/lr_scheduler.h"

namespace kiln::optim {

/// One after the other: schedulers[k] from milestones[k - 1] on, each from its own epoch 0.
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
               std::vector<int64_t> milestones);
  void step(Loc loc = Loc::current()) override;

 protected:
  void restart() override;
  double rate(size_t group) const override { return lr(group); }
  Numbers save() const override;
  void load(const Numbers& numbers) override;

 private:
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<int64_t> milestones_;
};

/// All of them at every step: their factors multiply.
class ChainedScheduler : public Scheduler {
 public:
  explicit ChainedScheduler(std::vector<std::shared_ptr<LRScheduler>> schedulers);
  void step(Loc loc = Loc::current());

 protected:
  Numbers save() const override;
  void load(const Numbers& numbers) override;

 private:
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
};

}  // namespace kiln::optim
