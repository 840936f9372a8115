// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/rounding.h"
#include "ir/base/text.h"

namespace kiln {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kHugeFrom = size_t{4} << 20;
constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuardByte = 0xA7;

/// At most an eighth above the need, so that nearby shapes share blocks.
size_t size_class(size_t need) {
  const size_t step = std::bit_floor(need) / 8;
  return round_up(need, std::max(step, need >= kHugeFrom ? kHugePage : kPage));
}

std::byte* map_block(size_t bytes) {
  const bool huge = bytes >= kHugeFrom;
  const size_t extra = huge ? kHugePage : 0;
  void* raw = mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* data = static_cast<std::byte*>(raw);
  if (!huge) return data;
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
  if (before) munmap(data, before);
  if (before < extra) munmap(data + before + bytes, extra - before);
#if defined(MADV_HUGEPAGE)
  madvise(data + before, bytes, MADV_HUGEPAGE);
#endif
  return data + before;
}

}  // namespace

void poison(void* data, size_t bytes, DType dtype) {
  if (bytes == 0) return;
  const int fill = is_floating(dtype) ? 0xFF : dtype == DType::boolean ? 1 : 0xA5;
  std::memset(data, fill, bytes);
}

ArenaLease& ArenaLease::operator=(ArenaLease&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapped_ = std::exchange(other.mapped_, 0);
  return *this;
}

void ArenaLease::check_guard() const {
  if (!data_) return;
  unsigned char guard[kGuardBytes];
  std::memcpy(guard, data_ + bytes_, kGuardBytes);
  for (size_t i = 0; i < kGuardBytes; ++i)
    KILN_ASSERT(guard[i] == kGuardByte,
                "arena: a kernel wrote {} bytes behind the end of the arena of {} bytes", i, bytes_);
}

void ArenaLease::release() {
  if (pool_) pool_->give_back({data_, mapped_}, bytes_);
  pool_ = nullptr;
  data_ = nullptr;
  bytes_ = mapped_ = 0;
}

ArenaPool& ArenaPool::shared() {
  static auto* const pool = new ArenaPool;  // outlives every static that may still run a plan
  return *pool;
}

ArenaLease ArenaPool::lease(size_t bytes, bool poisoned, const std::function<std::string()>& describe) {
  ArenaLease lease;
  if (bytes == 0) return lease;
  const Block block = bytes < SIZE_MAX / 2 ? take(bytes) : Block{nullptr, 0};
  if (!block.data) {
    const ArenaStats now = stats();
    throw Error(
        ErrorKind::device,
        fmt::format("arena: out of memory; asked for {:.1f} MiB with {:.1f} MiB in use; largest buffers: {} "
                    "(hint: a smaller batch needs less)",
                    mib(bytes), mib(now.in_use), describe ? describe() : "unknown"));
  }
  lease.pool_ = this;
  lease.data_ = block.data;
  lease.bytes_ = bytes;
  lease.mapped_ = block.bytes;
  if (poisoned) poison(block.data, bytes, DType::f32);
  std::memset(block.data + bytes, kGuardByte, kGuardBytes);
  return lease;
}

ArenaPool::Block ArenaPool::take(size_t asked) {
  const size_t need = asked + kGuardBytes;
  std::lock_guard lock(mutex_);
  auto best = cached_.end();
  for (auto it = cached_.begin(); it != cached_.end(); ++it) {
    const bool fits = it->bytes >= need && it->bytes <= 2 * size_class(need);
    if (fits && (best == cached_.end() || it->bytes < best->bytes)) best = it;
  }
  Block block{nullptr, 0};
  if (best != cached_.end()) {
    block = *best;
    cached_.erase(best);
    stats_.cached -= block.bytes;
  } else {
    block = map(size_class(need));
  }
  if (!block.data) return block;
  stats_.in_use += asked;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return block;
}

ArenaPool::Block ArenaPool::map(size_t bytes) {
  cached_.reserve(blocks_ + 1);  // here, so that giving back cannot throw
  const auto attempt = [&] { return limit_ && mapped_ + bytes > limit_ ? nullptr : map_block(bytes); };
  std::byte* data = attempt();
  if (!data) {
    evict(0, 0);
    data = attempt();
  }
  if (!data) return {nullptr, 0};
  mapped_ += bytes;
  ++blocks_;
  return {data, bytes};
}

void ArenaPool::give_back(Block block, size_t asked) {
  std::lock_guard lock(mutex_);
  cached_.push_back(block);
  stats_.in_use -= asked;
  stats_.cached += block.bytes;
  evict(cache_bound_, 1);
}

void ArenaPool::evict(size_t bound, size_t keep_last) {
  while (stats_.cached > bound && cached_.size() > keep_last) {
    const auto end = cached_.end() - static_cast<std::ptrdiff_t>(keep_last);
    const auto largest = std::max_element(cached_.begin(), end,
                                          [](const Block& a, const Block& b) { return a.bytes < b.bytes; });
    munmap(largest->data, largest->bytes);
    mapped_ -= largest->bytes;
    --blocks_;
    stats_.cached -= largest->bytes;
    cached_.erase(largest);
  }
}

void ArenaPool::set_limit(size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

void ArenaPool::set_cache_bound(size_t bytes) {
  std::lock_guard lock(mutex_);
  cache_bound_ = bytes;
  evict(bytes, 0);
}

void ArenaPool::trim() {
  std::lock_guard lock(mutex_);
  evict(0, 0);
}

ArenaStats ArenaPool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace kiln
