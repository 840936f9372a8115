// SPDX-License-Identifier: Apache-2.0
#include "cli/rank_output.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ir/base/error.h"

namespace kiln::cli {

void OutputQueue::push(int fd, std::string bytes) {
  if (bytes.empty()) return;
  size_ += bytes.size();
  chunks_.emplace_back(fd, std::move(bytes));
}

void OutputQueue::write_some() {
  const auto& [fd, bytes] = chunks_.front();
  const size_t want = std::min(bytes.size() - written_, size_t{PIPE_BUF});
  const ssize_t n = ::write(fd, bytes.data() + written_, want);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  KILN_CHECK(n >= 0, io, "run: cannot write the ranks' output; {}", std::strerror(errno));
  written_ += static_cast<size_t>(n);
  size_ -= static_cast<size_t>(n);
  if (written_ < bytes.size()) return;
  chunks_.pop_front();
  written_ = 0;
}

void LinePrefix::take(std::string_view bytes) {
  std::string lines;
  while (!bytes.empty()) {
    const size_t room = kLongestLine - partial_.size();
    const size_t end = bytes.substr(0, room).find('\n');
    const size_t n = end == std::string_view::npos ? std::min(room, bytes.size()) : end;
    partial_ += bytes.substr(0, n);
    const bool whole = end != std::string_view::npos;
    bytes.remove_prefix(whole ? n + 1 : n);
    if (!whole && partial_.size() < kLongestLine) break;
    lines += prefix_;
    lines += partial_;
    lines += '\n';
    partial_.clear();
  }
  out_.push(fd_, std::move(lines));
}

void LinePrefix::finish() {
  if (!partial_.empty()) out_.push(fd_, prefix_ + partial_ + "\n");
  partial_.clear();
}

}  // namespace kiln::cli
