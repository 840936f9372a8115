// SPDX-License-Identifier: Apache-2.0
#include "frontend/build_notice.h"

#include "ir/base/log.h"
#include "ir/graph.h"

namespace kiln::detail {

BuildNotice::BuildNotice(const Graph& g, std::chrono::milliseconds patience) : name_(g.name) {
  if (!log_enabled(LogLevel::warn)) return;
  watch_ = std::thread([this, patience, ops = g.nodes.size()] {
    std::unique_lock lock(mutex_);
    said_ = !over_.wait_for(lock, patience, [&] { return done_; });
    if (said_)
      log(LogLevel::warn, "{}: compiling {} ops; this takes a while, and is kept in the cache", name_, ops);
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
  log(LogLevel::warn, "{}: compiled in {:.1f} s", name_, took.count());
}

}  // namespace kiln::detail
