// SPDX-License-Identifier: Apache-2.0
// Kernels by hand for tests on the simulated device, and plans of them.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/compile_sim.h"
#include "codegen/disk_cache.h"
#include "ir/base/error.h"
#include "runtime/cuda/executor.h"
#include "runtime/cuda/sim.h"

namespace kiln::testing {

// Each block does 64 elements; dims = {n}.
inline constexpr const char* kKernels = R"(#include "kiln_cuda.h"
using namespace kn;
#define EACH(i, n) if (const i64 i = block() * 64 + thread(); i < (n))
KILN_CUDA_KERNEL(add_scalar, 64, 3, 1) {  // out = in + scalar
  EACH(i, dims[0])
    store<1>((f32*)buffers[2] + i, load<1>((const f32*)buffers[0] + i) + load<1>((const f32*)buffers[1]));
}
KILN_CUDA_KERNEL(flip, 64, 2, 1) {  // out[i] = in[n-1-i] * 1.5
  EACH(i, dims[0]) store<1>((f32*)buffers[1] + i, load<1>((const f32*)buffers[0] + (dims[0] - 1 - i)) * 1.5f);
}
KILN_CUDA_KERNEL(add, 64, 3, 1) {  // out = a + b
  EACH(i, dims[0])
    store<1>((f32*)buffers[2] + i, load<1>((const f32*)buffers[0] + i) + load<1>((const f32*)buffers[1] + i));
}
KILN_CUDA_KERNEL(bump, 64, 1, 1) {  // in place: x += 1, four at once where there are as many
  const i64 i = 4 * (block() * 64 + thread());
  f32* x = (f32*)buffers[0];
  if (i + 4 <= dims[0]) return store<4>(x + i, load<4>(x + i) + broadcast<4>(1.0f));
  for (i64 k = i; k < dims[0]; ++k) store<1>(x + k, load<1>(x + k) + 1.0f);
}
KILN_CUDA_KERNEL(through_shared, 64, 2, 1) {  // out[i] = in[i + 1], through all of shared memory
  const Shared<f32> last = shared<f32>(i32(dims[0] - 4 * 64));
  store<1>(last + thread(), load<1>((const f32*)buffers[0] + thread()));
  barrier();
  store<1>((f32*)buffers[1] + thread(), load<1>(last + (thread() + 1) % 64));
}
KILN_CUDA_KERNEL(guard, 64, 2, 1) {  // guard = n, unless the scalar is 1
  if (thread() == 0) {
    const bool good = load<1>((const f32*)buffers[0]) == 1.0f;
    store<1>((i64*)buffers[1], good ? i64(-9223372036854775807ll - 1) : dims[0]);
  }
}
KILN_CUDA_KERNEL(overrun, 64, 1, 1) {  // writes behind its buffer
  if (thread() == 0) store<1>((f32*)buffers[0] + dims[0], 1.0f);
}
)";

inline KernelImage kernels() {
  KernelImage image;
  image.target = "sm_90a";
  image.modules.push_back({"test.cu",
                           kKernels,
                           "",
                           {{"add_scalar", 64, 3, 1},
                            {"flip", 64, 2, 1},
                            {"add", 64, 3, 1},
                            {"bump", 64, 1, 1},
                            {"through_shared", 64, 2, 1},
                            {"guard", 64, 2, 1},
                            {"overrun", 64, 1, 1}}});
  return image;
}

/// Builds plans in few words.
class PlanBuilder {
 public:
  PlanBuilder() { plan.arena_bytes = dim(0); }

  DimIndex dim(const Dim& d) {
    plan.dims.push_back(d);
    return static_cast<DimIndex>(plan.dims.size() - 1);
  }
  int32_t external(const char* name, const Dim& bytes) {
    return add({BufferKind::external, DType::f32, plan.external_count++, dim(bytes), -1, name});
  }
  int32_t output(const char* name, const Dim& bytes, DType dtype = DType::f32) {
    return add({BufferKind::output, dtype, plan.output_count++, dim(bytes), -1, name});
  }
  int32_t scalar(const char* name) {
    return add({BufferKind::scalar, DType::f32, plan.scalar_count++, -1, -1, name});
  }
  int32_t arena(const char* name, const Dim& bytes) {
    const Dim at = plan.dims[static_cast<size_t>(plan.arena_bytes)];
    const int32_t b = add({BufferKind::arena, DType::f32, -1, dim(bytes), dim(at), name});
    plan.arena_bytes = dim(at + ceildiv(bytes, Dim(64)) * Dim(64));
    return b;
  }
  int32_t constant(const char* name, const std::vector<float>& values) {
    const auto at = static_cast<int64_t>(plan.constants.size());
    plan.constants.resize((plan.constants.size() + values.size() * 4 + 63) / 64 * 64);
    std::memcpy(plan.constants.data() + at, values.data(), values.size() * 4);
    return add(
        {BufferKind::constant, DType::f32, -1, dim(static_cast<int64_t>(values.size()) * 4), dim(at), name});
  }
  /// The last buffer is the one that it writes.
  Launch& launch(const char* kernel, std::vector<int32_t> buffers, const Dim& n, bool barrier = true,
                 bool builtin = false) {
    plan.kernels.push_back({builtin, kernel});
    Launch l;
    l.kernel = static_cast<int32_t>(plan.kernels.size() - 1);
    l.writes = {static_cast<int32_t>(buffers.size()) - 1};
    l.buffers = std::move(buffers);
    l.dims = {dim(n)};
    if (builtin) l.dims.push_back(dim(4096));
    l.tasks = dim(ceildiv(n, Dim(64)));
    l.barrier_before = barrier;
    l.profile = static_cast<int32_t>(plan.profile.size());
    plan.profile.push_back({std::string(kernel) + "_row", "", dim(n * work), dim(n), {}});
    plan.launches.push_back(std::move(l));
    return plan.launches.back();
  }

  Plan plan;
  int64_t work = 100'000;  ///< that launches say they have, in bytes an element

 private:
  int32_t add(PlanBuffer b) {
    plan.buffers.push_back(std::move(b));
    return static_cast<int32_t>(plan.buffers.size() - 1);
  }
};

/// A fresh machine for every test.
class OnSimulatedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::set_sim_compile([](const CudaModule& m) {
      static const std::unique_ptr<DiskCache> cache = std::make_unique<DiskCache>();
      return compile_sim(m, cache.get());
    });
    cuda::sim::reset(cuda::sim::default_config());
    cuda::simulated_driver().init(0);
    device_.emplace(cuda::simulated_driver(), 0);
  }
  void TearDown() override {
    if (device_ && !device_->failure()) {
      device_->synchronize();
      EXPECT_EQ(device_->memory().in_use, 0u);
    }
    device_.reset();
  }
  CudaDevice& device() { return *device_; }

  CudaMemory put(const std::vector<float>& values) {
    CudaMemory m = device().allocate(values.size() * 4, "test");
    device().copy_to_device(m.address(), values.data(), values.size() * 4);
    return m;
  }
  CudaMemory room(size_t floats) { return device().allocate(floats * 4, "test"); }
  std::vector<float> get(const CudaMemory& m) { return get(m.address(), m.bytes() / 4); }
  std::vector<float> get(cuda::Address at, size_t floats) {
    std::vector<float> out(floats);
    device().copy_to_host(out.data(), at, floats * 4);
    return out;
  }
  static uint64_t scalar(float value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  static std::vector<float> ramp(size_t n, float from) {
    std::vector<float> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = from + 0.5f * static_cast<float>(i % 97);
    return out;
  }

 private:
  std::optional<CudaDevice> device_;
};

}  // namespace kiln::testing
