// SPDX-License-Identifier: Apache-2.0
#include "ir/base/matmul_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace kiln {
namespace KILN_FILE {

int64_t count(MatmulTile t, int64_t m, int64_t n) { return ((m + t.m - 1) / t.m) * ((n + t.n - 1) / t.n); }

TEST(MatmulTile, CutsLargeProductsEvenly) {
  const MatmulTile t = matmul_tile(1, 1024, 1536, 384);
  EXPECT_EQ(count(t, 1024, 1536), 16);
  EXPECT_EQ(t.m, 258);
  EXPECT_EQ(t.n, 384);
  const MatmulTile wide = matmul_tile(1, 128, 784, 1024);
  EXPECT_EQ(wide.m, 128);
  EXPECT_EQ(wide.n, 208);
}

TEST(MatmulTile, LeavesSmallProductsAndBatchesWhole) {
  for (const auto& [batch, m, n, k] :
       {std::array<int64_t, 4>{1, 32, 64, 64}, {48, 512, 512, 64}, {1, 1000, 1000, 1}}) {
    EXPECT_EQ(matmul_tile(batch, m, n, k).m, m);
    EXPECT_EQ(matmul_tile(batch, m, n, k).n, n);
  }
  EXPECT_EQ(matmul_tile(0, 0, 0, 0).m, 1);
  EXPECT_EQ(matmul_tile(1, 5, 0, 7).n, 1);
}

TEST(MatmulTile, NeverExceedsItsBounds) {
  std::mt19937 rng(1);
  for (int i = 0; i < 3000; ++i) {
    const int64_t batch = rng() % 20, m = rng() % 5000, n = rng() % 5000, k = rng() % 3000;
    const MatmulTile t = matmul_tile(batch, m, n, k);
    ASSERT_GE(t.m, 1);
    ASSERT_GE(t.n, 1);
    ASSERT_LE(count(t, m, n), 31) << m << " " << n << " " << k;
    ASSERT_GE(t.m, std::min<int64_t>(std::max<int64_t>(m, 1), 192));
    ASSERT_GE(t.n, std::min<int64_t>(std::max<int64_t>(n, 1), 192));
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
