// SPDX-License-Identifier: Apache-2.0
// Copies from ordinary host memory to a device that do not wait for what the device is doing: through a ring
// of pinned blocks.
#pragma once

#include <array>
#include <mutex>

#include "runtime/cuda/device.h"

namespace kiln {

/// The ring of one stream. Threads: any.
class CudaStaging {
 public:
  static constexpr size_t kBlockBytes = size_t{2} << 20;
  static constexpr size_t kBlocks = 4;

  CudaStaging(CudaDevice& device, cuda::Stream stream) : device_(device), stream_(stream) {}

  /// Puts the copy on the stream; `from` has been read when it returns. Waits where the ring is full.
  void upload(cuda::Address to, const void* from, size_t bytes);

 private:
  struct Block {
    PinnedMemory memory;
    CudaEvent used;  ///< the copies out of it have been made
    bool pending = false;
  };
  Block& block_with_room();

  CudaDevice& device_;
  const cuda::Stream stream_;
  std::mutex mutex_;
  std::array<Block, kBlocks> blocks_;
  size_t now_ = 0, used_ = 0;  // the block that is being filled, and how far
};

}  // namespace kiln
