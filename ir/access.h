// SPDX-License-Identifier: Apache-2.0
// Access: at which element of a tensor a kernel reads, as one index per dim over the kernel's axes; and how a
// view op turns an access to its result into one to its operand. Must not know groups or schedules.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/loop.h"

namespace kiln {

/// idx has one index per dim, or, when flat, a single one that counts elements in row-major order.
struct Access {
  std::vector<loop::Index> idx;
  std::vector<loop::Bound> bounds;
  bool flat = false;
  /// Text that is equal for equal accesses.
  std::string str() const;
};

/// f(index) for the indices of `a` and of its bounds.
template <typename F>
void each_index(Access& a, const F& f) {
  for (loop::Index& x : a.idx) f(x);
  for (loop::Bound& b : a.bounds) f(b.index);
}

/// An axis that must be cut in two before a view can be expressed: extent = outer * inner.
struct AxisSplit {
  int axis = -1;
  Dim inner;
};

/// The access to operand `operand` of view node `n` that gives its result at `out`. Empty when no affine
/// index says it; `split` then names an axis whose cut would help, if there is one. The bounds added for pad
/// and cat are the ones past out.bounds.
std::optional<Access> through_view(const Graph& g, const Node& n, int operand, const Access& out,
                                   std::span<const loop::Axis> axes, AxisSplit* split);

/// Dims of two shapes with the same elements: [from, from_end) of one are [to, to_end) of the other, as few
/// as can be. Nothing when symbolic sizes do not say it.
struct ReshapeBlock {
  size_t from, from_end, to, to_end;
};
std::optional<std::vector<ReshapeBlock>> reshape_blocks(const Shape& from, const Shape& to);

/// Dims of operand `operand` of a dot_general that are neither batch dims nor contracted.
std::vector<int64_t> free_dims(const Graph& g, const Node& n, size_t operand);
/// Some dims of a tensor in memory, outermost first, merged where their strides allow. Dims of 1 are left
/// out.
struct Runs {
  std::vector<Dim> sizes, strides;
};
Runs merge_runs(const Shape& shape, const std::vector<Dim>& strides, const std::vector<int64_t>& dims);

/// Row-major strides of a shape.
std::vector<Dim> contiguous_dims(const Shape& shape);
/// sum of idx[d] * strides[d] + offset, or, when flat, the index itself.
loop::Index linear_index(const Access& a, const std::vector<Dim>& strides, const Dim& offset);
/// Whether `x`, over axes alone, walks 0, 1, ... extent-1 exactly once; adds those axes, outermost first.
bool covers(const loop::Index& x, const Dim& extent, std::span<const loop::Axis> axes,
            std::vector<int>& order);

}  // namespace kiln
