// SPDX-License-Identifier: Apache-2.0
// What a process did when, as a trace that ui.perfetto.dev and chrome://tracing show: one row for the
// launches of compiled calls, one for the collectives behind them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace kiln {

/// Nanoseconds of the steady clock, which all rows of one machine share.
int64_t timeline_now();

/// Rows of a process in a trace.
enum class TimelineRow : uint8_t { compute, communication };

struct TimelineSpan {
  TimelineRow row = TimelineRow::compute;
  std::string name;      ///< "layer_norm+linear", "wait all_reduce"
  std::string category;  ///< "kernel", "start", "wait", "collective", "call"
  int64_t begin_ns = 0, end_ns = 0;
  double bytes = 0;  ///< moved, or reduced
};

/// A trace file that grows call by call, in Chrome's JSON array format, which needs no end: a process that is
/// killed leaves a trace that can be read. Threads: any.
class Timeline {
 public:
  /// `process` is its name in the viewer: "rank 0". Throws: io, naming the path.
  Timeline(std::string path, const std::string& process);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Appends and flushes. A full disk ends the trace, with one warning.
  void add(const std::vector<TimelineSpan>& spans);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
};

}  // namespace kiln
