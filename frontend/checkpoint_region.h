// SPDX-License-Identifier: Apache-2.0
// What a checkpoint leaves on the eager tape: nodes without the memory of their operands, and how to make
// that again. Knows nothing of traces.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "frontend/impl.h"
#include "frontend/tensor.h"

namespace kiln::detail {

/// Threads: one at a time.
class CheckpointRegion : public std::enable_shared_from_this<CheckpointRegion> {
 public:
  /// What holds when it is made (generator, autocast) holds whenever `run` runs again.
  CheckpointRegion(std::function<void()> run, SourceLoc loc);

  /// `node` has been recorded while this region runs: it loses its data, or, while it runs again, has those
  /// of its predecessor.
  void note(const std::shared_ptr<GradNode>& node);
  /// The node of the last run that stands for `node`, with data; runs the function if there was none since
  /// forget(). Throws: invalid, when the function has done something else than before.
  const GradNode& again(const GradNode& node);
  /// Drops what the last run has made.
  void forget() { again_.clear(); }
  /// Leaves types in place of what `node` has saved, leaves' data aside.
  static void drop_data(GradNode& node);

 private:
  void run_again();
  void check(const GradNode& was, const GradNode& now) const;

  const std::function<void()> run_;
  const SourceLoc loc_;
  const GeneratorState generator_;
  const std::optional<DType> autocast_;
  size_t count_ = 0;  ///< nodes of the first run
  bool repeating_ = false;
  std::vector<std::shared_ptr<GradNode>> again_;
};

/// While alive, eager ops are recorded in `region` (null: in none).
class RegionSwitch {
 public:
  explicit RegionSwitch(CheckpointRegion* region);
  ~RegionSwitch();
  RegionSwitch(const RegionSwitch&) = delete;
  RegionSwitch& operator=(const RegionSwitch&) = delete;

 private:
  CheckpointRegion* const previous_;
};

}  // namespace kiln::detail
