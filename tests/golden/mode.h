// SPDX-License-Identifier: Apache-2.0
// How golden tests compile: as KILN_TEST_DEVICE says.
#pragma once

#include "frontend/compile.h"
#include "ir/base/options.h"

namespace kiln::golden {

/// With "graphs", steps are replayed as CUDA graphs from their third call on.
inline CompileOptions compile_options() {
  CompileOptions o;
  if (option("KILN_TEST_DEVICE") == "graphs") o.mode = Mode::reduce_overhead;
  return o;
}

}  // namespace kiln::golden
