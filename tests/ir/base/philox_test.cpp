// SPDX-License-Identifier: Apache-2.0
#include "ir/base/philox.h"

#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

// Source: kat_vectors of Random123 (philox4x32 10): counter, key, result.
TEST(Philox, GivesThePublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformStaysBelowOne) {
  EXPECT_EQ(philox_float(0), 0.0f);
  EXPECT_EQ(philox_float(0xffffffff), 1.0f - 0x1p-24f);
}

TEST(Philox, ElementsTakeTheWordsOfABlockInTurn) {
  const auto words = philox4x32(9, 25, 4);
  for (uint64_t lane = 0; lane < 4; ++lane)
    EXPECT_EQ(philox_uniform(9, 4, 100 + lane), philox_float(words[lane]));
}

}  // namespace KILN_FILE
}  // namespace kiln
