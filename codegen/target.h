// SPDX-License-Identifier: Apache-2.0
// What code is generated for: a CPU or a GPU architecture.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "codegen/cpu_target.h"
#include "codegen/cuda_target.h"

namespace kiln {

using Target = std::variant<CpuTarget, CudaTarget>;

/// Canonical text for cache keys.
inline std::string str(const Target& t) {
  return std::visit([](const auto& x) { return x.str(); }, t);
}
inline const CudaTarget* cuda_target(const Target& t) { return std::get_if<CudaTarget>(&t); }

/// A target by name: one of parse_target or of parse_cuda_target. Throws: invalid.
inline Target target_named(std::string_view name) {
  if (names_cuda_target(name)) return parse_cuda_target(name);
  return parse_target(name);
}

}  // namespace kiln
