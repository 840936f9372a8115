// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ir/base/error.h"

namespace kiln::cuda::sim {

namespace {

constexpr Address kTag = 0x00D0'0000'0000'0000;  // of no address of a process, on x86-64 and aarch64
constexpr int kDeviceShift = 40;
constexpr uint64_t kGranule = 256;
constexpr uint64_t kPage = 65536;  // a multiple of every page size in use
constexpr size_t kRemembered = 1024;

template <class T>
T* reserve(uint64_t bytes) {
  void* map =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  KILN_CHECK(map != MAP_FAILED, device, "simulated CUDA device: cannot reserve {} bytes of addresses: {}",
             bytes, std::strerror(errno));
  return static_cast<T*>(map);
}

// Zeros; whole pages go back to the system.
void clear(void* begin, uint64_t bytes) {
  auto* first = static_cast<std::byte*>(begin);
  std::byte* last = first + bytes;
  const auto up = [](std::byte* p) { return p + (kPage - reinterpret_cast<uintptr_t>(p) % kPage) % kPage; };
  std::byte* from = up(first);
  std::byte* to = last - reinterpret_cast<uintptr_t>(last) % kPage;
  if (from >= to || madvise(from, to - from, MADV_DONTNEED) != 0) {
    std::memset(first, 0, bytes);
    return;
  }
  std::memset(first, 0, from - first);
  std::memset(to, 0, last - to);
}

bool bit(const uint16_t* bits, uint64_t i) { return bits[i / 16] >> (i % 16) & 1; }
void set_bit(uint16_t* bits, uint64_t i, bool on) {
  const auto mask = static_cast<uint16_t>(1u << (i % 16));
  bits[i / 16] = static_cast<uint16_t>(on ? bits[i / 16] | mask : bits[i / 16] & ~mask);
}

// fn(i) for the bits of [begin, end) before and after its whole words, words(first, last) for those.
template <class Fn, class Words>
void over_bits(uint64_t begin, uint64_t end, Fn&& fn, Words&& words) {
  uint64_t i = begin;
  for (; i < end && i % 16 != 0; ++i) fn(i);
  const uint64_t last = end - end % 16;
  if (i < last) words(i / 16, last / 16), i = last;
  for (; i < end; ++i) fn(i);
}

}  // namespace

int device_of(Address address) {
  const Address index = (address - kTag) >> kDeviceShift;
  return index < 256 ? static_cast<int>(index) : -1;
}

DeviceSpace::DeviceSpace(int device)
    : base_(kTag + (static_cast<Address>(device) << kDeviceShift)), fresh_(kGranule) {
  data_ = reserve<std::byte>(kBytes);
  written_ = reserve<uint16_t>(kBytes / 8);
  cells_ = reserve<Cell>(kBytes / Cell::kBytes * sizeof(Cell));
}

DeviceSpace::~DeviceSpace() {
  munmap(data_, kBytes);
  munmap(written_, kBytes / 8);
  munmap(cells_, kBytes / Cell::kBytes * sizeof(Cell));
}

void DeviceSpace::reuse(uint64_t offset, uint64_t bytes) {
  auto next = reusable_.lower_bound(offset);
  if (next != reusable_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = reusable_.erase(next);
  }
  if (next != reusable_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  reusable_[offset] = bytes;
}

uint64_t DeviceSpace::place(uint64_t room) {
  if (room <= kBytes - fresh_) {
    const uint64_t offset = fresh_;
    fresh_ += room;
    return offset;
  }
  for (;;) {
    const auto at =
        std::find_if(reusable_.begin(), reusable_.end(), [&](auto& r) { return r.second >= room; });
    if (at != reusable_.end()) {
      const auto [offset, bytes] = *at;
      reusable_.erase(at);
      if (bytes > room) reusable_[offset + room] = bytes - room;
      return offset;
    }
    // What ends where the addresses never used begin goes on there.
    if (!reusable_.empty()) {
      const auto last = std::prev(reusable_.end());
      const uint64_t offset = last->first;
      if (offset + last->second == fresh_ && room <= kBytes - offset) {
        reusable_.erase(last);
        fresh_ = offset + room;
        return offset;
      }
    }
    if (freed_.empty()) return 0;
    const auto oldest = allocations_.find(freed_.front());
    reuse(oldest->first, (oldest->second.bytes + kGranule - 1) / kGranule * kGranule + kGranule);
    allocations_.erase(oldest);
    freed_.pop_front();
  }
}

Address DeviceSpace::allocate(uint64_t bytes, bool pooled) {
  if (bytes > kBytes) return 0;
  // A gap behind each, so that a step too far touches nobody else's.
  const uint64_t offset = place((bytes + kGranule - 1) / kGranule * kGranule + kGranule);
  if (offset == 0) return 0;
  allocations_[offset] = {offset, bytes, true, pooled};
  return base_ + offset;
}

void DeviceSpace::release(const Allocation& allocation) {
  Allocation& a = allocations_.at(allocation.offset);
  a.live = false;
  const uint64_t room = (a.bytes + kGranule - 1) / kGranule * kGranule;
  clear(data_ + a.offset, room);
  clear(written_ + a.offset / 16, room / 8);
  clear(cells_ + a.offset / Cell::kBytes, room / Cell::kBytes * sizeof(Cell));
  freed_.push_back(a.offset);
  if (freed_.size() <= kRemembered) return;
  const auto oldest = allocations_.find(freed_.front());
  reuse(oldest->first, (oldest->second.bytes + kGranule - 1) / kGranule * kGranule + kGranule);
  allocations_.erase(oldest);
  freed_.pop_front();
}

const Allocation* DeviceSpace::find(Address address) const {
  if (!contains(address)) return nullptr;
  auto at = allocations_.upper_bound(offset_of(address));
  if (at == allocations_.begin()) return nullptr;
  const Allocation& a = std::prev(at)->second;
  return offset_of(address) - a.offset < std::max<uint64_t>(a.bytes, 1) ? &a : nullptr;
}

bool DeviceSpace::live(Address address, uint64_t bytes) const {
  const Allocation* a = find(address);
  return a && a->live && bytes <= a->bytes - (offset_of(address) - a->offset);
}

bool DeviceSpace::written(Address address, unsigned bytes) const {
  const uint64_t offset = offset_of(address);
  const uint32_t mask = ((1u << bytes) - 1) << (offset % 16);
  return (written_[offset / 16] & mask) == mask;
}

void DeviceSpace::set_written(Address address, unsigned bytes) {
  const uint64_t offset = offset_of(address);
  written_[offset / 16] |= static_cast<uint16_t>(((1u << bytes) - 1) << (offset % 16));
}

bool DeviceSpace::all_written(Address address, uint64_t bytes) const {
  bool all = true;
  const uint64_t begin = offset_of(address);
  over_bits(
      begin, begin + bytes, [&](uint64_t i) { all &= bit(written_, i); },
      [&](uint64_t first, uint64_t last) {
        for (uint64_t w = first; w < last; ++w) all &= written_[w] == 0xFFFF;
      });
  return all;
}

void DeviceSpace::set_all_written(Address address, uint64_t bytes, bool on) {
  const uint64_t begin = offset_of(address);
  over_bits(
      begin, begin + bytes, [&](uint64_t i) { set_bit(written_, i, on); },
      [&](uint64_t first, uint64_t last) {
        std::memset(written_ + first, on ? 0xFF : 0, (last - first) * 2);
      });
}

void DeviceSpace::copy_written(Address to, const DeviceSpace& source, Address from, uint64_t bytes) {
  if (source.all_written(from, bytes)) return set_all_written(to, bytes, true);
  const uint64_t a = offset_of(to), b = source.offset_of(from);
  for (uint64_t i = 0; i < bytes; ++i) set_bit(written_, a + i, bit(source.written_, b + i));
}

void DeviceSpace::poison_unwritten(Address address, uint64_t bytes, std::byte* copy) const {
  if (all_written(address, bytes)) return;
  const uint64_t begin = offset_of(address);
  for (uint64_t i = 0; i < bytes; ++i)
    if (!bit(written_, begin + i)) copy[i] = kPoison;
}

void DeviceSpace::forget_touches() {
  const uint64_t bytes = kBytes / Cell::kBytes * sizeof(Cell);
  if (madvise(cells_, bytes, MADV_DONTNEED) != 0) {
    for (const auto& [offset, a] : allocations_)
      std::memset(cells_ + offset / Cell::kBytes, 0,
                  (a.bytes + Cell::kBytes - 1) / Cell::kBytes * sizeof(Cell));
  }
}

}  // namespace kiln::cuda::sim
