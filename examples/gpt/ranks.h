// SPDX-License-Identifier: Apache-2.0
// The processes that train one model together: each takes its part of every batch. One process alone is the
// case of one.
#pragma once

#include <memory>

#include "examples/gpt/options.h"
#include "frontend/kiln.h"

namespace gpt {

class Ranks {
 public:
  /// Joins the ranks of the launcher (kiln run, torchrun, mpirun), if there is one. Throws: invalid, if they
  /// cannot share the batch equally; and what distributed::init_process_group throws.
  explicit Ranks(const Options& options);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Where this rank trains; plain "cuda" is the GPU of its number among the ranks of its machine.
  kiln::Device device() const { return device_; }
  /// Whether this rank prints and saves.
  bool lead() const { return rank_ == 0; }
  /// Null when alone.
  const std::shared_ptr<kiln::ProcessGroup>& group() const { return group_; }
  /// The options of this rank: only the lead shows progress, writes files and samples; each takes a share of
  /// the CPUs that all may use.
  Options options(Options o) const;

  /// What a step came to: the mean loss, and whether somebody was told to stop.
  struct Step {
    double loss = 0;
    bool stop = false;
  };
  Step after_step(double loss, bool stop) const;
  /// All leave together, at the end of a run that has worked.
  void leave();

 private:
  std::shared_ptr<kiln::ProcessGroup> group_;
  int rank_ = 0, size_ = 1;
  kiln::Device device_;
};

}  // namespace gpt
