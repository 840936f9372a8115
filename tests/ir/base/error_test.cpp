// SPDX-License-Identifier: Apache-2.0
#include "ir/base/error.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

TEST(Error, KindsHaveNames) {
  const std::pair<ErrorKind, const char*> names[] = {
      {ErrorKind::invalid, "invalid"},  {ErrorKind::unsupported, "unsupported"},
      {ErrorKind::compile, "compile"},  {ErrorKind::device, "device"},
      {ErrorKind::comm, "comm"},        {ErrorKind::io, "io"},
      {ErrorKind::internal, "internal"}};
  for (const auto& [kind, name] : names) EXPECT_STREQ(to_string(kind), name);
}

TEST(Error, CarriesKindMessageAndPlace) {
  const Error e(ErrorKind::io, "read: no such file", SourceLoc("/a/b/net.cpp", 42));
  EXPECT_EQ(e.kind(), ErrorKind::io);
  EXPECT_STREQ(e.what(), "read: no such file");
  EXPECT_EQ(e.where().str(), "net.cpp:42");
  EXPECT_FALSE(Error(ErrorKind::io, "x").where().known());
}

TEST(Error, PlacesPrintWithoutFolders) {
  EXPECT_EQ(SourceLoc().str(), "");
  EXPECT_EQ(SourceLoc("main.cpp", 1).str(), "main.cpp:1");
  EXPECT_EQ(SourceLoc("/x/", 7).str(), ":7");
  const SourceLoc here = std::source_location::current();
  EXPECT_EQ(here.str(), "error_test.cpp:" + std::to_string(__LINE__ - 1));
}

TEST(Error, CheckThrowsTheGivenKindOnlyWhenFalse) {
  int evaluated = 0;
  KILN_CHECK(++evaluated == 1, invalid, "never {}", "seen");
  EXPECT_EQ(evaluated, 1);
  try {
    KILN_CHECK(evaluated == 7, unsupported, "matmul: got {}, expected {}", "f32[2,3]", 4);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::unsupported);
    EXPECT_STREQ(e.what(), "matmul: got f32[2,3], expected 4");
  }
}

TEST(Error, CheckIsOneStatement) {
  bool other = false;
  if (false) KILN_CHECK(false, invalid, "not reached");
  else other = true;
  EXPECT_TRUE(other);
}

TEST(Error, AssertNamesTheConditionAndAsksForAReport) {
  const int line = __LINE__ + 2;
  try {
    KILN_ASSERT(1 + 1 == 3, "sum of {}", 2);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::internal);
    EXPECT_EQ(std::string(e.what()), "internal error at error_test.cpp:" + std::to_string(line) +
                                         ": 1 + 1 == 3 does not hold: sum of 2 (please report this)");
  }
  try {
    KILN_ASSERT(false);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(": false does not hold (please report this)"), std::string::npos);
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
