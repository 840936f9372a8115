// SPDX-License-Identifier: Apache-2.0
// The search for the schedule of one kernel, trial by trial. Measures nothing itself, and knows no clock.
#pragma once

#include <optional>
#include <string>

#include "autotune/record.h"
#include "autotune/space.h"
#include "autotune/trial.h"

namespace kiln {

/// Threads: one.
class Search {
 public:
  /// `settled`: the numeric part that the result must have, unless it is empty. Where it is, a narrow search
  /// keeps that of the rules: what it finds changes no bit. A wide one goes on around each winner, and may
  /// choose another.
  Search(const TunableKernel& k, SpaceSize size, const std::string& settled);

  /// What to try next, the best so far first. Of one schedule alone: nothing is left.
  const Trial& trial() const { return trial_; }
  /// What came of it; a next trial may follow.
  void note(const TrialResult& result);
  /// What was found; nothing while no candidate could be compared.
  std::optional<TuneRow> found() const;

 private:
  void go_on_from(const std::string& best);

  ScheduleSpace space_;
  const SpaceSize size_;
  std::string numbers_;  // of all candidates; empty: any
  Trial trial_;
  TuneRow row_;
};

}  // namespace kiln
