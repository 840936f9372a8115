// SPDX-License-Identifier: Apache-2.0
// Schedules by epochs beyond the goldens: closed forms, groups, state, warnings, and mistakes.
#include "frontend/optim/lr_scheduler.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

struct Fixture {
  Fixture() : sgd({w}, {.lr = 0.1}) { step(); }
  void step() {
    w.set_grad(zeros({1}));
    sgd.step();
  }
  Tensor w = ones({1}).requires_grad_();
  SGD sgd;
};

template <typename S, typename F>
void expect_rates(S& scheduler, int n, F expected) {
  for (int e = 0; e < n; ++e) {
    EXPECT_NEAR(scheduler.optimizer().lr, expected(e), 1e-12) << e;
    EXPECT_NEAR(scheduler.get_last_lr()[0], expected(e), 1e-12) << e;
    EXPECT_EQ(scheduler.last_epoch(), e);
    scheduler.step();
  }
}

TEST(LRScheduler, ClosedForms) {
  Fixture a, b, c, d;
  ConstantLR constant(a.sgd, 0.25, 3);
  expect_rates(constant, 6, [](int e) { return e < 3 ? 0.025 : 0.1; });
  PolynomialLR polynomial(b.sgd, 4, 2);
  expect_rates(polynomial, 6, [](int e) { return 0.1 * std::pow(1 - std::min(e, 4) / 4.0, 2); });
  // Up again after the lowest point, which the goldens do not reach twice.
  CosineAnnealingLR cosine(c.sgd, 3, 0.01);
  expect_rates(cosine, 14, [](int e) { return 0.01 + 0.09 * (1 + std::cos(M_PI * e / 3)) / 2; });
  LinearLR linear(d.sgd, 0.5, 0.25, 4);
  expect_rates(linear, 7, [](int e) { return 0.1 * (0.5 - 0.25 * std::min(e, 4) / 4); });
}

TEST(LRScheduler, GroupsKeepTheirRatios) {
  Fixture f;
  Tensor v = ones({1}).requires_grad_();
  f.sgd.add_param_group({v}, {.lr = 1});
  ExponentialLR s(f.sgd, 0.5);
  s.step();
  EXPECT_EQ(s.get_last_lr(), (std::vector<double>{0.05, 0.5}));
  Fixture g;
  Tensor u = ones({1}).requires_grad_();
  g.sgd.add_param_group({u}, {.lr = 1});
  LambdaLR l(g.sgd,
             std::vector<std::function<double(int64_t)>>{
                 [](int64_t e) { return 1.0 / static_cast<double>(e + 1); }, [](int64_t) { return 2.0; }});
  l.step();
  EXPECT_EQ(l.get_last_lr(), (std::vector<double>{0.05, 2}));
}

TEST(LRScheduler, GoesOnFromARateThatWasChanged) {
  Fixture f;
  StepLR s(f.sgd, 2, 0.1);
  s.step();
  f.sgd.lr = 5;
  s.step();
  EXPECT_NEAR(f.sgd.lr, 0.5, 1e-15);
}

TEST(LRScheduler, ASecondOneKeepsTheFactorOfTheFirst) {
  Fixture f;
  LinearLR warmup(f.sgd, 0.5, 1, 4);
  EXPECT_NEAR(f.sgd.lr, 0.05, 1e-15);
  CosineAnnealingLR cosine(f.sgd, 10);
  EXPECT_NEAR(f.sgd.lr, 0.05, 1e-15);
  ConstantLR constant(f.sgd, 0.5);
  EXPECT_NEAR(f.sgd.lr, 0.025, 1e-15);
  LambdaLR whole(f.sgd, [](int64_t) { return 1.0; });  // of the first rate
  EXPECT_NEAR(f.sgd.lr, 0.1, 1e-15);
}

TEST(LRScheduler, StateGoesOnWhereItWas) {
  const auto run = [](int save_at) {
    Fixture f;
    auto s = std::make_unique<MultiStepLR>(f.sgd, std::vector<int64_t>{2, 5}, 0.5);
    for (int e = 0; e < 7; ++e) {
      if (e == save_at) {
        const NamedTensors state = s->state_dict(), optimizer = f.sgd.state_dict();
        s = std::make_unique<MultiStepLR>(f.sgd, std::vector<int64_t>{2, 5}, 0.5);
        f.sgd.load_state_dict(optimizer);
        s->load_state_dict(state);
        EXPECT_EQ(s->last_epoch(), e);
      }
      s->step();
    }
    return double{f.sgd.lr};
  };
  EXPECT_EQ(run(-1), run(3));
  EXPECT_EQ(run(-1), 0.025);
}

TEST(LRScheduler, TheInitialRateIsPartOfTheOptimizersState) {
  Fixture f, g;
  LinearLR warmup(f.sgd, 0.5, 1, 4);
  g.sgd.load_state_dict(f.sgd.state_dict());
  EXPECT_NEAR(g.sgd.lr, 0.05, 1e-15);
  LambdaLR later(g.sgd, [](int64_t) { return 1.0; });
  EXPECT_NEAR(later.get_last_lr()[0], 0.1, 1e-15);
}

TEST(LRScheduler, WarnsOnceWhenSteppedBeforeTheOptimizer) {
  Tensor w = ones({1}).requires_grad_();
  SGD sgd({w}, {});
  ExponentialLR s(sgd, 0.5);
  ::testing::internal::CaptureStderr();
  s.step(Loc("net.cpp", 42));
  s.step(Loc("net.cpp", 43));
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "kiln warning: ExponentialLR.step (net.cpp:42): called before the optimizer's first step, so the first "
      "rate of the schedule is skipped (call Optimizer::step() first)\n");
  Fixture f;
  ExponentialLR t(f.sgd, 0.5);
  ::testing::internal::CaptureStderr();
  t.step();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(LRScheduler, InsideACompiledCallableItBuildsOnce) {
  Tensor w = ones({1}, {DType::f64}).requires_grad_();
  AdamW adam({w}, {.lr = 0.1, .weight_decay = 0});
  LambdaLR s(adam, [](int64_t e) { return 1 / (1.0 + static_cast<double>(e)); });
  auto step = compile([&] {
    adam.zero_grad();
    sum(w).backward();
    adam.step();
    s.step();
  });
  for (int t = 0; t < 20; ++t) step();
  EXPECT_EQ(step.stats().builds.size(), 1u);
  double expected = 1;
  for (int t = 0; t < 20; ++t) expected -= 0.1 / (1 + t);
  EXPECT_NEAR(w.item(), expected, 1e-6);
}

TEST(ReduceLROnPlateau, HigherIsBetterAndStateIsKept) {
  Fixture f;
  const PlateauOptions o{.mode = PlateauMode::max, .factor = 0.5, .patience = 1, .cooldown = 1};
  ReduceLROnPlateau s(f.sgd, o);
  for (double m : {1.0, 2.0, 2.0, 2.0}) s.step(m);
  EXPECT_NEAR(f.sgd.lr, 0.05, 1e-15);
  ReduceLROnPlateau again(f.sgd, o);
  again.load_state_dict(s.state_dict());
  for (ReduceLROnPlateau* one : {&s, &again}) {
    f.sgd.lr = 0.05;
    one->step(1);  // cools down
    one->step(1);
    EXPECT_NEAR(f.sgd.lr, 0.05, 1e-15);
    one->step(1);
    EXPECT_NEAR(f.sgd.lr, 0.025, 1e-15);
    EXPECT_EQ(one->get_last_lr(), std::vector<double>{0.025});
  }
}

TEST(ReduceLROnPlateau, NeverBelowTheLeastRate) {
  Fixture f;
  ReduceLROnPlateau s(f.sgd, {.factor = 0.1, .patience = 0, .min_lr = 0.03});
  for (int i = 0; i < 4; ++i) s.step(1);
  EXPECT_EQ(f.sgd.lr, 0.03);
}

TEST(LRScheduler, Mistakes) {
  Fixture f;
  EXPECT_EQ(error_of([&] { StepLR(f.sgd, 0); }), "invalid: StepLR: step_size is 0, expected above 0");
  EXPECT_EQ(error_of([&] { LinearLR(f.sgd, 0); }),
            "invalid: LinearLR: start_factor is 0, expected above 0 and at most 1");
  EXPECT_EQ(error_of([&] { ConstantLR(f.sgd, 1.5); }), "invalid: ConstantLR: factor is 1.5, expected 0 to 1");
  EXPECT_EQ(error_of([&] { CosineAnnealingLR(f.sgd, 0); }),
            "invalid: CosineAnnealingLR: T_max is 0, expected above 0");
  EXPECT_EQ(error_of([&] { ReduceLROnPlateau(f.sgd, {.factor = 1}); }),
            "invalid: ReduceLROnPlateau: factor is 1, expected below 1");
  EXPECT_EQ(error_of([&] {
              ReduceLROnPlateau(f.sgd, {.min_lr = std::vector<double>{1, 2}});
            }),
            "invalid: ReduceLROnPlateau: got 2 values of min_lr for 1 groups");
  EXPECT_EQ(error_of([&] { LambdaLR(f.sgd, std::vector<std::function<double(int64_t)>>{}); }),
            "invalid: LambdaLR: got 0 functions for 1 groups");
  EXPECT_EQ(error_of([&] { LambdaLR(f.sgd, std::function<double(int64_t)>()); }),
            "invalid: LambdaLR: the function of group 0 is empty");
  ExponentialLR s(f.sgd, 0.5);
  NamedTensors state = s.state_dict();
  ASSERT_EQ(state[0].first, "base_lrs");
  state[0].second = zeros({2}, {DType::f64});
  state[1].first = "epoch";
  EXPECT_EQ(error_of([&] { s.load_state_dict(state, Loc("net.cpp", 42)); }),
            "invalid: ExponentialLR::load_state_dict (net.cpp:42): the state does not fit\n  base_lrs: got "
            "f64[2], expected f64[1]\n  unexpected: epoch f64[1]\n  missing: last_epoch f64[1]");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
