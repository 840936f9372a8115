// SPDX-License-Identifier: Apache-2.0
// What a process did when, as a trace that ui.perfetto.dev and chrome://tracing show: one row for the
// launches of compiled calls, one for the collectives behind them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kiln {

/// Nanoseconds of the steady clock, which all rows of one machine share.
int64_t timeline_now();

/// Rows of a process in a trace.
enum class TimelineRow : uint8_t { compute, communication };

struct TimelineSpan {
  TimelineRow row = TimelineRow::compute;
  std::string name;      ///< "layer_norm+linear", "wait all_reduce", "train (train.cpp:22)"
  std::string category;  ///< "kernel", "start", "wait", "collective", "call"
  int64_t begin_ns = 0, end_ns = 0;
  double bytes = 0;   ///< moved, or reduced
  uint64_t call = 0;  ///< of a call: its number; 0: unknown
};

/// A trace file that grows call by call, in Chrome's JSON array format. It is whole after every call, however
/// the process ends. A file that cannot be written costs a warning, and the process goes on without. Each
/// thread that adds has rows of its own. Threads: any.
class Timeline {
 public:
  /// A file of this process: `<prefix>.<process id>.json`. A forked child begins one of its own.
  explicit Timeline(std::string prefix);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// What the viewer calls this process, "rank 0 of 2", and at which place it shows it. Until it is said: the
  /// program's name, at 0.
  void name_process(const std::string& name, int place);
  /// Appends. A full disk ends the trace.
  void add(const std::vector<TimelineSpan>& spans);

 private:
  void open();
  std::string head() const;
  std::string new_rows(size_t thread) const;
  bool write_at(int64_t at, const std::string& text) const;
  void give_up();

  const std::string prefix_;
  std::mutex mutex_;
  std::string path_, name_;
  int place_ = 0;
  int file_ = -1;
  int pid_ = 0;
  int64_t end_ = 0;                       ///< behind the last event
  std::vector<std::thread::id> threads_;  ///< that have rows
};

}  // namespace kiln
