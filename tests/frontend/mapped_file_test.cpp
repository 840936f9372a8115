// SPDX-License-Identifier: Apache-2.0
#include "frontend/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using testing::error_of;

std::string content(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(MappedFile, WritesStayInMemory) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("kiln-mapped-{}", getpid())).string();
  std::ofstream(path) << "hello";
  {
    const MappedFile a(path), b(path);
    ASSERT_EQ(a.size(), 5u);
    a.data()[0] = std::byte{'j'};
    EXPECT_EQ(a.data()[0], std::byte{'j'});
    EXPECT_EQ(b.data()[0], std::byte{'h'});
  }
  EXPECT_EQ(content(path), "hello");
  std::ofstream(path) << "";
  const MappedFile empty(path);
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(empty.data(), nullptr);
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([&] { MappedFile f(path); }),
            "io: open " + path + ": cannot read the file; No such file or directory");
  EXPECT_EQ(error_of([] { MappedFile f("/dev/null"); }), "io: open /dev/null: not a regular file");
  EXPECT_EQ(error_of([] { MappedFile f("/"); }), "io: open /: not a regular file");
}

}  // namespace KILN_FILE
}  // namespace kiln
