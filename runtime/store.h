// SPDX-License-Identifier: Apache-2.0
// The key-value store that all ranks of a world see: rendezvous, and the control channel on which ranks agree
// and share tuning. Never carries tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

using Seconds = std::chrono::duration<double>;

/// Keys and values are bytes. A key that was set is seen by every rank. Threads: any number at once, and a
/// wait() does not hold up other calls.
class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Sets `key`, replacing what it had. Throws: comm, when the store cannot be reached.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Sets `key` if nobody has; returns what it has afterwards.
  virtual std::string set_once(const std::string& key, const std::string& value) = 0;
  /// What `key` has now; nothing if it was never set.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// What `key` has as soon as it has anything but `known`; nothing when `timeout` has passed first.
  /// Throws: comm, at once, when the store cannot be reached or a rank is lost (see lost()).
  virtual std::optional<std::string> wait(const std::string& key, Seconds timeout,
                                          const std::string& known = {}) = 0;
  /// Adds to an integer that starts at 0; returns the sum.
  virtual int64_t add(const std::string& key, int64_t n) = 0;
  virtual void erase(const std::string& key) = 0;
  /// Ranks whose process ended or whose connection broke without leave(), and since then everybody's wait()
  /// throws, naming them.
  virtual std::vector<int> lost() = 0;
  /// This rank goes in peace: it is not lost when its process ends.
  virtual void leave() = 0;
};

/// The store of ranks that are threads of this process: one object, shared by all of them.
std::shared_ptr<Store> make_local_store();

}  // namespace kiln
