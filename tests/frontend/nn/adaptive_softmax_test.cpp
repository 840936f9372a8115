// SPDX-License-Identifier: Apache-2.0
#include "frontend/nn/adaptive_softmax.h"

#include <cmath>

#include "frontend/reductions.h"
#include "tests/frontend/everywhere.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

Tensor rows(int64_t n, int64_t d) { return sin(arange(n * d).to(DType::f32) * 1.3).reshape({n, d}).detach(); }

TEST(AdaptiveSoftmax, NamesAndSizesArePyTorchs) {
  nn::AdaptiveLogSoftmaxWithLoss m(16, 20, {4, 9}, 2, true);
  std::vector<std::string> names;
  for (const auto& [name, p] : m.named_parameters()) names.push_back(name + p.type_str());
  EXPECT_EQ(names, (std::vector<std::string>{"head.weightf32[6,16]", "head.biasf32[6]",
                                             "tail.0.0.weightf32[8,16]", "tail.0.1.weightf32[5,8]",
                                             "tail.1.0.weightf32[4,16]", "tail.1.1.weightf32[11,4]"}));
}

TEST(AdaptiveSoftmax, ProbabilitiesAreThoseOfHeadTimesCluster) {
  nn::AdaptiveLogSoftmaxWithLoss m(8, 10, {3, 6}, 2);
  const Tensor x = rows(5, 8), logs = m.log_prob(x);
  EXPECT_EQ(logs.sizes(), (Sizes{5, 10}));
  for (const double total : doubles(sum(exp(logs), {1}))) EXPECT_NEAR(total, 1, 1e-5);
  // Class 7 of row 2, by hand: the head's output 4, and the second class of the second cluster.
  const auto soft = [](const std::vector<double>& v, size_t i) {
    double total = 0;
    for (double e : v) total += std::exp(e);
    return v[i] - std::log(total);
  };
  const Tensor x2 = slice(x, 0, 2, 3);
  const double want = soft(doubles(m.head(x2)), 4) + soft(doubles(m.tail[1](x2)), 1);
  EXPECT_NEAR(doubles(logs)[27], want, 1e-5);
}

TEST(AdaptiveSoftmax, LossIsThatOfTheTargets) {
  nn::AdaptiveLogSoftmaxWithLoss m(8, 10, {3, 6}, 2);
  const Tensor x = rows(5, 8), target = ids({0, 7, 3, 9, 5});
  const std::vector<double> logs = doubles(m.log_prob(x));
  const auto [output, loss] = m(x, target);
  double total = 0;
  const std::vector<double> got = doubles(output);
  const std::vector<size_t> classes{0, 7, 3, 9, 5};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(got[i], logs[i * 10 + classes[i]], 1e-6);
    total -= got[i];
  }
  EXPECT_NEAR(loss.item(), total / 5, 1e-6);
  everywhere([&](const Inputs& in) { return m(in[0], in[1]).output; }, {x, target}, "output");
  everywhere([&](const Inputs& in) { return m(in[0], in[1]).loss; }, {x, target}, "loss");
  const auto [one, mean] = m(select(x, 0, 1), select(target, 0, 1));
  EXPECT_EQ(one.dim(), 0);
  EXPECT_NEAR(one.item(), got[1], 1e-6);
  EXPECT_NEAR(mean.item(), -got[1], 1e-6);
  m.zero_grad();
  loss.backward();
  for (const auto& [name, p] : m.named_parameters()) EXPECT_TRUE(p.grad().defined()) << name;
}

TEST(AdaptiveSoftmax, PredictsTheLikeliest) {
  nn::AdaptiveLogSoftmaxWithLoss m(8, 10, {3, 6}, 2);
  const Tensor x = rows(40, 8) * 9.0;
  const std::vector<double> got = doubles(m.predict(x)), head = doubles(argmax(m.head(x), 1)),
                            whole = doubles(argmax(m.log_prob(x), 1));
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(got[i], head[i] < 3 ? head[i] : whole[i]) << i;
  EXPECT_EQ(m.predict(select(x, 0, 3)).item<int64_t>(), static_cast<int64_t>(got[3]));
}

TEST(AdaptiveSoftmax, Refusals) {
  for (const Sizes& cutoffs : {Sizes{0, 3}, Sizes{3, 3}, Sizes{3, 10}})
    EXPECT_NE(
        error_of([&] { nn::AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs); }).find("expected rising numbers"),
        std::string::npos);
  EXPECT_EQ(error_of([] { nn::AdaptiveLogSoftmaxWithLoss(8, 10, {}); }),
            "invalid: AdaptiveLogSoftmaxWithLoss: there are no cutoffs");
  nn::AdaptiveLogSoftmaxWithLoss m(8, 10, {3, 6});
  EXPECT_ERROR(m(rows(2, 7), ids({1, 2})),
               "invalid: AdaptiveLogSoftmaxWithLoss (@): got x f32[2,7], expected [n, 8] or [8]");
  EXPECT_ERROR(
      m(rows(2, 8), ids({1})),
      "invalid: AdaptiveLogSoftmaxWithLoss (@): got x f32[2,8] and target i64[1], expected i64 [n], or []");
  EXPECT_NE(error_of([&] {
              m(rows(2, 8), ids({1, 10}));
            }).find("AdaptiveLogSoftmaxWithLoss ("),
            std::string::npos);
}

}  // namespace KILN_FILE
}  // namespace kiln
