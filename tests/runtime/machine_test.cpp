// SPDX-License-Identifier: Apache-2.0
#include "runtime/machine.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kiln {
namespace KILN_FILE {

TEST(Machine, MeasuresOnceAndRemembers) {
  const MachineLimits one = machine_limits(1);
  EXPECT_EQ(one.threads, 1);
  EXPECT_GT(one.flops_per_s, 1e8);  // any CPU, even under a sanitizer
  EXPECT_GT(one.bytes_per_s, 1e7);
  EXPECT_LT(one.bytes_per_s, 1e13);
  const auto start = std::chrono::steady_clock::now();
  const MachineLimits again = machine_limits(1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(again.flops_per_s, one.flops_per_s);
}

TEST(Machine, LimitIsTheSlowerOfArithmeticAndMemory) {
  const MachineLimits m{1, 100.0, 10.0};
  EXPECT_EQ(m.seconds(20, 50), 2.0);
  EXPECT_EQ(m.seconds(1, 50), 0.5);
  EXPECT_EQ(MachineLimits{}.seconds(20, 50), 0.0);
}

}  // namespace KILN_FILE
}  // namespace kiln
