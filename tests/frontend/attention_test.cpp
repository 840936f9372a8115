// SPDX-License-Identifier: Apache-2.0
// Attention with its projections against its formula, head by head.
#include "frontend/attention.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/random.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor uniform(Sizes sizes, bool grad = false) {
  Tensor t = (rand(std::move(sizes)) * 2.0 - 1.0).detach();
  if (grad) t.requires_grad_();
  return t;
}
void expect_close(const Tensor& a, const Tensor& b, float tolerance = 1e-5f) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const Floats x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(y[i])) ASSERT_TRUE(std::isnan(x[i])) << i;
    else ASSERT_NEAR(x[i], y[i], tolerance) << i;
  }
}
Tensor flags(const std::vector<bool>& v, Sizes sizes) {
  return Tensor::from_vector(std::vector<uint8_t>(v.begin(), v.end()), std::move(sizes)).to(DType::boolean);
}

constexpr int64_t kWidth = 8, kHeads = 2;

MultiheadAttentionWeights packed_weights(bool grad = false) {
  MultiheadAttentionWeights w;
  w.in_proj_weight = uniform({3 * kWidth, kWidth}, grad);
  w.in_proj_bias = uniform({3 * kWidth}, grad);
  w.out_proj_weight = uniform({kWidth, kWidth}, grad);
  w.out_proj_bias = uniform({kWidth}, grad);
  return w;
}
/// The same as three matrices.
MultiheadAttentionWeights separate(MultiheadAttentionWeights w) {
  w.q_proj_weight = narrow(w.in_proj_weight, 0, 0, kWidth);
  w.k_proj_weight = narrow(w.in_proj_weight, 0, kWidth, kWidth);
  w.v_proj_weight = narrow(w.in_proj_weight, 0, 2 * kWidth, kWidth);
  w.in_proj_weight = {};
  return w;
}

/// Of one sample and one head at a time; `added` [n, heads, l, keys] goes onto the scores.
MultiheadAttentionResult expected(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const MultiheadAttentionWeights& given, const Tensor& added = {},
                                  bool zero = false) {
  const MultiheadAttentionWeights w = given.in_proj_weight.defined() ? separate(given) : given;
  const auto bias = [&](int64_t i) { return narrow(w.in_proj_bias, 0, i * kWidth, kWidth); };
  const Tensor pq = linear(q, w.q_proj_weight, bias(0));
  Tensor pk = linear(k, w.k_proj_weight, bias(1)), pv = linear(v, w.v_proj_weight, bias(2));
  const int64_t n = q.size(1), each = kWidth / kHeads;
  if (w.bias_k.defined()) {
    pk = cat({pk, expand(w.bias_k, {1, n, kWidth})}, 0);
    pv = cat({pv, expand(w.bias_v, {1, n, kWidth})}, 0);
  }
  if (zero) {
    pk = cat({pk, zeros({1, n, kWidth})}, 0);
    pv = cat({pv, zeros({1, n, kWidth})}, 0);
  }
  std::vector<Tensor> samples, weights;
  for (int64_t b = 0; b < n; ++b) {
    std::vector<Tensor> heads, of_heads;
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto part = [&](const Tensor& t) { return narrow(select(t, 1, b), 1, h * each, each); };
      Tensor scores = matmul(part(pq), part(pk).transpose(0, 1)) / std::sqrt(static_cast<double>(each));
      if (added.defined()) scores = scores + select(select(added, 0, b), 0, h);
      const Tensor p = softmax(scores, 1);
      of_heads.push_back(p);
      heads.push_back(matmul(p, part(pv)));
    }
    samples.push_back(cat(heads, 1));
    weights.push_back(stack(of_heads, 0));
  }
  return {linear(stack(samples, 1), w.out_proj_weight, w.out_proj_bias), stack(weights, 0)};
}

TEST(Attention, SelfAndCrossAttentionAreTheirFormula) {
  manual_seed(1);
  const MultiheadAttentionWeights w = packed_weights();
  const Tensor x = uniform({4, 3, kWidth}), y = uniform({5, 3, kWidth}), z = uniform({5, 3, kWidth});
  MultiheadAttentionOptions o;
  o.need_weights = false;
  // One product for all, for keys and values, and for none of them.
  expect_close(multi_head_attention_forward(x, x, x, kHeads, w, o).output, expected(x, x, x, w).output);
  expect_close(multi_head_attention_forward(x, y, y, kHeads, w, o).output, expected(x, y, y, w).output);
  expect_close(multi_head_attention_forward(x, y, z, kHeads, w, o).output, expected(x, y, z, w).output);
  expect_close(multi_head_attention_forward(x, y, z, kHeads, separate(w), o).output,
               expected(x, y, z, w).output);
  EXPECT_FALSE(multi_head_attention_forward(x, x, x, kHeads, w, o).weights.defined());
  const Tensor one = select(x, 1, 1), other = select(y, 1, 1);
  expect_close(multi_head_attention_forward(one, other, other, kHeads, w, o).output,
               select(expected(x, y, y, w).output, 1, 1));
}

TEST(Attention, WeightsOfEveryHeadOrTheirMean) {
  manual_seed(2);
  const MultiheadAttentionWeights w = packed_weights();
  const Tensor x = uniform({4, 3, kWidth}), y = uniform({5, 3, kWidth});
  const MultiheadAttentionResult formula = expected(x, y, y, w);
  MultiheadAttentionOptions o;
  MultiheadAttentionResult r = multi_head_attention_forward(x, y, y, kHeads, w, o);
  expect_close(r.output, formula.output);
  expect_close(r.weights, mean(formula.weights, {1}));
  o.average_attn_weights = false;
  expect_close(multi_head_attention_forward(x, y, y, kHeads, w, o).weights, formula.weights);
  r = multi_head_attention_forward(select(x, 1, 0), select(y, 1, 0), select(y, 1, 0), kHeads, w, o);
  expect_close(r.weights, select(formula.weights, 0, 0));
}

TEST(Attention, MasksHideOrAreAdded) {
  manual_seed(3);
  MultiheadAttentionWeights w = packed_weights();
  const Tensor x = uniform({2, 2, kWidth}), y = uniform({3, 2, kWidth});
  MultiheadAttentionOptions o;
  o.need_weights = false;
  const auto run = [&] { return multi_head_attention_forward(x, y, y, kHeads, w, o).output; };
  const Tensor hidden = flags({false, false, true, false, false, false}, {2, 3});
  const Tensor as_added = where(hidden, full({}, -INFINITY), full({}, 0.0));
  o.key_padding_mask = hidden;
  const Tensor padding = expand(as_added.reshape({2, 1, 1, 3}), {2, 2, 2, 3});
  expect_close(run(), expected(x, y, y, w, padding).output);
  o.attn_mask = uniform({2, 3});
  expect_close(run(), expected(x, y, y, w, padding + o.attn_mask).output);
  o.key_padding_mask = {};
  o.attn_mask = uniform({4, 2, 3});
  expect_close(run(), expected(x, y, y, w, o.attn_mask.reshape({2, 2, 2, 3})).output);
  o.attn_mask = hidden;
  expect_close(run(), expected(x, y, y, w, expand(as_added, {2, 2, 2, 3})).output);
  o.attn_mask = {};
  o.is_causal = true;
  const Tensor causal = mat({0, -INFINITY, -INFINITY, 0, 0, -INFINITY}, {2, 3});
  expect_close(run(), expected(x, y, y, w, expand(causal, {2, 2, 2, 3})).output);
  // Masks do not hide the keys that are added.
  o.is_causal = false;
  o.key_padding_mask = hidden;
  w.bias_k = uniform({1, 1, kWidth});
  w.bias_v = uniform({1, 1, kWidth});
  o.add_zero_attn = true;
  expect_close(run(), expected(x, y, y, w, cat({padding, zeros({2, 2, 2, 2})}, 3), true).output);
}

TEST(Attention, AQueryThatMayAttendToNothing) {
  manual_seed(4);
  const MultiheadAttentionWeights w = packed_weights();
  const Tensor x = uniform({2, 1, kWidth});
  MultiheadAttentionOptions o;
  o.attn_mask = flags({true, true, false, false}, {2, 2});
  const Floats with_weights = values(multi_head_attention_forward(x, x, x, kHeads, w, o).output);
  EXPECT_TRUE(std::isnan(with_weights[0]));
  EXPECT_FALSE(std::isnan(with_weights[kWidth]));
  o.need_weights = false;
  const Floats without = values(multi_head_attention_forward(x, x, x, kHeads, w, o).output);
  const Floats bias = values(w.out_proj_bias);
  for (size_t i = 0; i < kWidth; ++i) EXPECT_NEAR(without[i], bias[i], 1e-6f);
}

TEST(Attention, DropoutIsOfTheWeightsWhileTraining) {
  manual_seed(5);
  const MultiheadAttentionWeights w = packed_weights();
  const Tensor x = uniform({4, 2, kWidth});
  MultiheadAttentionOptions o;
  o.dropout_p = 1;
  EXPECT_EQ(values(multi_head_attention_forward(x, x, x, kHeads, w, o).weights), Floats(32, 0));
  o.training = false;
  expect_close(multi_head_attention_forward(x, x, x, kHeads, w, o).output, expected(x, x, x, w).output);
}

TEST(Attention, OtherDtypesAndNothingToAttendTo) {
  manual_seed(7);
  const MultiheadAttentionWeights w = packed_weights();
  const Tensor x = uniform({4, 2, kWidth});
  MultiheadAttentionOptions o;
  o.key_padding_mask = flags({false, true, false, false, false, false, false, true}, {2, 4});
  const MultiheadAttentionResult expected_f32 = multi_head_attention_forward(x, x, x, kHeads, w, o);
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<DType, float>>{{DType::f64, 1e-5f}, {DType::f16, 1e-2f}, {DType::bf16, 8e-2f}}) {
    MultiheadAttentionWeights c;
    c.in_proj_weight = w.in_proj_weight.to(dtype);
    c.in_proj_bias = w.in_proj_bias.to(dtype);
    c.out_proj_weight = w.out_proj_weight.to(dtype);
    c.out_proj_bias = w.out_proj_bias.to(dtype);
    const Tensor y = x.to(dtype);
    const MultiheadAttentionResult r = multi_head_attention_forward(y, y, y, kHeads, c, o);
    EXPECT_EQ(r.output.dtype(), dtype);
    EXPECT_EQ(r.weights.dtype(), dtype);
    expect_close(r.output, expected_f32.output, tolerance);
    expect_close(r.weights, expected_f32.weights, tolerance);
  }
  const Tensor none = zeros({4, 0, kWidth}), keys = zeros({0, 2, kWidth});
  EXPECT_EQ(multi_head_attention_forward(none, none, none, kHeads, w, {}).output.sizes(),
            (Sizes{4, 0, kWidth}));
  const Floats bias = values(w.out_proj_bias),
               got = values(multi_head_attention_forward(x, keys, keys, kHeads, w, {}).output);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], bias[i % kWidth]);
}

class CompiledAttention : public ::testing::TestWithParam<Backend> {};

TEST_P(CompiledAttention, ResultsGradientsAndDrawsAreAsEager) {
  manual_seed(6);
  MultiheadAttentionWeights w = packed_weights(true);
  w.bias_k = uniform({1, 1, kWidth}, true);
  w.bias_v = uniform({1, 1, kWidth}, true);
  MultiheadAttentionOptions o;
  o.dropout_p = 0.5;
  o.is_causal = true;
  o.add_zero_attn = true;
  const auto body = [&](const Tensor& x) {
    const MultiheadAttentionResult r = multi_head_attention_forward(x, x, x, kHeads, w, o);
    const Tensor loss = sum(r.output * r.output) + sum(r.weights * r.weights);
    loss.backward();
    return loss;
  };
  CompileOptions c;
  c.backend = GetParam();
  auto step = compile(body, c);
  const std::vector<Tensor> leaves{w.in_proj_weight, w.in_proj_bias,    w.bias_k,
                                   w.bias_v,         w.out_proj_weight, w.out_proj_bias};
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Tensor x = uniform({4, 2, kWidth});
    manual_seed(seed);
    const float eager = values(body(x))[0];
    std::vector<Floats> grads;
    for (const Tensor& p : leaves) {
      grads.push_back(values(p.grad()));
      Tensor(p).set_grad({});
    }
    manual_seed(seed);
    EXPECT_NEAR(values(step(x))[0], eager, 1e-4f * std::abs(eager));
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Floats got = values(leaves[i].grad());
      for (size_t k = 0; k < got.size(); ++k)
        ASSERT_NEAR(got[k], grads[i][k], 1e-3f * (1 + std::abs(grads[i][k]))) << i;
      Tensor(leaves[i]).set_grad({});
    }
  }
  EXPECT_EQ(step.stats().builds.size(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Backends, CompiledAttention, ::testing::Values(Backend::reference, Backend::native));

TEST(Attention, Mistakes) {
  EXPECT_ERROR(scaled_dot_product_attention(zeros({1, 4, 5, 8}), zeros({1, 0, 6, 8}), zeros({1, 0, 6, 8}), {},
                                            {.enable_gqa = true}),
               "invalid: scaled_dot_product_attention (@): 4 query heads do not divide among 0 key heads");
  const MultiheadAttentionWeights w = packed_weights();
  const Tensor x = zeros({4, 2, kWidth});
  MultiheadAttentionOptions o;
  EXPECT_ERROR(multi_head_attention_forward(x, zeros({5, 3, kWidth}), x, kHeads, w, o),
               "invalid: multi_head_attention_forward (@): got query f32[4,2,8], key f32[5,3,8], value "
               "f32[4,2,8], expected [l, n, e], [s, n, kdim], [s, n, vdim] of one dtype, or all without n");
  EXPECT_ERROR(multi_head_attention_forward(x, x, x, 3, w, o),
               "invalid: multi_head_attention_forward (@): the width of query f32[4,2,8] does not divide "
               "into 3 heads");
  const Tensor narrow_keys = zeros({4, 2, 6});
  EXPECT_ERROR(multi_head_attention_forward(x, narrow_keys, narrow_keys, kHeads, w, o),
               "invalid: multi_head_attention_forward (@): got key f32[4,2,6] and value f32[4,2,6] for "
               "in_proj_weight, expected the query's width 8 (others need q_proj_weight, k_proj_weight and "
               "v_proj_weight)");
  o.key_padding_mask = zeros({4, 2});
  EXPECT_ERROR(multi_head_attention_forward(x, x, x, kHeads, w, o),
               "invalid: multi_head_attention_forward (@): got key_padding_mask f32[4,2], expected [2,4] for "
               "key f32[4,2,8], bool or added");
  o.key_padding_mask = {};
  o.attn_mask = zeros({3, 4, 4});
  EXPECT_ERROR(multi_head_attention_forward(x, x, x, kHeads, w, o),
               "invalid: multi_head_attention_forward (@): got attn_mask f32[3,4,4], expected [4,4] or "
               "[4,4,4], bool or added");
  o.attn_mask = {};
  o.dropout_p = -1;
  EXPECT_ERROR(multi_head_attention_forward(x, x, x, kHeads, w, o),
               "invalid: multi_head_attention_forward (@): dropout_p is -1, expected 0 to 1");
  MultiheadAttentionWeights half = w;
  half.bias_k = zeros({1, 1, kWidth});
  EXPECT_ERROR(multi_head_attention_forward(x, x, x, kHeads, half, {}),
               "invalid: multi_head_attention_forward (@): give both bias_k and bias_v, or neither");
}

/// q k^T is 0 and v is the identity: what comes out is the share of each key, after dropout.
Tensor dropped_shares(int64_t queries, int64_t keys, double p, int64_t batch = 1) {
  AttentionOptions o;
  o.dropout_p = p;
  const Tensor eye_of_all = expand(eye(keys), {batch, keys, keys});
  return scaled_dot_product_attention(zeros({batch, queries, 4}), zeros({batch, keys, 4}), eye_of_all, {}, o);
}

TEST(AttentionDropout, KeepsItsShareAndScalesWhatItKeeps) {
  constexpr int64_t kQueries = 128, kKeys = 64;
  manual_seed(11);
  for (const double p : {0.1, 0.5, 0.9}) {
    const Floats shares = values(dropped_shares(kQueries, kKeys, p));
    std::vector<int> of_key(kKeys), of_query(kQueries);
    int kept = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
      const bool keeps = shares[i] != 0;
      if (keeps) {
        EXPECT_FLOAT_EQ(shares[i], static_cast<float>(1 / (kKeys * (1 - p))));
      }
      kept += keeps, of_key[i % kKeys] += keeps, of_query[i / kKeys] += keeps;
    }
    // Six deviations of a binomial distribution: of all, of each column, of each row.
    const auto expect_share = [&](int got, double n) {
      EXPECT_NEAR(got, n * (1 - p), 6 * std::sqrt(n * p * (1 - p)) + 1) << p;
    };
    expect_share(kept, kQueries * kKeys);
    for (const int got : of_key) expect_share(got, kQueries);
    for (const int got : of_query) expect_share(got, kKeys);
  }
}

TEST(AttentionDropout, DrawsOfBatchesAndCallsDiffer) {
  manual_seed(12);
  const Tensor both = dropped_shares(16, 16, 0.5, 2), other = dropped_shares(16, 16, 0.5, 2);
  EXPECT_NE(values(select(both, 0, 0)), values(select(both, 0, 1)));
  EXPECT_NE(values(both), values(other));
  manual_seed(12);
  EXPECT_EQ(values(dropped_shares(16, 16, 0.5, 2)), values(both));
  EXPECT_EQ(values(dropped_shares(16, 16, 0.5, 2)), values(other));
}

TEST(AttentionDropout, DrawsOnlyWhereThereIsSome) {
  const auto next_after = [](double p) {
    manual_seed(13);
    const Floats shares = values(dropped_shares(4, 4, p));
    return std::pair(shares, values(rand({4})));
  };
  manual_seed(13);
  const Floats untouched = values(rand({4}));
  const auto [all, after_none] = next_after(0);
  EXPECT_EQ(all, Floats(16, 0.25F));
  EXPECT_EQ(after_none, untouched);
  const auto [nothing, after_some] = next_after(1);
  EXPECT_EQ(nothing, Floats(16, 0));
  EXPECT_NE(after_some, untouched);
  AttentionOptions o;
  for (const double p : {-0.1, 1.1}) {
    o.dropout_p = p;
    const Tensor x = zeros({1, 2, 2});
    EXPECT_ERROR(
        scaled_dot_product_attention(x, x, x, {}, o),
        fmt::format("invalid: scaled_dot_product_attention (@): dropout_p is {}, expected 0 to 1", p));
  }
}

class CompiledAttentionDropout : public ::testing::TestWithParam<Backend> {};

/// softmax(q k^T / sqrt(d)) times the mask that the seed gives, times v.
TEST_P(CompiledAttentionDropout, IsItsFormulaWithGradientsAndDrawsAsEager) {
  constexpr double kP = 0.4;
  const Sizes sizes{2, 6, 4};
  manual_seed(14);
  const std::vector<Tensor> leaves{uniform(sizes, true), uniform(sizes, true), uniform(sizes, true)};
  const Tensor by = uniform(sizes);
  AttentionOptions o;
  o.dropout_p = kP;
  o.is_causal = true;
  const auto all_of = [&](const Tensor& y) {
    std::vector<Floats> out{values(y)};
    for (Tensor t : leaves) {
      out.push_back(values(t.grad()));
      t.set_grad({});
    }
    return out;
  };
  const auto body = [&] {
    const Tensor y = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, o);
    sum(y * by).backward();
    return y;
  };
  CompileOptions c;
  c.backend = GetParam();
  auto step = compile(body, c);
  const Tensor hidden = triu(full({6, 6}, -INFINITY), 1);
  for (uint64_t seed = 20; seed < 24; ++seed) {
    manual_seed(seed);
    const Tensor mask = dropped_shares(6, 6, kP, 2) * 6.0;
    const Tensor scores = matmul(leaves[0], leaves[1].transpose(1, 2)) * 0.5 + hidden;
    const Tensor formula = matmul(softmax(scores, 2) * mask, leaves[2]);
    sum(formula * by).backward();
    const std::vector<Floats> want = all_of(formula);
    for (const bool compiled : {false, true}) {
      manual_seed(seed);
      const std::vector<Floats> got = all_of(compiled ? step() : body());
      for (size_t i = 0; i < want.size(); ++i)
        for (size_t k = 0; k < want[i].size(); ++k) ASSERT_NEAR(got[i][k], want[i][k], 2e-6) << compiled << i;
    }
  }
  EXPECT_EQ(step.stats().builds.size(), 1u);
  // Calls that no seed comes between draw on, as eager ones do.
  manual_seed(30);
  const Floats first = values(step()), second = values(step());
  manual_seed(30);
  EXPECT_NE(first, second);
  expect_close(body(), mat(first, sizes));
  expect_close(body(), mat(second, sizes));
}
INSTANTIATE_TEST_SUITE_P(Backends, CompiledAttentionDropout,
                         ::testing::Values(Backend::reference, Backend::native));

TEST(Attention, LargeScoresStaySharesOfOne) {
  const auto f = compile([](const Tensor& q, const Tensor& k, const Tensor& v) {
    return scaled_dot_product_attention(q, k, v);
  });
  for (int64_t d : {2, 8})
    for (float share : values(f(randn({1, 32, d}) * 1e5, randn({1, 32, d}) * 1e5, ones({1, 32, 2}))))
      EXPECT_NEAR(share, 1, 1e-5);
}

}  // namespace KILN_FILE
}  // namespace kiln
