// SPDX-License-Identifier: Apache-2.0
#include "ir/base/text.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

using Parts = std::vector<std::string>;

TEST(Text, SplitKeepsEmptyPartsButTheLast) {
  EXPECT_EQ(split("", '\n'), Parts{});
  EXPECT_EQ(split("a", '\n'), Parts{"a"});
  EXPECT_EQ(split("a\nb", '\n'), (Parts{"a", "b"}));
  EXPECT_EQ(split("a\n\nb\n", '\n'), (Parts{"a", "", "b"}));
  EXPECT_EQ(split("\n", '\n'), Parts{""});
  EXPECT_EQ(split(",,", ','), (Parts{"", ""}));
}

}  // namespace KILN_FILE
}  // namespace kiln
