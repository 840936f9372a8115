// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/lr_sequence.h"

#include <algorithm>

namespace kiln::optim {

namespace {

using Schedulers = std::vector<std::shared_ptr<LRScheduler>>;

/// The optimizer that all of them have. Throws: invalid.
Optimizer& shared_optimizer(const Schedulers& all, const char* who) {
  KILN_CHECK(!all.empty(), invalid, "{}: no schedulers", who);
  for (size_t k = 0; k < all.size(); ++k) {
    KILN_CHECK(all[k], invalid, "{}: scheduler {} is null", who, k);
    KILN_CHECK(&all[k]->optimizer() == &all[0]->optimizer(), invalid,
               "{}: scheduler {} has another optimizer than scheduler 0", who, k);
  }
  return all[0]->optimizer();
}

std::string prefix_of(size_t k) { return fmt::format("schedulers.{}.", k); }

}  // namespace

SequentialLR::SequentialLR(Optimizer& optimizer, Schedulers schedulers, std::vector<int64_t> milestones)
    : LRScheduler(optimizer, "SequentialLR"),
      schedulers_(std::move(schedulers)),
      milestones_(std::move(milestones)) {
  KILN_CHECK(&shared_optimizer(schedulers_, name_) == &optimizer, invalid,
             "SequentialLR: the schedulers have another optimizer");
  KILN_CHECK(milestones_.size() + 1 == schedulers_.size(), invalid,
             "SequentialLR: got {} milestones for {} schedulers, expected {}", milestones_.size(),
             schedulers_.size(), schedulers_.size() - 1);
  KILN_CHECK(std::is_sorted(milestones_.begin(), milestones_.end()), invalid,
             "SequentialLR: the milestones [{}] do not ascend", fmt::join(milestones_, ","));
  SequentialLR::restart();
}

void SequentialLR::restart() {
  last_epoch_ = 0;
  schedulers_[0]->restart();
  note_rates();
}

void SequentialLR::step(Loc loc) {
  ++last_epoch_;
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
  LRScheduler& now = *schedulers_[static_cast<size_t>(passed - milestones_.begin())];
  if (passed != milestones_.begin() && passed[-1] == last_epoch_) now.restart();
  else now.step(loc);
  note_rates();
}

Scheduler::Numbers SequentialLR::save() const {
  Numbers out = LRScheduler::save();
  for (size_t k = 0; k < schedulers_.size(); ++k)
    for (const auto& [name, values] : schedulers_[k]->save()) out[prefix_of(k) + name] = values;
  return out;
}

void SequentialLR::load(const Numbers& numbers) {
  LRScheduler::load(numbers);
  for (size_t k = 0; k < schedulers_.size(); ++k) {
    Numbers own;
    for (const auto& [name, values] : schedulers_[k]->save()) own[name] = numbers.at(prefix_of(k) + name);
    schedulers_[k]->load(own);
  }
}

ChainedScheduler::ChainedScheduler(Schedulers schedulers)
    : Scheduler(shared_optimizer(schedulers, "ChainedScheduler"), "ChainedScheduler"),
      schedulers_(std::move(schedulers)) {
  note_rates();
}

void ChainedScheduler::step(Loc loc) {
  ++last_epoch_;
  for (const auto& s : schedulers_) s->step(loc);
  note_rates();
}

Scheduler::Numbers ChainedScheduler::save() const {
  Numbers out = Scheduler::save();
  for (size_t k = 0; k < schedulers_.size(); ++k)
    for (const auto& [name, values] : schedulers_[k]->save()) out[prefix_of(k) + name] = values;
  return out;
}

void ChainedScheduler::load(const Numbers& numbers) {
  Scheduler::load(numbers);
  for (size_t k = 0; k < schedulers_.size(); ++k) {
    Numbers own;
    for (const auto& [name, values] : schedulers_[k]->save()) own[name] = numbers.at(prefix_of(k) + name);
    schedulers_[k]->load(own);
  }
}

}  // namespace kiln::optim
