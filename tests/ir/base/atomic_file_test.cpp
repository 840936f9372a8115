// SPDX-License-Identifier: Apache-2.0
#include "ir/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() : dir_(fs::temp_directory_path() / fmt::format("kiln-atomic-{}", getpid())) {
    fs::create_directories(dir_);
  }
  ~AtomicFileTest() override { fs::remove_all(dir_); }
  std::string path(const char* name) const { return (dir_ / name).string(); }
  static std::string read(const std::string& p) {
    std::ifstream in(p, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }
  fs::path dir_;
};

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    return e.what();
  }
  return "no error";
}

TEST_F(AtomicFileTest, ReplacesOnlyAtCommit) {
  const std::string p = path("a");
  write_file_atomically(p, "old");
  {
    AtomicFile f(p);
    f.write("new content", 11);
    EXPECT_EQ(read(p), "old");
    f.commit();
  }
  EXPECT_EQ(read(p), "new content");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  const std::string p = path("a");
  write_file_atomically(p, "old");
  {
    AtomicFile f(p);
    f.write("half", 4);
  }
  EXPECT_EQ(read(p), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, FollowsALink) {
  write_file_atomically(path("real"), "old");
  fs::create_symlink(path("real"), path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read(path("real")), "new");
}

// A full disk and a size limit fail in the same place: in write().
TEST_F(AtomicFileTest, NoRoomKeepsTheOldFile) {
  const std::string p = path("a");
  write_file_atomically(p, "old");
  signal(SIGXFSZ, SIG_IGN);
  rlimit saved{};
  getrlimit(RLIMIT_FSIZE, &saved);
  rlimit small{4096, saved.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string big(10000, 'x');
  const std::string text = error_of([&] { write_file_atomically(p, big); });
  setrlimit(RLIMIT_FSIZE, &saved);
  EXPECT_EQ(text, "write " + p + ": the bytes do not fit; File too large");
  EXPECT_EQ(read(p), "old");
  EXPECT_EQ(files(), 1u);
}

/// A process that is killed while it writes each of `paths`.
void die_writing(const std::vector<std::string>& paths) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<std::unique_ptr<AtomicFile>> files;
    for (const std::string& p : paths) {
      files.push_back(std::make_unique<AtomicFile>(p));
      files.back()->write("half", 4);
    }
    (void)!::write(ready[1], "x", 1);
    pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]), close(ready[1]);
}

TEST_F(AtomicFileTest, WhatAKilledWriterLeavesGoesAtTheNext) {
  const std::string p = path("a");
  write_file_atomically(p, "old");
  die_writing({p, p, p, path("b")});
  EXPECT_EQ(read(p), "old");
  EXPECT_EQ(files(), 5u);
  {
    AtomicFile alive(path("b"));  // takes the place of the dead one
    alive.write("b", 1);
    EXPECT_EQ(files(), 5u);
    write_file_atomically(p, "new");
    EXPECT_EQ(read(p), "new");
    EXPECT_EQ(files(), 2u) << "those of this file, and not what another is writing";
    alive.commit();
  }
  EXPECT_EQ(read(path("b")), "b");
  EXPECT_EQ(files(), 2u);
}

TEST_F(AtomicFileTest, WritersOfOneFileDoNotDisturbEachOther) {
  const std::string p = path("a");
  AtomicFile one(p), two(p);
  one.write("one", 3), two.write("two", 3);
  {
    AtomicFile given_up(p);
    given_up.write("half", 4);
    EXPECT_EQ(files(), 3u);
  }
  two.commit();
  EXPECT_EQ(read(p), "two");
  AtomicFile three(p);
  three.write("three", 5);
  one.commit();
  EXPECT_EQ(read(p), "one");
  three.commit();
  EXPECT_EQ(read(p), "three");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, WhatIsNoTemporaryOfOursStays) {
  const std::string p = path("a");
  fs::create_directory(path(".a.0.tmp"));
  fs::create_symlink(path("elsewhere"), path(".a.1.tmp"));
  ASSERT_EQ(mkfifo(path(".a.2.tmp").c_str(), 0600), 0);
  write_file_atomically(p, "new");
  EXPECT_EQ(read(p), "new");
  EXPECT_EQ(files(), 4u);
}

TEST_F(AtomicFileTest, ARemovedTemporaryIsAnError) {
  const std::string p = path("a");
  AtomicFile f(p);
  f.write("new", 3);
  fs::remove(path(".a.0.tmp"));
  write_file_atomically(path(".a.0.tmp"), "another's");
  EXPECT_EQ(error_of([&] { f.commit(); }),
            "write " + p + ": its temporary was removed; No such file or directory");
  EXPECT_EQ(read(path(".a.0.tmp")), "another's");
}

// Every moment of a writer may be its last, and others go on.
TEST_F(AtomicFileTest, WritersThatAreKilledAtAnyTime) {
  const std::string p = path("a");
  const auto start_writer = [&](int salt) {
    const pid_t child = fork();
    if (child != 0) return child;
    try {
      for (int i = salt;; ++i) write_file_atomically(p, std::string(64, static_cast<char>('a' + i % 26)));
    } catch (const Error& e) {
      fmt::print(stderr, "{}\n", e.what());
    }
    _exit(1);
  };
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; ++i) writers.push_back(start_writer(i));
  for (int i = 0; i < 100; ++i) {
    usleep(static_cast<useconds_t>(500 + 137 * i % 2000));
    pid_t& writer = writers[static_cast<size_t>(i % 4)];
    kill(writer, SIGKILL);
    int status = 0;
    waitpid(writer, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "a writer has failed";
    const std::string text = read(p);
    EXPECT_TRUE(text.empty() || text == std::string(64, text[0])) << text;
    writer = start_writer(i);
  }
  for (pid_t writer : writers) kill(writer, SIGKILL), waitpid(writer, nullptr, 0);
  for (int i = 0; i < 5; ++i) {  // gaps between numbers
    std::vector<std::unique_ptr<AtomicFile>> together;
    for (int k = 0; k < 4; ++k) together.push_back(std::make_unique<AtomicFile>(p));
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, BadTargets) {
  EXPECT_EQ(error_of([] { AtomicFile f("/dev/full"); }), "write /dev/full: not a regular file");
  EXPECT_EQ(error_of([&] { AtomicFile f(dir_.string()); }),
            "write " + dir_.string() + ": not a regular file");
  EXPECT_EQ(
      error_of([&] { AtomicFile f(path("no/such")); }),
      "write " + path("no/such") + ": cannot create a temporary in its folder; No such file or directory");
  EXPECT_EQ(error_of([] { AtomicFile f(""); }), "write '': no file name");
}

}  // namespace KILN_FILE
}  // namespace kiln
