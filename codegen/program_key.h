// SPDX-License-Identifier: Apache-2.0
// The key of a compiled program in the disk cache: all that its plan and kernels depend on, as text. Looks
// into no cache.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/lower.h"

namespace kiln {

/// A key in its parts, each a text.
struct ProgramKey {
  std::string sources;   ///< digest of the sources of code generation
  std::string compiler;  ///< version of clang or NVRTC, its flags, digest of the prelude
  std::string target;    ///< str() of it
  std::string options;   ///< LowerOptions::str()
  std::string layouts;   ///< a line for each external
  std::string graph;     ///< canonical text

  /// What the cache is asked for. Equal parts, equal text.
  std::string str() const;
  bool operator==(const ProgramKey&) const = default;
};

/// The kind of entries under such keys.
inline constexpr std::string_view kPlanKind = "plan";

/// The key of a program, compiled by this Kiln. A program for CUDA without machine code depends on no
/// compiler. Throws: unsupported, without NVRTC, with `machine_code`.
ProgramKey program_key(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
                       const LowerOptions& options, bool machine_code = false);

/// Inverse of str(), for keys found in a cache; false if `text` is none.
bool parse_program_key(std::string_view text, ProgramKey& out);

/// "layout 0 784 1": one external, a line without its end.
std::string layout_str(const ExternalLayout& layout);

}  // namespace kiln
