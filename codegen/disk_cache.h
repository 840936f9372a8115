// SPDX-License-Identifier: Apache-2.0
// The content-addressed store of plans, objects, images and tuning rows. Knows nothing of what is in an
// entry. Many processes may use one folder at once; a damaged or foreign file is a miss, never a wrong
// answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {

/// A cache folder. One entry is one file, <folder>/<kind>/<hash of the key>, that holds its full key and a
/// checksum. Threads: any.
class DiskCache {
 public:
  /// What happened since construction.
  struct Stats {
    int64_t hits = 0;
    int64_t misses = 0;   ///< damaged entries included
    int64_t damaged = 0;  ///< entries that were there and could not be trusted
    int64_t stores = 0;
    int64_t failed_stores = 0;
  };

  /// Nothing is created or read before the first load or store.
  /// Units: limit_bytes bounds the sum of the entries' sizes.
  DiskCache(std::string folder, int64_t limit_bytes);
  /// The cache that KILN_CACHE_DIR and KILN_CACHE_LIMIT_MB describe. Throws: invalid, on bad switches.
  DiskCache();

  /// The payload stored under exactly this key, and marks it as used; nothing on any doubt or read error.
  /// `kind` is a folder name of lower-case letters: "plan", "object", "tune".
  std::optional<std::string> load(std::string_view kind, std::string_view key);

  /// Stores durably and atomically, replacing what was there. A failure is logged once and otherwise ignored.
  void store(std::string_view kind, std::string_view key, std::string_view payload);

  /// Removes the least recently used entries until the bound holds with room to spare, but none younger than
  /// a minute; and temporaries that nobody has written for a day. store() calls it when due. Returns the
  /// bytes that remain.
  int64_t sweep();

  Stats stats() const;
  const std::string& folder() const { return folder_; }
  /// The file an entry has or would have.
  std::string path_of(std::string_view kind, std::string_view key) const;

 private:
  void account(int64_t stored);
  void complain(const std::string& why);

  std::string folder_;
  int64_t limit_;
  std::atomic<int64_t> hits_{0}, misses_{0}, damaged_{0}, stores_{0}, failed_stores_{0};
  std::atomic<bool> complained_{false};
  std::mutex sweep_mutex_;
  int64_t total_ = 0;  // bytes at the last sweep, and what this process stored since
  std::chrono::steady_clock::time_point next_sweep_{}, next_forced_sweep_{};
};

}  // namespace kiln
