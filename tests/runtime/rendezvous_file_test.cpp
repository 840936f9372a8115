// SPDX-License-Identifier: Apache-2.0
// The file by which ranks of a machine find rank 0: private, whole, gone at the end, and never a stale one.
#include "runtime/rendezvous_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;

/// A temporary folder of its own.
struct RendezvousFiles : ::testing::Test {
  void SetUp() override {
    std::string form = (fs::temp_directory_path() / "kiln-test-XXXXXX").string();
    folder = mkdtemp(form.data());
    setenv("TMPDIR", folder.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    fs::remove_all(folder);
  }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
};

TEST_F(RendezvousFiles, IsThereWhileItsWriterWantsIt) {
  EXPECT_FALSE(read_rendezvous_file("mpirun 1"));
  auto file = std::make_unique<RendezvousFile>("mpirun 1", 4711, "token");
  const auto published = read_rendezvous_file("mpirun 1");
  ASSERT_TRUE(published);
  EXPECT_EQ(published->port, 4711);
  EXPECT_EQ(published->token, "token");
  EXPECT_FALSE(read_rendezvous_file("mpirun 2"));
  EXPECT_EQ(count(), 1u);
  file.reset();
  EXPECT_FALSE(read_rendezvous_file("mpirun 1"));
  EXPECT_EQ(count(), 0u);
}

TEST_F(RendezvousFiles, IsPrivate) {
  const RendezvousFile file("w", 1, "t");
  struct stat st;
  ASSERT_EQ(stat(rendezvous_path("w").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST_F(RendezvousFiles, ADeadWritersFileIsNotBelievedAndIsReplaced) {
  const pid_t child = fork();
  if (child == 0) {
    const RendezvousFile file("w", 1, "old");
    _exit(read_rendezvous_file("w") ? 0 : 1);  // without its destructor
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(count(), 1u);
  EXPECT_FALSE(read_rendezvous_file("w"));
  const RendezvousFile file("w", 2, "new");
  EXPECT_EQ(read_rendezvous_file("w")->token, "new");
  EXPECT_EQ(count(), 1u);
}

TEST_F(RendezvousFiles, AProcessWithTheSameNumberIsAnother) {
  std::ofstream(rendezvous_path("w")) << "kiln-rendezvous-1 1 token " << getpid() << " 12345\n";
  EXPECT_FALSE(read_rendezvous_file("w"));
}

TEST_F(RendezvousFiles, OtherBytesAreNothing) {
  for (const char* text : {"", "kiln", "kiln-rendezvous-1", "kiln-rendezvous-1 x y z w", "\xff\xfe"}) {
    std::ofstream(rendezvous_path("w")) << text;
    EXPECT_FALSE(read_rendezvous_file("w")) << text;
  }
}

TEST_F(RendezvousFiles, ALinkOrAFolderIsNotFollowed) {
  const RendezvousFile file("real", 1, "token");
  fs::create_symlink(rendezvous_path("real"), rendezvous_path("link"));
  EXPECT_FALSE(read_rendezvous_file("link"));
  {
    const RendezvousFile replaced("link", 2, "other");
    EXPECT_EQ(read_rendezvous_file("link")->port, 2);
    EXPECT_EQ(read_rendezvous_file("real")->port, 1);
  }
  fs::create_directory(rendezvous_path("folder"));
  EXPECT_FALSE(read_rendezvous_file("folder"));
  EXPECT_THROW(RendezvousFile("folder", 1, "t"), Error);
}

TEST_F(RendezvousFiles, AFolderThatIsNotThere) {
  setenv("TMPDIR", "/no/such/folder", 1);
  try {
    const RendezvousFile file("w", 1, "t");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::io);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("(TMPDIR)"));
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
