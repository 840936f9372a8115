// SPDX-License-Identifier: Apache-2.0
// Which CPU code is generated for: its true instruction-set features, found without LLVM.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

/// A CPU as the compiler sees it. Equal targets give equal code; tuning preferences are no part of it.
struct CpuTarget {
  std::string triple;     ///< "x86_64-unknown-linux-gnu"
  std::string cpu;        ///< the widest psABI level that the features cover, e.g. "x86-64-v3"
  std::string features;   ///< every feature Kiln knows, sorted, "+" or "-": "+avx,+avx2,-avx512bf16,..."
  int vector_bytes = 16;  ///< widest vectors to generate: 64, 32, or 16 below AVX2
  bool has_fma = false;

  /// True if `features` has "+name".
  bool has(std::string_view name) const;
  /// Canonical text for cache keys.
  std::string str() const;
  bool operator==(const CpuTarget&) const = default;
};

/// The CPU this process runs on, read once. Throws: unsupported, on an architecture without a code generator.
const CpuTarget& host_target();

/// By name: "host", "x86-64-v3", "x86-64-v4", "aarch64" (any 64-bit Arm). Throws: invalid, listing these.
CpuTarget parse_target(std::string_view name);

/// Throws: unsupported, naming the missing features, if this CPU cannot run code made for `target`.
void check_runs_here(const CpuTarget& target);

}  // namespace kiln
