// SPDX-License-Identifier: Apache-2.0
// Backward outside the callable: several forwards in flight, retained graphs, hooks, changed parameters.
#include "frontend/outer.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

class Outer : public ::testing::TestWithParam<Backend> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    o.backend = GetParam();
    return o;
  }
};

TEST_P(Outer, TwoForwardsBeforeTwoBackwards) {
  Tensor w = vec({1, 2}, true);
  auto f = compile([&](const Tensor& x) { return sum(exp(w * x)); }, options());
  const Tensor a = f(vec({1, 0})), b = f(vec({0, 1}));
  EXPECT_TRUE(a.requires_grad() && !a.is_leaf());
  a.backward();
  EXPECT_NEAR(values(w.grad())[0], std::exp(1), 1e-5);
  EXPECT_EQ(values(w.grad())[1], 0);
  b.backward();
  EXPECT_NEAR(values(w.grad())[1], std::exp(2), 1e-5);
  EXPECT_EQ(f.stats().builds.size(), 1u);
}

TEST_P(Outer, ArgumentsGetAHistoryInPlace) {
  Tensor w = vec({2, 3}, true);
  auto f = compile(
      [&](Tensor buffer) {
        select(buffer, 0, 1).copy_(select(w * w, 0, 0));
        return Tensor(buffer);
      },
      options());
  for (int call = 0; call < 3; ++call) {
    w.set_grad({});
    const Tensor plain = zeros({2}), made = w * 10.0;
    f(plain);
    f(made);
    EXPECT_TRUE(plain.requires_grad() && !plain.is_leaf());
    sum(plain * 2.0 + made).backward();
    EXPECT_EQ(values(made), (Floats{20, 4}));
    EXPECT_EQ(values(w.grad()), (Floats{8 + 10 + 4, 0}));
  }
  EXPECT_EQ(f.stats().builds.size(), 2u);
}

TEST_P(Outer, ResultsOfAStepThatMovedTheirParametersAreValues) {
  Tensor w = vec({2, 3}, true), v = vec({1, 1}, true);
  optim::SGD sgd({w, v}, {.lr = 0.5});
  auto f = compile(
      [&] {
        const Tensor loss = sum(w * w * v);
        sgd.step();  // by the gradients of the call before
        return loss;
      },
      options());
  EXPECT_EQ(f().item(), 13);
  w.set_grad(vec({1, 1}));
  const Tensor loss = f();
  EXPECT_EQ(values(w), (Floats{1.5f, 2.5f}));
  EXPECT_EQ(loss.item(), 13);
  EXPECT_ERROR(
      loss.backward(),
      "invalid: backward (@): needs the value that f32[2] had before the compiled callable changed it in "
      "place (call backward before that, or clone it first)");
  EXPECT_FALSE(v.grad().defined());
}

TEST_P(Outer, RetainGraph) {
  Tensor w = vec({3}, true);
  auto f = compile([&] { return w * w; }, options());
  Tensor y = f();
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(values(w.grad()), (Floats{12}));
  EXPECT_ERROR(y.backward(),
               "invalid: backward (@): the graph was already consumed by a backward (pass retain_graph=true "
               "to the first)");
}

TEST_P(Outer, GoesOnInEagerCode) {
  Tensor w = vec({1, 2}, true), before = vec({3, 4}, true);
  auto f = compile([&](const Tensor& x) { return w * x; }, options());
  for (int i = 0; i < 2; ++i) {
    w.set_grad({});
    before.set_grad({});
    const Tensor x = before * 2.0;
    sum(square(f(x)) + before).backward();
    EXPECT_EQ(values(w.grad()), (Floats{2 * 1 * 36, 2 * 2 * 64}));
    EXPECT_EQ(values(before.grad()), (Floats{2 * 6 * 1 * 2 + 1, 2 * 16 * 2 * 2 + 1}));
  }
}

TEST_P(Outer, PartialOutputs) {
  Tensor w = vec({2}, true), v = vec({5}, true);
  auto f = compile(
      [&] {
        Tensor a = w * w, b = v * 3.0, c = a * b;
        return std::vector<Tensor>{a, b, c};
      },
      options());
  auto y = f();
  y[0].backward();
  EXPECT_EQ(values(w.grad()), (Floats{4}));
  EXPECT_FALSE(v.grad().defined());
  w.set_grad({});
  y = f();
  (y[1] + y[2]).backward();
  EXPECT_EQ(values(w.grad()), (Floats{4 * 15}));
  EXPECT_EQ(values(v.grad()), (Floats{3 + 4 * 3}));
  EXPECT_EQ(f.stats().builds.size(), 1u);
}

TEST_P(Outer, ParameterChangedInBetweenIsAnError) {
  Tensor w = vec({2}, true);
  w.set_name("w");
  auto f = compile([&] { return w * w; }, options());
  Tensor y = f();
  {
    NoGrad guard;
    w.mul_(2.0);
  }
  EXPECT_ERROR(y.backward(),
               "invalid: backward (@): f32[1] 'w' was changed in place after the compiled forward read it "
               "(clone it first)");
  y = f();
  y.backward();
  EXPECT_EQ(values(w.grad()), (Floats{8}));
}

TEST_P(Outer, HooksOnParametersAndResults) {
  Tensor w = vec({2}, true);
  int calls = 0;
  w.register_hook([&](const Tensor& g) { return ++calls, g * 10.0; });
  auto f = compile([&] { return w * 3.0; }, options());
  Tensor y = f();
  y.register_hook([](const Tensor& g) { return g + 1.0; });
  y.backward();
  EXPECT_EQ(values(w.grad()), (Floats{60}));
  EXPECT_EQ(calls, 1);
  Tensor x = w * 1.0;
  int seen = 0;
  x.register_hook([&](const Tensor&) { return ++seen, Tensor(); });
  auto g = compile([](const Tensor& t) { return t * 2.0; }, options());
  g(x).backward();
  EXPECT_EQ(seen, 1) << "a hook on an operand with history runs once";
}

TEST_P(Outer, HooksMadeInside) {
  Tensor w = vec({2}, true);
  auto f = compile(
      [&](bool inner) {
        Tensor a = w * 3.0;
        if (inner) a.register_hook([](const Tensor& g) { return g * 100.0; });
        Tensor y = a * 1.0;
        if (!inner) y.register_hook([](const Tensor& g) { return g * 10.0; });
        return y;
      },
      options());
  for (int i = 0; i < 2; ++i) {
    w.set_grad({});
    f(false).backward();
    EXPECT_EQ(values(w.grad()), (Floats{30}));
    f(true).backward();
    EXPECT_EQ(values(w.grad()), (Floats{330}));
  }
}

TEST_P(Outer, HookAfterAWriteToAHookedTensorIsAnError) {
  Tensor w = vec({2}, true);
  auto f = compile(
      [&] {
        Tensor a = w * 3.0;
        a.register_hook([](const Tensor& g) { return g * 2.0; });
        a.mul_(2.0);
        a.register_hook([](const Tensor& g) { return g * 5.0; });
        return a;
      },
      options());
  EXPECT_NE(error_of([&] { f(); })
                .find(": f32[1] was written in place after a hook was added to it (add all "
                      "hooks before the write, or hook a copy)"),
            std::string::npos);
}

TEST_P(Outer, BackwardThatLeavesTheTraceNeedsARunPoint) {
  Tensor w = vec({2}, true);
  CompileOptions o = options();
  o.full_graph = true;
  auto f = compile([&](const Tensor& h) { sum(h * w).backward(); }, o);
  const std::string text = error_of([&] { f(w * 2.0); });
  EXPECT_TRUE(text.ends_with(
      "f32[] depends on a tensor with a history made outside the compiled callable; to go on there is a host "
      "read, which full_graph forbids (detach that tensor, or make it inside)"))
      << text;
  f(vec({4}));
  EXPECT_EQ(values(w.grad()), (Floats{4}));
  CompileOptions frozen = options();
  frozen.frozen = true;
  frozen.name = "ice";
  auto g = compile([&](const Tensor& h) { sum(h * w).backward(); }, frozen);
  EXPECT_EQ(error_of([&] { g(w * 2.0); }),
            "unsupported: ice: a frozen callable cannot have a backward that leaves it");
}

TEST_P(Outer, TrainsLikeEager) {
  auto train = [&](bool compiled) {
    manual_seed(5);
    nn::Linear m(3, 2);
    auto fn = [&](const Tensor& x) { return mse_loss(gelu(m(x)), ones({4, 2})); };
    auto f = compile(fn, options());
    for (int i = 0; i < 4; ++i) {
      m.zero_grad();
      const Tensor x = mat({1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3.0f * i}, {4, 3});
      (compiled ? f(x) : fn(x)).backward();
      NoGrad guard;
      for (Tensor p : m.parameters()) p.add_(p.grad(), -0.01);
    }
    if (compiled) {
      EXPECT_EQ(f.stats().builds.size(), 1u);
    }
    return values(m.weight);
  };
  const Floats a = train(false), b = train(true);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

TEST_P(Outer, AfterAHostRead) {
  Tensor w = vec({2}, true);
  auto f = compile(
      [&] {
        Tensor a = exp(w);
        return a.item() > 1 ? a * w : a;
      },
      options());
  for (int i = 0; i < 2; ++i) {
    w.set_grad({});
    f().backward();
    EXPECT_NEAR(values(w.grad())[0], std::exp(2) * 3, 1e-4);
  }
}

TEST_P(Outer, DropoutSavesItsMask) {
  Tensor x = ones({100}, {DType::f32, true});
  auto f = compile([](const Tensor& t) { return dropout(t, 0.5); }, options());
  const Tensor a = f(x), b = f(x);
  sum(a).backward();
  EXPECT_EQ(values(x.grad()), values(a));
  x.set_grad({});
  sum(b).backward();
  EXPECT_EQ(values(x.grad()), values(b));
  EXPECT_NE(values(a), values(b));
}

/// What `fn` keeps for its backward, in bytes.
template <typename F>
int64_t saved_by(F fn, const CompileOptions& options) {
  auto f = compile(fn, options);
  const auto y = f();
  return f.stats().builds.at(0).saved_bytes;
}

TEST_P(Outer, KeepsWhatCannotBeRepeatedCheaply) {
  Tensor x = ones({8, 16}, {DType::f32, true}), w = ones({16, 32}, {DType::f32, true});
  const auto o = options();
  EXPECT_EQ(saved_by([&] { return sum(square(sin(x))); }, o), 0) << "x stays, all else follows from it";
  EXPECT_EQ(saved_by([&] { return sum(gelu(x)); }, o), 8 * 16 * 4) << "a copy: an eager tape holds no x";
  EXPECT_EQ(saved_by([&] { return sum(gelu(matmul(x, w))); }, o), 8 * 32 * 4)
      << "one of several intermediates";
  EXPECT_EQ(saved_by([&] { return sum(relu(matmul(x, w))); }, o), 8 * 32) << "a mask, inside the derivative";
  EXPECT_EQ(saved_by([&] { return sum(dropout(x, 0.5)); }, o), 0) << "drawn again from seed and offset";
  EXPECT_EQ(saved_by(
                [&] {
                  const Tensor h = matmul(x, w);
                  return std::vector<Tensor>{h, sum(gelu(h))};
                },
                o),
            0)
      << "the caller holds h anyway";
}

TEST_P(Outer, RepeatedOpsGiveTheSameNumbers) {
  Tensor x = rand({8, 16}), w = rand({16, 32}), v = rand({32});
  for (Tensor* t : {&x, &w, &v}) t->requires_grad_();
  const auto loss = [&] { return sum(dropout(softmax(gelu(matmul(x, w) + v), -1), 0.25) * v); };
  auto inside = compile([&] { loss().backward(); }, options());
  auto outside = compile(loss, options());
  std::vector<Floats> grads[2];
  for (int i = 0; i < 2; ++i) {
    manual_seed(3);
    for (Tensor* t : {&x, &w, &v}) t->set_grad({});
    if (i == 0) inside();
    else outside().backward();
    for (Tensor* t : {&x, &w, &v}) grads[i].push_back(values(t->grad()));
  }
  for (size_t i = 0; i < grads[0].size(); ++i)
    for (size_t j = 0; j < grads[0][i].size(); ++j)
      EXPECT_NEAR(grads[0][i][j], grads[1][i][j], GetParam() == Backend::reference ? 0 : 1e-6);
}

TEST_P(Outer, ChangedExternalsAreErrorsOnlyWhereEagerHasThem) {
  Tensor w = vec({1}, true), b = vec({2});
  auto f = compile([&] { return exp(w * b) * b; }, options());
  const auto change = [](Tensor& t) {
    NoGrad guard;
    t.add_(ones({1}));
  };
  Tensor y = f();
  change(w);
  y.backward();  // the derivative needs exp(w * b) and b
  EXPECT_NEAR(values(w.grad())[0], 4 * std::exp(2), 1e-4);
  y = f();
  change(b);
  EXPECT_ERROR(y.backward(),
               "invalid: backward (@): f32[1] was changed in place after the compiled forward read it (clone "
               "it first)");
}

TEST_P(Outer, StateWrittenByTheForward) {
  Tensor w = vec({1, 2}, true), mean = vec({0, 0});
  auto f = compile(
      [&] {
        const Tensor y = sum(w * exp(mean)) + sum(w * cos(mean));  // kept: what mean was
        NoGrad guard;
        mean.add_(ones({2}));
        return y;
      },
      options());
  for (int i = 0; i < 3; ++i) {
    w.set_grad({});
    f().backward();
    EXPECT_NEAR(values(w.grad())[1], std::exp(i) + std::cos(i), 1e-4 * std::exp(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Outer, ::testing::Values(Backend::reference, Backend::native),
                         [](const auto& info) {
                           return info.param == Backend::native ? "native" : "reference";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
