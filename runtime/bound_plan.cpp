// SPDX-License-Identifier: Apache-2.0
#include "runtime/bound_plan.h"

#include <algorithm>
#include <map>
#include <string>

#include "ir/base/error.h"

namespace kiln {

namespace {

constexpr size_t kBoundsKept = 8;

std::vector<int64_t> evaluate(const Plan& plan, std::span<const int64_t> symbols) {
  std::map<std::string, int64_t, std::less<>> values;
  for (size_t i = 0; i < symbols.size(); ++i) values[plan.symbols[i]] = symbols[i];
  std::vector<int64_t> out;
  out.reserve(plan.dims.size());
  for (const Dim& d : plan.dims) out.push_back(d.eval(values));
  return out;
}

void place_buffers(const Plan& plan, BoundPlan& bound) {
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    const int64_t bytes = b.bytes >= 0 ? bound.dims[b.bytes] : 8;
    const int64_t offset = b.offset >= 0 ? bound.dims[b.offset] : 0;
    const bool placed = b.kind == BufferKind::arena || b.kind == BufferKind::constant;
    const int64_t room =
        b.kind == BufferKind::arena ? bound.arena_bytes : static_cast<int64_t>(plan.constants.size());
    KILN_ASSERT(bytes >= 0 && offset >= 0, "buffer {} ({}) has {} bytes at {}", i, b.name, bytes, offset);
    KILN_ASSERT(!placed || (bytes <= room && offset <= room - bytes), "buffer {} ({}) ends at {} of {} bytes",
                i, b.name, offset + bytes, room);
    bound.sizes.push_back(bytes);
    bound.offsets.push_back(offset);
  }
}

/// Time on one thread: from the profile row, else from the buffers' sizes.
double launch_ns(const Plan& plan, const BoundPlan& bound, const Launch& l) {
  double bytes = 0, flops = 0;
  const ProfileRow* row = l.profile >= 0 ? &plan.profile[l.profile] : nullptr;
  if (row && row->flops >= 0) flops = static_cast<double>(bound.dims[row->flops]);
  if (row && row->bytes >= 0) bytes = static_cast<double>(bound.dims[row->bytes]);
  else
    for (const int32_t b : l.buffers) bytes += static_cast<double>(bound.sizes[b]);
  return WorkModel::kLaunchNs + bytes / WorkModel::kBytesPerNs + flops / WorkModel::kFlopsPerNs;
}

void bind_parts(const Launch& l, BoundPlan& bound, BoundLaunch& b) {
  if (l.parts.empty()) return;
  b.first_part = static_cast<int32_t>(bound.parts.size());
  b.parts = static_cast<int32_t>(l.parts.size());
  b.part_args = static_cast<int32_t>(l.buffers.size() / l.parts.size());
  b.part_dims = static_cast<int32_t>(l.dims.size() / l.parts.size());
  int64_t tasks = 0, at = 0;
  for (const LaunchPart& p : l.parts) {
    const int64_t begin = at;
    at += bound.dims[p.elements];
    bound.parts.push_back({bound.dims[p.tasks], begin, at});
    KILN_ASSERT(begin <= at && bound.parts.back().tasks >= 0 && (begin < at || bound.parts.back().tasks == 0),
                "a part of {} tasks for {} elements", bound.parts.back().tasks, at - begin);
    tasks += bound.parts.back().tasks;
  }
  KILN_ASSERT(tasks == b.tasks, "parts of {} tasks in a launch of {}", tasks, b.tasks);
}

/// Decides which launches are split: those with work for more than one thread, or with company. The launches
/// from one declared barrier to the next are independent of each other.
void place_launches(const Plan& plan, BoundPlan& bound) {
  const size_t count = bound.launches.size();
  for (size_t from = 0, to = 0; from < count; from = to) {
    for (to = from + 1; to < count && !plan.launches[to].barrier_before;) ++to;
    int32_t turn = 0;
    for (size_t i = from; i < to; ++i) {
      BoundLaunch& l = bound.launches[i];
      const bool alone = l.tasks == 1 && to - from == 1;
      l.solo = l.kind != LaunchKind::kernel || l.tasks == 0 || l.ns < WorkModel::kSoloNs || alone;
      if (!l.solo) l.turn = turn++;
    }
  }
}

/// Keeps only the barriers that separate work of different threads. A declared barrier between launches of
/// rank 0 needs none now, but the next split launch then does: its other threads have not seen that work.
void place_barriers(const Plan& plan, BoundPlan& bound) {
  bool solo_before = false, split_before = false;  // launches since the last barrier
  bool skipped = false;                            // a declared barrier since then was left out
  for (size_t i = 0; i < bound.launches.size(); ++i) {
    BoundLaunch& l = bound.launches[i];
    const bool declared = plan.launches[i].barrier_before;
    if (i == bound.guarded_from) l.barrier = i > 0;  // guards are looked at where a phase begins
    else if (l.solo) l.barrier = declared && split_before;
    else l.barrier = skipped || (declared && (solo_before || split_before));
    if (l.barrier) solo_before = split_before = skipped = false;
    else skipped = skipped || (declared && solo_before);
    (l.solo ? solo_before : split_before) = true;
  }
  for (size_t i = 0; i < bound.launches.size(); ++i) {
    if (i == bound.guarded_from) bound.guarded_phase = static_cast<int>(bound.phases.size());
    if (i == 0 || bound.launches[i].barrier) bound.phases.push_back(static_cast<int32_t>(i));
  }
  bound.phases.push_back(static_cast<int32_t>(bound.launches.size()));
  if (bound.guarded_from == bound.launches.size()) bound.guarded_phase = bound.phase_count();
  const auto guarded = bound.launches.begin() + static_cast<int64_t>(bound.guarded_from);
  const auto starts = [](const BoundLaunch& l) { return l.kind == LaunchKind::start; };
  if (guarded == bound.launches.end() || std::any_of(bound.launches.begin(), guarded, starts)) return;
  bound.announced_from = bound.guarded_from;
  bound.announced_phase = bound.guarded_phase;
}

}  // namespace

std::shared_ptr<const BoundPlan> bind_plan(const Plan& plan, std::span<const int64_t> symbols) {
  KILN_CHECK(symbols.size() == plan.symbols.size(), invalid,
             "executor: number of symbol values differs; got {}, expected {}", symbols.size(),
             plan.symbols.size());
  auto bound = std::make_shared<BoundPlan>();
  bound->symbols.assign(symbols.begin(), symbols.end());
  bound->dims = evaluate(plan, symbols);
  bound->arena_bytes = plan.arena_bytes >= 0 ? bound->dims[plan.arena_bytes] : 0;
  KILN_ASSERT(bound->arena_bytes >= 0, "an arena of {} bytes", bound->arena_bytes);
  place_buffers(plan, *bound);
  int64_t first_arg = 0;
  for (const Launch& l : plan.launches) {
    BoundLaunch b{l.kind, l.kernel, static_cast<int32_t>(bound->launch_dims.size()), first_arg};
    first_arg += static_cast<int64_t>(l.buffers.size());
    for (const DimIndex d : l.dims) bound->launch_dims.push_back(bound->dims[d]);
    b.tasks = l.tasks >= 0 ? bound->dims[l.tasks] : 1;
    KILN_ASSERT(b.tasks >= 0, "a launch of {} tasks", b.tasks);
    bind_parts(l, *bound, b);
    b.ns = b.tasks > 0 ? launch_ns(plan, *bound, l) : 0;
    const int64_t scratch = l.scratch_bytes >= 0 ? bound->dims[l.scratch_bytes] : 0;
    KILN_ASSERT(scratch >= 0, "a scratch of {} bytes", scratch);
    bound->scratch_bytes = std::max(bound->scratch_bytes, scratch);
    bound->launches.push_back(b);
  }
  bound->guarded_from =
      plan.guarded_from >= 0 ? static_cast<size_t>(plan.guarded_from) : plan.launches.size();
  for (const int32_t g : plan.guards)
    KILN_ASSERT(bound->sizes[g] == sizeof(int64_t), "a guard of {} bytes", bound->sizes[g]);
  place_launches(plan, *bound);
  place_barriers(plan, *bound);
  bound->alone_ns = bound->estimate_ns(1);
  return bound;
}

int64_t BoundPart::tasks_before(int64_t element) const {
  if (element <= begin) return 0;
  if (element >= end) return tasks;
  return tasks * (element - begin) / (end - begin);
}

double BoundPlan::estimate_ns(int threads) const {
  double total = 0, solo = 0, split = 0, longest = 0;  // the last three since the last barrier
  const auto meet = [&] {
    total += solo + std::max(split / threads, longest);
    solo = split = longest = 0;
  };
  for (const BoundLaunch& l : launches) {
    if (l.barrier && threads > 1) {
      meet();
      total += WorkModel::kMeetNs * threads;
    }
    if (l.solo) {
      solo += l.ns;
      continue;
    }
    const int64_t rounds = (l.tasks + threads - 1) / threads;
    split += l.ns;
    longest = std::max(longest, l.ns * static_cast<double>(rounds) / static_cast<double>(l.tasks));
  }
  meet();
  return total;
}

int BoundPlan::best_threads(int available, double least_gain_ns) const {
  double best = alone_ns - least_gain_ns;
  int choice = 1;
  for (int n = 2; n <= available; n = n < available ? std::min(2 * n, available) : n + 1) {
    const double ns = estimate_ns(n);
    if (ns < best) {
      best = ns;
      choice = n;
    }
  }
  return choice;
}

int BoundPlan::choose_threads(int available, bool awake) const {
  available = std::clamp(available, 1, 1023);
  uint32_t known = choice_.load(std::memory_order_relaxed);
  if (static_cast<int>(known >> 20) != available) {
    const auto hot = static_cast<uint32_t>(best_threads(available, WorkModel::kHotGainNs));
    const auto cold = static_cast<uint32_t>(best_threads(available, WorkModel::kColdGainNs));
    known = static_cast<uint32_t>(available) << 20 | hot << 10 | cold;
    choice_.store(known, std::memory_order_relaxed);
  }
  return static_cast<int>((awake ? known >> 10 : known) & 1023u);
}

BoundPlans::BoundPlans(const Plan& plan) : plan_(plan) {
  const std::string fault = plan_fault(plan_);
  KILN_ASSERT(fault.empty(), "{}", fault);
  if (plan_.symbols.empty()) only_ = bind_plan(plan_, {});
}

std::shared_ptr<const BoundPlan> BoundPlans::get(std::span<const int64_t> symbols) {
  if (only_ && symbols.empty()) return only_;
  const auto same = [&](const std::shared_ptr<const BoundPlan>& b) {
    return std::equal(symbols.begin(), symbols.end(), b->symbols.begin(), b->symbols.end());
  };
  {
    std::lock_guard lock(mutex_);
    const auto it = std::find_if(bounds_.begin(), bounds_.end(), same);
    if (it != bounds_.end()) {
      std::rotate(bounds_.begin(), it, it + 1);
      return bounds_.front();
    }
  }
  auto bound = bind_plan(plan_, symbols);
  std::lock_guard lock(mutex_);
  bounds_.insert(bounds_.begin(), bound);
  if (bounds_.size() > kBoundsKept) bounds_.pop_back();
  return bound;
}

}  // namespace kiln
