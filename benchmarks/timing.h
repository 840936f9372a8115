// SPDX-License-Identifier: Apache-2.0
// How a training step is timed, the same way as benchmarks/peers/run.py does it. Knows no workload.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace kiln::bench {

/// What one process measured.
struct Measurement {
  double first_step_s = 0;
  std::vector<double> losses;   ///< of the first three steps
  std::vector<double> times_s;  ///< of the timed steps, in order

  double median_ms() const;
  /// Median of the lower half.
  double low_ms() const;
  double min_ms() const;
  /// What the first step took beyond a step. Units: s.
  double startup_s() const;
};

/// Runs `step` (which returns its loss): three steps, two more if they are short, then timed steps for
/// about `secs` seconds: at least 5, until 20 are done or the time is over, at most 40 s.
Measurement measure(const std::function<double()>& step, double secs);

/// Largest resident memory of this process so far. Units: MB (2^20).
double peak_rss_mb();

/// What else is reported beside the times.
struct Extra {
  std::string workload, mode;
  int threads = 0;
  double arena_mb = 0;
  int64_t builds = 0, compiled = 0;                   ///< of the callables; kernels that no cache held
  std::vector<std::pair<std::string, double>> gnorm;  ///< pointwise: norms of the gradients
  double device_peak_mb = 0;                          ///< memory of a GPU; 0 on the CPU
};

/// One line of JSON, without a line end.
std::string json_line(const Measurement& m, const Extra& extra);

/// The same for people.
std::string text_line(const Measurement& m, const Extra& extra);

}  // namespace kiln::bench
