// SPDX-License-Identifier: Apache-2.0
// Attention with changed scores against its formula: biases by distance, soft caps, windows, documents,
// tensors that the function captures and their gradients; eager, compiled small, and compiled so large that
// the scores are never in memory.
#include "frontend/flex_attention.h"

#include <gmock/gmock.h>

#include <cmath>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/linalg.h"
#include "frontend/random.h"
#include "frontend/shapes.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor uniform(Sizes sizes) { return (rand(std::move(sizes)) * 2.0 - 1.0).detach().requires_grad_(); }

void expect_close(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  const Floats x = values(a), y = values(b);
  float most = 1e-3f;
  for (const float v : y) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 2e-5f * most) << what << " " << i;
}

/// The formula, with positions as tensors.
Tensor formula(const Tensor& q, const Tensor& k, const Tensor& v, const FlexAttentionOptions& o) {
  Tensor scores = matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(q.size(3)));
  const auto at = [&](int64_t d) {
    Sizes s(4, 1);
    s[static_cast<size_t>(d)] = scores.size(d);
    return arange(scores.size(d)).reshape(s);
  };
  if (o.score_mod) scores = o.score_mod(scores, at(0), at(1), at(2), at(3));
  if (o.mask_mod) scores = where(o.mask_mod(at(0), at(1), at(2), at(3)), scores, full({}, -INFINITY));
  return matmul(softmax(scores, -1), v);
}

/// Result and gradients, also of `more`, are those of the formula, and large scores are not in memory. (They
/// are where a gradient of `more` sums over samples.)
void check(int64_t batch, int64_t heads, int64_t length, const FlexAttentionOptions& o,
           std::vector<Tensor> more = {}) {
  const Tensor q = uniform({batch, heads, length, 16}), k = uniform({batch, heads, length, 16}),
               v = uniform({batch, heads, length, 16});
  more.insert(more.end(), {q, k, v});
  const auto run = [&](auto&& attend) {
    for (Tensor& t : more) t.set_grad({});
    const Tensor y = attend();
    (y * y).sum().backward();
    std::vector<Tensor> all{y.detach()};
    for (const Tensor& t : more) all.push_back(t.grad().detach().clone());
    return all;
  };
  const std::vector<Tensor> want = run([&] { return formula(q, k, v, o); });
  const std::vector<Tensor> eager = run([&] { return flex_attention(q, k, v, o); });
  auto step = compile([&] { return run([&] { return flex_attention(q, k, v, o); }); });
  const std::vector<Tensor> compiled = step();
  const int64_t scores = batch * heads * length * length * 4;
  if (scores > 18 << 20 && (batch == 1 || more.size() == 3)) {
    EXPECT_LT(step.stats().builds.back().arena_bytes, scores / 2);
  }
  for (size_t i = 0; i < want.size(); ++i) {
    expect_close(eager[i], want[i], fmt::format("eager {}", i).c_str());
    expect_close(compiled[i], want[i], fmt::format("compiled {}", i).c_str());
  }
}
/// Also with 19 MB of scores.
void check(const FlexAttentionOptions& o, const std::vector<Tensor>& more = {}) {
  check(2, 4, 20, o, more);
  check(2, 4, 776, o, more);
}

Tensor causal(const Tensor&, const Tensor&, const Tensor& q, const Tensor& kv) { return ge(q, kv); }

TEST(FlexAttention, WithoutFunctionsItIsAttention) { check({}); }

TEST(FlexAttention, ACausalMask) { check({.mask_mod = causal}); }

TEST(FlexAttention, BiasesByDistanceWithSlopesThatLearn) {
  const Tensor slopes = (arange(4, DType::f32) * 0.1 + 0.05).reshape({1, 4, 1, 1}).detach().requires_grad_();
  FlexAttentionOptions o;
  o.mask_mod = causal;
  o.score_mod = [&](const Tensor& s, const Tensor&, const Tensor&, const Tensor& q, const Tensor& kv) {
    return s + (kv - q).to(DType::f32) * slopes;
  };
  check(o, {slopes});
  check(1, 4, 1100, o, {slopes});
}

TEST(FlexAttention, SoftCaps) {
  check({.score_mod = [](const Tensor& s, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
    return tanh(s / 2.0) * 2.0;
  }});
}

/// Of the `window` last keys, or of as many on both sides.
FlexAttentionOptions near(int64_t window, bool causal) {
  return {.mask_mod = [=](const Tensor&, const Tensor&, const Tensor& q, const Tensor& kv) {
    return causal ? logical_and(ge(q, kv), lt(q - kv, window)) : lt((q - kv).abs(), window);
  }};
}

TEST(FlexAttention, WindowsOfNeighbours) {
  for (const int64_t window : {1, 7, 64, 900})
    for (const bool causal : {true, false}) check(near(window, causal));
  check(1, 4, 1137, near(100, true));
  check(1, 4, 1137, near(100, false));
}

TEST(FlexAttention, MemoryOfWindowsGrowsWithTheirNumber) {
  const auto arena_of = [](int64_t length) {
    Tensor q = uniform({1, 4, length, 16});
    const Tensor k = uniform(q.sizes()), v = uniform(q.sizes());
    auto step = compile([&] {
      q.set_grad({});
      const Tensor y = flex_attention(q, k, v, near(32, true));
      (y * y).sum().backward();
      return q.grad().detach();
    });
    step();
    return step.stats().builds.back().arena_bytes;
  };
  const int64_t short_one = arena_of(600), long_one = arena_of(2400);
  EXPECT_LT(long_one, 5 * short_one) << "scores are sixteen times as many";
}

TEST(FlexAttention, DocumentsSideBySide) {
  for (const int64_t length : {20, 776}) {
    const Tensor document = (arange(length) / 9.0).to(DType::i64);
    check(2, 4, length, {.mask_mod = [&](const Tensor&, const Tensor&, const Tensor& q, const Tensor& kv) {
            return logical_and(ge(q, kv), eq(document.reshape({1, 1, length, 1}), document));
          }});
  }
}

TEST(FlexAttention, ABiasOfEveryPairLearns) {
  const Tensor bias = uniform({4, 20, 20});
  check(2, 4, 20,
        {.score_mod = [&](const Tensor& s, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&) { return s + bias; }},
        {bias});
}

TEST(FlexAttention, AQueryThatMayAttendToNothingGetsZeros) {
  const Tensor x = uniform({1, 1, 3, 2});
  const Tensor y = flex_attention(
      x, x, x, {.mask_mod = [](const Tensor&, const Tensor&, const Tensor& q, const Tensor& kv) {
        return lt(kv, q);
      }});
  EXPECT_EQ(values(y)[0], 0);
  EXPECT_EQ(values(y)[1], 0);
  EXPECT_EQ(values(y)[2], values(x)[0]);
}

TEST(FlexAttention, HeadsShareKeys) {
  const Tensor q = uniform({1, 4, 5, 8}), k = uniform({1, 2, 5, 8});
  const Tensor wide = repeat_interleave(k, 2, 1);
  expect_close(flex_attention(q, k, k, {.mask_mod = causal, .enable_gqa = true}),
               flex_attention(q, wide, wide, {.mask_mod = causal}), "shared");
}

TEST(FlexAttention, Errors) {
  using ::testing::HasSubstr;
  const Tensor x = uniform({1, 4, 5, 8}), two = uniform({1, 2, 5, 8}), flat = uniform({5, 8});
  const auto error = [&](const Tensor& q, const Tensor& k, const FlexAttentionOptions& o) -> std::string {
    try {
      flex_attention(q, k, k, o);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing";
  };
  EXPECT_THAT(error(x, flat, {}), HasSubstr("expected [n, h, t, d]"));
  EXPECT_THAT(error(x, two, {}), HasSubstr("4 query heads for 2 key heads (enable_gqa"));
  EXPECT_THAT(error(x, x.to(DType::f64), {}), HasSubstr("dtypes differ"));
  EXPECT_THAT(
      error(x, x, {.mask_mod = [](const auto&, const auto&, const auto& q, const auto&) { return q; }}),
      HasSubstr("mask_mod made i64"));
  EXPECT_THAT(error(x, x,
                    {.score_mod = [](const Tensor& s, const auto&, const auto&, const auto&,
                                     const auto&) { return s.sum(); }}),
              HasSubstr("score_mod made f32[]"));
}

}  // namespace KILN_FILE
}  // namespace kiln
