// SPDX-License-Identifier: Apache-2.0
// Which rank of which world this process is, and where the world meets: read from the environment that `kiln
// run`, torchrun, mpirun or srun sets. Opens no socket and no file.
#pragma once

#include <string>

namespace kiln {

/// A process's place in its world. Ranks of one world agree on all but rank and local_rank.
struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< among those of this machine
  int local_world_size = 1;
  /// Host of rank 0, which serves the store there; empty in a world of one.
  std::string address;
  /// Port of the store; 0: rank 0 takes any free one and publishes it under `world`
  /// (runtime/rendezvous_file.h).
  int port = 0;
  /// Whose variables were read: "none", "environment" (RANK and the like), "torchrun", "mpirun", "srun".
  std::string launcher = "none";
  /// Tells this world from others on these machines; empty where nothing does.
  std::string world;
  /// What to say when joining fails: another launcher, around the one that was read, counts otherwise. Empty:
  /// none does, or it may.
  std::string doubt;

  /// "rank 1 of 4".
  std::string str() const;
};

/// What the environment says; a world of one, when no launcher has set anything.
/// Throws: invalid, naming the variable that is missing, not a number, or contradicts another.
Rendezvous rendezvous_from_environment();

}  // namespace kiln
