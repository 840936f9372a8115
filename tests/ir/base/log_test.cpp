// SPDX-License-Identifier: Apache-2.0
#include "ir/base/log.h"

#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln {
namespace KILN_FILE {

/// What `f` prints to stderr while KILN_LOG is `level`.
template <typename F>
std::string printed(const char* level, F&& f) {
  set_option("KILN_LOG", level);
  ::testing::internal::CaptureStderr();
  f();
  set_option("KILN_LOG", "");
  return ::testing::internal::GetCapturedStderr();
}

void log_all() {
  log(LogLevel::error, "e {}", 1);
  log(LogLevel::warn, "w {}", 2);
  log(LogLevel::info, "i");
  log(LogLevel::debug, "d");
  log(LogLevel::trace, "t");
}

TEST(Log, PrintsUpToTheLevel) {
  EXPECT_EQ(printed("error", log_all), "kiln error: e 1\n");
  EXPECT_EQ(printed("info", log_all), "kiln error: e 1\nkiln warning: w 2\nkiln info: i\n");
  EXPECT_EQ(printed("trace", log_all),
            "kiln error: e 1\nkiln warning: w 2\nkiln info: i\nkiln debug: d\nkiln trace: t\n");
}

TEST(Log, KeepsBraces) {
  EXPECT_EQ(printed("warn", [] { log_line(LogLevel::warn, "{} %v {0}"); }), "kiln warning: {} %v {0}\n");
}

TEST(Log, WarnIsTheDefault) {
  EXPECT_TRUE(log_enabled(LogLevel::warn));
  EXPECT_FALSE(log_enabled(LogLevel::info));
}

TEST(Log, ABadLevelIsAnError) { EXPECT_THROW(set_option("KILN_LOG", "loud"), Error); }

}  // namespace KILN_FILE
}  // namespace kiln
