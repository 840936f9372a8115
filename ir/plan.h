// SPDX-License-Identifier: Apache-2.0
// The executable plan as plain data: what codegen hands to runtime. It is serialised into the cache, so a
// warm start needs nothing but this and a kernel image. Holds no pointer, path, rank or line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dim.h"
#include "ir/base/dtype.h"

namespace kiln {

/// What a guard holds where all is well: the largest of the offending integers when there is none.
inline constexpr int64_t kNothingWrong = INT64_MIN;

/// Index into Plan::dims, the flat table of size expressions that is evaluated once per call.
using DimIndex = int32_t;

/// Where a plan buffer's memory comes from.
enum class BufferKind : uint8_t {
  external,  ///< tensor passed in: argument, parameter, state; `index` = external slot. Perhaps written
  scalar,    ///< 0-d run-time scalar; `index` = scalar slot, 8 bytes each
  arena,     ///< temporary; `offset` into the leased arena
  output,    ///< tensor handed out; `index` = output slot, memory given by the caller
  constant,  ///< bytes stored in the plan; `offset` into Plan::constants
};

struct PlanBuffer {
  BufferKind kind = BufferKind::arena;
  DType dtype = DType::f32;
  int32_t index = -1;
  DimIndex bytes = -1;
  DimIndex offset = -1;  ///< arena and constant only
  std::string name;      ///< for reports: "fc1.weight", "%12"
};

/// What a launch runs: a generated kernel of the plan's image, or a builtin of the runtime ("blis_sgemm").
struct PlanKernel {
  bool builtin = false;
  std::string symbol;
};

/// A collective of the plan: in place on one buffer, between its start and its wait.
struct PlanCollective {
  std::string kind;         ///< "all_reduce": the sum; the mean, made in `wire`, if that is not the buffer's
  DType wire = DType::f32;  ///< of what is sent
  int32_t group = -1;       ///< place in the list of groups that a call is given
  int32_t buffer = -1;      ///< plan buffer
  DimIndex count = -1;      ///< elements
  std::vector<DimIndex> pieces;  ///< first element of each tensor in it
  int32_t source = -1;           ///< node id, looked up in the trace's own side table of lines
};

/// What a launch does.
enum class LaunchKind : uint8_t {
  kernel,  ///< runs a kernel
  start,   ///< starts a collective, and does not wait for it
  wait,    ///< returns when a collective that was started is done
};

/// One part of a launch that does several: the kernel over buffers and dims of its own.
struct LaunchPart {
  DimIndex tasks = -1;
  DimIndex elements = -1;  ///< of all its tasks: threads share a launch by elements
};

/// One launch. Launches run in order; those between two barriers are independent of each other.
struct Launch {
  int32_t kernel = -1;           ///< in Plan::kernels; of a start or wait: in Plan::collectives
  std::vector<int32_t> buffers;  ///< plan buffers, in the kernel's parameter order
  std::vector<DimIndex> dims;    ///< in the order the kernel reads them
  DimIndex tasks = -1;           ///< independent tasks; fixed by the shape, never by the thread count
  DimIndex scratch_bytes = -1;   ///< per thread
  bool barrier_before = true;    ///< all earlier launches must have finished
  int32_t profile = -1;          ///< row of Plan::profile
  LaunchKind kind = LaunchKind::kernel;
  std::vector<int32_t> writes = {};  ///< places in `buffers` of all that a kernel writes
  /// Parts that are independent of each other. `buffers` and `dims` are then those of the first, of the
  /// second and so on, equally many each, and `tasks` all of them. Empty: one, which is the whole.
  std::vector<LaunchPart> parts = {};
  /// Bytes from where each buffer begins to what the kernel is given; empty: none anywhere.
  std::vector<int64_t> starts = {};
  int64_t start(size_t i) const { return starts.empty() ? 0 : starts[i]; }
};

/// What a profile table and `explain` print for a launch.
struct ProfileRow {
  std::string name;     ///< "layer_norm+linear", from the regions and ops it fuses
  std::string ops;      ///< fused ops, e.g. "mul add tanh"
  DimIndex bytes = -1;  ///< that must move
  DimIndex flops = -1;
  std::vector<int32_t> sources;  ///< node ids, looked up in the trace's own side table of lines
};

/// The whole program of one stage.
struct Plan {
  std::vector<std::string> symbols;  ///< names of the symbols that `dims` use, in the order values are passed
  std::vector<Dim> dims;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<PlanCollective> collectives;  ///< in the order of their starts
  std::vector<Launch> launches;
  std::vector<ProfileRow> profile;
  std::string constants;  ///< bytes of all constant buffers
  DimIndex arena_bytes = -1;
  /// Buffers of one i64 each. Launches from `guarded_from` on (-1: all run) are left out unless every guard
  /// holds kNothingWrong: those before it write no external.
  std::vector<int32_t> guards;
  int32_t guarded_from = -1;
  int32_t external_count = 0, scalar_count = 0, output_count = 0;
};

/// Bytes for the cache. Equal plans give equal bytes.
std::string serialize(const Plan& plan);
/// Inverse of serialize. Throws: io, on bytes of another version or damaged ones.
Plan deserialize_plan(std::string_view bytes);
/// The first index of `plan` that is out of range, or symbol that is not listed; "" for a sound plan.
std::string plan_fault(const Plan& plan);
/// Readable text, one line per buffer and launch.
std::string print(const Plan& plan);

}  // namespace kiln
