// SPDX-License-Identifier: Apache-2.0
#include "cli/tuning.h"

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln::cli {

std::vector<int> thread_counts(const JobProgram& p, int asked) {
  return asked > 0 ? std::vector{asked} : std::vector(p.threads.begin(), p.threads.end());
}

ScheduleChoices schedules_of(const JobProgram& p, const Target& target, DiskCache& cache, TuneLevel level,
                             int threads, TuneStats* stats) {
  const auto* cpu = std::get_if<CpuTarget>(&target);
  KILN_CHECK(cpu, invalid, "--tune fast measures on the CPU that runs; got --target {}", str(target));
  TuneOptions o{level, static_cast<double>(option_int("KILN_TUNE_BUDGET_S"))};
  o.threads = threads;
  return choose_schedules(p.graph, p.layouts, *cpu, &cache, o, stats);
}

}  // namespace kiln::cli
