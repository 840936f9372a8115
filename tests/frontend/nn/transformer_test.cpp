// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/transformer.h"

#include <algorithm>
#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT
using Names = std::vector<std::string>;

Names names(const nn::NamedTensors& tensors) {
  Names out;
  for (const auto& [name, t] : tensors) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}
Tensor ramp(Sizes sizes, double step = 1) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return sin(reshape(arange(n).to(DType::f32) * step, std::move(sizes)));
}
void expect_close(const Tensor& a, const Tensor& b, float tolerance = 1e-5f) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const Floats x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

TEST(NnAttention, NamesShapesAndFirstValuesArePyTorchs) {
  nn::MultiheadAttention packed(8, 2, {.add_bias_kv = true});
  EXPECT_EQ(names(packed.state_dict()), (Names{"bias_k", "bias_v", "in_proj_bias", "in_proj_weight",
                                               "out_proj.bias", "out_proj.weight"}));
  EXPECT_EQ(packed.in_proj_weight.sizes(), (Sizes{24, 8}));
  EXPECT_EQ(packed.bias_k.sizes(), (Sizes{1, 1, 8}));
  EXPECT_EQ(values(packed.in_proj_bias), Floats(24, 0));
  EXPECT_EQ(values(packed.out_proj.bias), Floats(8, 0));
  const float bound = std::sqrt(6.0f / 32);
  for (const float v : values(packed.in_proj_weight)) EXPECT_LE(std::abs(v), bound);
  nn::MultiheadAttention wide(8, 2, {.bias = false, .kdim = 6, .vdim = 5});
  EXPECT_EQ(names(wide.state_dict()),
            (Names{"k_proj_weight", "out_proj.weight", "q_proj_weight", "v_proj_weight"}));
  EXPECT_EQ(wide.v_proj_weight.sizes(), (Sizes{8, 5}));
  EXPECT_EQ(error_of([] { nn::MultiheadAttention(8, 3); }),
            "invalid: MultiheadAttention: embed_dim 8 does not divide into 3 heads");
}

TEST(NnAttention, TheModuleCallsTheFunction) {
  nn::MultiheadAttention a(8, 2);
  const Tensor x = ramp({4, 3, 8}), y = ramp({5, 3, 8}, 0.3);
  const MultiheadAttentionWeights w{a.in_proj_weight, {}, {}, {}, a.in_proj_bias, {}, {}, a.out_proj.weight,
                                    a.out_proj.bias};
  const auto [output, weights] = a(x, y, y);
  const MultiheadAttentionResult expected = multi_head_attention_forward(x, y, y, 2, w);
  EXPECT_EQ(values(output), values(expected.output));
  EXPECT_EQ(values(weights), values(expected.weights));
  const Tensor mask = nn::Transformer::generate_square_subsequent_mask(4);
  EXPECT_EQ(values(mask)[1], -INFINITY);
  EXPECT_EQ(values(mask)[4], 0);
  const Tensor masked = a(x, x, x, {.need_weights = false, .attn_mask = mask}).output;
  expect_close(masked, a(x, x, x, {.need_weights = false, .is_causal = true}).output);
  nn::Module& base = a;
  expect_close(base(x, y, y), output);
  nn::MultiheadAttention first(8, 2, {.batch_first = true});
  first.load_state_dict(a.state_dict());
  const auto [turned, same] = first(x.transpose(0, 1), y.transpose(0, 1), y.transpose(0, 1));
  expect_close(turned, output.transpose(0, 1));
  expect_close(same, weights);
}

TEST(NnAttention, HooksSeeAllOperands) {
  nn::MultiheadAttention a(8, 2);
  const Tensor x = ramp({4, 3, 8});
  a.register_forward_pre_hook([](nn::Module&, std::vector<Tensor>& in) {
    EXPECT_EQ(in.size(), 5u);
    in[4] = full({4, 4}, 0.0);
  });
  a.register_forward_hook([](nn::Module&, const std::vector<Tensor>& in, Tensor& out) {
    EXPECT_TRUE(in[4].defined());
    out = out * 0.0;
  });
  EXPECT_EQ(values(a(x, x, x).output), Floats(96, 0));
}

TEST(NnTransformer, LayersAreTheirFormula) {
  const Tensor x = ramp({4, 3, 8}), m = ramp({5, 3, 8}, 0.3);
  for (const bool norm_first : {false, true}) {
    const nn::TransformerLayerOptions o{.dim_feedforward = 16,
                                        .dropout = 0.5,
                                        .activation = [](const Tensor& t) { return gelu(t); },
                                        .norm_first = norm_first};
    nn::TransformerEncoderLayer e(8, 2, o);
    e.eval();
    const auto attend = [](nn::MultiheadAttention& a, const Tensor& q, const Tensor& k) {
      return a(q, k, k, {.need_weights = false}).output;
    };
    const auto feed = [](auto& l, const Tensor& t) { return l.linear2(gelu(l.linear1(t))); };
    Tensor expected;
    if (norm_first) {
      const Tensor n = e.norm1(x), y = x + attend(e.self_attn, n, n);
      expected = y + feed(e, e.norm2(y));
    } else {
      const Tensor y = e.norm1(x + attend(e.self_attn, x, x));
      expected = e.norm2(y + feed(e, y));
    }
    expect_close(e(x), expected);
    nn::TransformerDecoderLayer d(8, 2, o);
    d.eval();
    if (norm_first) {
      const Tensor n = d.norm1(x), y = x + attend(d.self_attn, n, n);
      const Tensor z = y + attend(d.multihead_attn, d.norm2(y), m);
      expected = z + feed(d, d.norm3(z));
    } else {
      const Tensor y = d.norm1(x + attend(d.self_attn, x, x));
      const Tensor z = d.norm2(y + attend(d.multihead_attn, y, m));
      expected = d.norm3(z + feed(d, z));
    }
    expect_close(d(x, m), expected);
  }
}

TEST(NnTransformer, NamesArePyTorchs) {
  nn::Transformer t({.d_model = 8,
                     .nhead = 2,
                     .num_encoder_layers = 1,
                     .num_decoder_layers = 1,
                     .layer = {.dim_feedforward = 16}});
  const Names attention{"in_proj_bias", "in_proj_weight", "out_proj.bias", "out_proj.weight"};
  Names expected;
  const auto add = [&](const std::string& prefix, const Names& more) {
    for (const std::string& n : more) expected.push_back(prefix + n);
  };
  const Names affine{"weight", "bias"};
  add("encoder.layers.0.self_attn.", attention);
  for (const char* n : {"linear1.", "linear2.", "norm1.", "norm2."})
    add("encoder.layers.0." + std::string(n), affine);
  add("encoder.norm.", affine);
  add("decoder.layers.0.self_attn.", attention);
  add("decoder.layers.0.multihead_attn.", attention);
  for (const char* n : {"linear1.", "linear2.", "norm1.", "norm2.", "norm3."})
    add("decoder.layers.0." + std::string(n), affine);
  add("decoder.norm.", affine);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names(t.state_dict()), expected);
  EXPECT_EQ(t(ramp({5, 3, 8}), ramp({4, 3, 8})).sizes(), (Sizes{4, 3, 8}));
}

TEST(NnTransformer, AnEncoderCopiesItsLayerAndMasksReachIt) {
  nn::TransformerEncoderLayer layer(8, 2, {.dim_feedforward = 16, .dropout = 0, .batch_first = true});
  nn::TransformerEncoder encoder(layer, 2, std::make_unique<nn::LayerNorm>(8));
  EXPECT_EQ(values(encoder.get_parameter("layers.1.linear1.weight")), values(layer.linear1.weight));
  EXPECT_NE(encoder.get_parameter("layers.1.linear1.weight").impl(), layer.linear1.weight.impl());
  const Tensor x = ramp({3, 4, 8});
  nn::LayerNorm norm(8);
  expect_close(encoder(x), norm(layer(layer(x))));
  const Tensor mask = nn::Transformer::generate_square_subsequent_mask(4);
  // What comes later does not matter.
  const Tensor short_x = narrow(x, 1, 0, 2);
  expect_close(narrow(encoder(x, mask), 1, 0, 2),
               encoder(short_x, nn::Transformer::generate_square_subsequent_mask(2)));
  const Tensor padding = gt(arange(4), 1).reshape({1, 4});
  expect_close(narrow(encoder(x, {}, expand(padding, {3, 4})), 1, 0, 2), encoder(short_x));
}

class CompiledTransformer : public ::testing::TestWithParam<Backend> {};

TEST_P(CompiledTransformer, TrainsAndEvaluates) {
  manual_seed(3);
  nn::Transformer t({.d_model = 8,
                     .nhead = 2,
                     .num_encoder_layers = 1,
                     .num_decoder_layers = 1,
                     .layer = {.dim_feedforward = 16, .dropout = 0.5}});
  const Tensor mask = nn::Transformer::generate_square_subsequent_mask(4);
  const auto body = [&](const Tensor& src, const Tensor& tgt) {
    const Tensor y = t(src, tgt, {.tgt_mask = mask});
    if (t.is_training()) sum(y * y * y).backward();
    return y;
  };
  CompileOptions o;
  o.backend = GetParam();
  auto step = compile(body, o);
  const Tensor src = ramp({5, 3, 8}), tgt = ramp({4, 3, 8}, 0.3);
  for (int i = 0; i < 2; ++i)
    for (const bool training : {true, false}) {
      t.train(training);
      manual_seed(7);
      const Tensor eager = body(src, tgt).detach();
      const Floats grad =
          training ? values(t.get_parameter("encoder.layers.0.linear1.weight").grad()) : Floats();
      t.zero_grad();
      manual_seed(7);
      expect_close(step(src, tgt), eager, 1e-4f);
      if (training) {
        const Floats got = values(t.get_parameter("encoder.layers.0.linear1.weight").grad());
        for (size_t k = 0; k < grad.size(); ++k) ASSERT_NEAR(got[k], grad[k], 2e-3f) << k;
      }
      t.zero_grad();
    }
  EXPECT_EQ(step.stats().builds.size(), 2u);
}
INSTANTIATE_TEST_SUITE_P(Backends, CompiledTransformer,
                         ::testing::Values(Backend::reference, Backend::native));

TEST(TransformerMistakes, NegativeNumbersOfLayers) {
  const nn::TransformerEncoderLayer layer(4, 2);
  EXPECT_EQ(error_of([&] { nn::TransformerEncoder(layer, -1); }),
            "invalid: TransformerEncoder: num_layers is -1, expected at least 0");
  const nn::TransformerDecoderLayer decoder(4, 2);
  EXPECT_EQ(error_of([&] { nn::TransformerDecoder(decoder, -1); }),
            "invalid: TransformerDecoder: num_layers is -1, expected at least 0");
}

}  // namespace KILN_FILE
}  // namespace kiln
