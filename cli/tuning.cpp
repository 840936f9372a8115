// SPDX-License-Identifier: Apache-2.0
#include "cli/tuning.h"

#include "cli/arguments.h"
#include "ir/base/error.h"

namespace kiln::cli {

void add_tune(CLI::App& command, TuneArguments& value, const std::string& what) {
  add_choice(command, "--tune", value.level, {"off", "fast", "max"}, what);
  add_path(command, "--tuning", value.file, "A tuning file, for a run under KILN_TUNING");
}

double gain(const TuneRow& row) {
  return row.default_seconds > 0 ? 1 - row.seconds / row.default_seconds : 0;
}

std::vector<int> thread_counts(const JobProgram& p, int asked) {
  return asked > 0 ? std::vector{asked} : std::vector(p.threads.begin(), p.threads.end());
}

JobSchedules::JobSchedules(const TuneArguments& a) : options_(tune_options(parse_tune_level(a.level))) {
  options_.replay = a.file.empty() ? nullptr : std::make_shared<TuningFile>(TuningFile::read(a.file));
}

ScheduleChoices JobSchedules::of(const JobProgram& p, const Target& target, DiskCache& cache, bool measure,
                                 int threads, TuneStats* stats,
                                 const std::function<void(int, int)>& progress) const {
  const auto* cpu = std::get_if<CpuTarget>(&target);
  KILN_CHECK(cpu, invalid, "--tune and --tuning are for CPUs; got --target {}", str(target));
  TuneOptions o = options_;
  if (!measure) o.level = TuneLevel::known;
  o.threads = threads;
  o.progress = progress;
  return choose_schedules(p.graph, p.layouts, *cpu, &cache, o, stats);
}

}  // namespace kiln::cli
