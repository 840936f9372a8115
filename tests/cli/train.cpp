// SPDX-License-Identifier: Apache-2.0
// A training run for the tests of the program `kiln`: a small network with AdamW, three steps and one
// evaluation. Prints one line of JSON: the losses, exactly, and what each build cost.
// Usage: cli_train [WIDTH [ddp|bf16|autocast|cuda]]: as a world of one rank; so, with gradients sent as bf16;
// with products of bf16; on a GPU.
#include <fmt/format.h>

#include "frontend/amp.h"
#include "frontend/functional.h"
#include "frontend/kiln.h"
#include "frontend/nn/distributed_data_parallel.h"
#include "frontend/nn/layers.h"
#include "frontend/optim/adam.h"
#include "runtime/collective.h"

namespace {

class Net : public kiln::nn::Module {
 public:
  explicit Net(int64_t width) : fc1(16, width), fc2(width, 4) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  kiln::Tensor forward(const kiln::Tensor& x) override { return fc2(kiln::relu(fc1(x))); }
  kiln::nn::Linear fc1, fc2;
};

int run(int64_t width, const std::string& how) {
  const kiln::Device device = how == "cuda" ? kiln::Device::cuda() : kiln::Device::cpu();
  kiln::manual_seed(1);
  Net net(width);
  net.to(device);
  std::unique_ptr<kiln::nn::DistributedDataParallel> parallel;
  kiln::nn::DistributedDataParallelOptions options;
  if (how == "bf16") options.compression = kiln::nn::GradientCompression::bf16;
  if (how == "ddp" || how == "bf16")
    parallel = std::make_unique<kiln::nn::DistributedDataParallel>(
        net, kiln::make_local_groups(1, kiln::Seconds(30))[0], options);
  kiln::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  const kiln::Tensor x = kiln::randn({8, 16}).to(device), target = kiln::randn({8, 4}).to(device);
  auto step = kiln::compile(
      [&] {
        optimizer.zero_grad();
        const kiln::autocast cast(kiln::DType::bf16, how == "autocast");
        const kiln::Tensor loss = kiln::mse_loss(parallel ? (*parallel)(x) : net(x), target);
        loss.backward();
        optimizer.step();
        return loss;
      },
      {.name = "train"});
  auto evaluate = kiln::compile(
      [&] {
        const kiln::no_grad guard;
        const kiln::Tensor loss = kiln::mse_loss(net(x), target);
        return loss.item<float>() > 1e6f ? loss : loss * 2;
      },
      {.name = "evaluate"});
  std::string losses;
  for (int i = 0; i < 3; ++i) losses += fmt::format("\"{:a}\",", step().item<float>());
  losses += fmt::format("\"{:a}\"", evaluate().item<float>());
  std::string builds;
  for (const kiln::CallableStats& s : {step.stats(), evaluate.stats()})
    for (const kiln::Build& b : s.builds)
      builds +=
          fmt::format("{}{{\"cached\":{},\"compiled\":{},\"kernels\":{},\"tuned\":{},\"seconds\":{}}}",
                      builds.empty() ? "" : ",", b.from_cache, b.compiled, b.kernels, b.tuned, b.seconds);
  fmt::print("{{\"losses\":[{}],\"builds\":[{}]}}\n", losses, builds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::stoll(argv[1]) : 32, argc > 2 ? argv[2] : "");
  } catch (const std::exception& e) {
    fmt::print(stderr, "train: {}\n", e.what());
    return 1;
  }
}
