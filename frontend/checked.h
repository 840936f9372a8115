// SPDX-License-Identifier: Apache-2.0
// Programs that watch another: KILN_COMPILE=check and CompileOptions::check_numerics. For finding faults, not
// speed.
#pragma once

#include "frontend/stage.h"

namespace kiln::detail {

/// Runs `program` and the interpreter on copies of the same inputs.
/// Throws: internal, at the first difference: the op (of the graph, in order) whose compiled value differs,
/// with its line.
std::unique_ptr<Program> check_against_reference(std::unique_ptr<Program> program, const Graph& g,
                                                 const StageOptions& options);

/// Throws: invalid, when a result is not finite: the first op that made NaN from other values, or Inf from
/// finite ones.
std::unique_ptr<Program> check_for_nonfinite(std::unique_ptr<Program> program, const Graph& g, Device device);

}  // namespace kiln::detail
