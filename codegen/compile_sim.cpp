// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile_sim.h"

#include <optional>
#include <vector>

#include "codegen/compile_clang.h"

namespace kiln {

namespace {

constexpr const char* kSimKind = "sim";

// Contracted as NVRTC does it. Time to compile matters more than time to run.
std::vector<std::string> flags() { return {"-O1", "-ffp-contract=fast-honor-pragmas"}; }

}  // namespace

std::string compile_sim(const CudaModule& module, DiskCache* cache, int* compiled) {
  const CpuTarget& target = host_target();
  std::vector<std::string> names = {"kn_sim"};
  for (const CudaKernel& k : module.kernels) names.push_back(k.symbol);
  const CpuSource source{module.name, module.source, flags(), Prelude::cuda_sim};
  std::string key = compiler_key(target, source.prelude);
  for (const std::string& f : source.flags) key += f + '\n';
  for (const std::string& n : names) key += n + '\n';
  key += module.name + '\n' + module.source;
  if (cache)
    if (std::optional<std::string> hit = cache->load(kSimKind, key)) return *std::move(hit);
  const std::vector<std::string> objects = compile_objects({&source, 1}, target, 1);
  std::string image = link_shared(objects, names);
  if (compiled) ++*compiled;
  if (cache) cache->store(kSimKind, key, image);
  return image;
}

}  // namespace kiln
