// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "frontend/tensor.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

std::string text(const Tensor& t) {
  std::ostringstream out;
  out << t;
  return testing::without_device(out.str());
}

TEST(TensorPrint, Elements) {
  EXPECT_EQ(text(Tensor()), "undefined");
  EXPECT_EQ(text(Tensor::from_vector<float>({1.5f}, {})), "1.5000 f32[]");
  EXPECT_EQ(text(Tensor::from_vector<float>({1, -2, NAN, INFINITY}, {4})), "[ 1., -2., nan, inf] f32[4]");
  EXPECT_EQ(text(Tensor::from_vector<int32_t>({1, 2, 3, 4}, {2, 2})), "[[1, 2],\n [3, 4]] i32[2,2]");
  EXPECT_EQ(text(Tensor::from_vector<float>({0, 1}, {2}).to(DType::boolean)), "[false,  true] bool[2]");
  EXPECT_EQ(text(Tensor::from_vector<float>({}, {0})), "[] f32[0]");
  EXPECT_EQ(text(Tensor::from_vector<float>({}, {2, 0})), "[[],\n []] f32[2,0]");
}

TEST(TensorPrint, LargeIntegersKeepTheirDigits) {
  EXPECT_EQ(text(Tensor::from_vector<int64_t>({INT64_MAX, INT64_MIN, (int64_t{1} << 53) + 1}, {3})),
            "[ 9223372036854775807, -9223372036854775808,     9007199254740993] i64[3]");
}

TEST(TensorPrint, LongDimsAreShortened) {
  std::vector<int32_t> v(2000);
  for (int i = 0; i < 2000; ++i) v[static_cast<size_t>(i)] = i;
  EXPECT_EQ(
      text(Tensor::from_vector(v, {2, 1000})),
      "[[   0,    1,    2, ...,  997,  998,  999],\n [1000, 1001, 1002, ..., 1997, 1998, 1999]] i32[2,1000]");
}

TEST(TensorPrint, ViewsPrintInTheirOwnOrder) {
  const Tensor t = Tensor::from_vector<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(text(t.transpose(0, 1)), "[[1, 4],\n [2, 5],\n [3, 6]] i32[3,2]");
}

TEST(TensorPrint, SaysWhereItIs) {
  std::ostringstream out;
  const Tensor t = Tensor::from_vector<int64_t>({1, 2}, {2});
  out << t << "; " << t.cpu();
  EXPECT_EQ(out.str(),
            t.is_cuda() ? "[1, 2] i64[2] on cuda:0; [1, 2] i64[2]" : "[1, 2] i64[2]; [1, 2] i64[2]");
}

// torch 2.15 prints the same numbers.
TEST(TensorPrint, NoNumberIsHidden) {
  const auto f32 = [](std::vector<float> v) {
    const auto n = static_cast<int64_t>(v.size());
    return text(Tensor::from_vector(v, {n}));
  };
  EXPECT_EQ(f32({1e-6f, 1e-6f}), "[1.0000e-06, 1.0000e-06] f32[2]");
  EXPECT_EQ(f32({1e-4f, 0.5f}), "[1.0000e-04, 5.0000e-01] f32[2]");
  EXPECT_EQ(f32({0.5f, 1e-3f, 0}), "[0.5000, 0.0010, 0.0000] f32[3]");
  EXPECT_EQ(f32({1, 1000}), "[   1., 1000.] f32[2]");
  EXPECT_EQ(f32({1, 1001}), "[1.0000e+00, 1.0010e+03] f32[2]");
  EXPECT_EQ(f32({2e8f}), "[2.0000e+08] f32[1]");
  EXPECT_EQ(f32({0, 0}), "[0., 0.] f32[2]");
  EXPECT_EQ(f32({-NAN, 2.5f, -INFINITY}), "[   nan, 2.5000,   -inf] f32[3]");
  EXPECT_EQ(text(Tensor::from_vector<float>({3e-7f}, {})), "3.0000e-07 f32[]");
}

TEST(TensorPrint, OnlyWhatIsShownCounts) {
  std::vector<float> v(2000, 1);
  v[1000] = 1e-9f;
  EXPECT_EQ(text(Tensor::from_vector(v, {2000})), "[1., 1., 1., ..., 1., 1., 1.] f32[2000]");
}

}  // namespace KILN_FILE
}  // namespace kiln
