// SPDX-License-Identifier: Apache-2.0
// kiln::compile as its users see it: options, statistics, switches, and host state of every kind.
#include "frontend/compile.h"

#include <cmath>
#include <random>
#include <thread>

#include "frontend/functional.h"
#include "frontend/nn/layers.h"
#include "ir/base/options.h"
#include "ir/host_memory.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

class Compile : public ::testing::TestWithParam<Backend> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    o.backend = GetParam();
    return o;
  }
};

/// Sets a switch until the end of the scope.
struct Switch {
  Switch(const char* n, const char* value) : name(n) { set_option(name, value); }
  ~Switch() { set_option(name, ""); }
  const char* name;
};

TEST_P(Compile, StatsSayWhatWasBuiltAndWhy) {
  auto f = compile([](const Tensor& x) { return exp(x) + 1.0; }, options());
  EXPECT_EQ(f.stats().calls, 0u);
  EXPECT_TRUE(f.stats().builds.empty());
  f(vec({1}));
  f(vec({2}));
  f(vec({1, 2}));
  const CallableStats s = f.stats();
  EXPECT_EQ(s.calls, 3u);
  ASSERT_EQ(s.builds.size(), 2u);
  EXPECT_EQ(s.builds[0].reason, "first call");
  const std::string reason = testing::without_device(s.builds[1].reason);
  EXPECT_TRUE(reason.starts_with("compile_test.cpp:")) << reason;
  EXPECT_NE(reason.find("`exp`, operand 1: f32[2] where f32[1] (compile_test.cpp:"), std::string::npos)
      << reason;
  EXPECT_EQ(s.builds[0].nodes, 2 + 2);
  EXPECT_GT(s.builds[0].seconds, 0);
  if (GetParam() == Backend::native) {
    EXPECT_EQ(s.builds[0].kernels, 1);
  }
}

TEST_P(Compile, ModulesAndConstCallables) {
  nn::Linear net(2, 3);
  const auto f = compile(net, options());
  const Tensor x = mat({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(values(f(x)), values(net(x)));
  EXPECT_NE(error_of([&] { f(vec({1})); }).find("linear (compile_test.cpp:"), std::string::npos);
  int calls = 0;
  const auto g = compile([calls, x]() mutable { return x * static_cast<double>(++calls); }, options());
  g();
  EXPECT_EQ(values(g()), (Floats{2, 4, 6, 8}));
}

TEST_P(Compile, ReasonsSayWhatChanged) {
  Tensor w = vec({1, 2}, true), x = vec({1, 2});
  w.set_name("w");
  int64_t to = 2;
  bool grad = true;
  auto f = compile(
      [&](const Tensor& y) {
        std::optional<NoGrad> off;
        if (!grad) off.emplace();
        Tensor loss = sum(slice(y, 0, 0, to) * slice(w, 0, 0, to));
        if (grad) loss.backward();
        return loss;
      },
      options());
  const auto reason = [&](auto&&... change) {
    (change(), ...);
    f(x);
    return testing::without_device(f.stats().builds.back().reason);
  };
  const auto expect = [&](const std::string& got, const std::string& text) {
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  expect(reason(), "first call");
  expect(reason(), "`backward`, f32[2] 'w' has a gradient where one without was traced");
  w.set_grad({});
  expect(reason([&] { to = 1; }), "`slice`, attributes [0,0,1,1] where [0,0,2,1] (compile_test.cpp:");
  w.set_grad({});
  expect(reason([&] { grad = false; }), "`slice`, under no_grad where with gradients (compile_test.cpp:");
  grad = true;
  to = 2;
  expect(reason([&] {
           x = vec({1, 2}, true);
         }),
         "`slice`, operand 1: f32[2] that requires grad where one that does not (compile_test.cpp:");
  w.set_grad({});
  expect(reason([&] {
           x = vec({1, 2}).to(DType::f64);
         }),
         "`slice`, operand 1: f64[2] where f32[2] (compile_test");
}

TEST_P(Compile, TooManyBuildsNamesTheBranch) {
  CompileOptions o = options();
  o.max_builds = 2;
  o.name = "my_step";
  int n = 0;
  auto f = compile([&](const Tensor& x) { return n == 0 ? exp(x) : n == 1 ? sin(x) : cos(x); }, o);
  for (n = 0; n < 2; ++n) f(vec({1}));
  const std::string text = error_of([&] { f(vec({1})); });
  EXPECT_TRUE(text.starts_with(
      "invalid: my_step: 2 builds reached CompileOptions::max_builds; the next one is for compile_test.cpp:"))
      << text;
  EXPECT_NE(text.find("`cos` where `sin`"), std::string::npos) << text;
  n = 0;
  EXPECT_FLOAT_EQ(f(vec({1})).item<float>(), std::exp(1.0f));
}

TEST_P(Compile, CheckNumericsNamesTheFirstOpAndItsLine) {
  CompileOptions o = options();
  o.check_numerics = true;
  auto f = compile([](const Tensor& x) { return sqrt(log(x)) * 2.0; }, o);
  EXPECT_NO_THROW(f(vec({2})));
  const std::string text = error_of([&] { f(vec({0})); });
  EXPECT_TRUE(text.starts_with("invalid: check_numerics: `log` (compile_test.cpp:")) << text;
  EXPECT_TRUE(text.ends_with(") made Inf in f32[1]")) << text;  // not "in log" once more
  EXPECT_NE(error_of([&] { f(vec({0.5f})); }).find("check_numerics: `sqrt` (compile_test.cpp:"),
            std::string::npos);
  EXPECT_NE(error_of([&] { f(vec({NAN})); }).find("already holds NaN"), std::string::npos);
  EXPECT_NO_THROW(f(vec({3})));
}

TEST_P(Compile, CheckNumericsLooksIntoModulesAndBackward) {
  CompileOptions o = options();
  o.check_numerics = true;
  nn::Linear m(1, 1);
  auto f = compile(
      [&](const Tensor& x) {
        Tensor loss = sum(sqrt(m(x) * 0.0));
        loss.backward();
      },
      o);
  const std::string text = error_of([&] { f(ones({1, 1})); });
  EXPECT_TRUE(text.starts_with("invalid: check_numerics: `") &&
              text.find("compile_test.cpp:") != std::string::npos)
      << text;
}

TEST_P(Compile, SwitchedOffRunsEagerly) {
  Switch off("KILN_COMPILE", "off");
  int calls = 0;
  auto f = compile([&](const Tensor& x) { return ++calls, (x * 2.0).item(); }, options());
  EXPECT_EQ(f(vec({2})), 4);
  EXPECT_EQ(f(vec({3})), 6);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(f.stats().calls, 0u);
  EXPECT_TRUE(f.stats().builds.empty());
}

TEST_P(Compile, CheckComparesWithEagerAndFindsNothing) {
  Switch check("KILN_COMPILE", "check");
  Tensor w = vec({1, 2, 3}, true);
  auto step = compile(
      [&](const Tensor& x) {
        w.set_grad({});
        Tensor loss = sum(softmax(w * x, 0) * x);
        loss.backward();
        NoGrad guard;
        w.add_(w.grad(), -0.1);
        return loss;
      },
      options());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(step(vec({1, 2, 3.0f + i})).item()));
}

TEST_P(Compile, RandomHostBranchesAreFollowed) {
  auto run = [](bool compiled) {
    std::mt19937 coin(7);
    std::vector<int> counters(4, 0);
    std::vector<Tensor> w;
    for (int i = 0; i < 4; ++i) w.push_back(vec({0.1f * (i + 1)}));
    auto body = [&](const Tensor& x) {
      Tensor y = x;
      for (size_t i = 0; i < 4; ++i) {
        if (coin() % 2) continue;
        ++counters[i];
        y = y + y * w[i];
      }
      return y;
    };
    CompileOptions o = options();
    o.max_builds = 20;
    auto f = compile(body, o);
    std::vector<double> results;
    for (int i = 0; i < 200; ++i) results.push_back((compiled ? f(vec({1})) : body(vec({1}))).item());
    if (compiled) {
      EXPECT_LE(f.stats().builds.size(), 16u);
    }
    return std::pair(counters, results);
  };
  const auto eager = run(false), got = run(true);
  EXPECT_EQ(got.first, eager.first);
  for (int c : got.first) EXPECT_TRUE(c > 0 && c < 200);
  for (size_t i = 0; i < 200; ++i) EXPECT_NEAR(got.second[i], eager.second[i], 1e-5) << i;
}

TEST_P(Compile, ReplacedBufferIsSeen) {
  struct Cache : nn::Module {
    Tensor c = zeros({2});
    Cache() { register_buffer("c", c); }
  } m;
  auto write = compile(
      [&](int64_t pos, float v) {
        narrow(m.c, 0, pos, 1).fill_(v);
        return m.c;
      },
      options());
  EXPECT_EQ(values(write(0, 2)), (Floats{2, 0}));
  m.c = zeros({2});
  EXPECT_EQ(values(write(1, 1)), (Floats{0, 1}));
  EXPECT_EQ(values(write(0, 5)), (Floats{5, 1}));
  EXPECT_EQ(values(m.c), (Floats{5, 1}));
}

TEST_P(Compile, OutputsOutliveLaterCalls) {
  auto f = compile([](const Tensor& x) { return matmul(x, x); }, options());
  const Tensor eye = mat({1, 0, 0, 1}, {2, 2});
  const Tensor a = f(eye * 2.0), b = f(eye * 3.0);
  EXPECT_EQ(values(a), (Floats{4, 0, 0, 4}));
  EXPECT_EQ(values(b), (Floats{9, 0, 0, 9}));
  auto g = compile([](const Tensor& x) { return x + 1.0; }, options());
  EXPECT_EQ(values(g(g(ones({2})))), (Floats{3, 3}));
}

TEST_P(Compile, ReturnsArgumentsStructsAndNothing) {
  struct Pair {
    Tensor a;
    double b;
  };
  auto f = compile([](const Tensor& x) { return Pair{x, (x * 2.0).item()}; }, options());
  const Tensor x = vec({4});
  const Pair p = f(x);
  EXPECT_EQ(p.a.impl(), x.impl());
  EXPECT_EQ(p.b, 8);
  int runs = 0;
  auto nothing = compile([&] { ++runs; }, options());
  nothing();
  nothing();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(nothing.stats().builds.size(), 1u);
  auto constant = compile([] { return ones({2}) * 3.0; }, options());
  EXPECT_EQ(values(constant()), (Floats{3, 3}));
  EXPECT_FALSE(compile([] { return Tensor(); }, options())().defined());
}

TEST_P(Compile, LayoutsAreTheCallersOwn) {
  auto f = compile([](const Tensor& x) { return x * 2.0 + sum(x, {0}); }, options());
  const Tensor x = mat({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(values(f(x)), (Floats{7, 11, 15, 13, 17, 21}));
  EXPECT_EQ(values(f(t(mat({1, 4, 2, 5, 3, 6}, {3, 2})))), (Floats{7, 11, 15, 13, 17, 21}));
  EXPECT_EQ(values(f(expand(vec({1, 2, 3}), {2, 3}))), (Floats{4, 8, 12, 4, 8, 12}));
  EXPECT_EQ(values(f(narrow(mat({0, 0, 0, 1, 2, 3, 4, 5, 6}, {3, 3}), 0, 1, 2))),
            (Floats{7, 11, 15, 13, 17, 21}));
  EXPECT_EQ(f(zeros({0, 3})).sizes(), (Sizes{0, 3}));
}

TEST_P(Compile, OverlappingExternalsShowEachOthersWrites) {
  auto fresh = [] { return mat({1, 2, 3, 4}, {2, 2}); };
  Tensor x = fresh(), row = select(x, 0, 0), other = select(x, 0, 1);
  auto before = compile(
      [&] {
        row.fill_(7);
        return sum(x * 1.0);
      },
      options());
  EXPECT_EQ(before().item(), 21);
  EXPECT_EQ(before().item(), 21);
  row.copy_(vec({1, 2}));
  auto after = compile(
      [&] {
        Tensor s = sum(x * 1.0);
        row.fill_(7);
        return s;
      },
      options());
  EXPECT_EQ(after().item(), 10);
  EXPECT_EQ(after().item(), 21);
  auto apart = compile(
      [&] {
        row.fill_(5);
        return sum(other * 1.0);
      },
      options());
  EXPECT_EQ(apart().item(), 7);
  EXPECT_EQ(values(x), (Floats{5, 5, 3, 4}));
}

TEST_P(Compile, ErrorsOfOpsLeaveTheCallableUsable) {
  Tensor w = vec({1, 2}, true);
  auto f = compile([&](const Tensor& x) { return w * x; }, options());
  const std::string text = error_of([&] { f(vec({1, 2, 3})); });
  EXPECT_TRUE(text.starts_with("invalid: mul (compile_test.cpp:")) << text;
  EXPECT_EQ(values(f(vec({3, 4}))), (Floats{3, 8}));
  EXPECT_NE(error_of([&] { f(vec({1, 2, 3})); }), "no error");
  EXPECT_EQ(values(f(vec({1, 1}))), (Floats{1, 2}));
  auto caught = compile(
      [&](const Tensor& x) {
        try {
          return x + zeros({3});
        } catch (const Error&) {
          return x + 1.0;
        }
      },
      options());
  EXPECT_EQ(values(caught(vec({1, 2}))), (Floats{2, 3}));
  EXPECT_EQ(values(caught(vec({1, 2}))), (Floats{2, 3}));
}

TEST_P(Compile, FailedOpsForgetAllTheirOperands) {
  Tensor a = vec({1, 2}), b = vec({1, 2, 3});
  auto f = compile(
      [&] {
        EXPECT_NE(error_of([&] { a + b; }), "no error");
        b.add_(1.0);  // seen first now, and no view of the other
        return sum(a) * 100.0 + sum(b);
      },
      options());
  EXPECT_EQ(f().item(), 309);
  EXPECT_EQ(f().item(), 312);
  EXPECT_EQ(values(a), (Floats{1, 2}));
  EXPECT_EQ(values(b), (Floats{3, 4, 5}));
}

TEST_P(Compile, BuildsGiveBackWhatEagerOpsHaveFreed) {
  release_host_blocks();
  (void)zeros({1 << 20}, {.device = Device::cpu()});
  EXPECT_GE(host_blocks_kept(), size_t{4} << 20);
  auto f = compile([](const Tensor& x) { return x + 1.0; }, options());
  EXPECT_EQ(values(f(vec({1, 2}))), (Floats{2, 3}));
  EXPECT_LT(host_blocks_kept(), size_t{4} << 20);
}

TEST_P(Compile, NestedAndRecursive) {
  auto inner = compile([](const Tensor& x) { return sum(x * x); }, options());
  Tensor w = vec({1, 2}, true);
  auto outer = compile(
      [&] {
        w.set_grad({});
        inner(w).backward();
      },
      options());
  outer();
  outer();
  EXPECT_EQ(values(w.grad()), (Floats{2, 4}));
  EXPECT_EQ(outer.stats().builds.size(), 1u);
}

TEST_P(Compile, ManyThreadsTrainTheirOwnParameters) {
  std::vector<Tensor> w;
  for (int t = 0; t < 3; ++t) w.push_back(vec({1.0f + t}, true));
  auto step = compile(
      [](Tensor p, const Tensor& x) {
        p.set_grad({});
        sum(p * x).backward();
        NoGrad guard;
        p.add_(p.grad(), -0.5);
      },
      options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) step(w[static_cast<size_t>(t)], vec({1.0f + t}));
    });
  for (auto& t : threads) t.join();
  for (int t = 0; t < 3; ++t) EXPECT_EQ(values(w[static_cast<size_t>(t)])[0], 1.0f + t - 15.0f * (1 + t));
}

TEST_P(Compile, PendingTensorsBelongToTheirThread) {
  std::string text;
  auto f = compile(
      [&](const Tensor& x) {
        Tensor y = x * 2.0;
        std::thread([&] { text = error_of([&] { y.item(); }); }).join();
        return y;
      },
      options());
  EXPECT_EQ(f(vec({2})).item(), 4);
  EXPECT_NE(text.find("pending"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Backends, Compile, ::testing::Values(Backend::reference, Backend::native),
                         [](const auto& info) {
                           return info.param == Backend::native ? "native" : "reference";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
