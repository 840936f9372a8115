// SPDX-License-Identifier: Apache-2.0
// What a call that fails when it runs leaves behind: the world as it was, and a callable that works.
#include <algorithm>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/clip.h"
#include "frontend/optim/sgd.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

struct How {
  const char* name;
  Backend backend;
  int threads;
};

class FailedCall : public ::testing::TestWithParam<How> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    o.backend = GetParam().backend;
    o.threads = GetParam().threads;
    return o;
  }
};

/// A small language model whose training step updates all in place.
struct Trainer {
  nn::Embedding table{7, 8};
  nn::Linear head{8, 7};
  optim::AdamW adam;
  Trainer() : adam({table.weight, head.weight, head.bias}, {.lr = 0.1}) {}

  Tensor step(const Tensor& in, const Tensor& target) {
    adam.zero_grad();
    const Tensor loss = cross_entropy(head(dropout(table(in), 0.5)), target);
    loss.backward();
    optim::clip_grad_norm_(adam.params(), 1.0);
    adam.step();
    return loss.detach();
  }
  /// Everything that a step changes.
  std::vector<float> all() const {
    std::vector<float> out;
    for (const auto& [name, t] : adam.state_dict())
      for (float v : values(t)) out.push_back(v);
    for (const Tensor& p : adam.params())
      for (float v : values(p)) out.push_back(v);
    const GeneratorState g = generator_state();
    out.insert(out.end(), {static_cast<float>(g.seed), static_cast<float>(g.offset)});
    return out;
  }
};

TEST_P(FailedCall, TrainingGoesOnAsIfItHadNotBeen) {
  const Tensor in = ids({0, 3, 6, 2}), target = ids({1, 2, 3, -100});
  const auto train = [&](bool with_faults) {
    manual_seed(3);
    Trainer t;
    auto step = compile([&](const Tensor& x, const Tensor& y) { return t.step(x, y); }, options());
    std::vector<float> losses;
    for (int i = 0; i < 4; ++i) {
      if (with_faults) {
        const std::vector<float> before = t.all();
        const std::string index = error_of([&] {
          step(ids({0, 1, 7, 2}), target);
        }),
                          label = error_of([&] {
                            step(in, ids({1, 2, 7, 0}));
                          });
        EXPECT_TRUE(index.starts_with("invalid: embedding (finish_test.cpp:") &&
                    index.find("): ids 7 is out of range; expected 0 to 6, the rows of weight f32[7,") !=
                        std::string::npos)
            << index;
        EXPECT_TRUE(label.starts_with("invalid: cross_entropy (finish_test.cpp:") &&
                    label.ends_with("): target 7 is out of range; expected 0 to 6 or ignore_index"))
            << label;
        EXPECT_EQ(t.all(), before);
        EXPECT_EQ(t.adam.step_count(0), i);
        for (const Tensor& p : t.adam.params()) EXPECT_FALSE(p.grad().defined());
      }
      losses.push_back(step(in, target).item<float>());
    }
    EXPECT_LE(step.stats().builds.size(), 2u);
    return losses;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_P(FailedCall, GradientsThatWereThereStay) {
  Tensor w = vec({1, 2, 3}, true);
  auto f = compile([&](const Tensor& i) { sum(index_select(w, 0, i)).backward(); }, options());
  f(ids({0, 0}));
  const Tensor grad = w.grad();
  EXPECT_NE(error_of([&] { f(ids({1, 3})); }), "no error");
  EXPECT_EQ(w.grad().impl(), grad.impl());
  EXPECT_EQ(values(w.grad()), (Floats{2, 0, 0}));
  f(ids({2, 0}));
  EXPECT_EQ(values(w.grad()), (Floats{3, 0, 1}));
}

TEST_P(FailedCall, FrozenOnesToo) {
  Tensor w = vec({1, 2, 3}, true);
  CompileOptions o = options();
  o.frozen = true;
  auto f = compile(
      [&](const Tensor& i) {
        w.set_grad({});
        sum(index_select(w, 0, i)).backward();
        NoGrad guard;
        w.add_(w.grad());
      },
      o);
  f(ids({0, 0}));
  EXPECT_NE(error_of([&] { f(ids({1, 3})); }), "no error");
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(values(w), (Floats{3, 2, 3}));
  f(ids({1, 2}));
  EXPECT_EQ(values(w), (Floats{3, 3, 4}));
  EXPECT_EQ(values(w.grad()), (Floats{0, 1, 1}));
}

TEST_P(FailedCall, ChecksMadeFromWhatIsWrittenComeFirst) {
  // The index is made from the new value; and one kernel makes a check and the new value.
  Tensor x = ids({0, 1, 1});
  auto after = compile(
      [&](const Tensor& d) {
        x.add_(d);
        return index_select(d, 0, x);
      },
      options());
  EXPECT_EQ(values(after(ids({1, 1, 0}))), (Floats{1, 0, 1}));
  EXPECT_EQ(error_of([&] { after(ids({0, 1, 2})); }).substr(0, 22), "invalid: index_select ");
  EXPECT_EQ(values(x), (Floats{1, 2, 1}));
  Tensor n = ids({5, 6}), total = ids({0, 0});
  auto both = compile(
      [&](const Tensor& d) {
        total.add_(remainder(n, d));
        n.copy_(floor_divide(n, d));
      },
      options());
  both(ids({2, 4}));
  EXPECT_NE(error_of([&] { both(ids({1, 0})); }), "no error");
  EXPECT_EQ(values(total), (Floats{1, 2}));
  EXPECT_EQ(values(n), (Floats{2, 1}));
}

TEST_P(FailedCall, StridedAndOverlappingTensorsAreWrittenBehindChecksToo) {
  Tensor grid = mat({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor turned = t(grid), row = select(grid, 0, 0);
  auto f = compile(
      [&](const Tensor& i) {
        turned.add_(ones({}));
        row.add_(index_select(row, 0, i));
      },
      options());
  EXPECT_NE(error_of([&] { f(ids({0, 1, 3})); }), "no error");
  f(ids({2, 2, 2}));
  auto eager = mat({1, 2, 3, 4, 5, 6}, {2, 3});
  t(eager).add_(ones({}));
  select(eager, 0, 0).add_(index_select(select(eager, 0, 0), 0, ids({2, 2, 2})));
  EXPECT_NE(values(grid), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST_P(FailedCall, WhatRanBeforeAHostReadStays) {
  Tensor x = ids({1, 2});
  Tensor w = vec({1}, true);
  optim::SGD sgd({w}, {.lr = 1, .momentum = 0.5});
  double expected = -1;
  auto f = compile(
      [&](const Tensor& i) {
        for (int k = 0; k < 2; ++k) {
          sgd.zero_grad();
          sum(w * 2.0).backward();
          sgd.step();
          if (k == 0) {
            EXPECT_EQ(w.item(), expected);
          }
        }
        return index_select(x, 0, i);
      },
      options());
  EXPECT_NE(error_of([&] { f(ids({2})); }), "no error");
  EXPECT_EQ(w.item(), -1);
  EXPECT_EQ(sgd.step_count(0), 1);
  expected = -4;
  EXPECT_EQ(f(ids({1})).item(), 2);
  EXPECT_EQ(sgd.step_count(0), 3);
}

TEST_P(FailedCall, HostReadsSeeWhatTheCallHasWritten) {
  Tensor w = vec({1}, true), x = vec({1, 1});
  const Tensor second = select(x, 0, 1);
  bool read = true;
  const auto body = [&](const Tensor& d) {
    std::vector<double> seen;
    sum(w * d).backward();
    if (read) seen.push_back(w.grad().item());
    {
      NoGrad guard;
      w.add_(d);
      x.add_(d);
    }
    if (read) seen.insert(seen.end(), {w.item(), second.item(), x.to_vector<float>()[0]});
    seen.push_back((w * x).sum().item());
    x.mul_(d);
    if (read) seen.push_back(second.item());
    return seen;
  };
  auto f = compile(body, options());
  for (const bool now : {true, true, false, true}) {
    read = now;
    const std::vector<float> state = {w.item<float>(), x.to_vector<float>()[0]};
    const Tensor grad = w.grad().defined() ? w.grad().clone() : Tensor();
    const std::vector<double> got = f(vec({2}));
    const Floats after = {w.item<float>(), x.to_vector<float>()[0], w.grad().item<float>()};
    {
      NoGrad guard;
      w.fill_(state[0]);
      x.fill_(state[1]);
    }
    w.set_grad(grad);
    EXPECT_EQ(got, body(vec({2})));
    EXPECT_EQ(after, (Floats{w.item<float>(), x.to_vector<float>()[0], w.grad().item<float>()}));
  }
}

TEST_P(FailedCall, FlagsOfTensorsAreAsBefore) {
  Tensor x = vec({1, 2}), w = vec({1, 1}, true);
  auto f = compile([&](const Tensor& i) { x.add_(index_select(w, 0, i)); }, options());
  EXPECT_NE(error_of([&] { f(ids({0, 2})); }), "no error");
  EXPECT_FALSE(x.requires_grad());
  EXPECT_TRUE(x.is_leaf());
  f(ids({0, 1}));
  EXPECT_TRUE(x.requires_grad());
  EXPECT_EQ(values(x), (Floats{2, 3}));
}

TEST_P(FailedCall, ExceptionsOfTheCallableDropItsSteps) {
  Tensor w = vec({1}, true);
  optim::AdamW adam({w}, {});
  bool fail = true;
  auto f = compile(
      [&] {
        sum(w * 2.0).backward();
        adam.step();
        if (fail) throw std::runtime_error("user");
      },
      options());
  for (int i = 0; i < 2; ++i) EXPECT_THROW(f(), std::runtime_error);
  EXPECT_EQ(adam.step_count(0), 0);
  EXPECT_EQ(w.item(), 1);
  EXPECT_FALSE(w.grad().defined());
  fail = false;
  f();
  EXPECT_EQ(adam.step_count(0), 1);
  EXPECT_EQ(w.grad().item(), 2);
}

TEST_P(FailedCall, AHandleThatWasDroppedIsGoodAgain) {
  Tensor kept;
  bool fail = false;
  auto f = compile(
      [&](const Tensor& x) {
        Tensor y = x * 2.0;
        if (fail) {
          kept = y;
          throw std::runtime_error("user");
        }
        return y.item();
      },
      options());
  EXPECT_EQ(f(vec({1})), 2);
  fail = true;
  EXPECT_THROW(f(vec({1})), std::runtime_error);
  kept = {};
  fail = false;
  EXPECT_EQ(f(vec({2})), 4);
}

TEST_P(FailedCall, TheLeastIntegerIsNoIndex) {
  const Tensor x = vec({1, 2, 3}), logits = ones({1, 3});
  auto take = compile([&](const Tensor& i) { return index_select(x, 0, i); }, options());
  auto loss = compile([&](const Tensor& t) { return cross_entropy(logits, t); }, options());
  for (const int64_t bad : {INT64_MIN, INT64_MIN + 1, INT64_MAX, int64_t{1} << 32}) {
    const std::string index = fmt::format("): index {} is out of range; expected 0 to 2", bad);
    const std::string target =
        fmt::format("): target {} is out of range; expected 0 to 2 or ignore_index", bad);
    for (const std::string& text : {error_of([&] {
                                      take(ids({1, bad}));
                                    }),
                                    error_of([&] {
                                      index_select(x, 0, ids({1, bad}));
                                    })})
      EXPECT_TRUE(text.ends_with(index)) << text;
    for (const std::string& text :
         {error_of([&] { loss(ids({bad})); }), error_of([&] { cross_entropy(logits, ids({bad})); })})
      EXPECT_TRUE(text.ends_with(target)) << text;
  }
  EXPECT_EQ(values(take(ids({2}))), (Floats{3}));
}

TEST_P(FailedCall, IntegersDividedByZero) {
  const Tensor a = ids({7, -7, INT64_MIN, 5}), b = ids({2, 2, -1, -3});
  const auto narrow = [](const Tensor& x) { return x.to(DType::i32); };
  for (const auto& [name, divide] :
       {std::pair{"fmod", +[](const Tensor&x, const Tensor&y) { return fmod(x, y); }},
        std::pair{"remainder", +[](const Tensor&x, const Tensor&y) { return remainder(x, y); }},
        std::pair{"floor_divide", +[](const Tensor&x, const Tensor&y) { return floor_divide(x, y); }}}) {
    auto f = compile(divide, options());
    EXPECT_EQ(f(a, b).to_vector<int64_t>(), divide(a, b).to_vector<int64_t>()) << name;
    const std::string eager = error_of([&] {
      divide(a, ids({1, 0, 2, 0}));
    }),
                      compiled = error_of([&] {
                        f(a, ids({1, 0, 2, 0}));
                      });
    EXPECT_EQ(eager, compiled);
    EXPECT_TRUE(eager.starts_with(fmt::format("invalid: {} (finish_test.cpp:", name)) &&
                eager.ends_with("): integer division by zero; got b i64[4] with a 0 at element 3"))
        << eager;
    EXPECT_EQ(f(a, b).to_vector<int64_t>(), divide(a, b).to_vector<int64_t>()) << name;
    const Tensor least = full({5}, INT32_MIN, {DType::i32});
    EXPECT_EQ(f(least, narrow(full({5}, -1, {DType::i64}))).to_vector<int32_t>(),
              divide(least, narrow(full({5}, -1, {DType::i64}))).to_vector<int32_t>());
    EXPECT_EQ(f(ids({}), ids({})).numel(), 0);
  }
}

TEST_P(FailedCall, IntegersDividedByTheNumberZero) {
  int64_t by = 3;
  int64_t before = 0;
  Tensor n = ids({0});
  auto f = compile(
      [&](const Tensor& x) {
        n.add_(ids({1}));
        ++before;
        return remainder(TensorArg(x, Loc("net.cpp", 42)), by);
      },
      options());
  EXPECT_EQ(values(f(ids({7, -7}))), (Floats{1, 2}));
  by = 0;
  EXPECT_ERROR(f(ids({7, 1})),
               "invalid: remainder (net.cpp:42): integer division by zero; got a i64[2] and b 0");
  by = -1;
  EXPECT_EQ(values(f(ids({7, INT64_MIN}))), (Floats{0, 0}));
  EXPECT_EQ(values(n), (Floats{2}));
  by = 256;
  EXPECT_ERROR(f(ids({7, 1}).to(DType::u8)),
               "invalid: remainder (net.cpp:42): b 256 does not fit u8 (cast the tensor with to())");
  EXPECT_EQ(values(f(vec({300, 7}))), (Floats{44, 7}));
}

INSTANTIATE_TEST_SUITE_P(Backends, FailedCall,
                         ::testing::Values(How{"reference", Backend::reference, 0},
                                           How{"native", Backend::native, 1},
                                           How{"threads", Backend::native, 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace KILN_FILE
}  // namespace kiln
