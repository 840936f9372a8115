// SPDX-License-Identifier: Apache-2.0
// What a cache entry is, in a few words, read from its key alone.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

/// For people who list a cache.
struct KeySummary {
  std::string target;    ///< "host", "sm_90a", or "x86-64-v3 +avxvnni" for a CPU between two levels
  std::string compiler;  ///< "clang 19.1.7", "nvrtc 13.0"
  std::string what;      ///< "program of 224 ops, 22 inputs, 13 outputs", "kernel k_1f2e"
};

/// `full_key`: of an entry that was read; a kind that is not known gives its first line as `what`.
KeySummary summarize_key(std::string_view full_key);

/// The summary's name of a target, from CpuTarget::str().
std::string target_label(std::string_view target);

}  // namespace kiln
