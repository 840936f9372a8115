// SPDX-License-Identifier: Apache-2.0
// Ordered messages between all pairs of ranks: what collective_mesh.cpp builds collectives of. Knows nothing
// of dtypes and collectives, and says who is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace kiln {

/// The connection to `peer` broke, or a wait for it was too long.
struct MeshBroken : std::runtime_error {
  MeshBroken(int p, const std::string& why) : std::runtime_error(why), peer(p) {}
  int peer;
};

/// A peer whose connection has ended.
struct Departure {
  int rank = 0;
  bool in_peace = false;  ///< it closed its mesh; otherwise it died, or gave up
  std::string why;
};

/// Memory that messages come from or go to. Messages of one channel between two ranks arrive in the order of
/// the sends, at the receives in the order of these. All but one thread's use is an error.
class MeshBuffer {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  MeshBuffer() = default;
  virtual ~MeshBuffer() = default;
  MeshBuffer(const MeshBuffer&) = delete;
  MeshBuffer& operator=(const MeshBuffer&) = delete;

  /// Start a message. Throws: MeshBroken.
  virtual void send(int peer, size_t offset, size_t bytes) = 0;
  /// `bytes` or fewer.
  virtual void receive(int peer, size_t offset, size_t bytes) = 0;
  /// Waits for the end of one more of the sends (to anybody) or of the receives (all from `peer`); false if
  /// Mesh::interrupt() came first. Throws: MeshBroken, also at `deadline`, and then the whole mesh is broken.
  virtual bool await_sent(int peer, TimePoint deadline) = 0;
  virtual bool await_received(int peer, TimePoint deadline) = 0;
};

/// Connections of this rank to all others.
class Mesh {
 public:
  Mesh() = default;
  /// In peace, if close() was not called. All buffers are gone by then.
  virtual ~Mesh() = default;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::unique_ptr<MeshBuffer> buffer(void* data, size_t bytes, uint64_t channel) = 0;
  /// Calls `departed` for each peer that departs, on a thread of the mesh. To be called once.
  virtual void watch(std::function<void(const Departure&)> departed) = 0;
  /// Who has departed. Threads: any.
  virtual std::vector<Departure> departures() = 0;
  /// Lets the wait that is under way, or else the next, return false. Threads: any.
  virtual void interrupt() = 0;
  /// Breaks all connections: the peers see this rank depart, and not in peace.
  virtual void close() = 0;
};

}  // namespace kiln
