// SPDX-License-Identifier: Apache-2.0
// Work in a process of its own, so that a crash or a hang there is no more than a finding here. Knows nothing
// of kernels.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/store.h"

namespace kiln {

/// What became of the work.
struct ApartResult {
  std::optional<std::string> text;  ///< what it returned
  int last = -1;                    ///< what it said last
  std::string why;  ///< without a text: "was killed by signal 11", "said nothing for 10 s", ...
};

/// Says to the parent what is begun.
using Say = std::function<void(int)>;

/// Runs `work` in a forked child, which has the caller's thread alone and makes a thread pool of its own, and
/// waits for it; one that says nothing for longer than `silence` is killed. What it changes in memory is
/// lost. Throws: io, when there is no process or pipe to be had.
ApartResult run_apart(const std::function<std::string(const Say&)>& work, Seconds silence);

}  // namespace kiln
