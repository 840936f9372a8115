// SPDX-License-Identifier: Apache-2.0
// Backward, eager and inside a compiled callable: accumulation, hooks, in-place writes, leaf rules, and the
// gradients of every composite against central differences.
#include <cmath>
#include <functional>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

enum class Mode { eager, reference, native };

/// Tests that hold eagerly and compiled alike: run() calls `f`, or its compiled form twice on fresh state.
class Autograd : public ::testing::TestWithParam<Mode> {
 protected:
  template <typename F>
  void run(F f) {
    if (GetParam() == Mode::eager) return f();
    CompileOptions o;
    o.backend = GetParam() == Mode::native ? Backend::native : Backend::reference;
    auto compiled = compile(f, o);
    compiled();
    compiled();
    EXPECT_EQ(compiled.stats().builds.size(), 1u);
  }
};

TEST_P(Autograd, AccumulatesAndClears) {
  Tensor w, g1, g2;
  run([&] {
    w = vec({1, 2}, true);
    sum(w * w).backward();
    g1 = w.grad() * 1.0;
    sum(w * 3.0).backward();
    g2 = w.grad() * 1.0;
    w.set_grad({});
    sum(w).backward();
  });
  EXPECT_EQ(values(g1), (Floats{2, 4}));
  EXPECT_EQ(values(g2), (Floats{5, 7}));
  EXPECT_EQ(values(w.grad()), (Floats{1, 1}));
}

TEST_P(Autograd, LeavesDoNotShareAGradient) {
  Tensor w, v;
  run([&] {
    w = vec({1, 2}, true);
    v = vec({3, 4}, true);
    sum((w + v) * 2.0).backward();
    sum(w * 3.0).backward();
  });
  EXPECT_EQ(values(w.grad()), (Floats{5, 5}));
  EXPECT_EQ(values(v.grad()), (Floats{2, 2}));
}

TEST_P(Autograd, HooksStayWithWhatTheTensorHeld) {
  Tensor w;
  std::vector<Floats> seen;
  run([&] {
    seen.clear();
    w = vec({1, 2}, true);
    Tensor y = w * 2.0;
    y.register_hook([&](const Tensor& g) {
      seen.push_back(values(g));
      return Tensor();
    });
    y.mul_(3.0);
    sum(y * 5.0).backward();
  });
  EXPECT_EQ(seen, (std::vector<Floats>{{15, 15}}));
  EXPECT_EQ(values(w.grad()), (Floats{30, 30}));
}

TEST_P(Autograd, SeedGradient) {
  Tensor w;
  run([&] {
    w = vec({1, 2}, true);
    (w * w).backward(vec({10, 100}));
  });
  EXPECT_EQ(values(w.grad()), (Floats{20, 400}));
}

TEST_P(Autograd, ViewsExpandWhereCat) {
  Tensor x, y, z;
  run([&] {
    x = mat({1, 2, 3, 4, 5, 6}, {2, 3}, true);
    y = vec({1, 2, 3}, true);
    z = vec({5}, true);
    const Tensor rows = slice(transpose(x, 0, 1), 0, 0, 3, 2);  // columns 0 and 2
    const Tensor wide = expand(z, {2, 3});
    const Tensor mixed = where(gt(x, 3), x * y, wide);
    sum(cat({rows.reshape({-1}), mixed.reshape({-1}), flip(y, {0})}) * cat({arange(10).to(DType::f32), y}))
        .backward();
  });
  // positions: rows 0..3 by 0..3, mixed 4..9 by 4..9, flipped y by y
  EXPECT_EQ(values(x.grad()), (Floats{0, 0, 2, 1 + 7, 16, 3 + 27}));
  EXPECT_EQ(values(z.grad()), (Floats{4 + 5 + 6}));
  EXPECT_EQ(values(y.grad()), (Floats{28 + 6, 40 + 4, 54 + 2}));
}

TEST_P(Autograd, CopyIntoASliceTakesOverItsGradient) {
  Tensor x, y;
  run([&] {
    x = vec({1, 2, 3, 4, 5}, true);
    y = vec({10, 20}, true);
    Tensor c = x * 1.0;
    slice(c, 0, 0, 2).copy_(y);
    sum(c).backward();
  });
  EXPECT_EQ(values(x.grad()), (Floats{0, 0, 1, 1, 1}));
  EXPECT_EQ(values(y.grad()), (Floats{1, 1}));
}

TEST_P(Autograd, WritesThroughViewsReachBaseAndOtherViews) {
  Tensor w, x;
  run([&] {
    w = vec({2, 3}, true);
    x = zeros({2, 2});
    const Tensor flat = view(x, {4});
    select(x, 0, 1).copy_(w * w);  // x has no history before
    Tensor last = narrow(flat, 0, 3, 1);
    last.mul_(10.0);
    sum(flat * vec({1, 2, 3, 4})).backward();
  });
  EXPECT_EQ(values(x), (Floats{0, 0, 4, 90}));
  EXPECT_EQ(values(w.grad()), (Floats{3 * 4, 40 * 6}));
}

TEST_P(Autograd, CopyFromALeafAndBackwardThroughTheTarget) {
  Tensor w;
  run([&] {
    w = vec({2, 3}, true);
    Tensor a = zeros({2});
    a.copy_(w);
    Tensor b = a * a;
    b.mul_(2.0);
    sum(b).backward();
  });
  EXPECT_EQ(values(w.grad()), (Floats{8, 12}));
}

TEST_P(Autograd, WritesUnderNoGradLeaveHistoryAlone) {
  Tensor w;
  run([&] {
    w = vec({2, 3}, true);
    Tensor a = w * 5.0, source = w * 7.0;
    {
      NoGrad guard;
      select(a, 0, 0).fill_(1);
      select(a, 0, 1).copy_(select(source, 0, 1));
    }
    sum(a + w).backward();
  });
  EXPECT_EQ(values(w.grad()), (Floats{6, 6}));
}

TEST_P(Autograd, InPlaceProductsKeepWhatTheirDerivativeReads) {
  Tensor w;
  run([&] {
    w = vec({2, 3}, true);
    Tensor a = w * 5.0, b = ones({2});
    a.mul_(w);
    select(b, 0, 1).mul_(select(w, 0, 0));
    b.mul_(b);
    sum(a + b).backward();
  });
  EXPECT_EQ(values(w.grad()), (Floats{20 + 4, 30}));
}

TEST_P(Autograd, WritesThroughDetachedViewsLeaveHistoryAlone) {
  Tensor w, seen;
  run([&] {
    w = vec({2, 3}, true);
    Tensor a = w * 5.0;
    Tensor d = a.detach();
    select(d, 0, 0).fill_(100);  // straight through: the value of a, the gradient of w * 5
    d.mul_(select(w, 0, 1));     // the gradient of d's own history, which a does not have
    seen = a * 1.0;
    sum(a + d).backward();
  });
  EXPECT_EQ(values(seen), (Floats{300, 45}));
  EXPECT_EQ(values(w.grad()), (Floats{5, 5 + 100 + 15}));
}

TEST_P(Autograd, DetachedViewOfALeafCanBeWritten) {
  Tensor w;
  run([&] {
    w = vec({2, 3}, true);
    w.detach().mul_(10.0);
    sum(w * w).backward();
  });
  EXPECT_EQ(values(w), (Floats{20, 30}));
  EXPECT_EQ(values(w.grad()), (Floats{40, 60}));
}

TEST_P(Autograd, NoGradAndDetach) {
  Tensor w;
  bool plain = true;
  run([&] {
    w = vec({2}, true);
    Tensor cut = (w * 3.0).detach();
    plain = plain && !cut.requires_grad();
    {
      NoGrad guard;
      plain = plain && !(w * 2.0).requires_grad();
    }
    plain = plain && grad_enabled() && !gt(w, 0).requires_grad();
    sum(w * cut).backward();
  });
  EXPECT_TRUE(plain);
  EXPECT_EQ(values(w.grad()), (Floats{6}));
}

TEST_P(Autograd, HooksRunInOrderAndCanBeRemoved) {
  std::string order;
  Tensor w;
  run([&] {
    order.clear();
    w = vec({1}, true);
    Tensor y = w * 2.0;
    y.register_hook([&](const Tensor& g) { return order += "a", g * 10.0; });
    HookHandle removed = y.register_hook([&](const Tensor& g) { return order += "x", g * 1000.0; });
    y.register_hook([&](const Tensor& g) { return order += "b", g + 1.0; });
    w.register_hook([&](const Tensor&) { return order += "w", Tensor(); });
    removed.remove();
    removed.remove();
    sum(y).backward();
  });
  EXPECT_EQ(order, "abw");
  EXPECT_EQ(values(w.grad()), (Floats{22}));
}

TEST_P(Autograd, LeavesMadeInside) {
  Tensor leaf;
  run([&] {
    leaf = vec({3}) * 1.0;
    leaf.requires_grad_();
    sum(leaf * leaf).backward();
  });
  EXPECT_EQ(values(leaf.grad()), (Floats{6}));
}

TEST_P(Autograd, FreezingInTheMiddleIsSeen) {
  Tensor w = vec({3}, true), v = vec({4}, true);
  run([&] {
    w.requires_grad_(true);
    w.set_grad({});
    v.set_grad({});
    Tensor a = w * v;
    w.requires_grad_(false);
    Tensor b = w * v;
    sum(a + b).backward();
    w.requires_grad_(true);
  });
  EXPECT_EQ(values(w.grad()), (Floats{4}));
  EXPECT_EQ(values(v.grad()), (Floats{6}));
}

INSTANTIATE_TEST_SUITE_P(Modes, Autograd, ::testing::Values(Mode::eager, Mode::reference, Mode::native),
                         [](const auto& info) {
                           return info.param == Mode::eager       ? "eager"
                                  : info.param == Mode::reference ? "reference"
                                                                  : "native";
                         });

TEST(Backward, Errors) {
  Tensor w = vec({1, 2}, true);
  EXPECT_ERROR((w * 2.0).backward(),
               "invalid: backward (@): the tensor is f32[2], not a scalar (pass its gradient)");
  EXPECT_ERROR(vec({1}).backward(), "invalid: backward (@): f32[1] does not require grad");
  EXPECT_ERROR((w * 2.0).backward(vec({1})),
               "invalid: backward (@): gradient has another type; got f32[1], expected f32[2]");
  EXPECT_ERROR(ids({1}).requires_grad_(),
               "invalid: requires_grad_ (@): only floating tensors have gradients, got i64[1]");
  EXPECT_ERROR((w * 2.0).requires_grad_(),
               "invalid: requires_grad_ (@): f32[2] is not a leaf (use detach())");
  EXPECT_ERROR(w.set_grad(vec({1})), "invalid: set_grad (@): got f32[1], expected f32[2]");
  EXPECT_ERROR(vec({1}).register_hook([](const Tensor& g) { return g; }),
               "invalid: register_hook (@): f32[1] does not require grad");
}

TEST(Backward, ConsumesTheGraphUnlessRetained) {
  Tensor w = vec({3}, true), y = w * w;
  y.backward({}, true);
  y.backward({}, true);
  EXPECT_EQ(values(w.grad()), (Floats{12}));
  y.backward();
  EXPECT_ERROR(y.backward(),
               "invalid: backward (@): the graph was already consumed by a backward (pass retain_graph=true "
               "to the first)");
  EXPECT_ERROR(sum(y + w).backward(),
               "invalid: backward (@): the graph was already consumed by a backward (pass retain_graph=true "
               "to the first)");
}

TEST(Backward, InPlaceAfterSaveIsAnError) {
  Tensor w = vec({3}, true), a = w * 2.0;
  Tensor y = a * a;
  a.mul_(5.0);
  const std::string text = error_of([&] { sum(y).backward(); });
  EXPECT_TRUE(text.starts_with("invalid: backward: a tensor f32[1] needed by the op at autograd_test.cpp:"))
      << text;
  EXPECT_TRUE(text.ends_with("was changed in place after that op (clone it first)")) << text;
  Tensor e = exp(w * 1.0);
  e.add_(w);
  EXPECT_NE(error_of([&] { sum(e).backward(); }), "no error");
  Tensor s = w + 1.0;  // nothing saved: no error
  s.mul_(2.0);
  sum(s).backward();
  EXPECT_EQ(values(w.grad()), (Floats{2}));
}

TEST(Backward, OpWithoutDerivativeNamesItsLine) {
  Tensor w = vec({1, 2}, true);
  EXPECT_FALSE(argmax(w, 0).requires_grad());
  Tensor p = prod(w);
  if (const std::string text = error_of([&] { p.backward(); }); text != "no error")
    EXPECT_TRUE(text.starts_with("unsupported: backward through prod (autograd_test.cpp:")) << text;
  else EXPECT_EQ(values(w.grad()), (Floats{2, 1}));
}

TEST(Backward, HookResultOfAnotherTypeIsAnError) {
  Tensor w = vec({1, 2}, true), y = w * 1.0;
  y.register_hook([](const Tensor&) { return zeros({3}); });
  EXPECT_EQ(error_of([&] { sum(y).backward(); }), "invalid: hook: returned f32[3] for a gradient of f32[2]");
  Tensor v = vec({1, 2}, true);
  v.register_hook([](const Tensor&) { return zeros({3}); });
  EXPECT_EQ(error_of([&] { sum(v).backward(); }), "invalid: hook: returned f32[3] for a gradient of f32[2]");
}

// Central differences of sum(f(x) * weights), in f64.

Tensor spread(Sizes sizes, double from, double step) {
  int64_t n = 1;
  for (int64_t d : sizes) n *= d;
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(from + step * std::fmod(static_cast<double>(i) * 0.618, 1.0));
  return Tensor::from_vector(v, std::move(sizes));
}

using Fn = std::function<Tensor(const std::vector<Tensor>&)>;
struct Composite {
  const char* name;
  Fn fn;
  std::vector<Sizes> shapes;
};

double weighted(const Composite& c, const std::vector<Tensor>& in) {
  NoGrad guard;
  const Tensor y = c.fn(in);
  return sum(y * spread(y.sizes(), 0.5, 1)).item();
}

class Composites : public ::testing::TestWithParam<Composite> {};

TEST_P(Composites, MatchCentralDifferences) {
  const Composite& c = GetParam();
  std::vector<Tensor> in;
  for (const Sizes& s : c.shapes)
    in.push_back(spread(s, -1, 2.1 + 0.1 * static_cast<double>(in.size())).requires_grad_());
  const Tensor y = c.fn(in);
  sum(y * spread(y.sizes(), 0.5, 1)).backward();
  constexpr double kStep = 1e-5;
  for (Tensor& x : in) {
    ASSERT_TRUE(x.grad().defined());
    const std::vector<double> got = doubles(x.grad());
    const std::vector<double> at = doubles(x);
    const auto moved = [&](size_t i, double step) {
      std::vector<double> v = at;
      v[i] += step;
      NoGrad guard;
      x.copy_(Tensor::from_vector(v, x.sizes()));
      return weighted(c, in);
    };
    for (size_t i = 0; i < got.size(); ++i) {
      const double up = moved(i, kStep), down = moved(i, -kStep);
      EXPECT_NEAR(got[i], (up - down) / (2 * kStep), 1e-7 * (1 + std::abs(got[i])))
          << c.name << " element " << i;
    }
    moved(0, 0);
  }
}

using In = const std::vector<Tensor>&;
const Tensor kTargets = Tensor::from_vector(std::vector<int64_t>{1, -100, 0}, {3});
const Composite kComposites[] = {
    {"relu", [](In x) { return relu(x[0]); }, {{7}}},
    {"gelu", [](In x) { return gelu(x[0]); }, {{7}}},
    {"gelu_tanh", [](In x) { return gelu(x[0], GeluApproximate::tanh); }, {{7}}},
    {"silu", [](In x) { return silu(x[0]); }, {{7}}},
    {"leaky_relu", [](In x) { return leaky_relu(x[0], 0.1); }, {{7}}},
    {"softplus", [](In x) { return softplus(x[0] * 20.0, 2, 20); }, {{7}}},
    {"softmax", [](In x) { return softmax(x[0], 0); }, {{3, 4}}},
    {"log_softmax", [](In x) { return log_softmax(x[0], -1); }, {{3, 4}}},
    {"layer_norm",
     [](In x) {
       return layer_norm(x[0], {2, 3}, x[1], x[2]);
     },
     {{2, 2, 3}, {2, 3}, {2, 3}}},
    {"rms_norm", [](In x) { return rms_norm(x[0], {3}, x[1]); }, {{2, 3}, {3}}},
    {"linear", [](In x) { return linear(x[0], x[1], x[2]); }, {{2, 2, 3}, {4, 3}, {4}}},
    {"embedding",
     [](In x) {
       return embedding(ids({2, 0, 2}), x[0]);
     },
     {{3, 2}}},
    {"attention",
     [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2]); },
     {{2, 3, 4}, {2, 5, 4}, {2, 5, 2}}},
    {"attention_causal",
     [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, {.is_causal = true}); },
     {{3, 2}, {3, 2}, {3, 2}}},
    {"attention_mask",
     [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); },
     {{2, 2}, {3, 2}, {3, 2}, {2, 3}}},
    {"attention_gqa",
     [](In x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, {.enable_gqa = true}); },
     {{4, 2, 3}, {2, 2, 3}, {2, 2, 3}}},
    {"cross_entropy",
     [](In x) { return cross_entropy(x[0], kTargets, x[1], {.label_smoothing = 0.1}); },
     {{3, 4}, {4}}},
    {"cross_entropy_probs", [](In x) { return cross_entropy(x[0], x[1]); }, {{2, 3}, {2, 3}}},
    {"nll_loss", [](In x) { return nll_loss(x[0], kTargets); }, {{3, 2}}},
    {"mse_loss", [](In x) { return mse_loss(x[0], x[1]); }, {{2, 3}, {2, 3}}},
    {"l1_loss", [](In x) { return l1_loss(x[0], x[1], Reduction::sum); }, {{2, 3}, {2, 3}}},
    {"var", [](In x) { return var(x[0], {1}); }, {{3, 4}}},
    {"logsumexp", [](In x) { return logsumexp(x[0], {0}); }, {{3, 4}}},
    {"matmul", [](In x) { return matmul(x[0], x[1]); }, {{2, 1, 3, 2}, {3, 2, 4}}},
    {"outer", [](In x) { return outer(x[0], x[1]); }, {{3}, {2}}},
    {"tril", [](In x) { return tril(x[0], 1) + triu(x[0], 1); }, {{3, 4}}},
    {"scatter_add",
     [](In x) {
       return scatter_add(x[0], 0, ids({1, 1, 0}), x[1]);
     },
     {{3}, {3}}},
    {"index_add",
     [](In x) {
       return index_add(x[0], 0, ids({2, 2}), x[1]);
     },
     {{3, 2}, {2, 2}}},
    {"gather",
     [](In x) {
       return gather(x[0], 0, ids({1, 1, 2}));
     },
     {{3}}},
    {"clamp", [](In x) { return clamp(x[0], -0.5, 0.5); }, {{7}}},
    {"pow", [](In x) { return pow(exp(x[0]), x[1]); }, {{5}, {5}}},
    {"amax", [](In x) { return amax(x[0], {1}); }, {{3, 4}}},
    {"atan2", [](In x) { return atan2(x[0], x[1] + 2.0); }, {{5}, {5}}},
};
INSTANTIATE_TEST_SUITE_P(All, Composites, ::testing::ValuesIn(kComposites),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AutogradEager, ALongHistoryIsDropped) {
  const Tensor x = vec({1}, true);
  Tensor total = vec({0});
  for (int i = 0; i < 300000; ++i) total = total + x;
  const Tensor kept = total * 2.0;
  total = Tensor();
  EXPECT_EQ(kept.item(), 600000);
}

}  // namespace KILN_FILE
}  // namespace kiln
