// SPDX-License-Identifier: Apache-2.0
// The SPMD thread pool: a leased team runs one function on every member, with a barrier between phases.
// One execution leases the pool as a whole; a second concurrent one gets a team of its caller's thread alone.
// Must not touch OpenMP or any other library's threads.
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

/// A barrier for a fixed number of threads: generation counting, spins a bounded time, then sleeps.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads = 1, bool spin = true) { reset(threads, spin); }
  /// Changes the number of threads. Only while nobody waits. `spin` = false sleeps at once, for teams larger
  /// than the machine: a spinning thread would keep the awaited one off its CPU.
  void reset(int threads, bool spin);
  /// Returns when all threads have called it; what each wrote before is then visible to all.
  void wait();

 private:
  int threads_ = 1;
  int64_t spin_ns_ = 0;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> generation_{0};
};

class ThreadPool;

/// Exclusive use of a pool by one execution, until destroyed.
class Team {
 public:
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Members, the caller's thread included.
  int size() const { return size_; }
  /// Runs f(rank, size) on every member (the caller is rank 0) and waits for all.
  /// Throws: the first exception of a member, after all have returned. A member of a team that meets at
  /// barriers must not throw: the others would wait for it.
  template <typename F>
  void run(F&& f) {
    using Body = std::remove_reference_t<F>;
    run_erased([](void* body, int rank, int size) { (*static_cast<Body*>(body))(rank, size); },
               const_cast<void*>(static_cast<const void*>(&f)));
  }
  /// Meets all other members. Only inside run().
  void barrier();

 private:
  friend class ThreadPool;
  Team(ThreadPool* pool, int size) : pool_(pool), size_(size) {}
  void run_erased(void (*call)(void*, int, int), void* body);
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
  void grow(int threads);
  void work(Worker& me, int rank);
  void call_member(int rank);
  void start(void (*call)(void*, int, int), void* body, int size);
  void finish();

  // The job: written by the leaseholder before it hands out tickets, constant until all have finished.
  void (*call_)(void*, int, int) = nullptr;
  void* body_ = nullptr;
  int size_ = 1;
  bool spin_ = true;
  SpinBarrier barrier_;
  std::exception_ptr error_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<int64_t> last_use_ns_{0};
  alignas(64) std::atomic<bool> leased_{false};
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<int> pending_{0};
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
