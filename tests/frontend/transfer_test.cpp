// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "frontend/kiln.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/sim.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace testing;  // NOLINT

const Device kGpu = Device::cuda();

TEST(Transfer, CopiesTheElementsAndTheLayoutBecomesRowMajor) {
  const Tensor x = mat({0, 1, 2, 3, 4, 5}, {2, 3}).transpose(0, 1), y = x.cuda();
  EXPECT_EQ(y.device(), kGpu);
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(values(y), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values(y.transpose(0, 1).cpu()), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(values(expand(gt(y, 2.0).to(DType::f32).cpu(), {3, 2})), (Floats{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(zeros({0, 3}).cuda().cpu().sizes(), (Sizes{0, 3}));
  EXPECT_EQ(y.cuda().impl(), y.impl());
  EXPECT_EQ(x.cpu().impl(), x.impl());
  EXPECT_ERROR(Tensor().cuda(), "invalid: to (@): the tensor is undefined");
}

/// What the GPU has to do meanwhile does not keep a batch from it.
TEST(Transfer, OfABatchGoesOnWhileTheGpuIsBusy) {
  CudaDevice& gpu = cuda_device(0);
  const CudaMemory busy = gpu.allocate(256, "test");
  const Tensor x = rand({128, 256}), wide = rand({256, 128}).transpose(0, 1);
  const PinnedMemory back = gpu.allocate_pinned(size_t{128} * 256 * sizeof(float));
  gpu.synchronize();
  for (const Tensor& t : {x, wide}) {
    for (unsigned char i = 0; i < 20; ++i) gpu.fill(busy.address(), i, 256);
    const Tensor there = t.cuda();
    const auto from = reinterpret_cast<cuda::Address>(there.data_ptr<float>());
    // In no order with the compute stream: the simulated device finds fault with it if the upload was there.
    gpu.copy_to_host(back.data(), from, back.bytes(), gpu.uploads());
    gpu.synchronize(gpu.uploads());
    EXPECT_GE(cuda::sim::pending_work(0), 20u);
    EXPECT_EQ(std::memcmp(back.data(), t.contiguous().data_ptr<float>(), back.bytes()), 0);
    EXPECT_EQ(values(there), values(t)) << "which runs what the compute stream had";
  }
}

TEST(Transfer, CastsOnTheWay) {
  const Tensor x = vec({1.5, -2});
  EXPECT_EQ(x.to(kGpu, DType::i64).type_str(), "i64[2] on cuda:0");
  EXPECT_EQ(x.to(kGpu, DType::i64).to(Device::cpu(), DType::f64).to_vector<double>(),
            (std::vector<double>{1, -2}));
}

TEST(Transfer, GradientsComeBack) {
  const Tensor w = vec({1, 2}, true);
  Tensor g = w.cuda();
  EXPECT_TRUE(g.requires_grad() && !g.is_leaf());
  (g * g).cpu().sum().backward();
  EXPECT_EQ(w.grad().device(), Device::cpu());
  EXPECT_EQ(values(w.grad()), (Floats{2, 4}));
  const Tensor again = (w.cuda() * 3.0).sum();
  again.backward();
  EXPECT_EQ(values(w.grad()), (Floats{5, 7}));
  EXPECT_NE(error_of([&] { again.backward(); }).find("already consumed"), std::string::npos);
  NoGrad guard;
  EXPECT_FALSE(w.cuda().requires_grad());
}

TEST(Transfer, OfAViewThatWasWrittenTo) {
  const Tensor w = vec({1, 2, 3}, true);
  Tensor y = w * 1.0;
  const Tensor head = slice(y, 0, 0, 2);
  y.mul_(2);
  head.cuda().sum().backward();
  EXPECT_EQ(values(w.grad()), (Floats{2, 2, 0}));
}

TEST(Transfer, CopyTakesFromAnyDevice) {
  Tensor a = zeros({2, 2}, {.device = kGpu}), w = vec({1, 2}, true);
  a.copy_(w);
  EXPECT_EQ(values(a), (Floats{1, 2, 1, 2}));
  a.sum().backward();
  EXPECT_EQ(values(w.grad()), (Floats{2, 2}));
  Tensor b = zeros({2, 2});
  b.copy_(a.detach());
  EXPECT_EQ(values(b), (Floats{1, 2, 1, 2}));
}

CompileOptions with(Backend b) { return {.name = "f", .backend = b}; }

TEST(Transfer, IsARunPointOfACompiledCallable) {
  int runs = 0;
  const auto f = compile(
      [&](const Tensor& x) {
        ++runs;
        const Tensor there = (x * 2.0).cuda();
        return (there + 1.0).cpu() * 10.0;
      },
      with(Backend::reference));
  for (float v : {1.f, 2.f, 3.f}) EXPECT_EQ(values(f(vec({v}))), (Floats{(2 * v + 1) * 10}));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(f.stats().builds.size(), 1u);
}

TEST(Transfer, OfAnArgumentIsDifferentiatedInsideACompiledCallable) {
  const Tensor w = vec({1, 2}, true);
  const auto f = compile(
      [&](const Tensor& x) {
        const Tensor loss = (w.cuda() * x).sum();
        loss.backward();
        return loss;
      },
      with(Backend::reference));
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(f(vec({3, 4}).cuda()).item(), 11);
    EXPECT_EQ(values(w.grad()), (Floats{3.f * i, 4.f * i}));
  }
}

TEST(Transfer, OfAPendingValueIsDifferentiatedNowhere) {
  const Tensor w = vec({1, 2}, true);
  const auto f = compile([&] { return (w * 2.0).cuda(); }, with(Backend::reference));
  const std::string line = SourceLoc(__FILE__, __LINE__ - 1).str();
  EXPECT_EQ(
      error_of([&] { f(); }),
      "unsupported: to (" + line +
          "): f32[2] was made inside the compiled callable, and its gradient would have to come back from "
          "cuda:0 (detach() it, or compile what runs on each device by itself)");
  const auto g = compile([&] { return (w * 2.0).detach().cuda(); }, with(Backend::reference));
  EXPECT_EQ(values(g()), (Floats{2, 4}));
}

TEST(Transfer, FullGraphForbidsIt) {
  CompileOptions options = with(Backend::reference);
  options.full_graph = true;
  const auto f = compile([](const Tensor& x) { return (x * 2.0).cuda(); }, options);
  EXPECT_NE(error_of([&] { f(vec({1})); }).find("which full_graph forbids"), std::string::npos);
}

TEST(Transfer, ModulesDoNotMoveInsideACompiledCallable) {
  nn::Linear fc(2, 2);
  const auto f = compile([&] { fc.cuda(); }, with(Backend::reference));
  EXPECT_NE(error_of([&] { f(); }).find("unsupported: Module::to ("), std::string::npos);
}

}  // namespace KILN_FILE
}  // namespace kiln
