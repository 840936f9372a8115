// SPDX-License-Identifier: Apache-2.0
#include "ir/host_memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <new>
#include <vector>

namespace kiln {

namespace {

constexpr std::align_val_t kAlign{64};
constexpr size_t kSmallest = size_t{32} << 10;  // below, the system's allocator is as fast

constexpr size_t kMost = size_t{1} << 47;  // no process can map more

/// Sizes go up in eighths of a power of two, so that close sizes share blocks and little is wasted.
size_t size_class(size_t bytes) {
  const size_t step = std::max<size_t>(64, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

class BlockCache {
 public:
  void* take(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto at = free_.find(size);
    if (at == free_.end() || at->second.empty()) return nullptr;
    void* p = at->second.back();
    at->second.pop_back();
    kept_ -= size;
    return p;
  }
  /// False when there is no room for it.
  bool give(void* p, size_t size) noexcept try {
    const std::lock_guard lock(mutex_);
    if (kept_ + size > kHostBlocksKept) return false;
    free_[size].push_back(p);
    kept_ += size;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_)
      for (void* p : blocks) ::operator delete(p, kAlign);
    free_.clear();
    kept_ = 0;
  }
  size_t kept() {
    const std::lock_guard lock(mutex_);
    return kept_;
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  size_t kept_ = 0;
};
/// Never destroyed: tensors of static storage may outlive it otherwise.
BlockCache& cache() {
  static BlockCache& c = *new BlockCache;
  return c;
}

std::atomic<size_t> g_in_use{0}, g_peak{0};

void count_taken(size_t size) {
  const size_t now = g_in_use.fetch_add(size, std::memory_order_relaxed) + size;
  size_t peak = g_peak.load(std::memory_order_relaxed);
  while (now > peak && !g_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

/// Takes back a block; one too small to be kept goes to the system at once.
struct Release {
  size_t size;
  void operator()(void* block) const noexcept {
    g_in_use.fetch_sub(size, std::memory_order_relaxed);
    if (size < kSmallest || !cache().give(block, size)) ::operator delete(block, kAlign);
  }
};

}  // namespace

std::shared_ptr<void> host_block(size_t bytes) {
  if (bytes > kMost) throw std::bad_alloc();
  const size_t size = size_class(std::max<size_t>(1, bytes));
  void* p = size < kSmallest ? nullptr : cache().take(size);
  if (!p) {
    try {
      p = ::operator new(size, kAlign);
    } catch (const std::bad_alloc&) {
      release_host_blocks();
      p = ::operator new(size, kAlign);
    }
  }
  count_taken(size);
  return {p, Release{size}};
}

HostMemoryStats host_memory_stats() {
  return {g_in_use.load(std::memory_order_relaxed), g_peak.load(std::memory_order_relaxed)};
}
void reset_host_memory_peak() { g_peak.store(g_in_use.load(std::memory_order_relaxed)); }

size_t host_blocks_kept() { return cache().kept(); }
void release_host_blocks() { cache().release(); }

}  // namespace kiln
