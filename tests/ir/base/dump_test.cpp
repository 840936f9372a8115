// SPDX-License-Identifier: Apache-2.0
#include "ir/base/dump.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;

class Dump : public ::testing::Test {
 protected:
  Dump() {
    fs::remove_all(folder_);
    set_option("KILN_DUMP", "loops,plan");
    set_option("KILN_DUMP_DIR", folder_.string());
  }
  ~Dump() override {
    set_option("KILN_DUMP", "");
    set_option("KILN_DUMP_DIR", "");
    fs::remove_all(folder_);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& file : fs::directory_iterator(folder_))
      names.push_back(file.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  const fs::path folder_ = ::testing::TempDir() + fmt::format("kiln-dump-unit-{}/deep", getpid());
};

TEST_F(Dump, NumbersOnAfterWhatIsThere) {
  dump("plan", [] { return "first"; });
  dump("loops", [] { return "second"; });
  std::ofstream(folder_ / "041-plan.txt") << "of an earlier run";
  dump(
      "plan", [] { return std::string("a\0b", 3); }, "bin");
  EXPECT_EQ(files(),
            (std::vector<std::string>{"001-plan.txt", "002-loops.txt", "041-plan.txt", "042-plan.bin"}));
  std::ifstream in(folder_ / "042-plan.bin", std::ios::binary);
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(in), {}}), std::string("a\0b", 3));
}

TEST_F(Dump, WhatNobodyAskedForIsNotEvenMade) {
  EXPECT_TRUE(dumping("plan"));
  EXPECT_FALSE(dumping("trace"));
  dump("trace", []() -> std::string { throw Error(ErrorKind::internal, "made"); });
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(Dump, SaysOnceWhereItCannotWrite) {
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) dump("plan", [] { return ""; });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            fmt::format("kiln warning: KILN_DUMP: cannot write to {}: Not a directory; going on without\n",
                        folder_.string()));
}

}  // namespace KILN_FILE
}  // namespace kiln
