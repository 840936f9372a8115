// SPDX-License-Identifier: Apache-2.0
// Each worker waits on a word of its own, so that a team of two wakes one thread and a stale wake-up cannot
// read another team's job. All words are std::atomic<int>: those wait on a futex directly.
#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln {

namespace {

// Long enough to bridge the gap between the steps of a training loop and the imbalance between barriers; a
// futex wake-up costs 5-50 us.
constexpr int64_t kIdleSpinNs = 50'000;
constexpr int64_t kBarrierSpinNs = 100'000;
constexpr int64_t kRecentNs = 40'000;  // below kIdleSpinNs: what was awake then still is

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Waits until `word` is no longer `old` and returns its value.
int await_change(const std::atomic<int>& word, int old, int64_t spin_ns) {
  constexpr int kSpinsPerClock = 32;
  for (int64_t deadline = 0; spin_ns > 0;) {
    for (int i = 0; i < kSpinsPerClock; ++i) {
      const int v = word.load(std::memory_order_acquire);
      if (v != old) return v;
      pause_cpu();
    }
    const int64_t now = now_ns();
    if (deadline == 0) deadline = now + spin_ns;
    if (now >= deadline) break;
  }
  int v = word.load(std::memory_order_acquire);
  for (; v == old; v = word.load(std::memory_order_acquire)) word.wait(old, std::memory_order_acquire);
  return v;
}

int allowed_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<ThreadPool*>& shared_slot() {
  static std::atomic<ThreadPool*> slot{nullptr};
  return slot;
}

}  // namespace

int default_threads() {
  const int64_t asked = option_int("KILN_NUM_THREADS");
  return asked > 0 ? static_cast<int>(std::min<int64_t>(asked, ThreadPool::kMaxThreads)) : allowed_cpus();
}

void SpinBarrier::reset(int threads, bool spin) {
  threads_ = threads;
  spin_ns_ = spin ? kBarrierSpinNs : 0;
}

void SpinBarrier::wait() {
  if (threads_ == 1) return;
  const int generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads_) {
    await_change(generation_, generation, spin_ns_);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  // Sequentially consistent, here and at every notify: the store must precede notify's look for sleepers.
  generation_.fetch_add(1);
  generation_.notify_all();
}

struct alignas(64) ThreadPool::Worker {
  std::atomic<int> ticket{0};
  std::thread thread;
};

ThreadPool::ThreadPool() { workers_.reserve(kMaxThreads); }

ThreadPool::~ThreadPool() {
  call_ = nullptr;
  for (auto& w : workers_) {
    w->ticket.fetch_add(1);
    w->ticket.notify_one();
  }
  for (auto& w : workers_) w->thread.join();
}

ThreadPool& ThreadPool::shared() {
  if (ThreadPool* pool = shared_slot().load(std::memory_order_acquire)) return *pool;
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    // The child has none of the workers; the parent's object is left behind, joining would hang.
    shared_slot().store(nullptr);
  });
  KILN_ASSERT(registered == 0, "pthread_atfork gave {}", registered);
  auto fresh = std::make_unique<ThreadPool>();
  ThreadPool* current = nullptr;
  if (shared_slot().compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;
}

Team ThreadPool::lease(int threads) {
  if (threads <= 0) threads = default_threads();
  threads = std::min(threads, kMaxThreads);
  if (threads == 1 || leased_.exchange(true, std::memory_order_acquire)) return Team(nullptr, 1);
  grow(threads);
  const int size = std::min(threads, static_cast<int>(workers_.size()) + 1);
  if (size != size_) {  // asking for the affinity costs more than the lease
    size_ = size;
    spin_ = size <= allowed_cpus();
    barrier_.reset(size, spin_);
  }
  return Team(this, size_);
}

bool ThreadPool::recently_used() const {
  return now_ns() - last_use_ns_.load(std::memory_order_relaxed) < kRecentNs;
}

void ThreadPool::note_use() { last_use_ns_.store(now_ns(), std::memory_order_relaxed); }

void ThreadPool::grow(int threads) {
  if (static_cast<int>(workers_.size()) + 1 >= threads) return;
  // Signals are the program's own threads' business, not the workers'.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (static_cast<int>(workers_.size()) + 1 < threads) {
      auto worker = std::make_unique<Worker>();
      Worker& w = *worker;
      const int rank = static_cast<int>(workers_.size()) + 1;
      w.thread = std::thread([this, &w, rank] { work(w, rank); });
      workers_.push_back(std::move(worker));
    }
  } catch (const std::exception&) {  // out of threads or memory: a smaller team gives the same result
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ThreadPool::work(Worker& me, int rank) {
  int seen = 0;
  bool spin = true;
  while (true) {
    seen = await_change(me.ticket, seen, spin ? kIdleSpinNs : 0);
    if (call_ == nullptr) return;
    spin = spin_;
    call_member(rank);
    if (pending_.fetch_sub(1) == 1) pending_.notify_one();
  }
}

void ThreadPool::call_member(int rank) {
  try {
    call_(body_, rank, size_);
  } catch (...) {
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
}

void ThreadPool::start(void (*call)(void*, int, int), void* body, int size) {
  call_ = call;
  body_ = body;
  pending_.store(size - 1, std::memory_order_relaxed);
  for (int rank = 1; rank < size; ++rank) {
    Worker& w = *workers_[static_cast<size_t>(rank) - 1];
    w.ticket.fetch_add(1);
    w.ticket.notify_one();
  }
}

void ThreadPool::finish() {
  int left = pending_.load(std::memory_order_acquire);
  while (left != 0) left = await_change(pending_, left, spin_ ? kBarrierSpinNs : 0);
  if (!failed_.load(std::memory_order_relaxed)) return;
  failed_.store(false);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

Team::~Team() {
  if (pool_) pool_->leased_.store(false, std::memory_order_release);
}

void Team::run_erased(void (*call)(void*, int, int), void* body) {
  if (size_ == 1) return call(body, 0, 1);
  pool_->start(call, body, size_);
  pool_->call_member(0);
  pool_->finish();
}

void Team::barrier() {
  if (size_ > 1) pool_->barrier_.wait();
}

namespace detail {

void parallel_for(int64_t n, int64_t grain, void (*call)(void*, int64_t, int64_t), void* body) {
  grain = std::max<int64_t>(grain, 1);
  const int64_t grains = (n - 1) / grain + 1;
  const int64_t wanted = std::min<int64_t>(grains, default_threads());
  if (wanted == 1) return call(body, 0, n);
  Team team = ThreadPool::shared().lease(static_cast<int>(wanted));
  team.run([&](int rank, int size) {
    const int64_t from = grains * rank / size * grain;
    const int64_t to = std::min(n, grains * (rank + 1) / size * grain);
    if (from < to) call(body, from, to);
  });
}

}  // namespace detail

}  // namespace kiln
