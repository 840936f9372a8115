// SPDX-License-Identifier: Apache-2.0
// Runs plans: evaluates the sizes, leases memory and threads, and walks the launches.
// Decides how many threads and where they meet, never what a kernel computes: the tasks of a launch come from
// the plan, and any number of threads gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel_image.h"
#include "ir/plan.h"
#include "runtime/bound_plan.h"
#include "runtime/collective.h"
#include "runtime/timeline.h"

namespace kiln {

class Profiler;
class Team;

/// One call of a plan. The spans are read during run() only.
struct Invocation {
  std::span<void* const> externals;   ///< by external slot
  std::span<void* const> outputs;     ///< by output slot: memory given by the caller
  std::span<const uint64_t> scalars;  ///< by scalar slot, 8 bytes each; the value stands in the first bytes
  std::span<const int64_t> symbols;   ///< values, in the order of Plan::symbols
  int threads = 0;                    ///< exactly so many, if the pool is free; 0: by the amount of work,
  int max_threads = 0;                ///< up to so many; 0: up to default_threads()
  Profiler* profiler = nullptr;       ///< times every launch apart (adds barriers)
  /// On the CPU: gets the time of every launch, -1 for those that a guard kept from running (adds barriers).
  std::vector<int64_t>* launch_ns = nullptr;
  Timeline* timeline = nullptr;    ///< gets a span for every launch and collective (adds barriers), ...
  std::string_view name = "call";  ///< ... and one of this name for the call, ...
  uint64_t number = 0;             ///< ... with this number, if it has one
  std::span<ProcessGroup* const> groups = {};  ///< that the plan's collectives name by place
  std::span<const CollectiveSite> sites = {};  ///< per collective: what errors say of it
  /// Called by a plan with collectives before it starts the first, and not if a guard keeps it from that;
  /// with true if they run in a graph that was recorded, which ranks do together.
  const std::function<void(bool replayed)>* announce = nullptr;
};

/// A plan with its kernels. Threads: any number of calls at once.
class Executable {
 public:
  /// Finds the function of a generated kernel (never asked for builtins); null if there is none.
  using Resolver = std::function<KernelFn(const PlanKernel&)>;

  /// `image` is whatever must stay loaded as long as the kernels run.
  /// Throws: internal, if the plan is unsound or a kernel is missing.
  Executable(Plan plan, const Resolver& resolve, std::shared_ptr<const void> image = nullptr);
  ~Executable();
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  /// Runs the whole plan, or, where a guard does not hold, the launches before the guarded ones: then no
  /// external has been written. With KILN_POISON=1 (read when the executable is made) the arena, the scratch
  /// and the outputs are filled with NaN first. Throws: invalid, on missing externals, outputs, scalars,
  /// symbols or groups; device, out of memory; internal, when a kernel wrote behind the arena; comm, when a
  /// collective failed: externals may then have been written in part.
  void run(const Invocation& call) const;

  const Plan& plan() const { return plan_; }
  /// Bytes of the arena for these sizes, without scratch.
  int64_t arena_bytes(std::span<const int64_t> symbols) const;
  /// The evaluated table of Plan::dims for these sizes.
  std::vector<int64_t> dims(std::span<const int64_t> symbols) const;
  /// Threads that steps which follow each other closely would use for these sizes on `available` CPUs.
  int choose_threads(std::span<const int64_t> symbols, int available) const;

 private:
  struct Frame;
  void point(const BoundPlan& bound, const Invocation& call, std::byte* arena, void** table) const;
  void walk_timed(const Frame& frame, Team& team, const Invocation& call) const;

  Plan plan_;
  mutable BoundPlans bounds_;
  std::vector<KernelFn> kernels_;
  std::shared_ptr<const void> image_;
  std::vector<int32_t> args_;    // buffers of all launches, one after the other, ...
  std::vector<int64_t> starts_;  // ... and where in them their arguments begin
  std::vector<std::byte> constants_storage_;
  std::byte* constants_ = nullptr;  // in there, 64-byte aligned
  bool poison_ = false;
};

}  // namespace kiln
