// SPDX-License-Identifier: Apache-2.0
// The work of `kiln run`: starts the ranks of one machine, passes on what they print and the signals that
// come, and ends all of them when one fails. Knows nothing of what they compute.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace kiln::cli {

struct LaunchOptions {
  int ranks = 1;
  bool pin = true;                        ///< give every rank its own CPUs
  std::chrono::milliseconds grace{5000};  ///< from SIGTERM to SIGKILL, for ranks that are to end
  std::vector<std::string> command;       ///< program and arguments
};

/// More ranks than this are taken for a mistake.
constexpr int kMostRanks = 1024;

/// Runs `options.command` as that many ranks. Returns 0 when all of them have, else the status of the first
/// that failed (128 + signal, if one ended it). Takes over SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and
/// SIGCHLD of the calling thread.
/// Blocks: until all ranks have ended. Throws: invalid (number of ranks; the program is missing or cannot be
/// run), io (the system refuses processes, pipes or a port); no rank is left then.
int launch(const LaunchOptions& options);

}  // namespace kiln::cli
