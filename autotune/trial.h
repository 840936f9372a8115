// SPDX-License-Identifier: Apache-2.0
// Candidates of some kernels, compiled into one image, run and compared on made-up operands: as deployed in
// shape, threads and cold caches, each result checked before it may win. Remembers nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autotune/apart.h"
#include "autotune/measure.h"
#include "codegen/tunable.h"
#include "ir/kernel_image.h"

namespace kiln {

class Operands;

/// A kernel and the schedules to try; the first is the default, and what the others are checked against.
struct Trial {
  const TunableKernel* kernel = nullptr;
  std::vector<std::string> schedules;
};

/// What came of a trial.
struct TrialResult {
  int winner = 0;      ///< in Trial::schedules
  double seconds = 0;  ///< median of the winner; 0 when nothing was timed
  double default_seconds = 0;
  int compared = 0;  ///< candidates that compiled and gave the right result
};

/// Makes a candidate.
using LowerAlone =
    std::function<LoweredProgram(const TunableKernel&, const std::string& schedule, const CpuTarget&)>;

/// Trials that are compiled together. Threads: one.
class Trials {
 public:
  /// Compiles by up to `threads` threads. A candidate that does not compile is logged and out.
  Trials(std::vector<Trial> trials, const CpuTarget& target, int threads,
         const LowerAlone& lower = lower_alone);
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  /// Runs and compares trial i on `threads` threads. A candidate whose result is wrong (of another bit; of
  /// another tolerance where its numeric part differs) is logged and out. Blocks: for the time of `limits`
  /// and the checks.
  TrialResult run(size_t i, const MeasureLimits& limits = {});
  /// The same in a process of its own. A candidate that crashes there, or runs for longer than `patience`, is
  /// logged and out, alone.
  TrialResult run_apart(size_t i, const MeasureLimits& limits = {}, Seconds patience = Seconds(10));

 private:
  struct Candidate;
  struct Finding;
  void compile(std::span<Candidate*> some);
  Finding find(size_t i, const MeasureLimits& limits, const Say& begin);
  void check(const std::vector<Candidate>& candidates, Operands& operands, const Say& begin,
             Finding& finding) const;
  double time(const Candidate& c, Operands& operands);
  TrialResult tell(size_t i, const Finding& finding);

  std::vector<Trial> trials_;
  CpuTarget target_;
  int threads_;
  std::vector<std::vector<Candidate>> candidates_;
  std::vector<char> sweep_;  // read between timings, so that operands are not in the nearer caches
};

}  // namespace kiln
