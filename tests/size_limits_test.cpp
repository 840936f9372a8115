// SPDX-License-Identifier: Apache-2.0
// Sizes past 2^31 and 2^63: said at once, with the op, the argument and the user's line, eagerly and
// compiled.
#include "frontend/compile.h"
#include "frontend/conv.h"
#include "frontend/functional.h"
#include "frontend/linalg.h"
#include "frontend/nn/conv.h"
#include "frontend/norm.h"
#include "frontend/pooling.h"
#include "frontend/shapes.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

constexpr int64_t kHuge = int64_t{1} << 62;

TEST(SizeLimits, OffsetsOfDiagonals) {
  const Tensor x = ones({2}), m = mat({1, 2, 3, 4}, {2, 2});
  for (const int64_t offset : {INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1}) {
    EXPECT_ERROR(diag(x, offset),
                 fmt::format("invalid: diag_embed (@): offset {} of x f32[2] makes a matrix of 2^63 rows or "
                             "more",
                             offset));
    EXPECT_EQ(diag(m, offset).numel(), 0);
    EXPECT_EQ(diagonal(transpose(m, 0, 1), offset).numel(), 0);
  }
  EXPECT_NE(error_of([&] { diag(x, kHuge); }).find("out of memory"), std::string::npos);
}

TEST(SizeLimits, OverflowNamesTheOpThatIsOpen) {
  const Tensor x = ones({1, 2, 3});
  EXPECT_ERROR(local_response_norm(x, INT64_MAX),
               fmt::format("invalid: local_response_norm (@): size {} + {} does not fit in 64 bits; got "
                           "f32[1,2,3]",
                           INT64_MAX / 2 + 2, INT64_MAX / 2));
  auto norm = compile([](const Tensor& t) { return local_response_norm(t, INT64_MAX); });
  EXPECT_NE(error_of([&] { norm(x); }).find("local_response_norm (size_limits_test.cpp:"), std::string::npos);
  // Recorded, and found to be too large when it is built.
  const std::string late = error_of([&] { norm(ones({1, 1, 4, 4})); });
  EXPECT_NE(late.find("of local_response_norm "), std::string::npos) << late;
  EXPECT_NE(late.find("(size_limits_test.cpp:"), std::string::npos) << late;
}

TEST(SizeLimits, CompiledHugeViews) {
  const Tensor x = ones({1});
  auto f = compile([](const Tensor& t) {
    const Tensor wide = expand(t, {int64_t{1} << 40});
    return sum(kron(wide, wide));
  });
  const std::string text = error_of([&] { f(x); });
  EXPECT_NE(text.find("kron"), std::string::npos) << text;
  EXPECT_NE(text.find("size_limits_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("does not fit in 64 bits"), std::string::npos) << text;
  auto up = compile(
      [](const Tensor& t, const Tensor& w) { return conv_transpose2d(t, w, {}, {.stride = 2147483647}); });
  const std::string larger = error_of([&] { up(ones({1, 1, 4, 4}), ones({1, 1, 3, 3})); });
  EXPECT_NE(larger.find("conv_transpose2d"), std::string::npos) << larger;
  EXPECT_NE(larger.find("size_limits_test.cpp:"), std::string::npos) << larger;
}

TEST(SizeLimits, MorePiecesThanAListHolds) {
  const Tensor x = zeros({5}), wide = expand(zeros({1}), {int64_t{1} << 40});
  const std::string most = ", expected at most 1048576";
  EXPECT_ERROR(tensor_split(x, int64_t{1} << 40),
               "invalid: tensor_split (@): makes 1099511627776 tensors" + most);
  EXPECT_ERROR(chunk(zeros({0}), int64_t{1} << 40), "invalid: chunk (@): makes 1099511627776 tensors" + most);
  EXPECT_ERROR(chunk(wide, int64_t{1} << 30), "invalid: chunk (@): makes 1073741824 tensors" + most);
  EXPECT_ERROR(split(wide, 2), "invalid: split (@): makes 549755813888 tensors" + most);
  EXPECT_ERROR(unbind(wide), "invalid: unbind (@): makes 1099511627776 tensors" + most);
  EXPECT_EQ(chunk(x, int64_t{1} << 40).size(), 5u);
  EXPECT_EQ(tensor_split(x, 7).size(), 7u);
}

TEST(SizeLimits, BinsOfAdaptivePools) {
  const Tensor x = zeros({1, 1, 3, 3});
  const std::string text = error_of([&] { adaptive_avg_pool2d(x, 2147483647); });
  EXPECT_NE(text.find("adaptive_avg_pool2d (size_limits_test.cpp:"), std::string::npos) << text;
  EXPECT_ERROR(adaptive_avg_pool1d(expand(zeros({1, 1, 1}), {1, 1, (int64_t{1} << 40) + 1}), 2147483647),
               "invalid: adaptive_avg_pool1d (@): output_size 2147483647 of x f32[1,1,1099511627777] makes "
               "places that do not fit in 64 bits");
}

TEST(SizeLimits, TextsOfLayersAndConditions) {
  EXPECT_ERROR(nn::Conv2d(3, 4, -3), "invalid: Conv2d: kernel_size is -3, expected 1 to 2147483647");
  EXPECT_ERROR(static_cast<bool>(ones({2})),
               "invalid: bool: expected one element, got f32[2] (take any() or all() of it)");
  EXPECT_ERROR(one_hot(ids({INT64_MAX})),
               "invalid: one_hot (@): index i64[1] holds 9223372036854775807, one more is no size");
  EXPECT_ERROR(bincount(ids({1, INT64_MAX})),
               "invalid: bincount (@): x i64[2] holds 9223372036854775807, one more is no size");
}

}  // namespace KILN_FILE
}  // namespace kiln
