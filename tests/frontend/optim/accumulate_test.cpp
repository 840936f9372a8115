// SPDX-License-Identifier: Apache-2.0
// One step for several micro-batches equals one step for all their examples.
#include "frontend/optim/accumulate.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/functional.h"
#include "frontend/optim/adam.h"
#include "frontend/optim/clip.h"
#include "tests/frontend/testing.h"

namespace kiln::optim {
namespace KILN_FILE {

using kiln::testing::doubles;
using kiln::testing::error_of;

Tensor batch(int step) {
  std::vector<double> v;
  for (int i = 0; i < 12; ++i) v.push_back(std::sin(i + 5.0 * step));
  return Tensor::from_vector(v, {12});
}

struct Problem {
  Problem() : adam({w}, {.lr = 0.1}) {}
  Tensor loss(const Tensor& x) const { return mean(square(x * w + 1.0)); }
  Tensor w = full({1}, 0.5, {DType::f64}).requires_grad_();
  AdamW adam;
};

/// The weights after three steps of whole batches.
double whole() {
  Problem p;
  for (int t = 0; t < 3; ++t) {
    p.adam.zero_grad();
    p.loss(batch(t)).backward();
    clip_grad_norm_({p.w}, 0.5);
    p.adam.step();
  }
  return p.w.item();
}

TEST(GradientAccumulation, ACallForEachMicroBatchBuildsAsTheDesignSays) {
  for (const int64_t k : {1, 2, 3, 4, 6}) {
    Problem p;
    GradientAccumulation accumulate(p.adam, k);
    int steps = 0;
    auto micro = compile([&](const Tensor& x) {
      const Tensor loss = p.loss(x);
      accumulate.backward(loss);
      if (accumulate.ready()) clip_grad_norm_({p.w}, 0.5);
      steps += accumulate.step();
      return loss;
    });
    for (int t = 0; t < 3; ++t)
      for (const Tensor& x : split(batch(t), 12 / k)) micro(x);
    EXPECT_EQ(steps, 3);
    EXPECT_NEAR(p.w.item(), whole(), 1e-12) << k;
    EXPECT_EQ(micro.stats().builds.size(), static_cast<size_t>(std::min<int64_t>(k, 3)));
    EXPECT_FALSE(p.w.grad().defined());
  }
}

TEST(GradientAccumulation, ACallThatLoopsOverThemBuildsOnce) {
  Problem p;
  GradientAccumulation accumulate(p.adam, 4);
  auto step = compile([&](const Tensor& x) {
    for (const Tensor& part : split(x, 3)) {
      accumulate.backward(p.loss(part));
      if (accumulate.ready()) clip_grad_norm_({p.w}, 0.5);
      accumulate.step();
    }
  });
  for (int t = 0; t < 3; ++t) step(batch(t));
  EXPECT_NEAR(p.w.item(), whole(), 1e-12);
  EXPECT_EQ(step.stats().builds.size(), 1u);
}

TEST(GradientAccumulation, AnEpochThatDoesNotDivideIsFlushed) {
  Problem p;
  GradientAccumulation accumulate(p.adam, 4);
  EXPECT_FALSE(accumulate.flush());
  accumulate.backward(p.loss(batch(0)));
  EXPECT_FALSE(accumulate.step());
  EXPECT_EQ(p.adam.step_count(0), 0);
  EXPECT_TRUE(accumulate.flush());
  EXPECT_EQ(p.adam.step_count(0), 1);
  EXPECT_FALSE(accumulate.flush());
}

TEST(GradientAccumulation, ADroppedMicroBatchDoesNotCount) {
  Problem p;
  GradientAccumulation accumulate(p.adam, 2);
  bool fail = true;
  auto micro = compile([&](const Tensor& x) {
    accumulate.backward(p.loss(x));
    accumulate.step();
    if (fail) throw std::runtime_error("stop");
  });
  EXPECT_THROW(micro(batch(0)), std::runtime_error);
  EXPECT_FALSE(accumulate.ready());
  fail = false;
  micro(batch(0));
  EXPECT_TRUE(accumulate.ready());
}

TEST(GradientAccumulation, Mistakes) {
  Problem p;
  EXPECT_EQ(error_of([&] { GradientAccumulation(p.adam, 0); }),
            "invalid: GradientAccumulation: steps is 0, expected at least 1");
}

}  // namespace KILN_FILE
}  // namespace kiln::optim
