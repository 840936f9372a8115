// SPDX-License-Identifier: Apache-2.0
// Frozen callables: replays give what the callable would give, without running it; everything that a replay
// could get wrong is an error.
#include "frontend/frozen.h"

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/optim/adam.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

class Frozen : public ::testing::TestWithParam<Backend> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    o.backend = GetParam();
    o.frozen = true;
    return o;
  }
};

TEST_P(Frozen, RunsTheCallableOnce) {
  int runs = 0;
  auto f = compile([&](const Tensor& x) { return ++runs, exp(x) * 2.0; }, options());
  const Tensor a = f(vec({0})), b = f(vec({1})), c = f(vec({2}));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(a.item(), 2);
  EXPECT_FLOAT_EQ(b.item<float>(), 2 * std::exp(1.0f));
  EXPECT_FLOAT_EQ(c.item<float>(), 2 * std::exp(2.0f));
  EXPECT_EQ(f.stats().builds.size(), 1u);
  EXPECT_EQ(f.stats().calls, 3u);
}

struct Batch {
  Tensor x, y;
};
struct Losses {
  Tensor loss;
  std::vector<Tensor> parts;
  Tensor same, none;
  int count = 0;
};

TEST_P(Frozen, TrainsLikeTheCallable) {
  auto train = [](bool frozen) {
    Tensor w = vec({0.5f, -1}, true);
    auto body = [&](const Batch& b) {
      w.set_grad({});
      const Tensor d = w * b.x - b.y, loss = mean(d * d);
      loss.backward();
      {
        NoGrad guard;
        w.add_(w.grad(), -0.1);
      }
      return Losses{loss.detach(), {d.detach()}, b.x, {}, 7};
    };
    auto step = compile(body, options());
    Floats out;
    for (int i = 0; i < 5; ++i) {
      const Batch b{vec({1.0f + i, 2}), vec({3, 0.5f * i})};
      const Losses l = frozen ? step(b) : body(b);
      EXPECT_EQ(l.same.impl(), b.x.impl());
      EXPECT_FALSE(l.none.defined());
      EXPECT_EQ(l.count, 7);
      for (const Tensor& t : {l.loss, l.parts.at(0), w, w.grad()})
        for (float v : values(t)) out.push_back(v);
    }
    return out;
  };
  const Floats a = train(false), b = train(true);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * std::max(1.0f, std::abs(a[i]))) << i;
}

TEST_P(Frozen, GradientsAddUpAndGoAsTheyWould) {
  Tensor w = vec({2}, true);
  auto clears = compile(
      [&](const Tensor& x) {
        sum(w * x).backward();
        w.set_grad({});
      },
      options());
  clears(vec({1}));
  clears(vec({2}));
  EXPECT_FALSE(w.grad().defined());
  w.set_grad(vec({100}));
  auto adds = compile([&](const Tensor& x) { sum(w * x).backward(); }, options());
  for (float v : {1.0f, 2.0f, 3.0f}) adds(vec({v}));
  EXPECT_EQ(values(w.grad()), (Floats{106}));
  w.set_grad({});
  EXPECT_EQ(error_of([&] { adds(vec({1})); }),
            "invalid: step: a gradient that the first call of this frozen callable added to is gone");
  auto first = compile([&](const Tensor& x) { sum(w * x).backward(); }, options());
  first(vec({1}));
  EXPECT_EQ(error_of([&] { first(vec({1})); }),
            "invalid: step: f32[1] has a gradient, and had none at the first call of this frozen callable "
            "(clear it "
            "before or inside each call)");
  w.set_grad({});
  first(vec({5}));
  EXPECT_EQ(values(w.grad()), (Floats{5}));
}

TEST_P(Frozen, BackwardOutside) {
  Tensor w = vec({2}, true);
  auto f = compile([&](const Tensor& x) { return w * w * x; }, options());
  const Tensor a = f(vec({1})), b = f(vec({10}));
  b.backward();
  a.backward();
  EXPECT_EQ(values(w.grad()), (Floats{44}));
}

TEST_P(Frozen, WritesArgumentsInPlace) {
  auto f = compile([](Tensor x, const Tensor& d) { x.add_(d); }, options());
  Tensor x = vec({1}), y = vec({10});
  f(x, vec({1}));
  f(y, vec({5}));
  f(x, vec({2}));
  EXPECT_EQ(values(x), (Floats{4}));
  EXPECT_EQ(values(y), (Floats{15}));
}

TEST_P(Frozen, OtherArgumentsAreErrors) {
  auto f = compile([](const Tensor& x, const Tensor& y, double s) { return x * y * s; }, options());
  const Tensor x = vec({1, 2}), y = vec({3, 4});
  f(x, y, 2.0);
  EXPECT_EQ(
      error_of([&] {
        f(vec({1, 2, 3}), y, 2.0);
      }),
      "invalid: step: tensor 0 of the arguments of this frozen callable is f32[3] with strides [1]; expected "
      "f32[2] with strides [1], and memory, gradient and hooks like at the first call");
  EXPECT_NE(error_of([&] { f(x, y.to(DType::f64), 2.0); }), "no error");
  EXPECT_NE(error_of([&] { f(x, vec({3, 4}, true), 2.0); }), "no error");
  EXPECT_EQ(
      error_of([&] { f(x, y, 3.0); }),
      "invalid: step: a host value among the arguments of this frozen callable changed since the first call "
      "(compile it without CompileOptions::frozen)");
  EXPECT_EQ(error_of([&] { f(x, x, 2.0); }),
            "invalid: step: got 2 tensors, expected 2, the same ones of them undefined or equal as at the "
            "first call "
            "of this frozen callable");
  EXPECT_NE(error_of([&] { f(x, Tensor(), 2.0); }), "no error");
  EXPECT_EQ(values(f(y, x, 2.0)), (Floats{6, 16}));
}

TEST_P(Frozen, WhatAReplayCannotRepeatIsAnError) {
  const Tensor x = vec({1, 2});
  auto reads = compile([](const Tensor& t) { return (t * 2.0).sum().item() > 0 ? t : t * 3.0; }, options());
  EXPECT_EQ(error_of([&] { reads(x); }), "unsupported: step: a frozen callable cannot have host reads");
  auto draws = compile([](const Tensor& t) { return dropout(t, 0.5); }, options());
  EXPECT_EQ(
      error_of([&] { draws(x); }),
      "unsupported: step: random numbers differ from call to call, which CompileOptions::frozen forbids");
  Tensor w = vec({1, 2}, true);
  optim::AdamW adam({w}, {});
  auto steps = compile(
      [&] {
        sum(w).backward();
        adam.step();
      },
      options());
  EXPECT_EQ(
      error_of([&] { steps(); }),
      "unsupported: step: steps of AdamW differ from call to call, which CompileOptions::frozen forbids");
  w.set_grad({});
  auto hooks = compile(
      [&] {
        Tensor y = w * 1.0;
        y.register_hook([](const Tensor& g) { return g; });
        sum(y).backward();
      },
      options());
  EXPECT_EQ(error_of([&] { hooks(); }), "unsupported: step: a frozen callable cannot have hooks");
  auto hidden = compile([](const Tensor* t) { return *t * 1.0; }, options());
  EXPECT_EQ(error_of([&] { hidden(&x); }),
            "unsupported: step: Kiln cannot look into an argument or result of this frozen callable (list "
            "its members "
            "by KILN_FIELDS)");
}

TEST_P(Frozen, InsideAnotherTraceItIsInlined) {
  auto inner = compile([](const Tensor& x) { return x * 3.0; }, options());
  CompileOptions o;
  o.backend = GetParam();
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1.0; }, o);
  EXPECT_EQ(outer(vec({2})).item(), 7);
  EXPECT_EQ(inner(vec({2})).item(), 6);
  EXPECT_EQ(inner(vec({3})).item(), 9);
}

INSTANTIATE_TEST_SUITE_P(Backends, Frozen, ::testing::Values(Backend::reference, Backend::native),
                         [](const auto& info) {
                           return info.param == Backend::native ? "native" : "reference";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
