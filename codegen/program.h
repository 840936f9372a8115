// SPDX-License-Identifier: Apache-2.0
// Graph -> plan and linked kernels, through the disk cache: a second process neither lowers nor compiles.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "codegen/disk_cache.h"
#include "codegen/lower.h"
#include "ir/kernel_image.h"

namespace kiln {

/// What a compile did.
struct CompileStats {
  bool from_cache = false;  ///< plan and image came whole from the cache
  int kernels = 0;          ///< distinct sources
  int launches = 0;
  int compiled = 0, cached = 0;  ///< objects; CUDA: sources that NVRTC compiled
  double lower_ms = 0, compile_ms = 0, link_ms = 0, total_ms = 0;
};

struct CompiledProgram {
  Plan plan;
  KernelImage image;
  CompileStats stats;
};

/// Lowers, compiles what `cache` (may be null) lacks by about `threads` threads, and links. `g` should be
/// optimised; `go_on` as of make_objects. For CUDA, the image holds sources, which are all that the simulated
/// device needs, and with `machine_code` what a real one needs as well. Throws: what lower, make_objects,
/// link_image and compile_cuda throw.
CompiledProgram compile_program(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                const Target& target, const LowerOptions& options, DiskCache* cache,
                                int threads, const std::function<void()>& go_on = {},
                                bool machine_code = false);

/// Several graphs in one image, for tests: one link instead of many. Kernels they share are compiled once.
/// `layouts`: as of compile_program, per graph; or none at all. For CUDA: without machine code.
struct CompiledBatch {
  std::vector<Plan> plans;
  KernelImage image;
};
CompiledBatch compile_batch(std::span<const Graph> graphs, const Target& target, const LowerOptions& options,
                            int threads, std::span<const std::vector<ExternalLayout>> layouts = {});

}  // namespace kiln
