// SPDX-License-Identifier: Apache-2.0
// Which of several candidates is fastest, from repeated timings: interleaved, by medians, and only by more
// than the noise. Knows nothing of kernels; the clock is the caller's.
#pragma once

#include <functional>
#include <vector>

namespace kiln {

/// How long a comparison may take.
struct MeasureLimits {
  int rounds = 9;        ///< timings per candidate
  double seconds = 0.5;  ///< after which no further round begins, once there were three
};

/// What a comparison found.
struct Comparison {
  int winner = 0;              ///< 0, the default, unless another is faster by more than the noise
  std::vector<double> median;  ///< seconds per candidate; infinite for those that were dropped as failing
  double noise = 0;            ///< seconds by which the winner had to be faster
};

/// Times candidates 0 to count - 1 in turn. `time(i)` runs candidate i once and returns seconds, or something
/// negative when it failed: then the candidate is out. Those much slower than the best after two rounds are
/// timed no further, and the best must win once more, alone against the default. When the default fails, the
/// best of the others wins; when all fail, the default. Blocks: for twice the limits at most.
Comparison compare(int count, const std::function<double(int)>& time, const MeasureLimits& limits = {});

}  // namespace kiln
