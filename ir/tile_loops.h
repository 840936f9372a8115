// SPDX-License-Identifier: Apache-2.0
// Loops over tiles: a matrix of products that is much larger than what it is made of (attention scores), all
// that is computed of it element by element and row by row, and the contractions that take it up again become
// one loop over blocks of its rows. A block is computed, used and forgotten; the matrix is never in memory.
// What a backward needs of it is computed again from what it was made of. Must not know targets or memory.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace kiln {

/// How far a column is behind its row: a number, and so often a scalar that is read where the loop runs.
struct Distance {
  Distance(int64_t n = 0, int t = 0, Value s = {}) : number(n), times(t), scalar(s) {}  // NOLINT
  int64_t number;
  int times;
  Value scalar;

  bool is_number() const { return times == 0; }
  bool operator==(const Distance&) const = default;
};

/// Columns that a row takes something of: from r + first to r + last of row r. None: no end on that side.
struct Band {
  std::optional<Distance> first = {}, last = {};

  bool operator==(const Band&) const = default;
  bool has_end() const { return first || last; }
};

/// A run of nodes that is one loop.
struct TileLoop {
  int begin = 0, end = 0;    ///< of TiledGraph::graph
  std::vector<Dim> extents;  ///< of its axes: batch ones, then the rows and the columns of the matrix
  /// Per value that is computed or read in it, the axis of each dim; -1: a dim that is no axis.
  std::map<int, std::vector<int>> axes;
  std::vector<Value> reads;    ///< made elsewhere
  std::vector<Value> results;  ///< that others read; the rest is gone when a tile is done
  Band band = {};              ///< what other columns are taken for comes to nothing: see taken_columns

  int batch() const { return static_cast<int>(extents.size()) - 2; }
  int rows() const { return batch(); }
  int columns() const { return batch() + 1; }
  /// Whether one of the value's dims is the axis. A result that has no rows is a sum over all of them.
  bool has(Value v, int axis) const;
};

struct TiledGraph {
  Graph graph;  ///< equal to the one it was made from
  std::vector<TileLoop> loops;
  std::vector<int32_t> source_of;  ///< per node of `graph`: the one of the other graph that it stands for
};

/// The columns that the masks of a loop leave, where nothing is taken of the others.
Band taken_columns(const Graph& g, const TileLoop& loop);

/// The loops of matrices of at least `least_bytes`. None: there are none.
std::optional<TiledGraph> tile_loops(const Graph& g, int64_t least_bytes);

}  // namespace kiln
