// SPDX-License-Identifier: Apache-2.0
// A compiled program as an entry of the disk cache. Included by program*.cpp and their tests only.
#pragma once

#include <string>
#include <string_view>

#include "codegen/program.h"

namespace kiln::detail {

/// Plan, image and number of kernels, as bytes.
std::string pack_program(const CompiledProgram& p);
/// False for bytes that are none. Damage is the cache's to find.
bool unpack_program(std::string_view bytes, CompiledProgram& out);

/// The program under `key`, with the statistics of a hit. `again`: as of DiskCache::load.
bool load_program(DiskCache& cache, const std::string& key, bool again, CompiledProgram& out);

}  // namespace kiln::detail
