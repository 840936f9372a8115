// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_cache.h"

#include <chrono>
#include <utility>
#include <vector>

namespace kiln {

namespace {

constexpr const char* kKind = "object";

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string key_after(const std::string& compiler, const CpuSource& source) {
  std::string key = compiler;
  for (const std::string& f : source.flags) key += f + '\n';
  // The name is in the object, as its debuggers' file name.
  return key + '\n' + source.name + '\n' + source.text;
}

}  // namespace

std::string object_key(const CpuSource& source, const CpuTarget& target) {
  return key_after(compiler_key(target), source);
}

KernelImage build_image(std::span<const CpuSource> sources, std::span<const std::string> names,
                        const CpuTarget& target, DiskCache* cache, int threads, BuildCost* cost) {
  const std::string compiler = compiler_key(target);
  std::vector<std::string> objects(sources.size());
  std::vector<CpuSource> missing;
  std::vector<size_t> slots;  // of the missing, in `objects`
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < sources.size(); ++i) {
    std::optional<std::string> hit;
    if (cache) hit = cache->load(kKind, key_after(compiler, sources[i]));
    if (hit) {
      objects[i] = std::move(*hit);
      continue;
    }
    missing.push_back(sources[i]);
    slots.push_back(i);
  }
  // A store waits 10 ms for the disk, a third of a compile: one thread more keeps the processors busy.
  compile_each(missing, target, cache ? threads + 1 : threads, [&](size_t i, std::string&& object) {
    if (cache) cache->store(kKind, key_after(compiler, missing[i]), object);
    objects[slots[i]] = std::move(object);
  });
  const double compile_ms = ms_since(start);
  const auto link_start = std::chrono::steady_clock::now();
  KernelImage image{target.str(), {names.begin(), names.end()}, link_shared(objects, names)};
  if (cost)
    *cost = {static_cast<int>(missing.size()), static_cast<int>(sources.size() - missing.size()), compile_ms,
             ms_since(link_start)};
  return image;
}

}  // namespace kiln
