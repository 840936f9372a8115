// SPDX-License-Identifier: Apache-2.0
// What a compiled callable says about itself.
#include <gtest/gtest.h>

#include "frontend/kiln.h"
#include "ir/base/options.h"

namespace kiln {
namespace {

TEST(CompileStats, WorkAndLimit) {
  const Tensor a = ones({64, 128}), b = ones({128, 32});
  auto f = compile([&] { return matmul(a, b); });
  EXPECT_TRUE(f.stats().builds.empty());
  f();
  const CallableStats stats = f.stats();
  ASSERT_EQ(stats.builds.size(), 1u);
  double bytes = 0, flops = 0;
  for (const auto& [moved, done] : stats.builds[0].work) {
    bytes += moved;
    flops += done;
  }
  EXPECT_DOUBLE_EQ(flops, 2.0 * 64 * 128 * 32);
  EXPECT_GE(bytes, 4.0 * (64 * 128 + 128 * 32 + 64 * 32));
  const double limit = limit_seconds(stats.builds[0], 1);
  EXPECT_GT(limit, 1e-7);
  EXPECT_LT(limit, 1e-3);
  EXPECT_EQ(limit_seconds(Build{}, 1), 0);
}

TEST(CompileStats, SwitchedOffThereAreNone) {
  set_option("KILN_COMPILE", "off");
  auto f = compile([](const Tensor& x) { return x + 1; });
  set_option("KILN_COMPILE", "");
  EXPECT_EQ(f(ones({2})).sum().item(), 4);
  EXPECT_EQ(f.stats().calls, 0u);
  EXPECT_TRUE(f.stats().builds.empty());
}

}  // namespace
}  // namespace kiln
