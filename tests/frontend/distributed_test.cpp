// SPDX-License-Identifier: Apache-2.0
// The world of a process by PyTorch's names: state, arguments, errors. A world of several processes is tested
// by tests/cli/world_test.py.
#include "frontend/distributed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "frontend/kiln.h"
#include "tests/frontend/testing.h"

namespace kiln::distributed {
namespace KILN_FILE {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Tensor floats(const std::vector<float>& v) {
  return Tensor::from_vector(v, {static_cast<int64_t>(v.size())});
}

/// A world of one.
struct Distributed : ::testing::Test {
  void SetUp() override { group = init_process_group(); }
  void TearDown() override {
    if (is_initialized()) destroy_process_group();
  }
  std::shared_ptr<ProcessGroup> group;
};

TEST(NoGroup, EveryCallSaysSo) {
  EXPECT_FALSE(is_initialized());
  const Tensor t = floats({1});
  const std::function<void()> calls[] = {[] { get_rank(); },
                                         [] { get_world_size(); },
                                         [] { get_local_rank(); },
                                         [] { destroy_process_group(); },
                                         [] { barrier(); },
                                         [&] { all_reduce(t); },
                                         [&] { broadcast(t, 0); },
                                         [&] { all_gather({t}, t); },
                                         [&] { reduce_scatter(t, {t}); }};
  for (const auto& call : calls)
    EXPECT_THAT(error_of(call),
                MatchesRegex("invalid: [a-z_]+ \\(distributed_test.cpp:[0-9]+\\): there is no process group "
                             "\\(call init_process_group first\\)"));
}

TEST(NoGroup, WhatIsWrongWithTheEnvironmentIsSaidWithTheLine) {
  setenv("RANK", "2", 1);
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_THAT(
      error_of([] { init_process_group(); }),
      MatchesRegex("invalid: rendezvous: RANK is 2, but WORLD_SIZE is 2; expected a rank from 0 to 1 .in "
                   "init_process_group .distributed_test.cpp:[0-9]+..$"));
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_THAT(error_of([] { init_process_group({.timeout = 0}); }), HasSubstr("bad timeout; got 0 s"));
  EXPECT_FALSE(is_initialized());
}

TEST_F(Distributed, HasItsPlaceUntilItIsLeft) {
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(get_rank(), 0);
  EXPECT_EQ(get_world_size(), 1);
  EXPECT_EQ(get_local_rank(), 0);
  EXPECT_THAT(error_of([] { init_process_group(); }),
              HasSubstr("there is a process group already, rank 0 of 1"));
  destroy_process_group();
  EXPECT_FALSE(is_initialized());
  init_process_group();
  EXPECT_TRUE(is_initialized());
}

TEST_F(Distributed, CollectivesOfOne) {
  const Tensor t = floats({1, 2});
  EXPECT_EQ(all_reduce(t), nullptr);
  broadcast(t, 0);
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(1, 2));
  const Tensor gathered = floats({0, 0}), scattered = floats({0, 0});
  all_gather({gathered}, t);
  reduce_scatter(scattered, {t}, ReduceOp::max);
  EXPECT_THAT(gathered.to_vector<float>(), ElementsAre(1, 2));
  EXPECT_THAT(scattered.to_vector<float>(), ElementsAre(1, 2));
  barrier();
  const Tensor none = Tensor::from_vector(std::vector<float>{}, {0});
  all_gather({none.clone()}, none);
  reduce_scatter(none, {none.clone()});
}

TEST_F(Distributed, AnAsynchronousOneKeepsItsTensors) {
  const Tensor gathered = floats({0, 0});
  const WorkPtr work = all_gather({gathered}, floats({3, 4}), true);
  ASSERT_TRUE(work);
  work->wait();
  work->wait();
  EXPECT_THAT(gathered.to_vector<float>(), ElementsAre(3, 4));
  EXPECT_TRUE(work->done());                     // of a GPU, since somebody has read it
  all_reduce(floats({1}), ReduceOp::sum, true);  // nobody waits for it
  barrier(true)->wait();
}

TEST_F(Distributed, AParameterMayBeBroadcast) {
  nn::Linear layer(2, 2);
  for (const auto& [name, p] : layer.named_parameters()) broadcast(p, 0);
}

TEST_F(Distributed, TensorsThatDoNotFit) {
  const Tensor t = floats({1, 2}), m = Tensor::from_vector(std::vector<float>(6), {2, 3});
  const Tensor ints = Tensor::from_vector(std::vector<int64_t>{1, 2}, {2});
  EXPECT_THAT(error_of([&] { all_reduce(m.transpose(0, 1)); }),
              MatchesRegex("invalid: all_reduce \\(distributed_test.cpp:[0-9]+\\): f32\\[3,2\\] is strided; "
                           "expected a contiguous tensor \\(contiguous\\(\\)\\)"));
  EXPECT_THAT(error_of([&] { all_reduce(Tensor()); }), HasSubstr("all_reduce"));
  EXPECT_THAT(error_of([&] { broadcast(t, 1); }), HasSubstr("invalid: "));
  EXPECT_THAT(error_of([&] {
                all_gather({t, t}, t);
              }),
              HasSubstr("tensor_list has the wrong number of tensors; got 2, expected 1, one for each rank"));
  EXPECT_THAT(error_of([&] { all_gather({m}, t); }),
              HasSubstr("tensor_list[0] does not fit; got f32[2,3], expected f32[2]"));
  EXPECT_THAT(error_of([&] { reduce_scatter(t, {ints}); }),
              HasSubstr("input_list[0] does not fit; got i64[2], expected f32[2]"));
  EXPECT_THAT(error_of([&] { all_reduce(floats({1}).to(DType::boolean)); }), HasSubstr("invalid: "));
}

TEST_F(Distributed, NotInsideACompiledCallable) {
  const auto f = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    all_reduce(y);
    return y;
  });
  EXPECT_THAT(
      error_of([&] { f(floats({1})); }),
      MatchesRegex("unsupported: all_reduce \\(distributed_test.cpp:[0-9]+\\): a collective inside a "
                   "compiled callable; gradients are reduced by nn::DistributedDataParallel, and others "
                   "are to be called outside.*"));
}

TEST_F(Distributed, AModelTrainsInAWorldOfOne) {
  nn::Linear layer(2, 1);
  nn::DistributedDataParallel ddp(layer, group);
  optim::SGD sgd(ddp.parameters(), {.lr = 0.1});
  const Tensor before = layer.named_parameters()[0].second.detach().clone();
  const Tensor loss = ddp(Tensor::from_vector(std::vector<float>{1, 2}, {1, 2})).sum();
  loss.backward();
  sgd.step();
  EXPECT_NE(before.to_vector<float>(), layer.named_parameters()[0].second.detach().to_vector<float>());
  destroy_process_group();  // before the module goes
}

// ---- GPUs ----

struct Backends : ::testing::Test {
  void SetUp() override { setenv("KILN_CUDA_DRIVER", "sim", 1); }
  void TearDown() override {
    if (is_initialized()) destroy_process_group();
    unsetenv("KILN_CUDA_DRIVER");
  }
};

TEST_F(Backends, TensorsOfAGpu) {
  for (const char* name : {"", "gloo", "nccl", "cpu:gloo,cuda:nccl"}) {
    const auto group = init_process_group({.backend = name});
    EXPECT_EQ(group->device_group(0) != nullptr, std::string(name) != "gloo") << name;
    const Tensor t = floats({1, 2}).cuda(1), on_cpu = floats({3});
    const Tensor a = zeros({2}).cuda(1), b = zeros({2}).cuda(1);
    all_reduce(t);
    all_reduce(on_cpu);
    broadcast(t, 0);
    const WorkPtr work = all_gather({a}, t, true);
    work->wait();
    reduce_scatter(b, {a}, ReduceOp::max);
    EXPECT_THAT(b.cpu().to_vector<float>(), ElementsAre(1, 2)) << name;
    EXPECT_THAT(on_cpu.to_vector<float>(), ElementsAre(3)) << name;
    destroy_process_group();
  }
}

TEST_F(Backends, WrongOnes) {
  EXPECT_THAT(error_of([] { init_process_group({.backend = "mpi"}); }),
              HasSubstr("no such backend; got 'mpi', expected 'gloo', 'nccl' or 'cpu:gloo,cuda:nccl'"));
  setenv("KILN_CUDA_DRIVER", "off", 1);
  EXPECT_THAT(error_of([] { init_process_group({.backend = "nccl"}); }),
              HasSubstr("device: no CUDA device can be used: KILN_CUDA_DRIVER=off"));
  EXPECT_FALSE(is_initialized());
}

}  // namespace KILN_FILE
}  // namespace kiln::distributed
