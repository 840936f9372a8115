// SPDX-License-Identifier: Apache-2.0
// For tests of CUDA code generation: runs plans on the simulated device, which sees what threads, blocks and
// launches do to each other's memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/compile_sim.h"
#include "runtime/cuda/executor.h"
#include "runtime/cuda/sim.h"
#include "tests/codegen/compiled.h"

namespace kiln::testing {

/// A fresh simulated device.
class SimulatedDevice {
 public:
  SimulatedDevice() {
    cuda::set_sim_compile([](const CudaModule& m) {
      static const std::unique_ptr<DiskCache> cache = std::make_unique<DiskCache>();
      return compile_sim(m, cache.get());
    });
    cuda::sim::reset(cuda::sim::default_config());
    cuda::simulated_driver().init(0);
    device_ = std::make_unique<CudaDevice>(cuda::simulated_driver(), 0);
  }
  CudaDevice& operator*() { return *device_; }
  CudaDevice* operator->() { return device_.get(); }

 private:
  std::unique_ptr<CudaDevice> device_;
};

/// What of an image a plan launches.
inline KernelImage used_by(const Plan& plan, const KernelImage& image) {
  KernelImage out{image.target, {}, {}, {}};
  for (const CudaModule& m : image.modules)
    if (std::any_of(m.kernels.begin(), m.kernels.end(), [&](const CudaKernel& k) {
          return std::any_of(plan.kernels.begin(), plan.kernels.end(),
                             [&](const PlanKernel& p) { return p.symbol == k.symbol; });
        }))
      out.modules.push_back(m);
  return out;
}

/// As execute of compiled.h. Throws: device, for what kernels do that a device would not.
inline std::vector<HostTensor> execute_cuda(const Graph& g, const Plan& plan, const KernelImage& image,
                                            const std::vector<HostTensor>& inputs,
                                            const std::vector<ExternalLayout>& layouts = {},
                                            const std::map<std::string, int64_t, std::less<>>& symbols = {},
                                            std::span<ProcessGroup* const> groups = {}) {
  SimulatedDevice device;
  CudaExecutable exe(plan, used_by(plan, image), *device);
  std::deque<PlacedInput> own;
  std::vector<CudaMemory> memory;
  std::vector<void*> externals, outputs;
  std::vector<uint64_t> scalars;
  std::vector<size_t> memory_of(g.inputs.size());
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const bool scalar = g.inputs[i].kind == InputKind::scalar;
    own.emplace_back(inputs[i], scalar || layouts.empty() ? nullptr : &layouts[externals.size()]);
    if (scalar) {
      uint64_t bits = 0;
      std::memcpy(&bits, own.back().data(), dtype_size(inputs[i].ref.dtype));
      scalars.push_back(bits);
      continue;
    }
    memory_of[i] = memory.size();
    memory.push_back(device->allocate(own.back().bytes(), "test"));
    device->copy_to_device(memory.back().address(), own.back().data(), own.back().bytes());
    externals.push_back(memory.back().data());
  }
  std::vector<HostTensor> out(g.outputs.size());
  const size_t first_output = memory.size();
  for (size_t k = 0; k < out.size(); ++k) {
    const GraphOutput& o = g.outputs[k];
    if (o.alias_input >= 0) continue;
    std::vector<int64_t> shape;
    for (const Dim& d : g.type(o.value).shape) shape.push_back(d.eval(symbols));
    out[k] = make_host_tensor(g.type(o.value).dtype, shape);
    const size_t bytes = static_cast<size_t>(out[k].ref.numel()) * dtype_size(out[k].ref.dtype);
    memory.push_back(device->allocate(std::max<size_t>(bytes, 16), "test"));
    outputs.push_back(memory.back().data());
  }
  std::vector<int64_t> sizes;
  for (const std::string& s : plan.symbols) sizes.push_back(symbols.find(s)->second);
  exe.run(
      {.externals = externals, .outputs = outputs, .scalars = scalars, .symbols = sizes, .groups = groups});
  device->synchronize();
  for (size_t i = 0; i < own.size(); ++i)
    if (g.inputs[i].kind != InputKind::scalar)
      device->copy_to_host(own[i].data(), memory[memory_of[i]].address(), own[i].bytes());
  for (size_t k = 0, at = first_output; k < out.size(); ++k) {
    const GraphOutput& o = g.outputs[k];
    if (o.alias_input >= 0) {
      out[k] = own[static_cast<size_t>(o.alias_input)].now();
      continue;
    }
    const size_t bytes = static_cast<size_t>(out[k].ref.numel()) * dtype_size(out[k].ref.dtype);
    if (bytes > 0) device->copy_to_host(out[k].ref.data, memory[at].address(), bytes);
    ++at;
  }
  for (size_t i = 0; i < own.size(); ++i)
    KILN_ASSERT(own[i].marks_hold(), "a kernel wrote between the elements of input {}", i);
  return out;
}

}  // namespace kiln::testing
