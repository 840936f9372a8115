// SPDX-License-Identifier: Apache-2.0
// Locks between processes: one holder at a time, nothing left behind, and no holder that blocks others for
// longer than they are ready to wait.
#include "ir/base/file_lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using State = FileLock::State;

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FileLockTest() override { fs::remove_all(root_); }
  std::string root_ = ::testing::TempDir() + "kiln-lock-test-" + std::to_string(getpid());
  std::string path_ = root_ + "/lock";
};

/// A process that holds the lock until it is killed.
pid_t start_holder(const std::string& path) {
  int fds[2];
  if (pipe(fds) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const FileLock lock(path, milliseconds(0));
    const char held = lock.held();
    if (write(fds[1], &held, 1) != 1) _exit(1);
    while (true) pause();
  }
  char held = 0;
  const bool said = read(fds[0], &held, 1) == 1;
  close(fds[0]);
  close(fds[1]);
  return said && held ? child : -1;
}
void end(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(FileLockTest, OneHolderAndNothingLeft) {
  {
    FileLock first(path_, milliseconds(0));
    EXPECT_TRUE(first.held());
    EXPECT_EQ(FileLock(path_, milliseconds(0)).state(), State::busy);
    FileLock moved = std::move(first);
    EXPECT_TRUE(moved.held());
    EXPECT_FALSE(first.held());  // NOLINT: moved from
    EXPECT_EQ(FileLock(path_, milliseconds(0)).state(), State::busy);
    moved.release();
    EXPECT_FALSE(moved.held());
    EXPECT_TRUE(FileLock(path_, milliseconds(0)).held());
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(FileLockTest, ADeadHolderLetsGo) {
  const pid_t child = start_holder(path_);
  ASSERT_GT(child, 0);
  EXPECT_EQ(FileLock(path_, milliseconds(0)).state(), State::busy);
  end(child);
  EXPECT_TRUE(fs::exists(path_)) << "what it leaves is taken over";
  EXPECT_TRUE(FileLock(path_, milliseconds(0)).held());
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(FileLockTest, AStoppedHolderIsNotWaitedForLongerThanSaid) {
  const pid_t child = start_holder(path_);
  ASSERT_GT(child, 0);
  kill(child, SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(FileLock(path_, milliseconds(50)).state(), State::busy);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  end(child);
}

TEST_F(FileLockTest, WaitersGetItOneAfterTheOther) {
  std::atomic<int> inside{0}, most{0}, turns{0};  // the race detector does not know file locks
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        const FileLock lock(path_, milliseconds(60'000));
        if (!lock.held()) return;
        const int now = ++inside;
        most = std::max(most.load(), now);
        ++turns;
        --inside;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(turns, 100);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(FileLockTest, WhereNoFileCanBeMadeThereIsNone) {
  const FileLock lock(root_ + "/missing/lock", milliseconds(60'000));
  EXPECT_EQ(lock.state(), State::unavailable);
  EXPECT_EQ(lock.why(), "No such file or directory");
  fs::create_symlink(root_ + "/elsewhere", path_);
  EXPECT_EQ(FileLock(path_, milliseconds(0)).state(), State::unavailable) << "no link is followed";
  EXPECT_FALSE(fs::exists(root_ + "/elsewhere"));
}

}  // namespace KILN_FILE
}  // namespace kiln
