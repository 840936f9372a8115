// SPDX-License-Identifier: Apache-2.0
// Composites at their edges: extreme inputs, options, masks, and what dropout promises. Eager and compiled.
#include "frontend/functional.h"

#include <cmath>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

enum class Mode { eager, reference, native };

class Functional : public ::testing::TestWithParam<Mode> {
 protected:
  /// `f(x)` eagerly or compiled.
  template <typename F>
  auto apply(F f, const Tensor& x) {
    if (GetParam() == Mode::eager) return f(x);
    return compile(f, options())(x);
  }
  static CompileOptions options() {
    CompileOptions o;
    o.backend = GetParam() == Mode::native ? Backend::native : Backend::reference;
    return o;
  }
};

bool same(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::isnan(a[i]) != std::isnan(b[i]) || (!std::isnan(a[i]) && std::abs(a[i] - b[i]) > 1e-6f))
      return false;
  return true;
}

TEST_P(Functional, SoftmaxOfExtremes) {
  struct Case {
    Floats x;
    float scale;
    Floats want;
  };
  const float inf = INFINITY, nan = NAN;
  for (const Case& c : {Case{{1, 2, 3}, -1e14f, {1, 0, 0}}, Case{{1e14f, 2e14f, 3e14f}, 1, {0, 0, 1}},
                        Case{{inf, -inf, 0}, 1, {nan, nan, nan}}, Case{{-inf, 0, 0}, 1, {0, 0.5f, 0.5f}},
                        Case{{nan, 0, 0}, 1, {nan, nan, nan}}}) {
    auto f = [&](const Tensor& x) {
      Tensor y = softmax(x * c.scale, 0);
      sum(y * vec({1, 2, 3})).backward();
      return y;
    };
    Tensor x = vec(c.x, true);
    const Floats got = values(apply(f, x));
    EXPECT_TRUE(same(got, c.want)) << c.x[0] << ": " << got[0] << " " << got[1] << " " << got[2];
    for (float g : values(x.grad())) {
      EXPECT_TRUE(std::isfinite(g) || !std::isfinite(c.x[0])) << c.x[0];
    }
    const Floats logs =
        values(apply([&](const Tensor& t) { return exp(log_softmax(t * c.scale, 0)); }, vec(c.x)));
    EXPECT_TRUE(same(logs, c.want)) << c.x[0] << ": " << logs[0] << " " << logs[1] << " " << logs[2];
  }
}

TEST_P(Functional, SoftmaxOfNothing) {
  EXPECT_EQ(apply([](const Tensor& x) { return softmax(x, 1); }, zeros({0, 3})).sizes(), (Sizes{0, 3}));
  EXPECT_EQ(apply([](const Tensor& x) { return softmax(x, 1); }, zeros({3, 0})).sizes(), (Sizes{3, 0}));
  EXPECT_EQ(apply([](const Tensor& x) { return softmax(x, 0); }, full({}, 5.0)).item(), 1);
}

TEST_P(Functional, CrossEntropyOptions) {
  const Floats logits{1, 2, 3, 0, 0, 0, 2, 0, -1};
  const Tensor x = mat(logits, {3, 3}), target = ids({2, -100, 0}), weight = vec({1, 2, 3});
  auto row = [&](int i, int c) {
    double s = 0;
    for (int k = 0; k < 3; ++k) s += std::exp(logits[static_cast<size_t>(3 * i + k)]);
    return std::log(s) - logits[static_cast<size_t>(3 * i + c)];
  };
  auto loss = [&](const CrossEntropyOptions& o, const Tensor& w = {}) {
    return values(apply([&](const Tensor& t) { return cross_entropy(t, target, w, o); }, x));
  };
  EXPECT_NEAR(loss({})[0], (row(0, 2) + row(2, 0)) / 2, 1e-6);
  EXPECT_NEAR(loss({Reduction::sum})[0], row(0, 2) + row(2, 0), 1e-6);
  const Floats each = loss({Reduction::none});
  EXPECT_NEAR(each[0], row(0, 2), 1e-6);
  EXPECT_EQ(each[1], 0);
  EXPECT_NEAR(loss({}, weight)[0], (3 * row(0, 2) + row(2, 0)) / 4, 1e-6);
  EXPECT_NE(error_of([&] {
              loss({Reduction::sum, 2});
            }),
            "no error")
      << "-100 is a target like any other then";
  double smooth = 0;
  for (int i : {0, 2}) smooth += 0.7 * row(i, i == 0 ? 2 : 0) + 0.1 * (row(i, 0) + row(i, 1) + row(i, 2));
  EXPECT_NEAR(loss({.label_smoothing = 0.3})[0], smooth / 2, 1e-6);
}

TEST_P(Functional, CrossEntropyEdges) {
  auto loss = [&](const Tensor& x, const Tensor& t, Reduction r = Reduction::mean) {
    return apply([&](const Tensor& v) { return cross_entropy(v, t, {}, {r}); }, x);
  };
  EXPECT_TRUE(std::isnan(loss(zeros({2, 3}), ids({-100, -100})).item()));
  EXPECT_EQ(loss(zeros({0, 3}), ids({}), Reduction::sum).item(), 0);
  EXPECT_FLOAT_EQ(loss(vec({0, 0}), full({}, 1, {DType::i64})).item<float>(), std::log(2.0f));
  EXPECT_FLOAT_EQ(loss(mat({500, 0}, {1, 2}), ids({1})).item<float>(), 500);
  EXPECT_EQ(loss(zeros({2, 3, 4}), zeros({2, 4}, {DType::i64}), Reduction::none).sizes(), (Sizes{2, 4}));
  EXPECT_FLOAT_EQ(loss(zeros({1, 2}), mat({0.25f, 0.75f}, {1, 2})).item<float>(), std::log(2.0f));
}

TEST_P(Functional, WrongTargetsAndIdsAreErrors) {
  const Tensor x = zeros({2, 3}), table = ones({4, 2});
  Tensor target = ids({0, 2}), tokens = ids({0, 3});
  auto loss = [&](const Tensor& v) { return cross_entropy(v, target); };
  auto rows = [&](const Tensor& i) { return embedding(i, table); };
  auto f = compile(loss, options());
  auto g = compile(rows, options());
  auto text = [&](bool of_loss) {
    return error_of([&] {
      if (GetParam() == Mode::eager) return of_loss ? loss(x) : rows(tokens);
      return of_loss ? f(x) : g(tokens);
    });
  };
  EXPECT_EQ(text(true), "no error");
  target = ids({0, 3});
  EXPECT_TRUE(text(true).starts_with("invalid: cross_entropy (functional_test.cpp:")) << text(true);
  EXPECT_TRUE(text(true).ends_with("): target 3 is out of range; expected 0 to 2 or ignore_index"))
      << text(true);
  target = ids({-1, 0});
  EXPECT_TRUE(text(true).ends_with("): target -1 is out of range; expected 0 to 2 or ignore_index"))
      << text(true);
  target = ids({-100, 0});
  EXPECT_EQ(text(true), "no error");
  EXPECT_EQ(text(false), "no error");
  for (int64_t bad : {4, -1}) {
    tokens = ids({bad, 0});
    EXPECT_TRUE(text(false).ends_with(
        fmt::format("): ids {} is out of range; expected 0 to 3, the rows of weight f32[4,2]", bad)))
        << text(false);
  }
}

TEST_P(Functional, AttentionMasks) {
  const Tensor q = mat({1, 0, 0, 1}, {2, 2}), k = mat({1, 0, 0, 1, 1, 1}, {3, 2}), v = mat({1, 2, 3}, {3, 1});
  auto run = [&](const Tensor& mask, const AttentionOptions& o = {}) {
    return values(apply([&](const Tensor& x) { return scaled_dot_product_attention(x, k, v, mask, o); }, q));
  };
  const Tensor hidden = mat({0, 0, 0, 1, 0, 0}, {2, 3});
  EXPECT_EQ(run(hidden.to(DType::boolean)), (Floats{0, 1})) << "a row that is hidden entirely gives zeros";
  EXPECT_EQ(run(log(hidden)), (Floats{0, 1}));
  const double e = std::exp(1 / std::sqrt(2.0));
  EXPECT_NEAR(run({})[0], (e * 1 + 2 + e * 3) / (2 * e + 1), 1e-6);
  EXPECT_NEAR(run({}, {.scale = 2.0})[1], (1 + std::exp(2.0) * 5) / (1 + 2 * std::exp(2.0)), 1e-6);
  const Floats causal = run({}, {.is_causal = true});
  EXPECT_EQ(causal[0], 1);
  EXPECT_NEAR(causal[1], (1 + e * 2) / (1 + e), 1e-6);
}

TEST_P(Functional, HiddenRowHasNoGradient) {
  Tensor q = mat({1, 2, 3, 4}, {2, 2}, true), k = mat({1, 0, 0, 1}, {2, 2}, true),
         v = mat({1, 2}, {2, 1}, true);
  const Tensor mask = mat({0, 0, 1, 1}, {2, 2}).to(DType::boolean);
  apply(
      [&](const Tensor& x) {
        Tensor y = scaled_dot_product_attention(x, k, v, mask);
        sum(y).backward();
        return y;
      },
      q);
  for (const Tensor& t : {q, k, v})
    for (float g : values(t.grad())) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(values(q.grad())[0], 0);
  EXPECT_EQ(values(q.grad())[1], 0);
}

TEST_P(Functional, DropoutMasks) {
  const Tensor ones_in = ones({1000});
  Tensor x = ones({1000}, {DType::f32, true});
  auto fn = [&](const Tensor& t) {
    x.set_grad({});
    Tensor y = dropout(t, 0.5);
    sum(y).backward();
    return y;
  };
  auto compiled = compile(fn, options());
  auto draw = [&] { return values(GetParam() == Mode::eager ? fn(x) : compiled(x)); };
  manual_seed(3);
  const Floats a = draw(), b = draw(), c = draw();
  EXPECT_NE(a, b);
  EXPECT_NE(b, c);
  EXPECT_NE(a, c);
  manual_seed(3);
  EXPECT_EQ(draw(), a);
  const Floats g = values(x.grad());
  int kept = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i] == 0 || a[i] == 2);
    EXPECT_EQ(g[i], a[i]) << i;
    kept += a[i] == 2;
  }
  EXPECT_NEAR(kept, 500, 80);
  manual_seed(3);
  EXPECT_EQ(values(dropout(ones_in, 0.5)), a) << "eager and compiled draw the same mask";
  if (GetParam() != Mode::eager) {
    EXPECT_EQ(compiled.stats().builds.size(), 1u);
  }
}

TEST_P(Functional, DropoutLimits) {
  const Tensor x = vec({1, 2, 3});
  EXPECT_EQ(values(apply([](const Tensor& t) { return dropout(t, 1) + 0.0; }, x)), (Floats{0, 0, 0}));
  EXPECT_EQ(values(apply([](const Tensor& t) { return dropout(t, 0) + 0.0; }, x)), (Floats{1, 2, 3}));
  EXPECT_EQ(values(apply([](const Tensor& t) { return dropout(t, 0.9, false) + 0.0; }, x)),
            (Floats{1, 2, 3}));
}

TEST_P(Functional, LayerNormByHand) {
  const Floats got = values(apply(
      [](const Tensor& x) {
        return layer_norm(x, {2}, vec({2, 4}), vec({10, 20}), 0);
      },
      mat({1, 3, -5, -5.5f}, {2, 2})));
  EXPECT_TRUE(same(got, {8, 24, 12, 16})) << got[0] << " " << got[3];
  EXPECT_EQ(values(apply([](const Tensor& x) { return layer_norm(x, {3}); }, full({2, 3}, 7.0))),
            Floats(6, 0.0f));
  EXPECT_TRUE(same(values(apply([](const Tensor& x) { return rms_norm(x, {2}, {}, 0); }, vec({3, 4}))),
                   {3 / std::sqrt(12.5f), 4 / std::sqrt(12.5f)}));
  EXPECT_EQ(rms_norm(vec({0x1p-11f}), {1}).item(), rms_norm(vec({0x1p-11f}), {1}, {}, 0x1p-23).item());
}

TEST(Halves, AreNormalisedInF32) {
  const Tensor big = vec({300, 400}).to(DType::f16);
  EXPECT_NEAR(values(rms_norm(big, {2}, {}, 0))[0], 300 / std::sqrt(125000.0), 1e-3);
  EXPECT_TRUE(same(values(layer_norm(vec({-300, 300}).to(DType::f16), {2})), {-1, 1}));
  const Tensor p = softmax(zeros({1, 400}, {DType::bf16}), 1);
  EXPECT_EQ(p.dtype(), DType::bf16);
  EXPECT_NEAR(values(p)[0], 1 / 400.0, 1e-5);
  EXPECT_EQ(layer_norm(big, {2}, vec({1, 1})).dtype(), DType::f32);
  EXPECT_EQ(l1_loss(full({1000}, 300.0, {DType::f16}), zeros({1000}, {DType::f16})).item(), 300);
}

TEST_P(Functional, Activations) {
  const Tensor x = vec({-100, -1, 0, 1, 100, NAN});
  const float n = NAN;
  EXPECT_TRUE(same(values(apply([](const Tensor& t) { return relu(t); }, x)), {0, 0, 0, 1, 100, n}));
  EXPECT_TRUE(
      same(values(apply([](const Tensor& t) { return gelu(t); }, x)), {0, -0.158655f, 0, 0.841345f, 100, n}));
  EXPECT_TRUE(same(values(apply([](const Tensor& t) { return softplus(t); }, x)),
                   {0, 0.313262f, 0.693147f, 1.313262f, 100, n}));
  EXPECT_TRUE(
      same(values(apply([](const Tensor& t) { return silu(t); }, x)), {0, -0.268941f, 0, 0.731059f, 100, n}));
}

INSTANTIATE_TEST_SUITE_P(Modes, Functional, ::testing::Values(Mode::eager, Mode::reference, Mode::native),
                         [](const auto& info) {
                           return info.param == Mode::eager       ? "eager"
                                  : info.param == Mode::reference ? "reference"
                                                                  : "native";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
