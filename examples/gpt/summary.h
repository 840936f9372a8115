// SPDX-License-Identifier: Apache-2.0
// The figures of a run: printed at the end, and written as JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

/// What a run measured. NaN and 0 stand for "not measured" where the JSON says null.
struct Summary {
  double val_loss_first = 0, val_loss_last = 0, val_bigram = 0;  ///< nat a token
  int64_t steps = 0;                                             ///< steps taken by this run
  double compile_s = 0;    ///< first step minus median step
  bool warm = false;       ///< plan and kernels came from the disk cache
  double step_ms = 0;      ///< median
  double eager_step_ms = 0;
  double tokens_per_s = 0;
  double arena_mb = 0;
  int64_t kernels = 0;
  int64_t builds = 0;
  std::vector<double> losses;        ///< the first 20
  std::vector<double> eager_losses;  ///< the same steps, run eagerly from the same start
};

/// One JSON object with exactly these fields.
std::string to_json(const Summary& s);

/// Writes it, atomically. Throws: io.
void write_json(const std::string& path, const Summary& s);

/// Median of a copy; 0 of nothing.
double median(std::vector<double> values);

}  // namespace gpt
