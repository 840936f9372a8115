// SPDX-License-Identifier: Apache-2.0
#include "runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln {
namespace KILN_FILE {

TEST(ThreadPool, RunsEveryShareOnce) {
  ThreadPool pool;
  for (int round = 0; round < 50; ++round) {
    for (int n = 1; n <= 8; ++n) {
      Team team = pool.lease(n);
      ASSERT_EQ(team.size(), n);
      std::vector<int> seen(static_cast<size_t>(n), 0);
      team.run(3, [&](int phase, int share) { seen[static_cast<size_t>(share)] += 1 + 10 * phase; });
      EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(n), 33));
      team.run(0, [&](int, int) { ADD_FAILURE(); });
    }
  }
}

TEST(ThreadPool, APhaseSeesTheOneBefore) {
  ThreadPool pool;
  for (int n = 1; n <= 8; ++n) {
    constexpr int kPhases = 200;
    std::vector<int> a(static_cast<size_t>(n), 0), b(static_cast<size_t>(n), 0);
    Team team = pool.lease(n);
    team.run(kPhases, [&](int phase, int share) {
      auto& from = phase % 2 ? b : a;
      auto& to = phase % 2 ? a : b;
      to[static_cast<size_t>(share)] = 1 + *std::min_element(from.begin(), from.end());
    });
    for (const int v : a) EXPECT_EQ(v, kPhases) << n;
  }
}

TEST(ThreadPool, WorkersOfALargerTeamTakeOnlySharesThatExist) {
  ThreadPool pool;
  for (int round = 0; round < 2000; ++round)
    for (const int n : {4, 2, 3}) {
      Team team = pool.lease(n);
      std::atomic<int> count{0}, beyond{0};
      team.run(40, [&](int, int share) { ++count, beyond += share >= n; });
      ASSERT_EQ(beyond, 0);
      ASSERT_EQ(count, 40 * n);
    }
}

TEST(ThreadPool, SharesRunSideBySide) {
  ThreadPool pool;
  Team team = pool.lease(2);
  std::atomic<int> here{0};
  team.run(1, [&](int, int) {  // each waits for the other: one thread alone would never finish
    here.fetch_add(1);
    while (here.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(here, 2);
}

TEST(ThreadPool, SecondLeaseIsTheCallerAlone) {
  ThreadPool pool;
  Team first = pool.lease(3);
  EXPECT_EQ(first.size(), 3);
  {
    Team second = pool.lease(3);
    EXPECT_EQ(second.size(), 1);
    const auto caller = std::this_thread::get_id();
    int runs = 0;
    second.run(2, [&](int phase, int share) {
      EXPECT_EQ(share, 0);
      EXPECT_EQ(phase, runs++);
      EXPECT_EQ(std::this_thread::get_id(), caller);
    });
    EXPECT_EQ(runs, 2);
  }
  EXPECT_EQ(pool.lease(3).size(), 1);  // the second team gave back nothing that was not its own
}

double process_cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

TEST(ThreadPool, AThreadThatDoesNotRunIsNotWaitedFor) {
  // Two threads that share one CPU: only one runs at a time, and it must not wait awake for the other.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c)
    if (CPU_ISSET(c, &before)) CPU_SET(c, &one);
  ThreadPool pool;
  Team team = pool.lease(2);
  team.run(1, [&](int, int) { sched_setaffinity(0, sizeof one, &one); });
  std::atomic<int> here{0};
  team.run(1, [&](int, int) {  // both, now that one may have taken the two shares above
    here.fetch_add(1);
    while (here.load() < 2) std::this_thread::yield();
    sched_setaffinity(0, sizeof one, &one);
  });
  const double start = process_cpu_ms();
  int64_t sum = 0;
  for (int job = 0; job < 500; ++job)
    team.run(20, [&](int phase, int share) {
      if (share == 0) sum += phase;
    });
  const double took = process_cpu_ms() - start;
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(sum, 500 * 190);
  EXPECT_LT(took, 300.0);  // 10000 phases; a wait of 100 us in each would take 1000 ms
}

TEST(ThreadPool, ManyHostThreadsShareOnePool) {
  ThreadPool pool;
  std::atomic<int> leased{0}, total{0};
  std::vector<std::thread> hosts;
  for (int h = 0; h < 4; ++h) {
    hosts.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        Team team = pool.lease(4);
        const bool alone = team.size() == 1;
        EXPECT_EQ(alone ? 0 : leased.fetch_add(1), 0);
        std::vector<int> sum(static_cast<size_t>(team.size()), 0);
        team.run(2, [&](int, int share) { ++sum[static_cast<size_t>(share)]; });
        total += std::accumulate(sum.begin(), sum.end(), 0) / team.size() / 2;
        if (!alone) leased.fetch_sub(1);
      }
    });
  }
  for (auto& h : hosts) h.join();
  EXPECT_EQ(total, 800);
}

TEST(ThreadPool, FourOversubscribedPoolsFinish) {
  std::vector<std::thread> hosts;
  for (int h = 0; h < 4; ++h) {
    hosts.emplace_back([] {
      ThreadPool pool;
      Team team = pool.lease(8);
      std::atomic<int> count{0};
      team.run(100, [&](int, int) { count.fetch_add(1, std::memory_order_relaxed); });
      EXPECT_EQ(count, 100 * team.size());
    });
  }
  for (auto& h : hosts) h.join();
}

TEST(ThreadPool, ThrowsAnExceptionOfAShareAndGoesOn) {
  ThreadPool pool;
  Team team = pool.lease(4);
  for (int bad = 0; bad < 4; ++bad) {
    try {
      team.run(2, [&](int phase, int share) {
        EXPECT_EQ(phase, 0) << "after a failure";
        KILN_CHECK(share != bad, invalid, "share {} failed", share);
      });
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), fmt::format("share {} failed", bad));
    }
    std::atomic<int> ok{0};
    team.run(2, [&](int, int) { ++ok; });
    EXPECT_EQ(ok, 8);
  }
}

TEST(ThreadPool, UsesNoCpuBetweenSteps) {
  ThreadPool pool;
  pool.lease(4).run(1, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = process_cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double ms = process_cpu_ms() - before;
  EXPECT_LT(ms, 20.0);
}

TEST(ThreadPool, CountComesFromTheSwitchElseTheAffinity) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  set_option("KILN_NUM_THREADS", "0");
  EXPECT_EQ(default_threads(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c)
    if (CPU_ISSET(c, &before)) CPU_SET(c, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(default_threads(), 1);
  sched_setaffinity(0, sizeof before, &before);
  set_option("KILN_NUM_THREADS", "5");
  EXPECT_EQ(default_threads(), 5);
  EXPECT_EQ(ThreadPool().lease().size(), 5);
  set_option("KILN_NUM_THREADS", "100000");
  EXPECT_EQ(default_threads(), ThreadPool::kMaxThreads);
  set_option("KILN_NUM_THREADS", "");
}

TEST(ParallelFor, CoversTheRangeInWholeGrains) {
  set_option("KILN_NUM_THREADS", "3");
  for (const int64_t n : {0, 1, 2, 7, 63, 64, 65, 1000, 1001}) {
    for (const int64_t grain : {0, 1, 3, 64, 5000}) {
      std::vector<int> hits(static_cast<size_t>(n), 0);
      parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % std::max<int64_t>(grain, 1), 0);
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(hits, std::vector<int>(static_cast<size_t>(n), 1)) << n << " by " << grain;
    }
  }
  set_option("KILN_NUM_THREADS", "");
}

TEST(ParallelFor, NestsOnTheCallersThread) {
  set_option("KILN_NUM_THREADS", "2");
  std::atomic<int> total{0};
  parallel_for(4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parallel_for(10, 1, [&](int64_t b, int64_t e) { total += static_cast<int>(e - b); });
  });
  EXPECT_EQ(total, 40);
  set_option("KILN_NUM_THREADS", "");
}

TEST(ParallelFor, PassesExceptionsOn) {
  set_option("KILN_NUM_THREADS", "4");
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(parallel_for(100, 1,
                              [&](int64_t begin, int64_t end) {
                                KILN_CHECK(!(begin <= 5 * round && 5 * round < end), invalid, "at {}", round);
                              }),
                 Error);
  }
  set_option("KILN_NUM_THREADS", "");
}

#if !defined(__SANITIZE_THREAD__)  // TSan forbids new threads in the child of a threaded process
TEST(ParallelFor, AForkedChildGetsItsOwnPoolAndExits) {
  set_option("KILN_NUM_THREADS", "3");
  std::atomic<int> total{0};
  const auto count = [&](int64_t b, int64_t e) { total += static_cast<int>(e - b); };
  parallel_for(10, 1, count);
  const pid_t child = fork();
  if (child == 0) {
    parallel_for(10, 1, count);
    std::exit(total == 20 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  set_option("KILN_NUM_THREADS", "");
}
#endif

}  // namespace KILN_FILE
}  // namespace kiln
