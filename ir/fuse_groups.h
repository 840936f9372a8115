// SPDX-License-Identifier: Apache-2.0
// Inside of fusion: the groups that partitioning makes and building turns into kernels. Included by fuse*.cpp
// only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/access.h"
#include "ir/fuse.h"

namespace kiln::detail {

/// What a group leaves in memory.
struct Sink {
  int value = -1;
  bool partial = false;      ///< per-task partial of reduce node value, else a store of it
  Access at;                 ///< store: of the value; partial: of the reduced operand
  std::vector<int> reduced;  ///< partial: axes reduced over, in the order of the node's dims, ...
  std::vector<int> kept;     ///< ... and the others that the operand walks
};

/// A row reduction computed inside, over all column axes.
struct RowReduce {
  int value = -1;
  std::vector<int> axes;  ///< in the order of the node's reduced dims
};

/// A kernel in the making: a domain and the values it computes, as the accesses at which each is wanted.
struct Group {
  std::vector<loop::Axis> axes;
  std::vector<std::optional<loop::AxisRole>> roles;  ///< per axis; empty while free
  std::map<int, std::vector<Access>> reads;          ///< value -> distinct accesses wanted
  std::vector<Sink> sinks;
  std::vector<RowReduce> reduces;
  bool fixed = false;  ///< takes no more members (fusion switched off)

  int add_axis(const Dim& extent, std::optional<loop::AxisRole> role = {});
  const RowReduce* find_reduce(int value) const;
};

/// A node that stays whole and what it reads.
struct Opaque {
  int node = -1;  ///< of a loop over tiles: its last one
  int step = -1;
  int loop = -1;
  std::vector<Operand> operands;  ///< of a contraction: without a base when it is computed while it is packed
};

/// Whether it is a contraction, which may have prologues and an epilogue.
bool contracts(const Graph& g, const Opaque& x);

/// Who makes each value and how.
enum class Place : uint8_t {
  none,    ///< computed inside every group that reads it, or dead
  memory,  ///< graph input, or made by an opaque step
  group,   ///< stored by the group `owner`
};

struct ValueInfo {
  Place place = Place::none;
  int owner = -1;          ///< step id
  int partial_group = -1;  ///< column or full reduction: the step that leaves its partials
};

struct Partition {
  std::vector<std::unique_ptr<Group>> groups;  ///< by step id; null for opaque steps and merged groups
  std::vector<Opaque> opaque;
  std::vector<ValueInfo> values;
  std::vector<std::set<int>> succ;  ///< by step id
  std::vector<int> copies;          ///< output slots that need a copy kernel
};

Partition partition_groups(const Graph& g, const FuseOptions& options);
FusedGraph build_kernels(const Graph& g, const Partition& p, const FuseOptions& options);

/// How a node takes part in a kernel.
enum class ComputeForm : uint8_t {
  view,    ///< its operands' elements at other places
  point,   ///< an element from elements of its operands at places that point_reads names
  reduce,  ///< a combination over dims
  whole,   ///< not in one: a step of its own
};
ComputeForm compute_form(const Graph& g, const Node& n);
struct OperandRead {
  int operand = 0;
  Access access;
};
/// What a point node reads for its element at `at`. A term of an index that is not an axis names the graph
/// value whose element it is.
std::vector<OperandRead> point_reads(const Graph& g, const Node& n, const Access& at);

/// Per value: whether groups that cannot share it should each compute it: little work from one leaf to load.
std::vector<bool> worth_recomputing(const Graph& g);
/// Per value: whether all its elements are one number, known when the kernel starts or computed before.
std::vector<bool> one_number(const Graph& g);

// --- fuse_merge.cpp ---

/// Whether an axis before the last one that the access uses is left out: computed again for each of its
/// values.
bool repeats(const Group& q, const Access& a);
/// Whether the axes left out of `order` are, or may become, the columns.
bool rest_are_columns(const Group& q, const std::vector<int>& order);
/// Whether `a` walks all of `shape` once; adds its axes in order.
bool covers_shape(const Access& a, const Shape& shape, const Group& q, std::vector<int>& order);
/// Maps the axes of b to those of a by how both walk v: to[i] < 0 is a column of b alone. False when domains
/// differ.
bool match_axes(const Graph& g, const Group& a, const Group& b, int v, std::vector<int>& to);
Group merged(const Group& a, const Group& b, std::vector<int> to);
/// Roles fit every reduction: rows reduced over are rows, and a reduction takes all columns or none.
bool consistent(const Group& q);

/// Decides what is still free: without columns all axes but the last are rows.
void settle_roles(Group& q);
/// Batch, row and column axes in this order; within a role as they stand.
void order_axes(Group& q);

/// For contractions the first group that can be the epilogue, by group. Gives that group the roles of the
/// result's dims.
std::map<int, const Opaque*> find_epilogues(const Graph& g, const Partition& p,
                                            std::vector<std::unique_ptr<Group>>& groups);

/// Takes values out of memory that the contractions reading them can compute as they pack their operands.
void find_prologues(const Graph& g, const FuseOptions& options, Partition& p);
/// Axes over all elements of an operand of a contraction, as its matmul walks it: batch dims, then rows, then
/// columns (of a its free and contracted dims, of b the other way round); and the access that they make.
Access operand_domain(const Graph& g, const Node& n, size_t operand, Group& q);

/// Layout of a value in memory.
TensorLayout memory_layout(const Graph& g, const FuseOptions& options, int value);
/// The access that walks the axes in order, one per dim (none for dims of extent 1).
Access identity_access(Group& group, const Shape& shape);
/// Dims of extent other than 1 that a reduce node reduces.
std::vector<int64_t> reduced_dims(const Graph& g, const Node& n);

}  // namespace kiln::detail
