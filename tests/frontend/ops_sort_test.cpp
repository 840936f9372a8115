// SPDX-License-Identifier: Apache-2.0
// Orders and running results: ties, NaN, empty and 0-d tensors, gradients; eager and compiled; refusals.
#include "frontend/ops_sort.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

const float nan = NAN, inf = INFINITY;

Tensor first(const std::pair<Tensor, Tensor>& p) { return p.first; }
Tensor second(const std::pair<Tensor, Tensor>& p) { return p.second; }
template <typename F>
Floats both_ways(const F& f) {
  const Floats eager = values(f());
  auto g = compile(f);
  const Floats got = values(g());
  EXPECT_EQ(got.size(), eager.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == eager[i] || (std::isnan(got[i]) && std::isnan(eager[i]))) << i << ": " << got[i];
  return eager;
}

TEST(Sort, IsStableAndPutsNaNLast) {
  const Tensor x = vec({2, nan, 1, 2, -inf, 1});
  EXPECT_EQ(both_ways([&] { return second(sort(x)); }), (Floats{4, 2, 5, 0, 3, 1}));
  EXPECT_EQ(both_ways([&] { return argsort(x, 0, true); }), (Floats{1, 0, 3, 2, 5, 4}));
}

TEST(Sort, LongLinesAndSmallOnes) {
  const int64_t n = 4099;
  const Tensor x = sin(arange(3 * n, {.dtype = DType::f32}) * 12.9898).view({3, n});
  const Floats v = both_ways([&] { return first(sort(x, 1)); });
  for (size_t i = 1; i < v.size(); ++i) {
    if (i % static_cast<size_t>(n) == 0) continue;
    ASSERT_LE(v[i - 1], v[i]) << i;
  }
  EXPECT_EQ(first(sort(zeros({0, 3}), 0)).sizes(), (Sizes{0, 3}));
  EXPECT_EQ(values(first(sort(full({}, 3.0)))), Floats{3});
  EXPECT_EQ(ids({3, 1, 2}).sizes(), second(sort(ids({3, 1, 2}))).sizes());
}

TEST(Sort, TheGradientGoesBack) {
  Tensor x = vec({3, 1, 2}, true);
  sum(first(sort(x)) * vec({1, 10, 100})).backward();
  EXPECT_EQ(values(x.grad()), (Floats{100, 1, 10}));
}

TEST(TopK, LargestFirstAndNoneAtAll) {
  const Tensor x = mat({1, 5, 3, 4, 2, 6}, {2, 3});
  EXPECT_EQ(both_ways([&] { return first(topk(x, 2)); }), (Floats{5, 3, 6, 4}));
  EXPECT_EQ(values(first(topk(x, 1, 0, false))), (Floats{1, 2, 3}));
  EXPECT_EQ(first(topk(x, 0)).sizes(), (Sizes{2, 0}));
}

TEST(Median, TheLowerOfTwoAndNaN) {
  EXPECT_EQ(values(first(median(vec({4, 1, 3, 2}), 0))), Floats{2});
  EXPECT_TRUE(std::isnan(values(first(median(vec({4, nan, 3}), 0)))[0]));
  EXPECT_EQ(values(second(median(vec({4, nan, 3}), 0))), Floats{1});
  EXPECT_EQ(first(kthvalue(zeros({2, 3}), 1, 0, true)).sizes(), (Sizes{1, 3}));
}

TEST(Searchsorted, SidesAndLines) {
  const Tensor s = vec({1, 3, 3, 5}), x = vec({3, 0, 9, nan});
  EXPECT_EQ(both_ways([&] { return searchsorted(s, x); }), (Floats{1, 0, 4, 4}));
  EXPECT_EQ(both_ways([&] { return bucketize(x, s, true); }), (Floats{3, 0, 4, 4}));
  EXPECT_EQ(values(searchsorted(mat({1, 2, 10, 20}, {2, 2}), mat({2, 15}, {2, 1}))), (Floats{1, 1}));
}

TEST(Cumulative, RunningResults) {
  const Tensor x = mat({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(both_ways([&] { return cumsum(x, 1); }), (Floats{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(both_ways([&] { return cumsum(x, 0); }), (Floats{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(both_ways([&] { return cumprod(x, -1); }), (Floats{1, 2, 6, 4, 20, 120}));
  EXPECT_EQ(cumsum(gt(x, 2.0), 1).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(both_ways([&] { return second(cummax(vec({1, 3, 3, nan, 9}), 0)); }), (Floats{0, 1, 2, 3, 3}));
  EXPECT_EQ(both_ways([&] { return first(cummin(vec({2, 1, 1, 5}), 0)); }), (Floats{2, 1, 1, 1}));
  const Floats l = both_ways([&] { return logcumsumexp(vec({-inf, 0, 0, 800}), 0); });
  EXPECT_EQ(l[0], -inf);
  EXPECT_FLOAT_EQ(l[2], std::log(2.f));
  EXPECT_EQ(l[3], 800);
  EXPECT_EQ(cumsum(zeros({0}), 0).sizes(), (Sizes{0}));
  EXPECT_EQ(values(cumsum(full({}, 2.0), 0)), Floats{2});
}

TEST(Cumulative, LongLines) {
  const int64_t n = 70'001;
  const Floats v = both_ways([&] { return cumsum(ones({n}), 0); });
  EXPECT_EQ(v.back(), static_cast<float>(n));
}

TEST(Sort, Refusals) {
  const Tensor x = zeros({2, 3});
  EXPECT_ERROR(sort(x, 2), "invalid: sort (@): dim 2 is out of range; expected -2 to 1");
  EXPECT_ERROR(topk(x, 4), "invalid: topk (@): k is 4, expected 0 to 3, the size of dim 1 of x f32[2,3]");
  EXPECT_ERROR(kthvalue(x, 0),
               "invalid: kthvalue (@): k is 0, expected 1 to 3, the size of dim 1 of x f32[2,3]");
  EXPECT_ERROR(
      searchsorted(vec({1}), ids({1})),
      "invalid: searchsorted (@): dtypes differ; got sorted f32[1] and values i64[1] (cast one with to())");
  EXPECT_ERROR(logcumsumexp(ids({1}), 0),
               "invalid: logcumsumexp (@): got x i64[1], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(median(zeros({0}), 0), "invalid: median (@): dim 0 of x f32[0] is empty");
}

}  // namespace KILN_FILE
}  // namespace kiln
