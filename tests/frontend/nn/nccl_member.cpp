// SPDX-License-Identifier: Apache-2.0
// A rank, for nccl_processes_test.py: `nccl_member eager|kernels|graphs [between|inside VICTIM]` trains a
// linear layer on its part of the batch, on a simulated GPU, in the world of its environment, and prints the
// bits of its parameters, or with which error it ended and after how many seconds. `between` makes rank
// VICTIM stop for ever before its last step, `inside` in a collective of it; whoever is to kill that
// process is told by a line of the standard output.
//
// All numbers are multiples of small powers of two, so sums are exact in every order: any split of the batch
// gives the same bits.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "frontend/kiln.h"
#include "runtime/collective_nccl.h"
#include "tests/runtime/cuda/shared_nccl.h"

namespace {

using namespace kiln;  // NOLINT(google-build-using-namespace)

constexpr int64_t kRows = 8, kInputs = 4, kOutputs = 2;
constexpr int kSteps = 5;
constexpr double kTimeout = 60;

Tensor integers(const Sizes& sizes, int64_t salt, int64_t range) {
  std::vector<float> v(static_cast<size_t>(sizes[0] * sizes[1]));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>((static_cast<int64_t>(i) * 7 + salt * 5) % (2 * range + 1) - range);
  return Tensor::from_vector(v, sizes);
}

/// Groups of GPUs by processes' NCCL, for the world's group.
void give_gpus(ProcessGroup& world) {
  auto made = std::make_shared<std::map<int, std::shared_ptr<ProcessGroup>>>();
  world.set_device_groups([made, &world](int index) {
    std::shared_ptr<ProcessGroup>& group = (*made)[index];
    if (!group)
      group = make_nccl_group(world.store(), fmt::format("gpus/{}/", made->size()), world.rank(),
                              world.size(), cuda_device(index), &testing::shared_nccl(), Seconds(kTimeout));
    return group;
  });
}

struct How {
  bool compiled = false;
  CompileOptions options = {};
  std::string stop = {};
  int victim = -1;
};

std::string train(const std::shared_ptr<ProcessGroup>& group, const How& how) {
  const int rank = group->rank(), size = group->size();
  const Device device = Device::cuda(rank % 2);
  nn::Linear model(kInputs, kOutputs);
  {
    NoGrad guard;
    Tensor(model.weight).copy_(integers({kOutputs, kInputs}, rank, 1));  // rank 0's count
    Tensor(model.bias).copy_(integers({1, kOutputs}, rank, 1).reshape({kOutputs}));
  }
  model.to(device);
  nn::DistributedDataParallel ddp(model, group, {.bucket_cap_mb = 1e-6});
  optim::SGD sgd(ddp.parameters(), {.lr = 0.5});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    sgd.zero_grad();
    const Tensor loss = mse_loss(ddp(x), y);
    loss.backward();
    sgd.step();
    return loss;
  };
  const auto fast = compile(step, how.options);
  const int64_t rows = kRows / size;
  const Tensor x = zeros({rows, kInputs}, {.device = device}),
               y = zeros({rows, kOutputs}, {.device = device});
  for (int s = 0; s < kSteps; ++s) {
    const bool stops = s == kSteps - 1 && rank == how.victim;
    if (stops && how.stop == "inside") testing::stop_shared_nccl();
    if (stops && how.stop == "between") {
      std::puts("between steps");
      std::fflush(stdout);
      while (true) pause();
    }
    Tensor(x).copy_(narrow(integers({kRows, kInputs}, s, 1), 0, rank * rows, rows).clone());
    Tensor(y).copy_(narrow(integers({kRows, kOutputs}, s + 9, 2), 0, rank * rows, rows).clone());
    const Tensor loss = how.compiled ? fast(x, y) : step(x, y);
    loss.detach().item();  // the device has come so far
  }
  int64_t replays = 0;
  for (const GraphedProgram& g : fast.stats().graphs) replays += g.replays;
  KILN_ASSERT((replays > 0) == (how.options.mode == Mode::reduce_overhead), "{} replays", replays);
  std::string out;
  for (const Tensor& p : model.parameters())
    for (const float v : p.cpu().to_vector<float>()) out += fmt::format(" {:a}", v);
  return out;
}

int run(const How& how) {
  const auto group = distributed::init_process_group({.timeout = kTimeout, .backend = "gloo"});
  give_gpus(*group);
  const auto begin = std::chrono::steady_clock::now();
  try {
    std::printf("rank %d:%s\n", group->rank(), train(group, how).c_str());
  } catch (const Error& e) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("rank %d, %.2f s: %s: %s\n", group->rank(), took.count(), to_string(e.kind()), e.what());
    return 1;
  }
  distributed::destroy_process_group();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2) return 2;
    How how;
    const std::string mode = argv[1];
    how.compiled = mode != "eager";
    if (mode == "graphs") how.options.mode = Mode::reduce_overhead;
    if (argc > 3) {
      how.stop = argv[2];
      how.victim = std::atoi(argv[3]);
    }
    return run(how);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
}
