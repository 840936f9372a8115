// SPDX-License-Identifier: Apache-2.0
// Arenas: the temporary memory of one call of a plan, leased from a pool by size class and given back at its
// end. Knows nothing of plans: offsets and buffers' names come from the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ir/base/dtype.h"

namespace kiln {

/// Fills memory with values that no kernel should read: NaN for floats, large negative integers, true.
void poison(void* data, size_t bytes, DType dtype);

/// Byte counters of a pool. Units: bytes.
struct ArenaStats {
  size_t in_use = 0;  ///< asked for by the leases that are out
  size_t peak = 0;    ///< most that in_use has been
  size_t cached = 0;  ///< mapped, but not leased
};

class ArenaPool;

/// Exclusive use of one block until destroyed. The block is page aligned (2 MiB aligned from 4 MiB on).
class ArenaLease {
 public:
  ArenaLease() = default;
  ArenaLease(ArenaLease&& other) noexcept { *this = std::move(other); }
  ArenaLease& operator=(ArenaLease&& other) noexcept;
  ~ArenaLease() { release(); }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Throws: internal, if something wrote behind the end of the lease.
  void check_guard() const;
  /// Gives the block back early.
  void release();

 private:
  friend class ArenaPool;
  ArenaPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;   // asked for
  size_t mapped_ = 0;  // size class
};

/// Blocks by size class; unused ones are kept for the next call. Threads: any.
class ArenaPool {
 public:
  ArenaPool() = default;
  ~ArenaPool() { trim(); }
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  /// The pool of this process: made on first use, never destroyed.
  static ArenaPool& shared();

  /// A block of at least `bytes` (0 gives an empty lease). `poisoned` fills it with NaN. `describe` is asked
  /// for the largest buffers when there is no memory, for the message. Throws: device, when the system has no
  /// memory even after the unused blocks are freed.
  ArenaLease lease(size_t bytes, bool poisoned, const std::function<std::string()>& describe);

  /// Most bytes that this pool may map (tests, memory budgets); 0 is no limit.
  void set_limit(size_t bytes);
  /// Unused bytes to keep. Beyond it the largest unused blocks are freed, but never the one given back last.
  void set_cache_bound(size_t bytes);
  /// Frees all unused blocks.
  void trim();
  ArenaStats stats() const;

 private:
  friend class ArenaLease;
  struct Block {
    std::byte* data;
    size_t bytes;
  };
  Block take(size_t asked);
  Block map(size_t bytes);
  void give_back(Block block, size_t asked);
  void evict(size_t bound, size_t keep_last);

  mutable std::mutex mutex_;
  std::vector<Block> cached_;
  ArenaStats stats_;
  size_t mapped_ = 0, blocks_ = 0, limit_ = 0, cache_bound_ = size_t{1} << 30;
};

}  // namespace kiln
