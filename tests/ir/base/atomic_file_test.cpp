// SPDX-License-Identifier: Apache-2.0
#include "ir/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/base/error.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest()
      : dir_(fs::temp_directory_path() / fmt::format("kiln-atomic-{}", getpid())) {
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

TEST_F(AtomicFileTest, BadTargets) {
  EXPECT_EQ(error_of([] { AtomicFile f("/dev/full"); }), "write /dev/full: not a regular file");
  EXPECT_EQ(error_of([&] { AtomicFile f(dir_.string()); }),
            "write " + dir_.string() + ": not a regular file");
  EXPECT_EQ(error_of([&] { AtomicFile f(path("no/such")); }),
            "write " + path("no/such") +
                ": cannot create a temporary in its folder; No such file or directory");
  EXPECT_EQ(error_of([] { AtomicFile f(""); }), "write '': no file name");
}

}  // namespace
}  // namespace kiln
