// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "frontend/ops.h"
#include "frontend/tensor.h"

namespace kiln {
namespace {

std::string text(const Tensor& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}

TEST(TensorPrint, Elements) {
  EXPECT_EQ(text(Tensor()), "undefined");
  EXPECT_EQ(text(Tensor::from_vector<float>({1.5f}, {})), "1.5000 f32[]");
  EXPECT_EQ(text(Tensor::from_vector<float>({1, -2, NAN, INFINITY}, {4})),
            "[1.0000, -2.0000, nan, inf] f32[4]");
  EXPECT_EQ(text(Tensor::from_vector<int32_t>({1, 2, 3, 4}, {2, 2})), "[[1, 2],\n [3, 4]] i32[2,2]");
  EXPECT_EQ(text(Tensor::from_vector<float>({0, 1}, {2}).to(DType::boolean)), "[false, true] bool[2]");
  EXPECT_EQ(text(Tensor::from_vector<float>({}, {0})), "[] f32[0]");
  EXPECT_EQ(text(Tensor::from_vector<float>({}, {2, 0})), "[[],\n []] f32[2,0]");
}

TEST(TensorPrint, LargeIntegersKeepTheirDigits) {
  EXPECT_EQ(text(Tensor::from_vector<int64_t>({INT64_MAX, INT64_MIN, (int64_t{1} << 53) + 1}, {3})),
            "[9223372036854775807, -9223372036854775808, 9007199254740993] i64[3]");
}

TEST(TensorPrint, LongDimsAreShortened) {
  std::vector<int32_t> v(2000);
  for (int i = 0; i < 2000; ++i) v[static_cast<size_t>(i)] = i;
  EXPECT_EQ(text(Tensor::from_vector(v, {2, 1000})),
            "[[0, 1, 2, ..., 997, 998, 999],\n [1000, 1001, 1002, ..., 1997, 1998, 1999]] i32[2,1000]");
}

TEST(TensorPrint, ViewsPrintInTheirOwnOrder) {
  const Tensor t = Tensor::from_vector<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(text(t.transpose(0, 1)), "[[1, 4],\n [2, 5],\n [3, 6]] i32[3,2]");
}

}  // namespace
}  // namespace kiln
