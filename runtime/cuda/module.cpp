// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/module.h"

#include <algorithm>

#include "ir/base/error.h"
#include "ir/base/log.h"

namespace kiln {

namespace {
constexpr size_t kSharedWithoutAsking = 48 << 10;
}

CudaFunction::CudaFunction(CudaDevice& device, cuda::Function function, const CudaKernel& kernel)
    : device_(device), function_(function), kernel_(kernel) {
  int shared = 0, local = 0;
  device_.check(device_.driver().function_get(&shared, cuda::kFunctionSharedBytes, function_),
                "cuFuncGetAttribute", kernel_.symbol);
  device_.check(device_.driver().function_get(&local, cuda::kFunctionLocalBytes, function_),
                "cuFuncGetAttribute", kernel_.symbol);
  KILN_CHECK(kernel_.threads > 0 && kernel_.threads <= device_.limits().max_threads_per_block, device,
             "cuda:{}: kernel {} has blocks of {} threads; the device takes up to {}", device_.index(),
             kernel_.symbol, kernel_.threads, device_.limits().max_threads_per_block);
  kernel_.static_shared = shared;
  if (local > 0)
    log(LogLevel::debug, "cuda:{}: kernel {} keeps {} bytes of each thread in memory", device_.index(),
        kernel_.symbol, local);
  const auto taken = static_cast<size_t>(shared);
  allowed_ = taken < kSharedWithoutAsking ? kSharedWithoutAsking - taken : 0;
}

void CudaFunction::allow_shared(size_t bytes) {
  if (bytes <= allowed_.load(std::memory_order_relaxed)) return;
  const size_t limit = device_.limits().shared_per_block;
  const auto taken = static_cast<size_t>(kernel_.static_shared);
  KILN_CHECK(bytes + taken <= limit, device,
             "cuda:{}: kernel {} needs {} bytes of shared memory for a block; {} has {}", device_.index(),
             kernel_.symbol, bytes + taken, device_.name(), limit);
  device_.make_current();
  // All there is, so that threads which ask for different amounts do not take each other's.
  device_.check(device_.driver().function_set(function_, cuda::kFunctionMaxDynamicShared,
                                              static_cast<int>(limit - taken)),
                "cuFuncSetAttribute", kernel_.symbol);
  allowed_.store(limit - taken, std::memory_order_relaxed);
}

CudaModules::CudaModules(CudaDevice& device, const std::vector<CudaModule>& modules, std::string_view target)
    : device_(device) {
  device_.make_current();
  try {
    for (const CudaModule& m : modules) load(m, target);
  } catch (...) {
    for (const cuda::Module m : modules_) device_.driver().module_unload(m);
    throw;
  }
}

void CudaModules::load(const CudaModule& module, std::string_view target) {
  const cuda::Driver& driver = device_.driver();
  cuda::Module loaded = nullptr;
  if (driver.load_source) {
    device_.check(driver.load_source(&loaded, module), "load_source", module.name);
  } else {
    KILN_CHECK(!module.cubin.empty(), device,
               "cuda:{}: {} holds no machine code (hint: it was made where NVRTC was not found)",
               device_.index(), module.name);
    const cuda::Result r = driver.module_load(&loaded, module.cubin.data());
    KILN_CHECK(r != cuda::kNoBinaryForGpu && r != cuda::kInvalidImage, device,
               "cuda:{}: {} was compiled for {}; {} takes {}", device_.index(), module.name, target,
               device_.name(), device_.arch());
    device_.check(r, "cuModuleLoadData", module.name);
  }
  modules_.push_back(loaded);
  for (const CudaKernel& k : module.kernels) {
    cuda::Function function = nullptr;
    device_.check(driver.module_function(&function, loaded, k.symbol.c_str()), "cuModuleGetFunction",
                  k.symbol);
    functions_[k.symbol] = std::make_unique<CudaFunction>(device_, function, k);
  }
}

CudaModules::~CudaModules() {
  try {
    device_.synchronize();
    for (const cuda::Module m : modules_) device_.driver().module_unload(m);
  } catch (const Error&) {  // a device that has failed has lost its modules
  }
}

CudaFunction* CudaModules::find(std::string_view symbol) const {
  const auto it = functions_.find(symbol);
  return it == functions_.end() ? nullptr : it->second.get();
}

}  // namespace kiln
