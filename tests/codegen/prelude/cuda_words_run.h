// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of cuda_words_modules.h on the device that this process has, a GPU or the simulated one.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "codegen/compile_nvrtc.h"
#include "codegen/compile_sim.h"
#include "runtime/cuda/module.h"
#include "tests/codegen/prelude/cuda_words_modules.h"

namespace kiln::testing {

/// A buffer of a kernel: its bytes go to the device, and come back if it is written.
struct Argument {
  void* data;
  size_t bytes;
  bool written;
};
template <typename T>
Argument in(const std::vector<T>& v) {
  return {const_cast<T*>(v.data()), v.size() * sizeof(T), false};
}
template <typename T>
Argument out(std::vector<T>& v) {
  return {v.data(), v.size() * sizeof(T), true};
}
struct Grid {
  int64_t blocks = 1;
  size_t shared = 0;
};
/// Of a kernel that does several things in one launch.
struct Part {
  std::vector<Argument> arguments;
  std::vector<int64_t> dims;
  int64_t blocks;
};

class CudaWords : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool once = (open(), true);
    (void)once;
  }
  void SetUp() override {
    if (!modules_) GTEST_SKIP() << "no device to run kernels on: " << why_;
  }

  static void run(const std::string& kernel, const std::vector<Argument>& arguments,
                  const std::vector<int64_t>& dims = {}, Grid grid = {}, const int64_t* guard = nullptr) {
    Placed placed;
    std::vector<uint64_t> block;
    for (const Argument& a : arguments) block.push_back(placed.put(a));
    for (const int64_t n : dims) block.push_back(static_cast<uint64_t>(n));
    if (dims.empty()) block.push_back(0);
    launch(kernel, placed, block, grid, guard);
  }
  /// Each part has as many arguments and dims as the kernel says, and one at least.
  static void run_parts(const std::string& kernel, const std::vector<Part>& parts,
                        const int64_t* guard = nullptr) {
    const CudaFunction* const f = modules_->find(kernel);
    ASSERT_TRUE(f) << kernel;
    const auto most = static_cast<size_t>(f->kernel().parts);
    ASSERT_LE(parts.size(), most);
    Placed placed;
    std::vector<uint64_t> first(most, std::numeric_limits<int64_t>::max()), buffers, dims;
    int64_t blocks = 0;
    for (size_t i = 0; i < parts.size(); blocks += parts[i++].blocks) {
      first[i] = static_cast<uint64_t>(blocks);
      for (const Argument& a : parts[i].arguments) buffers.push_back(placed.put(a));
      dims.insert(dims.end(), parts[i].dims.begin(), parts[i].dims.end());
    }
    buffers.resize(most * static_cast<size_t>(f->kernel().buffer_count));
    dims.resize(most * static_cast<size_t>(f->kernel().dim_count));
    first.insert(first.end(), buffers.begin(), buffers.end());
    first.insert(first.end(), dims.begin(), dims.end());
    launch(kernel, placed, first, {blocks}, guard);
  }

 private:
  /// Arguments on the device.
  struct Placed {
    std::vector<Argument> arguments;
    std::vector<CudaMemory> memory;
    std::vector<cuda::DeclaredAccess> accesses;
    uint64_t put(const Argument& a) {
      arguments.push_back(a);
      memory.push_back(device_->allocate(a.bytes, "test"));
      device_->copy_to_device(memory.back().address(), a.data, a.bytes);
      accesses.push_back({memory.back().address(), a.bytes, true, a.written, "test"});
      return memory.back().address();
    }
  };

  static void open() {
    if (!cuda::find_driver(why_)) return;
    device_ = &cuda_device(0);
    std::vector<CudaModule> modules = word_modules();
    DiskCache cache;
    if (device_->simulated()) {
      cuda::set_sim_compile([](const CudaModule& m) {
        DiskCache own;
        return compile_sim(m, &own);
      });
    } else {
      if (!nvrtc_available(&why_)) return;
      compile_cuda(modules, device_->arch(), &cache, 4);
    }
    modules_ = new CudaModules(*device_, modules, device_->arch());
  }

  /// `block` is the parameter block without its guard.
  static void launch(const std::string& kernel, Placed& placed, std::vector<uint64_t> block, Grid grid,
                     const int64_t* guard) {
    CudaFunction* const f = modules_->find(kernel);
    ASSERT_TRUE(f) << kernel;
    block.push_back(guard ? placed.put({const_cast<int64_t*>(guard), 8, false}) : 0);
    ASSERT_EQ(block.size(), static_cast<size_t>(parameter_words(f->kernel()))) << kernel;
    f->allow_shared(grid.shared);
    device_->launch({f->get(), grid.blocks, f->kernel().threads, grid.shared, block.data(), kernel.c_str(),
                     "", placed.accesses},
                    device_->compute());
    for (size_t i = 0; i < placed.arguments.size(); ++i)
      if (placed.arguments[i].written)
        device_->copy_to_host(placed.arguments[i].data, placed.memory[i].address(),
                              placed.arguments[i].bytes);
    device_->synchronize();
  }

  static inline std::string why_;
  static inline CudaDevice* device_ = nullptr;
  static inline CudaModules* modules_ = nullptr;  // of all suites; never destroyed, as the device
};

}  // namespace kiln::testing
