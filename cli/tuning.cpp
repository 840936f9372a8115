// SPDX-License-Identifier: Apache-2.0
#include "cli/tuning.h"

#include "ir/base/options.h"
#include "runtime/thread_pool.h"

namespace kiln::cli {

ScheduleChoices schedules_of(const JobProgram& p, const CpuTarget& target, DiskCache& cache, TuneLevel level,
                             int threads, TuneStats* stats) {
  TuneOptions o{level, static_cast<double>(option_int("KILN_TUNE_BUDGET_S"))};
  o.threads = threads > 0 ? threads : p.threads > 0 ? p.threads : default_threads();
  return choose_schedules(p.graph, p.layouts, target, &cache, o, stats);
}

}  // namespace kiln::cli
