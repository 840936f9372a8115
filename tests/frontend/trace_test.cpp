// SPDX-License-Identifier: Apache-2.0
// The semantics of following: a compiled callable does what eager does, on every call, and builds once per
// distinct path. Runs on the interpreter (traces alone) and on compiled kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "frontend/compile.h"
#include "frontend/ops.h"

namespace kiln {
namespace KILN_FILE {

class Trace : public ::testing::TestWithParam<Backend> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    o.backend = GetParam();
    return o;
  }
};

Tensor vec(std::vector<float> v, bool grad = false) {
  Tensor t = Tensor::from_vector(v, {static_cast<int64_t>(v.size())});
  if (grad) t.requires_grad_();
  return t;
}

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

/// Plain SGD as a user would write it.
void sgd_step(const std::vector<Tensor>& params, double lr) {
  NoGrad guard;
  for (Tensor p : params)
    if (p.grad().defined()) p.add_(p.grad(), -lr);
}

TEST_P(Trace, PlainLoopBuildsOnceAndTrainsLikeEager) {
  auto run = [](bool compiled) {
    Tensor w = vec({0.5f, -1, 2}, true), b = vec({0.1f}, true);
    double lr = 0.1;
    auto fn = [&](const Tensor& x, const Tensor& y) {
      w.set_grad({});
      b.set_grad({});
      Tensor loss = mean(square(x * w + b - y));
      loss.backward();
      sgd_step({w, b}, lr);
      return loss;
    };
    auto step = compile(fn, options());
    std::vector<float> losses;
    for (int i = 0; i < 5; ++i) {
      lr = 0.1 / (i + 1);
      const Tensor x = vec({1.0f * i, 2, 3}), y = vec({1, 1.5f, -1});
      losses.push_back((compiled ? step(x, y) : fn(x, y)).item<float>());
    }
    if (compiled) {
      EXPECT_EQ(step.stats().builds.size(), 1u);
      EXPECT_EQ(step.stats().builds[0].reason, "first call");
    }
    for (float v : values(w)) losses.push_back(v);
    for (float v : values(w.grad())) losses.push_back(v);
    return losses;
  };
  const auto eager = run(false), compiled = run(true);
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i)
    EXPECT_NEAR(eager[i], compiled[i], 1e-5 * std::max(1.0f, std::abs(eager[i]))) << i;
}

TEST_P(Trace, HostBranchIsFollowed) {
  bool flag = false;
  auto fn = compile([&](const Tensor& x) { return flag ? exp(x) : sin(x); }, options());
  const Tensor x = vec({0.5f});
  for (bool f : {false, true, false, true}) {
    flag = f;
    EXPECT_FLOAT_EQ(fn(x).item<float>(), f ? std::exp(0.5f) : std::sin(0.5f));
  }
  ASSERT_EQ(fn.stats().builds.size(), 2u);
  EXPECT_NE(fn.stats().builds[1].reason.find("`exp` where `sin` (trace_test.cpp:"), std::string::npos)
      << fn.stats().builds[1].reason;
}

TEST_P(Trace, ScalarsAreRunTimeValues) {
  double s = 1;
  auto fn = compile([&](const Tensor& x) { return x * s + 1.5; }, options());
  for (s = 1; s < 5; ++s) EXPECT_FLOAT_EQ(fn(vec({2})).item<float>(), 2 * static_cast<float>(s) + 1.5f);
  EXPECT_EQ(fn.stats().builds.size(), 1u);
}

TEST_P(Trace, OutputsStayValidAfterTheNextCall) {
  auto fn = compile([](const Tensor& x) { return x * x; }, options());
  const Tensor a = fn(vec({2})), b = fn(vec({3})), c = fn(vec({4}));
  EXPECT_EQ(a.item<float>(), 4);
  EXPECT_EQ(b.item<float>(), 9);
  EXPECT_EQ(c.item<float>(), 16);
  EXPECT_EQ(fn(fn(vec({2}))).item<float>(), 16);
  EXPECT_EQ(fn.stats().builds.size(), 1u);
}

TEST_P(Trace, BranchOnItemRunsThePrefixOnce) {
  auto fn = compile(
      [](const Tensor& x) {
        const Tensor y = x * 2.0;
        return y.item() > 0 ? y + 1.0 : y - 1.0;
      },
      options());
  for (float v : {1.0f, -1.0f, 2.0f, -3.0f})
    EXPECT_FLOAT_EQ(fn(vec({v})).item<float>(), 2 * v + (v > 0 ? 1 : -1));
  EXPECT_EQ(fn.stats().builds.size(), 2u);
}

TEST_P(Trace, SameTensorTwiceThenDifferentOnes) {
  auto fn = compile(
      [](const Tensor& a, const Tensor& b) {
        Tensor loss = sum(a * 2.0) + sum(b * 3.0);
        loss.backward();
      },
      options());
  Tensor a = vec({1, 1}, true);
  fn(a, a);
  EXPECT_EQ(values(a.grad()), (std::vector<float>{5, 5}));
  Tensor b = vec({1, 1}, true), c = vec({1, 1}, true);
  fn(b, c);
  EXPECT_EQ(values(b.grad()), (std::vector<float>{2, 2}));
  EXPECT_EQ(values(c.grad()), (std::vector<float>{3, 3}));
}

TEST_P(Trace, AccumulationBuildsOncePerPath) {
  for (const int k : {2, 3, 5}) {
    Tensor w = vec({0.5f, 1}, true);
    int micro = 0;
    auto step = compile(
        [&](const Tensor& x) {
          if (micro == 0) w.set_grad({});
          Tensor loss = sum(w * x);
          loss.backward();
          if (micro == k - 1) sgd_step({w}, 0.5);
          return loss;
        },
        options());
    for (int i = 0; i < 4 * k; ++i) {
      micro = i % k;
      step(vec({1, 2}));
    }
    EXPECT_EQ(step.stats().builds.size(), k == 2 ? 2u : 3u) << "k = " << k;
    EXPECT_FLOAT_EQ(values(w)[0], 0.5f - 4 * 0.5f * static_cast<float>(k));
  }
}

TEST_P(Trace, InPlaceWritesReachViewsAndArguments) {
  auto fn = [](const Tensor& x) {
    Tensor y = x * 1.0;
    Tensor row = select(y, 0, 0);
    row.fill_(7);
    Tensor z = y + 0.0;
    y.mul_(2.0);
    return std::vector<Tensor>{z, row, y};
  };
  auto compiled = compile(fn, options());
  const Tensor x = vec({1, 2, 3, 4}).view({2, 2});
  for (int i = 0; i < 2; ++i) {
    const auto e = fn(x), c = compiled(x);
    for (size_t k = 0; k < e.size(); ++k)
      EXPECT_EQ(values(e[k].reshape({-1})), values(c[k].reshape({-1}))) << k;
  }
  EXPECT_EQ(compiled.stats().builds.size(), 1u);
  auto touch = compile([](Tensor t) { t.add_(ones({2})); }, options());
  Tensor arg = vec({1, 2});
  touch(arg);
  touch(arg);
  EXPECT_EQ(values(arg), (std::vector<float>{3, 4}));
}

TEST_P(Trace, ExceptionDropsWhatIsPending) {
  Tensor kept;
  bool fail = true;
  auto fn = compile(
      [&](const Tensor& x) {
        kept = x * 2.0;
        if (fail) throw std::runtime_error("user");
        return kept + 1.0;
      },
      options());
  EXPECT_THROW(fn(vec({1})), std::runtime_error);
  try {
    kept.item();
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("dropped: the tensor made at trace_test.cpp:"), std::string::npos)
        << e.what();
  }
  fail = false;
  EXPECT_EQ(fn(vec({1})).item<float>(), 3);
  EXPECT_EQ(kept.item<float>(), 2);
  EXPECT_EQ(fn.stats().builds.size(), 1u);
}

TEST_P(Trace, HooksRunOnEveryBackward) {
  for (const bool compiled : {false, true}) {
    Tensor w = vec({1, 2}, true);
    int calls = 0;
    double factor = 2;
    auto fn = [&](const Tensor& x) {
      w.set_grad({});
      Tensor y = w * x;
      y.register_hook([&](const Tensor& g) {
        ++calls;
        return factor > 0 ? g * factor : Tensor();
      });
      sum(y).backward();
      return y;
    };
    auto step = compile(fn, options());
    auto run = [&] { return compiled ? step(vec({3, 4})) : fn(vec({3, 4})); };
    run();
    EXPECT_EQ(values(w.grad()), (std::vector<float>{6, 8}));
    factor = 5;
    run();
    EXPECT_EQ(values(w.grad()), (std::vector<float>{15, 20}));
    factor = -1;
    run();
    EXPECT_EQ(values(w.grad()), (std::vector<float>{3, 4}));
    factor = 2;
    run();
    EXPECT_EQ(values(w.grad()), (std::vector<float>{6, 8}));
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(step.stats().builds.size(), compiled ? 2u : 0u);
  }
}

TEST_P(Trace, BackwardOutsideTheCallable) {
  Tensor w = vec({1, 2}, true);
  auto forward = compile([&](const Tensor& x) { return sum(exp(w * x)); }, options());
  const Tensor l1 = forward(vec({1, 0})), l2 = forward(vec({0, 1}));
  l2.backward();
  EXPECT_FLOAT_EQ(values(w.grad())[1], std::exp(2.0f));
  l1.backward();
  EXPECT_FLOAT_EQ(values(w.grad())[0], std::exp(1.0f));
  EXPECT_THROW(l1.backward(), Error);
  EXPECT_EQ(forward.stats().builds.size(), 1u);
}

TEST_P(Trace, FrozenAndSwappedParametersAreSeen) {
  Tensor w = vec({1}, true), v = vec({2}, true);
  auto step = compile(
      [&](const Tensor& x) {
        w.set_grad({});
        v.set_grad({});
        sum(w * x + v).backward();
      },
      options());
  step(vec({3}));
  EXPECT_EQ(values(w.grad())[0], 3);
  w.requires_grad_(false);
  step(vec({3}));
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(values(v.grad())[0], 1);
  w = vec({5}, true);
  step(vec({4}));
  EXPECT_EQ(values(w.grad())[0], 4);
  EXPECT_EQ(step.stats().builds.size(), 2u);
}

TEST_P(Trace, KeptIntermediateIsAPathOfItsOwn) {
  std::vector<Tensor> kept;
  int call = 0;
  auto fn = compile(
      [&](const Tensor& x) {
        const Tensor y = x + 1.0;
        if (call % 3 == 2) kept.push_back(y);
        return y * 2.0;
      },
      options());
  for (call = 0; call < 9; ++call) EXPECT_EQ(fn(vec({1.0f * call})).item<float>(), 2 * (call + 1));
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0].item<float>(), 3);
  EXPECT_EQ(kept[2].item<float>(), 9);
  EXPECT_EQ(fn.stats().builds.size(), 2u);
}

TEST_P(Trace, LazyMaskMadeInTheFirstCall) {
  Tensor mask;
  auto fn = compile(
      [&](const Tensor& x) {
        if (!mask.defined()) mask = tril(ones({2, 2}));
        return x * mask;
      },
      options());
  const Tensor x = ones({2, 2});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(fn(x).reshape({-1})), (std::vector<float>{1, 0, 1, 1}));
  EXPECT_EQ(fn.stats().builds.size(), 2u);
}

TEST_P(Trace, NestedCompiledIsInlined) {
  auto inner = compile([](const Tensor& x) { return x * 3.0; }, options());
  auto outer = compile([&](const Tensor& x) { return inner(x) + inner(x); }, options());
  EXPECT_EQ(outer(vec({2})).item<float>(), 12);
  EXPECT_EQ(inner.stats().builds.size(), 0u);
  EXPECT_EQ(inner(vec({2})).item<float>(), 6);
}

TEST_P(Trace, TwoThreadsOnOneCallable) {
  auto fn = compile([](const Tensor& x) { return sum(x * x) + 1.0; }, options());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto v = static_cast<float>(t * 100 + i);
        if (fn(vec({v, 1})).item<float>() != v * v + 2) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(Trace, FullGraphForbidsHostReads) {
  CompileOptions o = options();
  o.full_graph = true;
  auto fn = compile([](const Tensor& x) { return (x * 2.0).item() > 0 ? x : x + 1.0; }, o);
  try {
    fn(vec({1}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("full_graph forbids"), std::string::npos) << e.what();
  }
}

TEST_P(Trace, TooManyBuildsIsAnError) {
  CompileOptions o = options();
  o.max_builds = 3;
  int n = 0;
  auto fn = compile(
      [&](const Tensor& x) {
        Tensor y = x;
        for (int i = 0; i < n; ++i) y = y + 1.0;
        return y;
      },
      o);
  for (n = 1; n <= 3; ++n) fn(vec({0}));
  try {
    fn(vec({0}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("max_builds"), std::string::npos) << e.what();
  }
}

TEST_P(Trace, OverlappingArgumentsShowEachOthersWrites) {
  auto fn = [](const Tensor& whole, const Tensor& row) {
    Tensor w = whole, r = row;
    r.add_(ones({2}));
    const Tensor before = w * 1.0;
    w.mul_(2.0);
    return std::vector<Tensor>{before, r * 1.0, w + 0.0};
  };
  auto compiled = compile(fn, options());
  for (int i = 0; i < 3; ++i) {
    Tensor a = vec({1, 2, 3, 4}).view({2, 2}), b = vec({1, 2, 3, 4}).view({2, 2});
    const auto e = fn(a, select(a, 0, 1)), c = compiled(b, select(b, 0, 1));
    for (size_t k = 0; k < e.size(); ++k)
      EXPECT_EQ(values(e[k].reshape({-1})), values(c[k].reshape({-1}))) << k;
    EXPECT_EQ(values(a.reshape({-1})), values(b.reshape({-1})));
    EXPECT_EQ(values(b.reshape({-1})), (std::vector<float>{2, 4, 8, 10}));
  }
  EXPECT_EQ(compiled.stats().builds.size(), 1u);
}

/// A tensor and a view of it that are both of the state: what one write leaves is what the next op reads, in
/// every call, whatever was alive meanwhile.
TEST_P(Trace, OverlappingStateIsReadAfterEachWrite) {
  using Step = std::function<Tensor(Tensor & a, Tensor & b)>;
  const Step steps[] = {
      [](Tensor& a, Tensor& b) { return b.copy_(a.slice(0, 1, 3)), a.add_(1.0); },
      [](Tensor& a, Tensor& b) { return b.copy_(sum(a)), a.add_(1.0); },
      [](Tensor& a, Tensor& b) { return b.add_(a.slice(0, 1, 3)), a.add_(1.0); },
      [](Tensor& a, Tensor& b) {
        const Tensor y = a * 2;
        b.add_(1.0);
        const Tensor z = a * 3;
        b.add_(z.slice(0, 0, 2));
        return a + y;
      },
      [](Tensor& a, Tensor& b) { return a.add_(1.0), b.mul_(2), a * 1.0; },
      [](Tensor& a, Tensor& b) { return b.fill_(sum(a).item()), a * 1.0; },
  };
  for (const Step& step : steps) {
    const auto start = [] { return arange(6, DType::f32).view({3, 2}).clone(); };
    Tensor a = start(), b = a.slice(0, 0, 2), x = start(), y = x.slice(0, 0, 2);
    auto fast = compile([&] { return step(x, y).clone(); }, options());
    for (int call = 0; call < 4; ++call) {
      const Tensor want = step(a, b).clone(), got = fast();
      EXPECT_EQ(values(got), values(want)) << &step - steps << " call " << call;
      EXPECT_EQ(values(x), values(a)) << &step - steps << " call " << call;
    }
    EXPECT_EQ(fast.stats().builds.size(), 1u) << &step - steps;
  }
}

TEST_P(Trace, ViewBoundAfterAWriteToItsStorage) {
  const auto fn = [](const Tensor& whole, const Tensor& row) {
    Tensor w = whole;
    w.add_(ones({2, 2}));
    return row * 1.0;
  };
  auto compiled = compile(fn, options());
  for (int i = 0; i < 2; ++i) {
    Tensor a = vec({1, 2, 3, 4}).view({2, 2});
    EXPECT_EQ(values(compiled(a, select(a, 0, 0))), (std::vector<float>{2, 3}));
    EXPECT_EQ(values(a.reshape({-1})), (std::vector<float>{2, 3, 4, 5}));
  }
  EXPECT_EQ(compiled.stats().builds.size(), 1u);
}

TEST_P(Trace, TiedParametersAccumulateOnce) {
  Tensor w = vec({1, 2, 3, 4}).view({2, 2}).clone();
  w.requires_grad_();
  auto step = compile(
      [&](const Tensor& x) {
        w.set_grad({});
        const Tensor y = matmul(w, x), z = matmul(t(w), y);
        Tensor loss = sum(z);
        loss.backward();
        return loss;
      },
      options());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(step(vec({1, 1})).item<float>(), 58);
    EXPECT_EQ(values(w.grad().reshape({-1})), (std::vector<float>{6, 6, 14, 14}));
  }
}

TEST_P(Trace, SecondBackwardInsideIsAnError) {
  Tensor w = vec({1}, true);
  auto twice = compile(
      [&](bool retain) {
        Tensor loss = sum(w * w);
        loss.backward({}, retain);
        loss.backward();
      },
      options());
  EXPECT_THROW(twice(false), Error);
  w.set_grad({});
  twice(true);
  EXPECT_EQ(values(w.grad())[0], 4);
}

INSTANTIATE_TEST_SUITE_P(Backends, Trace, ::testing::Values(Backend::reference, Backend::native),
                         [](const auto& info) {
                           return info.param == Backend::native ? "native" : "reference";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
