// SPDX-License-Identifier: Apache-2.0
// Pools at their edges: ties, NaN, windows over the border, uneven bins; and what they refuse.
#include "frontend/pooling.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

TEST(MaxPool, TheFirstOfEqualsGetsTheGradient) {
  Tensor x = mat({1, 2, 2, 0, 2, 1}, {1, 1, 6}, true);
  const auto [y, at] = max_pool1d_with_indices(x, 3);
  EXPECT_EQ(values(y), (Floats{2, 2}));
  EXPECT_EQ(at.to_vector<int64_t>(), (std::vector<int64_t>{1, 4}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Floats{0, 1, 0, 0, 1, 0}));
}

TEST(MaxPool, PaddingNeverWinsAndNaNDoes) {
  EXPECT_EQ(values(max_pool1d(mat({-5, -7, -6}, {1, 1, 3}), 2, {.stride = 2, .padding = 1})),
            (Floats{-5, -6}));
  EXPECT_TRUE(std::isnan(values(max_pool1d(mat({1, NAN, 3}, {1, 1, 3}), 3))[0]));
  EXPECT_EQ(values(max_pool1d(mat({-INFINITY, -INFINITY}, {1, 1, 2}), 2)), (Floats{-INFINITY}));
}

TEST(MaxPool, PlacesOfNothingButInfinityAreInside) {
  const Tensor x = full({1, 4, 4}, -INFINITY);
  const auto [y, at] = max_pool2d_with_indices(x, 2, {.padding = 1});
  EXPECT_EQ(at.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 3, 4, 5, 7, 12, 13, 15}));
  const auto [z, apart] = max_pool1d_with_indices(x, 3, {.stride = 1, .padding = 1, .dilation = 2});
  EXPECT_EQ(apart.reshape({-1}).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 1, 0, 1, 0, 1, 0}));
}

TEST(MaxPool, CeilModeKeepsWindowsThatBeginInside) {
  const Tensor x = mat({1, 2, 3, 4, 5}, {1, 1, 5});
  EXPECT_EQ(values(max_pool1d(x, 2, {.stride = 2, .ceil_mode = true})), (Floats{2, 4, 5}));
  // The third window would begin in the right padding.
  EXPECT_EQ(
      max_pool1d(mat({1, 2, 3, 4}, {1, 1, 4}), 2, {.stride = 3, .padding = 1, .ceil_mode = true}).size(2), 2);
}

TEST(MaxPool, IndicesCountRowsOfTheImage) {
  const Tensor x = mat({0, 1, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 4, 0}, {1, 1, 4, 4});
  const auto [y, at] = max_pool2d_with_indices(x, 2);
  EXPECT_EQ(values(y), (Floats{1, 2, 3, 4}));
  EXPECT_EQ(at.to_vector<int64_t>(), (std::vector<int64_t>{1, 7, 9, 14}));
}

TEST(AvgPool, DividesByWhatThereIs) {
  const Tensor x = mat({1, 2, 3, 4, 5}, {1, 1, 5});
  EXPECT_EQ(values(avg_pool1d(x, 2, {.padding = 1})), (Floats{0.5f, 2.5f, 4.5f}));
  EXPECT_EQ(values(avg_pool1d(x, 2, {.padding = 1, .count_include_pad = false})), (Floats{1, 2.5f, 4.5f}));
  EXPECT_EQ(values(avg_pool1d(x, 2, {.ceil_mode = true})), (Floats{1.5f, 3.5f, 5}));
  EXPECT_EQ(values(avg_pool1d(x, 2, {.divisor_override = 4})), (Floats{0.75f, 1.75f}));
}

// Bins that overlap (7 into 3) and that repeat elements (3 into 5), against their definition.
TEST(AdaptivePool, UnevenBins) {
  for (const auto& [n, out] : {std::pair<int64_t, int64_t>{7, 3}, {3, 5}, {8, 4}, {5, 1}}) {
    const Tensor x = arange(n, {.dtype = DType::f32}).view({1, 1, n});
    const Floats mean = values(adaptive_avg_pool1d(x, out)), most = values(adaptive_max_pool1d(x, out));
    for (int64_t i = 0; i < out; ++i) {
      const int64_t begin = i * n / out, end = ((i + 1) * n + out - 1) / out;
      EXPECT_FLOAT_EQ(mean[static_cast<size_t>(i)], static_cast<float>(begin + end - 1) / 2) << n << " " << i;
      EXPECT_EQ(most[static_cast<size_t>(i)], static_cast<float>(end - 1)) << n << " " << i;
    }
  }
  // What is outside a bin does not come in, not even as 0 * inf.
  EXPECT_EQ(values(adaptive_avg_pool1d(mat({1, 1, INFINITY, 2, 2}, {1, 1, 5}), 3))[0], 1);
}

TEST(Pools, CompiledAsEager) {
  Tensor x = mat({}, {0}), input = (arange(2 * 3 * 9 * 8, {.dtype = DType::f32}) * 0.37).view({2, 3, 9, 8});
  input = sin(input).detach();
  input.requires_grad_();
  const auto f = [&] {
    const Tensor y = sum(max_pool2d(input, 3, {.stride = 2, .padding = 1})) +
                     sum(avg_pool2d(input, Sizes{2, 3}, {.padding = 1, .ceil_mode = true}) * 2.0) +
                     sum(adaptive_avg_pool2d(input, Sizes{4, 5}) * 3.0) + sum(adaptive_max_pool2d(input, 3));
    y.backward();
    return y;
  };
  const double want = f().item();
  const Floats grad = values(input.grad());
  input.set_grad({});
  auto g = compile(f);
  EXPECT_NEAR(g().item(), want, 1e-3);
  const Floats got = values(input.grad());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], grad[i], 1e-5) << i;
}

TEST(Pools, Refusals) {
  const Tensor x = zeros({2, 3, 4, 4});
  EXPECT_ERROR(max_pool2d(zeros({4}), 2), "invalid: max_pool2d (@): got x f32[4], expected 3 or 4 dims");
  EXPECT_ERROR(max_pool2d(x, 2, {.padding = 2}),
               "invalid: max_pool2d (@): padding 2 is more than half the kernel's 2");
  EXPECT_ERROR(max_pool2d(x, 7),
               "invalid: max_pool2d (@): a window of 7 does not fit into f32[2,3,4,4] padded by 0");
  EXPECT_ERROR(avg_pool2d(x, 2, {.divisor_override = 0}), "invalid: avg_pool2d (@): divisor_override is 0");
  EXPECT_ERROR(adaptive_avg_pool2d(x, Sizes{0, 2}),
               "invalid: adaptive_avg_pool2d (@): output_size is 0, expected at least 1, or -1");
  EXPECT_ERROR(max_pool2d(ids({1, 2}), 2), "invalid: max_pool2d (@): expected a floating dtype, got i64[2]");
}

}  // namespace KILN_FILE
}  // namespace kiln
