// SPDX-License-Identifier: Apache-2.0
// Clipping by every order of norm and by value, eagerly and compiled; what is not finite.
#include "frontend/optim/clip.h"

#include <cmath>
#include <limits>

#include "frontend/compile.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::doubles;
using kiln::testing::error_of;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor with_gradient(std::vector<double> g, DType dtype = DType::f64) {
  const Sizes sizes = {static_cast<int64_t>(g.size())};
  Tensor p = zeros(sizes, {.dtype = dtype}).requires_grad_();
  p.set_grad(Tensor::from_vector(g, sizes).to(dtype));
  return p;
}

class Clip : public ::testing::TestWithParam<bool> {
 protected:
  template <typename F>
  auto run(F&& f) {
    if (!GetParam()) return f();
    return compile(f)();
  }
};

TEST_P(Clip, EveryOrderOfNorm) {
  // Gradients 3, -4 and 0, 12, of which the second tensor has one element that is not zero.
  const std::vector<std::pair<double, double>> cases = {
      {2, 13}, {1, 19}, {kInf, 12}, {-kInf, 0}, {3, std::cbrt(27 + 64 + 1728)}, {0.5, 0}, {0, 2}};
  for (auto [order, expected] : cases) {
    if (order == 0.5) expected = std::pow(std::sqrt(3) + 2 + std::sqrt(12), 2);
    const Tensor p = with_gradient({3, -4}), q = with_gradient({0, 12});
    const Tensor total = run([&, order = order] { return get_total_norm({p.grad(), q.grad()}, order); });
    EXPECT_NEAR(total.item(), expected, 1e-9) << order;
    const Tensor norm = run([&, order = order] { return clip_grad_norm_({p, q}, 1, order); });
    EXPECT_NEAR(norm.item(), expected, 1e-9) << order;
    const double factor = std::min(1.0, 1 / (expected + 1e-6));
    EXPECT_NEAR(doubles(p.grad())[1], -4 * factor, 1e-9) << order;
    EXPECT_NEAR(doubles(q.grad())[1], 12 * factor, 1e-9) << order;
  }
}

TEST_P(Clip, ReturnsTheNormBeforeAndLeavesWhatIsSmall) {
  const Tensor p = with_gradient({3, 0, 0}), q = with_gradient({0, 4, 0});
  Tensor none = zeros({2}).requires_grad_();
  EXPECT_NEAR(run([&] { return clip_grad_norm_({p, none, q}, 10); }).item(), 5, 1e-12);
  EXPECT_EQ(doubles(p.grad())[0], 3);
  EXPECT_NEAR(run([&] { return clip_grad_norm_({p, none, q}, 1); }).item(), 5, 1e-12);
  EXPECT_NEAR(doubles(p.grad())[0], 3 / (5 + 1e-6), 1e-12);
  EXPECT_NEAR(doubles(q.grad())[1], 4 / (5 + 1e-6), 1e-12);
  EXPECT_EQ(run([&] { return clip_grad_norm_({none}, 1); }).item(), 0);
  EXPECT_EQ(run([&] { return get_total_norm({}); }).item(), 0);
}

TEST_P(Clip, ByAKnownNorm) {
  const Tensor p = with_gradient({3, 4}), norm = full({1}, 10, {DType::f64});
  run([&] {
    clip_grads_with_norm_({p}, 5, norm);
    return norm;
  });
  EXPECT_NEAR(doubles(p.grad())[1], 4 * 5 / (10 + 1e-6), 1e-12);
}

TEST_P(Clip, ByValue) {
  const Tensor p = with_gradient({3, -4, 0.5, NAN, kInf});
  run([&] {
    clip_grad_value_({p}, 2);
    return p.grad();
  });
  const std::vector<double> g = doubles(p.grad());
  EXPECT_EQ(g[0], 2);
  EXPECT_EQ(g[1], -2);
  EXPECT_EQ(g[2], 0.5);
  EXPECT_TRUE(std::isnan(g[3]));
  EXPECT_EQ(g[4], 2);
}

TEST_P(Clip, WhatIsNotFiniteScalesAsInPyTorchOrIsRefused) {
  for (const double bad : {kInf, double{NAN}}) {
    const Tensor p = with_gradient({1}), q = with_gradient({bad}), r = with_gradient({1});
    const std::string text = error_of([&] {
      run([&] { return clip_grad_norm_({p, q, r}, 1, 2, true, Loc("net.cpp", 42)); });
    });
    EXPECT_EQ(text,
              "invalid: clip_grad_norm_ (net.cpp:42): the total norm of order 2 is not finite, from gradient "
              "1 of 3 on (without error_if_nonfinite it scales them all)");
    EXPECT_EQ(doubles(p.grad())[0], 1) << "nothing has been written";
    run([&] { return clip_grad_norm_({p, q, r}, 1); });
    EXPECT_EQ(doubles(p.grad())[0] == 0, bad == kInf);
    EXPECT_TRUE(std::isnan(doubles(q.grad())[0]));
  }
  const Tensor p = with_gradient({1});
  EXPECT_EQ(run([&] { return get_total_norm({p.grad()}, 2, true); }).item(), 1);
}

TEST_P(Clip, LimitsAreRunTimeNumbers) {
  const Tensor p = with_gradient({6});
  double limit = 4, order = 3;
  auto f = compile([&] {
    const Tensor norm = clip_grad_norm_({p}, limit, order);
    clip_grad_value_({p}, limit / 2);
    return norm;
  });
  for (; limit > 1; limit /= 2, order += 1) {
    if (GetParam()) f();
    else clip_grad_norm_({p}, limit, order);
    EXPECT_NEAR(doubles(p.grad())[0], GetParam() ? limit / 2 : limit, 1e-5);
  }
  EXPECT_EQ(f.stats().builds.size(), GetParam() ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, Clip, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "compiled" : "eager"; });

TEST(ClipHalves, AreSummedInF32) {
  // In bf16 a sum of ones stops at 256.
  const Tensor p = with_gradient(std::vector<double>(1024, 1), DType::bf16);
  EXPECT_EQ(clip_grad_norm_({p}, 1, 1).item(), 1024);
  EXPECT_EQ(p.grad().dtype(), DType::bf16);
  EXPECT_NEAR(doubles(p.grad())[0], 1.0 / 1024, 1e-5);
}

TEST(ClipErrors, Mistakes) {
  const Tensor p = with_gradient({1}), whole = kiln::testing::ids({1, 2});
  EXPECT_ERROR(clip_grad_norm_({Tensor()}, 1),
               "invalid: clip_grad_norm_ (@): params[0] is undefined (give it a value first)");
  EXPECT_ERROR(clip_grad_norm_({p}, 1, NAN), "invalid: clip_grad_norm_ (@): norm_type is nan");
  EXPECT_ERROR(
      get_total_norm({whole}),
      "invalid: get_total_norm (@): got tensors[0] i64[2], expected a floating dtype (cast it with to())");
  EXPECT_ERROR(clip_grads_with_norm_({p}, 1, zeros({2})),
               "invalid: clip_grads_with_norm_ (@): total_norm is f32[2], expected one element");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
