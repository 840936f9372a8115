// SPDX-License-Identifier: Apache-2.0
// What tuning has found, on disk: readable rows in the cache's folder "tune". Numeric parts are kept without
// a thread count, free parts with one. Measures nothing.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/disk_cache.h"
#include "codegen/tunable.h"

namespace kiln {

/// The result of tuning one kernel. Its text is one line of JSON, and what ranks exchange.
struct TuneRow {
  std::string schedule;
  double seconds = 0, default_seconds = 0;  ///< medians; of the machine that measured
  int compared = 0;                         ///< candidates that gave the right result
  bool wide = false;                        ///< searched for as TuneLevel::max does

  std::string str() const;
  /// Nothing for text that is not a row.
  static std::optional<TuneRow> parse(std::string_view text);
};

/// What a program's kernels are called and were given: enough to start without lowering it.
struct ProgramRow {
  std::string kernel;  ///< TunableKernel::id
  std::string row;     ///< text of its TuneRow
};

/// Rows for one thread count. `cache` may be null: then nothing is found or kept. Threads: any.
class TuneRecord {
 public:
  TuneRecord(DiskCache* cache, int threads) : cache_(cache), threads_(threads) {}

  /// The row of a kernel; its text as stored.
  std::optional<std::string> row(const TunableKernel& k) const;
  /// The numeric part that a wide search has chosen, with whatever number of threads.
  std::optional<std::string> numeric(const TunableKernel& k) const;
  void store(const TunableKernel& k, const std::string& row) const;

  /// By the whole key of a program (program_key).
  std::optional<std::vector<ProgramRow>> program(std::string_view key) const;
  void store_program(std::string_view key, const std::vector<ProgramRow>& rows) const;

  int threads() const { return threads_; }

 private:
  std::string free_key(std::string_view kernel) const;
  DiskCache* cache_;
  int threads_;
};

/// A row with what it is for.
struct KernelRow {
  std::string key;  ///< of the kernel (kernel_key)
  int threads = 0;
  TuneRow found;
};
/// The rows of kernels in the cache. Throws: io, when its folder cannot be read.
std::vector<KernelRow> kernel_rows(const DiskCache& cache);

/// The numbers of threads that rows in the cache are for. Throws: io, when its folder cannot be read.
std::set<int> tuned_thread_counts(const DiskCache& cache);

}  // namespace kiln
