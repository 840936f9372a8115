// SPDX-License-Identifier: Apache-2.0
// Modules that call one function with their parameters and statistics, of volumes above all: that these and
// the options arrive, eagerly and compiled, in training and in eval, with gradients.
#include "frontend/kiln.h"
#include "tests/frontend/everywhere.h"

namespace kiln {
namespace KILN_FILE {

using namespace kiln::testing;  // NOLINT

/// A fixed number for each element, between -2 and 2.
Tensor ramp(const Sizes& sizes, double scale = 1.7) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return (sin(arange(n, {.dtype = DType::f64}) * scale) * 2.0).reshape(sizes).detach();
}

/// Parameters and statistics of which none is at rest; variances are positive.
void fill(nn::Module& m) {
  m.to(DType::f64);
  NoGrad guard;
  double scale = 0.4;
  for (const auto& [name, t] : m.state_dict()) {
    if (!is_floating(t.dtype())) continue;
    const Tensor value = ramp(t.sizes(), scale += 0.3);
    Tensor(t).copy_(name == "running_var" ? abs(value) + 0.5 : value);
  }
}

/// What `M` must do with x.
template <typename M>
using OfModule = std::function<Tensor(const Tensor& x, const M&)>;

/// m(x), and the gradients of x and of all parameters, are those of `function`.
template <typename M>
void expect_is_function(M& m, const Sizes& sizes, const OfModule<M>& function, size_t parameters,
                        const std::string& name) {
  SCOPED_TRACE(name + (m.is_training() ? ", training" : ", eval"));
  std::vector<Tensor> leaves = m.parameters();
  EXPECT_EQ(leaves.size(), parameters);
  leaves.push_back(ramp(sizes));
  leaves.back().requires_grad_();
  const Tensor& x = leaves.back();
  const auto all_of = [&](const std::function<Tensor()>& run) {
    const Tensor y = run();
    std::vector<std::vector<double>> out{doubles(y)};
    for (Tensor& t : leaves) {
      out.push_back(doubles(t.grad()));
      t.set_grad({});
    }
    return out;
  };
  const auto with = [&](auto&& f) {
    return [&, f] {
      const Tensor y = f();
      sum(y * y * 0.5 + y).backward();
      return y;
    };
  };
  const auto want = all_of(with([&] { return function(x, m); }));
  const auto module = with([&] { return m(x); });
  CompileOptions native, reference;
  reference.backend = Backend::reference;
  for (const std::function<Tensor()>& way :
       {std::function<Tensor()>(module), std::function<Tensor()>(compile(module, native)),
        std::function<Tensor()>(compile(module, reference))}) {
    const auto got = all_of(way);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(difference(got[i], want[i], 1e-10), "") << i;
  }
}

template <typename M>
void expect_in_both_modes(M&& m, const Sizes& sizes, const OfModule<std::decay_t<M>>& function,
                          size_t parameters, const std::string& name) {
  fill(m);
  for (const bool training : {true, false}) {
    m.train(training);
    expect_is_function<std::decay_t<M>>(m, sizes, function, parameters, name);
  }
}

const Sizes kVolume{2, 4, 3, 4, 5};

TEST(NnModuleWeights, Convolutions) {
  expect_in_both_modes(
      nn::Conv3d(4, 6, 2), kVolume,
      [](const Tensor& x, const nn::Conv3d& m) { return conv3d(x, m.weight, m.bias); }, 2, "Conv3d");
  const nn::ConvOptions o{.stride = Sizes{1, 2, 1},
                          .padding = Sizes{1, 0, 1},
                          .dilation = Sizes{1, 1, 2},
                          .groups = 2,
                          .bias = false};
  const ConvOptions f{.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = 2};
  expect_in_both_modes(
      nn::Conv3d(4, 6, Sizes{2, 3, 2}, o), kVolume,
      [f](const Tensor& x, const nn::Conv3d& m) { return conv3d(x, m.weight, {}, f); }, 1, "Conv3d, grouped");
  expect_in_both_modes(
      nn::ConvTranspose3d(4, 3, 2), kVolume,
      [](const Tensor& x, const nn::ConvTranspose3d& m) { return conv_transpose3d(x, m.weight, m.bias); }, 2,
      "ConvTranspose3d");
  const nn::ConvTransposeOptions back{
      .stride = 2, .padding = 1, .output_padding = Sizes{1, 0, 1}, .groups = 2, .bias = false, .dilation = 2};
  const ConvTransposeOptions g{
      .stride = 2, .padding = 1, .output_padding = Sizes{1, 0, 1}, .groups = 2, .dilation = 2};
  expect_in_both_modes(
      nn::ConvTranspose3d(4, 6, Sizes{2, 3, 2}, back), kVolume,
      [g](const Tensor& x, const nn::ConvTranspose3d& m) { return conv_transpose3d(x, m.weight, {}, g); }, 1,
      "ConvTranspose3d, grouped");
}

TEST(NnModuleWeights, NormsWithStatistics) {
  const auto batch = [](const Tensor& x, const nn::BatchNorm3d& m) {
    const bool running = !m.is_training();
    return batch_norm(x, running ? m.running_mean : Tensor(), running ? m.running_var : Tensor(), m.weight,
                      m.bias, {.training = !running, .eps = 0.01});
  };
  expect_in_both_modes(nn::BatchNorm3d(4, {.eps = 0.01}), kVolume, batch, 2, "BatchNorm3d");
  const auto instance = [](const Tensor& x, const nn::InstanceNorm1d& m) {
    const bool running = !m.is_training() && m.running_mean.defined();
    return instance_norm(x, running ? m.running_mean : Tensor(), running ? m.running_var : Tensor(), m.weight,
                         m.bias, {.use_input_stats = !running});
  };
  nn::NormOptions all = nn::instance_norm_defaults();
  all.affine = all.track_running_stats = true;
  expect_in_both_modes(nn::InstanceNorm2d(4), {2, 4, 3, 5}, instance, 0, "InstanceNorm2d");
  expect_in_both_modes(nn::InstanceNorm2d(4, all), {2, 4, 3, 5}, instance, 2, "InstanceNorm2d, with all");
  expect_in_both_modes(nn::InstanceNorm3d(4), kVolume, instance, 0, "InstanceNorm3d");
  expect_in_both_modes(nn::InstanceNorm3d(4, all), kVolume, instance, 2, "InstanceNorm3d, with all");
}

TEST(NnModuleWeights, StatisticsOfVolumesAreUpdated) {
  const Tensor x = ramp(kVolume);
  nn::BatchNorm3d norm(4, {.momentum = 0.3});
  fill(norm);
  const Tensor means = norm.running_mean.clone(), variances = norm.running_var.clone();
  norm(x);
  batch_norm(x, means, variances, {}, {}, {.training = true, .momentum = 0.3});
  EXPECT_EQ(difference(doubles(norm.running_mean), doubles(means), 1e-12), "");
  EXPECT_EQ(difference(doubles(norm.running_var), doubles(variances), 1e-12), "");
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 1);
  const Tensor channel = select(x, 1, 2);
  EXPECT_NEAR(doubles(select(norm.running_mean, 0, 2))[0],
              0.7 * doubles(ramp({4}, 1.3))[2] + 0.3 * mean(channel).item(), 1e-12);
}

TEST(NnModuleWeights, NormsWithoutStatistics) {
  expect_in_both_modes(
      nn::GroupNorm(2, 4, 0.01), kVolume,
      [](const Tensor& x, const nn::GroupNorm& m) { return group_norm(x, 2, m.weight, m.bias, 0.01); }, 2,
      "GroupNorm");
  expect_in_both_modes(
      nn::GroupNorm(4, 4, 1e-5, false), {3, 4, 2},
      [](const Tensor& x, const nn::GroupNorm&) { return group_norm(x, 4); }, 0, "GroupNorm, not affine");
  expect_in_both_modes(
      nn::RMSNorm(Sizes{4, 5}, 0.01), kVolume,
      [](const Tensor& x, const nn::RMSNorm& m) {
        return rms_norm(x, {4, 5}, m.weight, 0.01);
      },
      1, "RMSNorm");
  expect_in_both_modes(
      nn::RMSNorm(5), {3, 5},
      [](const Tensor& x, const nn::RMSNorm& m) {
        return rms_norm(x, {5}, m.weight, std::numeric_limits<double>::epsilon());
      },
      1, "RMSNorm, by default");
  expect_in_both_modes(
      nn::RMSNorm(Sizes{5}, {}, false), {3, 5},
      [](const Tensor& x, const nn::RMSNorm&) {
        return rms_norm(x, {5}, {}, std::numeric_limits<double>::epsilon());
      },
      0, "RMSNorm, not affine");
  expect_in_both_modes(
      nn::LocalResponseNorm(3, 0.5, 0.6, 2), kVolume,
      [](const Tensor& x, const nn::LocalResponseNorm&) { return local_response_norm(x, 3, 0.5, 0.6, 2); }, 0,
      "LocalResponseNorm");
  expect_in_both_modes(
      nn::LocalResponseNorm(2), {2, 4, 3},
      [](const Tensor& x, const nn::LocalResponseNorm&) { return local_response_norm(x, 2); }, 0,
      "LocalResponseNorm, by default");
}

}  // namespace KILN_FILE
}  // namespace kiln
