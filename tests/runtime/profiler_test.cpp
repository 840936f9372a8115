// SPDX-License-Identifier: Apache-2.0
#include "runtime/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "runtime/machine.h"

namespace kiln {
namespace KILN_FILE {

Plan sample() {
  Plan p;
  p.dims = {Dim(3'000'000), Dim(1'000'000)};
  p.kernels = {{false, "k_1"}, {true, "copy"}};
  p.profile = {{"gelu", "tanh mul", 0, 1, {4, 2}}, {"gelu", "tanh mul", 0, -1, {2, 9}}};
  p.launches = {{0, {}, {}, -1, -1, true, 0}, {0, {}, {}, -1, -1, true, 1}, {1, {}, {}, -1, -1, true, -1}};
  return p;
}

TEST(Profiler, AddsLaunchesOfOneName) {
  const Plan plan = sample();
  const int64_t dims[] = {3'000'000, 1'000'000}, ns[] = {1000, 3000, 9000};
  Profiler profiler;
  profiler.record(plan, dims, ns, 15'000);
  profiler.record(plan, dims, ns, 15'000);
  const auto e = profiler.entries();
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].name, "copy");
  EXPECT_DOUBLE_EQ(e[0].seconds, 18e-6);
  EXPECT_EQ(e[1].name, "gelu");
  EXPECT_EQ(e[1].launches, 4);
  EXPECT_DOUBLE_EQ(e[1].seconds, 8e-6);
  EXPECT_EQ(e[1].bytes, 12e6);
  EXPECT_EQ(e[1].flops, 2e6);
  EXPECT_THAT(e[1].sources, ::testing::ElementsAre(4, 2, 9));
  profiler.reset();
  EXPECT_TRUE(profiler.entries().empty());
  EXPECT_EQ(profiler.calls(), 0);
}

TEST(Profiler, PrintsATable) {
  const Plan plan = sample();
  const int64_t dims[] = {3'000'000, 1'000'000}, ns[] = {400'000, 400'000, 100'000};
  Profiler profiler;
  profiler.record(plan, dims, ns, 1'000'000);
  EXPECT_EQ(profiler.table({2, 1e12, 15e9}),
            "kernel                launches     total us    mean us  share     GB/s   GFLOP/s % limit\n"
            "gelu                         2        800.0     400.00  80.0%      7.5       1.2      50\n"
            "copy                         1        100.0     100.00  10.0%        -         -       -\n"
            "(between launches)           1        100.0     100.00  10.0%        -         -       -\n"
            "total 1000.0 us in 1 calls on 2 threads, 40% of the machine's limit\n");
  EXPECT_THAT(Profiler().table({}), ::testing::HasSubstr("total 0.0 us in 0 calls"));
}

TEST(Profiler, PrintsNoLimitOfTheCpuForAGpu) {
  const Plan plan = sample();
  const int64_t dims[] = {3'000'000, 1'000'000}, ns[] = {400'000, 400'000, 100'000};
  Profiler profiler;
  profiler.record(plan, dims, ns, 1'000'000, Device::cuda(1));
  const std::string text = profiler.table({2, 1e12, 15e9});
  EXPECT_THAT(text, ::testing::HasSubstr("7.5       1.2       -\n"));
  EXPECT_THAT(text, ::testing::EndsWith("total 1000.0 us in 1 calls on cuda:1\n"));
}

TEST(Profiler, WantsATimeForEveryLaunch) {
  const Plan plan = sample();
  const int64_t dims[] = {1, 1}, ns[] = {1};
  Profiler profiler;
  EXPECT_THROW(profiler.record(plan, dims, ns, 1), Error);
}

}  // namespace KILN_FILE
}  // namespace kiln
