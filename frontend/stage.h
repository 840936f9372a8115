// SPDX-License-Identifier: Apache-2.0
// A stage: the part of a path between two run points, as a program. It knows values of the path by id; memory
// comes from the cursor at every run.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/tune.h"
#include "frontend/communication.h"
#include "frontend/device.h"
#include "frontend/graphed.h"
#include "frontend/trace.h"
#include "ir/interpret.h"
#include "ir/split_buckets.h"

namespace kiln {
class Profiler;
}

namespace kiln::detail {

/// How stages are built: what CompileOptions says.
struct StageOptions {
  bool reference = false;  ///< interpret instead of compiling
  bool full_graph = false;
  bool check_numerics = false;
  bool check = false;  ///< compare compiled with reference op by op
  int max_builds = 16;
  int threads = 0;
  int64_t activation_memory = 0;  ///< 0: no bound
  bool frozen = false;
  std::string name = "fn";
  std::shared_ptr<Profiler> profiler;  ///< null: not timed
  SourceLoc loc;
  TuneOptions tune;             ///< `threads` and `go_on` are filled in by the build
  std::function<void()> go_on;  ///< unless it is empty, ends a build by what it throws
  std::optional<SplitOptions> split;
  std::shared_ptr<GraphedPrograms> graphed;  ///< null: plans are not recorded as CUDA graphs
  // Of a stage:
  Device device = {};
  bool tf32 = false;  ///< matrix products of f32 may be made from tf32
  // Of a path, for its backward outside the callable:
  std::vector<Sizes> external_strides;
  std::map<Slot, int> bucket_of;  ///< with split: the bucket of each parameter
};

/// Where a stage input comes from.
struct StageInput {
  enum class From : uint8_t { external, scalar, carried, gradient } from = From::external;
  int index = 0;
};
/// Where a stage output goes.
struct StageOutput {
  int external = -1;    ///< written in place into this external, or
  int carried = -1;     ///< memory of this carried buffer
  Slot slot = kAbsent;  ///< the slot whose handle may offer its former memory (with carried)
  DType dtype = DType::f32;
  Sizes shape;
  bool staged = false;  ///< external that overlaps others: written to a copy first
  int check = -1;       ///< no memory of the trace: tested after the run
};

/// A compiled (or interpreted) graph over memory of one device.
class Program {
 public:
  virtual ~Program() = default;
  Communication communication;  ///< which the ranks must agree on before each run
  /// `inputs` in graph-input order, `outputs[i]` is where output i goes: memory of the program's device, but
  /// for scalars and guard outputs, which are the host's. Outputs that alias an input have that input's
  /// memory. Guard outputs come in with kNothingWrong; after a run that leaves another value in one, no input
  /// has been written, and the other outputs hold nothing. Threads: may run concurrently.
  virtual void run(std::span<const DeviceTensor> inputs, std::span<const DeviceTensor> outputs) = 0;
};

/// Builds a program for `g`, whose inputs have the given strides (elements). Fills in `record`.
std::unique_ptr<Program> build_program(const Graph& g, std::span<const Sizes> input_strides,
                                       const StageOptions& options, BuildRecord& record);

/// At most one T that nobody uses just now. Threads: any.
template <typename T>
class Spare {
 public:
  Spare() = default;
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
  ~Spare() { take(); }
  std::unique_ptr<T> take() { return std::unique_ptr<T>(kept_.exchange(nullptr)); }
  void give(std::unique_ptr<T> t) { delete kept_.exchange(t.release()); }

 private:
  std::atomic<T*> kept_{nullptr};
};

/// Memory of a live slot after the stage ran: that of an external or of a carried buffer.
struct LiveMemory {
  Slot slot = kAbsent;
  int external = -1, carried = -1;
};

/// A live view of something that outlives the call as well: writes to either reach the other's history.
struct LiveView {
  Slot view = kAbsent, base = kAbsent;
  ViewChain::Steps steps;
};

class OuterBackward;
struct StageSplit;

/// Memory that a stage runs on. Kept from run to run: what it costs is the vectors of shapes in it.
struct StageMemory {
  std::vector<DeviceTensor> inputs, outputs;
};

struct Stage {
  std::vector<StageInput> inputs;
  std::vector<StageOutput> outputs;
  std::vector<LiveMemory> live;
  std::vector<LiveView> views;  ///< at the end of a call
  std::vector<ValueCheck> checks;
  std::unique_ptr<Program> program;
  Device device = {};                       ///< where it runs, and
  bool tf32 = false;                        ///< as of StageOptions
  std::shared_ptr<const StageSplit> split;  ///< with CompileOptions::split
  std::vector<Slot> consumed;               ///< live results whose history a backward has used up
  std::shared_ptr<OuterBackward> backward;  ///< at the end of a call, when live results can be differentiated
  Spare<StageMemory> memory;
};

/// The subgraph of `r.graph` that computes `wanted`, starting from externals, scalars and exported values.
struct Extracted {
  Graph graph;
  std::vector<StageInput> inputs;
  std::vector<Value> input_values;  ///< path value of each input
  std::vector<Value> node_values;   ///< path value of each node
  std::string lost;                 ///< text of an input that was written over, if any: nothing can run
};
/// `gradients` are inputs that the caller gives (a backward outside the callable).
Extracted extract(const Recorder& r, std::span<const Value> wanted, std::span<const Value> gradients = {});

}  // namespace kiln::detail
