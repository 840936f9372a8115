// SPDX-License-Identifier: Apache-2.0
// The kernels of an image on a device.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel_image.h"
#include "runtime/cuda/device.h"

namespace kiln {

/// A kernel that can be launched. Threads: any.
class CudaFunction {
 public:
  CudaFunction(CudaDevice& device, cuda::Function function, const CudaKernel& kernel);

  cuda::Function get() const { return function_; }
  const CudaKernel& kernel() const { return kernel_; }
  /// Makes launches with so many bytes of dynamic shared memory possible. Throws: device, if the device has
  /// less for a block.
  void allow_shared(size_t bytes);

 private:
  CudaDevice& device_;
  cuda::Function function_;
  CudaKernel kernel_;
  std::atomic<size_t> allowed_;
};

/// Loaded modules; unloads them when destroyed, when what runs has ended.
class CudaModules {
 public:
  /// `target` is what their machine code was made for ("sm_90a"). Throws: device, if the device does not take
  /// it: a module without machine code, or with that of another device.
  CudaModules(CudaDevice& device, const std::vector<CudaModule>& modules, std::string_view target);
  ~CudaModules();
  CudaModules(const CudaModules&) = delete;
  CudaModules& operator=(const CudaModules&) = delete;

  /// Null if there is none of that name.
  CudaFunction* find(std::string_view symbol) const;

 private:
  void load(const CudaModule& module, std::string_view target);

  CudaDevice& device_;
  std::vector<cuda::Module> modules_;
  std::map<std::string, std::unique_ptr<CudaFunction>, std::less<>> functions_;
};

}  // namespace kiln
