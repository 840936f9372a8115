// SPDX-License-Identifier: Apache-2.0
// Fusion: the whole graph, forward and backward alike, cut into kernels of the loop IR and the nodes that
// stay whole (contractions, scatters, effects). Must not know targets, buffers or memory.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/loop.h"
#include "ir/tile_loops.h"

namespace kiln {

/// Strides of a tensor that lies in memory, in elements.
struct TensorLayout {
  std::vector<Dim> strides;
  Dim offset;
  bool operator==(const TensorLayout&) const = default;
};
/// Of a tensor without gaps, its last dim innermost.
TensorLayout row_major(const Type& t);

/// What a kernel's parameter stands for.
struct Binding {
  enum class Kind : uint8_t {
    value,    ///< the buffer of graph value `id`
    partial,  ///< FusedGraph::partials[id]
    output,   ///< the copy of output slot `id` (an input, a sum of ranks, or a value put out twice)
  };
  Kind kind = Kind::value;
  int id = -1;
  bool operator==(const Binding&) const = default;
};

struct FusedKernel {
  loop::Kernel kernel;
  std::vector<Binding> params;
  std::vector<int> nodes;  ///< graph nodes it computes, in program order
};

/// An operand of a node that stays whole: a strided view of a value that lies in memory.
struct Operand {
  Value base;           ///< invalid: the constant that a scatter adds to, or a contraction's prologue
  TensorLayout layout;  ///< of the operand's shape
};

/// A kernel, or a node that stays whole, or both: a contraction and the kernel that may become its epilogue.
/// Or a loop over tiles.
/// Such a kernel is not yet canonical: its batch, row and column axes are those of the contraction's result.
/// Prologues are canonical but for their roles: batch axes, at most one row and at most one column.
struct Step {
  int kernel = -1;
  int node = -1;
  int loop = -1;                           ///< in FuseOptions::loops
  std::vector<Operand> operands;           ///< of a loop: what it reads
  std::array<int, 2> prologue = {-1, -1};  ///< kernels that store operand 0, 1 of the contraction, row-major
  bool keep = false;                       ///< others read the node's result, too: it must be stored
};

/// What the tasks of a kernel leave for the kernel that combines them: one row of `columns` per task.
struct Partial {
  DType dtype = DType::f32;
  Dim tasks, columns;
};

struct FusedGraph {
  std::vector<FusedKernel> kernels;
  std::vector<Partial> partials;
  std::vector<Step> steps;  ///< in an order that respects data flow, near program order
};

struct FuseOptions {
  bool fuse = true;                  ///< false: one kernel per node, for tests and for finding faults
  bool prologues = true;             ///< false: memory is near, and costs less than computing twice
  int max_nodes = 400;               ///< of one kernel
  std::vector<TensorLayout> inputs;  ///< per graph input; empty: all contiguous
  std::vector<TileLoop> loops;       ///< runs of nodes that are one step each
};

/// Throws: unsupported, naming op and line, for what no kernel can do.
FusedGraph fuse(const Graph& g, const FuseOptions& options = {});
/// Every step, kernels in their canonical text.
std::string print(const FusedGraph& f, const Graph& g);
/// Every step with the graph nodes it computes. A node in several kernels is computed in each.
std::string print_partition(const FusedGraph& f, const Graph& g);

}  // namespace kiln
