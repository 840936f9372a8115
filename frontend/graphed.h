// SPDX-License-Identifier: Apache-2.0
// Counters of the programs that run as CUDA graphs.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace kiln {

/// A program of a callable that runs as a CUDA graph: its forward or backward, or a partition of one.
struct GraphedProgram {
  std::string name;  ///< "step" or "step_backward"
  int64_t recordings = 0, replays = 0;
};

namespace detail {

/// Those of a callable. Threads: any.
class GraphedPrograms {
 public:
  using Count = std::function<GraphedProgram()>;
  void add(Count count) {
    const std::lock_guard lock(mutex_);
    programs_.push_back(std::move(count));
  }
  std::vector<GraphedProgram> count() const {
    const std::lock_guard lock(mutex_);
    std::vector<GraphedProgram> out;
    for (const Count& c : programs_) out.push_back(c());
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Count> programs_;
};

}  // namespace detail
}  // namespace kiln
