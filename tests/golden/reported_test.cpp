// SPDX-License-Identifier: Apache-2.0
// Small programs on which compilers of training have gone wrong, with their right values, eager and compiled.
// Each was reported by users of other systems.
#include <cmath>

#include "frontend/kiln.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

enum class Way { eager, compiled, graphs };

class Cases : public ::testing::TestWithParam<Way> {
 protected:
  /// `f`, to be called like it, in this way.
  template <typename F>
  auto as_way(F f) {
    CompileOptions o;
    if (GetParam() == Way::graphs) o.mode = Mode::reduce_overhead;
    auto compiled = compile(f, o);
    return [f, compiled, eager = GetParam() == Way::eager](auto&&... args) mutable {
      return eager ? f(args...) : compiled(args...);
    };
  }
};

// K1: a copy whose front is overwritten passes no gradient there.
TEST_P(Cases, PartsOfACopyAreOverwritten) {
  Tensor x = vec({1, 2, 3, 4, 5}, true), y = vec({10, 20}, true);
  as_way([&] {
    const Tensor z = x.clone();
    narrow(z, 0, 0, 2).copy_(y);
    const Tensor loss = sum(z);
    loss.backward();
    return loss;
  })();
  EXPECT_EQ(values(x.grad()), (Floats{0, 0, 1, 1, 1}));
  EXPECT_EQ(values(y.grad()), (Floats{1, 1}));

  Tensor a = ones({4, 13, 33}).requires_grad_(), b = ones({4, 6, 33}).requires_grad_();
  as_way([&] {
    const Tensor z = a.clone();
    narrow(z, 1, 0, 6).copy_(b);
    const Tensor loss = sum(sum(z, {1}));
    loss.backward();
    return loss;
  })();
  const Floats da = values(a.grad());
  for (size_t i = 0; i < da.size(); ++i) ASSERT_EQ(da[i], i / 33 % 13 < 6 ? 0 : 1) << i;
  for (float g : values(b.grad())) ASSERT_EQ(g, 1);
}

// K5: every call draws another mask; the same seed draws the same; the gradient has the mask of its forward.
TEST_P(Cases, DropoutDrawsAnewAndRepeatsBySeed) {
  Tensor x = ones({1000}).requires_grad_();
  auto f = as_way([&] {
    const Tensor y = dropout(x, 0.5);
    sum(y).backward();
    return y;
  });
  std::vector<Floats> seen;
  for (int i = 0; i < 4; ++i) {
    if (i == 0 || i == 3) manual_seed(11);
    x.set_grad({});
    seen.push_back(values(f()));
    const Floats g = values(x.grad());
    for (size_t k = 0; k < g.size(); ++k) ASSERT_EQ(g[k], seen.back()[k] == 2 ? 2 : 0) << k;
  }
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[1], seen[2]);
  EXPECT_NE(seen[0], seen[2]);
  EXPECT_EQ(seen[3], seen[0]);
}

// K8: softmax of huge and infinite numbers.
TEST_P(Cases, SoftmaxOfExtremes) {
  const float inf = INFINITY;
  auto f = as_way([](const Tensor& x, const Tensor& s) {
    const Tensor y = softmax(x * s, 0);
    sum(y * vec({1, 2, 3})).backward();
    return y;
  });
  Tensor x = vec({1, 2, 3}, true);
  EXPECT_EQ(values(f(x, vec({-1e14f}))), (Floats{1, 0, 0}));
  for (float g : values(x.grad())) EXPECT_TRUE(std::isfinite(g));
  Tensor big = vec({1e14f, 2e14f, 3e14f}, true);
  EXPECT_EQ(values(f(big, vec({1}))), (Floats{0, 0, 1}));
  for (float g : values(big.grad())) EXPECT_TRUE(std::isfinite(g));
  for (float v : values(f(vec({inf, -inf, 0}, true), vec({1})))) EXPECT_TRUE(std::isnan(v));
}

// K10: gradients of a pool into memory that held something else.
TEST_P(Cases, MaxPoolIntoUsedMemory) {
  Tensor x = arange(16, {.dtype = DType::f32}).view({1, 1, 4, 4}).detach();
  x.requires_grad_();
  auto f = as_way([&] {
    x.set_grad({});
    const Tensor loss = sum(max_pool2d(x, 2));
    loss.backward();
    return loss;
  });
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(f().item(), 5 + 7 + 13 + 15);
    const Floats g = values(x.grad());
    for (size_t i = 0; i < g.size(); ++i)
      ASSERT_EQ(g[i], i == 5 || i == 7 || i == 13 || i == 15 ? 1 : 0) << i;
    x.grad().fill_(999);
  }
}

// K11: one tensor as both arguments, then two.
TEST_P(Cases, TheSameTensorTwice) {
  auto f = as_way([](const Tensor& a, const Tensor& b) {
    const Tensor loss = sum(a * 2.0) + sum(b * 3.0);
    loss.backward();
    return loss;
  });
  Tensor both = vec({1, 2}, true), a = vec({1, 2}, true), b = vec({3, 4}, true);
  f(both, both);
  EXPECT_EQ(values(both.grad()), (Floats{5, 5}));
  f(a, b);
  EXPECT_EQ(values(a.grad()), (Floats{2, 2}));
  EXPECT_EQ(values(b.grad()), (Floats{3, 3}));
}

// K13 on one rank: a weight used twice gets both gradients.
TEST_P(Cases, TiedWeights) {
  Tensor w = mat({1, 2, 3, 4}, {2, 2}, true);
  auto f = as_way([&] {
    const Tensor y = matmul(w, vec({1, 1})), z = matmul(t(w), y), loss = sum(z);
    loss.backward();
    return loss;
  });
  EXPECT_EQ(f().item(), 58);
  EXPECT_EQ(values(w.grad()), (Floats{6, 6, 14, 14}));
}

// K18: a learning rate that changes at every step, which is no reason to build again.
TEST(Case, ALearningRateThatChanges) {
  for (const auto& [dtype, error] : {std::pair{DType::f64, 1e-12}, {DType::f32, 1e-4}}) {
    Tensor w = ones({1}, {.dtype = dtype});
    w.requires_grad_();
    optim::SGD sgd({w}, {.lr = 0.01});
    auto step = compile([&] {
      sum(w).backward();
      sgd.step();
      sgd.zero_grad();
    });
    for (int i = 0; i < 100; ++i) {
      sgd.lr = 0.01 * (i + 1);
      step();
    }
    EXPECT_NEAR(w.detach().to(DType::f64).item(), -49.5, error);
    EXPECT_EQ(step.stats().builds.size(), 1u);
  }
}

// K19: a buffer that is written at a place of the call, and replaced between calls.
TEST_P(Cases, AReplacedBufferIsTheOneWritten) {
  Tensor c = zeros({2});
  auto f = as_way([&](const Tensor& at, const Tensor& v) {
    index_put_(c, {at}, v);
    return c;
  });
  const Tensor before = f(ids({0}), vec({2}));
  EXPECT_EQ(values(before), (Floats{2, 0}));
  c = zeros({2});
  EXPECT_EQ(values(f(ids({1}), vec({1}))), (Floats{0, 1}));
  EXPECT_EQ(values(c), (Floats{0, 1}));
  EXPECT_EQ(values(f(ids({0}), vec({3}))), (Floats{3, 1}));
  EXPECT_EQ(values(before), (Floats{2, 0}));
}

// K20: results are the caller's, also of a call whose result goes into the next.
TEST_P(Cases, ResultsOutliveTheNextCall) {
  auto f = as_way([](const Tensor& x) { return matmul(x, x); });
  const Tensor two = mat({2, 0, 0, 2}, {2, 2}), three = mat({3, 0, 0, 3}, {2, 2});
  const Tensor y1 = f(two), y2 = f(three), y3 = f(two), y4 = f(three);
  EXPECT_EQ(values(y1), (Floats{4, 0, 0, 4}));
  EXPECT_EQ(values(y2), (Floats{9, 0, 0, 9}));
  EXPECT_EQ(values(y3), (Floats{4, 0, 0, 4}));
  EXPECT_EQ(values(y4), (Floats{9, 0, 0, 9}));
  auto g = as_way([](const Tensor& x) { return x + 1.0; });
  EXPECT_EQ(values(g(g(vec({1})))), Floats{3});
  EXPECT_EQ(values(g(g(g(vec({1}))))), Floats{4});
}

INSTANTIATE_TEST_SUITE_P(Ways, Cases, ::testing::Values(Way::eager, Way::compiled, Way::graphs),
                         [](const auto& i) {
                           return i.param == Way::eager      ? "eager"
                                  : i.param == Way::compiled ? "compiled"
                                                             : "graphs";
                         });

}  // namespace KILN_FILE
}  // namespace kiln
