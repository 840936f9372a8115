// SPDX-License-Identifier: Apache-2.0
#include "frontend/build_notice.h"

#include <unistd.h>

#include "ir/graph.h"

namespace kiln::detail {

bool BuildNotice::is_watched() { return isatty(STDERR_FILENO) == 1; }

BuildNotice::BuildNotice(const Graph& g, std::chrono::milliseconds patience, bool watched)
    : name_(g.name), level_(watched ? LogLevel::warn : LogLevel::info) {
  if (!log_enabled(level_)) return;
  watch_ = std::thread([this, patience, ops = g.nodes.size()] {
    std::unique_lock lock(mutex_);
    said_ = !over_.wait_for(lock, patience, [&] { return done_; });
    if (said_) log(level_, "{}: compiling {} ops; this takes a while", name_, ops);
  });
}

BuildNotice::~BuildNotice() {
  if (!watch_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  over_.notify_one();
  watch_.join();
  if (!said_) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
  log(level_, "{}: compiled in {:.1f} s", name_, took.count());
}

}  // namespace kiln::detail
