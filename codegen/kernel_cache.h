// SPDX-License-Identifier: Apache-2.0
// Sources -> one linked image, through the disk cache: what was compiled before, by any process, is not
// again.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/compile_clang.h"
#include "codegen/disk_cache.h"
#include "ir/kernel_image.h"

namespace kiln {

/// What a build cost.
struct BuildCost {
  int compiled = 0, cached = 0;        ///< objects
  double compile_ms = 0, link_ms = 0;  ///< wall time
};

/// The whole key of a source's object: compiler, target, flags, name and text.
std::string object_key(const CpuSource& source, const CpuTarget& target);

/// The objects of `sources`, in order: from `cache` (may be null), made here by about `threads` threads, or
/// made by another process that has claimed them. Processes that start at once share the work: each compiles
/// what no other does. Nothing is loaded, so `target` need not be this machine. `go_on`, unless it is empty,
/// is called before each compile, on the thread that compiles, and ends all by what it throws. Throws: that,
/// and what compile_objects throws; objects that did compile are stored before.
std::vector<std::string> make_objects(std::span<const CpuSource> sources, const CpuTarget& target,
                                      DiskCache* cache, int threads, BuildCost& cost,
                                      const std::function<void()>& go_on = {});

/// Links the objects to an image that exports `names`. Throws: what link_shared throws.
KernelImage link_image(std::span<const std::string> objects, std::span<const std::string> names,
                       const CpuTarget& target, BuildCost& cost);

/// Both.
KernelImage build_image(std::span<const CpuSource> sources, std::span<const std::string> names,
                        const CpuTarget& target, DiskCache* cache, int threads, BuildCost* cost = nullptr);

}  // namespace kiln
