// SPDX-License-Identifier: Apache-2.0
// CUDA source -> an ELF shared object for the simulated device, by the CPU's compiler.
#pragma once

#include <string>

#include "codegen/disk_cache.h"
#include "ir/kernel_image.h"

namespace kiln {

/// The object that ir/sim_abi.h describes, with all kernels of the module, for this machine: from `cache`
/// (may be null) or compiled. Throws: unsupported, without a compiler; compile, with the log and the file the
/// source was kept in. `compiled` (may be null) grows by 1 where the cache did not have it.
std::string compile_sim(const CudaModule& module, DiskCache* cache, int* compiled = nullptr);

}  // namespace kiln
