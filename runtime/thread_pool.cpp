// SPDX-License-Identifier: Apache-2.0
// One word, state_, says which phase of which job is open and how many of its shares are done. To take a
// share is to move that share's word, the first phase that nobody has begun, past the open one. That fails
// for all but one member, and for everybody late: a thread that slept through the end of a job, or through
// the whole of the next, finds nothing to take and touches nothing else. Each worker sleeps on a word of its
// own, so that a team of two wakes one thread.
#include "runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/signal_mask.h"

namespace kiln {

namespace {

// Long enough to bridge the gap between the steps of a training loop and the imbalance of shares; a futex
// wake-up costs 5-50 us. The first microseconds spin, the rest gives the CPU to whoever else wants it: the
// thread waited for may be queued behind this one.
constexpr int64_t kSpinNs = 4'000, kYieldNs = 50'000;
constexpr int64_t kRecentNs = 40'000;  // below kYieldNs: what was awake then still is

// state_: job (35 bits), phase (20), shares done (9). A phase alone is the word without the last.
constexpr int kDoneBits = 9, kPhaseBits = 20;
constexpr uint64_t kDone = (uint64_t{1} << kDoneBits) - 1, kOnePhase = kDone + 1;
constexpr uint64_t kClosed = ((uint64_t{1} << kPhaseBits) - 1) << kDoneBits;  // no job has so many phases
static_assert(ThreadPool::kMaxThreads < kOnePhase);

bool is_closed(uint64_t phase) { return (phase & kClosed) == kClosed; }
int number(uint64_t phase) { return static_cast<int>((phase & kClosed) >> kDoneBits); }

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

/// Polls until `ready` or for that long. Whether it is ready.
template <typename Ready>
bool poll(int64_t ns, bool yield, const Ready& ready) {
  constexpr int kSpinsPerClock = 32;
  for (int64_t stop = 0, now = 0; now <= stop; now = now_ns()) {
    for (int i = 0; i < kSpinsPerClock; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
    if (stop == 0) stop = now_ns() + ns;
    if (yield) sched_yield();
  }
  return ready();
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

struct alignas(64) ThreadPool::Worker {
  std::atomic<int> ticket{0};
  std::thread thread;
};

ThreadPool::ThreadPool() : shares_(kMaxThreads), state_(kClosed) { workers_.reserve(kMaxThreads); }

ThreadPool::~ThreadPool() {
  stop_.store(true);
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
  if (size != size_.load(std::memory_order_relaxed)) {  // asking for the affinity costs more than the lease
    // No late member shall find a share that its phase never had.
    for (int share = 0; share < size; ++share)
      shares_[static_cast<size_t>(share)].next.store(state_.load(), std::memory_order_relaxed);
    size_.store(size, std::memory_order_release);
    // A team larger than the machine sleeps at once: one that waits awake would keep others off their CPU.
    spin_.store(size <= allowed_cpus(), std::memory_order_relaxed);
  }
  return Team(this, size);
}

bool ThreadPool::recently_used() const {
  return now_ns() - last_use_ns_.load(std::memory_order_relaxed) < kRecentNs;
}

void ThreadPool::note_use() { last_use_ns_.store(now_ns(), std::memory_order_relaxed); }

void ThreadPool::grow(int threads) {
  if (static_cast<int>(workers_.size()) + 1 >= threads) return;
  const SignalsBlocked blocked;
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
}

void ThreadPool::work(Worker& me, int rank) {
  const auto called = [&] { return !is_closed(open_phase()) || stop_.load(std::memory_order_acquire); };
  while (!stop_.load(std::memory_order_acquire)) {
    const bool awake = spin_.load(std::memory_order_relaxed);
    if (!awake || !(poll(kSpinNs, false, called) || poll(kYieldNs, true, called))) {
      resting_.fetch_add(1, std::memory_order_relaxed);
      for (int seen = me.ticket.load(); !called(); seen = me.ticket.load()) me.ticket.wait(seen);
      resting_.fetch_sub(1, std::memory_order_relaxed);
    }
    take_part(rank, !awake);
  }
}

/// Takes shares until the job is done, whether it began with this one or not: each phase its own, then those
/// whose member is not there. To look for them at once would pull their words away from members that are.
/// `alone`: do not wait for them.
void ThreadPool::take_part(int rank, bool alone) {
  while (true) {
    const uint64_t phase = open_phase();
    if (is_closed(phase)) return;
    if (take_share(phase, rank)) continue;
    if (!alone && poll(kSpinNs, false, [&] { return open_phase() != phase; })) continue;
    alone = take_other_share(phase, rank);
    if (!alone) await_phase_after(phase);
  }
}

uint64_t ThreadPool::open_phase() const { return state_.load(std::memory_order_acquire) & ~kDone; }

bool ThreadPool::take_other_share(uint64_t phase, int rank) {
  const int size = size_.load(std::memory_order_relaxed);
  for (int i = 1; i < size; ++i)
    if (take_share(phase, (rank + i) % size)) return true;
  return false;
}

/// Takes and runs that share of `phase`, if there is one that nobody has.
bool ThreadPool::take_share(uint64_t phase, int share) {
  // A size of the future comes with words beyond any phase of the past.
  if (share >= size_.load(std::memory_order_acquire)) return false;
  std::atomic<uint64_t>& next = shares_[static_cast<size_t>(share)].next;
  uint64_t at = next.load(std::memory_order_relaxed);
  if (at > phase || !next.compare_exchange_strong(at, phase + kOnePhase, std::memory_order_acq_rel))
    return false;
  run_share(phase, share);
  return true;
}

void ThreadPool::run_share(uint64_t phase, int share) {
  if (!failed_.load(std::memory_order_relaxed)) {
    try {
      call_(body_, number(phase), share);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  const uint64_t size = static_cast<uint64_t>(size_.load(std::memory_order_relaxed));
  const bool last = number(phase) + 1 == phases_;
  // The last one sees that it is: it adds nothing, and takes the word from those who poll it only once.
  if ((state_.load(std::memory_order_acquire) & kDone) + 1 < size &&
      (state_.fetch_add(1, std::memory_order_acq_rel) & kDone) + 1 < size)
    return;
  // Sequentially consistent: the store precedes the look for sleepers, who count themselves before they look.
  state_.store(last ? phase | kClosed : phase + kOnePhase);
  if (sleepers_.load() == 0) return;
  alarm_.fetch_add(1);
  alarm_.notify_all();
}

void ThreadPool::await_phase_after(uint64_t phase) {
  const auto moved = [&] { return open_phase() != phase; };
  if (spin_.load(std::memory_order_relaxed) && poll(kYieldNs, true, moved)) return;
  sleepers_.fetch_add(1);
  for (int seen = alarm_.load(); (state_.load() & ~kDone) == phase; seen = alarm_.load()) alarm_.wait(seen);
  sleepers_.fetch_sub(1);
}

void ThreadPool::run_job(int phases, void (*call)(void*, int, int), void* body) {
  call_ = call;
  body_ = body;
  phases_ = phases;
  state_.store(++job_ << (kPhaseBits + kDoneBits));
  const int size = size_.load(std::memory_order_relaxed);
  const bool nobody_awake = resting_.load(std::memory_order_relaxed) >= size - 1;
  for (int rank = 1; rank < size; ++rank) {
    Worker& w = *workers_[static_cast<size_t>(rank) - 1];
    w.ticket.fetch_add(1);
    w.ticket.notify_one();
  }
  take_part(0, nobody_awake);
  if (!failed_.load(std::memory_order_relaxed)) return;
  failed_.store(false);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

Team::~Team() {
  if (pool_) pool_->leased_.store(false, std::memory_order_release);
}

void Team::run_erased(int phases, void (*call)(void*, int, int), void* body) {
  if (size_ == 1) {
    for (int phase = 0; phase < phases; ++phase) call(body, phase, 0);
    return;
  }
  if (phases == 0) return;
  KILN_ASSERT(phases > 0 && phases < number(kClosed), "a job of {} phases", phases);
  pool_->run_job(phases, call, body);
}

namespace detail {

void parallel_for(int64_t n, int64_t grain, void (*call)(void*, int64_t, int64_t), void* body) {
  grain = std::max<int64_t>(grain, 1);
  const int64_t grains = (n - 1) / grain + 1;
  const int64_t wanted = std::min<int64_t>(grains, default_threads());
  if (wanted == 1) return call(body, 0, n);
  Team team = ThreadPool::shared().lease(static_cast<int>(wanted));
  const int size = team.size();
  team.run(1, [&](int, int share) {
    const int64_t from = grains * share / size * grain;
    const int64_t to = std::min(n, grains * (share + 1) / size * grain);
    if (from < to) call(body, from, to);
  });
}

}  // namespace detail

}  // namespace kiln
