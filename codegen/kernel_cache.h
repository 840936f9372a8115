// SPDX-License-Identifier: Apache-2.0
// Sources -> one linked image, through the disk cache: what was compiled before, by any process, is not
// again.
#pragma once

#include <span>
#include <string>

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

/// Compiles what `cache` lacks by about `threads` threads, stores it, and links everything to an image that
/// exports `names`. `cache` may be null. Nothing is loaded, so `target` need not be this machine. Throws:
/// what compile_objects and link_shared throw; objects that did compile are stored before.
KernelImage build_image(std::span<const CpuSource> sources, std::span<const std::string> names,
                        const CpuTarget& target, DiskCache* cache, int threads, BuildCost* cost = nullptr);

}  // namespace kiln
