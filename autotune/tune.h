// SPDX-License-Identifier: Apache-2.0
// Chooses the schedules of a program's kernels: what earlier runs found, what other ranks find, and, for the
// rest, what measuring says within a time limit. Compiles no program and keeps none.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autotune/share.h"
#include "autotune/tuning_file.h"
#include "codegen/disk_cache.h"
#include "codegen/tunable.h"

namespace kiln {

enum class TuneLevel : uint8_t {
  off,    ///< what the rules choose
  known,  ///< what earlier runs found; measures and keeps nothing, and asks no rank
  fast,   ///< a few candidates per kernel that takes long enough to matter, all with the bits of the rules'
          ///< choice
  /// Many, also such as sum in another order, searched for around each winner. Each kernel is tried in a
  /// process of its own: a candidate that crashes or hangs costs itself alone.
  max,
};

struct TuneOptions {
  TuneLevel level = TuneLevel::off;
  double budget_s = 1;    ///< for compiling and measuring candidates; kernels beyond it keep their defaults
  double kernel_s = 0.5;  ///< about, for the timings of one kernel's trial
  int64_t memory = int64_t{1} << 30;  ///< bytes that operands of a trial may take; larger kernels have none
  int threads = 1;                    ///< that the program will run on
  /// Unless it is null: all that is chosen by. Nothing is measured, and no rank is asked, at any level.
  std::shared_ptr<const TuningFile> replay;
  /// Ranks that share, as in ShareOptions; alone without a store.
  std::shared_ptr<Store> store;
  int rank = 0, size = 1;
  std::string prefix;
  /// False: ranks need not build this program. It then shares with those that build the same one, and tunes
  /// alone once the store cannot be reached.
  bool all_build = true;
  /// Called before candidates are compiled or measured, unless it is empty; ends tuning by what it throws.
  std::function<void()> go_on;
  /// Called after each kernel that was measured here, unless it is empty: so many, of so many at most.
  std::function<void(int done, int all)> progress;
};

/// "off", "fast" or "max". Throws: invalid, for other words.
TuneLevel parse_tune_level(std::string_view word);
/// Options of a level, with the limits that KILN_TUNE_BUDGET_S and KILN_TUNE_MEMORY_MB say.
TuneOptions tune_options(TuneLevel level);

/// What choosing did.
struct TuneStats {
  int kernels = 0;                                        ///< that something could be chosen about
  int tuned = 0;                                          ///< measured now, here
  int found = 0;                                          ///< known from an earlier run
  int received = 0;                                       ///< found by other ranks
  double measure_seconds = 0;                             ///< compiling and timing candidates here
  double exchange_seconds = 0;                            ///< asking, and waiting for, other ranks
  double seconds = 0;                                     ///< in all
  std::map<std::string, TuneRow, std::less<>> rows = {};  ///< what is chosen by, by kernel_id
};

/// Schedules of kernels of `g` that are not to have their default. Rows are read from and kept in `cache`
/// (may be null). With a store all ranks get the same for the same kernel. A target that does not run here
/// gets what was found, and is not measured. Arguments and throws: as of lower and share_choices.
ScheduleChoices choose_schedules(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                 const CpuTarget& target, DiskCache* cache, const TuneOptions& options,
                                 TuneStats* stats = nullptr);

}  // namespace kiln
