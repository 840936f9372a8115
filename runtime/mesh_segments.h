// SPDX-License-Identifier: Apache-2.0
// Collectives too large for one message: blocks of memory cut into segments that overlap on their way. All
// ranks are known to have made the same call. Knows nothing of failures.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/collective_queue.h"
#include "runtime/mesh.h"

namespace kiln {

/// Waits for a message of, or to, that peer, for as long as the collective may take.
class MeshWaits {
 public:
  virtual ~MeshWaits() = default;
  virtual void received(MeshBuffer& buffer, int peer) = 0;
  virtual void sent(MeshBuffer& buffer, int peer) = 0;
};

/// Runs large collectives of one rank. Uses channels 2 and 3 of the mesh. Throws: what the waits throw.
class MeshSegments {
 public:
  MeshSegments(Mesh& mesh, MeshWaits& wait) : mesh_(mesh), wait_(wait) {}

  void run(const Collective& c);

 private:
  struct Block;
  struct Results;

  std::vector<int> peers() const;
  std::vector<Block> split(const Collective& c) const;
  std::vector<Block> equal_blocks(const Collective& c) const;
  const Block& own(const std::vector<Block>& blocks) const;

  void send_all(MeshBuffer& buffer, int peer, const Block& block);
  void receive_all(MeshBuffer& buffer, int peer, const Block& block);
  void await_received(MeshBuffer& buffer, int peer, const Block& block);
  void await_sent(MeshBuffer& buffer, int peer, const Block& block);

  Results expect(const Collective& c, std::vector<Block> blocks, std::vector<int> from, std::vector<int> to);
  void send_result(Results& r, int64_t segment);
  void finish(Results& r);

  void all_reduce(const Collective& c);
  void all_gather(const Collective& c);
  void reduce(const Collective& c, const std::vector<Block>& blocks, std::byte* out,
              const std::function<void(int64_t)>& done);
  void broadcast_from_here(const Collective& c);
  void broadcast_from_root(const Collective& c);

  Mesh& mesh_;
  MeshWaits& wait_;
  std::vector<std::byte> scratch_;
};

}  // namespace kiln
