// SPDX-License-Identifier: Apache-2.0
// A world that processes form: from its place in it, each rank gets the store and the process group. Ranks
// come together here, so that whoever is missing is named at once and not by the first collective.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "runtime/collective.h"
#include "runtime/collective_nccl.h"
#include "runtime/rendezvous.h"

namespace kiln {

struct WorldOptions {
  Seconds timeout{300};   ///< of joining, and of the group's collectives
  std::string interface;  ///< see make_gloo_group
  bool nccl = true;       ///< GPUs have groups of their own; else what is on them goes through the host
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
  /// The world's group for the memory of GPU `index` of this process, which is also group()'s device_group().
  /// The first call makes it. Blocks: until all ranks have called it, each for a GPU of its own. Throws:
  /// device, if there is no such GPU; unsupported, without NCCL; comm, as make_nccl_group.
  std::shared_ptr<DeviceGroup> device_group(int index);

  /// Goes in peace, together with the others. Afterwards the group may be kept, but not used.
  /// Blocks: until all ranks leave or one is lost, for at most the timeout. Ranks that are in something else
  /// by then fail, naming the caller's line.
  void leave(SourceLoc loc = {});

 private:
  class OpenStore;
  void join(const std::string& interface);
  void leave_together(Seconds left, SourceLoc loc);
  void wait_for_others(Seconds left, bool in_turn);
  std::optional<std::string> broken() const;

  const Rendezvous place_;
  const Seconds timeout_;
  std::shared_ptr<OpenStore> store_;  ///< null in a world of one
  std::shared_ptr<ProcessGroup> group_;
  std::map<int, std::shared_ptr<DeviceGroup>> device_groups_;  ///< by GPU
};

/// The GPU of this process that a program takes which is started once for each of them: number LOCAL_RANK of
/// those it sees, or the only one, where the launcher shows each process its own by CUDA_VISIBLE_DEVICES.
/// Throws: device, naming LOCAL_RANK and how many there are, if there is none for it.
int device_of_rank(const Rendezvous& place);

}  // namespace kiln
