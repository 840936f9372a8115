// SPDX-License-Identifier: Apache-2.0
// Two short loops that do nothing but multiply-adds and nothing but copies, on every thread at once; the best
// of many short runs counts, so that a busy neighbour does not lower the limit.
#include "runtime/machine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/arena.h"
#include "runtime/thread_pool.h"

namespace kiln {

double MachineLimits::seconds(double bytes, double flops) const {
  const double memory = bytes_per_s > 0 ? bytes / bytes_per_s : 0;
  const double arithmetic = flops_per_s > 0 ? flops / flops_per_s : 0;
  return std::max(memory, arithmetic);
}

namespace {

constexpr double kSeconds = 0.18;  // of each measurement
constexpr int kAccumulators = 12;  // hides the latency of two multiply-adds a cycle

/// A loop of multiply-adds: returns the FLOPs done and leaves the result in `sink`, so that it cannot go
/// away.
using FmaLoop = double (*)(int64_t rounds, float* sink);

double fma_generic(int64_t rounds, float* sink) {
  typedef float V __attribute__((vector_size(16)));
  V acc[kAccumulators];
  for (int i = 0; i < kAccumulators; ++i) acc[i] = V{} + static_cast<float>(i);
  const V a = V{} + 0.999f, b = V{} + 1e-3f;
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kAccumulators; ++i) acc[i] = acc[i] * a + b;
  }
  for (int i = 0; i < kAccumulators; ++i) *sink += acc[i][0];
  return static_cast<double>(rounds) * kAccumulators * 4 * 2;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) double fma_avx2(int64_t rounds, float* sink) {
  __m256 acc[kAccumulators];
  for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm256_fmadd_ps(acc[i], a, b);
  }
  for (int i = 0; i < kAccumulators; ++i) *sink += _mm256_cvtss_f32(acc[i]);
  return static_cast<double>(rounds) * kAccumulators * 8 * 2;
}

__attribute__((target("avx512f"))) double fma_avx512(int64_t rounds, float* sink) {
  __m512 acc[kAccumulators];
  for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm512_fmadd_ps(acc[i], a, b);
  }
  for (int i = 0; i < kAccumulators; ++i) *sink += _mm512_cvtss_f32(acc[i]);
  return static_cast<double>(rounds) * kAccumulators * 16 * 2;
}
#endif

std::vector<FmaLoop> loops_of_this_cpu() {
  std::vector<FmaLoop> loops = {fma_generic};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) loops.push_back(fma_avx2);
  if (__builtin_cpu_supports("avx512f")) loops.push_back(fma_avx512);
#endif
  return loops;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The best rate of `work` (amount done per call by one share) over the team, within `seconds`.
double best_rate(Team& team, double seconds, const std::function<double(int share)>& work) {
  double best = 0;
  std::vector<double> amount(static_cast<size_t>(team.size())), start(amount.size());
  for (const double stop = now_s() + seconds; now_s() < stop;) {
    // The first phase wakes the members.
    team.run(2, [&](int phase, int share) {
      if (phase == 0) return;
      start[static_cast<size_t>(share)] = now_s();
      amount[static_cast<size_t>(share)] = work(share);
    });
    const double took = now_s() - *std::min_element(start.begin(), start.end());
    best = std::max(best, std::accumulate(amount.begin(), amount.end(), 0.0) / took);
  }
  return best;
}

double measure_flops(Team& team) {
  const std::vector<FmaLoop> loops = loops_of_this_cpu();
  double best = 0;
  std::vector<float> sinks(static_cast<size_t>(team.size()) * 16);
  for (const FmaLoop loop : loops) {
    best = std::max(best, best_rate(team, kSeconds / static_cast<double>(loops.size()), [&](int share) {
                      return loop(100'000, &sinks[static_cast<size_t>(share) * 16]);
                    }));
  }
  return best;
}

/// Copies past the caches, so that a line written is not read first. `to` and `from` are 16-byte aligned.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += 64) {
    for (size_t j = 0; j < 64; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + j),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i + j)));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

double measure_copy(Team& team) {
  // Arrays far beyond the caches, in slices of a fraction of a scheduler's time slice. One array per member
  // keeps its pages where that member runs.
  constexpr size_t kTotal = size_t{192} << 20, kSlice = size_t{2} << 20;
  const size_t slices = std::max<size_t>(2, kTotal / 2 / kSlice / static_cast<size_t>(team.size()));
  const size_t half = slices * kSlice;
  const ArenaLease memory =
      ArenaPool::shared().lease(2 * half * static_cast<size_t>(team.size()), false, nullptr);
  std::vector<size_t> next(static_cast<size_t>(team.size()) * 8);
  const auto start = [&](int share) { return memory.data() + 2 * half * static_cast<size_t>(share); };
  team.run(1, [&](int, int share) { std::memset(start(share), 1, 2 * half); });
  return best_rate(team, kSeconds, [&](int share) {
    const size_t at = next[static_cast<size_t>(share) * 8]++ % slices * kSlice;
    stream_copy(start(share) + half + at, start(share) + at, kSlice);
    return 2.0 * static_cast<double>(kSlice);
  });
}

}  // namespace

MachineLimits machine_limits(int threads) {
  static std::mutex mutex;
  static std::map<int, MachineLimits> known;
  if (threads <= 0) threads = default_threads();
  std::lock_guard lock(mutex);
  const auto it = known.find(threads);
  if (it != known.end()) return it->second;
  ThreadPool pool;  // its own, so that a step in progress does not shrink the team
  Team team = pool.lease(threads);
  MachineLimits limits{threads, measure_flops(team), measure_copy(team)};
  return known[threads] = limits;
}

}  // namespace kiln
