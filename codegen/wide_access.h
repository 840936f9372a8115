// SPDX-License-Identifier: Apache-2.0
// How many neighbours the accesses of a loop kernel can move at once, from strides, offsets and extents
// alone.
#pragma once

#include "ir/loop.h"

namespace kiln::detail {

/// Finds the most elements along one axis that every access of neighbours is aligned for.
class AlignedWidth {
 public:
  AlignedWidth(const loop::Kernel& k, int axis) : k_(k), axis_(axis) {}
  /// Takes an instruction into account if it is an access whose lanes walk neighbours.
  void access(const loop::Instr& i);
  /// One place for each column, from a multiple of the columns on.
  void columns(const loop::Instr& i);
  int get() const { return any_ ? most_ : 1; }

 private:
  void fit(int param);
  bool walks_neighbours(const loop::Instr& i) const;
  bool aligned(const loop::Instr& i, int64_t w) const;

  const loop::Kernel& k_;
  const int axis_;
  int most_ = 8;
  bool any_ = false;
};

/// Most elements along the axis of this role, at least one, that every access of a region of rows and columns
/// is aligned for; parameter `in_registers` (-1: none) is not looked at.
int aligned_width(const loop::Kernel& k, loop::AxisRole along, int in_registers);

}  // namespace kiln::detail
