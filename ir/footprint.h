// SPDX-License-Identifier: Apache-2.0
// How much of a tensor a kernel touches, and how much it computes: the one rule for the bytes and FLOPs that
// a launch cannot do without. Counts elements and operations; must not know buffers, caches or times.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/fuse.h"
#include "ir/loop.h"

namespace kiln {

/// Elements of one tensor that one access reaches: offset + sum of stride * [0, extent).
struct Reach {
  enum class Kind : uint8_t {
    grid,       ///< just those
    scattered,  ///< at places found at run time: the extents say how many there are, strides nothing
    whole,      ///< all of the tensor
  };
  struct Term {
    Dim stride, extent;
    bool operator==(const Term&) const = default;
  };
  Kind kind = Kind::grid;
  Dim offset;
  std::vector<Term> terms;
  bool operator==(const Reach&) const = default;
};

/// All elements of a strided tensor.
Reach reach_of(const TensorLayout& layout, const Shape& shape);

/// By parameter of the kernel, what each of its accesses reaches. A load that is zero beyond its bounds
/// reaches what lies within those that look at one axis alone.
std::vector<std::vector<Reach>> reaches(const loop::Kernel& k);

/// Elements that lie in at least one of the reaches, of a tensor of `size`. Exact for one or two reaches of
/// static sizes; where more overlap, or in ways that strides do not show, too low: a bound made of it holds.
/// Scattered places count as if no two were the same.
Dim footprint(const std::vector<Reach>& reaches, const Dim& size);

/// What the kernel computes: each operation at every point of the axes that it depends on, sums at every
/// point that they run over.
Dim flops(const loop::Kernel& k);

}  // namespace kiln
