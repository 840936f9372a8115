// SPDX-License-Identifier: Apache-2.0
// What the served store knows: values, who waits for which, who is there. Knows nothing of gRPC; whoever
// waits is told, nobody is blocked.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/store.h"
#include "runtime/store_values.h"

namespace kiln::rpc {

/// Somebody who waits for a key. Threads: each of the two is called once at most, and only one of them.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual void found(const std::string& value) = 0;
  /// A rank is lost, or the store has closed; of kind comm.
  virtual void failed(const std::string& why) = 0;
};

/// The connection of one rank.
class Presence {
 public:
  virtual ~Presence() = default;
  /// The store ends: in peace, where there is no `fault`.
  virtual void close(const std::string& fault) = 0;
};

/// Threads: any number at once. Nothing here blocks but wait_for_others().
class Hub {
 public:
  explicit Hub(int size) : size_(size) {}

  /// Lets `rank` in. Throws: comm, if it is there already or was lost, or if its world has another size.
  void join(int rank, int size, const std::shared_ptr<Presence>& presence);
  void leave(int rank);
  /// The connection `presence` of `rank` ended: it is lost, unless it left.
  void part(int rank, const Presence* presence);
  /// Blocks until all who joined but `rank` have left or are lost. False when `timeout` passed first.
  bool wait_for_others(int rank, Seconds timeout);
  /// Tells all who are there or wait that the store ends, in peace or not; nobody is lost from now on.
  void close(bool in_peace);
  bool closed();

  void set(const std::string& key, const std::string& value);
  std::string set_once(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key);
  int64_t add(const std::string& key, int64_t n);
  void erase(const std::string& key);
  std::vector<int> lost();

  /// What `key` has but `known`. Throws as Store::wait().
  std::optional<std::string> news(const std::string& key, const std::string& known);
  /// Tells `waiter` as soon as there is something to tell, perhaps before this returns.
  void wait(const std::string& key, const std::string& known, Waiter* waiter);
  /// True if `waiter` was waiting; then it is not told any more.
  bool forget(const std::string& key, Waiter* waiter);

 private:
  struct Waiting {
    std::string known;
    Waiter* waiter;
  };
  struct Connected {
    std::shared_ptr<Presence> presence;
    bool left = false;
  };
  using Waitings = std::multimap<std::string, Waiting>;
  void tell(const std::string& key);

  const int size_;
  std::mutex mutex_;
  std::condition_variable parted_;
  StoreValues values_;
  Waitings waiting_;
  std::map<int, Connected> there_;
  bool closed_ = false;
};

}  // namespace kiln::rpc
