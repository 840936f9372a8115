// SPDX-License-Identifier: Apache-2.0
// Work in a process of its own: what it returns comes back, and no way in which it can end takes this process
// with it.
#include "autotune/apart.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/thread_pool.h"

namespace kiln {
namespace KILN_FILE {

constexpr Seconds kLong(30);

TEST(Apart, ReturnsATextOfAnySize) {
  for (const size_t size : {size_t{0}, size_t{5}, size_t{300'000}}) {
    const ApartResult r = run_apart([&](const Say& say) { return say(7), std::string(size, 'x'); }, kLong);
    ASSERT_TRUE(r.text) << r.why;
    EXPECT_EQ(*r.text, std::string(size, 'x'));
    EXPECT_EQ(r.last, 7);
  }
}

TEST(Apart, ACrashIsAFinding) {
  const ApartResult r = run_apart(
      [](const Say& say) -> std::string {
        say(1);
        say(3);
        raise(SIGKILL);
        return "never";
      },
      kLong);
  EXPECT_FALSE(r.text);
  EXPECT_EQ(r.last, 3);
  EXPECT_THAT(r.why, ::testing::StartsWith("was killed by signal 9"));
}

TEST(Apart, AHangIsAFinding) {
  const auto start = std::chrono::steady_clock::now();
  const ApartResult r = run_apart(
      [](const Say& say) -> std::string {
        say(2);
        while (true) pause();
      },
      Seconds(0.2));
  EXPECT_FALSE(r.text);
  EXPECT_EQ(r.last, 2);
  EXPECT_EQ(r.why, "said nothing for 0.2 s");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Apart, WhoKeepsSayingSomethingIsNotCutOff) {
  const ApartResult r = run_apart(
      [](const Say& say) {
        for (int i = 0; i < 10; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          say(i);
        }
        return std::string("done");
      },
      Seconds(0.9));
  EXPECT_EQ(r.text, "done") << r.why;
}

TEST(Apart, ErrorsAndEndsAreFindings) {
  const ApartResult thrown =
      run_apart([](const Say&) -> std::string { throw std::runtime_error("no such schedule"); }, kLong);
  EXPECT_FALSE(thrown.text);
  EXPECT_EQ(thrown.why, "no such schedule");
  const ApartResult ended = run_apart([](const Say&) -> std::string { _exit(3); }, kLong);
  EXPECT_FALSE(ended.text);
  EXPECT_EQ(ended.last, -1);
  EXPECT_EQ(ended.why, "ended with status 3");
}

TEST(Apart, LeavesNoProcessBehind) {
  run_apart([](const Say&) { return std::string(); }, kLong);
  run_apart(
      [](const Say&) -> std::string {
        raise(SIGKILL);
        return "";
      },
      kLong);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

#if !defined(__SANITIZE_THREAD__)  // TSan forbids new threads in the child of a threaded process
TEST(Apart, TheChildHasAThreadPool) {
  const auto count = [] {
    std::atomic<int> n{0};
    parallel_for(64, 1, [&](int64_t b, int64_t e) { n += static_cast<int>(e - b); });
    return std::to_string(n.load());
  };
  EXPECT_EQ(count(), "64");
  const ApartResult r = run_apart([&](const Say&) { return count(); }, kLong);
  EXPECT_EQ(r.text, "64") << r.why;
}
#endif

}  // namespace KILN_FILE
}  // namespace kiln
