// SPDX-License-Identifier: Apache-2.0
// Schedules of recorded programs, which a job does not hold: they are the machine's that the run is for.
#pragma once

#include <vector>

#include "autotune/tune.h"
#include "codegen/job.h"

namespace kiln::cli {

/// How many threads to take `p` to run on: `asked`, or, for 0, each number that its runs had, in order.
std::vector<int> thread_counts(const JobProgram& p, int asked);

/// What a run of `p` on `threads` threads is given: with TuneLevel::known by what the cache holds, with fast
/// after measuring what it does not. Throws: as of choose_schedules.
ScheduleChoices schedules_of(const JobProgram& p, const Target& target, DiskCache& cache, TuneLevel level,
                             int threads, TuneStats* stats = nullptr);

}  // namespace kiln::cli
