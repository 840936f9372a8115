// SPDX-License-Identifier: Apache-2.0
// A driver that does what it is told to at once, on host memory, and fails where a test says so: for errors
// that the simulated device does not have.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/driver.h"

namespace kiln::cuda {

/// What the driver has done and will answer.
struct Fake {
  std::map<std::string, Result> fails;  ///< by name of the function: what it answers
  std::vector<std::string> calls;       ///< of those that are of interest
  std::map<Address, size_t> memory;
  size_t total = size_t{1} << 30, used = 0, trimmed = 0;
  int major = 9, minor = 0, pools = 1, devices = 2;
  std::vector<std::string> names;  // of functions
};

inline Fake& fake() {
  static Fake f;
  return f;
}

inline Result answer(const char* name) {
  const auto it = fake().fails.find(name);
  return it == fake().fails.end() ? kSuccess : it->second;
}

inline void fake_devices(Driver& d) {
  d.init = [](unsigned) { return kSuccess; };
  d.driver_version = [](int* v) { return *v = 12040, kSuccess; };
  d.error_name = [](Result r, const char** t) {
    *t = r == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_SOME";
    return kSuccess;
  };
  d.error_string = [](Result r, const char** t) {
    *t = r == kIllegalAddress ? "an illegal memory access was encountered" : "some error";
    return kSuccess;
  };
  d.device_count = [](int* n) { return *n = fake().devices, kSuccess; };
  d.device_get = [](DeviceId* id, int i) { return *id = i, kSuccess; };
  d.device_name = [](char* name, int room, DeviceId) {
    std::strncpy(name, "Fake 100", static_cast<size_t>(room));
    return kSuccess;
  };
  d.device_attribute = [](int* value, int which, DeviceId) {
    *value = which == kComputeMajor           ? fake().major
             : which == kComputeMinor         ? fake().minor
             : which == kMemoryPoolsSupported ? fake().pools
                                              : 1024 + which;
    return kSuccess;
  };
  d.device_memory = [](size_t* bytes, DeviceId) { return *bytes = fake().total, kSuccess; };
  d.context_retain = [](Context* c, DeviceId) { return *c = nullptr, answer("cuDevicePrimaryCtxRetain"); };
  d.context_release = [](DeviceId) { return kSuccess; };
  d.context_set = [](Context) { return answer("cuCtxSetCurrent"); };
  d.context_synchronize = [] { return answer("cuCtxSynchronize"); };
}

inline void fake_memory(Driver& d) {
  d.memory_info = [](size_t* free, size_t* total) {
    *free = fake().total - fake().used;
    *total = fake().total;
    return kSuccess;
  };
  d.allocate_async = [](Address* a, size_t bytes, Pool, Stream) {
    if (fake().used + bytes > fake().total) return kOutOfMemory;
    *a = reinterpret_cast<Address>(std::aligned_alloc(256, bytes));
    fake().memory[*a] = bytes;
    fake().used += bytes;
    return answer("cuMemAllocFromPoolAsync");
  };
  d.release_async = [](Address a, Stream) {
    fake().used -= fake().memory[a];
    fake().memory.erase(a);
    std::free(reinterpret_cast<void*>(a));
    return kSuccess;
  };
  d.default_pool = [](Pool* p, DeviceId) { return *p = nullptr, kSuccess; };
  d.pool_set = [](Pool, int attribute, void* value) {
    if (attribute == kPoolReleaseThreshold)
      fake().calls.push_back("keep " + std::to_string(*static_cast<uint64_t*>(value)));
    return kSuccess;
  };
  d.pool_get = [](Pool, int, void* value) {
    *static_cast<uint64_t*>(value) = fake().used;
    return kSuccess;
  };
  d.pool_trim = [](Pool, size_t) {
    ++fake().trimmed;
    return kSuccess;
  };
  d.host_allocate = [](void** p, size_t bytes, unsigned) { return *p = std::malloc(bytes), kSuccess; };
  d.host_release = [](void* p) { return std::free(p), kSuccess; };
  d.copy_to_device = [](Address to, const void* from, size_t bytes, Stream) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    fake().calls.push_back("up " + std::to_string(bytes));
    return answer("cuMemcpyHtoDAsync");
  };
  d.copy_to_host = [](void* to, Address from, size_t bytes, Stream) {
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);
    return answer("cuMemcpyDtoHAsync");
  };
  d.copy_on_device = [](Address to, Address from, size_t bytes, Stream) {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
    return kSuccess;
  };
  d.set_bytes = [](Address to, unsigned char value, size_t bytes, Stream) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return kSuccess;
  };
}

inline void fake_streams(Driver& d) {
  d.stream_create = [](Stream* s, unsigned, int) {
    return *s = nullptr, answer("cuStreamCreateWithPriority");
  };
  d.stream_destroy = [](Stream) { return kSuccess; };
  d.stream_synchronize = [](Stream) { return answer("cuStreamSynchronize"); };
  d.stream_wait = [](Stream, Event, unsigned) { return kSuccess; };
  d.event_create = [](Event* e, unsigned flags) {
    *e = reinterpret_cast<Event>(std::malloc(1));
    fake().calls.push_back(flags == kEventDisableTiming ? "event" : "timed event");
    return kSuccess;
  };
  d.event_destroy = [](Event e) { return std::free(e), kSuccess; };
  d.event_record = [](Event, Stream) { return kSuccess; };
  d.event_query = [](Event) { return answer("cuEventQuery"); };
  d.event_synchronize = [](Event) { return answer("cuEventSynchronize"); };
  d.event_elapsed = [](float* ms, Event, Event) { return *ms = 1.5f, kSuccess; };
  d.launch = [](Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                void**, void**) { return answer("cuLaunchKernel"); };
}

inline const Driver& fake_driver() {
  static const Driver driver = [] {
    Driver d;
    fake_devices(d);
    fake_memory(d);
    fake_streams(d);
    return d;
  }();
  return driver;
}

}  // namespace kiln::cuda
