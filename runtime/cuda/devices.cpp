// SPDX-License-Identifier: Apache-2.0
// The CUDA devices of this process.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ir/base/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/guards.h"

namespace kiln {

namespace {

struct Devices {
  std::mutex mutex;
  std::vector<std::unique_ptr<CudaDevice>> made;  // by index; null: not yet
  std::atomic<bool> any = false;
};
Devices& devices() {
  static auto* const all = new Devices;  // outlives every static that may still hold memory of one
  return *all;
}

}  // namespace

CudaDevice& cuda_device(int index) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  const auto at = static_cast<size_t>(index);
  if (index >= 0 && at < all.made.size() && all.made[at]) return *all.made[at];
  std::string why;
  const cuda::Driver* driver = cuda::find_driver(why);
  KILN_CHECK(driver, device, "cuda:{}: no CUDA device can be used: {}", index, why);
  auto made = std::make_unique<CudaDevice>(*driver, index);
  // Registered behind the driver, which ends later.
  if (all.made.empty())
    std::atexit([] {
      for (CudaDevice* d : made_cuda_devices()) d->guards().tell();
    });
  if (at >= all.made.size()) all.made.resize(at + 1);
  all.made[at] = std::move(made);
  all.any.store(true, std::memory_order_release);
  return *all.made[at];
}

std::vector<CudaDevice*> made_cuda_devices() {
  Devices& all = devices();
  std::vector<CudaDevice*> out;
  if (!all.any.load(std::memory_order_acquire)) return out;
  const std::lock_guard lock(all.mutex);
  for (const auto& d : all.made)
    if (d) out.push_back(d.get());
  return out;
}

int cuda_device_count() {
  std::string why;
  const cuda::Driver* driver = cuda::find_driver(why);
  int count = 0;
  return driver && driver->device_count(&count) == cuda::kSuccess ? count : 0;
}

}  // namespace kiln
