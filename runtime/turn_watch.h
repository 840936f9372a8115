// SPDX-License-Identifier: Apache-2.0
// Looks after ranks that wait for each other: whoever has been in one turn of its group for long says on the
// control channel what that is, and compares it with what the first to say so is in. Ranks that differ would
// wait until a timeout. Turns that are short cost no look.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/collective_queue.h"

namespace kiln {

/// Of one rank's group. Threads: begin() and end() one at a time.
class TurnWatch {
 public:
  /// `differ` is called on the watch's thread with the sentence about two ranks whose turns of one number
  /// differ: neither can end. Keys begin with `prefix`.
  TurnWatch(int rank, std::shared_ptr<Store> store, std::string prefix,
            std::function<void(const std::string&)> differ);
  ~TurnWatch();
  TurnWatch(const TurnWatch&) = delete;
  TurnWatch& operator=(const TurnWatch&) = delete;

  /// The next turn, which is `c`; it must stay until end().
  void begin(const Collective& c);
  void end();
  /// That sentence, as soon as it is known here: before `differ` is called on any of the two ranks. Threads:
  /// any.
  std::optional<std::string> difference();

 private:
  void watch();
  void look(uint64_t turn, const Collective& c, std::unique_lock<std::mutex>& lock);
  void compare(const std::string& kind, const std::string& text);
  void know(const std::string& why);
  void hear();
  void forget();

  const int rank_;
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  const std::function<void(const std::string&)> differ_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  uint64_t turn_ = 0;                   ///< the number of the last
  const Collective* inside_ = nullptr;  ///< what it is, until it ends
  std::optional<std::string> difference_;
  std::string key_;     ///< of the turn that was looked at; the watch's thread's, as these are
  bool first_ = false;  ///< to set it was this rank
  std::thread thread_;
};

}  // namespace kiln
