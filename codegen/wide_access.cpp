// SPDX-License-Identifier: Apache-2.0
#include "codegen/wide_access.h"

#include <algorithm>

namespace kiln::detail {

using loop::Instr;
using loop::InstrKind;

void AlignedWidth::access(const Instr& i) {
  if (i.kind != InstrKind::load && i.kind != InstrKind::fold && i.kind != InstrKind::store) return;
  if (!walks_neighbours(i)) return;
  fit(i.param);
  while (most_ > 1 && !aligned(i, most_)) most_ /= 2;
}

void AlignedWidth::columns(const Instr& i) {
  fit(i.param);
  while (most_ > 1 && !divisible(k_.axes.back().extent, most_)) most_ /= 2;
}

/// No more than 16 bytes at once of the widest element.
void AlignedWidth::fit(int param) {
  any_ = true;
  most_ = std::min(most_, 16 / static_cast<int>(dtype_size(k_.params[static_cast<size_t>(param)].dtype)));
}

bool AlignedWidth::walks_neighbours(const Instr& i) const {
  bool neighbours = false;
  for (const loop::IndexTerm& t : i.index.terms) {
    if (t.value >= 0 && (k_.body[static_cast<size_t>(t.value)].axes >> axis_ & 1)) return false;
    neighbours |= t.axis == axis_ && t.stride.is(1);
  }
  return neighbours;
}

bool AlignedWidth::aligned(const Instr& i, int64_t w) const {
  if (!divisible(i.index.offset, w)) return false;
  if (i.kind == InstrKind::fold && !divisible(i.step, w)) return false;
  return std::all_of(i.index.terms.begin(), i.index.terms.end(),
                     [&](const loop::IndexTerm& t) { return t.axis == axis_ || divisible(t.stride, w); });
}

int aligned_width(const loop::Kernel& k, loop::AxisRole along, int in_registers) {
  const int axis = k.axis_begin(along);
  if (axis == k.axis_end(along)) return 1;
  AlignedWidth width(k, axis);
  for (const Instr& i : k.body)
    if (i.param != in_registers) width.access(i);
  return width.get();
}

}  // namespace kiln::detail
