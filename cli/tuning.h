// SPDX-License-Identifier: Apache-2.0
// Schedules of recorded programs, which a job does not hold: they are the machine's that the run is for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autotune/tune.h"
#include "codegen/job.h"

namespace CLI {
class App;
}

namespace kiln::cli {

/// --tune and --tuning: whether to speak of a run under KILN_TUNE, or KILN_TUNING.
struct TuneArguments {
  std::string level = "off", file;
  bool on() const { return level != "off" || !file.empty(); }
};
void add_tune(CLI::App& command, TuneArguments& value, const std::string& what);

/// The share of the default's time that what was found spares.
double gain(const TuneRow& row);

/// How many threads to take `p` to run on: `asked`, or, for 0, each number that its runs had, in order.
std::vector<int> thread_counts(const JobProgram& p, int asked);

/// What runs of recorded programs are given. Reads the tuning file, if there is one. Threads: one.
class JobSchedules {
 public:
  /// Throws: as of TuningFile::read.
  explicit JobSchedules(const TuneArguments& arguments);
  /// What a run of `p` on `threads` threads is given: by the tuning file, or by what the cache holds and,
  /// with `measure`, by measuring what it does not. Throws: as of choose_schedules.
  ScheduleChoices of(const JobProgram& p, const Target& target, DiskCache& cache, bool measure, int threads,
                     TuneStats* stats = nullptr, const std::function<void(int, int)>& progress = {}) const;

 private:
  TuneOptions options_;
};

}  // namespace kiln::cli
