// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: a plan is put on recorded streams once and launched as a whole from then on.
//
// The first call of a plan runs plainly (modules load, libraries start), the second is recorded and launched,
// the others are replayed. Tensors whose address was the same in both calls (parameters, state, outputs that
// the caller uses again) are written and read where they are: a replay costs one launch, and no copy. Those
// that had another address move: they have memory of the graph's own, with a copy into it before a replay
// where they are read, and out of it after where they are written; so no output that somebody holds is ever
// written again. A tensor that begins to move later costs one further recording; from the third on, all that
// is not written in place moves. Outputs of a few numbers (losses, guards) always do.
//
// What a graph owns (arena, scalars, tensors that move) is needed from the copies before a replay to those
// after it only, so the graphs of a device share one block; a plan that needs more than the plans recorded
// before it gets a larger one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/device_plan.h"

namespace kiln {

/// Memory that replays take turns in.
struct CudaGraphBlock {
  CudaMemory memory;
  std::mutex mutex;  ///< held while a replay is put on the compute stream
};

/// The blocks of a device. Threads: any.
class CudaGraphBlocks {
 public:
  /// One of at least `bytes`, new if there is none that a graph still has. Null where all together would then
  /// be larger than `limit`. Throws: device, without memory.
  std::shared_ptr<CudaGraphBlock> get(CudaDevice& device, size_t bytes, size_t limit);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<CudaGraphBlock>> blocks_;
};

/// A graph that can be launched. Threads: one at a time.
class CudaGraph {
 public:
  CudaGraph() = default;
  /// `name` is for errors.
  CudaGraph(CudaDevice& device, const CudaRecording& recorded, const std::string& name);
  CudaGraph(CudaGraph&& other) noexcept { *this = std::move(other); }
  CudaGraph& operator=(CudaGraph&& other) noexcept;
  ~CudaGraph();

  /// On the compute stream.
  void launch();

 private:
  CudaDevice* device_ = nullptr;
  cuda::GraphExec exec_ = nullptr;
  std::string name_;
  std::shared_ptr<const std::string> launches_;
};

/// The graphs of one plan, one for each set of sizes. Threads: any.
class CudaGraphs {
 public:
  explicit CudaGraphs(CudaDevicePlan& plan);
  ~CudaGraphs();

  /// Runs the call by a graph. False if it should run plainly: its sizes are new, or its graph would need
  /// more memory than allowed.
  bool run(const std::shared_ptr<const BoundPlan>& bound, const Invocation& call, const CudaSlots& slots);
  /// Whether a call can be recorded at all.
  bool takes(const Invocation& call) const;
  CudaGraphStats stats() const;

 private:
  struct Entry;
  std::shared_ptr<Entry> find(const std::shared_ptr<const BoundPlan>& bound);
  bool record(Entry& e, const Invocation& call, const CudaSlots& slots);
  void replay(Entry& e, const Invocation& call, const CudaSlots& slots);
  void put_on_compute(Entry& e, const CudaSlots& slots, const Invocation& call);
  void count(int64_t CudaGraphStats::*what);
  void tell(size_t bytes, size_t limit);

  CudaDevicePlan& plan_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;  // most recent first
  CudaGraphStats stats_;
  bool told_ = false;  // that the limit is reached
};

}  // namespace kiln
