// SPDX-License-Identifier: Apache-2.0
// Starting one rank of `kiln run`: a process that dies with the launcher, with its own output pipes, its own
// process group, its environment and its CPUs. Does not watch it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kiln::cli {

/// What a rank starts with.
struct RankStart {
  std::vector<std::string> command;      ///< program (looked up in PATH) and arguments
  std::vector<std::string> environment;  ///< all of it, as NAME=value
  std::vector<int> cpus;                 ///< where it may run; empty: wherever the launcher may
};

/// A rank that was started; it leads a process group of its own number.
struct RankProcess {
  pid_t pid = 0;
  int out = -1, err = -1;  ///< ends to read, which do not block and belong to the caller
};

/// Starts a rank with no signal blocked and nothing on its standard input. When the calling thread's process
/// ends, however it does, the rank is killed.
/// Throws: invalid, if the program is missing or cannot be run; io, when the system refuses a process, memory
/// or a file descriptor.
RankProcess start_rank(const RankStart& start);

}  // namespace kiln::cli
