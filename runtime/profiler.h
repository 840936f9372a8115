// SPDX-License-Identifier: Apache-2.0
// Time, bytes and FLOPs per kernel, summed over the calls of any number of plans.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ir/base/device.h"
#include "ir/plan.h"

namespace kiln {

struct MachineLimits;

/// What one kernel cost: launches of the same name and ops are one entry.
struct ProfileEntry {
  std::string name;  ///< ProfileRow::name, else the kernel's symbol
  std::string ops;
  Device device = {};
  int64_t launches = 0;
  double seconds = 0;
  double bytes = 0, flops = 0;   ///< that had to move or be done, over all launches
  std::vector<int32_t> sources;  ///< node ids of the rows seen, for the trace's table of lines
};

/// Collects the times of plans' launches. Threads: any.
class Profiler {
 public:
  /// Adds one call of `plan`: `dims` is its evaluated table, `launch_ns` one time per launch, `total_ns` the
  /// whole call (what it exceeds the launches by is printed as "(between launches)").
  void record(const Plan& plan, std::span<const int64_t> dims, std::span<const int64_t> launch_ns,
              int64_t total_ns, Device device = {});
  /// All kernels, the most expensive first.
  std::vector<ProfileEntry> entries() const;
  /// Number of calls recorded, and their time.
  int64_t calls() const;
  double seconds() const;
  /// One line per kernel: launches, total and mean time, share, GB/s, GFLOP/s, and the percentage of what
  /// `limits` allows for its bytes and FLOPs (above 100 when the data lay in cache).
  /// `limits` are the CPU's: of a GPU none are known, and none is printed.
  std::string table(const MachineLimits& limits) const;
  void reset();

 private:
  ProfileEntry& entry(const std::string& name, const std::string& ops, Device device);

  mutable std::mutex mutex_;
  std::vector<ProfileEntry> entries_;
  int64_t calls_ = 0, total_ns_ = 0;
};

}  // namespace kiln
