// SPDX-License-Identifier: Apache-2.0
// The numbers of steps on the device against the host's: the functions, and every optimizer, with steps that
// are skipped, against one that never saw these.
#include "frontend/optim/number.h"

#include <cmath>
#include <functional>

#include "frontend/compile.h"
#include "frontend/optim/adagrad.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using optim::Number;
using testing::error_of;

Tensor number(double v, DType t = DType::f64) { return full({}, v, {t}); }

TEST(Number, FunctionsAreTheSameOnTheDevice) {
  const std::vector<std::pair<const char*, std::function<Number(Number, Number)>>> all = {
      {"+", [](const Number& a, const Number& b) { return a + b; }},
      {"-", [](const Number& a, const Number& b) { return a - b; }},
      {"*", [](const Number& a, const Number& b) { return a * b; }},
      {"/", [](const Number& a, const Number& b) { return a / b; }},
      {"pow", [](const Number& a, const Number& b) { return pow(a, b); }},
      {"sqrt", [](const Number& a, const Number& b) { return sqrt(a * b); }},
      {"larger", [](const Number& a, const Number& b) { return larger(a, b); }},
      {"smaller", [](const Number& a, const Number& b) { return smaller(a, b); }},
      {"equal", [](const Number& a, const Number& b) { return equal(a, b); }},
      {"less", [](const Number& a, const Number& b) { return less(a, b); }},
      {"either", [](const Number& a, const Number& b) { return either(less(a, b), a, b); }}};
  for (const auto& [name, f] : all)
    for (const auto& [a, b] : {std::pair(0.999, 7.0), std::pair(3.0, 3.0), std::pair(5.0, 0.5)}) {
      const Number want = f(a, b);
      ASSERT_TRUE(want.on_host());
      for (const Number& got :
           {f(Number(number(a)), Number(number(b))), f(a, Number(number(b))), f(Number(number(a)), b)}) {
        ASSERT_FALSE(got.on_host());
        EXPECT_EQ(got.tensor.dtype(), DType::f64);
        EXPECT_DOUBLE_EQ(got.tensor.item<double>(), want.value) << name << " of " << a << " and " << b;
      }
    }
}

TEST(Pace, NamesWhatIsNoHyperParameter) {
  const double lr = 0.5, other = 2;
  optim::Pace p;
  EXPECT_EQ(p(other).value, 2);  // on the host there is nothing to look up
  p.hypers = {{&lr, number(0.5)}};
  EXPECT_EQ(p(lr).tensor.item<double>(), 0.5);
  EXPECT_NE(error_of([&] { p(other); }).find("no hyper-parameter"), std::string::npos);
}

using Made = std::unique_ptr<optim::Optimizer>;
struct Case {
  const char* name;
  std::function<Made(std::vector<Tensor>)> make;
};

template <typename T, typename O>
Case make(const char* name, O options) {
  return {name, [options](std::vector<Tensor> p) { return std::make_unique<T>(std::move(p), options); }};
}

std::vector<Case> cases() {
  using namespace optim;  // NOLINT
  return {make<Adam>("Adam", AdamOptions{.lr = 0.1, .amsgrad = true}),
          make<AdamW>("AdamW", AdamWOptions{.lr = 0.1, .weight_decay = 0.1}),
          make<NAdam>("NAdam", NAdamOptions{.lr = 0.1, .momentum_decay = 0.1}),
          make<RAdam>("RAdam", RAdamOptions{.lr = 0.1, .beta2 = 0.99}),
          make<Adamax>("Adamax", AdamaxOptions{.lr = 0.1}),
          make<LAMB>("LAMB", LAMBOptions{.lr = 0.1}),
          make<Adagrad>("Adagrad", AdagradOptions{.lr = 0.1, .lr_decay = 0.1}),
          make<RMSprop>("RMSprop", RMSpropOptions{.lr = 0.1, .momentum = 0.5, .centered = true}),
          make<Adadelta>("Adadelta", AdadeltaOptions{.lr = 0.5, .weight_decay = 0.1}),
          make<Adafactor>("Adafactor", AdafactorOptions{.lr = 0.1}),
          make<SGD>("SGD", SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3}),
          make<ASGD>("ASGD", ASGDOptions{.lr = 0.1, .lambd = 0.2, .t0 = 2}),
          make<Rprop>("Rprop", RpropOptions{.lr = 0.1}),
          make<Lion>("Lion", LionOptions{.lr = 0.1, .weight_decay = 0.1}),
          make<Muon>("Muon", MuonOptions{.lr = 0.1})};
}

/// Two matrices, of which the second has gradients from the fourth step on.
struct Trained {
  explicit Trained(const Case& c) {
    const Tensor start = arange(6).to(DType::f64).reshape({2, 3}) * 0.3 - 0.5;
    for (Tensor* t : {&a, &b}) *t = start.clone().requires_grad_();
    optimizer = c.make({a, b});
  }
  void gradients(const Tensor& x, bool both) {
    optimizer->zero_grad();
    const Tensor loss = (a * a * x + a * 0.5).sum();
    (both ? loss + (b * b * x).sum() : loss).backward();
  }
  Tensor a, b;
  Made optimizer;
};

void expect_near(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  const auto x = got.to(DType::f64).to_vector<double>(), y = want.to(DType::f64).to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-9 * (1 + std::abs(y[i]))) << what;
}

void expect_same(const Trained& got, const Trained& want) {
  expect_near(got.a, want.a, "a");
  expect_near(got.b, want.b, "b");
  const NamedTensors x = got.optimizer->state_dict(), y = want.optimizer->state_dict();
  const auto find = [&](const std::string& name) {
    for (const auto& [n, t] : x)
      if (n == name) return t;
    return Tensor();
  };
  for (const auto& [name, t] : y) {
    ASSERT_TRUE(find(name).defined()) << name;
    expect_near(find(name), t, name);
  }
}

bool skipped(int t) { return t == 0 || t == 2 || t == 3 || t == 6; }
constexpr int kSteps = 16;
constexpr int kBothFrom = 3;

TEST(StepUnless, EveryOptimizerGoesOnAsIfSkippedStepsHadNotBeen) {
  for (const Case& c : cases())
    for (const bool compiled : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", c.name, compiled ? ", compiled" : ""));
      Trained m(c), plain(c);
      bool both = false;
      const auto step = [&](const Tensor& x, const Tensor& skip) {
        m.gradients(x, both);
        m.optimizer->step_unless(skip);
      };
      auto f = compile(step);
      for (int t = 0; t < kSteps; ++t) {
        both = t >= kBothFrom;
        const Tensor x = full({}, skipped(t) ? NAN : 1 + 0.5 * std::sin(t), {DType::f64});
        const Tensor skip = number(skipped(t) ? 1 : 0, DType::f32);
        for (Trained* one : {&m, &plain}) one->optimizer->set(0, "lr", 0.1 / (1 + t));
        compiled ? f(x, skip) : step(x, skip);
        if (skipped(t)) continue;
        plain.gradients(x, both);
        plain.optimizer->step();
      }
      expect_same(m, plain);
      EXPECT_EQ(f.stats().builds.size(), compiled ? 2u : 0u);  // without b, and with it
    }
}

TEST(StepUnless, CountsGoOnThroughPlainStepsAndLoading) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Trained m(c), plain(c);
    const auto step = [&](Trained& one, int t) {
      one.gradients(full({}, 1 + 0.5 * std::sin(t), {DType::f64}), true);
      if (&one == &plain || t % 3 == 0) one.optimizer->step();
      else one.optimizer->step_unless(number(0, DType::f32));
    };
    const auto skip = [&] {
      m.gradients(number(NAN), true);
      m.optimizer->step_unless(number(1, DType::f32));
    };
    for (int t = 0; t < 5; ++t) {
      step(m, t);
      if (t == 2) skip();
      step(plain, t);
    }
    EXPECT_EQ(m.optimizer->step_count(0), 5);
    Trained loaded(c);
    loaded.a.detach().copy_(m.a.detach());
    loaded.b.detach().copy_(m.b.detach());
    const NamedTensors saved = m.optimizer->state_dict();
    skip();
    m.optimizer->load_state_dict(saved);
    loaded.optimizer->load_state_dict(saved);
    for (int t = 5; t < 9; ++t)
      for (Trained* one : {&m, &plain, &loaded}) step(*one, t);
    expect_same(m, plain);
    expect_same(loaded, plain);
  }
}

// What a compiled call drops has not been counted.
TEST(StepUnless, WhatIsDroppedIsNotCounted) {
  Trained m(cases()[1]), plain(cases()[1]);
  bool fail = false, scaled = false;
  auto f = compile([&](const Tensor& x, const Tensor& skip) {
    m.gradients(x, true);
    if (scaled) m.optimizer->step_unless(skip);
    else m.optimizer->step();
    if (fail) throw Error(ErrorKind::invalid, "dropped");
  });
  const Tensor x = number(1.5), none = number(0, DType::f32);
  const auto both = [&] {
    f(x, none);
    plain.gradients(x, true);
    plain.optimizer->step();
  };
  both();
  for (const bool s : {true, false}) {
    scaled = s;
    fail = true;
    EXPECT_NE(error_of([&] { f(x, none); }), "");
    EXPECT_EQ(m.optimizer->step_count(0), plain.optimizer->step_count(0));
    fail = false;
    both();
    expect_same(m, plain);
  }
}

// Bias corrections come from the device's counts: a replay, which runs no line of the optimizer, counts on.
TEST(StepUnless, RunsFrozen) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Trained m(c), plain(c);
    CompileOptions o;
    o.frozen = true;
    const auto prepare = [](Trained& one) {  // state, and gradients to write to
      one.gradients(number(1), true);
      one.optimizer->step_unless(number(0, DType::f32));
    };
    prepare(m);
    prepare(plain);
    auto f = compile(
        [&](const Tensor& x, const Tensor& skip) {
          m.gradients(x, true);
          m.optimizer->step_unless(skip);
          return x * 1.0;
        },
        o);
    for (int t = 0; t < 6; ++t) {
      const Tensor x = number(t == 3 ? NAN : 1 + 0.25 * t);
      f(x, number(t == 3 ? 1 : 0, DType::f32));
      if (t == 3) continue;
      plain.gradients(x, true);
      plain.optimizer->step();
      // Asked for in between, too.
      EXPECT_EQ(m.optimizer->step_count(0), plain.optimizer->step_count(0)) << t;
    }
    expect_same(m, plain);
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
