// SPDX-License-Identifier: Apache-2.0
// The content-addressed store of plans, objects, machine code of GPUs and tuning rows. Knows nothing of what
// is in an entry. Many processes may use one folder at once; a damaged or foreign file is a miss, never a
// wrong answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/cache_entry.h"
#include "ir/base/file_lock.h"

namespace kiln {

/// The kinds of entries that there are, each a folder of the cache, by name.
inline constexpr std::string_view kCacheKinds[] = {"cubin", "object", "plan", "sim", "tune"};

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

  /// One file of the folder.
  struct Entry {
    std::string kind, name;
    int64_t bytes = 0;
    int64_t used = 0;     ///< when it was last loaded or stored, seconds since 1970
    int64_t written = 0;  ///< when it was stored; 0 where the file system does not say
  };

  /// Nothing is created or read before the first load or store.
  /// Units: limit_bytes bounds the sum of the entries' sizes. `patience`: what another process is given to
  /// make one entry, before it is made here as well.
  DiskCache(std::string folder, int64_t limit_bytes,
            std::chrono::milliseconds patience = std::chrono::seconds(10));
  /// The cache that KILN_CACHE_DIR and KILN_CACHE_LIMIT_MB describe. Throws: invalid, on bad switches.
  DiskCache();

  /// The payload stored under exactly this key, and marks it as used; nothing on any doubt or read error.
  /// `kind` is one of kCacheKinds.
  /// `again`: a second look, after a claim, which counts only if it hits.
  std::optional<std::string> load(std::string_view kind, std::string_view key, bool again = false);

  /// Stores durably and atomically, replacing what was there. A failure is logged once and otherwise ignored.
  void store(std::string_view kind, std::string_view key, std::string_view payload);

  /// Says to other processes that this one is making an entry, until the result is released. With `wait`, one
  /// that said so before is waited for, up to the patience: then look again with load(). A claim saves work
  /// and no more: who gets none, because the other is too slow or the folder is read-only, makes the entry
  /// himself.
  FileLock claim(std::string_view kind, std::string_view key, bool wait);

  /// Throws: io, naming the folder and why, when nothing can be stored in it. Makes the folder.
  void check_writable() const;

  /// All entries, by kind and name. Others may add and remove some meanwhile.
  /// Throws: io, naming the folder, when it is missing or cannot be listed.
  std::vector<Entry> entries() const;
  /// Reads one without marking it as used. Damaged, too, is an entry that stands under another's name.
  EntryContent read(const Entry& entry) const;
  /// Deletes one; false if it was used or rewritten since it was listed, or is gone. Throws: io, when it
  /// cannot be deleted.
  bool remove(const Entry& entry) const;

  /// Removes the least recently used entries until the bound holds with room to spare, but none younger than
  /// a minute; and temporaries that nobody has written for a day. store() calls it when due. Returns the
  /// bytes that remain.
  int64_t sweep();

  Stats stats() const;
  /// Why the first store that failed did; "" if none did.
  std::string store_error() const;
  int64_t limit_bytes() const { return limit_; }
  const std::string& folder() const { return folder_; }
  /// The file an entry has or would have.
  std::string path_of(std::string_view kind, std::string_view key) const;

 private:
  void account(int64_t stored);
  std::string folder_of(std::string_view kind) const;
  void complain(const std::string& why);

  std::string folder_;
  int64_t limit_;
  std::chrono::milliseconds patience_;
  std::atomic<int64_t> hits_{0}, misses_{0}, damaged_{0}, stores_{0}, failed_stores_{0};
  std::atomic<bool> complained_{false};
  mutable std::mutex error_mutex_;
  std::string store_error_;
  std::mutex sweep_mutex_;
  int64_t total_ = 0;  // bytes at the last sweep, and what this process stored since
  std::chrono::steady_clock::time_point next_sweep_{}, next_forced_sweep_{};
};

}  // namespace kiln
