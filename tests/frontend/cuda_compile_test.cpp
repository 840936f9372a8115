// SPDX-License-Identifier: Apache-2.0
// Compiled callables on tensors of a GPU: interpreted, as kernels, and as CUDA graphs.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "frontend/cuda.h"
#include "frontend/impl.h"
#include "frontend/kiln.h"
#include "ir/base/options.h"
#include "runtime/cuda/device.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace testing;  // NOLINT

const Device kGpu = Device::cuda();

enum class How { reference, kernels, graphs };

class CudaCompile : public ::testing::TestWithParam<How> {
 protected:
  static CompileOptions options() {
    CompileOptions o;
    if (GetParam() == How::reference) o.backend = Backend::reference;
    if (GetParam() == How::graphs) o.mode = Mode::reduce_overhead;
    return o;
  }
};

Tensor gpu(std::vector<float> v, bool grad = false) { return vec(std::move(v)).cuda().requires_grad_(grad); }

void expect_near(const Floats& got, const Floats& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 2e-5f * std::max(1.f, std::abs(expected[i]))) << "element " << i;
}

struct Net : nn::Sequential {
  Net() {
    emplace_back<nn::Linear>(12, 24);
    emplace_back<nn::GELU>();
    emplace_back<nn::LayerNorm>(24);
    emplace_back<nn::Dropout>(0.25);
    emplace_back<nn::Linear>(24, 5);
  }
};

Floats all_of(const nn::Module& m) {
  Floats all;
  for (const auto& [name, t] : m.state_dict())
    for (float v : values(t)) all.push_back(v);
  return all;
}

/// Trains and gives the losses, the norms and the parameters.
Floats trained(Device device, const std::optional<CompileOptions>& how) {
  manual_seed(5);
  Net net;
  net.to(device);
  optim::AdamW opt(net.parameters(), {.lr = 0.02});
  const auto body = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    const Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    const Tensor norm = optim::clip_grad_norm_(net.parameters(), 0.7);
    opt.step();
    return std::pair(loss, norm);
  };
  const auto step = compile(body, how.value_or(CompileOptions{}));
  Floats out;
  for (int i = 0; i < 5; ++i) {
    const Tensor x = randn({9, 12}).to(device), y = randint(0, 5, {9}).to(device);
    const auto [loss, norm] = how ? step(x, y) : body(x, y);
    EXPECT_EQ(loss.device(), device);
    out.push_back(loss.item<float>());
    out.push_back(norm.item<float>());
  }
  if (how) {
    EXPECT_EQ(step.stats().builds.size(), 1u);
  }
  const Floats parameters = all_of(net);
  out.insert(out.end(), parameters.begin(), parameters.end());
  return out;
}

TEST_P(CudaCompile, ATrainingStepIsThatOfTheCpu) {
  expect_near(trained(kGpu, options()), trained(Device::cpu(), std::nullopt));
}

TEST_P(CudaCompile, AnotherDeviceIsAnotherBuild) {
  const auto f = compile([](const Tensor& x) { return x * 2.0; }, options());
  EXPECT_EQ(f(vec({1})).device(), Device::cpu());
  EXPECT_EQ(f(gpu({1})).device(), kGpu);
  EXPECT_EQ(values(f(gpu({3}))), (Floats{6}));
  EXPECT_EQ(values(f(vec({4}))), (Floats{8}));
  const auto builds = f.stats().builds;
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_NE(builds[1].reason.find("`mul`, operand 1: f32[1] on cuda:0 where f32[1] ("), std::string::npos)
      << builds[1].reason;
}

TEST_P(CudaCompile, AModuleThatMovesBuildsAnew) {
  nn::Linear fc(3, 2);
  const auto f = compile(fc, options());
  const Tensor x = vec({1, 2, 3});
  const Floats expected = values(f(x));
  fc.cuda();
  expect_near(values(f(x.cuda())), expected);
  fc.cpu();
  EXPECT_EQ(values(f(x)), expected);
  EXPECT_EQ(f.stats().builds.size(), 2u);
}

TEST_P(CudaCompile, AStageRunsOnOneDevice) {
  const Tensor a = gpu({1, 2}), b = vec({3, 4});
  const auto f = compile(
      [&] {
        const Tensor there = a * 2.0;
        return std::pair(there, b * 3.0);
      },
      options());
  const int line = __LINE__ - 3;
  EXPECT_EQ(error_of([&] { f(); }),
            "unsupported: mul (" + SourceLoc(__FILE__, line).str() + "): runs on cpu, and `mul` (" +
                SourceLoc(__FILE__, line - 1).str() +
                ") before it on cuda:0: ops between two run points of a compiled callable run on one device "
                "(move the tensors with .to(), or compile what runs on each device by itself)");
  const auto g = compile([&] { return a + b; }, options());
  EXPECT_NE(error_of([&] { g(); })
                .find("the tensors are on different devices; got f32[2] on cuda:0 and f32[2] on "
                      "cpu (move one, e.g. with .to(Device::cuda(0)))"),
            std::string::npos);
}

TEST_P(CudaCompile, NumbersOfTheCpuMeetTensorsOfTheGpu) {
  Tensor scale = Tensor::from_vector<float>({2}, {});
  const auto f = compile([&](const Tensor& x) { return x * scale; }, options());
  EXPECT_EQ(values(f(gpu({1, 2}))), (Floats{2, 4}));
  scale.fill_(3);
  EXPECT_EQ(values(f(gpu({1, 2}))), (Floats{3, 6}));
  EXPECT_EQ(f.stats().builds.size(), 1u);
  scale.requires_grad_();
  EXPECT_NE(error_of([&] { f(gpu({1, 2})); }).find("unsupported: mul ("), std::string::npos);
}

TEST_P(CudaCompile, CreationInsideIsPartOfTheProgram) {
  const auto f = compile(
      [](const Tensor& x) {
        return x + ones({3}, {.device = kGpu}) * 2.0 + arange(3, {.device = kGpu}).to(DType::f32);
      },
      options());
  EXPECT_EQ(values(f(gpu({1, 1, 1}))), (Floats{3, 4, 5}));
  manual_seed(2);
  const Floats expected = values(rand({6}));
  const auto g = compile([] { return rand({6}, {.device = kGpu}); }, options());
  manual_seed(2);
  const Tensor drawn = g();
  EXPECT_EQ(drawn.device(), kGpu);
  EXPECT_EQ(values(drawn), expected);
}

TEST_P(CudaCompile, HostReadsAndKeptValues) {
  const auto f = compile(
      [](const Tensor& x) {
        const Tensor y = x * x;
        const bool large = y.sum().item() > 10;
        return large ? y - 1.0 : y + 1.0;
      },
      options());
  const Tensor first = f(gpu({1, 2}));
  EXPECT_EQ(values(f(gpu({3, 4}))), (Floats{8, 15}));
  EXPECT_EQ(values(f(gpu({2, 1}))), (Floats{5, 2}));
  EXPECT_EQ(values(first), (Floats{2, 5}));
}

TEST_P(CudaCompile, WritesInPlaceGoIntoViewsAndOverlaps) {
  Tensor base = arange(12, {.dtype = DType::f32, .device = kGpu}).view({3, 4});
  const Tensor column = select(base, 1, 1), row = select(base, 0, 1);
  const auto f = compile(
      [&](double by) {
        Tensor(column).add_(full({3}, by, {.device = kGpu}));
        return row * 1.0;
      },
      options());
  for (int call = 0; call < 3; ++call) {
    const float at = 5 + 100.f * static_cast<float>(call + 1);
    EXPECT_EQ(values(f(100)), (Floats{4, at, 6, 7}));
  }
  EXPECT_EQ(values(column), (Floats{301, 305, 309}));
  EXPECT_EQ(values(select(base, 1, 2)), (Floats{2, 6, 10}));
}

TEST_P(CudaCompile, ChecksAreMadeWithTheirMessageAndNothingIsWritten) {
  Tensor table = gpu({1, 2, 3}).view({3, 1});
  const auto f = compile(
      [&](const Tensor& ids) {
        const Tensor rows = index_select(table, 0, ids);
        table.mul_(2);
        return rows;
      },
      options());
  const int line = __LINE__ - 5;
  const auto at = [&](int64_t i) { return ids({i}).cuda(); };
  EXPECT_EQ(values(f(at(2))), (Floats{3}));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(error_of([&] {
                f(at(7));
                cuda::synchronize();
              }).find("invalid: index_select (" + SourceLoc(__FILE__, line).str()),
              0u);
  EXPECT_EQ(values(table), (Floats{2, 4, 6}));
  EXPECT_EQ(values(f(at(0))), (Floats{2}));
  EXPECT_EQ(values(table), (Floats{4, 8, 12}));
}

TEST_P(CudaCompile, ResultsThatSomebodyHasAreLookedAfter) {
  const auto f = compile([](const Tensor& x) { return std::pair(x * 2.0, exp(x * 0.0)); }, options());
  std::vector<Tensor> kept;
  const Tensor x = gpu({1, 2, 3});
  for (int i = 0; i < 8; ++i) {
    const auto [y, one] = f(x);
    if (i % 3 == 0) kept.push_back(y);
  }
  for (const Tensor& y : kept) EXPECT_EQ(values(y), (Floats{2, 4, 6}));
  kept[1].mul_(2);  // asked for
  EXPECT_EQ(values(kept[1]), (Floats{4, 8, 12}));
  const auto spoil = [](const Tensor& to, const Tensor& from) {
    const auto address = [](const Tensor& t) {
      return reinterpret_cast<cuda::Address>(t.impl()->device_ref().data);
    };
    cuda_device(0).copy_on_device(address(to), address(from), 12);
    cuda::synchronize();
  };
  spoil(kept[1], x);  // it is no mere result any more
  EXPECT_EXIT(
      {
        std::fprintf(stderr, "%s", error_of([&] { spoil(kept[0], x); }).c_str());
        std::_Exit(4);
      },
      ::testing::ExitedWithCode(4), "overwritten output: .* are an output that is still held");
}

TEST_P(CudaCompile, BackwardOutsideWithHooks) {
  for (const Device device : {Device::cpu(), kGpu}) {
    const Tensor w = vec({1, 2, 3}).to(device).requires_grad_();
    const auto f = compile([&](const Tensor& x) { return (tanh(w * x) * w).sum(); }, options());
    Floats sum;
    for (int i = 0; i < 3; ++i) {
      const Tensor y = f(vec({.1f, .2f, .3f}).to(device));
      Tensor(y).register_hook([](const Tensor& g) { return g * 2.0; });
      y.backward();
    }
    EXPECT_EQ(w.grad().device(), device);
    static Floats expected;
    if (device.is_cuda()) expect_near(values(w.grad()), expected);
    else expected = values(w.grad());
  }
}

TEST_P(CudaCompile, FrozenCallablesReplay) {
  CompileOptions o = options();
  o.frozen = true;
  int runs = 0;
  const auto f = compile([&](const Tensor& x) { return ++runs, exp(x) * x; }, o);
  for (float v : {1.f, 2.f, 3.f}) expect_near(values(f(gpu({v}))), {std::exp(v) * v});
  EXPECT_EQ(runs, 1);
  EXPECT_NE(error_of([&] { f(vec({1})); }).find("is f32[1] with strides [1]; expected f32[1] on cuda:0"),
            std::string::npos);
}

TEST_P(CudaCompile, CheckComparesWithEager) {
  set_option("KILN_COMPILE", "check");
  const auto f = compile([](const Tensor& x) { return softmax(matmul(x, x), 1); }, options());
  set_option("KILN_COMPILE", "");
  const Tensor x = rand({6, 6});
  expect_near(values(f(x.cuda())), values(softmax(matmul(x, x), 1)));
}

TEST_P(CudaCompile, CheckNumericsNamesTheOp) {
  CompileOptions o = options();
  o.check_numerics = true;
  const auto f = compile([](const Tensor& x) { return log(x) * 2.0; }, o);
  EXPECT_EQ(values(f(gpu({1}))), (Floats{0}));
  const std::string text = error_of([&] { f(gpu({-1})); });
  EXPECT_NE(text.find("check_numerics: `log` ("), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(") made NaN in f32[1] on cuda:0")) << text;
  EXPECT_NE(error_of([&] { f(gpu({NAN})); }).find("input f32[1] on cuda:0 '"), std::string::npos);
}

TEST_P(CudaCompile, PrecisionOfMatmulsIsComparedByTraces) {
  EXPECT_EQ(get_float32_matmul_precision(), "highest");
  EXPECT_ERROR(set_float32_matmul_precision("low"),
               "invalid: set_float32_matmul_precision (@): got 'low', expected 'highest', 'high' or "
               "'medium'");
  const auto f = compile([](const Tensor& x) { return matmul(x, x); }, options());
  const Tensor x = rand({8, 8}).cuda();
  const Floats exact = values(matmul(x, x));
  expect_near(values(f(x)), exact);
  set_float32_matmul_precision("high");
  const Floats rounded = values(f(x));
  set_float32_matmul_precision("highest");
  expect_near(values(f(x)), exact);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(rounded[i], exact[i], 5e-3);
  set_float32_matmul_precision("medium");
  EXPECT_EQ(get_float32_matmul_precision(), "high") << "no less than what was asked for";
  EXPECT_EQ(values(f(x)), rounded);
  set_float32_matmul_precision("highest");
  const auto builds = f.stats().builds;
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_NE(builds[1].reason.find("with float32_matmul_precision 'high' where with 'highest'"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaCompile, ::testing::Values(How::reference, How::kernels, How::graphs),
                         [](const auto& info) {
                           return std::string(info.param == How::reference ? "reference"
                                              : info.param == How::kernels ? "kernels"
                                                                           : "graphs");
                         });

/// Ten times forward, and backward outside: of two partitions, two forward and two backward graphs.
CallableStats recorded(nn::Module& net, const SplitOptions& split, const Sizes& x) {
  net.cuda();
  CompileOptions o;
  o.mode = Mode::reduce_overhead;
  o.split = split;
  const auto f = compile(net, o);
  for (int i = 0; i < 10; ++i) {
    net.zero_grad();
    sum(f(rand(x, {.device = kGpu}))).backward();
  }
  const CallableStats stats = f.stats();
  EXPECT_EQ(stats.builds.size(), 1u);
  EXPECT_EQ(stats.graphs.size(), 4u);
  int forward = 0;
  for (const GraphedProgram& g : stats.graphs) {
    EXPECT_EQ(g.recordings, 1) << g.name;
    EXPECT_GE(g.replays, 8) << g.name;
    forward += g.name == "step";
  }
  EXPECT_EQ(forward, 2);
  return stats;
}

/// One bucket for each layer.
TEST(CudaGraphs, D29_D30_PartitionsAreRecordedOnceInEachDirection) {
  manual_seed(1);
  nn::Sequential net;
  net.emplace_back<nn::Linear>(46, 160);
  net.emplace_back<nn::ReLU>();
  net.emplace_back<nn::Linear>(160, 64);
  const int64_t cap = 160 * 64 * 4;
  const CallableStats stats = recorded(net, {.cap = cap, .first = cap, .ignored = {}}, {16, 46});
  EXPECT_EQ(stats.builds.at(0).buckets.at(0).buckets.size(), 2u);
}

/// The model of PyTorch's test with small images, a sixteenth of its 640 channels and so a 256th of its 1
/// MiB, which the last layer's weight fills: the simulated device under a sanitizer takes seconds, not
/// minutes.
TEST(CudaGraphs, D29_ConvolutionsAndBatchNormAreRecordedOnceInEachDirection) {
  manual_seed(1);
  nn::Sequential net;
  net.emplace_back<nn::Conv2d>(46, 40, 3, nn::ConvOptions{.padding = 1, .bias = false});
  net.emplace_back<nn::BatchNorm2d>(40);
  net.emplace_back<nn::Conv2d>(40, 40, 1, nn::ConvOptions{.bias = false});
  const CallableStats stats =
      recorded(net, {.cap = 25 << 12, .first = 1 << 12, .ignored = {}}, {2, 46, 3, 3});
  std::vector<int64_t> bytes;
  for (const BucketTable::Bucket& b : stats.builds.at(0).buckets.at(0).buckets) bytes.push_back(b.bytes);
  EXPECT_EQ(bytes, (std::vector<int64_t>{66240 + 2 * 160, 6400}));
}

TEST(Cuda, InferenceHasNoWeightsOfItsOwn) {
  nn::Linear net(512, 256);
  net.cuda();
  const int64_t weights = 4 * 512 * 256;
  const Tensor x = ones({2, 512}, {.device = kGpu});
  auto step = compile([&] {
    net.zero_grad();
    sum(square(net(x))).backward();
    const NoGrad guard;
    net.weight.add_(net.weight.grad(), -1e-3);
  });
  auto infer = compile([&] {
    const NoGrad guard;
    return net(x);
  });
  step();
  net.zero_grad();
  cuda::synchronize();
  const int64_t before = cuda::memory_allocated();
  const Tensor first = infer();
  EXPECT_LT(cuda::memory_allocated() - before, weights / 4);
  step();
  EXPECT_NE(infer().cpu().to_vector<float>(), first.cpu().to_vector<float>());
}

TEST(Cuda, MemoryIsCounted) {
  EXPECT_TRUE(cuda::is_available());
  EXPECT_GE(cuda::device_count(), 1);
  const int64_t before = cuda::memory_allocated();
  {
    const Tensor x = zeros({1000}, {.device = kGpu});
    EXPECT_GE(cuda::memory_allocated(), before + 4000);
  }
  cuda::synchronize();
  EXPECT_EQ(cuda::memory_allocated(), before);
  EXPECT_GE(cuda::max_memory_allocated(), before + 4000);
  EXPECT_NE(error_of([] { zeros({1}, {.device = Device::cuda(99)}); }).find("cuda:99: no such device"),
            std::string::npos);
}

}  // namespace KILN_FILE
}  // namespace kiln
