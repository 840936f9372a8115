// SPDX-License-Identifier: Apache-2.0
// A tuning file: what was found for kernels, as lines of JSON that people read, merge and keep beside their
// model. Chooses nothing and measures nothing.
#pragma once

#include <map>
#include <string>

#include "autotune/record.h"

namespace kiln {

/// Rows by kernel and number of threads. All rows of one kernel have one numeric part, so that bits do not
/// follow the threads.
class TuningFile {
 public:
  struct Row {
    TuneRow found;
    std::string key;  ///< of the kernel (kernel_key)
  };
  /// By id of a kernel (kernel_id), then by threads.
  using Rows = std::map<std::string, std::map<int, Row>, std::less<>>;

  /// Throws: io, when the file cannot be read; invalid, with the line, for a line that is no row or does not
  /// go with those before.
  static TuningFile read(const std::string& path);
  /// All rows of kernels that a cache holds. Throws: io, when its folder cannot be read.
  static TuningFile of(const DiskCache& cache);

  /// Rows of `other` for what has none here. Returns how many were left: those of kernels and threads that
  /// have a row here, unless it is the same, and those of another numeric part.
  int merge(const TuningFile& other);
  /// The row for so many threads; where there is none, that for the next lower number, else for the lowest:
  /// their bits are the same. Null: the kernel has none.
  const Row* find(std::string_view kernel, int threads) const;

  /// {"kernel":"5d41...","threads":2,"schedule":"matmul split_k=1; ...","seconds":0.0012, ...,
  /// "key":"kiln kernel ..."} a line, sorted.
  std::string str() const;
  const Rows& rows() const { return rows_; }
  /// Hash of what can be chosen by it.
  std::string digest() const;

 private:
  /// Whether the row has found its place.
  bool add(const std::string& kernel, int threads, Row row);
  Rows rows_;
};

}  // namespace kiln
