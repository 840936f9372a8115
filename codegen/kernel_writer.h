// SPDX-License-Identifier: Apache-2.0
// The seam between lowering and the targets: how each kernel of a program is written. Included by lower*.cpp,
// kernel_writer.cpp, cuda_writer.cpp and tunable.cpp only.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/kernel_case.h"
#include "codegen/lower.h"

namespace kiln::detail {

/// A kernel of the loop IR.
struct LoopKernel {
  KernelSource source;  ///< exports one symbol
  Dim tasks, scratch;
  bool in_place = false;  ///< every element is loaded before its place is stored: may work in place
  int64_t per_task = 1;   ///< elements of a task, if there is one axis that is cut anywhere
};

/// The kernels of a node that is a step of its own, over operands that lie in memory.
struct NodeKernel {
  struct Launch {
    std::string symbol;
    Dim tasks, scratch;
  };
  KernelSource source;
  std::vector<Launch> launches;  ///< a barrier between
  std::vector<Dim> dims;
  Dim workspace;  ///< bytes
  bool has_workspace = false;
};

/// A contraction that a builtin of the runtime does. Parameters: a, b, the result.
struct LibraryKernel {
  std::string builtin;
  std::vector<Dim> dims;
  Dim tasks = 1;
};

/// Writes kernels for one target. Schedules are texts of schedule.h; an empty one leaves all to the rules.
class KernelWriter {
 public:
  virtual ~KernelWriter() = default;
  virtual LoopKernel loop(const loop::Kernel& k, std::string_view schedule) const = 0;
  /// A kernel made by loop::any_size for launches of several parts. Nothing where two have no room in one.
  virtual std::optional<LoopKernel> parts(const loop::Kernel& k) const = 0;
  /// The kernel's parameters are a, b, those of the prologues and of the epilogue (else c), workspace.
  virtual NodeKernel contract(const MatmulCase& c, std::string_view schedule) const = 0;
  /// What a library does instead, with nothing fused into it, if it is asked for and can.
  virtual std::optional<LibraryKernel> library(const MatmulSpec& spec, std::string_view schedule) const = 0;
  /// Of a scatter, scan, sort, pad with gaps or cat of many. Parameters: the operands that lie in memory, the
  /// result, the workspace. Throws: unsupported, naming op and line, for what no kernel can do.
  virtual NodeKernel whole(const Graph& g, const Node& n, const std::vector<Operand>& operands) const = 0;
};

/// The writer for `target`, which must outlive it.
std::unique_ptr<KernelWriter> kernel_writer(const Target& target, const LowerOptions& options);
std::unique_ptr<KernelWriter> cuda_writer(const CudaTarget& target, const LowerOptions& options);

}  // namespace kiln::detail
