// SPDX-License-Identifier: Apache-2.0
// Memory: of devices, of their pools, of the host; copies and fills.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/cuda/sim_capture.h"
#include "runtime/cuda/sim_driver.h"

namespace kiln::cuda::sim {

namespace {

constexpr uint64_t kUnit = 256;  // what an allocation takes is a multiple of this
uint64_t taken(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// Room for that many bytes, from what pools keep and what streams are yet to free if need be.
Result make_room(Machine& m, ContextObject& c, uint64_t bytes, Lock& lock) {
  if (FailurePlan::due(m.failures.allocation))
    return m.refuse(kOutOfMemory,
                    fmt::format("out of memory: planned failure of an allocation of {} bytes", bytes));
  const auto fits = [&] {
    return bytes <= m.config.memory && c.allocated + c.pool.reserved <= m.config.memory - bytes;
  };
  if (fits()) return kSuccess;
  m.finish_all(c, lock);
  c.pool.reserved = c.pool.used;
  if (c.error) return c.error.code;
  if (fits()) return kSuccess;
  return m.refuse(kOutOfMemory,
                  fmt::format("out of memory: {} bytes asked for, {} of {} are free", bytes,
                              m.config.memory - c.allocated - c.pool.reserved, m.config.memory));
}

Result exhausted(Machine& m) { return m.refuse(kOutOfMemory, "out of memory: no addresses are left"); }

// The allocation that begins at an address which is to be freed; null, with words, if it cannot be.
const Allocation* freeable(Machine& m, ContextObject& c, Address address) {
  const Allocation* a = c.space.find(address);
  if (!a || c.space.address_of(*a) != address) {
    m.fault = fmt::format("invalid free: no allocation begins at {:#x}", address);
    return nullptr;
  }
  if (a->live && !a->ending) return a;
  m.fault =
      fmt::format("double free: {:#x}, an allocation of {} bytes, has been freed before", address, a->bytes);
  return nullptr;
}

// Is a host range page-locked as a whole?
bool is_pinned(const Machine& m, Address host, uint64_t bytes) {
  auto at = m.pinned.upper_bound(host);
  if (at == m.pinned.begin()) return false;
  --at;
  return host + bytes <= at->first + at->second;
}

// Does a copy that has yet to run read or write these bytes of the host?
bool copied_later(const Action& action, Address begin, uint64_t bytes) {
  if (const auto* c = std::get_if<Copy>(&action)) {
    const auto overlaps = [&](Address at) { return at < begin + bytes && begin < at + c->bytes; };
    return overlaps(c->to) || overlaps(c->from);
  }
  const auto* r = std::get_if<Replay>(&action);
  return r && std::any_of(r->plan->nodes.begin(), r->plan->nodes.end(),
                          [&](const Node& n) { return copied_later(n.action, begin, bytes); });
}

bool copied_later(const Machine& m, Address begin, uint64_t bytes) {
  const auto uses = [&](const StreamObject& s) {
    return std::any_of(s.queue.begin(), s.queue.end(),
                       [&](const WorkPtr& w) { return copied_later(w->action, begin, bytes); });
  };
  for (const auto& c : m.contexts) {
    if (!c) continue;
    if (uses(c->legacy)) return true;
    for (const auto& [key, s] : c->streams)
      if (uses(*s)) return true;
  }
  return false;
}

// Device memory that a copy or fill names, as the driver checks it at once.
Result check_range(Machine& m, Address address, uint64_t bytes, const char* what) {
  ContextObject* c = m.of_address(address);
  if (c && (bytes == 0 || c->space.live(address, bytes))) return kSuccess;
  const Allocation* a = c ? c->space.find(address) : nullptr;
  const char* why = a && !a->live ? "are freed"
                    : a           ? "reach beyond their allocation"
                                  : "are not device memory";
  return m.refuse(kInvalidValue, fmt::format("{}: {} bytes at {:#x} {}", what, bytes, address, why));
}

Result check_host(Machine& m, Address host, const char* what) {
  if (host != 0 && device_of(host) < 0) return kSuccess;
  return m.refuse(kInvalidValue, fmt::format("{}: {:#x} is no host memory", what, host));
}

Result fill(Address to, uint32_t value, unsigned width, uint64_t bytes, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (const Result r = check_range(m, to, bytes, "a fill")) return r;
    if (to % width != 0) return m.refuse(kInvalidValue, fmt::format("a fill: {:#x} is no multiple of 4", to));
    return m.submit(s, Fill{to, value, width, bytes}, lock);
  });
}

}  // namespace

namespace api {

Result memory_info(size_t* free, size_t* total) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    *total = m.config.memory;
    *free = m.config.memory - c.allocated - c.pool.reserved;
    return kSuccess;
  });
}

Result allocate(Address* address, size_t bytes) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock& lock) {
    if (const Result r = check_unsafe("cuMemAlloc")) return r;
    if (bytes == 0) return m.refuse(kInvalidValue, "an allocation of 0 bytes");
    if (const Result r = make_room(m, c, taken(bytes), lock)) return r;
    *address = c.space.allocate(bytes, false);
    if (*address == 0) return exhausted(m);
    c.allocated += taken(bytes);
    return kSuccess;
  });
}

Result release(Address address) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock& lock) {
    if (const Result r = check_unsafe("cuMemFree")) return r;
    if (!freeable(m, c, address)) return kInvalidValue;
    // As the driver does: whatever may use it ends first.
    m.finish_all(c, lock);
    if (c.error) return c.error.code;
    const Allocation* a = freeable(m, c, address);
    if (!a) return kInvalidValue;
    (a->pooled ? c.pool.used : c.allocated) -= taken(a->bytes);
    m.release(c, *a);
    return kSuccess;
  });
}

Result allocate_async(Address* address, size_t bytes, Pool pool, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (s.capture) return forbid_in_capture(s.capture, "cuMemAllocFromPoolAsync");
    ContextObject& c = *s.context;
    if (pool != &c.pool) return m.refuse(kInvalidValue, "no such pool of the current device");
    if (bytes == 0) return m.refuse(kInvalidValue, "an allocation of 0 bytes");
    const uint64_t more = c.pool.used + taken(bytes) - std::min(c.pool.reserved, c.pool.used + taken(bytes));
    if (const Result r = make_room(m, c, more, lock)) return r;
    *address = c.space.allocate(bytes, true);
    if (*address == 0) return exhausted(m);
    PoolObject& p = c.pool;
    p.used += taken(bytes);
    p.used_high = std::max(p.used_high, p.used);
    p.reserved = std::max(p.reserved, p.used);
    p.reserved_high = std::max(p.reserved_high, p.reserved);
    return m.submit(s, Begin{*address, bytes}, lock);
  });
}

Result release_async(Address address, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (s.capture) return forbid_in_capture(s.capture, "cuMemFreeAsync");
    ContextObject& c = *s.context;
    const Allocation* a = freeable(m, c, address);
    if (!a) return kInvalidValue;
    if (!a->pooled)
      return m.refuse(kInvalidValue, fmt::format("invalid free: {:#x} is not of a pool", address));
    c.space.mark_ending(*a);
    return m.submit(s, End{address, a->bytes, taken(a->bytes)}, lock);
  });
}

Result default_pool(Pool* pool, DeviceId device) {
  return call([&](Machine& m, Lock&) {
    if (device < 0 || device >= m.config.devices) return m.refuse(kInvalidDevice, "no such device");
    ContextObject* c = m.contexts[device].get();
    if (!c) return m.refuse(kInvalidContext, "the device has no context, and so no pool");
    *pool = &c->pool;
    return kSuccess;
  });
}

Result pool_set(Pool pool, int attribute, void* value) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    if (pool != &c.pool) return m.refuse(kInvalidValue, "no such pool of the current device");
    const uint64_t v = *static_cast<const uint64_t*>(value);
    if (attribute == kPoolReleaseThreshold) {
      c.pool.threshold = v;
    } else if (attribute == kPoolReservedHigh && v == 0) {
      c.pool.reserved_high = c.pool.reserved;
    } else if (attribute == kPoolUsedHigh && v == 0) {
      c.pool.used_high = c.pool.used;
    } else {
      return m.refuse(kInvalidValue, fmt::format("pool attribute {} cannot be set to {}", attribute, v));
    }
    return kSuccess;
  });
}

Result pool_get(Pool pool, int attribute, void* value) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    if (pool != &c.pool) return m.refuse(kInvalidValue, "no such pool of the current device");
    auto* out = static_cast<uint64_t*>(value);
    switch (attribute) {
      case kPoolReleaseThreshold: *out = c.pool.threshold; return kSuccess;
      case kPoolReservedCurrent: *out = c.pool.reserved; return kSuccess;
      case kPoolReservedHigh: *out = c.pool.reserved_high; return kSuccess;
      case kPoolUsedCurrent: *out = c.pool.used; return kSuccess;
      case kPoolUsedHigh: *out = c.pool.used_high; return kSuccess;
      default: return m.refuse(kInvalidValue, fmt::format("pool attribute {} is not simulated", attribute));
    }
  });
}

Result pool_trim(Pool pool, size_t keep) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    if (pool != &c.pool) return m.refuse(kInvalidValue, "no such pool of the current device");
    c.pool.reserved = std::max<uint64_t>(c.pool.used, std::min<uint64_t>(c.pool.reserved, keep));
    return kSuccess;
  });
}

Result host_allocate(void** address, size_t bytes, unsigned) {
  return call_in_context([&](Machine& m, ContextObject&, Lock&) {
    if (const Result r = check_unsafe("cuMemHostAlloc")) return r;
    if (bytes == 0) return m.refuse(kInvalidValue, "an allocation of 0 bytes");
    *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*address) return m.refuse(kOutOfMemory, fmt::format("out of memory: {} bytes of the host", bytes));
    std::memset(*address, static_cast<int>(DeviceSpace::kPoison), bytes);
    m.pinned[reinterpret_cast<uint64_t>(*address)] = bytes;
    return kSuccess;
  });
}

Result host_release(void* address) {
  return call_in_context([&](Machine& m, ContextObject&, Lock& lock) {
    if (const Result r = check_unsafe("cuMemFreeHost")) return r;
    const auto at = m.pinned.find(reinterpret_cast<uint64_t>(address));
    if (at == m.pinned.end())
      return m.refuse(kInvalidValue, fmt::format("invalid free: no pinned memory begins at {}", address));
    for (const auto& c : m.contexts)
      if (c) m.finish_all(*c, lock);
    m.history.forget(at->first, at->second);
    m.pinned.erase(at);
    std::free(address);
    return kSuccess;
  });
}

Result copy_to_device(Address to, const void* from, size_t bytes, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    const auto host = reinterpret_cast<Address>(from);
    if (const Result r = check_range(m, to, bytes, "a copy to the device")) return r;
    if (const Result r = check_host(m, host, "a copy to the device")) return r;
    Copy copy = {to, host, bytes, {}};
    // What is not pinned is taken at once; a captured copy looks when it is replayed.
    if (!s.capture && !is_pinned(m, host, bytes)) {
      const auto* b = static_cast<const std::byte*>(from);
      copy.staged.assign(b, b + bytes);
    }
    return m.submit(s, std::move(copy), lock);
  });
}

Result copy_to_host(void* to, Address from, size_t bytes, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    const auto host = reinterpret_cast<Address>(to);
    if (const Result r = check_range(m, from, bytes, "a copy to the host")) return r;
    if (const Result r = check_host(m, host, "a copy to the host")) return r;
    // Nobody may look at it before the copy has ended.
    const bool pinned = is_pinned(m, host, bytes);
    if (pinned && !s.capture && !copied_later(m, host, bytes))
      std::memset(to, static_cast<int>(DeviceSpace::kPoison), bytes);
    const bool captured = s.capture != nullptr;
    const Result r = m.submit(s, Copy{host, from, bytes, {}}, lock);
    return r != kSuccess || pinned || captured ? r : m.synchronize(*s.context, s.last, lock);
  });
}

Result copy_on_device(Address to, Address from, size_t bytes, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (const Result r = check_range(m, to, bytes, "a copy on the device")) return r;
    if (const Result r = check_range(m, from, bytes, "a copy on the device")) return r;
    if (to < from + bytes && from < to + bytes)
      return m.refuse(kInvalidValue, fmt::format("a copy on the device: {} bytes at {:#x} and {:#x} overlap",
                                                 bytes, from, to));
    return m.submit(s, Copy{to, from, bytes, {}}, lock);
  });
}

Result set_bytes(Address to, unsigned char value, size_t bytes, Stream stream) {
  return fill(to, value, 1, bytes, stream);
}

Result set_words(Address to, unsigned value, size_t words, Stream stream) {
  return fill(to, value, 4, words * 4, stream);
}

Result forget(Address address, uint64_t bytes, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (const Result r = check_range(m, address, bytes, "forget")) return r;
    return m.submit(s, Forget{address, bytes}, lock);
  });
}

Result hold(Address address, uint64_t bytes, bool held) {
  return call_in_context([&](Machine& m, ContextObject&, Lock&) {
    ContextObject* c = m.of_address(address);
    if (!c) return m.refuse(kInvalidValue, fmt::format("hold: {:#x} is no device memory", address));
    if (!held) {
      c->held.erase(address);
    } else if (bytes > 0) {
      c->held[address] = bytes;
    }
    return kSuccess;
  });
}

}  // namespace api

}  // namespace kiln::cuda::sim
