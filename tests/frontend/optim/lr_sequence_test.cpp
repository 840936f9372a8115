// SPDX-License-Identifier: Apache-2.0
#include "frontend/optim/lr_sequence.h"

#include <cmath>

#include "frontend/optim/lr_cycle.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::error_of;

struct Fixture {
  Fixture() : sgd({w}, {.lr = 1}) { sgd.step(); }
  Tensor w = ones({1}).requires_grad_();
  SGD sgd;
};

std::unique_ptr<SequentialLR> warmup_then_decay(SGD& sgd) {
  const auto warmup = std::make_shared<ConstantLR>(sgd, 0.1, 2);
  const auto decay = std::make_shared<ExponentialLR>(sgd, 0.9);
  return std::make_unique<SequentialLR>(sgd, std::vector<std::shared_ptr<LRScheduler>>{warmup, decay},
                                        std::vector<int64_t>{2});
}

// The example in PyTorch's documentation of SequentialLR, with base 1.
TEST(SequentialLR, OneAfterTheOther) {
  Fixture f;
  const auto s = warmup_then_decay(f.sgd);
  for (double expected : {0.1, 0.1, 1.0, 0.9, 0.81, 0.729}) {
    EXPECT_NEAR(f.sgd.lr, expected, 1e-12);
    EXPECT_NEAR(s->get_last_lr()[0], expected, 1e-12);
    s->step();
  }
}

TEST(SequentialLR, ThreeWithRestarts) {
  Fixture f;
  const auto a = std::make_shared<LinearLR>(f.sgd, 0.5, 1, 2);
  const auto b = std::make_shared<CosineAnnealingWarmRestarts>(f.sgd, 2);
  const auto c = std::make_shared<StepLR>(f.sgd, 1, 0.5);
  SequentialLR s(f.sgd, {a, b, c}, {2, 5});
  for (double expected : {0.5, 0.75, 1.0, 0.5, 1.0, 1.0, 0.5, 0.25}) {
    EXPECT_NEAR(f.sgd.lr, expected, 1e-12) << s.last_epoch();
    s.step();
  }
}

TEST(SequentialLR, StateHasAllOfThem) {
  Fixture f, g;
  const auto s = warmup_then_decay(f.sgd), t = warmup_then_decay(g.sgd);
  for (int e = 0; e < 3; ++e) s->step();
  g.sgd.load_state_dict(f.sgd.state_dict());
  t->load_state_dict(s->state_dict());
  for (int e = 0; e < 3; ++e) {
    s->step();
    t->step();
    EXPECT_EQ(double{f.sgd.lr}, double{g.sgd.lr});
  }
}

// The example in PyTorch's documentation of ChainedScheduler, with base 1.
TEST(ChainedScheduler, FactorsMultiply) {
  Fixture f;
  ChainedScheduler s(
      {std::make_shared<ConstantLR>(f.sgd, 0.1, 2), std::make_shared<ExponentialLR>(f.sgd, 0.9)});
  Fixture g;
  const auto constant = std::make_shared<ConstantLR>(g.sgd, 0.1, 2);
  const auto decay = std::make_shared<ExponentialLR>(g.sgd, 0.9);
  for (int e = 0; e < 5; ++e) {
    EXPECT_NEAR(f.sgd.lr, (e < 2 ? 0.1 : 1) * std::pow(0.9, e), 1e-12) << e;
    EXPECT_NEAR(s.get_last_lr()[0], g.sgd.lr, 1e-12);
    s.step();
    constant->step();
    decay->step();
  }
  Fixture h;
  ChainedScheduler other(
      {std::make_shared<ConstantLR>(h.sgd, 0.1, 2), std::make_shared<ExponentialLR>(h.sgd, 0.9)});
  other.load_state_dict(s.state_dict());
  EXPECT_EQ(other.get_last_lr(), s.get_last_lr());
}

// Resuming.

using All = std::vector<std::shared_ptr<LRScheduler>>;

struct Kind {
  const char* name;
  std::function<std::shared_ptr<Scheduler>(SGD&)> make;
};

template <typename S, typename... Args>
Kind kind(const char* name, Args... args) {
  return {name, [=](SGD& o) { return std::make_shared<S>(o, args...); }};
}

std::vector<Kind> kinds() {
  const auto warm = [](SGD& o) { return std::make_shared<LinearLR>(o, 0.25, 1.0, 3); };
  return {
      kind<LambdaLR>("LambdaLR", [](int64_t e) { return 1 / (1.0 + static_cast<double>(e)); }),
      kind<StepLR>("StepLR", 4, 0.5),
      kind<MultiStepLR>("MultiStepLR", std::vector<int64_t>{2, 8}, 0.5),
      kind<ConstantLR>("ConstantLR", 0.5, 7),
      kind<LinearLR>("LinearLR", 0.25, 1.0, 8),
      kind<ExponentialLR>("ExponentialLR", 0.9),
      kind<PolynomialLR>("PolynomialLR", 9, 2.0),
      kind<CosineAnnealingLR>("CosineAnnealingLR", 10, 0.01),
      kind<CosineAnnealingWarmRestarts>("CosineAnnealingWarmRestarts", 3, 2),
      kind<OneCycleLR>("OneCycleLR", OneCycleOptions{.max_lr = 0.5, .total_steps = 20}),
      kind<CyclicLR>("CyclicLR", CyclicOptions{.base_lr = 0.1, .max_lr = 1, .step_size_up = 4}),
      {"ReduceLROnPlateau",
       [](SGD& o) {
         return std::make_shared<ReduceLROnPlateau>(o, PlateauOptions{.factor = 0.5, .patience = 1});
       }},
      {"SequentialLR",
       [=](SGD& o) {
         const All all{warm(o), std::make_shared<CosineAnnealingLR>(o, 10)};
         return std::make_shared<SequentialLR>(o, all, std::vector<int64_t>{4});
       }},
      {"SequentialLR in a cycle",
       [=](SGD& o) {
         const All all{warm(o), std::make_shared<CyclicLR>(
                                    o, CyclicOptions{.base_lr = 0.1, .max_lr = 1, .step_size_up = 4})};
         return std::make_shared<SequentialLR>(o, all, std::vector<int64_t>{9});
       }},
      {"ChainedScheduler",
       [=](SGD& o) {
         return std::make_shared<ChainedScheduler>(All{warm(o), std::make_shared<ExponentialLR>(o, 0.9)});
       }},
  };
}

void step(Scheduler& s) {
  if (auto* plateau = dynamic_cast<ReduceLROnPlateau*>(&s)) plateau->step(1);
  else if (auto* chained = dynamic_cast<ChainedScheduler*>(&s)) chained->step();
  else dynamic_cast<LRScheduler&>(s).step();
}

struct Job {
  explicit Job(const Kind& k) : sgd(groups()), kind(k) {}
  static std::vector<Tensor> params() { return {ones({1}).requires_grad_()}; }
  static std::unique_ptr<SGD> groups() {
    auto sgd = std::make_unique<SGD>(params(), SGDOptions{.lr = 0.3, .momentum = 0.9});
    sgd->add_param_group(params(), {.lr = 0.7, .momentum = 0.9});
    sgd->step();
    return sgd;
  }
  std::vector<double> numbers() const {
    std::vector<double> out = schedule->get_last_lr();
    for (size_t g = 0; g < 2; ++g)
      for (const char* name : {"lr", "momentum"}) out.push_back(sgd->get(g, name));
    return out;
  }
  void make() { schedule = kind.make(*sgd); }
  std::unique_ptr<SGD> sgd;
  const Kind& kind;
  std::shared_ptr<Scheduler> schedule;
};

// Whatever is loaded or made first, and whatever rate was set by hand: the numbers go on as they were.
TEST(Resume, EveryScheduleGoesOnInEveryOrder) {
  for (const Kind& k : kinds())
    for (const int at : {0, 1, 5, 9})
      for (const bool by_hand : {false, true})
        for (const std::string order : {"make optimizer schedule", "optimizer make schedule"}) {
          SCOPED_TRACE(fmt::format("{} at {}, {}", k.name, at, order));
          Job a(k), b(k);
          a.make();
          for (int e = 0; e < at; ++e) step(*a.schedule);
          if (by_hand) a.sgd->set(0, "lr", 0.123);
          const NamedTensors optimizer = a.sgd->state_dict(), schedule = a.schedule->state_dict();
          if (order.starts_with("make")) b.make();
          b.sgd->load_state_dict(optimizer);
          if (!order.starts_with("make")) b.make();
          b.schedule->load_state_dict(schedule);
          for (int e = 0; e < 8; ++e) {
            EXPECT_EQ(a.numbers(), b.numbers()) << "after " << e;
            step(*a.schedule);
            step(*b.schedule);
          }
        }
}

TEST(LrSequence, Mistakes) {
  Fixture f, g;
  const auto a = std::make_shared<ExponentialLR>(f.sgd, 0.9), b = std::make_shared<ExponentialLR>(f.sgd, 0.9),
             other = std::make_shared<ExponentialLR>(g.sgd, 0.9);
  EXPECT_EQ(error_of([&] { SequentialLR(f.sgd, {}, {}); }), "invalid: SequentialLR: no schedulers");
  EXPECT_EQ(error_of([&] {
              SequentialLR(f.sgd, {a, nullptr}, {1});
            }),
            "invalid: SequentialLR: scheduler 1 is null");
  EXPECT_EQ(error_of([&] {
              SequentialLR(f.sgd, {a, other}, {1});
            }),
            "invalid: SequentialLR: scheduler 1 has another optimizer than scheduler 0");
  EXPECT_EQ(error_of([&] {
              SequentialLR(g.sgd, {a, b}, {1});
            }),
            "invalid: SequentialLR: the schedulers have another optimizer");
  EXPECT_EQ(error_of([&] {
              SequentialLR(f.sgd, {a, b}, {1, 2});
            }),
            "invalid: SequentialLR: got 2 milestones for 2 schedulers, expected 1");
  EXPECT_EQ(error_of([&] {
              SequentialLR(f.sgd, {a, b, a}, {3, 2});
            }),
            "invalid: SequentialLR: the milestones [3,2] do not ascend");
  EXPECT_EQ(error_of([&] { ChainedScheduler({}); }), "invalid: ChainedScheduler: no schedulers");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
