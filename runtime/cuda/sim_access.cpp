// SPDX-License-Identifier: Apache-2.0
// What a running kernel may do to memory, and how it is said when it does something else.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "runtime/cuda/sim_block.h"

namespace kiln::cuda::sim {

namespace {

Address value(const void* address) { return reinterpret_cast<Address>(address); }

uint16_t mask_of(unsigned offset, unsigned bytes) {
  return static_cast<uint16_t>(((1u << bytes) - 1) << (offset % 16));
}

// memcpy and memcmp of 4, 8 or 16 bytes, which are not worth a call.
template <class F>
auto with_size(unsigned bytes, F&& f) {
  return bytes == 16  ? f(std::integral_constant<size_t, 16>())
         : bytes == 8 ? f(std::integral_constant<size_t, 8>())
                      : f(std::integral_constant<size_t, 4>());
}

}  // namespace

// --- global memory ---

void* BlockRunner::global(const void* pointer, unsigned bytes, int access) {
  const Address address = value(pointer);
  const bool write = access == kn_sim_write;
  const bool constant = check_reach(address, bytes, write);
  DeviceSpace& space = *spec_->space;
  if (!write && !space.written(address, bytes)) [[unlikely]]
    check_gap(address, bytes);
  // Where the launch may not write, reads collide with nothing.
  Conflict c;
  if (!constant) c = touch_bytes(space.cells(), space.offset_of(address), bytes, write, now_, splits_);
  if (c.other) [[unlikely]]
    fail([&] { blame_conflict(c, global_access(address, bytes, write)); });
  if (write) space.set_written(address, bytes);
  return space.data(address);
}

void BlockRunner::check_gap(Address address, unsigned bytes) {
  const Reach::Range* r = spec_->reach->find(address, bytes);
  if (r && r->gaps) return;
  fail([&] {
    blame(kLaunchFailed,
          "uninitialised read: " + global_access(address, bytes, false) + ", which nothing has written");
  });
}

bool BlockRunner::check_reach(Address address, unsigned bytes, bool write) {
  if (address & (bytes - 1)) [[unlikely]]
    fail([&] {
      blame(kMisalignedAddress, fmt::format("misaligned access: {}, an address that is no multiple of {}",
                                            global_access(address, bytes, write), bytes));
    });
  const Reach::Range* r = spec_->reach->find(address, bytes);
  if (r && (r->written || (!write && r->read))) [[likely]]
    return !r->written;
  if (!spec_->reach->allows(address, bytes, write)) fail([&] { blame_reach(address, bytes, write); });
  return false;
}

void BlockRunner::blame_reach(Address address, unsigned bytes, bool write) {
  const std::string what = global_access(address, bytes, write);
  const Reach::Range* r = spec_->reach->find(address, 1);
  const Allocation* a = spec_->space->find(address);
  if (r && spec_->reach->allows(address, bytes, false))
    return blame(kIllegalAddress, "write to a read-only buffer: " + what + ", which the launch only reads");
  if (!r && a && !a->live)
    return blame(kIllegalAddress, fmt::format("use after free: {} (freed, {} bytes)", what, a->bytes));
  blame(kIllegalAddress, "out of bounds: " + what);
}

// --- shared memory ---

void BlockRunner::check_shared(unsigned offset, unsigned bytes, bool write) {
  if (offset % bytes != 0) [[unlikely]]
    fail([&] {
      blame(kMisalignedAddress, fmt::format("misaligned access: {}, an offset that is no multiple of {}",
                                            shared_access(offset, bytes, write), bytes));
    });
  if (offset >= spec_->shared_bytes || bytes > spec_->shared_bytes - offset) [[unlikely]]
    fail([&] {
      blame(kIllegalAddress, fmt::format("out of bounds: {}, which has {} bytes",
                                         shared_access(offset, bytes, write), spec_->shared_bytes));
    });
  const uint16_t mask = mask_of(offset, bytes);
  if (shared_flying_[offset / 16] & mask) [[unlikely]]
    fail([&] {
      blame(kLaunchFailed, fmt::format("copy not waited for: {}, where a copy_async is on its way",
                                       shared_access(offset, bytes, write)));
    });
  if (!write && (shared_written_[offset / 16] & mask) != mask) [[unlikely]]
    fail([&] {
      blame(kLaunchFailed, fmt::format("uninitialised read: {}, which this block has not written",
                                       shared_access(offset, bytes, write)));
    });
  // What another block left in this memory says nothing.
  Now now = now_;
  now.floor = now.block;
  const Conflict c =
      touch_shared(shared_cells_.data(), shared_rows_.data(), offset, bytes, write, now, splits_);
  if (c.other) [[unlikely]]
    fail([&] { blame_conflict(c, shared_access(offset, bytes, write)); });
}

void* BlockRunner::shared(unsigned offset, unsigned bytes, int access) {
  check_shared(offset, bytes, access == kn_sim_write);
  if (access == kn_sim_write) shared_written_[offset / 16] |= mask_of(offset, bytes);
  return shared_.data() + offset;
}

// --- copies that arrive later ---

void BlockRunner::copy_async(unsigned to, const void* from, unsigned bytes, bool valid) {
  if (bytes != 4 && bytes != 8 && bytes != 16)
    fail([&] {
      blame(kLaunchFailed, fmt::format("copy_async: {} copies {} bytes, not 4, 8 or 16", who(), bytes));
    });
  Copy copy = {to, bytes, from, valid, {}};
  if (valid) {
    const void* source = global(from, bytes, kn_sim_read);
    with_size(bytes, [&](auto size) { std::memcpy(copy.seen, source, size); });
  }
  check_shared(to, bytes, true);
  with_size(bytes, [&](auto size) {
    std::memset(shared_.data() + to, static_cast<int>(DeviceSpace::kPoison), size);
  });
  shared_flying_[to / 16] |= mask_of(to, bytes);
  threads_[self_.thread].copies.push_back(copy);
}

void BlockRunner::copy_commit() {
  Thread& t = threads_[self_.thread];
  t.commits.push_back(t.copies.size());
}

void BlockRunner::copy_wait(int pending) {
  Thread& t = threads_[self_.thread];
  if (pending < 0)
    fail([&] { blame(kLaunchFailed, fmt::format("copy_wait: {} waits for all but {}", who(), pending)); });
  if (t.commits.size() <= static_cast<size_t>(pending)) return;
  const size_t groups = t.commits.size() - static_cast<size_t>(pending), count = t.commits[groups - 1];
  for (size_t i = 0; i < count; ++i) land(t.copies[i]);
  t.copies.erase(t.copies.begin(), t.copies.begin() + static_cast<ptrdiff_t>(count));
  t.commits.erase(t.commits.begin(), t.commits.begin() + static_cast<ptrdiff_t>(groups));
  for (size_t& end : t.commits) end -= count;
}

void BlockRunner::land(const Copy& copy) {
  // The device may read the source at any time until now, so that it must have stayed as it was.
  const auto changed = [&](auto size) {
    return std::memcmp(spec_->space->data(value(copy.from)), copy.seen, size) != 0;
  };
  if (copy.valid && with_size(copy.bytes, changed))
    fail([&] {
      blame(kLaunchFailed, fmt::format("source of a copy changed: {} by copy_async, written before its wait",
                                       global_access(value(copy.from), copy.bytes, false)));
    });
  shared_flying_[copy.to / 16] &= static_cast<uint16_t>(~mask_of(copy.to, copy.bytes));
  check_shared(copy.to, copy.bytes, true);
  shared_written_[copy.to / 16] |= mask_of(copy.to, copy.bytes);
  with_size(copy.bytes, [&](auto size) { std::memcpy(shared_.data() + copy.to, copy.seen, size); });
}

// --- words ---

std::string BlockRunner::who() const {
  return fmt::format("kernel '{}', block {}, thread {}", spec_->kernel, self_.block, self_.thread);
}

std::string BlockRunner::access(unsigned bytes, bool write, const std::string& place) const {
  return fmt::format("{} {} {} bytes at {}", who(), write ? "writes" : "reads", bytes, place);
}

std::string BlockRunner::global_access(Address address, unsigned bytes, bool write) const {
  const Buffer* b = spec_->reach->nearest(address);
  if (!b) return access(bytes, write, fmt::format("{:#x}, which is near no buffer of the launch", address));
  const auto offset = static_cast<int64_t>(address - b->address);
  return access(bytes, write, fmt::format("offset {} of '{}' ({} bytes)", offset, b->name, b->bytes));
}

std::string BlockRunner::shared_access(unsigned offset, unsigned bytes, bool write) const {
  return access(bytes, write, fmt::format("offset {} of shared memory", offset));
}

void BlockRunner::blame_conflict(const Conflict& c, const std::string& access) {
  const uint32_t tick = tick_of(c.other);
  const uint32_t thread = c.other & kThreadMask;
  const char* verb = c.wrote ? "has written" : "has read";
  if (tick >= now_.block && !(c.other & kOtherBlock))
    return blame(kLaunchFailed,
                 fmt::format("missing barrier: {}, which thread {} {} with no barrier in between", access,
                             thread, verb));
  const auto at = std::prev(std::upper_bound(began_.begin(), began_.end(), tick,
                                             [](uint32_t t, const auto& b) { return t < b.first; }));
  const std::string block =
      at->second == self_.block ? "another block" : fmt::format("block {}, thread {},", at->second, thread);
  blame(kLaunchFailed,
        fmt::format("blocks collide: {}, which {} {}; blocks run in any order", access, block, verb));
}

void BlockRunner::blame_meeting(const Warp& warp, const char* word, unsigned bytes) {
  if (std::strcmp(warp.word, word) != 0)
    return blame(kLaunchFailed,
                 fmt::format("lanes diverge: {} is in {} while other lanes of its warp are in {}", who(),
                             word, warp.word));
  blame(kLaunchFailed,
        fmt::format("lanes diverge: {} is in {} with {} bytes, other lanes of its warp with {}", who(), word,
                    bytes, warp.bytes));
}

// Some wait, and nobody is left who could come.
void BlockRunner::report_stuck() {
  const auto place = [&](int t) {
    const Thread& thread = threads_[t];
    if (thread.state == State::ended) return std::string("has ended");
    if (thread.state == State::at_barrier) return std::string("waits at a barrier");
    return fmt::format("waits for its warp in {}", warps_[t / 32].word);
  };
  int waits = 0;
  while (threads_[waits].state == State::ended) ++waits;
  int other = 0;
  // Rather one whose absence is the reason: of the same warp for those who wait for their warp.
  const bool in_warp = threads_[waits].state == State::at_warp;
  const int first = in_warp ? waits / 32 * 32 : 0;
  const int last = in_warp ? std::min(first + 32, spec_->threads) : spec_->threads;
  for (int t = first; t < last; ++t)
    if (threads_[t].state != threads_[waits].state) other = t;
  blame(kLaunchFailed, fmt::format("barrier divergence: kernel '{}', block {}: thread {} {}, thread {} {}",
                                   spec_->kernel, self_.block, waits, place(waits), other, place(other)));
}

}  // namespace kiln::cuda::sim
