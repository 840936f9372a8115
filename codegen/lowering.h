// SPDX-License-Identifier: Apache-2.0
// Lowering: one program in the making, for any target. Included by lower*.cpp only.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel_writer.h"
#include "codegen/lower_parts.h"

namespace kiln::detail {

inline Dim bytes_of(const Type& t) { return numel(t.shape) * Dim(static_cast<int64_t>(dtype_size(t.dtype))); }

/// A work that a kernel for all sizes can do, and the sizes to give it.
using SizeCase = std::pair<int, std::vector<Dim>>;

class Lowering {
 public:
  Lowering(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
           const LowerOptions& o, std::vector<TunableKernel>* collect, std::vector<TileLoop> loops);
  LoweredProgram run();

 private:
  Plan& plan() { return program_.plan; }
  int cell_count() const { return static_cast<int>(cells_.size()); }
  int value_cell(Value v) const { return v.id; }
  int partial_cell(int i) const { return g_.value_count() + i; }
  int output_cell(int slot) const {
    return g_.value_count() + static_cast<int>(fused_.partials.size()) + slot;
  }

  // --- inputs that reshape needs row-major ---
  bool needs_dense(size_t i) const;
  /// Everybody reads a row-major copy of the input.
  void make_dense(size_t i);

  // --- cells ---
  void make_cells();
  int add_buffer(PlanBuffer b);
  int new_cell(DType t, const Dim& bytes, const char* name);
  int cell_of(const Binding& b) const;

  // --- works ---
  int kernel_index(const std::string& symbol, bool builtin = false);
  void add_source(KernelSource s);
  void add_kernel(const FusedKernel& k);
  void add_loop(const loop::Kernel& k, Work w);
  void add_node(const Step& s);
  void add_effect(const Node& n);
  void add_loop_over_tiles(const Step& s);
  /// A kernel that writes all of `to_cell`, of a tensor that lies there so, from one loaded or constant
  /// instruction.
  void add_fill(const Shape& shape, DType t, loop::Instr from, int from_cell, const TensorLayout& to,
                int to_cell, std::vector<int> nodes);
  /// A kernel that copies a tensor of type `t`.
  void add_copy(const Type& t, const TensorLayout& from, int from_cell, const TensorLayout& to, int to_cell);
  /// A dense copy of operand i of a contraction.
  Operand copied(const Node& n, size_t i, const Operand& o, int* cell);
  /// The kernels before and after a contraction, if their parameters can say which one is its own.
  Fused fused_into(const Step& s, const Node& n) const;
  bool rebased_case(const Node& n, std::vector<Operand> operands, Fused fused, MatmulCase& c, bool which[2],
                    std::vector<int64_t>& starts) const;
  void add_contract(const Step& s, const Node& n);
  /// A cell that the launch has anyway, for the parameter of an operand that is not in memory.
  int prologue_cell(const Step& s, size_t i, const Node& n) const;
  void add_prologue_cells(const FusedKernel& f, int packed, Work& w, Traffic& traffic);
  /// Cells of the epilogue's parameters; the result itself is written only when kept.
  void add_epilogue_cells(const FusedKernel& f, const Epilogue& e, Work& w, Traffic& traffic);
  std::optional<LibraryKernel> library_for(const Node& n, const MatmulCase& c,
                                           std::string_view schedule) const;
  void add_library(const LibraryKernel& k, Work w);
  void add_matmul(const MatmulCase& c, std::string_view schedule, Work w, DType dtype, const Traffic& in,
                  const Traffic& out);
  /// One launch, or two: the first moves `in` into the workspace (ranges of a split k, what chunks of a scan
  /// carry on), the last makes the result of it.
  void add_launches(const NodeKernel& k, Work w, DType dtype, const char* workspace_name, const Traffic& in,
                    const Traffic& out);

  // --- outputs and overwritten inputs ---
  /// Gives output values their buffers; those that replace an input become overwrites.
  void find_overwrites();
  /// The new value goes to the arena first and is copied over the input when nobody reads the old one any
  /// more.
  void write_late(int i);
  size_t input_of(int input_cell) const;

  // --- order ---
  /// Once every overwrite can be honoured.
  Order in_order(const std::vector<Work>& works) const;
  /// Lets launches of kernels of single elements that differ in sizes and operands alone share kernels, and
  /// those that can go side by side become one (lower_combine.cpp). From the order of the works to their
  /// intervals then.
  Order combine(Order order);
  struct Joined {
    std::vector<Work> works;
    std::vector<size_t> place;  ///< of each work that there was and that is not part of a later one
  };
  Joined join(const std::vector<std::vector<int>>& lists) const;
  Work joined(const std::vector<int>& list) const;
  void share_kernel(const std::vector<SizeCase>& cases, LoopKernel source, bool parts);
  void forget_unused_kernels();

  // --- memory and launches ---
  void place_buffers(const std::vector<std::vector<int>>& intervals);
  void list_collectives();
  void emit(const std::vector<std::vector<int>>& intervals);
  ProfileRow profile_row(const Work& w);
  void finish_plan();

  const Graph& g_;
  const Target& target_;
  std::unique_ptr<KernelWriter> writer_;
  Chooser chooser_;
  const LowerOptions& options_;
  const std::vector<TileLoop> loops_;
  LoweredProgram program_;
  DimPool pool_;
  FusedGraph fused_;
  std::vector<TensorLayout> inputs_;
  std::map<int, int> strided_;  ///< input that is read from a row-major copy -> cell of its own memory
  std::vector<Cell> cells_;
  std::vector<Work> works_;
  std::vector<Overwrite> overwrites_, late_;
  std::vector<int> guards_;  // cells
  std::vector<Collective> collectives_;
  std::map<std::string, int> kernels_;
  std::set<std::string> sources_;
};

}  // namespace kiln::detail
