// SPDX-License-Identifier: Apache-2.0
// The headers that generated sources include, as text: one set for each compiler that reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kiln {

/// Which headers a source includes, and so what it is compiled for.
enum class Prelude : uint8_t {
  cpu,       ///< "kiln_cpu.h", for clang
  cuda,      ///< "kiln_cuda.h", for NVRTC
  cuda_sim,  ///< "kiln_cuda.h" for the simulated device, for clang
};

/// A file that a source can include.
struct PreludeFile {
  std::string_view name, text;
};

/// All of them: the first by the source's own #include, the others through it.
std::span<const PreludeFile> prelude_files(Prelude p);
/// A digest of their texts, for cache keys.
std::string prelude_digest(Prelude p);
/// Whether a source begins with the #include of the first, comments aside.
bool includes_prelude_first(std::string_view source, Prelude p);

}  // namespace kiln
