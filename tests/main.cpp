// SPDX-License-Identifier: Apache-2.0
// Runs the tests of one source file: PROGRAM FILE [GoogleTest's flags]. FILE is a path below tests/, without
// ".cpp". Programs hold the tests of a folder, for compiling and linking them one by one takes much longer.
#include <fnmatch.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <sstream>
#include <string>

namespace {

/// Whether one of GoogleTest's patterns, "A:B", names the test.
bool named(const std::string& test, const std::string& patterns) {
  std::istringstream all(patterns);
  for (std::string p; std::getline(all, p, ':');)
    if (fnmatch(p.c_str(), test.c_str(), 0) == 0) return true;
  return false;
}

/// GoogleTest's filter for the tests of `file` that `filter` leaves: names, as patterns that match nothing
/// else.
std::string filter_of(const std::string& file, const std::string& filter) {
  const size_t minus = filter.find('-');
  const std::string wanted = filter.substr(0, minus);
  const std::string unwanted = minus == std::string::npos ? "" : filter.substr(minus + 1);
  std::string names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (std::string(test.file()).ends_with("tests/" + file + ".cpp") &&
          (wanted.empty() || named(name, wanted)) && !named(name, unwanted))
        names += name + ":";
    }
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE [--gtest_...]; FILE: as in codegen/job_test\n", argv[0]);
    return 2;
  }
  const std::string filter = filter_of(argv[1], GTEST_FLAG_GET(filter));
  if (filter.empty()) {
    std::fprintf(stderr, "no test of tests/%s.cpp is in %s, or the filter leaves none\n", argv[1], argv[0]);
    return 2;
  }
  GTEST_FLAG_SET(filter, filter);
  return RUN_ALL_TESTS();
}
