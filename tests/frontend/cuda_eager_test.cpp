// SPDX-License-Identifier: Apache-2.0
// Eager ops on tensors of a GPU: the numbers of the CPU, memory of the GPU.
#include <filesystem>
#include <sstream>

#include "frontend/device.h"
#include "frontend/kiln.h"
#include "frontend/state.h"
#include "runtime/cuda/device.h"
#include "tests/frontend/testing.h"

namespace kiln {
namespace KILN_FILE {

using namespace testing;  // NOLINT

const Device kGpu = Device::cuda();

Tensor gpu(std::vector<float> v, Sizes sizes, bool grad = false) {
  return mat(std::move(v), std::move(sizes)).to(kGpu).requires_grad_(grad);
}

TEST(CudaEager, CreationIsOnTheDeviceItIsAskedFor) {
  for (const Tensor& t : {zeros({2, 3}, {.device = kGpu}), ones({2}, {.dtype = DType::f64, .device = kGpu}),
                          full({}, 3, {.dtype = DType::f64, .device = kGpu}), arange(4, {.device = kGpu}),
                          empty({0}, {.device = kGpu}), rand({5}, {.device = kGpu}),
                          randn({5}, {.device = kGpu}), randint(0, 9, {3}, {.device = kGpu}),
                          zeros_like(ones({2}, {.device = kGpu})), ones_like(ones({2}, {.device = kGpu}))}) {
    EXPECT_EQ(t.device(), kGpu) << t.type_str();
    EXPECT_TRUE(t.is_cuda() && t.is_contiguous());
  }
  EXPECT_EQ(zeros({2}).device(), Device::cpu());
  EXPECT_EQ(zeros({2, 3}, {.device = kGpu}).type_str(), "f32[2,3] on cuda:0");
  EXPECT_EQ(values(full({2}, 7.0, {.device = kGpu})), (Floats{7, 7}));
  EXPECT_EQ(arange(3, {.device = kGpu}).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(randint(2, 3, {2}, {.dtype = DType::i32, .device = kGpu}).to_vector<int32_t>(),
            (std::vector<int32_t>{2, 2}));
}

TEST(CudaEager, BytesThatDoNotFitIn64BitsAreOutOfMemory) {
  for (const int64_t n : {int64_t{1} << 62, (int64_t{1} << 62) + 1, int64_t{1} << 61})
    for (const DType t : {DType::f32, DType::f64})
      if (static_cast<double>(n) * static_cast<double>(dtype_size(t)) > 0x1p63) {
        EXPECT_THROW(zeros({n}, {.dtype = t, .device = kGpu}), Error) << n << dtype_name(t);
        EXPECT_THROW(empty({n}, {.dtype = t, .device = kGpu}), Error) << n << dtype_name(t);
        EXPECT_THROW(zeros_like(expand(zeros({1}, {.dtype = t, .device = kGpu}), {n})), Error);
      }
  EXPECT_EQ(zeros({0, int64_t{1} << 62}, {.device = kGpu}).numel(), 0);
}

TEST(CudaEager, ACopyOfAModuleIsWhereTheModuleIs) {
  nn::Linear fc(2, 3);
  fc.to(kGpu);
  const auto copy = nn::deep_copy(fc, 2, 3);
  EXPECT_EQ(copy->weight.device(), kGpu);
  EXPECT_EQ(values((*copy)(gpu({1, 2}, {1, 2}))), values(fc(gpu({1, 2}, {1, 2}))));
}

TEST(CudaEager, OutOfMemoryNamesLineDeviceAndHolders) {
  const int64_t mib = int64_t{1} << 18;  // elements
  CudaDevice& device = cuda_device(0);
  const Tensor kept = zeros({20 * mib}, {.device = kGpu});
  const CudaMemory rest = device.allocate(device.memory().free - (size_t{40} << 20), "the rest");
  const auto text = [](const char* call, SourceLoc loc) {
    return fmt::format("of {} ({})), got ", call, loc.str());
  };
  const SourceLoc here("net.cpp", 42);
  for (const auto& [call, make] : std::vector<std::pair<const char*, std::function<void()>>>{
           {"zeros", [&] { zeros({60 * mib}, {.device = kGpu}, here); }},
           {"full", [&] { full({60 * mib}, 2.0, {.device = kGpu}, here); }},
           {"randn", [&] { randn({60 * mib}, {.device = kGpu}, here); }}}) {
    const std::string got = error_of(make);
    EXPECT_TRUE(
        got.starts_with("device: cuda:0: out of memory; asked for 60.0 MiB for tensors (f32[15728640] "))
        << got;
    EXPECT_NE(got.find(text(call, here)), std::string::npos) << got;
    EXPECT_NE(got.find("MiB in use: the rest "), std::string::npos) << got;
    EXPECT_NE(got.find(", tensors 20"), std::string::npos) << got;
    EXPECT_NE(got.find("(hint: "), std::string::npos) << got;
  }
  const std::string host = error_of([&] { ones({int64_t{1} << 50}, {.device = kGpu}, here); });
  EXPECT_TRUE(host.starts_with("device: ones (net.cpp:42): out of memory: no 4503599627370496 bytes for "))
      << host;
  EXPECT_NE(host.find("cuda:0"), std::string::npos) << host;
}

TEST(CudaEager, RandomNumbersAreThoseOfTheCpu) {
  manual_seed(3);
  const Floats a = values(rand({7})), b = values(randn({7})), c = values(dropout(ones({9}), 0.5, true));
  manual_seed(3);
  EXPECT_EQ(values(rand({7}, {.device = kGpu})), a);
  EXPECT_EQ(values(randn({7}, {.device = kGpu})), b);
  EXPECT_EQ(values(dropout(ones({9}, {.device = kGpu}), 0.5, true)), c);
}

TEST(CudaEager, OpsGiveTheNumbersOfTheCpuOnTheGpu) {
  manual_seed(1);
  const Tensor x = randn({3, 4}), w = randn({5, 4}), y = randint(0, 5, {3});
  const auto f = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    const Tensor h = gelu(linear(a, b)) * 2.5 + 1.0;
    return cross_entropy(layer_norm(h, {5}), c);
  };
  const Tensor loss = f(x.cuda(), w.cuda(), y.cuda());
  EXPECT_EQ(loss.device(), kGpu);
  EXPECT_EQ(loss.item(), f(x, w, y).item());
  EXPECT_EQ(argmax(x.cuda(), 1).to_vector<int64_t>(), argmax(x, 1).to_vector<int64_t>());
  EXPECT_TRUE(static_cast<bool>(all(eq(x.cuda(), x.cuda()))));
}

TEST(CudaEager, ViewsShareMemory) {
  Tensor x = gpu({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor t = x.transpose(0, 1), row = select(x, 0, 1);
  for (const Tensor& v : {t, row, x.view({6}), x.detach(), expand(row, {4, 3})})
    EXPECT_EQ(v.impl()->storage, x.impl()->storage) << v.type_str();
  EXPECT_EQ(values(t), (Floats{0, 3, 1, 4, 2, 5}));
  x.add_(ones({2, 3}, {.device = kGpu}));
  EXPECT_EQ(values(row), (Floats{4, 5, 6}));
  Tensor column = select(x, 1, 2);
  column.mul_(10);
  EXPECT_EQ(values(x), (Floats{1, 2, 30, 4, 5, 60}));
  EXPECT_NE(x.clone().impl()->storage, x.impl()->storage);
  slice(x, 1, 0, 2).copy_(slice(x, 1, 1, 3));  // they overlap
  EXPECT_EQ(values(x), (Floats{2, 30, 30, 5, 60, 60}));
}

TEST(CudaEager, PointersAreTheDevices) {
  Tensor x = gpu({1, 2, 3, 4}, {4});
  const auto* p = x.data_ptr<float>();
  EXPECT_EQ(slice(x, 0, 2, 4).data_ptr<float>(), p + 2);
  EXPECT_EQ(p, reinterpret_cast<float*>(x.impl()->storage->data));
}

TEST(CudaEager, TensorsOnDifferentDevicesDoNotMeet) {
  const Tensor a = gpu({1, 2}, {2});
  Tensor b = vec({3, 4});
  b.set_name("bias");
  EXPECT_ERROR(
      a + b,
      "invalid: add (@): the tensors are on different devices; got f32[2] on cuda:0 and f32[2] 'bias' on "
      "cpu (move one, e.g. with .to(Device::cuda(0)))");
  EXPECT_ERROR(
      matmul(b, a),
      "invalid: matmul (@): the tensors are on different devices; got f32[2] 'bias' on cpu and f32[2] on "
      "cuda:0 (move one, e.g. with .to(Device::cuda(0)))");
  EXPECT_ERROR(
      cat({a, b}),
      "invalid: cat (@): the tensors are on different devices; got f32[2] on cuda:0 and f32[2] 'bias' on "
      "cpu (move one, e.g. with .to(Device::cuda(0)))");
  EXPECT_ERROR(
      b.add_(a),
      "invalid: add_ (@): other f32[2] on cuda:0 does not go into self f32[2] on cpu (move it with .to())");
  EXPECT_ERROR(b.set_grad(a), "invalid: set_grad (@): got f32[2] on cuda:0, expected f32[2] on cpu");
}

TEST(CudaEager, NumbersOfTheCpuMeetTensorsOfTheGpu) {
  const Tensor x = gpu({1, 2}, {2});
  Tensor s = Tensor::from_vector<float>({3}, {});
  EXPECT_EQ(values(x * s), (Floats{3, 6}));
  EXPECT_EQ((s - x).device(), kGpu);
  EXPECT_EQ(values(where(gt(x, 1.5), s, x)), (Floats{1, 3}));
  EXPECT_ERROR(
      s.add_(full({}, 1.0, {.device = kGpu})),
      "invalid: add_ (@): other f32[] on cuda:0 does not go into self f32[] on cpu (move it with .to())");
  s.requires_grad_();
  (x * s).sum().backward();
  EXPECT_EQ(s.grad().device(), Device::cpu());
  EXPECT_EQ(s.grad().item(), 3);
}

TEST(CudaEager, ElementsAreReadThroughCopies) {
  const Tensor x = gpu({1.5, -2, 0, 4}, {2, 2});
  EXPECT_EQ(select(select(x, 0, 1), 0, 1).item(), 4);
  EXPECT_EQ(x.transpose(0, 1).to_vector<float>(), (Floats{1.5, 0, -2, 4}));
  std::ostringstream text;
  text << x;
  EXPECT_EQ(text.str(), "[[ 1.5000, -2.0000],\n [ 0.0000,  4.0000]] f32[2,2] on cuda:0");
  EXPECT_EQ(error_of([&] { (void)x.impl()->ref(); }).substr(0, 9), "internal:");
  EXPECT_EQ(error_of([&] { (void)detail::host_of(*x.impl()); }).substr(0, 9), "internal:");
}

TEST(CudaEager, BackwardWithHooksAndRetainedGraphs) {
  for (const Device device : {Device::cpu(), kGpu}) {
    Tensor w = vec({1, 2, 3}).to(device).requires_grad_();
    Tensor y = w * w;
    const Tensor z = (y * y).sum();
    Floats seen;
    y.register_hook([&](const Tensor& g) {
      EXPECT_EQ(g.device(), device);
      seen = values(g);
      EXPECT_EQ(zeros({1}).device(), Device::cpu());  // a hook's ops are its own
      return g * 2.0;
    });
    z.backward({}, true);
    EXPECT_EQ(seen, (Floats{2, 8, 18}));
    EXPECT_EQ(values(w.grad()), (Floats{8, 64, 216}));
    EXPECT_EQ(w.grad().device(), device);
    z.backward();
    EXPECT_EQ(values(w.grad()), (Floats{16, 128, 432}));
  }
}

TEST(CudaEager, WritesToViewsAreDifferentiated) {
  for (const Device device : {Device::cpu(), kGpu}) {
    Tensor w = vec({1, 2, 3, 4}).to(device).requires_grad_();
    Tensor y = w * 2.0;
    Tensor tail = slice(y, 0, 2, 4);
    tail.mul_(y.detach().cpu().to(device).sum().detach());
    (y * y).sum().backward();
    EXPECT_EQ(values(w.grad()), (Floats{8, 16, 9600, 12800})) << device.str();
  }
}

/// A model with a buffer and a tied weight.
class Net : public nn::Module {
 public:
  Net() {
    register_module("fc", fc);
    register_module("norm", norm);
    register_buffer("scale", scale);
    out = fc.weight;
    register_parameter("out", out);
  }
  Tensor forward(const Tensor& x) override { return linear(norm(gelu(fc(x))), out) * scale; }
  nn::Linear fc{4, 4};
  nn::LayerNorm norm{4};
  Tensor scale = full({4}, 0.5), out;
};

template <typename Optimizer, typename Options>
Floats trained(Device device, const Options& options) {
  manual_seed(7);
  Net net;
  net.to(device);
  Optimizer opt(net.parameters(), options);
  manual_seed(11);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = randn({6, 4}, {.device = device});
    opt.zero_grad();
    const Tensor loss = mse_loss(net(x), x);
    loss.backward();
    EXPECT_EQ(optim::clip_grad_norm_(net.parameters(), 0.5).device(), device);
    opt.step();
  }
  Floats all;
  for (const auto& [name, t] : net.state_dict())
    for (float v : values(t)) all.push_back(v);
  return all;
}

TEST(CudaEager, OptimizersTrainToTheSameBits) {
  const optim::AdamWOptions adam{.lr = 0.1};
  const optim::SGDOptions sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
  EXPECT_EQ((trained<optim::AdamW>(kGpu, adam)), (trained<optim::AdamW>(Device::cpu(), adam)));
  EXPECT_EQ((trained<optim::SGD>(kGpu, sgd)), (trained<optim::SGD>(Device::cpu(), sgd)));
}

TEST(CudaEager, ModulesMoveInPlace) {
  Net net;
  const Tensor weight = net.fc.weight;  // held elsewhere
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  weight.backward(ones({4, 4}));
  const Floats before = values(weight);
  net.cuda();
  EXPECT_EQ(weight.device(), kGpu);
  EXPECT_EQ(weight.grad().device(), kGpu);
  EXPECT_EQ(net.out.impl(), net.fc.weight.impl());
  EXPECT_EQ(net.scale.device(), kGpu);
  EXPECT_EQ(weight.name(), "out");
  EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
  EXPECT_EQ(values(weight), before);
  opt.step();
  EXPECT_NE(values(net.out), before);
  net.cpu();
  EXPECT_EQ(net.norm.weight.device(), Device::cpu());
}

TEST(CudaEager, OptimizerStateIsWhereTheParametersAre) {
  Net net;
  net.cuda();
  optim::AdamW opt(net.parameters(), {});
  net(ones({2, 4}).cuda()).sum().backward();
  opt.step();
  size_t moments = 0;
  for (const auto& [name, t] : opt.state_dict()) {
    EXPECT_EQ(t.is_cuda(), name.find("exp_avg") != std::string::npos) << name;
    moments += t.is_cuda();
  }
  EXPECT_EQ(moments, 2 * opt.params().size());
  net.cpu();
  opt.zero_grad();
  net(ones({2, 4})).sum().backward();
  EXPECT_NE(error_of([&] { opt.step(); }).find("make the optimizer after Module::to"), std::string::npos);
}

/// The scaler is made before anybody knows where the loss will be.
TEST(CudaEager, AGradScalerFollowsTheLoss) {
  for (const bool compiled : {false, true}) {
    Net net, plain;
    net.load_state_dict(plain.state_dict());
    net.cuda();
    optim::SGD opt(net.parameters(), {.lr = 0.5}), expected(plain.parameters(), {.lr = 0.5});
    GradScaler scaler({.init_scale = 8, .growth_interval = 1});
    EXPECT_EQ(scaler.get_scale(), 8);
    const auto step = [&](const Tensor& x) {
      opt.zero_grad();
      const Tensor loss = net(x).sum();
      scaler.scale(loss).backward();
      scaler.step(opt);
      scaler.update();
      return loss;
    };
    auto fast = compile(step);
    const Tensor x = ones({2, 4});
    for (int i = 0; i < 3; ++i) {
      compiled ? fast(x.cuda()) : step(x.cuda());
      expected.zero_grad();
      plain(x).sum().backward();
      expected.step();
    }
    EXPECT_EQ(scaler.get_scale(), 64);
    EXPECT_EQ(scaler.state_dict()[0].second.device(), Device::cpu());
    EXPECT_EQ(fast.stats().builds.size(), compiled ? 1u : 0u);
    for (size_t p = 0; p < opt.params().size(); ++p) {
      const Floats got = values(opt.params()[p]), want = values(expected.params()[p]);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4 * (1 + std::abs(want[i])));
    }
    EXPECT_ERROR(scaler.scale(x.sum()),
                 "invalid: GradScaler.scale (@): got a tensor on cpu, and this scaler is for cuda:0 (one "
                 "scaler for each device)");
  }
}

TEST(CudaEager, ErrorsOfDevicesNameTheLine) {
  const Tensor x = ones({2});
  Net net;
  const auto says = [](const std::string& text, const std::string& what) {
    EXPECT_TRUE(text.starts_with("device: " + what + " (cuda_eager_test.cpp:")) << text;
    EXPECT_NE(text.find("cuda:99: no such device; got index 99, expected 0 to "), std::string::npos) << text;
  };
  says(error_of([&] { x.cuda(99); }), "to");
  says(error_of([&] { net.cuda(99); }), "Module::to");
  says(error_of([&] { zeros({2}, {.device = Device::cuda(99)}); }), "zeros");
  says(error_of([&] { cuda::synchronize(99); }), "cuda::synchronize");
  EXPECT_ERROR(x.cuda(-1), "invalid: Device::cuda (@): got index -1, expected 0 or more");
}

TEST(CudaEager, StateDictsGoFromOneDeviceToTheOther) {
  Net a, b;
  a.cuda();
  {
    NoGrad guard;
    a.fc.weight.mul_(3);
  }
  const std::string path = std::filesystem::temp_directory_path() / "kiln_cuda_eager_test.safetensors";
  save_file(a.state_dict(), path);
  for (const auto& [name, t] : load_file(path)) EXPECT_EQ(t.device(), Device::cpu());
  b.load_state_dict(load_file(path));
  EXPECT_EQ(values(b.fc.weight), values(a.fc.weight));
  {
    NoGrad guard;
    b.fc.weight.zero_();
  }
  a.load_state_dict(b.state_dict());
  EXPECT_EQ(values(a.fc.weight), Floats(16, 0));
  EXPECT_EQ(a.fc.weight.device(), kGpu);
}

}  // namespace KILN_FILE
}  // namespace kiln
