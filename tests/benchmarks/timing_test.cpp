// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace kiln::bench {
namespace KILN_FILE {

TEST(Timing, Figures) {
  Measurement m;
  m.first_step_s = 1.0;
  m.times_s = {0.004, 0.001, 0.002, 0.100};
  EXPECT_DOUBLE_EQ(m.median_ms(), 3);
  EXPECT_DOUBLE_EQ(m.low_ms(), 1.5);
  EXPECT_DOUBLE_EQ(m.min_ms(), 1);
  EXPECT_DOUBLE_EQ(m.startup_s(), 0.997);
}

TEST(Timing, StepsAndLosses) {
  int calls = 0;
  const Measurement m = measure(
      [&] {
        if (calls == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return static_cast<double>(++calls);
      },
      0.001);
  EXPECT_EQ(m.losses, (std::vector<double>{1, 2, 3}));
  EXPECT_GE(m.times_s.size(), 5u);
  EXPECT_EQ(static_cast<size_t>(calls), 5 + m.times_s.size());
  EXPECT_GE(m.first_step_s, 0.03);
  EXPECT_LT(m.median_ms(), 30);
}

TEST(Timing, JsonLine) {
  Measurement m;
  m.first_step_s = 0.5;
  m.losses = {2.5};
  m.times_s = {0.25};
  Extra e{"pointwise", "compiled", 2, 1.5, 1, 3, {{"x", 7e-8}}};
  const auto j = nlohmann::json::parse(json_line(m, e));
  for (const char* key : {"median_ms", "low_ms", "min_ms", "first_step_s", "startup_s", "peak_rss_mb",
                          "arena_mb", "builds", "compiled", "losses"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_EQ(j["startup_s"], 0.25);
  EXPECT_EQ(j["gnorm"]["x"], 7e-8);
  EXPECT_GT(j["peak_rss_mb"], 1);
  EXPECT_THAT(text_line(m, e), ::testing::HasSubstr("median 250 ms"));
  EXPECT_THAT(text_line(m, e),
              ::testing::HasSubstr("first step 0.5 s (0.25 s of it to start, 3 kernels compiled)"));
}

}  // namespace KILN_FILE
}  // namespace kiln::bench
