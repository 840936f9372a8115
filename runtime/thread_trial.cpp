// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_trial.h"

#include <algorithm>

namespace kiln {

int ThreadTrial::choose(int many) {
  const uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed);
  if (call < kFirst) return call % 2 ? many : 1;
  const bool team_wins = team_ns_.load(std::memory_order_relaxed) < alone_ns_.load(std::memory_order_relaxed);
  if (call < retry_at_.load(std::memory_order_relaxed)) return team_wins ? many : 1;
  retry_at_.store(call + kLeast, std::memory_order_relaxed);
  return team_wins ? 1 : many;
}

void ThreadTrial::note(int threads, double ns) {
  const uint64_t call = calls_.load(std::memory_order_relaxed);
  std::atomic<double>& mine = threads == 1 ? alone_ns_ : team_ns_;
  const double before = mine.load(std::memory_order_relaxed);
  // The first calls meet cold caches: their best counts.
  const double now = before == 0 ? ns : call <= kFirst ? std::min(before, ns) : before + (ns - before) / 4;
  mine.store(now, std::memory_order_relaxed);
  const double alone = alone_ns_.load(std::memory_order_relaxed),
               team = team_ns_.load(std::memory_order_relaxed);
  const double best = std::min(alone, team), excess = ns - best;
  if (now == best || best <= 0) return;
  const double wait = std::clamp(50 * excess / best, static_cast<double>(kLeast), static_cast<double>(kMost));
  retry_at_.store(call + static_cast<uint64_t>(wait), std::memory_order_relaxed);
}

}  // namespace kiln
