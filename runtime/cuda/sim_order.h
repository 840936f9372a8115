// SPDX-License-Identifier: Apache-2.0
// Is one piece of work ordered before another that uses the same bytes? Clocks count the work of each
// stream; a history keeps, for every range of bytes, who wrote it last and who has read it since.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace kiln::cuda::sim {

/// How much of each stream's work, by number of the stream, has happened before.
using Clock = std::vector<uint64_t>;
void join(Clock& into, const Clock& other);

/// Bytes that a piece of work uses: device memory, or pinned memory of the host.
struct Use {
  uint64_t begin = 0, bytes = 0;
  bool write = false;
  std::string name;  ///< "'fc1.weight'"
};

/// Who used bytes: the `tick`-th work of stream `stream`, or node `tick` of a graph.
struct User {
  int stream = 0;
  uint64_t tick = 0;
  std::shared_ptr<const std::string> name;  ///< "kernel 'add' on stream 2"
};

class History {
 public:
  /// True if that earlier use is ordered before the one that is noted now.
  using Ordered = std::function<bool(const User&)>;
  /// Notes that `user` uses bytes. Says what it collides with; "" if nothing.
  std::string note(const Use& use, const User& user, const Ordered& ordered);
  /// All so far is ordered before all to come.
  void clear() { ranges_.clear(); }
  /// Nothing is known of these bytes.
  void forget(uint64_t begin, uint64_t bytes);

 private:
  struct Range {
    uint64_t end = 0;
    User writer;  ///< without a name: nobody
    std::vector<User> readers;
  };
  using Ranges = std::map<uint64_t, Range>;
  void cut(uint64_t at);
  static const User* collision(const Range& r, bool write, const User& user, const Ordered& ordered);
  static void add(Range& r, bool write, const User& user);

  Ranges ranges_;  ///< by begin
};

}  // namespace kiln::cuda::sim
