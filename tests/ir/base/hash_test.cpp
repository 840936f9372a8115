// SPDX-License-Identifier: Apache-2.0
#include "ir/base/hash.h"

#include <gtest/gtest.h>

#include <set>

namespace kiln {
namespace KILN_FILE {

// Values from xxHash's own xxhsum -H2: what stands on disk must be readable by every later build.
TEST(Hash, IsXxh3Of128Bits) {
  EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128("a").hex(), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(hash128("abc").hex(), "06b05ab6733a618578af5f94892f3950");
}

TEST(Hash, HexKeepsLeadingZeros) {
  EXPECT_EQ((Hash128{0, 1}).hex(), "00000000000000000000000000000001");
  EXPECT_EQ((Hash128{0xab, 0}).hex(), "00000000000000ab0000000000000000");
}

TEST(Hash, EveryBitAndEveryLengthCounts) {
  std::set<std::string> seen;
  std::string text(65, '\0');
  for (size_t n = 0; n <= text.size(); ++n)
    EXPECT_TRUE(seen.insert(hash128(text.substr(0, n)).hex()).second) << n;
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(1 << (bit % 8));
    EXPECT_TRUE(seen.insert(hash128(flipped).hex()).second) << bit;
  }
}

TEST(Hash, Orders) {
  EXPECT_LT((Hash128{1, 9}), (Hash128{2, 0}));
  EXPECT_LT((Hash128{1, 0}), (Hash128{1, 9}));
  EXPECT_EQ(hash128("x"), hash128("x"));
}

}  // namespace KILN_FILE
}  // namespace kiln
