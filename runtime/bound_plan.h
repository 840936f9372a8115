// SPDX-License-Identifier: Apache-2.0
// A plan with its sizes evaluated for one set of symbol values: where buffers lie, which launches are split
// over threads, where the threads must meet, and how many threads pay. Holds no pointer to memory of a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ir/plan.h"
#include "runtime/thread_trial.h"

namespace kiln {

/// A launch with its numbers. `solo` launches are share 0 alone; the others are split, starting at share
/// `turn`, so that independent launches of few tasks run side by side.
struct BoundLaunch {
  LaunchKind kind = LaunchKind::kernel;
  int32_t kernel = 0;     ///< or collective
  int32_t first_dim = 0;  ///< in BoundPlan::launch_dims
  int64_t first_arg = 0;  ///< in the flat list of all launches' buffers
  int64_t tasks = 0;
  double ns = 0;                      ///< estimate on one thread
  int32_t first_part = 0, parts = 0;  ///< in BoundPlan::parts; none where the launch is one
  int32_t part_args = 0, part_dims = 0;
  int32_t turn = 0;
  bool solo = true;
  bool barrier = false;  ///< all threads meet before it
};

/// A part of a launch with its numbers. The elements of a launch's parts are counted through.
struct BoundPart {
  int64_t tasks = 0;
  int64_t begin = 0, end = 0;  ///< elements
  /// How many tasks belong to those who do the elements before `element`: none twice, and none left out,
  /// wherever threads cut. The work of a task is done by who has its end.
  int64_t tasks_before(int64_t element) const;
};

/// What one thread is assumed to do, for choosing the thread count; never for choosing numbers.
/// Measured on 2 cores of a Zen 4 server: a hot barrier of two takes 0.06 us, a hot dispatch 0.1 us, waking
/// sleeping workers 60-160 us.
struct WorkModel {
  static constexpr double kBytesPerNs = 10, kFlopsPerNs = 20, kLaunchNs = 20;
  static constexpr double kSoloNs = 1000;         ///< shorter launches are not split
  static constexpr double kMeetNs = 100;          ///< one barrier, per thread
  static constexpr double kHotGainNs = 5'000;     ///< least gain that is worth threads that are awake
  static constexpr double kColdGainNs = 150'000;  ///< least gain that is worth waking threads
  static constexpr double kTrialNs = 1'000'000;   ///< shorter calls learn from their own times (ThreadTrial)
};

/// See the top of the file. Threads: any (immutable but for a remembered choice).
struct BoundPlan {
  std::vector<int64_t> symbols;      ///< the values it is bound to
  std::vector<int64_t> dims;         ///< Plan::dims, evaluated
  std::vector<int64_t> launch_dims;  ///< what the kernels read, launch after launch
  std::vector<BoundLaunch> launches;
  std::vector<BoundPart> parts;  ///< launch after launch
  std::vector<int32_t> phases;   ///< first launch of each, between the places where threads meet; and the end
  size_t guarded_from = 0;  ///< launches from this one on need their guards to hold; a phase begins with it
  int guarded_phase = 0;
  /// Where it is certain that the collectives will be started: with the first guarded launch, or, where one
  /// is started before that, at once.
  size_t announced_from = 0;
  int announced_phase = 0;
  std::vector<int64_t> offsets, sizes;  ///< by buffer; bytes
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;  ///< of the launch that needs most, for one thread
  double alone_ns = 0;        ///< estimate_ns(1)
  mutable ThreadTrial trial;  ///< for calls shorter than WorkModel::kTrialNs

  int phase_count() const { return static_cast<int>(phases.size()) - 1; }
  /// Estimated time of one call on `threads` threads.
  double estimate_ns(int threads) const;
  /// The number up to `available` with the best estimate; 1 where the gain is not worth it: threads that are
  /// awake cost little, sleeping ones much.
  int choose_threads(int available, bool awake) const;

 private:
  int best_threads(int available, double least_gain_ns) const;
  mutable std::atomic<uint32_t> choice_{0};  // available, choice awake, choice asleep: 10 bits each
};

/// Evaluates `plan`, which must be sound (plan_fault). Throws: invalid, if the number of symbols differs;
/// internal, if a size is negative or a buffer lies outside the arena or the constants.
std::shared_ptr<const BoundPlan> bind_plan(const Plan& plan, std::span<const int64_t> symbols);

/// A plan bound to the sizes of its last calls. Threads: any.
class BoundPlans {
 public:
  /// `plan` is looked at until this is destroyed. Throws: internal, if it is unsound.
  explicit BoundPlans(const Plan& plan);
  /// Throws: as bind_plan.
  std::shared_ptr<const BoundPlan> get(std::span<const int64_t> symbols);
  /// Of a plan without symbols; else null.
  const BoundPlan* only() const { return only_.get(); }

 private:
  const Plan& plan_;
  std::shared_ptr<const BoundPlan> only_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const BoundPlan>> bounds_;  // most recent first
};

}  // namespace kiln
