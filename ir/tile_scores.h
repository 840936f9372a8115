// SPDX-License-Identifier: Apache-2.0
// Inside of tile_loops.cpp: a large matrix of products, and what is computed of it. Included by tile_*.cpp
// only.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/graph.h"

namespace kiln::detail {

using Axes = std::vector<int>;  ///< per dim of a value the axis that it is; -1: none

/// Who reads what, of all that is needed.
struct Users {
  explicit Users(const Graph& g);
  std::vector<std::vector<int>> of;  ///< nodes, by value
  std::vector<bool> live;            ///< by value
  std::set<int> outputs;             ///< values
};

/// One matrix of products, and what belongs to it: values are followed from it, forward as long as they have
/// its rows, and back to what they are made of. Axes: its batch dims, its rows, its columns.
class Scores {
 public:
  /// `seed`: a contraction, whose result is the matrix.
  Scores(const Graph& g, const Users& users, int seed);

  /// Whether all that is made of the matrix can be made of a block of its rows at a time.
  bool found() const;
  /// Whether the value has its rows and its columns.
  bool is_square(int v) const { return is(v, rows_) && is(v, columns_); }

  std::vector<Dim> extents;  ///< of the axes
  std::map<int, Axes> axes;  ///< by value
  std::set<int> nodes;       ///< that compute what belongs to it
  std::set<int> hot;         ///< values that are made of products
  std::set<int> sinks;       ///< nodes: contractions that take the matrix up again
  /// Nodes that must be several before there can be a loop: the dim of the columns of a reduction over more
  /// than them, or what is odd about a contraction over the rows.
  std::map<int, int64_t> odd;
  static constexpr int64_t kColumnsLast = -1;
  static constexpr int64_t kHalves = -2;  ///< its sums would be rounded for each tile

 private:
  bool is(int v, int axis) const;
  const Node& node(int i) const { return g_.nodes[static_cast<size_t>(i)]; }
  bool can_sum_rows() const;
  bool lies_in_one_piece(Value v) const;
  void assign(Value v, Axes a);
  void heat(Value v);
  void look_back(int v);
  void assign_operand_of_expand(const Node& n, const Axes& out);
  bool assign_factors(const Node& n, const Axes& out);
  void look_on(int v);
  bool take(int at, int v);
  bool take_reduction(int at, const Axes& own);
  bool take_up(int at, int v);
  void prune();

  const Graph& g_;
  const Users& users_;
  int rows_ = 0, columns_ = 0;
  std::vector<int> todo_;  // values
  bool failed_ = false;
};

/// The matrices of at least so many bytes that can be loops; none shares a product with another.
std::vector<Scores> find_scores(const Graph& g, int64_t least_bytes);

}  // namespace kiln::detail
