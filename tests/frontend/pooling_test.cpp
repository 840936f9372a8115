// SPDX-License-Identifier: Apache-2.0
// Pools at their edges: ties, NaN, windows over the border, uneven bins; those of three dims by their
// definition; and what they refuse.
#include "frontend/pooling.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/volumes.h"

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

/// The elements of the input along one dim that each place of the output is made of.
using Ranges = std::vector<Sizes>;

Ranges windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation = 1) {
  Ranges all;
  for (int64_t at = -padding; at + dilation * (kernel - 1) < size + padding; at += stride) {
    all.emplace_back();
    for (int64_t k = 0; k < kernel; ++k)
      if (at + k * dilation >= 0 && at + k * dilation < size) all.back().push_back(at + k * dilation);
  }
  return all;
}
Ranges bins(int64_t size, int64_t out) {
  Ranges all;
  for (int64_t i = 0; i < out; ++i) {
    all.emplace_back();
    for (int64_t k = i * size / out; k * out < (i + 1) * size; ++k) all.back().push_back(k);
  }
  return all;
}

/// A pool of volumes: a mean that divides by `divisor`, or by what there is where that is 0; or the largest.
struct VolumePool {
  std::vector<Ranges> ranges;
  bool largest = false;
  int64_t divisor = 0;
};

void expect_pool(const std::function<Tensor(const Tensor&)>& f, const VolumePool& pool,
                 const std::string& name) {
  const Tensor x = volume({2, 3, 5, 6, 7});
  const std::vector<double> numbers = doubles(x);
  Sizes out{2, 3};
  for (const Ranges& r : pool.ranges) out.push_back(static_cast<int64_t>(r.size()));
  std::vector<Term> terms;
  each_place(out, [&](const Sizes& at) {
    std::vector<int64_t> window;
    for (const int64_t i : pool.ranges[0][static_cast<size_t>(at[2])])
      for (const int64_t j : pool.ranges[1][static_cast<size_t>(at[3])])
        for (const int64_t k : pool.ranges[2][static_cast<size_t>(at[4])])
          window.push_back(place(x.sizes(), {at[0], at[1], i, j, k}));
    const auto less = [&](int64_t a, int64_t b) {
      return numbers[static_cast<size_t>(a)] < numbers[static_cast<size_t>(b)];
    };
    if (pool.largest) window = {*std::max_element(window.begin(), window.end(), less)};
    const auto n = static_cast<double>(pool.divisor ? pool.divisor : static_cast<int64_t>(window.size()));
    for (const int64_t from : window) terms.push_back({place(out, at), from, 1 / n});
  });
  expect_terms(f, x, out, terms, name);
}

TEST(VolumePools, WindowsByTheirDefinition) {
  const std::vector<Ranges> twos{windows(5, 2, 2, 0), windows(6, 2, 2, 0), windows(7, 2, 2, 0)};
  const std::vector<Ranges> uneven{windows(5, 2, 2, 1), windows(6, 3, 1, 1), windows(7, 4, 3, 2)};
  const std::vector<Ranges> apart{windows(5, 2, 1, 1, 3), windows(6, 3, 2, 0, 2), windows(7, 2, 2, 1, 2)};
  const Sizes kernel{2, 3, 4}, stride{2, 1, 3}, padding{1, 1, 2};
  expect_pool([](const Tensor& x) { return max_pool3d(x, 2); }, {twos, true}, "max_pool3d");
  expect_pool([&](const Tensor& x) { return max_pool3d(x, kernel, {.stride = stride, .padding = padding}); },
              {uneven, true}, "max_pool3d, uneven");
  const MaxPoolOptions dilated{
      .stride = Sizes{1, 2, 2}, .padding = Sizes{1, 0, 1}, .dilation = Sizes{3, 2, 2}};
  expect_pool(
      [&](const Tensor& x) {
        return max_pool3d(x, Sizes{2, 3, 2}, dilated);
      },
      {apart, true}, "max_pool3d, dilated");
  expect_pool([](const Tensor& x) { return avg_pool3d(x, 2); }, {twos}, "avg_pool3d");
  AvgPoolOptions o{.stride = stride, .padding = padding};
  const auto average = [&](const Tensor& x) { return avg_pool3d(x, kernel, o); };
  expect_pool(average, {uneven, false, 2 * 3 * 4}, "avg_pool3d, uneven");
  o.count_include_pad = false;
  expect_pool(average, {uneven}, "avg_pool3d, without the padding");
  o.divisor_override = 5;
  expect_pool(average, {uneven, false, 5}, "avg_pool3d, by 5");
}

TEST(VolumePools, BinsByTheirDefinition) {
  const std::vector<Ranges> uneven{bins(5, 3), bins(6, 4), bins(7, 9)},
      one{bins(5, 1), bins(6, 1), bins(7, 1)}, as_input{bins(5, 2), bins(6, 6), bins(7, 2)};
  const Sizes sizes{3, 4, 9}, some{2, -1, 2};
  expect_pool([&](const Tensor& x) { return adaptive_avg_pool3d(x, sizes); }, {uneven},
              "adaptive_avg_pool3d");
  expect_pool([](const Tensor& x) { return adaptive_avg_pool3d(x, 1); }, {one},
              "adaptive_avg_pool3d, to one");
  expect_pool([&](const Tensor& x) { return adaptive_avg_pool3d(x, some); }, {as_input},
              "adaptive_avg_pool3d, a dim as it is");
  expect_pool([&](const Tensor& x) { return adaptive_max_pool3d(x, sizes); }, {uneven, true},
              "adaptive_max_pool3d");
  expect_pool([](const Tensor& x) { return adaptive_max_pool3d(x, 1); }, {one, true},
              "adaptive_max_pool3d, to one");
}

TEST(VolumePools, PlacesAreThoseOfTheLargest) {
  const Tensor x = volume({2, 3, 5, 6, 7});
  const auto [y, at] = max_pool3d_with_indices(x, Sizes{2, 3, 2}, {.padding = 1});
  EXPECT_EQ(doubles(y), doubles(max_pool3d(x, Sizes{2, 3, 2}, {.padding = 1})));
  const Tensor found = gather(x.reshape({2, 3, 5 * 6 * 7}), 2, at.reshape({2, 3, -1}));
  EXPECT_EQ(doubles(found), doubles(y));
  const Tensor single = max_pool3d(select(x, 0, 1), 2);
  EXPECT_EQ(single.sizes(), (Sizes{3, 2, 3, 3}));
  EXPECT_EQ(doubles(single), doubles(select(max_pool3d(x, 2), 0, 1)));
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
               "invalid: max_pool2d (@): a window of 7 does not fit into x f32[2,3,4,4] padded by 0");
  EXPECT_ERROR(avg_pool2d(x, 2, {.divisor_override = 0}), "invalid: avg_pool2d (@): divisor_override is 0");
  EXPECT_ERROR(adaptive_avg_pool2d(x, Sizes{0, 2}),
               "invalid: adaptive_avg_pool2d (@): output_size is 0, expected at least 1, or -1");
  EXPECT_ERROR(max_pool2d(ids({1, 2}), 2),
               "invalid: max_pool2d (@): got x i64[2], expected a floating dtype (cast it with to())");
}

}  // namespace KILN_FILE
}  // namespace kiln
