// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel among ranks that are threads: gradients against one process with the joined batch,
// eager and compiled, buckets, no_sync, and what is said when ranks differ.
#include "frontend/nn/distributed_data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "ir/base/options.h"
#include "tests/frontend/nn/ranks.h"

namespace kiln::nn {
namespace KILN_FILE {

using ::kiln::testing::fill;
using ::kiln::testing::Net;
using ::kiln::testing::numbers;
using ::kiln::testing::on_ranks;
using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;

std::string bytes_of(const Module& m) {
  std::string out;
  for (const auto& [name, p] : m.named_parameters())
    for (float v : p.to_vector<float>()) out.append(reinterpret_cast<const char*>(&v), sizeof v);
  return out;
}

constexpr int64_t kRows = 5;  // of each rank
constexpr int kSteps = 4;
Tensor batch(int step, int64_t rows, int64_t from) {
  return narrow(numbers({kRows * 8, 6}, 1000 + step), 0, from, rows).clone();
}
Tensor target(int step, int64_t rows, int64_t from) {
  return narrow(numbers({kRows * 8, 3}, 2000 + step), 0, from, rows).clone();
}

/// Steps of SGD with momentum on this rank's rows; the parameters at the end.
template <typename Model>
std::vector<std::vector<float>> train(Model& model, Module& holder, int64_t rows, int64_t from, bool compiled,
                                      int* builds = nullptr) {
  optim::SGD opt(holder.parameters(), {.lr = 0.1, .momentum = 0.9});
  auto step = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = mse_loss(model(x), y);
    loss.backward();
    opt.step();
    return loss;
  };
  auto fast = compile(step);
  for (int s = 0; s < kSteps; ++s) {
    const Tensor x = batch(s, rows, from), y = target(s, rows, from);
    if (compiled) fast(x, y);
    else step(x, y);
  }
  if (builds) *builds = static_cast<int>(fast.stats().builds.size());
  std::vector<std::vector<float>> out;
  for (const Tensor& p : holder.parameters()) out.push_back(p.to_vector<float>());
  return out;
}

class Ranks : public ::testing::TestWithParam<std::tuple<int, bool>> {};

/// the mean over ranks of the means over their rows is the mean over all rows.
TEST_P(Ranks, TrainLikeOneProcessWithTheJoinedBatch) {
  const auto [n, compiled] = GetParam();
  Net alone;
  fill(alone, 1);
  const auto expected = train(alone, alone, kRows * n, 0, false);
  std::vector<std::string> bits(static_cast<size_t>(n));
  for (const std::string& s : on_ranks(n, [&](int r, auto group) -> std::string {
         Net net;
         fill(net, r == 0 ? 1 : 50);  // rank 0's values count
         DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 0.0005});
         int builds = 0;
         const auto got = train(ddp, net, kRows, kRows * r, compiled, &builds);
         bits[static_cast<size_t>(r)] = bytes_of(net);
         if (builds != (compiled ? 1 : 0)) return fmt::format("{} builds", builds);
         if (ddp.rebuilt_buckets().size() != 2)
           return fmt::format("{} buckets", ddp.rebuilt_buckets().size());
         for (size_t p = 0; p < got.size(); ++p)
           for (size_t i = 0; i < got[p].size(); ++i)
             if (!(std::abs(got[p][i] - expected[p][i]) <= 2e-6f))
               return fmt::format("parameter {} element {}: {} for {}", p, i, got[p][i], expected[p][i]);
         return "ok";
       }))
    EXPECT_EQ(s, "ok");
  for (const std::string& b : bits) EXPECT_TRUE(b == bits[0]);
}
INSTANTIATE_TEST_SUITE_P(All, Ranks, ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()));

/// Two steps of accumulation, the first under no_sync; K14's figures: 8 on both ranks after each pair. R-84.
TEST(DistributedDataParallel, NoSyncAddsUpAndTheLastStepReduces) {
  struct One : Module {
    One() : w(zeros({})) { register_parameter("w", w); }
    Tensor forward(const Tensor& x) override { return w * x; }
    Tensor w;
  };
  for (bool compiled : {false, true})
    for (const std::string& s : on_ranks(2, [&](int r, auto group) -> std::string {
           One one;
           DistributedDataParallel ddp(one, group);
           const float x[2][2] = {{2, 4}, {1, 9}};
           auto pair = [&](const Tensor& a, const Tensor& b) {
             {
               const auto guard = ddp.no_sync();
               ddp(a).backward();
             }
             ddp(b).backward();
           };
           auto fast = compile(pair);
           for (int step = 0; step < 3; ++step) {
             ddp.zero_grad();
             const Tensor a = Tensor::from_vector<float>({x[r][0]}, {}),
                          b = Tensor::from_vector<float>({x[r][1]}, {});
             if (compiled) fast(a, b);
             else pair(a, b);
             if (one.w.grad().template item<float>() != 8)
               return fmt::format("gradient {}", one.w.grad().item());
           }
           return fmt::format("{} reductions", ddp.reductions());
         }))
      EXPECT_EQ(s, "3 reductions");
}

/// K13: a tied weight is reduced once, and no use is lost.
TEST(DistributedDataParallel, TiedWeightsAreReducedOnce) {
  struct Tied : Module {
    Tied() : w(Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2})), tied(w) {
      register_parameter("w", w);
      register_parameter("tied", tied);
    }
    Tensor forward(const Tensor& x) override { return matmul(transpose(tied, 0, 1), matmul(w, x)); }
    Tensor w, tied;
  };
  for (bool compiled : {false, true})
    for (const std::string& s : on_ranks(2, [&](int, auto group) -> std::string {
           Tied tied;
           DistributedDataParallel ddp(tied, group);
           auto step = [&](const Tensor& x) {
             Tensor loss = sum(ddp(x));
             loss.backward();
             return loss;
           };
           auto fast = compile(step);
           const Tensor x = Tensor::from_vector<float>({1, 1}, {2}), loss = compiled ? fast(x) : step(x);
           return fmt::format("{} {}", loss.item(),
                              fmt::join(tied.w.grad().template to_vector<float>(), " "));
         }))
      EXPECT_EQ(s, "58 6 6 14 14");
}

/// Forward compiled alone, backward outside: reduced all the same.
TEST(DistributedDataParallel, BackwardOutsideTheCompiledCallable) {
  for (const std::string& s : on_ranks(2, [&](int r, auto group) -> std::string {
         Net net, same;
         fill(net, 1);
         fill(same, 1);
         DistributedDataParallel ddp(net, group);
         auto forward = compile([&](const Tensor& x) { return ddp(x); });
         for (int s = 0; s < 2; ++s) {
           ddp.zero_grad();
           same.zero_grad();
           mse_loss(forward(batch(s, kRows, kRows * r)), target(s, kRows, kRows * r)).backward();
           mse_loss(same(batch(s, 2 * kRows, 0)), target(s, 2 * kRows, 0)).backward();
           const auto a = net.fc1.weight.grad().template to_vector<float>();
           const auto b = same.fc1.weight.grad().template to_vector<float>();
           for (size_t i = 0; i < a.size(); ++i)
             if (!(std::abs(a[i] - b[i]) < 1e-6f)) return fmt::format("element {}: {} for {}", i, a[i], b[i]);
         }
         return "ok";
       }))
    EXPECT_EQ(s, "ok");
}

// --- what is refused ---

TEST(DistributedDataParallel, NeedsSomethingToTrainAndAGroup) {
  Net net;
  EXPECT_THAT(
      on_ranks(1, [&](int, auto) -> std::string { return DistributedDataParallel(net, nullptr), ""; })[0],
      HasSubstr("none has been initialized (join one first: distributed::init_process_group)"));
  net.requires_grad_(false);
  EXPECT_THAT(on_ranks(1, [&](int, auto g) -> std::string { return DistributedDataParallel(net, g), ""; })[0],
              HasSubstr("not needed, for no parameter requires a gradient (6 parameters, 0 ignored)"));
  net.requires_grad_(true);
  for (double mb : {0.0, -1.0, std::nan("")})
    EXPECT_THAT(on_ranks(1,
                         [&](int, auto g) -> std::string {
                           return DistributedDataParallel(net, g, {.bucket_cap_mb = mb}), "";
                         })[0],
                HasSubstr("expected one above 0"));
  EXPECT_EQ(on_ranks(1, [&](int, auto g) -> std::string { return DistributedDataParallel(net, g), ""; })[0],
            "");
}

/// R-31, with all ranks raising.
TEST(DistributedDataParallel, DifferentModelsNameTheFirstParameterOnAllRanks) {
  const auto got = on_ranks(3, [&](int r, auto group) -> std::string {
    Net net(r == 1 ? 8 : 16);
    return DistributedDataParallel(net, group), "";
  });
  for (const std::string& s : got) {
    EXPECT_THAT(s, ::testing::StartsWith("comm: "));
    EXPECT_THAT(s, HasSubstr("the names or sizes of params[0] differ: "));
    EXPECT_THAT(s, HasSubstr("fc0.weight f32[8,6] (6 in all)"));
    EXPECT_THAT(s, HasSubstr("fc0.weight f32[16,6] (6 in all)"));
  }
}

TEST(DistributedDataParallel, ARankThatNeverComesIsNamed) {
  const auto got = on_ranks(
      2,
      [&](int r, auto group) -> std::string {
        Net net;
        if (r == 1) return "";
        return DistributedDataParallel(net, group), "";
      },
      0.3);
  EXPECT_THAT(got[0], HasSubstr("rank 0 waited 0.3 s for rank 1, which has not come here"));
}

///
TEST(DistributedDataParallel, ParametersWithoutGradientAreNamedAtTheNextForward) {
  struct Spare : Net {
    Spare() : spare(2, 2) { register_module("spare", spare); }
    Linear spare;
  };
  for (const std::string& s : on_ranks(2, [&](int, auto group) -> std::string {
         Spare net;
         DistributedDataParallel ddp(net, group);
         sum(ddp(batch(0, 2, 0))).backward();
         sum(ddp(batch(0, 2, 0))).backward();
         return "";
       }))
    EXPECT_THAT(s, HasSubstr("expected to have finished reduction in the prior iteration"));
}

/// never local in silence.
TEST(DistributedDataParallel, ASecondBackwardOfOneForwardIsRefused) {
  for (const std::string& s : on_ranks(2, [&](int, auto group) -> std::string {
         Net net;
         DistributedDataParallel ddp(net, group);
         const Tensor loss = sum(ddp(batch(0, 2, 0)));
         loss.backward({}, true);
         loss.backward();
         return "";
       }))
    EXPECT_THAT(s, HasSubstr("this second backward's would be this rank's alone"));
}

TEST(DistributedDataParallel, AParameterHasOneWrapper) {
  const auto got = on_ranks(1, [&](int, auto group) -> std::string {
    Net net;
    { const DistributedDataParallel gone(net, group); }
    const DistributedDataParallel one(net.fc0, group);
    return DistributedDataParallel(net, group), "";
  });
  EXPECT_THAT(got[0], HasSubstr("'fc0.weight' is reduced by another DistributedDataParallel already"));
}

/// Ranks that take different paths, compiled: an error on both that says where they part.
TEST(DistributedDataParallel, DivergingRanksSayWhatDiffers) {
  const auto got = on_ranks(
      2,
      [&](int r, auto group) -> std::string {
        Net net;
        DistributedDataParallel ddp(net, group);
        auto step = compile([&](const Tensor& x, bool twice) {
          ddp.zero_grad();
          sum(ddp(x)).backward();
          if (twice) sum(ddp(x)).backward();
        });
        step(batch(0, 2, 0), false);
        step(batch(0, 2, 0), r == 1);
        return "";
      },
      5);
  for (const std::string& s : got) {
    EXPECT_THAT(s, ::testing::StartsWith("comm: "));
    EXPECT_THAT(
        s,
        HasSubstr(
            "communicate differently in call 2: collective 1 is none (there are 1) on rank 0, all_reduce"));
  }
}

/// ranks that build get the same schedules, whoever measured; one that builds alone waits for nobody.
TEST(DistributedDataParallel, RanksTuneTogetherAndAlone) {
  const int64_t width = 128 + getpid() % 200;  // that no earlier run has tuned
  set_option("KILN_TUNE_BUDGET_S", "100");     // a slow machine, too, measures something
  std::atomic<int> tuned = 0, kernels = 0;
  const auto got = on_ranks(2, [&](int r, auto group) -> std::string {
    Net net(width);
    fill(net, 1);
    DistributedDataParallel ddp(net, group);
    std::string out;
    for (int start = 0; start < 2; ++start) {
      auto step = compile(
          [&](const Tensor& x) {
            ddp.zero_grad();
            sum(ddp(x)).backward();
          },
          {.tune = Tune::fast});
      step(batch(0, 40, 0));
      step(batch(0, r == 0 ? 40 : 24, 0));
      const auto builds = step.stats().builds;
      const Build& together = builds.front();
      const int chosen = together.tuned + together.tune_found + together.tune_received;
      out += fmt::format("{} kernels, ", chosen);
      if (start == 0) tuned += together.tuned, kernels = chosen;
      if (builds.size() != (r == 0 ? 1u : 2u)) return fmt::format("{} builds", builds.size());
      const Build& last = builds.back();
      if (r == 1 && (last.tune_received != 0 || last.tuned + last.tune_found == 0)) return "not tuned alone";
      if (start == 1 && last.tuned != 0) return "tuned again";
      if (start == 1 && last.tune_seconds > 2) return fmt::format("waited {} s", last.tune_seconds);
    }
    return out + bytes_of(net);
  });
  set_option("KILN_TUNE_BUDGET_S", "");
  EXPECT_EQ(got[0], got[1]);
  EXPECT_GT(kernels, 0) << got[0];
  EXPECT_LE(tuned, kernels) << "some were measured by both";
}

/// A build may take longer than the others would wait.
TEST(DistributedDataParallel, NothingIsBuiltForABrokenGroup) {
  const auto got = on_ranks(1, [&](int, auto group) -> std::string {
    Net net;
    DistributedDataParallel ddp(net, group);
    const auto body = [&](const Tensor& x) {
      sum(ddp(x)).backward();
      group->abort("the test says so");
    };
    compile(body, {.name = "step"})(batch(0, 2, 0));
    return "";
  });
  EXPECT_EQ(got[0], "comm: rank 0: rank 0 aborted: the test says so [in step: the build for first call]");
}

/// Nothing would be reduced, and nothing would say so.
TEST(DistributedDataParallel, AForwardThatPassesTheWrapperByIsTold) {
  for (bool compiled : {false, true}) {
    const auto group = make_local_groups(1, Seconds(30))[0];
    Net net;
    DistributedDataParallel ddp(net, group);
    const auto step = [&](const Tensor& x) { sum(net(x)).backward(); };
    auto fast = compile(step, {.name = "step"});
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) compiled ? fast(batch(0, 2, 0)) : step(batch(0, 2, 0));
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("no forward has gone through it (call it, not the module that it wraps)"),
              said.rfind("no forward has gone through it"));
    EXPECT_THAT(said, HasSubstr("distributed_data_parallel_test.cpp:"));
  }
  // Gradients of accumulation stay here, too.
  const auto group = make_local_groups(1, Seconds(30))[0];
  Net net;
  DistributedDataParallel ddp(net, group);
  ::testing::internal::CaptureStderr();
  const auto guard = ddp.no_sync();
  sum(ddp(batch(0, 2, 0))).backward();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

/// names that are left alone are neither broadcast nor reduced.
TEST(DistributedDataParallel, IgnoredParametersStayTheRanksOwn) {
  const auto got = on_ranks(2, [&](int r, auto group) -> std::string {
    Net net;
    fill(net, 10 * r);
    DistributedDataParallel ddp(net, group, {.ignore = {"fc1.bias"}});
    sum(ddp(batch(r, 2, 0))).backward();
    return fmt::format("{} {} {}", ddp.reduced_names().size(), net.fc1.bias.template to_vector<float>()[0],
                       net.fc1.bias.grad().template to_vector<float>()[0]);
  });
  EXPECT_THAT(got[0], ::testing::StartsWith("5 "));
  EXPECT_NE(got[0], got[1]);
}

}  // namespace KILN_FILE
}  // namespace kiln::nn
