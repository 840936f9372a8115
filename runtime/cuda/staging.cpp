// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "ir/base/rounding.h"

namespace kiln {

namespace {
constexpr size_t kPieceAlign = 16;
}

/// The block that is filled next, which has room for at least one piece.
CudaStaging::Block& CudaStaging::block_with_room() {
  if (used_ + kPieceAlign > kBlockBytes) {
    Block& full = blocks_[now_];
    device_.record(full.used, stream_);
    full.pending = true;
    now_ = (now_ + 1) % kBlocks;
    used_ = 0;
  }
  Block& block = blocks_[now_];
  if (!block.memory.data()) {
    block.memory = device_.allocate_pinned(kBlockBytes);
    block.used = device_.event();
  }
  if (block.pending) device_.synchronize(block.used);
  block.pending = false;
  return block;
}

void CudaStaging::upload(cuda::Address to, const void* from, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto* at = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    Block& block = block_with_room();
    const size_t piece = std::min(bytes, kBlockBytes - used_);
    std::byte* staged = block.memory.data() + used_;
    std::memcpy(staged, at, piece);
    used_ += round_up(piece, kPieceAlign);
    device_.copy_to_device(to, staged, piece, stream_);
    to += piece;
    at += piece;
    bytes -= piece;
  }
}

}  // namespace kiln
