// SPDX-License-Identifier: Apache-2.0
// Which GPU architecture code is generated for, and the limits that kernels of it keep. Asks no driver: what
// is generated depends on the architecture's name alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

/// An architecture as NVRTC knows it. Equal targets give equal code.
struct CudaTarget {
  std::string arch;              ///< "sm_90a"
  int capability = 0;            ///< 10 * major + minor: 90
  int sm_count = 0;              ///< of the largest common GPU of the architecture: a measure, no limit
  int threads_per_sm = 0;        ///< resident at once
  int blocks_per_sm = 0;         ///< resident at once
  int64_t shared_per_sm = 0;     ///< bytes
  int64_t shared_per_block = 0;  ///< bytes that one block can ask for
  int registers_per_sm = 65536;
  int registers_per_thread = 255;

  static constexpr int kWarp = 32;
  static constexpr int kThreadsPerBlock = 1024;

  /// Canonical text for cache keys.
  std::string str() const { return arch; }
  bool operator==(const CudaTarget&) const = default;
};

/// "sm_80", "sm_90", "sm_90a", "sm_100a", "sm_120", ... Throws: invalid, listing what is known.
CudaTarget parse_cuda_target(std::string_view name);
/// Whether `name` is meant to be one: "sm_" and something.
bool names_cuda_target(std::string_view name);

}  // namespace kiln
