// SPDX-License-Identifier: Apache-2.0
// Modules, their functions, and launches.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/cuda/sim_driver.h"

namespace kiln::cuda::sim {

namespace {

// body(machine, function)
template <class Body>
Result call_on_function(Function handle, Body&& body) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock& lock) {
    if (!c.functions.contains(handle))
      return m.refuse(kInvalidHandle, "no such function in the current context");
    return body(m, *handle, lock);
  });
}

std::unique_ptr<FunctionObject> make_function(ContextObject& c, const std::shared_ptr<LoadedImage>& image,
                                              const CudaKernel& info) {
  auto kernel = std::make_shared<Kernel>();
  kernel->image = image;
  kernel->info = info;
  kernel->entry = reinterpret_cast<void (*)(const void*)>(image->address(info.symbol));
  auto f = std::make_unique<FunctionObject>();
  f->context = &c;
  f->kernel = std::move(kernel);
  return f;
}

struct Shape {
  unsigned grid[3], block[3], shared_bytes;
};

// What the driver refuses at once, in words; "" if nothing.
std::string misshapen(const FunctionObject& f, const Shape& s) {
  const CudaKernel& k = f.kernel->info;
  if (s.grid[0] == 0 || s.block[0] == 0) return "no blocks or no threads";
  if (s.grid[0] > 0x7FFFFFFFu) return fmt::format("{} blocks, more than 2147483647", s.grid[0]);
  if (s.grid[1] != 1 || s.grid[2] != 1 || s.block[1] != 1 || s.block[2] != 1)
    return "blocks and threads in more than one dimension, which kernels of Kiln do not have";
  if (s.block[0] != static_cast<unsigned>(k.threads))
    return fmt::format("{} threads, compiled for {}", s.block[0], k.threads);
  if (s.shared_bytes > static_cast<unsigned>(f.max_dynamic_shared))
    return fmt::format("{} bytes of dynamic shared memory, its limit is set to {}", s.shared_bytes,
                       f.max_dynamic_shared);
  return "";
}

}  // namespace

namespace api {

Result module_load(Module*, const void*) {
  return call_in_context([&](Machine& m, ContextObject&, Lock&) {
    return m.refuse(kNoBinaryForGpu,
                    "the simulated device runs kernels from their source alone (load_source)");
  });
}

Result load_source(Module* module, const CudaModule& source) {
  SimCompile compile = nullptr;
  const Result begun = call_in_context([&](Machine& m, ContextObject&, Lock&) {
    compile = m.compile;
    return kSuccess;
  });
  if (begun) return begun;
  KILN_ASSERT(compile, "simulated CUDA device: nobody has said how kernels are compiled (set_sim_compile)");
  auto image = std::make_shared<LoadedImage>(compile(source));
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    *static_cast<const KnSimHooks**>(image->address("kn_sim")) = &m.hooks;
    auto made = std::make_unique<ModuleObject>();
    made->context = &c;
    for (const CudaKernel& k : source.kernels) {
      if (k.threads < 1 || k.threads > BlockRunner::kMaxThreads)
        return m.refuse(kInvalidImage, fmt::format("kernel '{}' has {} threads", k.symbol, k.threads));
      made->functions[k.symbol] = make_function(c, image, k);
    }
    for (const auto& [name, f] : made->functions) c.functions.insert(f.get());
    *module = made.get();
    c.modules[made.get()] = std::move(made);
    return kSuccess;
  });
}

Result module_unload(Module module) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    const ModuleObject* o = find(c.modules, module);
    if (!o) return m.refuse(kInvalidHandle, "no such module");
    for (const auto& [name, f] : o->functions) c.functions.erase(f.get());
    c.modules.erase(module);
    return kSuccess;
  });
}

Result module_function(Function* function, Module module, const char* name) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    ModuleObject* o = find(c.modules, module);
    if (!o) return m.refuse(kInvalidHandle, "no such module");
    const auto at = o->functions.find(name);
    if (at == o->functions.end())
      return m.refuse(kNotFound, fmt::format("the module has no kernel '{}'", name));
    *function = at->second.get();
    return kSuccess;
  });
}

Result function_get(int* value, int attribute, Function function) {
  return call_on_function(function, [&](Machine& m, FunctionObject& f, Lock&) {
    switch (attribute) {
      case kFunctionSharedBytes: *value = f.kernel->info.static_shared; return kSuccess;
      case kFunctionLocalBytes: *value = 0; return kSuccess;
      case kFunctionRegisters: *value = std::max(f.kernel->info.registers, 0); return kSuccess;
      case kFunctionMaxDynamicShared: *value = f.max_dynamic_shared; return kSuccess;
      default:
        return m.refuse(kInvalidValue, fmt::format("function attribute {} is not simulated", attribute));
    }
  });
}

Result function_set(Function function, int attribute, int value) {
  return call_on_function(function, [&](Machine& m, FunctionObject& f, Lock&) {
    const int limit = static_cast<int>(BlockRunner::kSharedBytes) - f.kernel->info.static_shared;
    if (attribute != kFunctionMaxDynamicShared || value < 0 || value > limit)
      return m.refuse(kInvalidValue, fmt::format("function attribute {} cannot be set to {} (limit {})",
                                                 attribute, value, limit));
    f.max_dynamic_shared = value;
    return kSuccess;
  });
}

Result declare(const DeclaredAccess* accesses, size_t count) {
  return call([&](Machine&, Lock&) {
    std::vector<Buffer>& buffers = declared().emplace();
    for (const DeclaredAccess& a : std::span(accesses, count))
      buffers.push_back({a.address, a.bytes, a.read, a.written, a.name, a.gaps});
    return kSuccess;
  });
}

Result launch(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,
              void** extra) {
  return call_on_function(function, [&](Machine& m, FunctionObject& f, Lock& lock) {
    StreamObject* s = m.stream(*f.context, stream);
    if (!s) return m.refuse(kInvalidHandle, "no such stream in the current context");
    Launch l;
    l.declared = declared().has_value();
    if (l.declared) l.buffers = *std::exchange(declared(), std::nullopt);
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    std::string wrong = misshapen(f, shape);
    if (extra || !parameters || !parameters[0]) wrong = "no parameters";
    if (!wrong.empty())
      return m.refuse(kInvalidValue, fmt::format("launch of kernel '{}': {}", f.kernel->info.symbol, wrong));
    l.kernel = f.kernel;
    l.parameters.resize(f.kernel->parameter_bytes() / 8);
    std::memcpy(l.parameters.data(), parameters[0], f.kernel->parameter_bytes());
    l.blocks = grid_x;
    l.shared_bytes = shared_bytes;
    return m.submit(*s, std::move(l), lock);
  });
}

}  // namespace api

}  // namespace kiln::cuda::sim
