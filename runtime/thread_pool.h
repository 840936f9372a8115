// SPDX-License-Identifier: Apache-2.0
// The thread pool: a leased team runs phases of shares. Any member that is awake takes any share, its own
// first, so that nobody waits for a thread that the machine does not run just now. One execution leases the
// pool as a whole; a second concurrent one gets a team of its caller's thread alone. Must not touch OpenMP or
// any other library's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <vector>

namespace kiln {

/// Threads that an execution may use: KILN_NUM_THREADS, else the CPUs this process may run on. Read at each
/// call.
int default_threads();

class ThreadPool;

/// Exclusive use of a pool by one execution, until destroyed.
class Team {
 public:
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Shares of each phase: as many as the team has members, the caller's thread included.
  int size() const { return size_; }
  /// Calls f(phase, share) once for every share of phases 0 to phases - 1. A phase begins when the one before
  /// is done, and sees all it wrote; its shares run side by side, on whatever threads. Waits for all.
  /// Throws: the first exception of a share; the shares that have not begun by then are left out.
  template <typename F>
  void run(int phases, F&& f) {
    using Body = std::remove_reference_t<F>;
    run_erased(
        phases, [](void* body, int phase, int share) { (*static_cast<Body*>(body))(phase, share); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  friend class ThreadPool;
  Team(ThreadPool* pool, int size) : pool_(pool), size_(size) {}
  void run_erased(int phases, void (*call)(void*, int, int), void* body);
  ThreadPool* pool_;  // null: the caller's thread alone
  int size_;
};

/// Workers that sleep until a team runs. They spin for a short while after each run, so that steps that
/// follow each other closely start in about a microsecond, and use no CPU after that.
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 256;

  ThreadPool();
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The pool of this process: made on first use, never destroyed, made anew in a forked child.
  static ThreadPool& shared();
  /// A team of `threads` members (0: default_threads()), or of the caller alone while another team is out.
  /// Threads: any.
  Team lease(int threads = 0);
  /// True within 40 us of note_use(): the next step follows closely, so workers are awake or worth waking.
  bool recently_used() const;
  /// Says that a step that could use this pool has just ended.
  void note_use();

 private:
  friend class Team;
  struct Worker;
  struct alignas(64) Share {
    std::atomic<uint64_t> next{0};  // the first phase that nobody has begun
  };
  void grow(int threads);
  void work(Worker& me, int rank);
  void take_part(int rank, bool alone);
  bool take_share(uint64_t phase, int share);
  bool take_other_share(uint64_t phase, int rank);
  void run_share(uint64_t phase, int share);
  uint64_t open_phase() const;
  void await_phase_after(uint64_t phase);
  void run_job(int phases, void (*call)(void*, int, int), void* body);

  // The job: written by the leaseholder before it opens the first phase, constant until the last is done.
  // Only who has taken a share may look at it: the job cannot end before that share does.
  void (*call_)(void*, int, int) = nullptr;
  void* body_ = nullptr;
  int phases_ = 0;
  std::exception_ptr error_;

  std::atomic<int> size_{1};
  std::atomic<bool> spin_{true}, stop_{false};
  std::vector<Share> shares_;
  std::vector<std::unique_ptr<Worker>> workers_;
  uint64_t job_ = 0;
  std::atomic<int64_t> last_use_ns_{0};
  alignas(64) std::atomic<bool> leased_{false};
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<uint64_t> state_;  // the open phase of the job, and how many of its shares are done
  alignas(64) std::atomic<int> resting_{0};  // workers asleep between jobs
  alignas(64) std::atomic<int> sleepers_{0}, alarm_{0};  // members asleep within one
};

namespace detail {
void parallel_for(int64_t n, int64_t grain, void (*call)(void*, int64_t, int64_t), void* body);
}  // namespace detail

/// Calls f(begin, end) on disjoint ranges that cover [0, n), in parallel on the shared pool. Every begin is a
/// multiple of `grain`, and nothing smaller than `grain` is split, so a body that works grain by grain gives
/// the same bits for any number of threads. Runs on the caller's thread when n <= grain or the pool is taken.
/// Throws: what f throws.
template <typename F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) return void(f(int64_t{0}, n));
  using Body = std::remove_reference_t<F>;
  detail::parallel_for(
      n, grain, [](void* body, int64_t b, int64_t e) { (*static_cast<Body*>(body))(b, e); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace kiln
