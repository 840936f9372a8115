// SPDX-License-Identifier: Apache-2.0
// Memory of host tensors. Freed blocks are kept for the next tensor of their size: fresh pages cost more than
// most ops that would fill them.
#pragma once

#include <cstddef>
#include <memory>

namespace kiln {

/// At least `bytes` uninitialised bytes, aligned to 64.
/// Throws: std::bad_alloc, after giving back what is kept.  Threads: any.
std::shared_ptr<void> host_block(size_t bytes);

/// Bytes of the blocks that somebody holds now, and the most that they have been since the last reset.
struct HostMemoryStats {
  size_t in_use = 0;
  size_t peak = 0;
};
HostMemoryStats host_memory_stats();
void reset_host_memory_peak();

/// Bytes of free blocks kept now; at most kHostBlocksKept.
size_t host_blocks_kept();
inline constexpr size_t kHostBlocksKept = size_t{256} << 20;
/// Gives all free blocks back to the system.
void release_host_blocks();

}  // namespace kiln
