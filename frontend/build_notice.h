// SPDX-License-Identifier: Apache-2.0
// A line for whoever waits: a build that takes long says so while it runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "ir/base/log.h"

namespace kiln {

struct Graph;

namespace detail {

/// Lives as long as a build. One that takes longer than kPatience logs a line, and another when it is over:
/// at level warn where somebody looks on, standard error being a terminal, else at level info.
class BuildNotice {
 public:
  static constexpr std::chrono::milliseconds kPatience{2000};
  explicit BuildNotice(const Graph& g, std::chrono::milliseconds patience = kPatience,
                       bool watched = is_watched());
  BuildNotice(const BuildNotice&) = delete;
  BuildNotice& operator=(const BuildNotice&) = delete;
  ~BuildNotice();

 private:
  static bool is_watched();

  const std::string name_;
  const LogLevel level_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false, said_ = false;
  std::thread watch_;
};

}  // namespace detail
}  // namespace kiln
