// SPDX-License-Identifier: Apache-2.0
// In which pass over the columns each value of a row kernel is computed, and which values later passes read
// back. Included by source_cpu.cpp and its tests only.
#pragma once

#include <vector>

#include "ir/loop.h"

namespace kiln::detail {

/// Passes over the columns of one row, split by the reductions over them. Pass p's scalars are computed
/// before it.
struct Phases {
  int count = 1;
  std::vector<bool> vector;  ///< per instruction: differs from column to column
  std::vector<int> at;  ///< first pass a vector value is computed in; for a scalar, the pass it is ready for
  std::vector<std::vector<int>> compute;  ///< per pass: vector instructions, in order
  std::vector<std::vector<int>> reload;   ///< per pass: values read back from scratch
  std::vector<bool> saved;                ///< per instruction: kept in scratch
};
/// What reading back a value that was saved costs beside one operation of arithmetic, on a CPU.
inline constexpr double kReloadCost = 5;
/// A value that costs no more than `reload_cost` to compute again is not saved. With `late_loads`, nothing is
/// loaded before the pass that needs it.
Phases plan_phases(const loop::Kernel& k, double reload_cost = kReloadCost, bool late_loads = false);

}  // namespace kiln::detail
