// SPDX-License-Identifier: Apache-2.0
// The schedules worth trying for a kernel. From shape and target alone: no clock, no thread count.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/tunable.h"

namespace kiln {

/// How many values of a choice are worth a trial.
enum class SpaceSize : uint8_t { few, wide };

/// Schedules of one kernel, found from each other. `k` must outlive it. Threads: one.
class ScheduleSpace {
 public:
  explicit ScheduleSpace(const TunableKernel& k, SpaceSize size = SpaceSize::few);

  /// What the rules choose, and all that is used without tuning.
  const std::string& first() const { return first_; }
  /// What the rules choose to go with this numeric part of a schedule of the same kernel.
  std::string with_numbers(std::string_view numeric);
  /// Schedules that differ from `from` in one choice, and in what the rules choose to go with it. Each once,
  /// and none that was given before. `from` is one that was.
  std::vector<std::string> around(const std::string& from);

 private:
  void add(const MatmulWish& wish, std::vector<std::string>& out);
  void add(const BlisSchedule& s, std::vector<std::string>& out);
  void add(const RowSchedule& s, std::vector<std::string>& out);
  void around_blis(const BlisSchedule& from, std::vector<std::string>& out);
  void around_matmul(const MatmulWish& from, std::vector<std::string>& out);
  void add_blocks(MatmulWish wish, std::vector<std::string>& out);
  void add_packing(const MatmulWish& from, std::vector<std::string>& out);
  void add_splits(MatmulWish wish, std::vector<std::string>& out);
  void add_others(const MatmulWish& from, std::vector<std::string>& out);
  void around_rows(const RowSchedule& from, std::vector<std::string>& out);

  const TunableKernel& k_;
  const SpaceSize size_;
  std::string first_;
  std::map<std::string, MatmulWish> given_;  // all that was given; the wishes are empty but for the template
};

/// The first schedule of a kernel and what is around it. One alone: nothing to tune.
std::vector<std::string> candidate_schedules(const TunableKernel& k);

}  // namespace kiln
