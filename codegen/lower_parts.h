// SPDX-License-Identifier: Apache-2.0
// Inside of lowering: launches in the making, and the steps from them to a plan. Included by lower*.cpp only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel_writer.h"
#include "codegen/lower.h"
#include "codegen/tunable.h"
#include "ir/footprint.h"

namespace kiln::detail {

/// A launch before it has a place. Reads and writes name cells: one per graph value, partial or output copy.
struct Work {
  LaunchKind kind = LaunchKind::kernel;
  int kernel = -1;                   ///< in Plan::kernels; of a start or wait: in Plan::collectives
  std::vector<int> cells;            ///< per kernel parameter
  std::vector<int64_t> starts = {};  ///< bytes, per cell: where in it the kernel's pointer begins; fewer: 0
  std::vector<int> reads, writes;
  std::vector<Dim> dims;
  Dim tasks, scratch;
  /// A cell read and one written that may lie in the same memory: each element is read only where, and
  /// before, the new one is written.
  std::set<std::pair<int, int>> in_place;
  Dim bytes, flops;
  std::vector<int> nodes;
  /// Canonical, of a launch that may be combined with others (lower_combine.cpp); else null. With the offsets
  /// that are in `starts`: `reached`.
  std::shared_ptr<const loop::Kernel> single = nullptr, reached = nullptr;
  /// Of a combined launch; `cells` and `dims` are then those of one part after the other.
  struct Part {
    Dim tasks, elements;
  };
  std::vector<Part> parts = {};
};

/// What a cell is and where it lies.
struct Cell {
  DType dtype = DType::f32;
  Dim bytes;
  int buffer = -1;  ///< in Plan::buffers
  std::string name;
  int inside = -1;  ///< the cell of whose memory this one is a part, if any, ...
  Dim at = 0;       ///< ... and where it begins there, in bytes
};

/// What one launch reads and writes: each element of a cell counts once.
class Traffic {
 public:
  void add(int cell, Reach reach) { reaches_[cell].push_back(std::move(reach)); }
  void add_whole(int cell) { add(cell, {.kind = Reach::Kind::whole}); }
  /// The accesses of a kernel; `cells` per parameter, of which `skipped` lies in no memory.
  void add(const loop::Kernel& k, std::span<const int> cells, int skipped = -1);
  friend Traffic operator+(Traffic a, const Traffic& b);
  Dim bytes(const std::vector<Cell>& cells) const;

 private:
  std::map<int, std::vector<Reach>> reaches_;
};

/// The ops of a launch that compute something, each once: "mul add tanh".
std::string ops_text(const Graph& g, const std::vector<int>& nodes);

/// The nodes that a launch is there for. Constants are not among them, unless it does nothing else: equal
/// ones of the whole program are one node.
std::vector<int32_t> sources_of(const Graph& g, const std::vector<int>& nodes);

/// Sizes of a plan, each once.
class DimPool {
 public:
  explicit DimPool(Plan& plan) : plan_(plan) {}
  DimIndex add(const Dim& d);

 private:
  Plan& plan_;
  std::map<std::string, DimIndex> known_;
};

/// An external that a cell overwrites: readers of the old value come first.
struct Overwrite {
  int cell = -1;      ///< the new value
  int old_cell = -1;  ///< the input's
};

/// Work::in_place of a kernel that loads every element before it stores to its place; `cells` per parameter.
std::set<std::pair<int, int>> in_place_pairs(const loop::Kernel& k, const std::vector<int>& cells);

/// An order of works.
struct Order {
  std::vector<std::vector<int>> intervals;  ///< between barriers
  std::vector<std::set<int>> after;         ///< by work: those that must follow it
};
/// Each work in the earliest interval its inputs allow, and those that overwrite an external after all that
/// make a guard. Collectives start in order, and are waited for, in the same order, when nothing is left to
/// do without them. Overwrites that no order can honour are returned in `clashes` (indices) and left out.
Order schedule(const std::vector<Work>& works, const std::vector<Overwrite>& overwrites,
               const std::vector<int>& guard_cells, int cells, std::vector<int>& clashes);

/// Offsets of the arena's buffers: `first` and `last` are the intervals of a buffer's life.
struct ArenaItem {
  int buffer = -1;
  Dim bytes;
  int first = -1, last = -1;
};
/// What lies in the arena: cells without a buffer that some work uses; `buffer` is the cell.
std::vector<ArenaItem> arena_cells(const std::vector<Cell>& cells, const std::vector<Work>& works,
                                   const std::vector<std::vector<int>>& intervals);
/// Works begin as late as those that need them allow, where less is alive until then: what they write takes
/// more than what they are the last to read. Collectives stay, and no work passes a wait for one, behind
/// which there may be nothing left to do. Into order.intervals, if the arena then is smaller.
void sink_works(const std::vector<Work>& works, const std::vector<Cell>& cells, Order& order);
/// Values take the memory of one that is read for the last time where they are written: Work::in_place.
void take_places(std::vector<Cell>& cells, const std::vector<Work>& works,
                 const std::vector<std::vector<int>>& intervals);
/// Places items so that lives that meet do not overlap; returns the arena's size. Offsets are multiples
/// of 64.
Dim place_arena(const std::vector<ArenaItem>& items, std::vector<Dim>& offsets);

/// Works that can be one launch, in lists of two or more: of one kind (`kinds`, by work; -1: of none), where
/// all can begin with the last of them. Nothing else then begins later, and no wait for a collective is
/// passed, behind which there may be nothing left to do. With `longer`, a cell of the arena may live longer,
/// as long as no interval holds more than one does anyway; or up to kSmallArena, which is no matter.
std::vector<std::vector<int>> find_companions(const std::vector<Work>& works, const std::vector<int>& kinds,
                                              const std::vector<Cell>& cells, const Order& order,
                                              bool longer);
inline constexpr int64_t kSmallArena = 1 << 20;

/// What the matmul of a dot_general computes. False when the operands' strides do not allow it: which[i] then
/// says that operand i must be copied. The epilogue of `fused` is left out when it does not fit the matmul.
bool contract_case(const Graph& g, const Node& n, const std::vector<Operand>& operands, const Target& target,
                   const Fused& fused, MatmulCase& out, bool which[2]);
/// The matmul kernel of the CPU. The kernel's parameters are a, b, those of the prologues and of the epilogue
/// (else c), workspace.
NodeKernel print_contract(const MatmulCase& c, const MatmulSchedule& schedule);
/// The same for CUDA.
NodeKernel print_cuda_contract(const MatmulCase& c, const CudaMatmulSchedule& schedule);

/// Says what was chosen for each kernel ("": nothing), and hears what each is launched with.
class Chooser {
 public:
  Chooser(const ScheduleChoices& choices, const Target& target, std::vector<TunableKernel>* collect)
      : choices_(choices), target_(target), collect_(collect) {}
  std::string_view rows(const loop::Kernel& k) const;
  std::string_view matmul(const MatmulCase& c) const { return choice(c); }
  /// A launch of the kernel, complete but for its workspace; `cells` are those of the program.
  void note(const KernelCase& what, const Work& w, const std::vector<Cell>& cells);
  bool collects() const { return collect_ != nullptr; }

 private:
  std::string_view choice(const KernelCase& what) const;
  const ScheduleChoices& choices_;
  const Target& target_;
  std::vector<TunableKernel>* collect_;
};
/// lower, which also adds to `collect` unless it is null.
LoweredProgram lower_collecting(const Graph& g, const std::vector<ExternalLayout>& layouts,
                                const Target& target, const LowerOptions& options,
                                std::vector<TunableKernel>* collect);

/// Operand i of a contraction as a dense tensor: batch dims, free dims, contracted dims in the order of the
/// node, or, unless `inner_last`, the free dims last. `order` gets the dims, outermost first.
TensorLayout dense_operand(const Graph& g, const Node& n, size_t i, bool inner_last,
                           std::vector<int64_t>& order);
/// Of a dot_general with what is fused into it.
Dim contract_flops(const Graph& g, const Node& n, const Fused& fused);
/// How the matmul should walk a prologue's operand: like most of what it loads.
bool walks_columns(const loop::Kernel& k);

/// A collective in the making: its flat result and the operands in it.
struct Collective {
  int cell = -1;               ///< of the result
  size_t start = 0, wait = 0;  ///< works
  std::vector<int> operands;   ///< cells
  std::vector<Dim> at;         ///< where each lies in the result, in bytes
};
/// Appends the works of an all_reduce, number `index` among the plan's collectives.
Collective add_all_reduce(const Graph& g, const Node& n, int index, std::vector<Cell>& cells,
                          std::vector<Work>& works);
/// Once all works are known: an operand that nothing else reads is computed where it is sent from, the others
/// are copied there by `copy`, the kernel of that name.
void place_operands(Collective& c, const std::function<int()>& copy, std::vector<Cell>& cells,
                    std::vector<Work>& works);
/// A launch that copies `bytes` from one cell to another.
Work copy_work(int copy, int from, int to, const Dim& bytes);

/// Whether there are dot products that no template is for.
bool has_plain_dots(const Graph& g);
/// The graph with products and sums for these. `source_of`: the node of `g` that each new node stands for.
Graph without_plain_dots(const Graph& g, std::vector<int32_t>& source_of);
/// Nodes of a plan made from such a graph are named as those of the graph it was made from.
void rename_sources(Plan& plan, const std::vector<int32_t>& source_of);

/// Kernels for a scatter, scan, sort, pad with gaps or cat of many, for the CPU.
NodeKernel lower_whole(const Graph& g, const Node& n, const std::vector<Operand>& operands);
/// The same for CUDA.
NodeKernel lower_whole_cuda(const Graph& g, const Node& n, const std::vector<Operand>& operands);

}  // namespace kiln::detail
