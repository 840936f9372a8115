// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/formula.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace kiln::formula {
namespace KILN_FILE {

TEST(Formula, WorkedValues) {
  constexpr uint64_t kSalt = fnv1a64("mlp/fc1.weight");
  static_assert(kSalt == 0x21d2dfd3b5d72439u);
  static_assert(bits(kSalt, 0) == 0x4d6742a59d6b269cu);
  static_assert(bits(kSalt, 1) == 0xe4ffb5bfe46016c8u);
  EXPECT_EQ(bits(kSalt, 0) % 1000, 844u);
  EXPECT_EQ(bits(kSalt, 1) % 1000, 216u);
  std::vector<float> v(2);
  fill_real("mlp/fc1.weight", -1, 1, v);
  EXPECT_EQ(std::bit_cast<uint32_t>(v[0]), 0xbeca62f8u);
  EXPECT_EQ(std::bit_cast<uint32_t>(v[1]), 0x3f49ff6au);
}

// Order-sensitive sums: a different rounding anywhere changes them.
TEST(Formula, LongSums) {
  std::vector<float> v(100000);
  fill_real("check/long", -0.1f, 0.7f, v);
  double sum = 0;
  for (const float x : v) sum += static_cast<double>(x);
  EXPECT_EQ(sum, 30047.253614511341);
  std::vector<int64_t> k(100000);
  fill_mod<int64_t>("check/long", 97, k);
  int64_t total = 0;
  for (const int64_t x : k) total += x;
  EXPECT_EQ(total, 4803715);
}

TEST(Formula, BoolIsNotZero) {
  std::vector<int64_t> k(64);
  fill_mod<int64_t>("check/flags", 3, k);
  bool flags[64];
  fill_mod<bool>("check/flags", 3, flags);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(flags[i], k[i] != 0);
}

}  // namespace KILN_FILE
}  // namespace kiln::formula
