// SPDX-License-Identifier: Apache-2.0
// A world that processes form: from its place in it, each rank gets the store and the process group. Ranks
// come together here, so that whoever is missing is named at once and not by the first collective.
#pragma once

#include <memory>
#include <string>

#include "runtime/collective.h"
#include "runtime/rendezvous.h"

namespace kiln {

struct WorldOptions {
  Seconds timeout{300};   ///< of joining, and of the group's collectives
  std::string interface;  ///< see make_gloo_group
};

/// This process's membership of a world. Threads: one at a time.
class World {
 public:
  /// Blocks: until all ranks are here. Throws: comm, naming the ranks that are missing or that another world
  /// is there, that the store cannot be reached, or that its port is in use; unsupported, where gRPC or Gloo
  /// is not built in and the world has several ranks.
  World(const Rendezvous& place, const WorldOptions& options);
  /// Without leave() first this rank counts as lost.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Rendezvous& place() const { return place_; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Goes in peace, together with the others. Afterwards the group may be kept, but not used.
  /// Blocks: until all ranks leave or one is lost, for at most the timeout. Ranks that are in something else
  /// by then fail, naming the caller's line.
  void leave(SourceLoc loc = {});

 private:
  class OpenStore;
  void join(const std::string& interface);
  void wait_for_others(Seconds left, bool in_turn);

  const Rendezvous place_;
  const Seconds timeout_;
  std::shared_ptr<OpenStore> store_;  ///< null in a world of one
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace kiln
