// SPDX-License-Identifier: Apache-2.0
// Graph -> plan and kernel sources for a target: fusion, kernels, order, barriers, memory. Runs no compiler
// and touches no memory of a call.
#pragma once

#include <string>
#include <vector>

#include "codegen/failed_source.h"
#include "codegen/schedule.h"
#include "codegen/target.h"
#include "ir/fuse.h"
#include "ir/graph.h"
#include "ir/kernel_image.h"
#include "ir/plan.h"

namespace kiln {

/// How an external tensor lies in memory, in elements from its pointer.
using ExternalLayout = TensorLayout;

struct LowerOptions {
  bool fuse = true;       ///< false: one kernel per node
  bool tf32 = false;      ///< CUDA: f32 products of matmuls are rounded to tf32
  bool prologues = true;  ///< false: operands of contractions are not computed as they are packed
  bool combine = true;    ///< kernels of single elements that could run side by side share launches
  bool library = false;   ///< CUDA: matmuls whose operands lie in memory are cuBLASLt's
  /// CPU: a matrix of products of so many bytes is not kept: ir/tile_loops.h.
  int64_t loop_bytes = 1 << 20;
  bool one_thread = false;    ///< CPU: one thread runs all tasks of a launch, as in the tile of a loop
  ScheduleChoices schedules;  ///< of some kernels; the rules choose the others
  /// Canonical text, part of cache keys.
  std::string str() const;
};

inline constexpr int64_t kNoLoops = INT64_MAX;  ///< for LowerOptions::loop_bytes

/// A kernel's source and the names it exports.
struct KernelSource {
  std::string name;  ///< a file name, for diagnostics
  std::string text;
  std::vector<std::string> symbols;
  std::vector<CudaKernel> cuda = {};    ///< CUDA: what a launch of each symbol must know
  std::vector<std::string> calls = {};  ///< symbols of other sources
  bool operator==(const KernelSource&) const = default;
};

struct LoweredProgram {
  Plan plan;
  std::vector<KernelSource> kernels;  ///< each once
};

/// Plan and sources of `g`, which should be optimised and verified.
///
/// Inputs of kind scalar become scalar slots, all others external slots, each numbered in input order.
/// Outputs that alias an input are written into its memory; the others become output slots, in output order,
/// row-major. The plan holds nothing that is not in the canonical text of `g`: see name_plan. `layouts` has
/// one entry per external slot, or none at all: row-major. Throws: unsupported, naming op and line, for what
/// no kernel can do.
///
/// The plans of two targets differ in schedules alone (kernels, tasks, scratch, loops over tiles), and where
/// one can work in place.
LoweredProgram lower(const Graph& g, const std::vector<ExternalLayout>& layouts, const Target& target,
                     const LowerOptions& options = {});

/// Names buffers and launches of a plan made from a graph of the same canonical text: inputs, outputs and
/// module paths of `g`. They stay out of the cache, where one plan serves every model that has that text.
void name_plan(const Graph& g, Plan& plan);

/// The user's lines of a launch of such a plan: "net.cpp:3 net.cpp:4".
std::string lines_of(const Graph& g, const ProfileRow& row);
/// Those of each kernel of such a plan that is not the runtime's: of all its launches.
KernelLines kernel_lines(const Graph& g, const Plan& plan);

}  // namespace kiln
