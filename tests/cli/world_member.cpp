// SPDX-License-Identifier: Apache-2.0
// A rank, for world_test.py: `world_member ACTION [SECONDS]` joins the world of its environment within
// SECONDS and trains, or dies as the tests need. Prints what it sees; an error is one line on stderr and
// status 3.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "frontend/kiln.h"

namespace {

using kiln::Tensor;
namespace distributed = kiln::distributed;

struct Net : kiln::nn::Module {
  Net() : fc0(4, 8), fc1(8, 2) {
    register_module("fc0", fc0);
    register_module("fc1", fc1);
  }
  Tensor forward(const Tensor& x) override { return fc1(kiln::tanh(fc0(x))); }
  kiln::nn::Linear fc0, fc1;
};

/// This rank's rows of a batch of 8: the same batch, however many ranks share it.
Tensor rows(int columns, int salt) {
  const int each = 8 / distributed::get_world_size(), first = each * distributed::get_rank() * columns;
  std::vector<float> v(static_cast<size_t>(each * columns));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>((static_cast<int>(i) + first) * 37 % 61 + salt) / 61.f - 0.5f;
  return Tensor::from_vector(v, {each, columns});
}

/// A line that every rank prints, with its place in front.
void say(const std::string& text) {
  std::printf("%d/%d %d: %s\n", distributed::get_rank(), distributed::get_world_size(),
              distributed::get_local_rank(), text.c_str());
  std::fflush(stdout);
}

/// Steps of a compiled, distributed training, each on its part of one batch; says where it has led.
void train(const std::shared_ptr<kiln::ProcessGroup>& group, int steps) {
  kiln::manual_seed(static_cast<uint64_t>(group->rank()));  // all begin as rank 0
  Net net;
  kiln::nn::DistributedDataParallel ddp(net, group);
  kiln::optim::SGD sgd(ddp.parameters(), {.lr = 0.1});
  const auto step = kiln::compile([&](const Tensor& x, const Tensor& y) {
    sgd.zero_grad();
    const Tensor loss = kiln::mse_loss(ddp(x), y);
    loss.backward();
    sgd.step();
    return loss;
  });
  for (int i = 0; i < steps; ++i) {
    step(rows(4, i), rows(2, i + 7));
    if (i == 2) say("trains");
  }
  double sum = 0;
  for (const auto& [name, p] : net.named_parameters()) sum += kiln::abs(p.detach()).sum().item();
  say("parameters " + std::to_string(sum));
}

/// Sum of ranks, everybody's rank, in order.
void collect() {
  const int rank = distributed::get_rank(), size = distributed::get_world_size();
  const auto one = [](double v) {
    return Tensor::from_vector(std::vector<float>{static_cast<float>(v)}, {1});
  };
  const Tensor sum = one(rank);
  const kiln::WorkPtr work = distributed::all_reduce(sum, kiln::ReduceOp::sum, true);
  const Tensor root = one(rank + 10);
  distributed::broadcast(root, size - 1);
  std::vector<Tensor> all, parts;
  for (int r = 0; r < size; ++r) all.push_back(one(-1)), parts.push_back(one(r * 100 + rank));
  distributed::all_gather(all, one(rank));
  const Tensor part = one(-1);
  distributed::reduce_scatter(part, parts, kiln::ReduceOp::max);
  distributed::barrier();
  work->wait();
  std::string text = "sum " + std::to_string(sum.item<int>()) + " root " + std::to_string(root.item<int>());
  text += " part " + std::to_string(part.item<int>()) + " all";
  for (const Tensor& t : all) text += " " + std::to_string(t.item<int>());
  say(text);
}

/// Validates with what does not communicate, on all ranks or on the last alone; says what tuning did.
void validate(const std::shared_ptr<kiln::ProcessGroup>& group, bool all) {
  kiln::manual_seed(1);
  kiln::nn::Linear in(256, 512), out(512, 64);
  const Tensor x = kiln::randn({64, 256});
  const auto evaluate = kiln::compile([&](const Tensor& batch) {
    const kiln::no_grad guard;
    return kiln::tanh(out(kiln::tanh(in(batch)))).sum();
  });
  if (all || group->rank() == group->size() - 1) {
    evaluate(x);
    const kiln::Build& b = evaluate.stats().builds.at(0);
    say("tuned " + std::to_string(b.tuned) + " received " + std::to_string(b.tune_received) + " found " +
        std::to_string(b.tune_found));
  }
  distributed::barrier();
}

void act(const std::string& action, double seconds) {
  const auto group = distributed::init_process_group({.timeout = seconds});
  if (action == "train") train(group, 3);
  if (action == "collect") collect();
  if (action == "validate" || action == "validate_last") validate(group, action == "validate");
  if (action == "forever") train(group, 1 << 30);
  if (action == "models") {  // each rank builds another
    kiln::nn::Linear linear(4, 8 + group->rank());
    const kiln::nn::DistributedDataParallel ddp(linear, group);
  }
  if (action == "again") {
    distributed::destroy_process_group();
    distributed::init_process_group({.timeout = seconds});
    collect();
  }
  if (action == "forget") {  // destroy_process_group, and so its threads live on at exit
    collect();
    return;
  }
  if (action == "slow") {  // rank 0 must not take the store away from those that still work
    if (group->rank() != 0) std::this_thread::sleep_for(std::chrono::seconds(7));
    if (group->rank() != 0) group->store()->set("late", "x");
    say("done");
  }
  distributed::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    act(argc > 1 ? argv[1] : "train", argc > 2 ? std::atof(argv[2]) : 60);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
  return 0;
}
