// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel over parameters on GPUs: ranks are threads, each with a simulated device, and NCCL
// is the one of tests; or there is none, and gradients go through the host.
#include <gmock/gmock.h>

#include "frontend/nn/distributed_data_parallel.h"
#include "tests/frontend/nn/ranks.h"
#include "tests/runtime/cuda/fake_nccl.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::kiln::testing::fill;
using ::kiln::testing::make_groups_with_gpus;
using ::kiln::testing::Net;
using ::kiln::testing::numbers;
using ::kiln::testing::on_groups;
using ::testing::HasSubstr;

constexpr int64_t kRows = 5;  // of each rank
constexpr int kSteps = 5;
constexpr Seconds kTimeout{60};

Tensor rows_of(int64_t salt, int64_t columns, int64_t rows, int64_t from) {
  return narrow(numbers({kRows * 2, columns}, salt), 0, from, rows).clone();
}

enum class How { eager, kernels, graphs };

/// Steps of SGD with momentum on some rows; the parameters at the end.
template <typename Model>
std::vector<std::vector<float>> train(Model& model, Module& holder, Device device, int64_t rows, int64_t from,
                                      How how, bool replayed = false) {
  optim::SGD opt(holder.parameters(), {.lr = 0.1, .momentum = 0.9});
  auto step = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = mse_loss(model(x), y);
    loss.backward();
    opt.step();
    return loss;
  };
  CompileOptions options;
  if (how == How::graphs) options.mode = Mode::reduce_overhead;
  auto fast = compile(step, options);
  const Tensor x = zeros({rows, 6}, {.device = device}), y = zeros({rows, 3}, {.device = device});
  for (int s = 0; s < kSteps; ++s) {
    Tensor(x).copy_(rows_of(1000 + s, 6, rows, from));
    Tensor(y).copy_(rows_of(2000 + s, 3, rows, from));
    if (how == How::eager) step(x, y);
    else fast(x, y);
  }
  int64_t replays = 0;
  for (const GraphedProgram& g : fast.stats().graphs) replays += g.replays;
  EXPECT_EQ(replays > 0, replayed);
  std::vector<std::vector<float>> out;
  for (const Tensor& p : holder.parameters()) out.push_back(p.cpu().to_vector<float>());
  return out;
}

struct Case {
  How how;
  bool nccl;
};
class OnGpus : public ::testing::TestWithParam<Case> {};

TEST_P(OnGpus, TrainLikeOneProcessWithTheJoinedBatch) {
  const auto [how, nccl] = GetParam();
  Net alone;
  fill(alone, 1);
  const auto expected = train(alone, alone, Device::cpu(), kRows * 2, 0, How::eager);
  std::vector<std::vector<std::vector<float>>> got(2);
  const auto groups = nccl ? make_groups_with_gpus(2, kTimeout) : make_local_groups(2, kTimeout);
  for (const std::string& s :
       on_groups(groups, [&, how = how, nccl = nccl](int r, const auto&group) -> std::string {
         const Device device = Device::cuda(r);
         Net net;
         fill(net, r == 0 ? 1 : 50);  // rank 0's values count
         net.to(device);
         DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.0005});
         got[static_cast<size_t>(r)] =
             train(ddp, net, device, kRows, kRows * r, how, nccl && how == How::graphs);
         EXPECT_EQ(net.fc0.weight.device(), device);
         if (ddp.rebuilt_buckets().size() != 2)
           return fmt::format("{} buckets", ddp.rebuilt_buckets().size());
         if (nccl) group->device_group(r)->barrier({})->wait();
         return "ok";
       }))
    EXPECT_EQ(s, "ok");
  ASSERT_EQ(got[0].size(), expected.size());
  EXPECT_EQ(got[0], got[1]);
  for (size_t p = 0; p < expected.size(); ++p)
    for (size_t i = 0; i < expected[p].size(); ++i)
      EXPECT_NEAR(got[0][p][i], expected[p][i], 2e-6f) << "parameter " << p << ", element " << i;
}
INSTANTIATE_TEST_SUITE_P(All, OnGpus,
                         ::testing::Values(Case{How::eager, true}, Case{How::kernels, true},
                                           Case{How::graphs, true}, Case{How::eager, false},
                                           Case{How::kernels, false}, Case{How::graphs, false}));

/// Parameters of two ranks after training with compressed gradients, on GPUs or on the CPU.
std::vector<std::vector<std::vector<float>>> compressed(GradientCompression c, How how, bool gpus) {
  std::vector<std::vector<std::vector<float>>> got(2);
  const auto groups = gpus ? make_groups_with_gpus(2, kTimeout) : make_local_groups(2, kTimeout);
  for (const std::string& s : on_groups(groups, [&](int r, const auto&group) -> std::string {
         const Device device = gpus ? Device::cuda(r) : Device::cpu();
         Net net;
         fill(net, 1);
         net.to(device);
         DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.0005, .compression = c});
         got[static_cast<size_t>(r)] = train(ddp, net, device, kRows, kRows * r, how, how == How::graphs);
         for (const Tensor& p : net.parameters())
           for (const float g : p.grad().cpu().template to_vector<float>())
             if (g != (c == GradientCompression::fp16 ? static_cast<float>(Half(g))
                                                      : static_cast<float>(BFloat16(g))))
               return fmt::format("{:a} was not compressed", g);
         if (gpus) group->device_group(r)->barrier({})->wait();
         return "ok";
       }))
    EXPECT_EQ(s, "ok");
  return got;
}

// Within what one rounding of a gradient can do, for kernels of a GPU sum in an order of their own.
TEST(DistributedDataParallelOnGpus, CompressedTrainsAsOnTheCpu) {
  for (const auto c : {GradientCompression::fp16, GradientCompression::bf16}) {
    const auto expected = compressed(c, How::eager, false);
    for (const How how : {How::eager, How::kernels, How::graphs}) {
      const auto got = compressed(c, how, true);
      EXPECT_EQ(got[0], got[1]);
      ASSERT_EQ(got[0].size(), expected[0].size());
      for (size_t p = 0; p < got[0].size(); ++p)
        for (size_t i = 0; i < got[0][p].size(); ++i)
          EXPECT_NEAR(got[0][p][i], expected[0][p][i], c == GradientCompression::fp16 ? 1e-4f : 1e-3f)
              << to_string(c) << ", parameter " << p << ", element " << i;
    }
  }
}

TEST(DistributedDataParallelOnGpus, AllRanksAreOnOne) {
  for (const std::string& s : on_groups(make_groups_with_gpus(2, kTimeout), [](int r, const auto&group) {
         Net net;
         if (r == 1) net.to(Device::cuda(1));
         DistributedDataParallel ddp(net, group);
         return std::string("both");
       }))
    EXPECT_THAT(s, HasSubstr("parameters on a GPU"));
  for (const std::string& s : on_groups(make_groups_with_gpus(2, kTimeout), [](int, const auto& group) {
         Net net;
         net.fc1.to(Device::cuda(1));
         DistributedDataParallel ddp(net, group);
         return std::string("both");
       }))
    EXPECT_THAT(s,
                HasSubstr("'fc0.weight' is on cpu, 'fc1.weight' on cuda:1 (move the module to one device)"));
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
