// SPDX-License-Identifier: Apache-2.0
#include "frontend/version.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

namespace kiln {
namespace KILN_FILE {

TEST(Version, IsTheProjectsVersion) {
  std::ifstream file("CMakeLists.txt");
  std::stringstream text;
  text << file.rdbuf();
  const std::string content = text.str();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(content, found, std::regex("project\\(kiln VERSION ([0-9.]+)")));
  EXPECT_EQ(version(), found[1].str());
}

}  // namespace KILN_FILE
}  // namespace kiln
