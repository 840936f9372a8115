// SPDX-License-Identifier: Apache-2.0
// Recurrent networks against loops over their cells, and the cells against their formulas.
#include "frontend/rnn.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor uniform(Sizes sizes, bool grad = false) {
  Tensor t = (rand(std::move(sizes)) * 2.0 - 1.0).detach();
  if (grad) t.requires_grad_();
  return t;
}
void expect_close(const Tensor& a, const Tensor& b, float tolerance = 1e-6f) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const Floats x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

/// Weights of an LSTM, in the order of the layers.
std::vector<Tensor> lstm_weights(int64_t in, int64_t hidden, int64_t layers, int64_t directions,
                                 int64_t projection = 0, bool grad = false) {
  const int64_t out = projection > 0 ? projection : hidden;
  std::vector<Tensor> w;
  for (int64_t l = 0; l < layers; ++l)
    for (int64_t d = 0; d < directions; ++d) {
      w.push_back(uniform({4 * hidden, l == 0 ? in : out * directions}, grad));
      w.push_back(uniform({4 * hidden, out}, grad));
      w.push_back(uniform({4 * hidden}, grad));
      w.push_back(uniform({4 * hidden}, grad));
      if (projection > 0) w.push_back(uniform({projection, hidden}, grad));
    }
  return w;
}

TEST(Rnn, CellsAreTheirFormulas) {
  manual_seed(1);
  const Tensor x = uniform({2, 3}), h = uniform({2, 4}), c = uniform({2, 4});
  const auto weights = [](int64_t gates) {
    return std::vector<Tensor>{uniform({gates * 4, 3}), uniform({gates * 4, 4}), uniform({gates * 4}),
                               uniform({gates * 4})};
  };
  std::vector<Tensor> w = weights(1);
  const Tensor sum = linear(x, w[0], w[2]) + linear(h, w[1], w[3]);
  expect_close(rnn_tanh_cell(x, h, w[0], w[1], w[2], w[3]), tanh(sum));
  expect_close(rnn_relu_cell(x, h, w[0], w[1], w[2], w[3]), relu(sum));
  expect_close(rnn_tanh_cell(x, h, w[0], w[1]), tanh(linear(x, w[0]) + linear(h, w[1])));
  w = weights(4);
  const std::vector<Tensor> g = chunk(linear(x, w[0], w[2]) + linear(h, w[1], w[3]), 4, 1);
  const Tensor next_c = sigmoid(g[1]) * c + sigmoid(g[0]) * tanh(g[2]);
  const LSTMState s = lstm_cell(x, {h, c}, w[0], w[1], w[2], w[3]);
  expect_close(s.c, next_c);
  expect_close(s.h, sigmoid(g[3]) * tanh(next_c));
  w = weights(3);
  const std::vector<Tensor> a = chunk(linear(x, w[0], w[2]), 3, 1), b = chunk(linear(h, w[1], w[3]), 3, 1);
  const Tensor r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]), n = tanh(a[2] + r * b[2]);
  expect_close(gru_cell(x, h, w[0], w[1], w[2], w[3]), (1.0 - z) * n + z * h);
  // One sample without a batch, and a state that is zeros where there is none.
  expect_close(gru_cell(select(x, 0, 1), {}, w[0], w[1], w[2], w[3]),
               select(gru_cell(x, zeros({2, 4}), w[0], w[1], w[2], w[3]), 0, 1));
}

TEST(Rnn, LayersFeedEachOtherAndTheOtherDirectionReadsFromTheEnd) {
  manual_seed(2);
  const std::vector<Tensor> w = lstm_weights(3, 4, 2, 2);
  const Tensor x = uniform({5, 2, 3}), h0 = uniform({4, 2, 4}), c0 = uniform({4, 2, 4});
  const LSTMResult r = lstm(x, {h0, c0}, w, {.num_layers = 2, .bidirectional = true});
  Tensor in = x;
  for (int64_t layer = 0; layer < 2; ++layer) {
    std::vector<Tensor> sides;
    for (int64_t d = 0; d < 2; ++d) {
      const size_t at = static_cast<size_t>(layer * 2 + d) * 4;
      LSTMState s{select(h0, 0, layer * 2 + d), select(c0, 0, layer * 2 + d)};
      std::vector<Tensor> steps(5);
      for (int64_t k = 0; k < 5; ++k) {
        const int64_t t = d == 0 ? k : 4 - k;
        s = lstm_cell(select(in, 0, t), s, w[at], w[at + 1], w[at + 2], w[at + 3]);
        steps[static_cast<size_t>(t)] = s.h;
      }
      expect_close(select(r.state.h, 0, layer * 2 + d), s.h);
      expect_close(select(r.state.c, 0, layer * 2 + d), s.c);
      sides.push_back(stack(steps, 0));
    }
    in = cat(sides, 2);
  }
  expect_close(r.output, in);
  const RecurrentOptions first{.num_layers = 2, .bidirectional = true, .batch_first = true};
  expect_close(lstm(x.transpose(0, 1), {h0, c0}, w, first).output, r.output.transpose(0, 1));
  const LSTMState one{select(h0, 1, 0), select(c0, 1, 0)};
  const LSTMResult alone = lstm(select(x, 1, 0), one, w, {.num_layers = 2, .bidirectional = true});
  expect_close(alone.output, select(r.output, 1, 0));
  expect_close(alone.state.c, select(r.state.c, 1, 0));
}

TEST(Rnn, AProjectionMakesTheStateNarrow) {
  manual_seed(3);
  const std::vector<Tensor> w = lstm_weights(3, 4, 1, 1, 2);
  const Tensor x = uniform({3, 2, 3});
  const LSTMResult r = lstm(x, {}, w);
  Tensor h = zeros({2, 2}), c = zeros({2, 4});
  for (int64_t t = 0; t < 3; ++t) {
    const std::vector<Tensor> g = chunk(linear(select(x, 0, t), w[0], w[2]) + linear(h, w[1], w[3]), 4, 1);
    c = sigmoid(g[1]) * c + sigmoid(g[0]) * tanh(g[2]);
    h = linear(sigmoid(g[3]) * tanh(c), w[4]);
    expect_close(select(r.output, 0, t), h);
  }
  EXPECT_EQ(r.state.h.sizes(), (Sizes{1, 2, 2}));
  EXPECT_EQ(r.state.c.sizes(), (Sizes{1, 2, 4}));
}

TEST(Rnn, LengthsAreAsEverySequenceByItself) {
  manual_seed(4);
  const std::vector<Tensor> w = lstm_weights(3, 4, 2, 2);
  const Tensor x = uniform({5, 3, 3});
  const std::vector<int64_t> lengths{3, 5, 1};
  const LSTMResult r = lstm(x, {}, w, {.num_layers = 2, .bidirectional = true, .lengths = ids(lengths)});
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t n = lengths[static_cast<size_t>(b)];
    const Tensor own = narrow(select(x, 1, b), 0, 0, n);
    const LSTMResult alone = lstm(own, {}, w, {.num_layers = 2, .bidirectional = true});
    expect_close(narrow(select(r.output, 1, b), 0, 0, n), alone.output);
    expect_close(narrow(select(r.output, 1, b), 0, n, 5 - n), zeros({5 - n, 8}));
    expect_close(select(r.state.h, 1, b), alone.state.h);
    expect_close(select(r.state.c, 1, b), alone.state.c);
  }
}

TEST(Rnn, DropoutStandsBetweenLayersWhileTraining) {
  manual_seed(5);
  const std::vector<Tensor> w{uniform({4, 3}), uniform({4, 4}), uniform({4, 4}), uniform({4, 4})};
  const Tensor x = uniform({3, 2, 3});
  RecurrentOptions o{.num_layers = 2, .bias = false, .dropout = 1, .training = true};
  // All that the second layer gets are zeros.
  EXPECT_EQ(values(rnn_tanh(x, {}, w, o).output), Floats(24, 0));
  o.training = false;
  const Tensor one = rnn_tanh(x, {}, {w[0], w[1]}, {.bias = false}).output;
  expect_close(rnn_tanh(x, {}, w, o).output, rnn_tanh(one, {}, {w[2], w[3]}, {.bias = false}).output);
}

TEST(Rnn, OtherDtypesAndNoSequences) {
  manual_seed(7);
  const std::vector<Tensor> w = lstm_weights(3, 4, 1, 2);
  const Tensor x = uniform({3, 2, 3});
  const LSTMResult expected = lstm(x, {}, w, {.bidirectional = true});
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<DType, float>>{{DType::f64, 1e-6f}, {DType::f16, 5e-3f}, {DType::bf16, 3e-2f}}) {
    std::vector<Tensor> cast;
    for (const Tensor& t : w) cast.push_back(t.to(dtype));
    const LSTMResult r = lstm(x.to(dtype), {}, cast, {.bidirectional = true, .lengths = ids({3, 3})});
    EXPECT_EQ(r.output.dtype(), dtype);
    EXPECT_EQ(r.state.c.dtype(), dtype);
    expect_close(r.output, expected.output, tolerance);
    expect_close(r.state.c, expected.state.c, 2 * tolerance);
  }
  const LSTMResult none = lstm(zeros({3, 0, 3}), {}, w, {.bidirectional = true});
  EXPECT_EQ(none.output.sizes(), (Sizes{3, 0, 8}));
  EXPECT_EQ(none.state.c.sizes(), (Sizes{2, 0, 4}));
}

class CompiledRnn : public ::testing::TestWithParam<Backend> {};

TEST_P(CompiledRnn, GradientsAreAsEagerAndOtherLengthsNeedNoBuild) {
  manual_seed(6);
  const std::vector<Tensor> w = lstm_weights(3, 4, 1, 2, 3, true);
  const auto body = [&](const Tensor& x, const Tensor& lengths) {
    const LSTMResult r = lstm(x, {}, w, {.bidirectional = true, .batch_first = true, .lengths = lengths});
    Tensor loss = sum(r.output * r.output) + sum(r.state.h) + sum(r.state.c);
    loss.backward();
    return loss;
  };
  CompileOptions o;
  o.backend = GetParam();
  auto step = compile(body, o);
  for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{{3, 2}, {1, 3}, {3, 3}}) {
    const Tensor x = uniform({2, 3, 3});
    const float eager = values(body(x, ids(lengths)))[0];
    std::vector<Floats> expected;
    for (const Tensor& p : w) {
      expected.push_back(values(p.grad()));
      Tensor(p).set_grad({});
    }
    EXPECT_NEAR(values(step(x, ids(lengths)))[0], eager, 1e-4f * std::abs(eager));
    for (size_t i = 0; i < w.size(); ++i) {
      const Floats got = values(w[i].grad());
      for (size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], expected[i][k], 1e-4f) << i;
      Tensor(w[i]).set_grad({});
    }
  }
  EXPECT_EQ(step.stats().builds.size(), 1u);
  EXPECT_EQ(error_of([&] {
              (void)values(step(zeros({2, 3, 3}), ids({4, 1})));
            }).substr(0, 14),
            "invalid: lstm ");
}
/// The steps of an unrolled loop are launches of the same kernels, so that a long sequence is built as soon
/// as a short one.
TEST(Rnn, StepsShareTheirKernels) {
  const auto kernels = [](const auto& body, int64_t steps) {
    auto step = compile([&](const Tensor& x) {
      Tensor loss = sum(body(x));
      loss.backward();
      return loss;
    });
    (void)values(step(uniform({steps, 4, 8})));
    return step.stats().builds[0].kernels;
  };
  manual_seed(7);
  const std::vector<Tensor> w = lstm_weights(8, 8, 2, 1, 0, true);
  const auto long_memory = [&](const Tensor& x) { return lstm(x, {}, w, {.num_layers = 2}).output; };
  const std::vector<Tensor> v = {uniform({24, 8}, true), uniform({24, 8}, true), uniform({24}, true),
                                 uniform({24}, true)};
  const auto gated = [&](const Tensor& x) { return gru(x, {}, v).output; };
  const Tensor lengths = ids({1, 12, 5, 2});
  const auto cut_short = [&](const Tensor& x) {
    const LSTMResult r = lstm(x, {}, w, {.num_layers = 2, .lengths = lengths});
    return sum(r.output) + sum(r.state.h);
  };
  const int few = kernels(long_memory, 12), fewer = kernels(gated, 24);
  EXPECT_EQ(kernels(long_memory, 24), few);
  EXPECT_EQ(kernels(cut_short, 24), kernels(cut_short, 12));
  EXPECT_LE(kernels(gated, 48), fewer + 1);  // the sum of the steps' gradients is cut into more
  EXPECT_LT(few, 60);
  EXPECT_LT(fewer, 40);
}

INSTANTIATE_TEST_SUITE_P(Backends, CompiledRnn, ::testing::Values(Backend::reference, Backend::native));

TEST(Rnn, Mistakes) {
  const std::vector<Tensor> w{zeros({4, 3}), zeros({4, 4}), zeros({4}), zeros({4})};
  const Tensor x = zeros({5, 2, 3});
  EXPECT_ERROR(rnn_tanh(zeros({3}), {}, w),
               "invalid: rnn_tanh (@): got x f32[3], expected [T, batch, in], or [T, in] of one sequence");
  EXPECT_ERROR(rnn_tanh(zeros({0, 2, 3}), {}, w), "invalid: rnn_tanh (@): got x f32[0,2,3] without a step");
  EXPECT_ERROR(rnn_tanh(x, {}, {w[0], w[1]}),
               "invalid: rnn_tanh (@): got 2 weights, expected 4 for 1 layer(s), 1 direction(s), with bias");
  EXPECT_ERROR(rnn_tanh(x, zeros({1, 3, 4}), w),
               "invalid: rnn_tanh (@): got h0 f32[1,3,4], expected f32[1,2,4] for x f32[5,2,3]");
  EXPECT_ERROR(rnn_tanh(x, {}, {w[0], zeros({4, 5}), w[2], w[3]}),
               "invalid: rnn_tanh (@): got w_hh of layer 0 f32[4,5], expected f32[4,4] for x f32[5,2,3]");
  EXPECT_ERROR(gru(x, {}, w), "invalid: gru (@): got w_ih f32[4,3], expected [3 * hidden, 3]");
  EXPECT_ERROR(rnn_tanh(x, {}, w, {.lengths = ids({1})}),
               "invalid: rnn_tanh (@): got lengths i64[1], expected i64[2]");
  EXPECT_ERROR(rnn_tanh(x, {}, w, {.lengths = ids({1, 6})}),
               "invalid: rnn_tanh (@): lengths 6 is out of range; expected 1 to 5");
  EXPECT_ERROR(rnn_tanh(x, {}, w, {.lengths = ids({0, 5})}),
               "invalid: rnn_tanh (@): lengths 0 is out of range; expected 1 to 5");
  EXPECT_ERROR(rnn_tanh(x, {}, w, {.dropout = 2}), "invalid: rnn_tanh (@): dropout is 2, expected 0 to 1");
  EXPECT_ERROR(lstm_cell(zeros({2, 3}), {zeros({2, 4}), zeros({1, 4})}, zeros({16, 3}), zeros({16, 4})),
               "invalid: lstm_cell (@): got c f32[1,4], expected f32[2,4] for x f32[2,3]");
  EXPECT_ERROR(rnn_relu_cell(zeros({2, 3}), {}, w[0], w[1], w[2]),
               "invalid: rnn_relu_cell (@): give both b_ih and b_hh, or neither");
}

TEST(Recurrent, AnLstmNeedsBothStatesOrNone) {
  const Tensor x = zeros({2, 1, 3}), h = zeros({1, 1, 2}), w = zeros({8, 3}), u = zeros({8, 2});
  EXPECT_ERROR(lstm(x, {h, {}}, {w, u}, {.bias = false}),
               "invalid: lstm (@): got h f32[1,1,2] and c undefined, expected both or neither");
  EXPECT_ERROR(lstm_cell(zeros({1, 3}), {{}, zeros({1, 2})}, w, u),
               "invalid: lstm_cell (@): got h undefined and c f32[1,2], expected both or neither");
}

}  // namespace KILN_FILE
}  // namespace kiln
