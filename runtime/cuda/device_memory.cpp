// SPDX-License-Identifier: Apache-2.0
// Memory of a device: allocation, who holds what, and copies.
#include "runtime/cuda/device_memory.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/text.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/staging.h"

namespace kiln {

using cuda::Address;

namespace {

constexpr size_t kGranule = 256;
constexpr size_t kHoldersNamed = 5;

}  // namespace

void CudaDevice::check_bytes(cuda::Result result, const char* call, size_t bytes) {
  if (result != cuda::kSuccess) check(result, call, fmt::format("{} bytes", bytes));
}

CudaMemory CudaDevice::allocate(size_t bytes, std::string_view holder,
                                const std::function<std::string()>& describe) {
  return allocate_on(plain_.compute, bytes, holder, describe);
}

CudaMemory CudaDevice::allocate_on(cuda::Stream stream, size_t bytes, std::string_view holder,
                                   const std::function<std::string()>& describe) {
  CudaMemory out;
  if (bytes == 0) return out;
  make_current();
  const size_t rounded = (bytes + kGranule - 1) / kGranule * kGranule;
  const auto attempt = [&] { return driver_.allocate_async(&out.address_, rounded, pool_, stream); };
  cuda::Result r = rounded < bytes ? cuda::kOutOfMemory : attempt();
  if (r == cuda::kOutOfMemory && rounded >= bytes) {
    // What streams have yet to give back, and what the pool keeps in pieces, may be enough together.
    synchronize();
    trim();
    r = attempt();
  }
  if (r == cuda::kOutOfMemory)
    throw Error(ErrorKind::device, who_holds(bytes, holder, describe ? describe() : ""));
  check_bytes(r, "cuMemAllocFromPoolAsync", rounded);
  out.device_ = this;
  out.bytes_ = bytes;
  const std::lock_guard lock(mutex_);
  auto it = holders_.find(holder);
  if (it == holders_.end()) it = holders_.emplace(holder, 0).first;
  out.holder_ = &it->second;
  *out.holder_ += bytes;
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return out;
}

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  if (this == &other) return *this;
  release();
  device_ = std::exchange(other.device_, nullptr);
  address_ = std::exchange(other.address_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  holder_ = std::exchange(other.holder_, nullptr);
  return *this;
}

void CudaMemory::release() {
  if (!address_) return;
  device_->forget(*this);
  device_ = nullptr;
  address_ = 0;
  bytes_ = 0;
  holder_ = nullptr;
}

/// A device that has failed has lost its memory anyway: errors are of no use here.
void CudaDevice::forget(CudaMemory& memory) {
  if (driver_.context_set(context_) == cuda::kSuccess) driver_.release_async(memory.address_, plain_.compute);
  const std::lock_guard lock(mutex_);
  *memory.holder_ -= memory.bytes_;
  in_use_ -= memory.bytes_;
}

CudaHold CudaDevice::hold(Address address, size_t bytes) {
  CudaHold out;
  if (!driver_.hold || bytes == 0) return out;
  make_current();
  check_bytes(driver_.hold(address, bytes, true), "hold", bytes);
  out.device_ = this;
  out.address_ = address;
  return out;
}

CudaHold& CudaHold::operator=(CudaHold&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  return *this;
}

CudaHold::~CudaHold() {
  if (device_ && device_->driver_.context_set(device_->context_) == cuda::kSuccess)
    device_->driver_.hold(address_, 0, false);
}

std::string CudaDevice::who_holds(size_t asked, std::string_view holder, const std::string& what) {
  const CudaMemoryStats now = memory();
  std::vector<std::pair<size_t, std::string>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, bytes] : holders_)
      if (bytes > 0) all.emplace_back(bytes, name);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kHoldersNamed); ++i)
    text += fmt::format("{}{} {:.1f} MiB", i ? ", " : "", all[i].second, mib(all[i].first));
  if (all.size() > kHoldersNamed) text += fmt::format(" and {} others", all.size() - kHoldersNamed);
  return fmt::format(
      "cuda:{}: out of memory; asked for {:.1f} MiB for {}{}, got {:.1f} MiB free of {:.1f} MiB, with {:.1f} "
      "MiB in use: {}; the pool has {:.1f} MiB of the device{} (hint: a smaller batch needs less; another "
      "process may hold the rest)",
      index_, mib(asked), holder, what.empty() ? "" : fmt::format(" ({})", what), mib(now.free),
      mib(now.total), mib(now.in_use), text.empty() ? "nothing" : text, mib(now.reserved), graph_text());
}

std::string CudaDevice::graph_text() const {
  const std::lock_guard lock(mutex_);
  if (graphs_ == 0) return "";
  const auto held = holders_.find(kCudaGraphHolder);
  std::string text = fmt::format(", {} CUDA graph{} {:.1f} MiB", graphs_, graphs_ == 1 ? "" : "s",
                                 mib(held == holders_.end() ? 0 : held->second));
  if (caps_.per_plan > 0)
    text += fmt::format(" (at most {} of a program, and {:.1f} MiB but for programs with collectives)",
                        caps_.per_plan, mib(caps_.bytes));
  return text;
}

void CudaDevice::count_graphs(int change) {
  const std::lock_guard lock(mutex_);
  graphs_ += change;
}

void CudaDevice::set_graph_caps(CudaGraphCaps caps) {
  const std::lock_guard lock(mutex_);
  caps_ = caps;
}

CudaMemoryStats CudaDevice::memory() {
  make_current();
  CudaMemoryStats out;
  uint64_t reserved = 0;
  check(driver_.pool_get(pool_, cuda::kPoolReservedCurrent, &reserved), "cuMemPoolGetAttribute");
  check(driver_.memory_info(&out.free, &out.total), "cuMemGetInfo");
  out.reserved = reserved;
  const std::lock_guard lock(mutex_);
  out.in_use = in_use_;
  out.peak = peak_;
  return out;
}

void CudaDevice::trim() {
  make_current();
  check(driver_.pool_trim(pool_, 0), "cuMemPoolTrimTo");
}

PinnedMemory CudaDevice::allocate_pinned(size_t bytes) {
  PinnedMemory out;
  if (bytes == 0) return out;
  make_current();
  void* data = nullptr;
  check_bytes(driver_.host_allocate(&data, bytes, cuda::kHostAllocPortable), "cuMemHostAlloc", bytes);
  out.device_ = this;
  out.data_ = static_cast<std::byte*>(data);
  out.bytes_ = bytes;
  return out;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (data_ && device_->driver_.context_set(device_->context_) == cuda::kSuccess)
    device_->driver_.host_release(data_);
}

void CudaDevice::check_unrecorded(const char* call, size_t bytes) const {
  KILN_CHECK(!recording(), device,
             "cuda:{}: while a graph of {} was recorded: {} of {} bytes: a copy from memory of the host that "
             "may change cannot be recorded",
             index_, recorded_name_, call, bytes);
}

void CudaDevice::copy_to_device(Address to, const void* from, size_t bytes) {
  check_unrecorded("copy_to_device", bytes);
  staging_->upload(to, from, bytes);
}

/// The next upload waits for where the compute stream was kUploadsAhead uploads ago: what has been given back
/// there until then, the pool may give out again.
void CudaDevice::stay_near_compute() {
  const std::lock_guard lock(upload_mutex_);
  CudaEvent& asked = asked_[uploads_++ % kUploadsAhead];
  if (asked.get()) wait(plain_.uploads, asked);
  else asked = event();
  record(asked, plain_.compute);
}

CudaMemory CudaDevice::upload(const void* from, size_t bytes, std::string_view holder,
                              const std::function<std::string()>& describe) {
  check_unrecorded("upload", bytes);
  if (bytes < kSmallUpload) {
    CudaMemory out = allocate(bytes, holder, describe);
    staging_->upload(out.address(), from, bytes);
    return out;
  }
  stay_near_compute();
  CudaMemory out = allocate_on(plain_.uploads, bytes, holder, describe);
  try {
    upload_staging_->upload(out.address(), from, bytes);
  } catch (const Error&) {
    order(plain_.uploads, plain_.compute);  // where it is given back, with copies on their way
    throw;
  }
  order(plain_.uploads, plain_.compute);
  return out;
}

void CudaDevice::copy_to_host(void* to, Address from, size_t bytes) {
  if (bytes == 0) return;
  order(compute(), copies());  // there, so as not to wait for what others put on the compute stream meanwhile
  copy_to_host(to, from, bytes, copies());
  synchronize(copies());
}

void CudaDevice::copy_on_device(Address to, Address from, size_t bytes) {
  copy_on_device(to, from, bytes, compute());
}

void CudaDevice::fill(Address to, unsigned char value, size_t bytes) { fill(to, value, bytes, compute()); }

void CudaDevice::spoil(Address to, unsigned char value, size_t bytes) {
  if (bytes == 0 || !driver_.forget) return fill(to, value, bytes);
  make_current();
  check_bytes(driver_.forget(to, bytes, compute()), "forget", bytes);
}

void CudaDevice::copy_to_device(Address to, const void* from, size_t bytes, cuda::Stream stream) {
  if (bytes == 0) return;
  make_current();
  check_bytes(driver_.copy_to_device(to, from, bytes, stream), "cuMemcpyHtoDAsync", bytes);
}

void CudaDevice::copy_to_host(void* to, Address from, size_t bytes, cuda::Stream stream) {
  if (bytes == 0) return;
  make_current();
  check_bytes(driver_.copy_to_host(to, from, bytes, stream), "cuMemcpyDtoHAsync", bytes);
}

void CudaDevice::copy_on_device(Address to, Address from, size_t bytes, cuda::Stream stream) {
  if (bytes == 0) return;
  make_current();
  check_bytes(driver_.copy_on_device(to, from, bytes, stream), "cuMemcpyDtoDAsync", bytes);
}

void CudaDevice::fill(Address to, unsigned char value, size_t bytes, cuda::Stream stream) {
  if (bytes == 0) return;
  make_current();
  check_bytes(driver_.set_bytes(to, value, bytes, stream), "cuMemsetD8Async", bytes);
}

}  // namespace kiln
