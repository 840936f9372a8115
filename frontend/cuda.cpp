// SPDX-License-Identifier: Apache-2.0
#include "frontend/cuda.h"

#include "frontend/late.h"
#include "runtime/cuda/device.h"

namespace kiln::cuda {

bool is_available() { return device_count() > 0; }
int device_count() { return cuda_device_count(); }
void synchronize(int index, SourceLoc loc) {
  detail::require_device(Device::cuda(index, loc), "cuda::synchronize", loc);
  cuda_device(index).synchronize();
  detail::settle(Device::cuda(index));
}
int64_t memory_allocated(int index) { return static_cast<int64_t>(cuda_device(index).memory().in_use); }
int64_t max_memory_allocated(int index) { return static_cast<int64_t>(cuda_device(index).memory().peak); }

}  // namespace kiln::cuda
