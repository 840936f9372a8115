// SPDX-License-Identifier: Apache-2.0
// What the ranks of `kiln run` print, as whole lines: cut into lines with the rank in front, and queued so
// that a slow reader never makes the launcher deaf to signals. Knows nothing of processes.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace kiln::cli {

/// Bytes that are to be written to file descriptors, in the order in which they came.
class OutputQueue {
 public:
  void push(int fd, std::string bytes);
  bool empty() const { return chunks_.empty(); }
  /// Units: bytes waiting.
  size_t size() const { return size_; }
  /// The descriptor that is written next.
  int fd() const { return chunks_.front().first; }
  /// Writes some bytes to fd(), no more than a pipe takes without blocking once poll() says it is writable.
  /// Throws: io, when it cannot be written.
  void write_some();

 private:
  std::deque<std::pair<int, std::string>> chunks_;
  size_t written_ = 0;  ///< of the first chunk
  size_t size_ = 0;
};

/// One stream of one rank: any bytes in, whole lines out, each with the prefix.
class LinePrefix {
 public:
  /// Lines go to `fd` by way of `out`, which must outlive this.
  LinePrefix(std::string prefix, int fd, OutputQueue& out) : prefix_(std::move(prefix)), fd_(fd), out_(out) {}

  /// Takes bytes; what ends no line is kept until its end comes. A line of more than kLongestLine bytes is
  /// printed as several.
  void take(std::string_view bytes);
  /// The stream has ended: prints a last line that has no end, and ends it.
  void finish();

  static constexpr size_t kLongestLine = size_t{16} << 20;

 private:
  const std::string prefix_;
  const int fd_;
  OutputQueue& out_;
  std::string partial_;
};

}  // namespace kiln::cli
