// SPDX-License-Identifier: Apache-2.0
#include "ir/bucket_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln {
namespace KILN_FILE {

std::vector<int64_t> values(const BucketLayout& b) {
  std::vector<int64_t> out;
  for (const Dim& d : b.offsets) out.push_back(d.value());
  out.push_back(b.total.value());
  return out;
}

TEST(BucketLayout, PiecesBeginAtLinesOfSixtyFourBytes) {
  const Type f32[] = {{DType::f32, {Dim(5), Dim(7)}}, {DType::f32, {Dim(16)}}, {DType::f32, {}}};
  EXPECT_THAT(values(bucket_layout(f32)), ::testing::ElementsAre(0, 48, 64, 80));
  const Type f64[] = {{DType::f64, {Dim(9)}}, {DType::f64, {Dim(8)}}};
  EXPECT_THAT(values(bucket_layout(f64)), ::testing::ElementsAre(0, 16, 24));
  const Type bf16[] = {{DType::bf16, {Dim(33)}}, {DType::bf16, {Dim(1)}}};
  EXPECT_THAT(values(bucket_layout(bf16)), ::testing::ElementsAre(0, 64, 96));
}

TEST(BucketLayout, EmptyPiecesTakeNoRoom) {
  const Type types[] = {{DType::f32, {Dim(0), Dim(4)}}, {DType::f32, {Dim(1)}}, {DType::f32, {Dim(0)}}};
  EXPECT_THAT(values(bucket_layout(types)), ::testing::ElementsAre(0, 0, 16, 16));
  EXPECT_THAT(values(bucket_layout({})), ::testing::ElementsAre(0));
}

TEST(BucketLayout, SizesMayBeSymbols) {
  const Type types[] = {{DType::f32, {Dim::symbol("B"), Dim(3)}}, {DType::f32, {Dim(2)}}};
  const BucketLayout b = bucket_layout(types);
  EXPECT_EQ(b.offsets[1].eval({{"B", 10}}), 32);
  EXPECT_EQ(b.total.eval({{"B", 10}}), 48);
}

}  // namespace KILN_FILE
}  // namespace kiln
