// SPDX-License-Identifier: Apache-2.0
// Norms over batches, groups and instances: running statistics, modes of their modules, and refusals.
#include "frontend/norm.h"

#include <cmath>

#include "frontend/compile.h"
#include "frontend/nn/norm.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

TEST(BatchNorm, UpdatesRunningStatistics) {
  nn::BatchNorm1d norm(1);
  norm(mat({1, 3}, {2, 1}));
  EXPECT_FLOAT_EQ(values(norm.running_mean)[0], 0.2f);        // 0.9 * 0 + 0.1 * 2
  EXPECT_FLOAT_EQ(values(norm.running_var)[0], 0.9f + 0.2f);  // the unbiased variance is 2
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  norm.eval();
  EXPECT_FLOAT_EQ(values(norm(mat({0.2f}, {1, 1})))[0], 0);
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNorm, WithoutMomentumTheAverageOfAll) {
  nn::BatchNorm1d norm(1, {.momentum = std::nullopt});
  norm(mat({1, 3}, {2, 1}));
  norm(mat({5, 7}, {2, 1}));
  EXPECT_FLOAT_EQ(values(norm.running_mean)[0], 4);
}

TEST(BatchNorm, WithoutTrackingTheBatchAlsoInEval) {
  nn::BatchNorm1d norm(1, {.affine = false, .track_running_stats = false});
  norm.eval();
  EXPECT_EQ(norm.state_dict().size(), 0u);
  EXPECT_NEAR(values(norm(mat({1, 3}, {2, 1})))[1], 1, 1e-5);
}

TEST(BatchNorm, CompiledStepsTrainAndEvaluate) {
  const Tensor x = sin(arange(4 * 3 * 5, {.dtype = DType::f32})).view({4, 3, 5});
  nn::BatchNorm1d eager(3), traced(3);
  auto f = compile([&](const Tensor& in) { return traced(in); });
  for (int i = 0; i < 3; ++i) {
    const Floats want = values(eager(x)), got = values(f(x));
    for (size_t k = 0; k < want.size(); ++k) ASSERT_NEAR(got[k], want[k], 1e-5) << k;
  }
  EXPECT_EQ(traced.num_batches_tracked.item<int64_t>(), 3);
  const Floats want_mean = values(eager.running_mean), mean = values(traced.running_mean);
  for (size_t k = 0; k < mean.size(); ++k) EXPECT_NEAR(mean[k], want_mean[k], 1e-6);
  eager.eval();
  traced.eval();
  const Floats want = values(eager(x)), got = values(f(x));
  for (size_t k = 0; k < want.size(); ++k) ASSERT_NEAR(got[k], want[k], 1e-5) << k;
}

TEST(BatchNorm, KeysArePyTorchs) {
  nn::BatchNorm2d norm(2);
  std::vector<std::string> keys;
  for (const auto& [name, t] : norm.state_dict()) keys.push_back(name);
  EXPECT_EQ(keys, (std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                            "num_batches_tracked"}));
}

TEST(InstanceNorm, WithoutABatch) {
  nn::InstanceNorm1d norm(2);
  EXPECT_EQ(norm(zeros({2, 5})).sizes(), (Sizes{2, 5}));
  EXPECT_NEAR(values(norm(mat({1, 3, 0, 4}, {2, 2})))[1], 1, 1e-5);
}

TEST(GroupNorm, OneGroupIsLayerNormOverAll) {
  const Tensor x = sin(arange(2 * 4 * 3, {.dtype = DType::f32})).view({2, 4, 3});
  const Floats a = values(group_norm(x, 1)), b = values(layer_norm(x, {4, 3}));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6);
}

TEST(LocalResponseNorm, SumsOverNeighbours) {
  const Floats y = values(local_response_norm(mat({1, 2, 3}, {1, 3, 1}), 2, 2, 1, 0));
  // alpha / size = 1: channel i divides by the squares of channels i - 1 and i.
  EXPECT_FLOAT_EQ(y[0], 1);
  EXPECT_FLOAT_EQ(y[1], 2.f / 5);
  EXPECT_FLOAT_EQ(y[2], 3.f / 13);
}

/// The norms look at all dims of space as at one.
TEST(Norms, OfVolumesAreThoseOfTheirElementsInALine) {
  const Tensor x = sin(arange(2 * 4 * 3 * 2 * 5, {.dtype = DType::f64}) * 0.7).view({2, 4, 3, 2, 5}).detach();
  const Tensor line = x.reshape({2, 4, 30}), weight = sin(arange(4, {.dtype = DType::f64}) + 1.0);
  const Tensor bias = cos(arange(4, {.dtype = DType::f64})), mean = weight * 0.1,
               variance = weight * weight + 1.0;
  using Norm = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<const char*, Norm>> norms{
      {"batch", [&](const Tensor& t) { return batch_norm(t, {}, {}, weight, bias, {.training = true}); }},
      {"running", [&](const Tensor& t) { return batch_norm(t, mean, variance, weight, bias); }},
      {"instance", [&](const Tensor& t) { return instance_norm(t, {}, {}, weight, bias); }},
      {"groups", [&](const Tensor& t) { return group_norm(t, 2, weight, bias); }},
      {"response", [&](const Tensor& t) { return local_response_norm(t, 3, 0.5, 0.6, 2); }}};
  for (const auto& [name, norm] : norms) {
    const Tensor whole = norm(x);
    EXPECT_EQ(whole.sizes(), x.sizes()) << name;
    const std::vector<double> want = doubles(norm(line)), got = doubles(whole),
                              fast = doubles(compile(norm)(x));
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-12) << name << i;
      ASSERT_NEAR(fast[i], want[i], 1e-12) << name << i;
    }
  }
}

TEST(Norms, Refusals) {
  const Tensor single = zeros({1, 2, 1});
  EXPECT_ERROR(
      group_norm(single, 2),
      "invalid: group_norm (@): got x f32[1,2,1] for 2 groups, expected more than one value in each");
  const Tensor x = zeros({2, 4, 3});
  EXPECT_ERROR(batch_norm(x, {}, {}),
               "invalid: batch_norm (@): evaluation needs running_mean and running_var (or training = true)");
  EXPECT_ERROR(batch_norm(x, zeros({3}), ones({4})),
               "invalid: batch_norm (@): got running_mean f32[3], expected f32[4] for x f32[2,4,3]");
  EXPECT_ERROR(batch_norm(zeros({1, 4}), {}, {}, {}, {}, {.training = true}),
               "invalid: batch_norm (@): training needs more than one value per channel; got x f32[1,4]");
  EXPECT_ERROR(group_norm(x, 3),
               "invalid: group_norm (@): 4 channels do not divide into 3 groups; got x f32[2,4,3]");
  nn::BatchNorm2d norm(4);
  EXPECT_ERROR(norm(x), "invalid: BatchNorm2d (@): got x f32[2,4,3], expected 4 to 4 dims");
  EXPECT_ERROR(norm(zeros({1, 3, 2, 2})),
               "invalid: BatchNorm2d (@): got 3 channels in x f32[1,3,2,2], expected 4");
}

}  // namespace KILN_FILE
}  // namespace kiln
