// SPDX-License-Identifier: Apache-2.0
// How golden tests compile: as KILN_TEST_DEVICE says.
#pragma once

#include <algorithm>
#include <string>

#include "frontend/compile.h"
#include "ir/base/options.h"

namespace kiln::golden {

/// With "graphs", steps are replayed as CUDA graphs from their third call on.
inline CompileOptions compile_options() {
  CompileOptions o;
  if (option("KILN_TEST_DEVICE") == "graphs") o.mode = Mode::reduce_overhead;
  return o;
}

/// What is wrong with the graphs of a callable after its calls, or "": with "graphs", one that launches
/// anything was recorded by its third call, if it had as many.
inline std::string unrecorded(const CallableStats& s) {
  const auto launches = [](const Build& b) { return b.kernels > 0; };
  if (option("KILN_TEST_DEVICE") != "graphs" || s.calls < 3) return "";
  if (std::none_of(s.builds.begin(), s.builds.end(), launches)) return "";
  for (const GraphedProgram& g : s.graphs)
    if (g.recordings > 0 && g.replays > 0) return "";
  return "nothing was recorded as a CUDA graph";
}

}  // namespace kiln::golden
