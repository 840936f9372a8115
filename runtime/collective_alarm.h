// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group tell each other through the store when something is wrong: that a rank has
// failed and why, that one has left, and, for who waits too long, how far each has come. For groups whose own
// connections say nothing of that. Costs nothing while all goes well: each rank waits for its bell to ring.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/store.h"

namespace kiln {

/// Of one rank's group. Threads: any.
class CollectiveAlarm {
 public:
  /// Called on the alarm's thread.
  struct Hooks {
    std::function<uint64_t()> started;  ///< how many collectives this rank has started
    /// Another rank has failed for this reason; or one is lost, or the store is.
    std::function<void(const std::string& why)> failed;
    /// That rank has left in peace, after so many collectives.
    std::function<void(int rank, uint64_t started)> left;
  };
  CollectiveAlarm(int rank, int size, std::shared_ptr<Store> store, std::string prefix, Hooks hooks);
  ~CollectiveAlarm();
  CollectiveAlarm(const CollectiveAlarm&) = delete;
  CollectiveAlarm& operator=(const CollectiveAlarm&) = delete;

  /// Tells the others that this rank has failed. The first reason of all ranks is the one that all hear.
  void fail(const std::string& why) noexcept;
  /// Tells them that it leaves.
  void leave(uint64_t started) noexcept;
  /// The first reason of all ranks, as soon as it is there; nothing after `time`.
  std::optional<std::string> reason(Seconds time) noexcept;
  /// What `started` says on every rank, this one's too; nothing where a rank does not answer within a second.
  std::vector<std::optional<uint64_t>> ask();

 private:
  std::string key(const char* what, int rank) const;
  void ring() noexcept;
  void listen();
  void hear();

  const int rank_, size_;
  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  const Hooks hooks_;
  std::atomic<bool> stopping_ = false;
  bool answered_ = false;       ///< the thread's, as is the next
  std::vector<bool> has_left_;  ///< by rank
  std::thread thread_;
};

}  // namespace kiln
