// SPDX-License-Identifier: Apache-2.0
// Schedules that rise again, beyond the goldens.
#include "frontend/optim/lr_cycle.h"

#include <cmath>

#include "frontend/optim/adagrad.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

template <typename O, typename Options>
std::unique_ptr<O> stepped(const Options& options) {
  Tensor w = ones({1}).requires_grad_();
  auto o = std::make_unique<O>(std::vector<Tensor>{w}, options);
  o->step();
  return o;
}

TEST(CosineAnnealingWarmRestarts, BetweenEpochsAndByEpochsAreTheSame) {
  const auto a = stepped<SGD>(SGDOptions{.lr = 0.1}), b = stepped<SGD>(SGDOptions{.lr = 0.1});
  for (const int factor : {1, 2, 3}) {
    CosineAnnealingWarmRestarts by_one(*a, 3, factor, 0.01), by_number(*b, 3, factor, 0.01);
    for (int e = 1; e < 30; ++e) {
      by_one.step();
      by_number.step(double(e));
      EXPECT_NEAR(a->lr, b->lr, 1e-12) << factor << " " << e;
      EXPECT_EQ(by_number.last_epoch(), e);
    }
  }
  CosineAnnealingWarmRestarts s(*a, 4);
  s.step(5.5);
  EXPECT_NEAR(a->lr, 0.1 * (1 + std::cos(M_PI * 1.5 / 4)) / 2, 1e-12);
}

TEST(CosineAnnealingWarmRestarts, StateGoesOn) {
  const auto a = stepped<SGD>(SGDOptions{.lr = 0.1});
  CosineAnnealingWarmRestarts s(*a, 2, 2), t(*a, 2, 2);
  for (int e = 0; e < 5; ++e) s.step();
  t.load_state_dict(s.state_dict());
  for (int e = 0; e < 6; ++e) {
    s.step();
    const double expected = a->lr;
    t.step();
    EXPECT_EQ(a->lr, expected);
  }
}

TEST(OneCycleLR, MovesBeta1OfAdamAndRatesOfGroups) {
  const auto a = stepped<AdamW>(AdamWOptions{});
  Tensor v = ones({1}).requires_grad_();
  a->add_param_group({v}, {});
  OneCycleLR s(*a, {.max_lr = std::vector<double>{1, 2}, .epochs = 5, .steps_per_epoch = 2});
  EXPECT_NEAR(a->options(0).beta1, 0.95, 1e-12);
  EXPECT_NEAR(a->options(1).lr, 2.0 / 25, 1e-12);
  s.step();
  s.step();
  EXPECT_NEAR(a->options(0).lr, 1, 1e-12);
  EXPECT_NEAR(a->options(1).beta1, 0.85, 1e-12);
  for (int i = 0; i < 7; ++i) s.step();
  EXPECT_NEAR(a->options(1).lr, 2.0 / 25 / 1e4, 1e-12);
  s.step();
  EXPECT_EQ(error_of([&] { s.step(Loc("net.cpp", 42)); }),
            "invalid: OneCycleLR.step (net.cpp:42): all 10 steps of the schedule have been taken");
}

TEST(CyclicLR, ModesAndMomentum) {
  const auto a = stepped<SGD>(SGDOptions{.momentum = 0.5});
  CyclicLR s(*a, {.base_lr = 0.1,
                  .max_lr = 0.5,
                  .step_size_up = 2,
                  .step_size_down = 4,
                  .mode = CyclicMode::exp_range,
                  .gamma = 0.9});
  const double share[] = {0, 0.5, 1, 0.75, 0.5, 0.25, 0, 0.5};
  for (int e = 0; e < 8; ++e) {
    const double height = share[e] * std::pow(0.9, e);
    EXPECT_NEAR(a->lr, 0.1 + 0.4 * height, 1e-12) << e;
    EXPECT_NEAR(a->options().momentum, 0.9 - 0.1 * height, 1e-12) << e;
    s.step();
  }
  CyclicLR own(*a,
               {.base_lr = 0, .max_lr = 1, .step_size_up = 1, .scale_fn = [](double c) { return 1 / c; }});
  own.step();
  EXPECT_NEAR(a->lr, 1, 1e-12);
  own.step();
  own.step();
  EXPECT_NEAR(a->lr, 0.5, 1e-12);
}

TEST(LrCycle, Mistakes) {
  const auto a = stepped<SGD>(SGDOptions{});
  const auto none = stepped<Adadelta>(AdadeltaOptions{});
  EXPECT_EQ(error_of([&] { CosineAnnealingWarmRestarts(*a, 0); }),
            "invalid: CosineAnnealingWarmRestarts: T_0 is 0, expected above 0");
  EXPECT_EQ(error_of([&] { CosineAnnealingWarmRestarts(*a, 1).step(-1.0, Loc("net.cpp", 42)); }),
            "invalid: CosineAnnealingWarmRestarts.step (net.cpp:42): epoch is -1, expected at least 0");
  EXPECT_EQ(error_of([&] { OneCycleLR(*a, {.max_lr = 1}); }),
            "invalid: OneCycleLR: got total_steps 0, epochs 0 and steps_per_epoch 0, expected the first, or "
            "both others, above 0");
  EXPECT_EQ(error_of([&] { OneCycleLR(*a, {.max_lr = 1, .total_steps = 3, .pct_start = 2}); }),
            "invalid: OneCycleLR: pct_start is 2, expected 0 to 1");
  EXPECT_EQ(error_of([&] { CyclicLR(*none, {.base_lr = 0.1, .max_lr = 1}); }),
            "invalid: CyclicLR: the optimizer has neither momentum nor beta1 (set cycle_momentum = false)");
  EXPECT_EQ(error_of([&] { CyclicLR(*a, {.base_lr = 0.1, .max_lr = 1, .step_size_up = 0}); }),
            "invalid: CyclicLR: step_size_up is 0, expected above 0");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
